"""Show what each container uses, what it requests, and what it should request. Changes nothing in the cluster.

pyinfra inventories/prod.py deploys/right_size.py -y
pyinfra inventories/prod.py deploys/right_size.py -y --data namespaces=shop --data watch=600
pyinfra inventories/prod.py deploys/right_size.py -y --data format=json
pyinfra inventories/prod.py deploys/right_size.py -y --data format=html --data output=right-size.html
"""

from roles.right_size import right_size

right_size()
