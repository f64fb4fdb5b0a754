"""Change the CPU and memory of running pods without a restart: one at a time, proven in their cgroups or reverted.

pyinfra inventories/prod.py deploys/resize.py --data workload=shop/deployment/web --data cpu=300m --data memory=600Mi --dry
pyinfra inventories/prod.py deploys/resize.py --data workload=shop/deployment/web --data cpu=300m --data memory=600Mi -y
pyinfra inventories/prod.py deploys/rollback.py --data run=r20260131-235900-1a2b -y
"""

import sys
from pathlib import Path

if (home := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, home)  # also if pyinfra starts elsewhere: then the run is refused with what to do

from roles.pod_resize import resize  # noqa: E402

resize()
