"""Reboot the nodes that need it, one after another: emptied, rebooted, proven, uncordoned.

pyinfra inventories/prod.py deploys/reboot.py --dry
pyinfra inventories/prod.py deploys/reboot.py -y
pyinfra inventories/prod.py deploys/reboot.py --data nodes=w1 --data allow_unneeded=true -y
"""

import sys
from pathlib import Path

if (home := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, home)  # also if pyinfra starts elsewhere: then the run is refused with what to do

from roles.reboot import reboot  # noqa: E402

reboot()
