"""What decides about the serving certificate of a kubelet: its node over SSH, the Node objects, the requests, the certificate it serves."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from roles.engine.api import Api, NoApi, list_objects
from roles.engine.bridge import Remote
from roles.engine.certificates import CertificateError, parse_der, usual_addresses
from roles.engine.certificates.approval import SERVICE, NodeIdentity, claimed_by_others, is_network, is_serving, usual_name
from roles.engine.editing import flag_values
from roles.engine.harmless import one_line
from roles.engine.kube import namespace_and_name
from roles.engine.kube.fields import created_of, name_of, spec_of, status_of
from roles.engine.proof import Cluster
from roles.engine.proof.presented import handshake
from roles.engine.remote import RemoteError
from roles.engine.scripts import filled
from roles.engine.timeouts import patient

SECONDS = 30
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
#: kube-proxy in IPVS mode gives this interface the addresses of all Services (pkg/proxy/ipvs: defaultDummyDevice).
_NOT_THE_NODES = frozenset(("lo", "kube-ipvs0"))

ENDPOINT = "the endpoint of the API"
#: Where one CA signs for all, who has a certificate for this name passes for etcd.
ETCD = "an endpoint of etcd"
_URL_HOST = re.compile(r"^\s*https?://(?:\[([0-9A-Fa-f:.]+)\]|([^\s/:]+))")
_KUBEADM = "/api/v1/namespaces/kube-system/configmaps/kubeadm-config"
_ENDPOINT = re.compile(
    r"""^controlPlaneEndpoint:\s*["']?(?:\[(?P<six>[0-9A-Fa-f:]+)\]|(?P<name>[^\s:"'\[\]]+))(?::[0-9]+)?["']?\s*$""", re.MULTILINE
)


class CertificateFactsError(RemoteError):
    """The answer of a node is incomplete or malformed. Names the host."""


@dataclass(frozen=True)
class SeenNames:
    """What a host has over SSH: its kernel's host name, and the addresses of its interfaces except those that every node has."""

    hostname: str
    addresses: frozenset[str]


@dataclass
class ClusterFacts:
    """Of the whole cluster. `nodes`: by name; `seen`: by host; `api`: the names of the API, `services`: the names, addresses and ranges of
    Services, `hosts`: the names and addresses of the inventory's hosts, by host; all with what they are. `certified`: by host, the names in
    the certificate of its API server."""

    nodes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    seen: dict[str, SeenNames] = field(default_factory=dict)
    api: Mapping[str, str] = field(default_factory=dict)
    requests: Sequence[Mapping[str, Any]] = ()
    services: Mapping[str, str] = field(default_factory=dict)
    certified: Mapping[str, frozenset[str]] = field(default_factory=dict)
    hosts: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def taken(self, host: str, node_name: str, *, control_plane: bool) -> Mapping[str, str]:
        """Who has names besides this node. A control-plane node of the inventory shares its own names with its API server, but not those
        that another API server has too, as that of a load balancer. What a host shows does not make it a control-plane node."""
        others = {one: [seen.hostname, *seen.addresses] for one, seen in self.seen.items() if one != host}
        elsewhere = frozenset[str]().union(*(names for one, names in self.certified.items() if one != host))
        mine, seen = self.hosts.get(host, frozenset()) | {node_name}, self.seen.get(host)
        # Some installers put the names of all API servers into each certificate; no host has the endpoint alone.
        alone = frozenset(name for name in (seen.addresses if seen is not None else ()) if self.api.get(name) != ENDPOINT)
        own = self.certified.get(host, frozenset()) - (elsewhere - mine - alone) if control_plane else frozenset()
        api = {name: what for name, what in self.api.items() if name not in own and not (what == ETCD and usual_name(name) in mine)}
        inventory = {name: f"of {one} in the inventory" for one, names in self.hosts.items() if one != host for name in names - mine}
        # Programs like node-local DNS put the address of a Service on nodes; it is no node's all the same.
        return claimed_by_others(node_name, self.nodes.values(), others, {**inventory, **self.services, **api})


# ---- the node


def seen_names(remote: Remote) -> SeenNames:
    """Raises RemoteError."""
    answer = remote.run("sh -s", stdin=filled("addresses.sh.j2"), timeout=patient(SECONDS))
    if answer.code != 0:
        raise CertificateFactsError(f"{remote.name}: {answer.complaint}")
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
    """The requests for serving certificates, the oldest first. Raises ApiFailure."""

    def read(api: Api) -> list[dict[str, Any]]:
        return list_objects(api, REQUESTS, fields="spec.signerName=kubernetes.io/kubelet-serving")

    found = [item for item in cluster.query(read) if is_serving(item)]
    return sorted(found, key=lambda item: (created_of(item), name_of(item)))


