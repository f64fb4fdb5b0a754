"""Show nodes, versions, sources of gates and flags, and effective gates. Changes nothing; the first command to run.

pyinfra inventories/prod.py deploys/status.py -y
"""

import sys
from pathlib import Path

if (home := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, home)  # also if pyinfra starts elsewhere: then the run is refused with what to do

from roles.status import status  # noqa: E402

status()
