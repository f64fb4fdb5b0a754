"""Turn feature gates on or off, or remove them: node by node, proven in the running processes or reverted.

pyinfra inventories/prod.py deploys/feature_gates.py --dry
pyinfra inventories/prod.py deploys/feature_gates.py --data feature_gates=NodeSwap=true -y
"""

from roles.feature_gates import feature_gates

feature_gates()
