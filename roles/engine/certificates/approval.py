"""Which request for a kubelet's serving certificate may be approved: one that asks for exactly the names of its node. Pure.

Nothing of a request proves who made it but `spec.username`, which the API server sets. A stolen credential of a node can ask for any
names, and can write any addresses into its own Node object (NodeRestriction allows that). So a name counts only if the Node object has it
AND the node itself, seen over SSH, has it, AND nothing else in the cluster has it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any

from roles.engine.bounds import moment, span
from roles.engine.certificates.x509 import Certificate, CertificateError, CertificateRequest, SubjectNames, parse_request, usual_addresses
from roles.engine.harmless import one_line
from roles.engine.kube.fields import created_of, name_of, node_addresses, pod_ranges, spec_of, status_of

SERVING_SIGNER = "kubernetes.io/kubelet-serving"
_USER = "system:node:"
_GROUP = "system:nodes"
#: pkg/apis/certificates/helpers.go: kubeletServingRequiredUsages, and the same without keyEncipherment.
_USAGES = (frozenset({"digital signature", "key encipherment", "server auth"}), frozenset({"digital signature", "server auth"}))
#: How long before it was signed a certificate begins to be valid (pkg/controller/certificates/signer/signer.go: Backdate).
_BACKDATE = span(5 * 60)
#: The part of a certificate's time after which a kubelet renews it at the earliest (client-go/util/certificate: jitteryDuration).
_RENEWS = 0.7
_DECIDED = ("Approved", "Denied", "Failed")
#: Parts of names that the cluster's DNS gives Services and pods, whatever the cluster's domain is (github.com/kubernetes/dns,
#: docs/specification.md).
_IN_CLUSTER = (".svc.", ".pod.", ".cluster.local.")
#: How the claim of a Service begins.
SERVICE = "of the Service "
#: Names of the API server, which kubeadm puts into its certificate (pkiutil.GetAPIServerAltNames), and of nobody.
_NEVER = frozenset(("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"))


@dataclass(frozen=True)
class NodeIdentity:
    """A node as daytwo sees it. `node`: its Node object; `hostname` and `addresses`: what it has over SSH, its kernel's host name and the
    addresses of its interfaces; `vouched`: names that the operator's inventory gives it in addition."""

    name: str
    node: Mapping[str, Any]
    hostname: str
    addresses: frozenset[str]
    vouched: frozenset[str] = frozenset()


#: Who has a name besides the node: by DNS name or IP address, whose it is. `10.244.2.0/24` claims all addresses in it, `.prod` all names of
#: two labels that end so.
Claims = Mapping[str, str]


@dataclass(frozen=True)
class ExpectedNames:
    """The names that a node's kubelet asks for, and why some of them are not proven to be the node's own."""

    names: SubjectNames
    problems: tuple[str, ...] = field(default=())


def expected_names(identity: NodeIdentity, taken: Claims) -> ExpectedNames:
    """As pkg/kubelet/certificate/kubelet.go, addressesToHostnamesAndIPs, from the addresses in the Node's status. `taken`: what others
    have."""
    dns: dict[str, str] = {}
    ips: dict[str, str] = {}
    for kind, text in node_addresses(identity.node):
        is_ip = bool(usual_addresses([text]))
        if kind in ("InternalIP", "ExternalIP") or (kind == "Hostname" and is_ip):
            ips |= dict.fromkeys(usual_addresses([text]), kind)
        elif kind in ("Hostname", "InternalDNS", "ExternalDNS") and text:
            dns[text] = kind
    names = SubjectNames(tuple(sorted(dns)), tuple(sorted(ips)))
    if not dns and not ips:
        return ExpectedNames(names, ("its Node object has no address yet",))
    problems = [why for text, kind in dns.items() if (why := _dns_problem(identity, text, kind, taken))]
    problems += [why for text, kind in ips.items() if (why := _ip_problem(identity, text, kind, taken))]
    return ExpectedNames(names, tuple(problems))


