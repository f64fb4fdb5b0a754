"""Set PriorityClasses, and the classes of workloads, as in the inventory's data: planned by dry run, applied, read back.

pyinfra inventories/prod.py deploys/priority_classes.py --dry
pyinfra inventories/prod.py deploys/priority_classes.py --data priority_classes=batch=-10,web=1000 -y
pyinfra inventories/prod.py deploys/priority_classes.py --data workloads=default/deployment/shop=web -y
"""

from roles.priority_classes import priority_classes

priority_classes()
