"""When the certificates of a node expire, and requests for certificates that wait. Pure, but for `read_certificates`."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from roles.audit.model import CertificateReport
from roles.audit.node_view import NodeView
from roles.audit.rules import AuditRule
from roles.engine.bounds import moment
from roles.engine.certificates import Certificate, CertificateError, is_issued_by
from roles.engine.certificates.approval import given_up, is_pending, is_serving, request_of, requester
from roles.engine.editing import last_flag
from roles.engine.findings import Finding, Place, Severity
from roles.engine.harmless import one_line
from roles.engine.kube.fields import created_of, name_of, spec_of
from roles.engine.kubelet import Kubelet, certificate_files
from roles.engine.node.named_files import read_files
from roles.engine.remote import Shell
from roles.kubelet_certificates import is_kubelets_own

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
_MOST_REQUESTS = 10
_DAY = 86400.0
#: Days before the end from which it is reported; a CA takes months to replace.
_SOON, _URGENT, _CA_SOON = 30, 7, 180
#: A kubelet renews at 70 to 90 % of a certificate's time (client-go/util/certificate, nextRotationDeadline).
_OVERDUE = 0.1
_APISERVER = {
    "tls-cert-file": "serving",
    "proxy-client-cert-file": "front proxy client",
    "kubelet-client-certificate": "client for kubelets",
    "etcd-certfile": "client for etcd",
    "client-ca-file": "CA of clients",
    "requestheader-client-ca-file": "CA of the front proxy",
    "etcd-cafile": "CA of etcd",
}
_ETCD = {"cert-file": "server", "peer-cert-file": "peer", "trusted-ca-file": "CA of clients", "peer-trusted-ca-file": "CA of peers"}
#: The CAs whose certificates are etcd's.
_ETCD_CAS = (("kube-apiserver", _APISERVER["etcd-cafile"]), *(("etcd", use) for use in _ETCD.values() if use.startswith("CA")))
_OTHERS = {"kubeconfig": "client", "cluster-signing-cert-file": "CA that signs", "tls-cert-file": "serving"}
_KUBEADM = "`kubeadm certs renew {name}` on the node, then restart the static pods that use it; or the tool that created it"
_NAMES = {
    "serving": "apiserver",
    "front proxy client": "front-proxy-client",
    "client for kubelets": "apiserver-kubelet-client",
    "client for etcd": "apiserver-etcd-client",
}


@dataclass(frozen=True)
class NodeCertificate:
    """One certificate in a file of a node: of a `component`, and what it is for. `renews`: the kubelet renews it itself."""

    component: str
    use: str
    path: str
    certificate: Certificate
    renews: bool = False


def uses(view: NodeView) -> dict[str, tuple[str, str]]:
    """The files of a node that may hold certificates: by path, whose they are and what for. Paths come from running processes, and
    from etcd's manifest."""
    found: dict[str, tuple[str, str]] = {}
    for name, component in view.components.items():
        for flag, use in (_APISERVER if name == "kube-apiserver" else _OTHERS).items():
            if path := certificate_files.path(last_flag(component.process.argv, flag)):
                found.setdefault(path, (name, use))
    for flag, use in _ETCD.items():
        for argv in _etcd_argv(view):
            if path := certificate_files.path(last_flag(argv, flag)):
                found.setdefault(path, ("etcd", use))
    if view.is_read:
        client, kubeconfig = certificate_files.client(view.kubelet)
        found[client] = ("kubelet", "client")
        found[_serving_file(view, view.kubelet)] = ("kubelet", "serving")
        if kubeconfig:
            found.setdefault(kubeconfig, ("kubelet", "client"))
    return found


def _etcd_argv(view: NodeView) -> list[tuple[str, ...]]:
    """Of etcd as a static pod: what its manifest says, since a look at a node does not read its process."""
    pods = [one.pod for one in view.manifests if one.pod is not None]
    return [(*one.command, *one.args) for pod in pods for one in pod.containers if one.program == "etcd"]


