"""Serving certificates of kubelets that the cluster signs: each request is approved only if it is that very node's, and proven."""

from __future__ import annotations

from roles.engine.bridge import Fleet
from roles.engine.inputs import Changes, Declared
from roles.engine.node_changes import ChangeDrains, change_nodes
from roles.engine.runs import Turns, deploying
from roles.kubelet_certificates.model import CertificateKeys
from roles.kubelet_certificates.plan import is_kubelets_own
from roles.kubelet_certificates.serving import ServingCertificates, read_wanted


def _wanted(fleet: Fleet) -> ServingCertificates:
    return ServingCertificates(read_wanted(fleet))


@deploying("Kubelet certificates", _wanted)
def kubelet_certificates(fleet: Fleet, certificates: ServingCertificates) -> Turns:
    """Give the kubelets of the run serving certificates that the cluster's CA signs, and approve renewals.

    Data keys: those of roles/kubelet_certificates/model.py and of roles/engine/runs/options.py. Raises DeployError before it writes to
    any node, if the names of a node are not proven to be its own, or the plan is refused.
    """
    return change_nodes(fleet, certificates)


DATA_KEYS = (
    Declared(CertificateKeys, ("kubelet_certificates",), changes=Changes.NODES),
    Declared(ChangeDrains, ("kubelet_certificates",)),
)

__all__ = [
    "DATA_KEYS",
    "is_kubelets_own",
    "kubelet_certificates",
]
