"""Whether this cluster resizes pods in place: a probe pod on each node is resized and taken away again; or what is missing for it.

pyinfra inventories/prod.py deploys/pod_resize_check.py -y
"""

from roles.pod_resize import pod_resize_check

pod_resize_check()