def certified_names(cluster: Cluster) -> dict[str, frozenset[str]]:
    """By host, the names in the certificates of the API servers that the inventory reaches. Raises ApiFailure."""
    found: dict[str, frozenset[str]] = {}
    for remote, authority, address in cluster.doors():
        one = handshake(remote, address, authority, "kube-apiserver")
        if one.certificate is None:
            raise NoApi(f"{remote.name}: its kube-apiserver presents no certificate: {one.problem}")
        try:
            names = parse_der(one.certificate).names
        except CertificateError as error:
            raise NoApi(f"{remote.name}: the certificate of its kube-apiserver cannot be read: {error}") from None
        found[remote.name] = frozenset(name.lower() for name in (*names.dns, *names.ips))
    return found


def api_names(cluster: Cluster, certified: Mapping[str, frozenset[str]]) -> dict[str, str]:
    """The names of the API: those in its certificates, and the endpoint that kubeadm gave the cluster. Raises ApiFailure."""
    found = dict.fromkeys(frozenset[str]().union(*certified.values()), "a name of the API server")
    return found | dict.fromkeys(endpoint(cluster.object(_KUBEADM)), ENDPOINT)


def endpoint(kubeadm: Mapping[str, Any] | None) -> list[str]:
    """The host of controlPlaneEndpoint in the ConfigMap kubeadm-config (None: there is none), as NAME, ADDRESS, or either with a port."""
    text = str(((kubeadm or {}).get("data") or {}).get("ClusterConfiguration", ""))
    found = _ENDPOINT.search(text)
    return [(found["six"] or found["name"]).lower()] if found else []


def flag_names(argv: Sequence[str]) -> dict[str, str]:
    """The names that an API server's flags give it: --external-hostname, and the patterns of --tls-sni-cert-key (`CERT,KEY:NAME,*.NAME`;
    a pattern with a star names nobody); and those of its etcd."""
    patterns = [text.partition(":")[2].split(",") for text in flag_values(argv, "tls-sni-cert-key")]
    servers = [*flag_values(argv, "etcd-servers"), *flag_values(argv, "etcd-servers-overrides")]
    names = [*flag_values(argv, "external-hostname"), *(one for some in patterns for one in some)]
    flags = {name.strip().lower(): "a name of the API server, by its flags" for name in names if name.strip() and "*" not in name}
    return dict.fromkeys((name for text in servers for name in _hosts(text)), ETCD) | flags


def _hosts(text: str) -> list[str]:
    """The hosts in the URLs of --etcd-servers (with commas) or --etcd-servers-overrides (GROUP/RESOURCE#URL;URL)."""
    found = [_URL_HOST.search(url) for url in re.split("[,;#]", text)]
    return [(one[1] or one[2]).lower() for one in found if one is not None]


def services_claims(services: Iterable[Mapping[str, Any]], namespaces: Iterable[str]) -> dict[str, str]:
    """What Services have: their addresses, also those of load balancers, and the names by which pods reach them. `namespaces`: all names of
    two labels that end in one of them are those of Services, also of ones to come."""
    found = {f".{name}": f"a name in the namespace {one_line(name)}, as pods resolve it" for name in namespaces}
    for item in services:
        namespace, name = namespace_and_name(item)
        spec, ingress = spec_of(item), (status_of(item).get("loadBalancer") or {}).get("ingress") or ()
        listed = [*(spec.get("clusterIPs") or ()), spec.get("clusterIP"), *(spec.get("externalIPs") or ()), spec.get("loadBalancerIP")]
        addresses = usual_addresses([str(one) for one in [*listed, *(one.get("ip") for one in ingress)] if one])
        names = [name, f"{name}.{namespace}", *(str(one["hostname"]).lower() for one in ingress if one.get("hostname"))]
        whose = one_line(f"{namespace}/{name}")
        found |= dict.fromkeys(addresses, f"the address of the Service {whose}")
        found |= dict.fromkeys(names, f"{SERVICE}{whose}")
    return found


def service_claims(cluster: Cluster, ranges: Iterable[str]) -> dict[str, str]:
    """What the Services of the cluster have, and may get: `ranges` as --service-cluster-ip-range. Raises ApiFailure."""
    services = cluster.query(lambda api: list_objects(api, "/api/v1/services"))
    namespaces = cluster.query(lambda api: list_objects(api, "/api/v1/namespaces"))
    found = services_claims(services, [name_of(one) for one in namespaces])
    return found | {one: "in the range of the Services" for text in ranges for one in text.split(",") if is_network(one)}


def inventory_names(remotes: Iterable[Remote]) -> dict[str, frozenset[str]]:
    """By host, its name in the inventory, and the name or address by which it is reached."""
    return {remote.name: frozenset(map(usual_name, (remote.name, remote.address))) for remote in remotes}
