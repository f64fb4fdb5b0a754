"""Set fields of the kubelets' configuration: checked against each kubelet's version; node by node, proven or reverted.

pyinfra inventories/prod.py deploys/kubelet_config.py --dry
pyinfra inventories/prod.py deploys/kubelet_config.py --data kubelet_config=maxPods=200,systemReserved.cpu=200m -y
"""

import sys
from pathlib import Path

if (home := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, home)  # also if pyinfra starts elsewhere: then the run is refused with what to do

from roles.kubelet_config import kubelet_config  # noqa: E402

kubelet_config()
