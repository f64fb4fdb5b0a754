"""Wake machines when pods wait for room, and take nodes away that are not needed; once, or pass after pass.

pyinfra inventories/prod.py deploys/node_autoscaler.py --dry
pyinfra inventories/prod.py deploys/node_autoscaler.py -y
pyinfra inventories/prod.py deploys/node_autoscaler.py --data watch=true --data hours="Mo-Fr 19:00-07:00" -y
"""

import sys
from pathlib import Path

if (home := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, home)  # also if pyinfra starts elsewhere: then the run is refused with what to do

from roles.node_autoscaler import node_autoscaler  # noqa: E402

node_autoscaler()
