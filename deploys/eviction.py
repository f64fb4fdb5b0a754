"""Set the kubelets' eviction thresholds: looked at before, node by node, proven in the running processes, or put back.

pyinfra inventories/prod.py deploys/eviction.py --dry
pyinfra inventories/prod.py deploys/eviction.py --data eviction_hard=memory.available=500Mi,nodefs.available=10% -y
"""

from roles.eviction import eviction

eviction()
