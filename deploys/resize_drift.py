"""List workloads whose pods differ from their template in CPU and memory. Changes nothing. Exit status 2 if there are any.

pyinfra inventories/prod.py deploys/resize_drift.py -y
pyinfra inventories/prod.py deploys/resize_drift.py -y --data format=json
"""

import sys
from pathlib import Path

if (home := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, home)  # also if pyinfra starts elsewhere: then the run is refused with what to do

from roles.pod_resize import resize_drift  # noqa: E402

resize_drift()
