"""Which requests for serving certificates may be approved. The API server only proves who made one; the rest may be an attacker's."""

from __future__ import annotations

import re
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from roles.engine.certificates import usual_addresses
from roles.engine.certificates.approval import ExpectedNames, NodeIdentity, claimed_by_others, expected_names, is_pending, objections
from roles.engine.certificates.x509 import SubjectNames
from tests.unit.certificates.requests import EXTENSION_REQUEST, MICROSOFT, NAMES, node, pem, pem_of_attributes, request

EXPECTED = ExpectedNames(SubjectNames(("w1",), ("192.0.2.11",)))


def identity(*addresses: tuple[str, str], hostname: str = "w1", vouched: tuple[str, ...] = ()) -> NodeIdentity:
    return NodeIdentity("w1", node("w1", *addresses), hostname, frozenset({"192.0.2.11", "10.244.1.1"}), frozenset(vouched))


def test_the_request_of_a_kubelet_may_be_approved() -> None:
    assert objections(request(), "w1", EXPECTED) == []


def test_an_rsa_key_has_one_usage_more() -> None:
    own = rsa.generate_private_key(65537, 2048)
    usages = ("digital signature", "key encipherment", "server auth")
    assert objections(request(pem(signed_with=own), usages=usages), "w1", EXPECTED) == []


