"""Show the eviction order of each node's pods, for memory, disk and processes, and why. Changes nothing.

pyinfra inventories/prod.py deploys/eviction_order.py -y
pyinfra inventories/prod.py deploys/eviction_order.py -y --data picture=order.html
pyinfra inventories/prod.py deploys/eviction_order.py -y --data format=json
"""

from roles.eviction import eviction_order

eviction_order()
