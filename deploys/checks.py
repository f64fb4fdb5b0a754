"""Does each node run as it should, and as the inventory wants it? For CI: exit status 0, or 2 where a check fails. Changes nothing.

pyinfra inventories/prod.py deploys/checks.py -y
pyinfra inventories/prod.py deploys/checks.py --data junit=checks.xml -y
"""

from roles.checks import checks

checks()
