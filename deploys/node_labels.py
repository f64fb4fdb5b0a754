"""Set labels and taints of nodes as in the inventory's data: planned by dry run, applied, read back.

pyinfra inventories/prod.py deploys/node_labels.py --dry
pyinfra inventories/prod.py deploys/node_labels.py --limit w1 --data node_labels=rack=a1,old=absent -y
pyinfra inventories/prod.py deploys/node_labels.py --limit w1 --data node_taints=dedicated=gpu:NoExecute --data allow_evictions=true -y
"""

from roles.node_labels import node_labels

node_labels()
