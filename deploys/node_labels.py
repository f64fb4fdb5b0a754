"""Set labels and taints of nodes as in the inventory's data: planned by dry run, applied, read back.

pyinfra inventories/prod.py deploys/node_labels.py --dry
pyinfra inventories/prod.py deploys/node_labels.py --limit w1 --data node_labels=rack=a1,old=absent -y
pyinfra inventories/prod.py deploys/node_labels.py --limit w1 --data node_taints=dedicated=gpu:NoExecute --data allow_evictions=true -y
"""

import sys
from pathlib import Path

if (home := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, home)  # also if pyinfra starts elsewhere: then the run is refused with what to do

from roles.node_labels import node_labels  # noqa: E402

node_labels()
