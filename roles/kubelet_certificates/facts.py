"""What decides about the serving certificate of a kubelet: its node over SSH, the Node objects, the requests, the certificate it serves."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from roles.engine.api import Api, list_objects
from roles.engine.bridge import Remote, RemoteError
from roles.engine.certificates import (
    CertificateError,
    NodeIdentity,
    claimed_by_others,
    is_serving,
    parse_der,
    usual_addresses,
)
from roles.engine.harmless import one_line
from roles.engine.object_changes import namespace_and_name
from roles.engine.proof import Cluster, NoApi, Presented, address_of, handshake, presented
from roles.engine.scripts import templates
from roles.engine.timeouts import patient

SECONDS = 30
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
#: kube-proxy in IPVS mode gives this interface the addresses of all Services (pkg/proxy/ipvs: defaultDummyDevice).
_NOT_THE_NODES = frozenset(("lo", "kube-ipvs0"))


class CertificateFactsError(RemoteError):
    """The answer of a node is incomplete or malformed. Names the host."""


@dataclass(frozen=True)
class SeenNames:
    """What a host has over SSH: its kernel's host name, and the addresses of its interfaces except those that every node has."""

    hostname: str
    addresses: frozenset[str]


@dataclass
class ClusterFacts:
    """Of the whole cluster. `nodes`: by name; `seen`: by host; `api`: the names of the API, `services`: the addresses of Services, both
    with what they are."""

    nodes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    seen: dict[str, SeenNames] = field(default_factory=dict)
    api: Mapping[str, str] = field(default_factory=dict)
    requests: Sequence[Mapping[str, Any]] = ()
    services: Mapping[str, str] = field(default_factory=dict)

    def taken(self, host: str, node_name: str, *, serves_api: bool) -> Mapping[str, str]:
        """Who has names besides this node. A node that runs an API server shares its own names with it."""
        others = {one: [seen.hostname, *seen.addresses] for one, seen in self.seen.items() if one != host}
        # Programs like node-local DNS put the address of a Service on nodes; it is no node's all the same.
        return claimed_by_others(node_name, self.nodes.values(), others, {**self.services, **({} if serves_api else self.api)})


# ---- the node


def seen_names(remote: Remote) -> SeenNames:
    """Raises RemoteError."""
    answer = remote.run("sh -s", stdin=templates().get_template("addresses.sh.j2").render(), timeout=patient(SECONDS))
    if answer.code != 0:
        raise CertificateFactsError(f"{remote.name}: {' '.join(answer.stderr[-3:]) or f'exit status {answer.code}'}")
    return parse_names(remote.name, answer.stdout)


def parse_names(host: str, lines: Iterable[str]) -> SeenNames:
    """Raises FactsError."""
    hostname, addresses, ended = "", set[str](), False
    try:
        for line in lines:
            kind, *fields = line.split(" ")
            if kind == "hostname":
                hostname = base64.b64decode(fields[0].removesuffix("-"), validate=True).decode("utf-8", "replace").strip()
            elif kind == "address" and fields[0].partition("@")[0] not in _NOT_THE_NODES:
                addresses |= usual_addresses([fields[1].partition("/")[0]])
            ended = ended or kind == "end"
    except (IndexError, ValueError, binascii.Error):
        raise CertificateFactsError(f"{host}: its answer about its addresses cannot be parsed") from None
    if not ended or not addresses:
        raise CertificateFactsError(f"{host}: its addresses cannot be read; is the program ip (iproute2) installed?")
    return SeenNames(hostname, frozenset(addresses))


def identity(name: str, node: Mapping[str, Any], seen: SeenNames, vouched: frozenset[str]) -> NodeIdentity:
    known = frozenset({*vouched, *usual_addresses(vouched)})
    return NodeIdentity(name, node, seen.hostname, seen.addresses, known)


# ---- the cluster


def read_requests(cluster: Cluster) -> list[dict[str, Any]]:
    """The requests for serving certificates, the oldest first. Raises ApiError, NoApi."""

    def read(api: Api) -> list[dict[str, Any]]:
        return list_objects(api, REQUESTS, fields="spec.signerName=kubernetes.io/kubelet-serving")

    found = [item for item in cluster.query(read) if is_serving(item)]
    return sorted(found, key=lambda item: (str(item["metadata"].get("creationTimestamp")), str(item["metadata"].get("name"))))


def api_names(cluster: Cluster) -> dict[str, str]:
    """The names in the certificates of the API servers that the inventory reaches. Raises ApiError, NoApi."""
    found: dict[str, str] = {}
    for remote, authority, address in cluster.doors():
        one = handshake(remote, address, authority, "kube-apiserver")
        if one.certificate is None:
            raise NoApi(f"{remote.name}: its kube-apiserver presents no certificate: {one.problem}")
        try:
            names = parse_der(one.certificate).names
        except CertificateError as error:
            raise NoApi(f"{remote.name}: the certificate of its kube-apiserver cannot be read: {error}") from None
        found |= {name.lower(): "a name of the API server" for name in (*names.dns, *names.ips)}
    return found


def service_addresses(cluster: Cluster) -> dict[str, str]:
    """The cluster IPs of all Services. Raises ApiError, NoApi."""
    found = cluster.query(lambda api: list_objects(api, "/api/v1/services"))
    return {
        address: f"the address of the Service {one_line('/'.join(namespace_and_name(item)))}"
        for item in found
        for address in usual_addresses([str(one) for one in (item.get("spec") or {}).get("clusterIPs") or ()])
    }


__all__ = [
    "REQUESTS",
    "CertificateFactsError",
    "ClusterFacts",
    "Presented",
    "SeenNames",
    "address_of",
    "api_names",
    "identity",
    "parse_names",
    "presented",
    "read_requests",
    "seen_names",
    "service_addresses",
]