FOREIGN: dict[str, Any] = {
    "a foreign address": (request(pem(("w1", "192.0.2.11", "192.0.2.10"))), "it asks for 192.0.2.10, which is not w1's"),
    "a foreign name": (request(pem(("w1", "192.0.2.11", "kubernetes"))), "it asks for kubernetes, which is not w1's"),
    "only a foreign address": (request(pem(("192.0.2.10",))), "it asks for 192.0.2.10, which is not w1's"),
    "a wildcard": (request(pem(("*", "w1", "192.0.2.11"))), r"it asks for \*, which is not w1's"),
    "an address less": (request(pem(("w1",))), "it does not ask for 192.0.2.11"),
    "an address as a DNS name": (request(pem(("w1", x509.DNSName("192.0.2.11")))), "address as a DNS name"),
    "a URI": (request(pem(("w1", "192.0.2.11", x509.UniformResourceIdentifier("spiffe://x/y")))), "UniformResourceIdentifier spiffe"),
    "an e-mail address": (request(pem(("w1", "192.0.2.11", x509.RFC822Name("a@b.c")))), "RFC822Name a@b.c"),
    "no names": (request(pem(())), "it does not ask for"),
    "another node": (request(pem(common=("system:node:w2",))), "its subject is O=system:nodes, CN=system:node:w2"),
    "two common names": (request(pem(common=("system:node:w1", "system:node:w2"))), "its subject is"),
    "masters": (request(pem(groups=("system:masters",))), "its subject is O=system:masters"),
    "masters too": (request(pem(groups=("system:nodes", "system:masters"))), "its subject is"),
    "one attribute more": (request(pem(more=(x509.NameAttribute(NameOID.SERIAL_NUMBER, "1"),))), "its subject is"),
    "a CA": (request(pem(extensions=(x509.BasicConstraints(True, None),))), "extensions that no kubelet asks for: 2.5.29.19"),
    "another signer": (request(signer="kubernetes.io/kube-apiserver-client"), "its signer is kubernetes.io/kube-apiserver-client"),
    "client auth": (request(usages=("digital signature", "client auth")), "its usages are digital signature, client auth"),
    "client auth too": (request(usages=("digital signature", "server auth", "client auth")), "its usages are"),
    "a usage twice": (request(usages=("digital signature", "server auth", "server auth")), "its usages are"),
    "another node's credential": (request(user="system:node:w2"), "system:node:w2 made it, not system:node:w1"),
    "a pod": (request(user="system:serviceaccount:default:x", groups=("system:serviceaccounts",)), "x made it, not system:node:w1"),
    "no node by group": (request(groups=("system:authenticated",)), "not in the group system:nodes"),
    "approved already": (request(conditions=[{"type": "Approved", "status": "True"}]), "decided already"),
    "denied": (request(conditions=[{"type": "Denied", "status": "True"}]), "decided already"),
    "two blocks": (request(pem() + pem()), "not one PEM block"),
    "text before it": (request(b"w1\n" + pem()), "not one PEM block"),
    "a certificate": (request(pem().replace(b"CERTIFICATE REQUEST", b"CERTIFICATE")), "not one PEM block"),
    "no request": (request(b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"), "not a certificate request"),
    "much": (request(pem() + b"\n" * 20000), "it has 2"),
    "a short key": (request(pem(signed_with=rsa.generate_private_key(65537, 1024))), "its RSA key has 1024 bits"),
    "a small curve": (request(pem(signed_with=ec.generate_private_key(ec.SECP192R1()))), "its key is on the curve"),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_what_is_not_exactly_the_nodes_own_is_not_approved(case: str) -> None:
    item, why = FOREIGN[case]
    found = objections(item, "w1", EXPECTED)
    assert found, case
    assert re.search(why, "; ".join(found)), found


def test_a_request_that_its_own_key_did_not_sign() -> None:
    data = pem()
    other = pem(("w1", "192.0.2.12"))
    # The names of one request with the signature of the other one.
    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415

    first, second = (x509.load_pem_x509_csr(one) for one in (data, other))
    der = first.public_bytes(Encoding.DER).replace(first.tbs_certrequest_bytes, second.tbs_certrequest_bytes)
    assert der != first.public_bytes(Encoding.DER) and len(der) == len(first.public_bytes(Encoding.DER))
    made = x509.load_der_x509_csr(der).public_bytes(Encoding.PEM)
    expected = ExpectedNames(SubjectNames(("w1",), ("192.0.2.12",)))
    assert objections(request(made), "w1", expected) == ["its signature is not by its own key"]


@pytest.mark.parametrize("other", [EXTENSION_REQUEST, MICROSOFT])
def test_names_in_an_attribute_that_only_the_signer_would_read(other: str) -> None:
    """Go reads every extensionRequest and no other attribute; the library reads the first of either kind."""
    assert objections(request(pem_of_attributes((EXTENSION_REQUEST, NAMES))), "w1", EXPECTED) == []
    foreign = ("kubernetes", "kubernetes.default", "192.0.2.10")
    for first, second in (((other, NAMES), (EXTENSION_REQUEST, foreign)), ((EXTENSION_REQUEST, NAMES), (other, foreign))):
        (why,) = objections(request(pem_of_attributes(first, second)), "w1", EXPECTED)
        assert "its attributes are" in why
    assert objections(request(pem_of_attributes((MICROSOFT, NAMES))), "w1", EXPECTED)


def test_an_ipv4_address_in_ipv6_is_the_same_address() -> None:
    mapped = "::ffff:192.0.2.10"
    assert "asks for 192.0.2.10" in objections(request(pem(("w1", "192.0.2.11", mapped))), "w1", EXPECTED)[0]
    has = NodeIdentity("w1", node("w1", ("InternalIP", mapped)), "w1", usual_addresses([mapped]))
    taken = claimed_by_others("w1", [node("w1"), node("w2", ("InternalIP", "192.0.2.10"))], {}, {})
    assert "also listed by node w2" in expected_names(has, taken).problems[0]
    assert "a name of" in expected_names(has, claimed_by_others("w1", [], {}, {"192.0.2.10": "a name of the API server"})).problems[0]


def test_names_of_terminals_are_shown_harmless() -> None:
    (why,) = objections(request(user="system:node:\x1b[2Jw9"), "w1", EXPECTED)
    assert "\x1b" not in why and "\\x1b[2Jw9 made it" in why


def test_problems_of_the_node_refuse_every_request() -> None:
    expected = ExpectedNames(EXPECTED.names, ("its Node object lists 192.0.2.10 (ExternalIP), but no interface of the node has it",))
    assert "no interface of the node has it" in objections(request(), "w1", expected)[0]


@pytest.mark.parametrize(
    ("status", "pending"),
    [({}, True), ({"certificate": "x"}, False), ({"conditions": [{"type": "Failed"}]}, False), ({"conditions": [{"type": "Other"}]}, True)],
)
def test_pending(status: dict[str, Any], pending: bool) -> None:
    assert is_pending(request(**status)) is pending


# ---- the names of a node


def test_the_names_that_a_kubelet_asks_for() -> None:
    addresses = (("InternalIP", "192.0.2.11"), ("InternalIP", "10.244.1.1"), ("Hostname", "w1"), ("InternalDNS", "w1"))
    assert expected_names(identity(*addresses), {}) == ExpectedNames(SubjectNames(("w1",), ("10.244.1.1", "192.0.2.11")))


@pytest.mark.parametrize(
    ("address", "why"),
    [
        (("InternalIP", "192.0.2.10"), "no interface of the node has it"),
        (("ExternalIP", "203.0.113.7"), "no interface of the node has it"),
        (("Hostname", "192.0.2.10"), "no interface of the node has it"),
        (("InternalIP", "127.0.0.1"), "no address of one node"),
        (("InternalIP", "169.254.169.254"), "no address of one node"),
        (("InternalIP", "::1"), "no address of one node"),
        (("InternalDNS", "cp1"), "its host name is w1"),
        (("Hostname", "kubernetes.default.svc"), "no node's name"),
        (("InternalDNS", "*.example.com"), "no node's name"),
        (("ExternalDNS", "localhost"), "no node's name"),
        (("Hostname", "metrics-server.kube-system.svc"), "no node's name"),
        (("Hostname", "db.shop.svc.cluster.local"), "no node's name"),
    ],
)
def test_a_name_that_only_the_node_object_has(address: tuple[str, str], why: str) -> None:
    (problem,) = expected_names(identity(("InternalIP", "192.0.2.11"), address), {}).problems
    assert why in problem


def test_what_the_operator_vouches_for() -> None:
    found = identity(("InternalIP", "192.0.2.11"), ("ExternalIP", "203.0.113.7"), vouched=("203.0.113.7",))
    assert expected_names(found, {}).problems == ()


def test_a_name_that_others_have_is_refused_even_if_the_node_has_it_too() -> None:
    nodes = [node("w1"), node("w2", ("InternalIP", "192.0.2.11"), ("Hostname", "w2"))]
    (problem,) = expected_names(identity(), claimed_by_others("w1", nodes, {}, {})).problems
    assert "192.0.2.11 (InternalIP), which is also listed by node w2" in problem
    taken = claimed_by_others("w1", [node("w1")], {"cp1": ["cp1", "192.0.2.11"]}, {})
    assert "seen on cp1" in expected_names(identity(), taken).problems[0]
    taken = claimed_by_others("w1", [node("w1")], {}, {"192.0.2.11": "a name of the API server"})
    assert "a name of the API server" in expected_names(identity(), taken).problems[0]
    taken = claimed_by_others("w1", [node("w1"), node("W2")], {}, {})
    found = identity(("InternalIP", "192.0.2.11"), ("InternalDNS", "w2"), hostname="w2")
    assert "also listed by node W2" in expected_names(found, taken).problems[0]
    found = identity(("InternalIP", "192.0.2.11"), ("InternalDNS", "W2."), hostname="W2.")
    assert "also listed by node W2" in expected_names(found, taken).problems[0]


def test_a_node_without_addresses_has_no_names() -> None:
    nothing = NodeIdentity("w1", {"metadata": {"name": "w1"}}, "w1", frozenset(), frozenset())
    assert expected_names(nothing, {}).problems == ("its Node object has no address yet",)
