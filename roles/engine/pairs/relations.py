"""How two values must fit: each relation returns what is wrong, as a clause of a sentence; None if they fit; NotKnown if a file that it
needs is not known. Pure.

A relation gets None for a side that is not set.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from fractions import Fraction
from typing import Any, TypeVar

from roles.engine.bounds import digits, read_json
from roles.engine.certificates import Material, Unread
from roles.engine.kube.amounts import parse_quantity
from roles.engine.kube.times import parse_duration
from roles.engine.kubelet.thresholds import parse_threshold
from roles.engine.pairs.picture import Handshake

Relation = Callable[[Any, Any], str | None]


class NotKnown(str):
    """Why a relation cannot tell, as a clause."""

    __slots__ = ()


T = TypeVar("T")
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

#: Without the default of a flag these are what Kubernetes uses (cmd/kube-controller-manager/app/core.go).
DEFAULT_MASK = {4: 24, 6: 64}
#: Groups of the API that kubelets, controllers or the scheduler cannot work without.
NEEDED_APIS: tuple[str, ...] = (
    *("v1", "apps/v1", "batch/v1", "coordination.k8s.io/v1", "discovery.k8s.io/v1", "storage.k8s.io/v1", "policy/v1", "node.k8s.io/v1"),
    *("authentication.k8s.io/v1", "authorization.k8s.io/v1", "rbac.authorization.k8s.io/v1", "certificates.k8s.io/v1"),
)
#: HTTP/2 demands one of them (Go's net/http, http2 ConfigureServer).
HTTP2_CIPHERS = ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256")
#: A kubelet renews its lease after this part of its duration (pkg/kubelet/kubelet.go, nodeLeaseRenewIntervalFraction).
RENEWALS = Fraction(1, 4)


# ---- values


def items(value: Any) -> list[str]:
    """A list, or a text with commas."""
    return [text for one in (value.split(",") if isinstance(value, str) else value or ()) if (text := str(one).strip())]


def _parsed(texts: Iterable[str], parse: Callable[[str], T]) -> list[T]:
    """What can be parsed of texts."""
    found = []
    for text in texts:
        with suppress(ValueError):
            found.append(parse(text))
    return found


def _one(value: Any, parse: Callable[[str], T]) -> T | None:
    return next(iter(_parsed([] if value is None else [str(value)], parse)), None)


def networks(value: Any) -> list[Network]:
    """Comma-separated or listed ranges of addresses; what is none is left out."""
    return _parsed(items(value), lambda text: ipaddress.ip_network(text, strict=False))


def addresses(value: Any) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    return _parsed(items(value), ipaddress.ip_address)


def seconds(value: Any) -> Fraction | None:
    return _one(value, parse_duration)


def amount(value: Any) -> Fraction | None:
    return _one(value, parse_quantity)


def is_on(value: Any) -> bool:
    return str(value).lower() in ("true", "1", "t")


def pods_of(network: Network) -> int:
    """Its addresses for pods: in IPv4 the first and the last are for none."""
    return max(0, network.num_addresses - (2 if network.version == 4 else 0))


def _within(inner: Network, outer: Network) -> bool:
    return inner.version == outer.version and inner.subnet_of(outer)  # type: ignore[arg-type]


# ---- equality, order


def same_networks(here: Any, there: Any) -> str | None:
    """If both name ranges, these are the same."""
    one, other = set(networks(here)), set(networks(there))
    return "they differ" if one and other and one != other else None


def longer(here: Any, there: Any, times: Fraction = Fraction(1), what: str = "") -> str | None:
    """A duration here is more than `times` the one there."""
    one, other = seconds(here), seconds(there)
    if one is None or other is None or one > times * other:
        return None
    return f"{here} is not more than {what or f'{float(times):g} times '}{there}" if times != 1 else f"{here} is not longer than {there}"


# ---- addresses


def pods_suffice(here: Any, there: Any) -> str | None:
    """maxPods, and the ranges of the node's pods (a list): each has an address for each pod."""
    least = min(networks(there), key=pods_of, default=None)
    if not isinstance(here, int) or least is None or pods_of(least) >= here:
        return None
    return f"{least} has {pods_of(least)} addresses for {here} pods (those on the host's network need none)"


