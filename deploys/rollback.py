"""Undo a run, the newest one or that named: the last change first, proven or put back, as a run itself.

pyinfra inventories/prod.py deploys/rollback.py --dry
pyinfra inventories/prod.py deploys/rollback.py --data run=r20260131-235900-1a2b -y
"""

from roles.history import rollback

rollback()
