"""Set PriorityClasses, and the classes of workloads, as in the inventory's data: planned by dry run, applied, read back.

pyinfra inventories/prod.py deploys/priority_classes.py --dry
pyinfra inventories/prod.py deploys/priority_classes.py --data priority_classes=batch=-10,web=1000 -y
pyinfra inventories/prod.py deploys/priority_classes.py --data workloads=default/deployment/shop=web -y
"""

import sys
from pathlib import Path

if (home := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, home)  # also if pyinfra starts elsewhere: then the run is refused with what to do

from roles.priority_classes import priority_classes  # noqa: E402

priority_classes()
