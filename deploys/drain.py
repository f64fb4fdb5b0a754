"""Take nodes out of service: cordon them, evict their pods in waves that keep each budget, wait for the replacements, prove.

pyinfra inventories/prod.py deploys/drain.py --data nodes=w1,w2 --dry
pyinfra inventories/prod.py deploys/drain.py --data nodes=w1,w2 -y
pyinfra inventories/prod.py deploys/drain.py --data nodes=w1 --data allow_local_data=true --data surge=shop/web -y
"""

from roles.drain import drain

drain()
