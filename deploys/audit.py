"""Report what is wrong with a cluster's gates and kubelets, now or after an upgrade. Changes nothing. Exit status 0: clean; 1: not all
nodes could be read; 2: findings.

pyinfra inventories/prod.py deploys/audit.py
pyinfra inventories/prod.py deploys/audit.py --data target_version=v1.37
pyinfra inventories/prod.py deploys/audit.py --data format=json
pyinfra inventories/prod.py deploys/audit.py --data format=html --data output=audit.html
"""

from roles.audit import audit

audit()
