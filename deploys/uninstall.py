"""Remove daytwo from the nodes; what it configured stays.

pyinfra inventories/prod.py deploys/uninstall.py -y
"""

from roles.history import uninstall

uninstall()
