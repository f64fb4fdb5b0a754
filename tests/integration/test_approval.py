"""Requests for serving certificates before the real API server and the real signer, in a shadow control plane: no host.

The signer signs what is approved, whatever its names: the approval is the only barrier.
"""

from __future__ import annotations

import base64
import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from roles.engine.api import Conflict
from roles.engine.certificates import is_issued_by, parse_certificates
from roles.engine.certificates.approval import ExpectedNames
from roles.engine.certificates.x509 import SubjectNames
from roles.engine.objects import NotDone
from roles.engine.proof.presented import Presented
from roles.kubelet_certificates import approve
from roles.kubelet_certificates.facts import REQUESTS
from tests.integration.operator import wait_for
from tests.integration.shadow import Shadow, free_ports, shadow
from tests.lab import binaries
from tests.unit.api.world import Authority
from tests.unit.certificates.requests import pem, request

pytestmark = pytest.mark.binaries

EXPECTED = ExpectedNames(SubjectNames(("w1",), ("192.0.2.11",)))


class Requests:
    """The API as an approval uses it; `lose`: the answer to the next patch is lost, and the patch is sent again."""

    def __init__(self, api: Shadow, authority: Authority) -> None:
        self._api, self._authority = api, authority
        self.lose = False

    def object(self, path: str) -> dict[str, Any] | None:
        try:
            return self._api.ask("GET", path)
        except urllib.error.HTTPError:
            return None

    def query(self, ask: Callable[[Any], Any]) -> Any:
        return ask(self)

    def get_json(self, path: str, timeout: float = 0, *, wait: float = 0) -> dict[str, Any]:
        return self._api.ask("GET", path)

    def patch(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        whole = f"{path}?fieldManager=daytwo&fieldValidation=Strict"
        try:
            answer = self._api.ask("PATCH", whole, body, "application/strategic-merge-patch+json")
            return self._api.ask("PATCH", whole, body, "application/strategic-merge-patch+json") if self.lose else answer
        except urllib.error.HTTPError as error:
            raise Conflict("cp1", path, str(error), "try again") from error

    def made_by(self, user: str, name: str, data: bytes, **more: Any) -> dict[str, Any]:
        """A request as this user, a node, makes it."""
        spec = request(data, **more)["spec"]
        item = {
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"name": name},
            "spec": {key: spec[key] for key in ("signerName", "usages", "request")},
        }
        headers = {
            "Content-Type": "application/json",
            "Impersonate-User": user,
            "Impersonate-Group": "system:nodes",
        }
        sent = urllib.request.Request(self._api._url + REQUESTS, json.dumps(item).encode(), headers, method="POST")
        with urllib.request.urlopen(sent, context=self._api._context, timeout=30) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found

    def certificate(self, name: str) -> bytes:
        """What the signer has issued; empty as long as there is none."""
        status = (self.object(f"{REQUESTS}/{name}") or {}).get("status") or {}
        return base64.b64decode(status.get("certificate", ""))

    def node(self, name: str) -> approve.Node:
        """A node that serves what the request `name` gets."""

        def presented() -> Presented:
            data = self.certificate(name)
            if not data:
                return Presented("192.0.2.11:10250", None, "none")
            (one,), (authority,) = parse_certificates(data), parse_certificates(self._authority.pem)
            return Presented("192.0.2.11:10250", one, "" if is_issued_by(one, authority) else "not by the CA")

        return approve.Node("w1", lambda: EXPECTED, presented)

    def approve(self, item: dict[str, Any]) -> str:
        return approve.approve(self, self.node(item["metadata"]["name"]), item, "r1")  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def requests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Requests]:
    folder, binary = tmp_path_factory.mktemp("shadow"), binaries.get(binaries.DEFAULT_VERSION)
    authority = Authority("kubernetes")
    (folder / "signer.crt").write_bytes(authority.pem)
    (folder / "signer.key").write_bytes(authority.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with shadow(folder, binary) as api, (folder / "signer.log").open("wb") as log:
        (port,) = free_ports(1)
        words = [f"--kubeconfig={folder}/kubeconfig", "--controllers=csrsigning", "--leader-elect=false", f"--secure-port={port}"]
        words += [
            f"--cluster-signing-cert-file={folder}/signer.crt",
            f"--cluster-signing-key-file={folder}/signer.key",
            f"--cert-dir={folder}/certs",
        ]
        signer = subprocess.Popen([str(binary / "kube-controller-manager"), "--bind-address=127.0.0.1", *words], stdout=log, stderr=log)
        try:
            yield Requests(api, authority)
        finally:
            signer.kill()
            signer.wait()


def test_the_request_of_a_kubelet_is_approved_signed_and_proven(requests: Requests) -> None:
    item = requests.made_by("system:node:w1", "own", pem())
    found = approve.new_request(requests, requests.node("own"), frozenset())  # type: ignore[arg-type]
    assert found is not None and found["metadata"]["uid"] == item["metadata"]["uid"]
    assert "own approved; TLS handshake with 192.0.2.11:10250 verified by the cluster's CA" in requests.approve(item)
    (made,) = parse_certificates(requests.certificate("own"))
    assert (made.common_name, made.names) == ("system:node:w1", EXPECTED.names)
    assert requests.approve(item), "once more does no harm"


def test_a_lost_answer_and_an_rsa_key(requests: Requests) -> None:
    usages = ("digital signature", "key encipherment", "server auth")
    item = requests.made_by("system:node:w1", "rsa", pem(signed_with=rsa.generate_private_key(65537, 2048)), usages=usages)
    requests.lose = True
    try:
        assert "verified" in requests.approve(item)
    finally:
        requests.lose = False


@pytest.mark.parametrize(
    ("name", "user", "data", "words"),
    [
        ("foreign", "system:node:w1", pem(("w1", "192.0.2.11", "192.0.2.10")), "it asks for 192.0.2.10, which is not w1's"),
        ("api", "system:node:w1", pem(("kubernetes", "w1", "192.0.2.11")), "it asks for kubernetes, which is not w1's"),
        ("other", "system:node:w2", pem(), "system:node:w2 made it, not system:node:w1"),
        ("pod", "system:serviceaccount:default:x", pem(), "x made it, not system:node:w1"),
    ],
)
def test_what_the_signer_would_sign_daytwo_does_not_approve(requests: Requests, name: str, user: str, data: bytes, words: str) -> None:
    item = requests.made_by(user, name, data)
    with pytest.raises(NotDone, match=words):
        requests.approve(item)
    assert not (requests.object(f"{REQUESTS}/{name}") or {})["status"].get("conditions")
    by_hand = {"metadata": {}, "status": {"conditions": [{"type": "Approved", "status": "True", "reason": "ByHand"}]}}
    requests.patch(f"{REQUESTS}/{name}/approval", by_hand)
    wait_for(lambda: requests.certificate(name), "the signer, which does not look at names")
