"""List workloads whose pods differ from their template in CPU and memory. Changes nothing. Exit status 2 if there are any.

pyinfra inventories/prod.py deploys/resize_drift.py -y
pyinfra inventories/prod.py deploys/resize_drift.py -y --data format=json
"""

from roles.pod_resize import resize_drift

resize_drift()