def _dns_problem(identity: NodeIdentity, text: str, kind: str, taken: Claims) -> str:
    shown, usual = one_line(text), text.lower().rstrip(".")
    if usual in _NEVER or "*" in text or any(part in f"{usual}." for part in _IN_CLUSTER):
        return f"its Node object lists {shown} ({kind}), which is no node's name"
    # A Service w1 must not keep the node w1 from its certificate; no credential of a node chooses the node's name.
    if (whose := _claim(usual, taken)) and not (usual == identity.name and "." not in usual and whose.startswith(SERVICE)):
        return f"its Node object lists {shown} ({kind}), which is {whose}"
    if usual.count(".") == 1 and text != identity.name and text not in identity.vouched:
        return f"its Node object lists {shown} ({kind}), which pods resolve as SERVICE.NAMESPACE"
    if text in (identity.hostname, identity.hostname.lower(), identity.name) or text in identity.vouched:
        return ""
    return f"its Node object lists {shown} ({kind}), but its host name is {one_line(identity.hostname)}"


def _claim(usual: str, taken: Claims) -> str:
    """Whose a DNS name is: also one below a Service's, as pods of a StatefulSet have (POD.SERVICE.NAMESPACE)."""
    labels = usual.split(".")
    found = [taken.get(".".join(labels[start:])) for start in range(len(labels) - 1)] if len(labels) > 1 else [taken.get(usual)]
    if len(labels) == 2:
        found.append(taken.get(f".{labels[1]}"))
    return next(filter(None, found), "")


@cache
def _network(text: str) -> IPv4Network | IPv6Network:
    return ip_network(text, strict=False)


def _ip_problem(identity: NodeIdentity, text: str, kind: str, taken: Claims) -> str:
    address = ip_address(text)
    if address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified:
        return f"its Node object lists {text} ({kind}), which is no address of one node"
    if whose := taken.get(text) or next((what for one, what in taken.items() if "/" in one and address in _network(one)), ""):
        return f"its Node object lists {text} ({kind}), which is {whose}"
    if text in identity.addresses or text in identity.vouched:
        return ""
    return f"its Node object lists {text} ({kind}), but no interface of the node has it"


def claimed_by_others(name: str, nodes: Iterable[Mapping[str, Any]], seen: Mapping[str, Iterable[str]], api: Mapping[str, str]) -> Claims:
    """What a node's certificate must not name. `nodes`: all Node objects; `seen`: the addresses and host names that other hosts have over
    SSH, by host, without those that are on every node; `api`: the names and addresses of the API and of Services, with what they are."""
    found: dict[str, str] = {}
    for host, names in seen.items():
        found |= {usual_name(text): f"seen on {host}" for text in names}
    for node in nodes:
        other = name_of(node)
        if other != name:
            texts = [text for _, text in node_addresses(node)]
            texts += [*usual_addresses(texts), other]
            found |= {usual_name(text): f"also listed by node {one_line(other)}" for text in texts if text}
            found |= {one: f"in the pod CIDR of node {one_line(other)}" for one in pod_networks(node)}
    return {**found, **{usual_name(address): what for address, what in api.items()}}


def pod_networks(node: Mapping[str, Any]) -> list[str]:
    """The pod CIDRs of a node, without what is none."""
    return [one for one in pod_ranges(node) if is_network(one)]


def is_network(text: str) -> bool:
    try:
        return "/" in text and bool(_network(text))
    except ValueError:
        return False


def usual_name(name: str) -> str:
    """A name as clients compare it: an address in its usual form, a DNS name without case and last dot."""
    return next(iter(usual_addresses([name])), name.lower().rstrip("."))


# ---- a request


def requester(item: Mapping[str, Any]) -> str:
    """The node whose credential made a request; "" if it was no node's."""
    user = str(spec_of(item).get("username", ""))
    return user.removeprefix(_USER) if user.startswith(_USER) else ""


def is_serving(item: Mapping[str, Any]) -> bool:
    return spec_of(item).get("signerName") == SERVING_SIGNER


