"""Show the eviction order of each node's pods, for memory, disk and processes, and why. Changes nothing.

pyinfra inventories/prod.py deploys/eviction_order.py -y
pyinfra inventories/prod.py deploys/eviction_order.py -y --data picture=order.html
pyinfra inventories/prod.py deploys/eviction_order.py -y --data format=json
"""

import sys
from pathlib import Path

if (home := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, home)  # also if pyinfra starts elsewhere: then the run is refused with what to do

from roles.eviction import eviction_order  # noqa: E402

eviction_order()
