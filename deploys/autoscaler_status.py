"""Show each HorizontalPodAutoscaler: why it has this count now, what would change it, which one is stuck, and the fix. Changes nothing.
Exit status 2 if one does not work.

pyinfra inventories/prod.py deploys/autoscaler_status.py -y
pyinfra inventories/prod.py deploys/autoscaler_status.py --data namespaces=shop -y
pyinfra inventories/prod.py deploys/autoscaler_status.py -y --data format=json
"""

from roles.autoscaler_status import autoscaler_status

autoscaler_status()
