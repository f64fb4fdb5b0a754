"""When certificates end, and requests that wait."""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from roles.audit.certificates import NodeCertificate, etcd_folder, findings, named, reports, serving, uses, waiting
from roles.audit.model import Severity
from roles.engine.certificates import Certificate, SubjectNames
from roles.kubelet_certificates import parse_files
from tests.unit.api.world import Authority
from tests.unit.audit.fleet import control_plane, make
from tests.unit.certificates.requests import pem, request

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def held(days: float, *, of: float = 365, is_ca: bool = False, renews: bool = False, use: str = "serving") -> NodeCertificate:
    until = NOW + timedelta(days=days)
    made = Certificate("CN=a", "CN=ca", "a", SubjectNames(), until - timedelta(days=of), until, is_ca, b"")
    return NodeCertificate("kubelet" if renews else "kube-apiserver", use, "/pki/a.crt", made, renews)


@pytest.mark.parametrize(
    ("one", "severity", "words"),
    [
        (held(100), None, ""),
        (held(29), Severity.warning, "expires in 29 days"),
        (held(6), Severity.critical, "expires in 6.0 days"),
        (held(-3), Severity.critical, "expired 3 days ago"),
        (held(170, of=3650, is_ca=True), Severity.warning, "expires in 170 days"),
        (held(200, of=3650, is_ca=True), None, ""),
        # A kubelet renews at 70 to 90 % of the time: what is left may be few days of a short certificate.
        (held(5, of=30, renews=True), None, ""),
        (held(29, of=365, renews=True), Severity.warning, "should have renewed it by now"),
        (held(-1, renews=True), Severity.critical, "expired 1 days ago"),
    ],
)
def test_what_ends_soon(one: NodeCertificate, severity: Severity | None, words: str) -> None:
    found = list(findings("cp1", [one], NOW))
    assert [finding.severity for finding in found] == ([severity] if severity else [])
    assert all(words in finding.rule and finding.way_out and finding.file == "/pki/a.crt" for finding in found)


def test_the_way_out_names_kubeadms_own_name() -> None:
    (found,) = findings("cp1", [held(1, use="front proxy client")], NOW)
    assert "kubeadm certs renew front-proxy-client" in found.way_out


def test_files_come_from_the_running_processes() -> None:
    flags = (
        "--tls-cert-file=/etc/kubernetes/pki/apiserver.crt",
        "--etcd-cafile=/etc/kubernetes/pki/etcd/ca.crt",
        "--client-ca-file=relative",
    )
    seen = make("cp1", **control_plane(*flags))
    known = uses(seen)
    assert known["/etc/kubernetes/pki/apiserver.crt"] == ("kube-apiserver", "serving")
    assert known["/var/lib/kubelet/pki/kubelet-client-current.pem"] == ("kubelet", "client")
    assert not any("relative" in path for path in known)
    assert etcd_folder(seen) == "/etc/kubernetes/pki/etcd"
    assert etcd_folder(make("w1")) is None


def test_an_answer_of_a_node() -> None:
    def line(path: str, data: bytes) -> str:
        return f"certificates {base64.b64encode(path.encode()).decode()}- {base64.b64encode(data).decode()}-"

    pem, _ = Authority("ca").issue("a", "127.0.0.1")
    known = {"/pki/a.crt": ("kube-apiserver", "serving")}
    lines = [line("/pki/a.crt", pem), line("/pki/etcd/server.crt", pem), line("/pki/b.crt", b"no certificate"), "certificates x", "end"]
    found = list(named(parse_files(lines), known))
    assert [(one.component, one.use) for one in found] == [("kube-apiserver", "serving"), ("etcd", "server")]
    (first, _) = reports(found)
    assert first.until.endswith("+00:00") and first.file == "/pki/a.crt"


def test_requests_that_wait() -> None:
    old, new = request(name="old", created="2026-03-01T09:00:00Z"), request(name="new", created="2026-03-01T11:50:00Z")
    done = request(name="done", conditions=[{"type": "Approved", "status": "True"}])
    stranger = request(name="stranger", signer="example.com/x", user="\x1b[2Jme", created="2026-03-01T11:55:00Z")
    found = list(waiting([new, done, old, stranger], NOW, {}))
    assert [one.name for one in found] == ["old", "new", "stranger"]
    assert "since 3 hours" in found[0].rule and "since 10 minutes" in found[1].rule
    assert "deploys/kubelet_certificates.py" in found[0].way_out and "deploys/" not in found[2].way_out
    assert "\x1b" not in (found[2].value or "")
    many = list(waiting([request(name=f"r{number}") for number in range(40)], NOW, {}))
    assert len(many) == 10 and "(and 30 more)" in (many[0].value or "")


def test_what_a_kubelet_has_given_up_does_not_wait() -> None:
    """It was made before the certificate was signed, five minutes after that begins; another node's certificate says nothing about it."""
    begins, names = datetime(2026, 3, 1, 11, 0, tzinfo=UTC), SubjectNames(("w1",), ("192.0.2.11",))
    made = Certificate("CN=a", "CN=ca", "system:node:w1", names, begins, NOW + timedelta(days=300), False, b"")
    own = NodeCertificate("kubelet", "serving", "/pki/a.pem", made, renews=True)
    foreign = request(pem(("w1", "kubernetes")), name="foreign", created="2026-03-01T11:05:00Z")
    requests = [request(name="old", created="2026-03-01T11:05:00Z"), request(name="new", created="2026-03-01T11:06:00Z"), foreign]
    view = make("w1")
    assert view.kubelet is not None
    view = replace(view, kubelet=replace(view.kubelet, node_name="w1"))
    assert [one.name for one in waiting(requests, NOW, serving([view], {"w1": [own]}))] == ["foreign", "new"]
    assert serving([make("w2")], {"w2": [own]}) == {} and serving([view], {"w1": [held(100, renews=True)]}) == {}
