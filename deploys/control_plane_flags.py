"""Set flags of the control plane's components, and the files that flags name: one component at a time, proven or reverted.

pyinfra inventories/prod.py deploys/control_plane_flags.py --dry
pyinfra inventories/prod.py deploys/control_plane_flags.py --data control_plane_flags=kube-scheduler:v=4 -y
"""

from roles.control_plane_flags import control_plane_flags

control_plane_flags()
