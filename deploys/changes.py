"""List the runs and changes on all nodes: state, age, who and what. Changes nothing.

pyinfra inventories/prod.py deploys/changes.py -y
"""

from roles.history import changes

changes()
