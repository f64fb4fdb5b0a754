"""When certificates end, and requests that wait."""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from roles.audit.certificates import NodeCertificate, etcd_folder, findings, named, renewed, reports, serving, uses, waiting
from roles.engine.certificates import Certificate, parse_certificates
from roles.engine.certificates.x509 import SubjectNames
from roles.engine.findings import Severity
from roles.engine.node.named_files import parse_files
from tests.unit.api.world import Authority
from tests.unit.audit.fleet import CONFIG, EXTRA, config, control_plane, make, rows
from tests.unit.certificates.requests import pem, request
from tests.unit.node.node import KUBEADM_ARGV, manifest

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
    found = list(rows(findings("cp1", [one], NOW)))
    assert [finding.severity for finding in found] == ([severity] if severity else [])
    assert all(words in finding.rule and finding.way_out and finding.file == "/pki/a.crt" for finding in found)


def test_the_way_out_names_kubeadms_own_name() -> None:
    (found,) = rows(findings("cp1", [held(1, use="front proxy client")], NOW))
    assert "kubeadm certs renew front-proxy-client" in found.way_out


def test_files_come_from_the_running_processes() -> None:
    flags = (
        "--tls-cert-file=/etc/kubernetes/pki/apiserver.crt",
        "--etcd-cafile=/etc/kubernetes/pki/etcd/ca.crt",
        "--client-ca-file=relative",
    )
    own = ("--cert-file=/pki/etcd/a.pem", "--peer-cert-file=/pki/etcd/b.pem", "--trusted-ca-file=/etc/kubernetes/pki/etcd/ca.crt")
    seen = make("cp1", **control_plane(*flags, etcd=manifest("etcd", *own)))
    known = uses(seen)
    assert known["/etc/kubernetes/pki/apiserver.crt"] == ("kube-apiserver", "serving")
    assert known["/var/lib/kubelet/pki/kubelet-client-current.pem"] == ("kubelet", "client")
    assert (known["/pki/etcd/a.pem"], known["/pki/etcd/b.pem"]) == (("etcd", "server"), ("etcd", "peer"))
    assert known["/etc/kubernetes/pki/etcd/ca.crt"] == ("kube-apiserver", "CA of etcd")
    assert not any("relative" in path for path in known)
    assert etcd_folder(seen) == "/etc/kubernetes/pki/etcd"
    assert etcd_folder(make("w1")) is None


PKI = "/var/lib/kubelet/pki"
SELF, CURRENT = f"{PKI}/kubelet.crt", f"{PKI}/kubelet-server-current.pem"
BOOTSTRAP = {"serverTLSBootstrap": True}


@pytest.mark.parametrize(
    ("argv", "lines", "running", "path", "by_itself"),
    [
        # After a rollback its old certificate stays on the disk, and is not served.
        ((), (), {}, SELF, False),
        ((), (), {"serverTLSBootstrap": False}, SELF, False),
        ((), ("serverTLSBootstrap: true",), BOOTSTRAP, CURRENT, True),
        (("--rotate-server-certificates",), (), None, CURRENT, True),
        (("--cert-dir=/pki",), (), BOOTSTRAP, "/pki/kubelet-server-current.pem", True),
        (("--tls-cert-file=/own/a.crt",), (), BOOTSTRAP, "/own/a.crt", False),
        ((), ("tlsCertFile: /own/b.crt",), {}, "/own/b.crt", False),
        # A kubelet without a certificate shows the one that it has made as a field in /configz.
        ((), (), {"tlsCertFile": SELF}, SELF, False),
    ],
)
def test_the_certificate_that_a_kubelet_serves(
    argv: tuple[str, ...], lines: tuple[str, ...], running: dict[str, Any] | None, path: str, by_itself: bool
) -> None:
    files = {CONFIG: config(*lines), EXTRA: f'KUBELET_EXTRA_ARGS="{" ".join(argv)}"\n'.encode()}
    seen = make(asked=running is not None, configuration=running, argv=(*KUBEADM_ARGV, *argv), files=files)
    assert [one for one, use in uses(seen).items() if use == ("kubelet", "serving")] == [path]
    assert (path in renewed(seen)) is by_itself


def parsed(name: str, authority: Authority) -> list[Certificate]:
    return parse_certificates(authority.issue(name)[0])


def test_the_client_certificate_that_a_kubelet_uses() -> None:
    """One that renews it has the first one, of its kubeconfig, only until then."""
    current, kubeconfig, ca = f"{PKI}/kubelet-client-current.pem", "/etc/kubernetes/kubelet.conf", Authority("ca")
    files = {current: parsed("a", ca), kubeconfig: parsed("b", ca)}
    for rotates, path in ((True, current), (False, kubeconfig)):
        (one,) = named(files, make(configuration={"rotateCertificates": rotates}))
        assert (one.path, one.renews) == (path, rotates)
    for path, certificates in files.items():
        (one,) = named({path: certificates}, make(configuration={"rotateCertificates": True}))
        assert one.path == path


