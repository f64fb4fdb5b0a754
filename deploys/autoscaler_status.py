"""Show each HorizontalPodAutoscaler: why it has this count now, what would change it, which one is stuck, and the fix. Changes nothing.
Exit status 2 if one does not work.

pyinfra inventories/prod.py deploys/autoscaler_status.py -y
pyinfra inventories/prod.py deploys/autoscaler_status.py --data namespaces=shop -y
pyinfra inventories/prod.py deploys/autoscaler_status.py -y --data format=json
"""

import sys
from pathlib import Path

if (home := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, home)  # also if pyinfra starts elsewhere: then the run is refused with what to do

from roles.autoscaler_status import autoscaler_status  # noqa: E402

autoscaler_status()
