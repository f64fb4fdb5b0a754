"""Set PodDisruptionBudgets as in the inventory's data: planned with what they would block, applied, proven by their status.

pyinfra inventories/prod.py deploys/disruption_budgets.py --dry
pyinfra inventories/prod.py deploys/disruption_budgets.py -y
pyinfra inventories/prod.py deploys/disruption_budgets.py --data disruption_budgets=shop/web=absent -y
"""

from roles.disruption_budgets import disruption_budgets

disruption_budgets()
