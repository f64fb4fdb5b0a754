"""Turn feature gates on or off, or remove them: node by node, proven in the running processes or reverted.

pyinfra inventories/prod.py deploys/feature_gates.py --dry
pyinfra inventories/prod.py deploys/feature_gates.py --data feature_gates=NodeSwap=true -y
"""

import sys
from pathlib import Path

if (home := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, home)  # also if pyinfra starts elsewhere: then the run is refused with what to do

from roles.feature_gates import feature_gates  # noqa: E402

feature_gates()
