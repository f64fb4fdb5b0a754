"""Check that each node is healthy and matches the inventory. Changes nothing. Exit status for CI: 0, or 2 if a check fails.

pyinfra inventories/prod.py deploys/checks.py -y
pyinfra inventories/prod.py deploys/checks.py --data junit=checks.xml -y
"""

from roles.checks import checks

checks()
