"""What a kubelet serves, which of its requests may be approved, and what is refused before anything is written."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from roles.engine.certificates import Certificate
from roles.engine.certificates.approval import NodeIdentity, expected_names
from roles.engine.certificates.x509 import SubjectNames
from roles.engine.pairs import unsigned
from roles.engine.proof.presented import Presented, address_of
from roles.kubelet_certificates import CertificateKeys
from roles.kubelet_certificates.facts import (
    ENDPOINT,
    CertificateFactsError,
    ClusterFacts,
    SeenNames,
    endpoint,
    flag_names,
    identity,
    parse_names,
    services_claims,
)
from roles.kubelet_certificates.plan import NodeStanding, given_files, listed, refusals, standing, strangers
from tests.unit.certificates.requests import node, pem, request
from tests.unit.node.node import b64

WHERE = "192.0.2.11:10250"


def certificate(issuer: str = "CN=kubernetes") -> Certificate:
    dates = (datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC))
    return Certificate("CN=system:node:w1", issuer, "system:node:w1", SubjectNames(("w1",), ("192.0.2.11",)), *dates, False, b"")


SIGNED = Presented(WHERE, certificate(), "")
SELF = Presented(WHERE, certificate("CN=w1-ca@1700000000"), "unable to get local issuer certificate")
OTHER = Presented(WHERE, certificate("CN=company"), "unable to get local issuer certificate")
NONE = Presented(WHERE, None, "tlsv1 alert internal error")


def one(presented: Presented = SELF, *requests: dict[str, Any], asks: bool = False, **changed: Any) -> NodeStanding:
    found = NodeIdentity("w1", node("w1"), "w1", frozenset({"192.0.2.11"}), frozenset())
    return standing("w1", found, presented, requests, changed.get("taken", {}), asks=asks)


@pytest.mark.parametrize(
    ("presented", "what", "text"),
    [
        (SIGNED, "signed", "signed by the cluster's CA, until 2027-01-01"),
        (SELF, "self-signed", "signed by itself, until 2027-01-01"),
        (OTHER, "other", "not valid by the cluster's CA (unable to get local issuer certificate), until 2027-01-01"),
        (NONE, "none", "no certificate (tlsv1 alert internal error)"),
    ],
)
def test_what_it_serves(presented: Presented, what: str, text: str) -> None:
    assert (one(presented).standing, one(presented).text) == (what, text)


def test_the_newest_fitting_request_is_approved_and_others_are_named() -> None:
    old, new = request(name="old"), request(name="new", created="2026-03-01T12:15:00Z")
    bad = request(pem(("w1", "192.0.2.11", "192.0.2.10")), name="bad", created="2026-03-01T12:20:00Z")
    others = request(name="others", user="system:node:w2"), request(name="done", certificate="x")
    found = one(NONE, old, new, bad, *others, asks=True)
    assert found.request is new
    assert found.not_approved == ("bad: it asks for 192.0.2.10, which is not w1's", "old: its kubelet has given it up: it has asked again")
    assert refusals(found, bootstrap=False) == []


def test_what_a_kubelet_does_not_wait_for_is_not_approved() -> None:
    """Its certificate begins five minutes before it was signed; a kubelet without serverTLSBootstrap asks for nothing."""
    asked = request(name="asked", created="2026-01-01T00:05:00Z")
    found = one(SIGNED, asked, asks=True)
    assert found.request is None and "older than the certificate that it serves" in found.not_approved[0]
    early, later = request(name="early", created="2026-01-01T00:05:01Z"), request(name="later", created="2026-09-14T00:00:00Z")
    found = one(SIGNED, early, asks=True)
    assert found.request is None and "not yet due, so something else uses the node's credential" in found.not_approved[0]
    assert one(SIGNED, later, asks=True).request is later
    # Its node has a name that the certificate has not: then it asks at once.
    assert one(Presented(WHERE, replace(certificate(), names=SubjectNames(("w1",))), ""), early, asks=True).request is early
    for shown in (SIGNED, SELF):
        found = one(shown, later)
        assert found.request is None and "serverTLSBootstrap is not set" in found.not_approved[0]


def test_names_that_are_not_its_own_are_refused_before_the_restart() -> None:
    found = one(taken={"192.0.2.11": "also listed by node w2"})
    (why,) = refusals(found, bootstrap=True)
    assert "names that are not proven to be its own" in str(why) and "also listed by node w2" in str(why) and "serving_names" in str(why)
    assert refusals(one(SIGNED, taken={"192.0.2.11": "x"}, asks=True), bootstrap=False) == []


def test_certificate_files_of_somebody_else() -> None:
    assert given_files(("kubelet", "--config=/x"), {"rotateCertificates": True}) == []
    assert given_files(("kubelet", "--tls-cert-file=/own.crt"), {"tlsPrivateKeyFile": "/own.key"}) == ["tlsCertFile", "tlsPrivateKeyFile"]


def test_a_kubelet_that_waits_without_a_request_is_named() -> None:
    (why,) = refusals(one(NONE, asks=True), bootstrap=False)
    assert "has no request that can be approved" in str(why) and "asks again within 15 minutes" in str(why)
    bad = request(pem(("192.0.2.10",)), name="bad")
    (why,) = refusals(one(NONE, bad, asks=True), bootstrap=False)
    assert "not approved: bad: it asks for 192.0.2.10" in str(why)


def test_requests_of_nobody_in_this_run() -> None:
    requests = [request(name="a"), request(name="b", user="system:node:w9"), request(name="c", user="system:serviceaccount:x:\x1by")]
    assert strangers(requests, ["w1"]) == [
        "b: made by system:node:w9, which is no node of this run",
        "c: made by system:serviceaccount:x:\\x1by, which is no node of this run",
    ]
    assert listed([str(number) for number in range(9)]) == "0; 1; 2; 3; 4; and 4 more"


@pytest.mark.parametrize(
    ("flags", "fine"),
    [
        ({"cluster-signing-cert-file": "a", "cluster-signing-key-file": "b"}, True),
        ({"cluster-signing-kubelet-serving-cert-file": "a", "cluster-signing-kubelet-serving-key-file": "b"}, True),
        ({"cluster-signing-cert-file": "a"}, False),
        ({}, False),
        ({"cluster-signing-cert-file": "a", "cluster-signing-key-file": "b", "controllers": "*,-csrsigning"}, False),
        ({"cluster-signing-cert-file": "a", "cluster-signing-key-file": "b", "controllers": "*,bootstrapsigner,tokencleaner"}, True),
        ({"cluster-signing-cert-file": "a", "cluster-signing-key-file": "b", "controllers": "deployment"}, False),
    ],
)
def test_who_signs(flags: dict[str, str], fine: bool) -> None:
    assert (unsigned("kubelet-serving", flags) == "") is fine


# ---- what a node says


def test_the_addresses_of_a_node() -> None:
    lines = [
        f"hostname {b64('w1' + chr(10))}-",
        "address lo 127.0.0.1/8",
        "address eth0@if7 192.0.2.11/24",
        "address eth0 2001:db8::0001/64",
        "address kube-ipvs0 10.96.0.1/32",
        "end",
    ]
    assert parse_names("w1", lines) == SeenNames("w1", frozenset({"192.0.2.11", "2001:db8::1"}))


@pytest.mark.parametrize("lines", [[], ["hostname dzE=-"], ["hostname dzE=-", "end"], ["address eth0", "end"], ["hostname !-", "end"]])
def test_an_answer_that_cannot_be_used(lines: list[str]) -> None:
    with pytest.raises(CertificateFactsError, match="w1: its"):
        parse_names("w1", lines)


def test_a_control_plane_node_shares_its_own_names_with_its_api_server_alone() -> None:
    shared = "192.0.2.100"
    cluster = ClusterFacts(
        {"cp1": node("cp1", ("InternalIP", "192.0.2.10"))},
        {"cp1": SeenNames("cp1", frozenset({"192.0.2.10", shared}))},
        {**dict.fromkeys(("192.0.2.10", "192.0.2.9", "api.example.com"), "a name of the API server"), shared: ENDPOINT},
        certified={"cp1": frozenset({"192.0.2.10", "api.example.com", shared}), "cp2": frozenset({"192.0.2.9", "api.example.com", shared})},
    )
    assert cluster.taken("cp1", "cp1", control_plane=True).keys() == {"192.0.2.9", "api.example.com", shared}, "a load balancer's is none's"
    assert cluster.taken("cp1", "cp1", control_plane=False)["192.0.2.10"] == "a name of the API server"
    assert cluster.taken("w9", "w9", control_plane=True)["192.0.2.10"] == "a name of the API server", "it has no such certificate"
    everyones = frozenset({"192.0.2.10", "192.0.2.9", "cp1", "cp2"})
    cluster.api, cluster.certified = dict.fromkeys(everyones, "a name of the API server"), {"cp1": everyones, "cp2": everyones}
    assert cluster.taken("cp1", "cp1", control_plane=True).keys() == {"192.0.2.9", "cp2"}, "installers that give all of them to each"
    cluster.services = {"10.96.0.10": "the address of the Service kube-system/kube-dns"}
    for control_plane in (True, False):
        assert cluster.taken("cp1", "cp1", control_plane=control_plane)["10.96.0.10"] == "the address of the Service kube-system/kube-dns"


def service(name: str, spec: dict[str, Any], **balancer: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "vault", "name": name}, "spec": spec, "status": {"loadBalancer": {"ingress": [balancer]}}}


SERVICES = services_claims(
    [
        service(
            "vault", {"clusterIPs": ["10.96.7.7"], "externalIPs": ["203.0.113.9"], "loadBalancerIP": "203.0.113.10"}, ip="203.0.113.11"
        ),
        service("headless", {"clusterIP": "None"}, hostname="LB.example.com"),
    ],
    ["vault", "prod"],
)
OTHERS = {
    "a cluster IP": "10.96.7.7",
    "an external IP of a Service": "203.0.113.9",
    "the IP that a Service asks a load balancer for": "203.0.113.10",
    "the IP of a load balancer": "203.0.113.11",
    "the name of a load balancer": "lb.example.com",
    "an address in the range of the Services": "10.97.1.1",
    "an address in another node's pod CIDR": "10.244.2.7",
    "an IPv6 address in another node's pod CIDR": "fd00:2::7",
    "another node's address": "192.0.2.12",
    "another node's name": "w2",
    "another host of the inventory": "bastion",
    "the address of another host of the inventory": "192.0.2.77",
    "a name of the API server": "k8s-api.example.com",
    "a Service": "vault.vault",
    "a Service's short name": "vault",
    "a Service, dot at the end": "Vault.Vault.",
    "a Service to come, of a namespace that is there": "db.prod",
    "a Service of a namespace to come": "metrics-server.new",
    "a pod of a StatefulSet": "web-0.headless.vault",
    "a Service with svc": "vault.vault.svc",
    "a Service in full": "vault.vault.svc.cluster.local",
    "a pod": "10-244-1-7.vault.pod.cluster.local",
    "a name of the cluster's domain": "x.cluster.local",
}


def problem_of(text: str, *, vouched: tuple[str, ...] = (), name: str = "w1") -> str:
    """Why a worker that root has given this name or address, in its Node object too, gets no certificate."""
    others = node("w2", ("InternalIP", "192.0.2.12")) | {"spec": {"podCIDRs": ["10.244.2.0/24", "fd00:2::/64"]}}
    kind = "InternalIP" if (text[0].isdigit() and "-" not in text) or ":" in text else "Hostname"
    its = node(name, ("InternalIP", "192.0.2.11"), (kind, text)) | {"spec": {"podCIDR": "10.244.1.0/24"}}
    seen = SeenNames(text, frozenset({"192.0.2.11", text}))
    known = ClusterFacts(
        {name: its, "w2": others}, {"w1": seen}, {"k8s-api.example.com": "a name of the API server"}, (),
        SERVICES | {"10.96.0.0/12": "in the range of the Services"}, {},
        {"w1": frozenset({"w1"}), "lb": frozenset({"bastion", "192.0.2.77"})},
    )  # fmt: skip
    return "; ".join(expected_names(identity(name, its, seen, frozenset(vouched)), known.taken("w1", name, control_plane=False)).problems)


@pytest.mark.parametrize("case", OTHERS)
def test_what_others_have_a_worker_does_not_get(case: str) -> None:
    assert OTHERS[case] in problem_of(OTHERS[case])


def test_what_the_node_alone_has_it_gets() -> None:
    for text in ("w1", "w1.dc.example.com", "192.0.2.13", "10.244.1.1"):
        assert problem_of(text) == ""
    assert "pods resolve" in problem_of("w1.lan") and problem_of("w1.lan", vouched=("w1.lan",)) == "" == problem_of("w1.lan", name="w1.lan")
    assert "in the namespace prod" in problem_of("w1.prod", vouched=("w1.prod",)), "nobody vouches for a Service to come"
    assert problem_of("headless", name="headless") == "", "a Service does not keep a node of its name from its certificate"


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("controlPlaneEndpoint: k8s-api.example.com:6443", ["k8s-api.example.com"]),
        ('controlPlaneEndpoint: "192.0.2.100"', ["192.0.2.100"]),
        ("controlPlaneEndpoint: '[2001:db8::1]:6443'", ["2001:db8::1"]),
        ('controlPlaneEndpoint: ""', []),
        ("kind: ClusterConfiguration", []),
    ],
)
def test_the_endpoint_that_kubeadm_gave_the_cluster(text: str, host: list[str]) -> None:
    assert endpoint({"data": {"ClusterConfiguration": f"apiServer: {{}}\n{text}\nkubernetesVersion: v1\n"}}) == host
    assert endpoint(None) == endpoint({}) == []


def test_where_a_kubelet_is_reached() -> None:
    assert address_of(node("w1")) == ("192.0.2.11", 10250)
    found = node("w1", ("Hostname", "w1"), ("ExternalIP", "203.0.113.7"))
    found["status"]["daemonEndpoints"] = {"kubeletEndpoint": {"Port": 10300}}
    assert address_of(found) == ("203.0.113.7", 10300)
    assert address_of(node("w1", ("Hostname", "w1"))) is None


def test_data() -> None:
    assert CertificateKeys(serving_names="203.0.113.7,n.example.com").vouched == {"203.0.113.7", "n.example.com"}  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="no wildcard"):
        CertificateKeys(serving_names=("*.example.com",))


def test_the_names_that_an_api_servers_flags_give_it() -> None:
    argv = (
        "kube-apiserver", "--external-hostname=API.example.com", "--tls-sni-cert-key=/a.crt,/a.key:k8s.example.com,*.example.org",
        "--tls-sni-cert-key=/b.crt,/b.key",
    )  # fmt: skip
    assert sorted(flag_names(argv)) == ["api.example.com", "k8s.example.com"]
    assert flag_names(("kube-apiserver",)) == {}


def test_an_endpoint_of_etcd_is_no_workers_unless_it_is_that_host() -> None:
    """Where one CA signs for all, such a certificate would pass for etcd's. A worker that the inventory reaches there has that etcd."""
    argv = (
        "kube-apiserver", "--etcd-servers=https://192.0.2.60:2379,https://[2001:db8::60]:2379", "--etcd-servers=https://ETCD1.example.com:2379",
        "--etcd-servers-overrides=/events#https://192.0.2.61:2379;http://192.0.2.62:2379,x/y#bad",
    )  # fmt: skip
    names = flag_names(argv)
    assert sorted(names) == ["192.0.2.60", "192.0.2.61", "192.0.2.62", "2001:db8::60", "etcd1.example.com"]
    for address, etcd in (("192.0.2.9", True), ("192.0.2.60", False)):
        cluster = ClusterFacts({"w1": node("w1", ("InternalIP", "192.0.2.60"))}, {}, names, hosts={"w1": frozenset({"w1", address})})
        assert ("192.0.2.60" in cluster.taken("w1", "w1", control_plane=False)) is etcd
