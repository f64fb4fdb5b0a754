"""Check whether this cluster can resize pods in place: resize a probe pod on each node and remove it; or report what is missing.

pyinfra inventories/prod.py deploys/pod_resize_check.py -y
"""

from roles.pod_resize import pod_resize_check

pod_resize_check()
