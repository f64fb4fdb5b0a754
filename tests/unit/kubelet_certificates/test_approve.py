"""Approving a request, and what must be true afterwards. The API is a few objects; its answers may be lost."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from roles.engine.api import Conflict
from roles.engine.certificates import parse_certificates
from roles.engine.certificates.approval import ExpectedNames
from roles.engine.certificates.x509 import SubjectNames
from roles.engine.objects import NotDone
from roles.engine.proof.presented import Presented
from roles.kubelet_certificates import approve
from roles.kubelet_certificates.facts import REQUESTS
from tests.unit.certificates.requests import general, key, pem, request

EXPECTED = ExpectedNames(SubjectNames(("w1",), ("192.0.2.11",)))
WHERE = "192.0.2.11:10250"
NOTHING = Presented(WHERE, None, "no certificate")


def issued(names: tuple[str, ...] = ("w1", "192.0.2.11"), of: ec.EllipticCurvePrivateKey | None = None) -> bytes:
    now = datetime.now(UTC)
    name = x509.Name([])
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key((of or key()).public_key()).serial_number(7)
    made = made.not_valid_before(now).not_valid_after(now + timedelta(days=365))
    made = made.add_extension(x509.SubjectAlternativeName([general(one) for one in names]), critical=False)
    return made.sign(key(), hashes.SHA256()).public_bytes(Encoding.PEM)


def served(data: bytes, problem: str = "") -> Presented:
    return Presented(WHERE, parse_certificates(data)[0], problem)


@dataclass
class World:
    """Requests by name; an approval gives one its certificate, which the node then serves. `lose`: its answer is lost."""

    requests: dict[str, dict[str, Any]] = field(default_factory=dict)
    certificate: bytes = field(default_factory=issued)
    serves: Presented = NOTHING
    lose: bool = False
    patches: list[Mapping[str, Any]] = field(default_factory=list)

    def object(self, path: str) -> dict[str, Any] | None:
        return self.requests.get(path.removeprefix(f"{REQUESTS}/"))

    def query(self, ask: Callable[[Any], Any]) -> Any:
        return ask(self)

    def get_json(self, path: str, timeout: float = 0, *, wait: float = 0) -> dict[str, Any]:
        return {"items": list(self.requests.values())}

    def patch(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        name = path.removeprefix(f"{REQUESTS}/").removesuffix("/approval")
        self.patches.append(body)
        encoded = base64.b64encode(self.certificate).decode()
        self.requests[name] = {**self.requests[name], "status": {**body["status"], "certificate": encoded}}
        self.serves = served(self.certificate)
        if self.lose:
            raise Conflict("cp1", path, "the object has been modified", "try again")
        return self.requests[name]

    def node(self, expected: ExpectedNames = EXPECTED) -> approve.Node:
        return approve.Node("w1", lambda: expected, lambda: self.serves)

    def approve(self, item: dict[str, Any], **more: Any) -> str:
        return approve.approve(self, self.node(**more), item, "r1")  # type: ignore[arg-type]

    def new(self, *known: str) -> Mapping[str, Any] | None:
        return approve.new_request(self, self.node(), frozenset(known))  # type: ignore[arg-type]


def world(*items: dict[str, Any]) -> World:
    made = [{**item, "metadata": {**item["metadata"], "resourceVersion": "5"}} for item in items]
    return World({item["metadata"]["name"]: item for item in made})


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One look, and the time is over."""
    for name in ("REQUEST_SECONDS", "SIGNED_SECONDS", "SERVED_SECONDS"):
        monkeypatch.setattr(approve, name, 0.0)


def test_it_is_approved_for_exactly_this_version_and_proven() -> None:
    found = world(request())
    proof = found.approve(found.requests["csr-1"])
    assert proof.startswith(f"csr-1 approved; TLS handshake with {WHERE} verified by the cluster's CA, until ")
    (body,) = found.patches
    assert body["metadata"] == {"uid": "uid-csr-1", "resourceVersion": "5"}
    (condition,) = body["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("Approved", "True") and "run r1" in condition["message"]


def test_a_foreign_request_is_never_approved_also_if_only_the_node_has_changed_since() -> None:
    found = world(request(pem(("w1", "192.0.2.11", "192.0.2.10"))))
    with pytest.raises(NotDone, match=r"csr-1 in the name of w1 is NOT APPROVED: it asks for 192.0.2.10"):
        found.approve(found.requests["csr-1"])
    found = world(request())
    with pytest.raises(NotDone, match=r"NOT APPROVED: .*no interface"):
        found.approve(found.requests["csr-1"], expected=replace(EXPECTED, problems=("no interface has it",)))
    assert found.patches == []


def test_another_object_of_the_same_name_is_not_approved() -> None:
    found = world(request())
    planned = found.requests["csr-1"]
    found.requests["csr-1"] = {**planned, "metadata": {**planned["metadata"], "uid": "other"}}
    with pytest.raises(NotDone, match="was deleted"):
        found.approve(planned)
    assert found.patches == []


def test_a_lost_answer() -> None:
    found = world(request())
    found.lose = True
    assert "verified" in found.approve(found.requests["csr-1"])


def test_the_node_must_serve_the_key_of_the_request() -> None:
    found = world(request())
    own = found.patch

    def patch(path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        answer = own(path, body)
        found.serves = served(issued(of=ec.generate_private_key(ec.SECP256R1())))
        return answer

    found.patch = patch  # type: ignore[method-assign]
    with pytest.raises(NotDone, match="another key than that of the approved request: something else may have the node's credential"):
        found.approve(found.requests["csr-1"])


@pytest.mark.parametrize(
    ("certificate", "words"),
    [
        (issued(("w1",)), "is for w1, and the node has w1, 192.0.2.11"),
        (issued(of=ec.generate_private_key(ec.SECP256R1())), "not of the request's own key"),
        (b"x", "not of the request's own key"),
    ],
)
def test_a_certificate_that_is_not_the_right_one(certificate: bytes, words: str) -> None:
    found = world(request())
    found.certificate = certificate
    if certificate == b"x":
        found.serves = NOTHING
        found.patch = lambda path, body: found.requests["csr-1"].update(  # type: ignore[method-assign, assignment, return-value]
            status={**body["status"], "certificate": base64.b64encode(certificate).decode()}
        )
    with pytest.raises(NotDone, match=words):
        found.approve(found.requests["csr-1"])


# ---- after a restart


def test_the_one_new_request() -> None:
    found = world(request(name="old"), request(name="new"), request(name="w2", user="system:node:w2"))
    assert found.new("uid-old") == found.requests["new"]
    approved = world(request(name="new", conditions=[{"type": "Approved"}], certificate="x"))
    assert approved.new() == approved.requests["new"], "another approver was faster"


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ((request(name="a"), request(name="b")), r"2 requests in the name of w1 .*\(a, b\).*something else uses the node's credential"),
        ((request(name="a"), request(pem(("w1", "kubernetes")), name="b")), "NOT APPROVED: b: it asks for kubernetes"),
        ((), "has not asked for a certificate within 0 s"),
    ],
)
def test_what_makes_the_node_revert(items: tuple[dict[str, Any], ...], words: str) -> None:
    with pytest.raises(NotDone, match=words):
        world(*items).new()


def test_a_kubelet_with_a_valid_certificate_need_not_ask() -> None:
    found = world()
    found.serves = served(issued())
    assert found.new() is None
    for wrong in (served(issued(("w1",))), served(issued(), "expired")):
        found.serves = wrong
        with pytest.raises(NotDone, match="has not asked"):
            found.new()
