"""Workloads whose pods have other CPU and memory than their template says. Changes nothing; exit status 2 where there are some.

pyinfra inventories/prod.py deploys/resize_drift.py -y
pyinfra inventories/prod.py deploys/resize_drift.py -y --data format=json
"""

from roles.pod_resize import resize_drift

resize_drift()
