"""What is wrong with a cluster's gates and kubelets, and would be after an upgrade. Changes nothing; exit code 0 clean, 1 could not
look, 2 findings.

pyinfra inventories/prod.py deploys/audit.py
pyinfra inventories/prod.py deploys/audit.py --data target_version=v1.37
pyinfra inventories/prod.py deploys/audit.py --data format=json
pyinfra inventories/prod.py deploys/audit.py --data format=html --data output=audit.html
"""

from roles.audit import audit

audit()
