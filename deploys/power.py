"""Turn machines off when they are drained, and on when they are needed; without either, show the power of all.

pyinfra inventories/prod.py deploys/power.py -y
pyinfra inventories/prod.py deploys/power.py --data power_off=w1 --data reason="for the night" --dry
pyinfra inventories/prod.py deploys/power.py --data power_off=w1 --data reason="for the night" -y
pyinfra inventories/prod.py deploys/power.py --data power_on=w1 -y
"""

import sys
from pathlib import Path

if (home := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, home)  # also if pyinfra starts elsewhere: then the run is refused with what to do

from roles.power import power  # noqa: E402

power()
