"""List the runs and changes on all nodes: state, age, who and what. Changes nothing.

pyinfra inventories/prod.py deploys/changes.py -y
"""

import sys
from pathlib import Path

if (home := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, home)  # also if pyinfra starts elsewhere: then the run is refused with what to do

from roles.history import changes  # noqa: E402

changes()
