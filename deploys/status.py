"""Show nodes, versions, sources of gates and flags, and effective gates. Changes nothing; the first command to run.

pyinfra inventories/prod.py deploys/status.py -y
"""

from roles.status import status

status()
