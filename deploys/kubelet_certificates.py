"""Serving certificates that the cluster signs, instead of self-signed ones: node by node, each request approved only if it is that node's.

pyinfra inventories/prod.py deploys/kubelet_certificates.py --dry
pyinfra inventories/prod.py deploys/kubelet_certificates.py -y    # run again, it approves renewals
"""

from roles.kubelet_certificates import kubelet_certificates

kubelet_certificates()
