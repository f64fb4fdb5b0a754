"""Set the kubelets' eviction thresholds: evictions are predicted first; then node by node, proven in the running processes or reverted.

pyinfra inventories/prod.py deploys/eviction.py --dry
pyinfra inventories/prod.py deploys/eviction.py --data eviction_hard=memory.available=500Mi,nodefs.available=10% -y
"""

from roles.eviction import eviction

eviction()
