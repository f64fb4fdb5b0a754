"""Which kubeconfigs are taken, and that no message shows what is in them."""

from __future__ import annotations

import base64

import pytest

from roles.engine.api.errors import KubeconfigError
from roles.engine.api.kubeconfig import Credentials, parse_kubeconfig, tls_context
from tests.unit.api.world import Authority, certificate_user, kubeconfig

AUTHORITY = Authority("cluster")
USER = certificate_user(AUTHORITY)


def test_a_certificate() -> None:
    found = parse_kubeconfig(kubeconfig(AUTHORITY, USER))
    assert found.authority.encode() == AUTHORITY.pem
    assert found.key == base64.b64decode(USER["client-key-data"])
    assert "PRIVATE" not in repr(found)
    assert tls_context(found).check_hostname


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a mapping"),
        (b"a: [", "not YAML"),
        (b"{}", "current-context"),
        (b"current-context: x\ncontexts: []", "'x'"),
        (kubeconfig(AUTHORITY, {}), "neither"),
        (kubeconfig(AUTHORITY, {"exec": {"command": "x"}}), "exec"),
        (kubeconfig(AUTHORITY, {"client-key": "/var/lib/kubelet/pki/k.pem"}), "a path on the node"),
        (kubeconfig(AUTHORITY, {"client-key-data": USER["client-key-data"]}), "both needed"),
        (kubeconfig(AUTHORITY, {"client-key-data": "%%"}), "not base64"),
        (kubeconfig(AUTHORITY, USER, {}), "cannot be verified"),
        (kubeconfig(AUTHORITY, USER, {"insecure-skip-tls-verify": True}), "always verifies"),
        (kubeconfig(AUTHORITY, {"token": "secret\r\nX: y"}), "printable"),
    ],
)
def test_refused(data: bytes, message: str) -> None:
    with pytest.raises(KubeconfigError, match=message) as caught:
        parse_kubeconfig(data)
    assert "secret" not in str(caught.value)
    assert USER["client-key-data"] not in str(caught.value)


def test_a_key_of_another_certificate() -> None:
    good = parse_kubeconfig(kubeconfig(AUTHORITY, USER))
    other = parse_kubeconfig(kubeconfig(AUTHORITY, certificate_user(AUTHORITY)))
    for key in (other.key, b"nonsense"):
        with pytest.raises(KubeconfigError, match="cannot be used"):
            tls_context(Credentials(good.authority, good.certificate, key))
