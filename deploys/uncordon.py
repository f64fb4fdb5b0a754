"""Bring drained nodes back into service; a cordon that someone else has set stays, unless forced.

pyinfra inventories/prod.py deploys/uncordon.py --data nodes=w1,w2 --dry
pyinfra inventories/prod.py deploys/uncordon.py --data nodes=w1,w2 -y
"""

import sys
from pathlib import Path

if (home := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, home)  # also if pyinfra starts elsewhere: then the run is refused with what to do

from roles.drain import uncordon  # noqa: E402

uncordon()
