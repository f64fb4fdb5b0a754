"""Remove daytwo from the nodes; what it configured stays.

pyinfra inventories/prod.py deploys/uninstall.py -y
"""

import sys
from pathlib import Path

if (home := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, home)  # also if pyinfra starts elsewhere: then the run is refused with what to do

from roles.history import uninstall  # noqa: E402

uninstall()
