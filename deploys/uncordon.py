"""Bring drained nodes back into service; a cordon that someone else has set stays, unless forced.

pyinfra inventories/prod.py deploys/uncordon.py --data nodes=w1,w2 --dry
pyinfra inventories/prod.py deploys/uncordon.py --data nodes=w1,w2 -y
"""

from roles.drain import uncordon

uncordon()