def masks(values: Mapping[str, Any]) -> dict[int, int]:
    """The size of a node's range by IP version, from --node-cidr-mask-size and those for each family."""
    found = dict(DEFAULT_MASK)
    for version in (4, 6):
        text = values.get(f"node-cidr-mask-size-ipv{version}") or (values.get("node-cidr-mask-size") if version == 4 else None)
        if (size := digits(str(text or ""))) is not None:
            found[version] = size
    return found


def mask_gives_pods(here: Any, there: Any) -> str | None:
    """The range of a new node, and a kubelet's maxPods."""
    size = masks(here)[4]
    number = 2 ** max(0, 32 - size) - 2
    if not isinstance(there, int) or number >= there or not here.get("cluster-cidr") or not is_on(here.get("allocate-node-cidrs")):
        return None
    return f"a /{size} has {max(0, number)} addresses for {there} pods (those on the host's network need none)"


def mask_fits(here: Any, there: Any) -> str | None:
    """The size of a node's range is a part of each range of the cluster (pkg/controller/nodeipam/ipam/cidrset, NewCIDRSet)."""
    for network in networks(there):
        size = masks(here)[network.version]
        if size < network.prefixlen or size > network.max_prefixlen:
            return f"a node's range /{size} is no part of {network}"
        if network.version == 6 and size - network.prefixlen > 16:
            return f"a node's range /{size} is more than 16 bits smaller than {network}"
    return None


def enough_ranges(here: Any, there: Any) -> str | None:
    """The flags of the node ranges, and the number of nodes."""
    if not is_on(here.get("allocate-node-cidrs")):
        return None
    for network in networks(here.get("cluster-cidr")):
        number = 2 ** max(0, masks(here)[network.version] - network.prefixlen)
        if number < there:
            return f"{network} has room for {number} nodes with a /{masks(here)[network.version]} each, and there are {there}"
    return None


def keeps_nodes(here: Any, there: Any) -> str | None:
    """--allocate-node-cidrs with --cluster-cidr, and the range that a node has (a list)."""
    if not is_on(here.get("allocate-node-cidrs")):
        return None
    whole = networks(here.get("cluster-cidr"))
    out = [one for one in networks(there) if whole and not any(_within(one, outer) for outer in whole)]
    return f"{', '.join(map(str, out))} is outside of {', '.join(map(str, whole))}" if out else None


def needs_a_range(here: Any, there: Any) -> str | None:
    return "no range is set" if is_on(here) and not networks(there) else None


def apart(here: Any, there: Any) -> str | None:
    """Ranges that share no address."""
    for one in networks(here):
        for other in networks(there):
            if one.version == other.version and one.overlaps(other):
                return f"{one} and {other} overlap"
    return None


def in_range(here: Any, there: Any) -> str | None:
    """Addresses of DNS, and the range of Services; a link-local address is that of a DNS cache on the node."""
    outer = networks(there)
    out = [one for one in addresses(here) if not one.is_link_local and outer and not any(one in network for network in outer)]
    return f"{', '.join(map(str, out))} is outside of it" if out else None


def is_dns(here: Any, there: Any) -> str | None:
    """Addresses of DNS, and those of the Service (a list)."""
    out = [one for one in addresses(here) if not one.is_link_local and there and one not in addresses(there)]
    return "the Service has another address" if out else None


def zone(here: Any, there: Any) -> str | None:
    """The kubelet's clusterDomain, and a Corefile: its plugin kubernetes serves that zone."""
    found = re.findall(r"^\s*kubernetes\s+([^{\n]+)", str(there or ""), re.MULTILINE)
    zones = {one.rstrip(".") for line in found for one in line.split()}
    return f"it serves {', '.join(sorted(zones))}" if here and zones and str(here).rstrip(".") not in zones else None


def service_has_name(here: Any, there: Any) -> str | None:
    """The range of Services, and the API server's certificate: it has the range's first address, that of the Service kubernetes."""
    if not isinstance(there, Material):
        return None
    if lacks := _without("certificates", there):
        return lacks
    for network in networks(here)[:1]:
        first = str(network.network_address + 1)
        if first not in there.certificates[0].names.ips:
            return f"its certificate has not the address {first}"
    return None


