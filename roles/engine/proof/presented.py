"""What the kubelet of a node presents at its port, as the API servers reach it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roles.engine.api import ApiError, NoApi
from roles.engine.bridge import Remote
from roles.engine.certificates import Certificate, CertificateError, parse_der, usual_addresses
from roles.engine.kube.fields import node_addresses, status_of
from roles.engine.proof.cluster import Cluster
from roles.engine.remote import RemoteError
from roles.engine.tunnels.served import Served, served

DEFAULT_PORT = 10250
#: kubeadm's --kubelet-preferred-address-types, as far as they are addresses.
ADDRESSES = ("InternalIP", "ExternalIP")


@dataclass(frozen=True)
class Presented:
    """What the kubelet of a node presents at its port, as the API servers reach it. `certificate` is None if it presents none; `problem`
    why the cluster's CA does not prove it ("": it does); `where`: ADDRESS:PORT."""

    where: str
    certificate: Certificate | None
    problem: str

    @property
    def verified(self) -> bool:
        return self.certificate is not None and not self.problem


def address_of(node: Mapping[str, Any], kinds: Sequence[str] = ADDRESSES) -> tuple[str, int] | None:
    """Where the API servers reach a node's kubelet, by the types of --kubelet-preferred-address-types; the first that it has counts."""
    port = ((status_of(node).get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port") or DEFAULT_PORT
    for kind in kinds:
        for of_kind, text in node_addresses(node):
            if of_kind == kind and (found := usual_addresses([text]) if kind in ADDRESSES else [text]):
                return next(iter(found)), int(port)
    return None


def presented(cluster: Cluster, node: Mapping[str, Any], authority: str = "", kinds: Sequence[str] = ADDRESSES) -> Presented:
    """A handshake with a node's kubelet, from a control-plane node, against a CA (PEM; "": that of the admin kubeconfig there). Raises
    ApiFailure."""
    address = address_of(node, kinds)
    if address is None:
        raise NoApi("its Node object has no IP address, so its kubelet cannot be reached from the control plane")
    tried: list[str] = []
    for remote, own, _ in cluster.doors():
        try:
            one = handshake(remote, address, authority or own, "kubelet")
        except (ApiError, RemoteError) as error:
            tried.append(str(error))
            continue
        certificate = None
        problem = one.problem
        if one.certificate is not None:
            try:
                certificate = parse_der(one.certificate)
            except CertificateError as error:
                problem = str(error)
        return Presented(f"{address[0]}:{address[1]}", certificate, problem)
    raise NoApi("; ".join(tried) or "no control-plane node with SSH can be used for a handshake with it")


def handshake(remote: Remote, address: tuple[str, int], authority: str, what: str) -> Served:
    """Raises ApiFailure, RemoteError."""
    remote.ensure_connected()
    transport = remote.transport
    if transport is None:
        raise NoApi(f"{remote.name}: a TLS handshake goes over SSH, and this host is not reached by SSH")
    return served(transport, remote.name, address, authority, what)
