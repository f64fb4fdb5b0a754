"""Restart workloads by their templates, one after another: each keeps its budgets, and is proven before the next one begins, or undone.

pyinfra inventories/prod.py deploys/restart.py --data restart=shop/deployment/web --dry
pyinfra inventories/prod.py deploys/restart.py --data restart=shop/deployment/web,shop/statefulset/db -y
pyinfra inventories/prod.py deploys/restart.py --data workload_selector=shop/app=web -y
"""

import sys
from pathlib import Path

if (home := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, home)  # also if pyinfra starts elsewhere: then the run is refused with what to do

from roles.restart import restart  # noqa: E402

restart()