def same_families(here: Any, there: Any) -> str | None:
    """The node's addresses, and the ranges of its pods (a list): each range has an address of its family."""
    own, ranges = {one.version for one in addresses(here)}, {one.version for one in networks(there)}
    missing = sorted(ranges - own) if own else []
    return f"it has no IPv{missing[0]} address" if missing else None


def flannel_network(here: Any, there: Any) -> str | None:
    """net-conf.json of flannel has the same range."""
    try:
        found = read_json(str(there))
        return same_networks(here, [found[name] for name in ("Network", "IPv6Network") if found.get(name)])
    except (ValueError, TypeError, AttributeError):
        return None


# ---- certificates and keys


def _without(what: str, *sides: Material) -> NotKnown | None:
    """The first of these files that has none of its `what` (certificates or public_keys)."""
    lacks = next((one for one in sides if not getattr(one, what)), None)
    return None if lacks is None else NotKnown(f"{lacks}: {lacks.unread or Unread.other}")


def verifies(here: Any, there: Any) -> str | None:
    """The CAs of the file here have signed the certificate there."""
    if not isinstance(here, Material) or not isinstance(there, Material):
        return None
    if lacks := _without("certificates", here, there):
        return lacks
    return None if here.verifies(there) else f"no CA in {here} has signed the certificate in {there}"


def accepts_the_api(here: Any, there: Any) -> str | None:
    """A kubelet's CA of clients, and the certificate that the API server shows it."""
    if here is None and there is not None:
        return "without it this kubelet accepts no certificate of a client"
    return verifies(here, there)


def same_key(here: Any, there: Any) -> str | None:
    """A public key here belongs to the private key there."""
    if not isinstance(here, Material) or not isinstance(there, Material):
        return None
    if lacks := _without("public_keys", here, there):
        return lacks
    if here.public_keys & there.public_keys:
        return None
    if unread := next((one for one in (here, there) if one.unread), None):
        return NotKnown(f"{unread}: {unread.unread}")
    return f"no key in {here} belongs to the one in {there}"


def proven_to_all(here: Any, there: Any) -> str | None:
    """--kubelet-certificate-authority, and what a kubelet serves, by CA."""
    found = there.get(here) if here else None
    return f"it does not prove what {found.where} serves: {found.problem}" if isinstance(found, Handshake) and found.problem else None


def keeps_its_certificate(here: Any, there: Any) -> str | None:
    """serverTLSBootstrap, and --kubelet-certificate-authority."""
    return "without it the kubelet serves a certificate that it has made itself" if here is not True and there else None


def allowed_name(here: Any, there: Any) -> str | None:
    """Names, of which an empty list allows all, and the certificate of who must have one."""
    if not items(here) or not isinstance(there, Material):
        return None
    if lacks := _without("certificates", there):
        return lacks
    name = there.certificates[0].common_name
    return None if name in items(here) else f"{name!r} is not among them"


# ---- what needs what


def node_is_restricted(here: Any, there: Any) -> str | None:
    """The plugin NodeRestriction goes with the authorizer Node."""
    on, off = items(there.get("enable-admission-plugins")), items(there.get("disable-admission-plugins"))
    if "Node" not in items(here) or ("NodeRestriction" in on and "NodeRestriction" not in off):
        return None
    return "NodeRestriction is off"


def authorizes(identity: str, *modes: str) -> Relation:
    """--authorization-mode (with its file, which is not read) has a mode that knows an identity of the control plane."""

    def relation(here: Any, there: Any) -> str | None:
        found = items(here.get("authorization-mode"))
        if not there or not found or here.get("authorization-config") or set(found) & {*modes, "AlwaysAllow", "Webhook"}:
            return None
        return f"{' or '.join(modes)} is not among them, which decides for {identity}"

    return relation


def apis_on(here: Any, there: Any) -> str | None:
    """--runtime-config leaves on what its clients need."""
    found = dict(one.partition("=")[::2] for one in items(here))
    off = [name for name in NEEDED_APIS if found.get(name, found.get("api/ga", found.get("api/all", "true"))) == "false"]
    return f"{', '.join(off)} {'is' if len(off) == 1 else 'are'} off" if there and off else None


def signs_serving(here: Any, there: Any) -> str | None:
    """serverTLSBootstrap, and the flags of a controller-manager that signs."""
    return (unsigned("kubelet-serving", there) or None) if here is True else None


