"""Report what is wrong with a cluster's gates and kubelets, now or after an upgrade. Changes nothing. Exit status 0: clean; 1: not all
nodes could be read; 2: findings.

pyinfra inventories/prod.py deploys/audit.py
pyinfra inventories/prod.py deploys/audit.py --data target_version=v1.37
pyinfra inventories/prod.py deploys/audit.py --data format=json
pyinfra inventories/prod.py deploys/audit.py --data format=html --data output=audit.html
"""

import sys
from pathlib import Path

if (home := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, home)  # also if pyinfra starts elsewhere: then the run is refused with what to do

from roles.audit import audit  # noqa: E402

audit()
