"""Take nodes out of service that the work can do without now: drained, and powered off or left cordoned. With --dry, show which they are,
what that saves, which pods would move where, and why the other nodes stay.

pyinfra inventories/prod.py deploys/consolidate.py --dry
pyinfra inventories/prod.py deploys/consolidate.py --data nodes=w4,w5 --data max_moves=20 --dry
pyinfra inventories/prod.py deploys/consolidate.py -y
pyinfra inventories/prod.py deploys/consolidate.py --data nodes=w4 --data then=cordon -y
pyinfra inventories/prod.py deploys/consolidate.py --data take_back=w4 -y
pyinfra inventories/prod.py deploys/consolidate.py --data format=html --data output=consolidate.html --dry
"""

import sys
from pathlib import Path

if (home := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, home)  # also if pyinfra starts elsewhere: then the run is refused with what to do

from roles.consolidation import consolidate  # noqa: E402

consolidate()