def signs_client(here: Any, there: Any) -> str | None:
    """rotateCertificates, and the flags of a controller-manager that signs."""
    return (unsigned("kubelet-client", there) or None) if here is True else None


def unsigned(signer: str, values: Mapping[str, str | None]) -> str:
    """Why a kube-controller-manager with these flags (None: not set) signs no certificates for kubelet-serving or kubelet-client; "" if it
    does (pkg/controller/certificates/signer; cmd/kube-controller-manager/app/certificates.go)."""
    own = [values.get(f"cluster-signing-{signer}-{file}-file") for file in ("cert", "key")]
    common = [values.get(f"cluster-signing-{file}-file") for file in ("cert", "key")]
    if not all(own) and not all(common):
        return f"it has neither --cluster-signing-cert-file and --cluster-signing-key-file, nor those for {signer}"
    controllers = items(values.get("controllers") or "*")
    names = ("csrsigning", "csrsigning-controller", "certificatesigningrequest-signing-controller")
    if any(f"-{name}" in controllers for name in names) or ("*" not in controllers and not any(name in controllers for name in names)):
        return f"--controllers={values.get('controllers')} leaves out the controller that signs"
    return ""


def one_leader(here: Any, there: Any) -> str | None:
    return f"{there} of them would work at the same time" if str(here).lower() == "false" and there > 1 else None


def balanced(here: Any, there: Any) -> str | None:
    try:
        return "with one API server clients lose their connections for nothing" if float(here or 0) > 0 and there < 2 else None
    except ValueError:
        return None


def ciphers_for_http2(here: Any, there: Any) -> str | None:
    """A list of ciphers, and the least version of TLS."""
    if not items(here) or str(there) == "VersionTLS13" or set(items(here)) & set(HTTP2_CIPHERS):
        return None
    return f"HTTP/2 needs {' or '.join(HTTP2_CIPHERS)} with a version before 1.3"


def ports_apart(here: Any, there: Any) -> str | None:
    """A range of ports (30000-32767, or 30000+2767), and a port."""
    found = re.fullmatch(r"([0-9]{1,9})(?:([-+])([0-9]{1,9}))?", str(here or ""))
    port = amount(there)
    if found is None or not port:
        return None
    first = int(found[1])
    last = first if found[2] is None else int(found[3]) + (first if found[2] == "+" else 0)
    return f"port {there} is in it" if first <= port <= last else None


def probed(here: Any, there: Any) -> str | None:
    """A port, and those that the probes of the manifest ask."""
    wrong = [port for port in there or () if str(port) != str(here)]
    return f"they ask port {wrong[0]}" if here and wrong else None


def known_address(here: Any, there: Any) -> str | None:
    """Types of addresses, and those that a node has (a list)."""
    return f"it has only {', '.join(there)}" if items(here) and there and not set(items(here)) & set(there) else None


def listens(here: Any, there: Any) -> str | None:
    """The address that a server binds, and those of its node (a list): all of them, or one of these."""
    own = addresses(there)
    wrong = [one for one in addresses(here) if own and not one.is_unspecified and one not in own]
    return f"{wrong[0]} is not among them" if wrong else None


def listens_outside(here: Any, there: Any) -> str | None:
    """The address that a server binds, and how many nodes ask it; which of its node's it is does not matter."""
    return "only its own node reaches it" if there and there > 1 and any(one.is_loopback for one in addresses(here)) else None


def heartbeats(times: int) -> Relation:
    """A node's grace period, and the duration of the kubelet's lease, which it renews after a part of it."""

    def relation(here: Any, there: Any) -> str | None:
        grace, duration = seconds(here), amount(there)
        if grace is None or duration is None or grace > times * duration * RENEWALS:
            return None
        return f"a lease of {there} s is renewed each {float(duration * RENEWALS):g} s, and {here} is not more than {times} times that"

    return relation


def updates(here: Any, there: Any) -> str | None:
    return longer(here, there)


def jittered(here: Any, there: Any) -> str | None:
    """renewDeadline is more than 1.2 times retryPeriod (client-go/tools/leaderelection, JitterFactor)."""
    return longer(here, there, Fraction(12, 10), "1.2 times ")


