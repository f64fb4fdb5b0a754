"""Set PodDisruptionBudgets as in the inventory's data: planned with what they would block, applied, proven by their status.

pyinfra inventories/prod.py deploys/disruption_budgets.py --dry
pyinfra inventories/prod.py deploys/disruption_budgets.py -y
pyinfra inventories/prod.py deploys/disruption_budgets.py --data disruption_budgets=shop/web=absent -y
"""

import sys
from pathlib import Path

if (home := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, home)  # also if pyinfra starts elsewhere: then the run is refused with what to do

from roles.disruption_budgets import disruption_budgets  # noqa: E402

disruption_budgets()
