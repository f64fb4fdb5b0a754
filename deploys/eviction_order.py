"""Who goes first when a node runs short of memory, disk or processes, and why. Changes nothing.

pyinfra inventories/prod.py deploys/eviction_order.py -y
pyinfra inventories/prod.py deploys/eviction_order.py -y --data picture=order.html
pyinfra inventories/prod.py deploys/eviction_order.py -y --data format=json
"""

from roles.eviction import eviction_order
from roles.inventory import known_keys

known_keys()
eviction_order()
