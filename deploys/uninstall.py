"""Leave the nodes without a trace of daytwo; what it configured stays as it is.

pyinfra inventories/prod.py deploys/uninstall.py -y
"""

from roles.history import uninstall

uninstall()
