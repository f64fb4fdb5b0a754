"""Set fields of the kubelets' configuration: checked against each kubelet's version; node by node, proven or reverted.

pyinfra inventories/prod.py deploys/kubelet_config.py --dry
pyinfra inventories/prod.py deploys/kubelet_config.py --data kubelet_config=maxPods=200,systemReserved.cpu=200m -y
"""

from roles.kubelet_config import kubelet_config

kubelet_config()
