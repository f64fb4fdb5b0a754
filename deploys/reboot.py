"""Reboot the nodes that need it, one after another: emptied, rebooted, proven, uncordoned.

pyinfra inventories/prod.py deploys/reboot.py --dry
pyinfra inventories/prod.py deploys/reboot.py -y
pyinfra inventories/prod.py deploys/reboot.py --data only=w1 --data force=true -y
"""

from roles.reboot import reboot

reboot()
