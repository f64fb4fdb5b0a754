"""Undo a run, the newest or a named one, as a new run: the last change first, proven or reverted.

pyinfra inventories/prod.py deploys/rollback.py --dry
pyinfra inventories/prod.py deploys/rollback.py --data run=r20260131-235900-1a2b -y
"""

import sys
from pathlib import Path

if (home := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, home)  # also if pyinfra starts elsewhere: then the run is refused with what to do

from roles.history import rollback  # noqa: E402

rollback()