def _serving_file(view: NodeView, kubelet: Kubelet) -> str:
    """What a kubelet serves (cmd/kubelet/app/server.go, InitializeTLS): a file that it is given; what it has asked the cluster for; or what
    it made itself. What it got from the cluster stays on the disk when it no longer asks."""
    # Not from /configz, which has the one that it made too.
    given = last_flag(kubelet.process.argv, "tls-cert-file") or str(kubelet.configuration.get("tlsCertFile") or "")
    name = "kubelet-server-current.pem" if view.effective.get("serverTLSBootstrap") else "kubelet.crt"
    return certificate_files.path(given) or f"{certificate_files.folder(kubelet)}/{name}"


def renewed(view: NodeView) -> frozenset[str]:
    """The files that the kubelet renews itself."""
    if not view.is_read:
        return frozenset()
    serving = _serving_file(view, view.kubelet)
    found = {serving} if serving == f"{certificate_files.folder(view.kubelet)}/kubelet-server-current.pem" else set()
    return frozenset(found | {path for path in certificate_files.client(view.kubelet) if path and view.effective.get("rotateCertificates")})


def etcd_folder(view: NodeView) -> str | None:
    """Where kubeadm keeps etcd's certificates: beside the CA by which the API server knows it."""
    component = view.components.get("kube-apiserver")
    path = certificate_files.path(last_flag(component.process.argv, "etcd-cafile")) if component else None
    return posixpath.dirname(path) if path else None


def read_certificates(remote: Shell, view: NodeView) -> tuple[NodeCertificate, ...]:
    """Raises RemoteError."""
    folder = etcd_folder(view)
    return tuple(named(read_files(remote, list(uses(view)), [folder] if folder else []), view))


def named(files: Mapping[str, Sequence[Certificate]], view: NodeView) -> Iterator[NodeCertificate]:
    """The first certificate of each file, with what it is for; the others are its chain. Of a folder, those that etcd's CA has signed."""
    known, renews, unused = uses(view), renewed(view), _unused(files, view)
    authorities = [one for path, use in known.items() if use in _ETCD_CAS for one in files.get(path, ())]
    for path, certificates in files.items():
        if path in known and path != unused:
            yield NodeCertificate(*known[path], path, certificates[0], path in renews)
        elif path not in known and any(is_issued_by(certificates[0], authority) for authority in authorities):
            yield NodeCertificate("etcd", posixpath.splitext(posixpath.basename(path))[0], path, certificates[0])


def _unused(files: Mapping[str, Sequence[Certificate]], view: NodeView) -> str | None:
    """Of two client certificates, a kubelet that renews uses its own, and another one that of its kubeconfig."""
    if not view.is_read:
        return None
    current, kubeconfig = certificate_files.client(view.kubelet)
    if current not in files or kubeconfig not in files:
        return None
    return kubeconfig if view.effective.get("rotateCertificates") else current


def reports(found: Sequence[NodeCertificate]) -> tuple[CertificateReport, ...]:
    return tuple(
        CertificateReport(
            component=one.component, use=one.use, file=one.path, until=one.certificate.not_after.isoformat(timespec="seconds"),
            subject=one_line(one.certificate.subject), renews=one.renews,
        )
        for one in found
    )  # fmt: skip


def findings(host: str, found: Sequence[NodeCertificate], now: datetime) -> Iterator[Finding]:
    """Certificates that have expired, or will soon."""
    for one in found:
        if _is_unverified(one):
            continue
        certificate, left = one.certificate, one.certificate.left(now)
        whole = (certificate.not_after - certificate.not_before).total_seconds()
        days = left / _DAY
        severity, why = None, ""
        if left <= 0:
            severity, why = (
                Severity.critical,
                f"it expired {-days:.0f} days ago: what uses it is refused, at the latest after its next restart",
            )
        elif one.renews:
            if left < _OVERDUE * whole:
                severity, why = Severity.warning, f"it expires in {days:.0f} days, and its kubelet should have renewed it by now"
        elif days < _URGENT and not certificate.is_ca:
            severity, why = Severity.critical, f"it expires in {days:.1f} days"
        elif days < (_CA_SOON if certificate.is_ca else _SOON):
            severity, why = Severity.warning, f"it expires in {days:.0f} days"
        if severity is not None:
            value = f"{one.component} {one.use}, until {certificate.not_after:%Y-%m-%d}"
            where = Place(host, one.component, one.use, one.path, value=value)
            yield AuditRule.CERTIFICATE.found(where, why, _way_out(one), severity)


