"""What is there: nodes, versions, sources of gates and flags, gates in effect. Changes nothing; the first command to run.

pyinfra inventories/prod.py deploys/status.py -y
"""

from roles.status import status

status()