def is_pending(item: Mapping[str, Any]) -> bool:
    """Nobody has decided about it, and it has no certificate."""
    status = status_of(item)
    decided = any(one.get("type") in _DECIDED for one in status.get("conditions") or ())
    return not decided and not status.get("certificate")


def given_up(item: Mapping[str, Any], certificate: Certificate) -> bool:
    """The kubelet that has this certificate no longer waits for this request: it has had the certificate signed since. A kubelet that waits
    asks again every 15 minutes, and takes only what its newest request gets (client-go/util/certificate: rotateCerts)."""
    created = _created(item)
    return created is not None and created <= certificate.not_before + _BACKDATE


def is_due(item: Mapping[str, Any], certificate: Certificate, names: SubjectNames) -> bool:
    """The kubelet that has this certificate may have made this request: near the end of its time, or since its node has names that the
    certificate has not (client-go/util/certificate: nextRotationDeadline)."""
    created, served = _created(item), {*certificate.names.dns, *certificate.names.ips}
    due = certificate.not_before + _RENEWS * (certificate.not_after - certificate.not_before)
    return created is not None and (created >= due or not {*names.dns, *names.ips} <= served)


def _created(item: Mapping[str, Any]) -> datetime | None:
    return moment(created_of(item))


def request_of(item: Mapping[str, Any]) -> CertificateRequest:
    """Raises CertificateError."""
    try:
        data = base64.b64decode(str(spec_of(item).get("request", "")), validate=True)
    except (binascii.Error, ValueError):
        raise CertificateError("it is not base64") from None
    return parse_request(data)


def objections(item: Mapping[str, Any], node: str, expected: ExpectedNames) -> list[str]:
    """Why a request must not be approved as that of this node's kubelet; empty: it may. `expected`: the node's own names."""
    spec = spec_of(item)
    found = [f"{node}: {problem}" for problem in expected.problems]
    if not is_serving(item):
        found.append(f"its signer is {one_line(str(spec.get('signerName')))}, not {SERVING_SIGNER}")
    if requester(item) != node:
        found.append(f"{one_line(str(spec.get('username') or 'nobody'))} made it, not {_USER}{node}")
    if _GROUP not in (spec.get("groups") or ()):
        found.append(f"who made it is not in the group {_GROUP}")
    usages = spec.get("usages") or ()
    if frozenset(usages) not in _USAGES or len(usages) != len(set(usages)):
        found.append(f"its usages are {one_line(', '.join(map(str, usages))) or 'none'}, not those of a serving certificate")
    if not is_pending(item):
        found.append("it is decided already")
    try:
        return [*found, *_content(request_of(item), node, expected.names)]
    except CertificateError as error:
        return [*found, f"its request: {error}"]


def _content(request: CertificateRequest, node: str, expected: SubjectNames) -> Iterator[str]:
    if request.weak:
        yield request.weak
    wanted = {("O", _GROUP), ("CN", f"{_USER}{node}")}
    if set(request.subject) != wanted or len(request.subject) != len(wanted):
        shown = ", ".join(f"{key}={value}" for key, value in request.subject) or "empty"
        yield f"its subject is {one_line(shown)}, not O={_GROUP}, CN={_USER}{node}"
    if request.extensions:
        yield f"it asks for extensions that no kubelet asks for: {', '.join(request.extensions)}"
    names = request.names
    if names.others:
        yield f"it asks for {one_line(', '.join(names.others))}"
    asked, own = {*names.dns, *names.ips}, {*expected.dns, *expected.ips}
    if foreign := sorted(asked - own):
        yield f"it asks for {one_line(', '.join(foreign))}, which {'is' if len(foreign) == 1 else 'are'} not {node}'s"
    if missing := sorted(own - asked):
        yield f"it does not ask for {one_line(', '.join(missing))}, which {node} has"
    if set(names.dns) & set(expected.ips) or set(names.ips) & set(expected.dns) or len(asked) != len(names.dns) + len(names.ips):
        yield "it has a name twice, or an address as a DNS name"
