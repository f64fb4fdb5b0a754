"""Show what each container uses, what it requests, and what it should request; with apply=true, change that.

pyinfra inventories/prod.py deploys/right_size.py -y
pyinfra inventories/prod.py deploys/right_size.py -y --data namespaces=shop --data watch=600
pyinfra inventories/prod.py deploys/right_size.py -y --data format=json
pyinfra inventories/prod.py deploys/right_size.py -y --data format=html --data output=right-size.html
pyinfra inventories/prod.py deploys/right_size.py --data only_objects=shop/deployment/web --data apply=true --dry
pyinfra inventories/prod.py deploys/right_size.py --data only_objects=shop/deployment/web --data apply=true -y
"""

import sys
from pathlib import Path

if (home := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, home)  # also if pyinfra starts elsewhere: then the run is refused with what to do

from roles.right_size import right_size  # noqa: E402

right_size()
