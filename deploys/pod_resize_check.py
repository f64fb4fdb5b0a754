"""Check whether this cluster resizes pods in place, with a probe pod on each node, removed afterwards; or report what is missing for it.

pyinfra inventories/prod.py deploys/pod_resize_check.py -y
"""

from roles.pod_resize import pod_resize_check

pod_resize_check()
