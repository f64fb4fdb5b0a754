"""Which certificates of a node end while it is off."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from roles.engine.certificates import Certificate, Material
from roles.engine.certificates.x509 import SubjectNames
from roles.sleeping import Ends, reading

CURRENT, KUBECONFIG = "/var/lib/kubelet/pki/kubelet-client-current.pem", "/etc/kubernetes/kubelet.conf"


def year(number: int) -> datetime:
    return datetime(number, 1, 1, tzinfo=UTC)


def certificate(until: int) -> Certificate:
    return Certificate("CN=x", "CN=ca", "x", SubjectNames(), year(2026), year(until), False, b"")


@pytest.mark.parametrize(
    ("files", "rotates", "until"),
    [
        ({CURRENT: 2027, KUBECONFIG: 2020}, True, 2027),
        ({CURRENT: 2027, KUBECONFIG: 2030}, False, 2030),
        ({CURRENT: 2027}, False, 2027),
        ({KUBECONFIG: 2030}, True, 2030),
        ({}, True, None),
    ],
)
def test_of_two_client_certificates_the_one_that_the_kubelet_uses(
    monkeypatch: pytest.MonkeyPatch, files: dict[str, int], rotates: bool, until: int | None
) -> None:
    """And of several CAs the one that ends last."""
    asked = list[Any]()

    def trust(remote: Any, paths: Any, kubeconfigs: Any) -> Any:
        asked.append((list(paths), list(kubeconfigs)))
        authorities = Material(KUBECONFIG, (certificate(2031), certificate(2036)))
        return {path: Material(path, (certificate(end),)) for path, end in files.items()}, {KUBECONFIG: authorities}

    monkeypatch.setattr(reading, "read_trust", trust)
    process = SimpleNamespace(argv=("kubelet", f"--kubeconfig={KUBECONFIG}"))
    kubelet: Any = SimpleNamespace(process=process, configuration={"rotateCertificates": rotates})
    remote: Any = None
    found = reading.read_ends(remote, kubelet)
    assert asked == [([CURRENT, KUBECONFIG], [KUBECONFIG])]
    assert found == Ends(year(2026) if until else None, year(until) if until else None, year(2036))
