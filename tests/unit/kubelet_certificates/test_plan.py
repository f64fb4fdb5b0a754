"""What a kubelet serves, which of its requests may be approved, and what is refused before anything is written."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from roles.engine.certificates import Certificate, NodeIdentity, SubjectNames
from roles.engine.pairs import unsigned
from roles.kubelet_certificates.facts import CertificateFactsError, ClusterFacts, Presented, SeenNames, address_of, parse_names
from roles.kubelet_certificates.model import CertificateKeys
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
    assert found.not_approved == (
        "bad: it asks for 192.0.2.10, which is not w1's",
        "old: its kubelet has given it up: it has asked again",
    )
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


def test_what_others_have_does_not_count_for_a_node_that_runs_the_api() -> None:
    cluster = ClusterFacts(
        {"w1": node("w1")}, {"w1": SeenNames("w1", frozenset({"192.0.2.11"}))}, {"192.0.2.11": "a name of the API server"}
    )
    assert cluster.taken("w1", "w1", serves_api=False) == {"192.0.2.11": "a name of the API server"}
    assert cluster.taken("w1", "w1", serves_api=True) == {}
    assert cluster.taken("w9", "w9", serves_api=True)["192.0.2.11"] == "also listed by node w1"
    cluster.services = {"10.96.0.10": "the address of the Service kube-system/kube-dns"}
    for serves_api in (True, False):
        assert cluster.taken("w1", "w1", serves_api=serves_api)["10.96.0.10"] == "the address of the Service kube-system/kube-dns"


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
