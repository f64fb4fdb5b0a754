"""Take nodes out of service: cordon them, evict their pods in waves that keep each budget, wait for the replacements, prove.

pyinfra inventories/prod.py deploys/drain.py --data nodes=w1,w2 --dry
pyinfra inventories/prod.py deploys/drain.py --data nodes=w1,w2 -y
pyinfra inventories/prod.py deploys/drain.py --data nodes=w1,w2 --data verify=scheduler --dry
pyinfra inventories/prod.py deploys/drain.py --data nodes=w1 --data allow_local_data=true --data surge=shop/web -y
"""

import sys
from pathlib import Path

if (home := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, home)  # also if pyinfra starts elsewhere: then the run is refused with what to do

from roles.drain import drain  # noqa: E402

drain()
