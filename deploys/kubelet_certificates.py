"""Serving certificates that the cluster signs, instead of self-signed ones: node by node, each request approved only if it is that node's.

pyinfra inventories/prod.py deploys/kubelet_certificates.py --dry
pyinfra inventories/prod.py deploys/kubelet_certificates.py -y    # run again, it approves renewals
"""

import sys
from pathlib import Path

if (home := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, home)  # also if pyinfra starts elsewhere: then the run is refused with what to do

from roles.kubelet_certificates import kubelet_certificates  # noqa: E402

kubelet_certificates()