def _is_unverified(one: NodeCertificate) -> bool:
    """A kubelet makes it once, for a year, and serves it always: nobody has its CA, so nobody notices its end."""
    return one.component == "kubelet" and one.use == "serving" and not one.renews and is_kubelets_own(one.certificate)


def _way_out(one: NodeCertificate) -> str:
    if one.certificate.is_ca:
        return "replace the CA with your tool's own procedure; plan for weeks"
    if one.component == "kubelet":
        if one.use == "serving" and one.renews:
            return "deploys/kubelet_certificates.py approves the request for a new one"
        if one.use == "serving":
            return "renew it with the tool that created it, then restart the kubelet"
        return "see the kubelet's journal and `kubectl get csr`; join the node again if it has expired"
    return _KUBEADM.format(name=_NAMES.get(one.use, "all"))


def serving(views: Sequence[NodeView], held: Mapping[str, Sequence[NodeCertificate]]) -> dict[str, Certificate]:
    """By node, what its kubelet has got from the cluster; only of its own name, since a node may have anything in its files."""
    names = {view.host: view.kubelet.node_name for view in views if view.is_read}
    return {
        names[host]: one.certificate
        for host, own in held.items()
        for one in own
        if one.renews and one.use == "serving" and one.certificate.common_name == f"system:node:{names.get(host)}"
    }


def waiting(requests: Sequence[Mapping[str, Any]], now: datetime, kubelets: Mapping[str, Certificate]) -> Iterator[Finding]:
    """Requests that nobody has approved or denied, the oldest first, but for those that a kubelet has given up. `kubelets`: by node, what
    its kubelet has got."""
    pending = [item for item in requests if is_pending(item) and not _given_up(item, kubelets)]
    pending.sort(key=created_of)
    for item in pending[:_MOST_REQUESTS]:
        spec = spec_of(item)
        more = f" (and {len(pending) - _MOST_REQUESTS} more)" if len(pending) > _MOST_REQUESTS and item is pending[0] else ""
        serving = spec.get("signerName") == "kubernetes.io/kubelet-serving"
        value = f"{one_line(str(spec.get('signerName')))}, by {one_line(str(spec.get('username')))}{more}"
        yield AuditRule.CERTIFICATE.found(
            Place(None, name=one_line(name_of(item)), value=value),
            f"a request for a certificate waits{_since(item, now)}: nobody has approved or denied it",
            "deploys/kubelet_certificates.py approves it if it is exactly its node's own, else it says why not"
            if serving
            else "find out who made it; then kubectl certificate approve, or deny",
        )


def _given_up(item: Mapping[str, Any], kubelets: Mapping[str, Certificate]) -> bool:
    """Only one for the same names: what asks for others is nothing that a kubelet has given up."""
    certificate = kubelets.get(requester(item))
    try:
        return (
            certificate is not None
            and is_serving(item)
            and given_up(item, certificate)
            and {*request_of(item).names.dns, *request_of(item).names.ips} == {*certificate.names.dns, *certificate.names.ips}
        )
    except CertificateError:
        return False


def _since(item: Mapping[str, Any], now: datetime) -> str:
    if (made := moment(created_of(item))) is None:
        return ""
    passed = (now - made).total_seconds()
    return f" since {passed / 3600:.0f} hours" if passed >= 3600 else f" since {max(0.0, passed) / 60:.0f} minutes"