def collects_first(here: Any, there: Any) -> str | None:
    """imageGCHighThresholdPercent is used up before the eviction threshold of the file system (a map) is met."""
    for signal in ("imagefs.available", "nodefs.available"):
        try:
            threshold = parse_threshold(signal, str((there or {}).get(signal, "0")))
        except ValueError:
            continue
        if threshold is not None and threshold.fraction is not None and isinstance(here, int) and here < 100:
            used = round(100 * (1 - float(threshold.fraction)), 3)
            if here > used:
                return f"{signal}<{there[signal]} evicts pods when {used:g}% are used, before {here}%"
    return None


def logs_fit(here: Any, there: Any) -> str | None:
    """containerLogMaxSize and containerLogMaxFiles, and the node's ephemeral storage: one container cannot fill it."""
    size, number, room = amount(here.get("containerLogMaxSize")), amount(here.get("containerLogMaxFiles")), amount(there)
    if not size or not number or not room or size * number * 10 <= room:
        return None
    most, whole = float(size * number / 2**20), float(room / 2**20)
    return f"the log of one container may take {most:g} MiB, more than a tenth of the node's {whole:.0f} MiB"


def aligned(here: Any, there: Any) -> str | None:
    """A topology policy needs a manager that assigns something."""
    nothing = there.get("cpuManagerPolicy") in (None, "none") and there.get("memoryManagerPolicy") in (None, "None")
    return "no manager assigns CPUs or memory" if here not in (None, "none") and nothing else None


def keeps_its_identity(here: Any, there: Any) -> str | None:
    """How long certificates last, and a kubelet that got its own by bootstrap: it renews it."""
    if there.get("rotateCertificates") is True or not there.get("bootstrap"):
        return None
    return f"after {here} it has no valid certificate, and does not renew it"


def periods_have_pods(here: Any, there: Any) -> str | None:
    """shutdownGracePeriodByPodPriority, and the priorities of pods (a list): each entry takes those from its own priority to the next one,
    the lowest also those below it (groupByPriority)."""
    starts = sorted(one.get("priority") or 0 for one in here or () if isinstance(one, Mapping))
    values = [one for one in there or () if isinstance(one, int)]
    ends = [*starts[1:], 2**31]
    empty = [start for start, end in zip(starts, ends, strict=True) if start != starts[0] and not any(start <= one < end for one in values)]
    return f"nothing is in the group of priority {', '.join(map(str, empty))}" if empty else None


def pool(here: Any, there: Any) -> str | None:
    """A burst, and the rate of requests; a rate of 0 is no limit."""
    one, other = amount(here), amount(there)
    return f"{here} is less than {there}" if one is not None and other is not None and other > 0 and one < other else None


def scraped(here: Any, there: Any) -> str | None:
    """How often an autoscaler looks, and the arguments of metrics-server (a list)."""
    found = [str(word).partition("=")[2] for word in there or () if str(word).startswith("--metric-resolution=")]
    one, other = seconds(here), seconds(found[-1]) if found else None
    return f"metrics-server measures each {found[-1]}" if one is not None and other is not None and one < other else None


def tokens_count(here: Any, there: Any) -> str | None:
    """authentication.webhook.enabled, and whether metrics-server, whose token only the API knows, is installed."""
    return "it does not ask the API who has a token" if here is False and there else None


def closed(here: Any, there: Any) -> str | None:
    """A kubelet without authorization, and who may come."""
    return "everybody may run commands in its pods" if here == "AlwaysAllow" and there is True else None


def external_cloud(here: Any, there: Any) -> str | None:
    """--cloud-provider of a kubelet and of the controller-manager: both external, or neither."""
    return "they differ" if (here == "external") != (there == "external") else None


def initialized(here: Any, there: Any) -> str | None:
    """--cloud-provider=external, and the node's taints (a list of keys)."""
    return (
        "no cloud controller has removed it"
        if here == "external" and "node.cloudprovider.kubernetes.io/uninitialized" in (there or ())
        else None
    )


def audience(here: Any, there: Any) -> str | None:
    """--service-account-issuer, and --api-audiences: that of the issuer is accepted."""
    issuers = items(here)
    return f"{issuers[0]} is not among them" if there and issuers and issuers[0] not in items(there) else None