def test_what_lies_beside_the_ca_of_etcd_is_etcds_if_that_ca_has_signed_it() -> None:
    etcd, other = Authority("etcd-ca"), Authority("other")
    seen = make("cp1", **control_plane("--etcd-cafile=/pki/ca.pem", "--tls-cert-file=/pki/a.crt"))
    files = {
        "/pki/ca.pem": parse_certificates(etcd.pem), "/pki/a.crt": parsed("a", other), "/pki/node-cp1.pem": parsed("cp1", etcd),
        "/pki/server.crt": parsed("b", etcd), "/pki/foreign.pem": parsed("c", other),
    }  # fmt: skip
    found = [(one.path, one.component, one.use) for one in named(files, seen)]
    assert found == [
        ("/pki/ca.pem", "kube-apiserver", "CA of etcd"),
        ("/pki/a.crt", "kube-apiserver", "serving"),
        ("/pki/node-cp1.pem", "etcd", "node-cp1"),
        ("/pki/server.crt", "etcd", "server"),
    ]


def test_an_answer_of_a_node() -> None:
    def lines(number: int, path: str, data: bytes) -> list[str]:
        numbered = "".join(f"{number} {one}\n" for one in data.decode().splitlines())
        return [
            f"pems {base64.b64encode(numbered.encode()).decode()}=",
            f"file {number} {base64.b64encode(path.encode()).decode()}- there -",
        ]

    pem, _ = Authority("ca").issue("a", "127.0.0.1")
    told = [*lines(0, "/pki/b.crt", b"no certificate"), *lines(1, "/pki/a.crt", pem), "file x", "end"]
    found = list(
        named(
            {path: one.certificates for path, one in parse_files(told).items()}, make("cp1", **control_plane("--tls-cert-file=/pki/a.crt"))
        )
    )
    assert [(one.component, one.use) for one in found] == [("kube-apiserver", "serving")]
    (first,) = reports(found)
    assert first.until.endswith("+00:00") and first.file == "/pki/a.crt"


def test_the_end_of_a_certificate_that_nobody_can_verify_is_listed_and_no_finding() -> None:
    """A kubelet makes it once, for a year, and serves it from then on."""
    made = replace(held(-100).certificate, issuer="CN=w1-ca@1700000000")
    own = NodeCertificate("kubelet", "serving", SELF, made)
    assert list(rows(findings("w1", [own], NOW))) == [] and len(reports([own])) == 1
    (given,) = rows(findings("w1", [replace(own, certificate=replace(made, issuer="CN=company"))], NOW))
    assert given.severity is Severity.critical and "the tool that created it" in given.way_out and "deploys/" not in given.way_out


def test_requests_that_wait() -> None:
    old, new = request(name="old", created="2026-03-01T09:00:00Z"), request(name="new", created="2026-03-01T11:50:00Z")
    done = request(name="done", conditions=[{"type": "Approved", "status": "True"}])
    stranger = request(name="stranger", signer="example.com/x", user="\x1b[2Jme", created="2026-03-01T11:55:00Z")
    found = list(rows(waiting([new, done, old, stranger], NOW, {})))
    assert [one.name for one in found] == ["old", "new", "stranger"]
    assert "since 3 hours" in found[0].rule and "since 10 minutes" in found[1].rule
    assert "deploys/kubelet_certificates.py" in found[0].way_out and "deploys/" not in found[2].way_out
    assert "\x1b" not in (found[2].value or "")
    many = list(rows(waiting([request(name=f"r{number}") for number in range(40)], NOW, {})))
    assert len(many) == 10 and "(and 30 more)" in (many[0].value or "")


def test_what_a_kubelet_has_given_up_does_not_wait() -> None:
    """It was made before the certificate was signed, five minutes after that begins; another node's certificate says nothing about it."""
    begins, names = datetime(2026, 3, 1, 11, 0, tzinfo=UTC), SubjectNames(("w1",), ("192.0.2.11",))
    made = Certificate("CN=a", "CN=ca", "system:node:w1", names, begins, NOW + timedelta(days=300), False, b"")
    own = NodeCertificate("kubelet", "serving", "/pki/a.pem", made, renews=True)
    foreign = request(pem(("w1", "kubernetes")), name="foreign", created="2026-03-01T11:05:00Z")
    requests = [request(name="old", created="2026-03-01T11:05:00Z"), request(name="new", created="2026-03-01T11:06:00Z"), foreign]
    view = make("w1")
    view = replace(view, found=replace(view.kubelet, node_name="w1"))
    assert [one.name for one in rows(waiting(requests, NOW, serving([view], {"w1": [own]})))] == ["foreign", "new"]
    assert serving([make("w2")], {"w2": [own]}) == {} and serving([view], {"w1": [held(100, renews=True)]}) == {}
