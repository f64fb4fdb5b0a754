"""Undo a run, the newest or a named one, as a new run: the last change first, proven or reverted.

pyinfra inventories/prod.py deploys/rollback.py --dry
pyinfra inventories/prod.py deploys/rollback.py --data run=r20260131-235900-1a2b -y
"""

from roles.history import rollback

rollback()
