"""Set the kubelets' eviction thresholds: evictions are predicted first; then node by node, proven in the running processes or reverted.

pyinfra inventories/prod.py deploys/eviction.py --dry
pyinfra inventories/prod.py deploys/eviction.py --data eviction_hard=memory.available=500Mi,nodefs.available=10% -y
"""

import sys
from pathlib import Path

if (home := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, home)  # also if pyinfra starts elsewhere: then the run is refused with what to do

from roles.eviction import eviction  # noqa: E402

eviction()
