"""Set HorizontalPodAutoscalers and VerticalPodAutoscalers as in the inventory's data: planned with what the controller would do now,
applied, proven by its conditions and by its count.

pyinfra inventories/prod.py deploys/autoscalers.py --dry
pyinfra inventories/prod.py deploys/autoscalers.py -y
pyinfra inventories/prod.py deploys/autoscalers.py --data autoscalers=shop/deployment/web=absent -y
"""

import sys
from pathlib import Path

if (home := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, home)  # also if pyinfra starts elsewhere: then the run is refused with what to do

from roles.autoscalers import autoscalers  # noqa: E402

autoscalers()
