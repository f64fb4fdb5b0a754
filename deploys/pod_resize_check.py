"""Whether this cluster resizes pods in place: a probe pod on each node is resized and taken away again; or what is missing for it.

pyinfra inventories/prod.py deploys/pod_resize_check.py -y
"""

from roles.inventory import known_keys
from roles.pod_resize import pod_resize_check

known_keys(of_cluster=True)
pod_resize_check()
