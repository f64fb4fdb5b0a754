"""What a metrics-server needs of a cluster, each need with the way out. Pure.

Sources: metrics-server's README (Requirements, Compatibility Matrix), kube-aggregator, pkg/kubelet/server/auth.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from roles.engine.certificates import Certificate, is_issued_by
from roles.engine.folding import shortened
from roles.engine.harmless import one_line
from roles.engine.kube import Object
from roles.engine.kube.fields import name_of, spec_of
from roles.engine.proof.presented import Presented
from roles.metrics_server.model import DesiredServer

#: The first minor of Kubernetes that a minor of metrics-server is made for.
MATRIX = {(0, 6): 25, (0, 7): 27, (0, 8): 31, (0, 9): 34}
#: Minors of Kubernetes, older than its matrix says, on which a minor of metrics-server was seen to work: applied and proven.
SEEN = {(0, 9): (32,)}
#: A plan names this many nodes of one problem.
MOST_NAMED = 5
_NEEDED_FLAGS = {
    "requestheader-client-ca-file": "the CA that proves requests of the API server to other servers",
    "requestheader-username-headers": "usually X-Remote-User",
    "requestheader-group-headers": "usually X-Remote-Group",
    "requestheader-extra-headers-prefix": "usually X-Remote-Extra-",
    "proxy-client-cert-file": "the certificate of the API server for other servers",
    "proxy-client-key-file": "its key",
}
_FLAGS_WAY_OUT = (
    "kubeadm sets it, with certificates from `kubeadm init phase certs front-proxy-client`; set it with deploys/control_plane_flags.py"
)
_CERTIFICATES = "deploys/kubelet_certificates.py"
_ROUTE = "deploys/control_plane_flags.py --data control_plane_flags=kube-apiserver:enable-aggregator-routing=true"


@dataclass(frozen=True)
class ApiServer:
    """One kube-apiserver of the inventory. `flags`: those that decide (None: not set); `minor`: 36 of v1.36.3, None if unknown;
    `reaches_services`: its host opens a connection to the Service kubernetes. `proxy`: its certificate for other servers (None: not read),
    `proxy_ca`: the CAs that these believe."""

    host: str
    flags: Mapping[str, str | None]
    minor: int | None
    reaches_services: bool
    proxy: Certificate | None = None
    proxy_ca: tuple[Certificate, ...] = ()


@dataclass(frozen=True)
class KubeletFacts:
    """The kubelet of one Ready node. `configuration`: its /configz; `presented`: what it serves; None: `problem` says why it is not
    known."""

    name: str
    configuration: Mapping[str, Any] | None
    presented: Presented | None
    problem: str = ""


@dataclass(frozen=True)
class ClusterNeeds:
    """What decides whether a metrics-server can work. `published`: the ConfigMap extension-apiserver-authentication, None if missing;
    `policies`: the NetworkPolicies of kube-system; `pods`: all of the cluster."""

    servers: Sequence[ApiServer]
    nodes: Sequence[Object]
    kubelets: Sequence[KubeletFacts]
    published: Object | None
    policies: Sequence[Object] = ()
    pods: Sequence[Object] = ()


@dataclass
class Preflight:
    """`refusals`: why it cannot work, with the way out; `warnings`; `fine`: what was checked and holds, for the plan."""

    refusals: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    fine: list[str] = field(default_factory=list)


def judge(needs: ClusterNeeds, desired: DesiredServer | None, now: datetime) -> Preflight:
    """`now`: for certificates. `desired` None: of an installation that somebody else owns; then its version is not known."""
    found = Preflight()
    found.refusals += [*_aggregation(needs), *_front_proxy(needs.servers, now)]
    unread = _unread(needs.servers)
    found.warnings += unread
    if not found.refusals:
        number = len(needs.servers)
        certificate = "" if unread else " and a valid certificate"
        found.fine.append(f"aggregation: {number} of {number} API servers have its flags{certificate}, and publish its CA")
    if routing := list(_routing(needs.servers)):
        found.refusals += routing
    else:
        found.fine.append("the API servers reach Services, or route to pods themselves")
    problems = [*_authorization(needs.kubelets), *_serving(needs.kubelets)]
    found.refusals += problems
    if not problems:
        found.fine.append(
            f"{len(needs.kubelets)} kubelets: webhook authorization, certificate of the cluster's CA, reached from the control plane"
        )
    found.warnings += _policies(needs.policies)
    if desired is not None:
        _version(needs.servers, desired, found)
    return found


def in_one_line(refusals: Sequence[str]) -> list[str]:
    """The last of these also has the deploys that they name as one command."""
    named = [one for one in (_ROUTE, _CERTIFICATES) if any(one in text for text in refusals)]
    if len(named) < 2:
        return [*refusals]
    return [*refusals[:-1], f"{refusals[-1]}; both in one line, then this command again: {' && '.join(named)}"]


def _aggregation(needs: ClusterNeeds) -> Iterator[str]:
    if not needs.servers:
        yield "no kube-apiserver of the inventory could be read; put the control-plane nodes into a group named control_plane"
    for server in needs.servers:
        missing = [f"--{name} ({what})" for name, what in _NEEDED_FLAGS.items() if not server.flags.get(name)]
        if missing:
            yield f"{server.host}: its kube-apiserver has no {', '.join(missing)}; {_FLAGS_WAY_OUT}"
    data = (needs.published or {}).get("data") or {}
    if needs.servers and "requestheader-client-ca-file" not in data:
        yield (
            "the API server does not publish the CA of its requests to other servers (ConfigMap"
            " kube-system/extension-apiserver-authentication, requestheader-client-ca-file), so a metrics-server would refuse them; check"
            " --requestheader-client-ca-file and restart the API server"
        )


def _front_proxy(servers: Sequence[ApiServer], now: datetime) -> Iterator[str]:
    """The certificate by which an API server proves itself to a metrics-server (apiserver: authentication/request/headerrequest)."""
    for server in servers:
        one, path = server.proxy, server.flags.get("proxy-client-cert-file")
        if one is None:
            continue
        allowed = [name.strip() for name in (server.flags.get("requestheader-allowed-names") or "").split(",") if name.strip()]
        restart = "and restart the kube-apiserver"
        # kubeadm renews a certificate with its old names, and only one that kubeadm made.
        recreate = f"move it and its key away, recreate them (`kubeadm init phase certs front-proxy-client`) {restart}"
        if one.left(now) <= 0:
            yield (
                f"{server.host}: {path} expired on {one.not_after:%Y-%m-%d}, so a metrics-server refuses this API server;"
                f" renew it (`kubeadm certs renew front-proxy-client`) {restart}"
            )
        elif server.proxy_ca and not any(is_issued_by(one, authority) for authority in server.proxy_ca):
            yield (
                f"{server.host}: {path} is not signed by a CA of --requestheader-client-ca-file, so a metrics-server refuses it; {recreate}"
            )
        if allowed and one.common_name not in allowed:
            yield (
                f"{server.host}: {path} is for {one_line(one.common_name)}, and --requestheader-allowed-names has"
                f" {one_line(', '.join(allowed))}; {recreate}, or correct the flag"
            )


def _unread(servers: Sequence[ApiServer]) -> list[str]:
    """What cannot be judged: a path that only the container of the API server has, for example."""
    found = []
    for server in servers:
        for flag, known in (("proxy-client-cert-file", server.proxy), ("requestheader-client-ca-file", server.proxy_ca)):
            if server.flags.get(flag) and not known:
                text = f"daytwo cannot read a certificate in {server.flags[flag]} (--{flag})"
                found.append(f"{server.host}: {one_line(text)}, so it did not check that metrics-server trusts this API server")
    return found


def _routes(server: ApiServer) -> bool:
    return (server.flags.get("enable-aggregator-routing") or "").lower() in ("true", "1", "t")


def unspread(servers: Sequence[ApiServer], replicas: int) -> list[str]:
    """Of two replicas, an API server that asks the Service uses one: it keeps its connection."""
    hosts = [server.host for server in servers if not _routes(server)]
    if replicas < 2 or not hosts:
        return []
    return [
        f"the kube-apiserver of {', '.join(hosts)} uses one replica, and another one only when that connection has broken; to"
        f" spread its requests over all: {_ROUTE}"
    ]


def _routing(servers: Sequence[ApiServer]) -> Iterator[str]:
    for server in servers:
        if not _routes(server) and not server.reaches_services:
            yield (
                f"{server.host}: its kube-apiserver cannot reach Services (no kube-proxy there), and does not route to pods itself; let it:"
                f" {_ROUTE}"
            )


def _authorization(kubelets: Sequence[KubeletFacts]) -> Iterator[str]:
    unknown = [one for one in kubelets if one.configuration is None]
    if unknown:
        yield f"the kubelets of {_names(unknown)} cannot be read: {one_line(unknown[0].problem)}; correct that first"
    if bad := [one for one in kubelets if one.configuration is not None and not _webhook(one)]:
        yield (
            f"the kubelets of {_names(bad)} have no webhook authentication (authentication.webhook.enabled), so they do not know a"
            " metrics-server; set it by hand, with authorization.mode Webhook, and restart them"
        )


def _webhook(one: KubeletFacts) -> bool:
    """One that allows everything needs none."""
    authentication = (one.configuration or {}).get("authentication") or {}
    return bool((authentication.get("webhook") or {}).get("enabled")) or _mode(one) == "AlwaysAllow"


def _mode(one: KubeletFacts) -> str:
    return str(((one.configuration or {}).get("authorization") or {}).get("mode") or "")


def _serving(kubelets: Sequence[KubeletFacts]) -> Iterator[str]:
    bad = [one for one in kubelets if one.presented is not None and not one.presented.verified]
    if bad:
        first = bad[0].presented
        assert first is not None
        yield (
            f"the kubelets of {_names(bad)} serve certificates that the cluster's CA does not prove"
            f" ({one_line(first.problem) or 'none is presented'}); give them some: {_CERTIFICATES}"
        )
    if unknown := [one for one in kubelets if one.presented is None and one.configuration is not None]:
        yield f"the certificates of {_names(unknown)} are not known: {one_line(unknown[0].problem)}; correct that first"


def _policies(policies: Sequence[Object]) -> Iterator[str]:
    """Only empty selectors: others may or may not match, and the proof shows it."""
    everywhere = [one for one in policies if not ((spec_of(one).get("podSelector")) or {})]
    if everywhere:
        names = ", ".join(one_line(name_of(one)) for one in everywhere[:MOST_NAMED])
        yield (
            f"NetworkPolicies of kube-system apply to all of its pods ({names}): allow port 10250 from the control plane to the pods of"
            " metrics-server, and from these to all nodes"
        )


def _version(servers: Sequence[ApiServer], desired: DesiredServer, found: Preflight) -> None:
    release, minors = desired.metrics_server.release, [one.minor for one in servers if one.minor is not None]
    if release is None:
        found.refusals.append(
            f"the image {desired.metrics_server.image} does not say which metrics-server it is; set metrics_server.version, such as 0.9.0"
        )
    elif not minors:
        found.warnings.append("the version of the API servers is not known, so it is not checked against that of metrics-server")
    elif release not in MATRIX:
        known = ", ".join(f"{major}.{minor}" for major, minor in MATRIX)
        found.warnings.append(
            f"metrics-server {release[0]}.{release[1]} is not in daytwo's table ({known}); check its compatibility matrix"
        )
    elif min(minors) < MATRIX[release]:
        text = f"metrics-server {release[0]}.{release[1]} is made for Kubernetes 1.{MATRIX[release]} and later, and this is 1.{min(minors)}"
        if min(minors) in SEEN.get(release, ()):
            text += ", where it was seen to work all the same"
        older = [one for one, least in MATRIX.items() if least <= min(minors)]
        advice = f"use {older[-1][0]}.{older[-1][1]}.x" if older else "use an older one"
        if desired.allow_unsupported:
            found.warnings.append(text)
        else:
            found.refusals.append(f"{text}; {advice}, or try it with --data allow_unsupported=true")
    else:
        found.fine.append(
            f"metrics-server {release[0]}.{release[1]} is made for Kubernetes 1.{MATRIX[release]} and later; this is 1.{min(minors)}"
        )


def _names(kubelets: Sequence[KubeletFacts]) -> str:
    return shortened([one_line(one.name) for one in kubelets], MOST_NAMED)
