"""Check that each node is healthy and matches the inventory. Changes nothing. Exit status for CI: 0, or 2 if a check fails.

pyinfra inventories/prod.py deploys/checks.py -y
pyinfra inventories/prod.py deploys/checks.py --data junit=checks.xml -y
"""

import sys
from pathlib import Path

if (home := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, home)  # also if pyinfra starts elsewhere: then the run is refused with what to do

from roles.checks import checks  # noqa: E402

checks()
