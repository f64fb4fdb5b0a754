"""The VerticalPodAutoscaler's own programs in a lab: recommender, updater and admission controller, built from their Go module. CRDs and
RBAC are read from that module when a test runs. The programs share the network of their node, since nodes here reach no Service."""

from __future__ import annotations

import base64
import ipaddress
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.integration.operator import wait_for
from tests.lab import Lab, binaries

SPACE = "kube-system"
PORT = 8000
SECRET, FOLDER = "vpa-tls-certs", "/etc/tls-certs"
WEBHOOK = "vpa-webhook-config"
NAMES = ("recommender", "updater", "admission-controller")


def source(name: str) -> str:
    """A file of the module's folder `deploy`."""
    return (binaries.source_of("vpa-recommender") / "deploy" / name).read_text()


def install_kinds(lab: Lab) -> None:
    """The CRDs and the RBAC."""
    lab.kubectl("apply", "--server-side", "-f", "-", input=source("vpa-v1-crd-gen.yaml"))
    lab.kubectl("wait", "--for=condition=Established", "crd/verticalpodautoscalers.autoscaling.k8s.io", "--timeout=60s")
    lab.kubectl("apply", "--server-side", "-f", "-", input=source("vpa-rbac.yaml"))


@contextmanager
def running(lab: Lab) -> Iterator[None]:
    """All three, at work, with short intervals; gone at the end, with the CRDs and all objects of theirs."""
    node = lab.control_planes[0]
    address = lab.address(node)
    install_kinds(lab)
    try:
        items = [_secret(address), *(_deployment(lab, name, node, flags(address)[name]) for name in NAMES)]
        lab.kubectl("apply", "--server-side", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        for name in NAMES:
            lab.kubectl("rollout", "status", "-n", SPACE, f"deployment/vpa-{name}", "--timeout=280s")
        wait_for(lambda: lab.kubectl("get", "mutatingwebhookconfiguration", WEBHOOK, check=False), "the webhook's registration")
        wait_for(
            lambda: lab.kubectl("get", "lease", "-n", SPACE, "vpa-admission-controller", check=False), "the admission controller's lease"
        )
        yield
    finally:
        for name in NAMES:
            lab.kubectl("delete", "deployment", "-n", SPACE, f"vpa-{name}")
        lab.kubectl("delete", "mutatingwebhookconfiguration", WEBHOOK)
        lab.kubectl("delete", "secret", "-n", SPACE, SECRET)
        lab.kubectl("delete", "lease", "-n", SPACE, "vpa-admission-controller")
        remove_kinds(lab)


def remove_kinds(lab: Lab) -> None:
    lab.kubectl("delete", "-f", "-", input=source("vpa-rbac.yaml"))
    lab.kubectl("delete", "-f", "-", input=source("vpa-v1-crd-gen.yaml"))


def flags(address: str, port: int = PORT, folder: str = FOLDER) -> dict[str, list[str]]:
    """What each program is started with. `address`, `port`: where the API server reaches the webhook; `folder`: of its certificates."""
    return {
        "recommender": ["--recommender-interval=5s"],
        "updater": ["--updater-interval=5s"],
        "admission-controller": [
            "--register-by-url", f"--webhook-address=https://{address}", f"--webhook-port={port}", f"--port={port}",
            f"--client-ca-file={folder}/ca.pem", f"--tls-cert-file={folder}/server.pem", f"--tls-private-key={folder}/server.key",
        ],
    }  # fmt: skip


def _deployment(lab: Lab, name: str, node: str, arguments: list[str]) -> dict[str, Any]:
    host, _, port = lab.endpoint.rpartition(":")
    container: dict[str, Any] = {
        "name": name,
        "image": lab.load_extra(f"vpa-{name}"),
        "imagePullPolicy": "Never",
        "args": ["--v=4", *arguments],
        "env": [
            {"name": "KUBERNETES_SERVICE_HOST", "value": host},
            {"name": "KUBERNETES_SERVICE_PORT", "value": port},
            {"name": "NAMESPACE", "value": SPACE},
        ],
    }
    pod: dict[str, Any] = {
        "serviceAccountName": f"vpa-{name}",
        "hostNetwork": True,
        "nodeName": node,
        "terminationGracePeriodSeconds": 1,
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
    }
    if name == "admission-controller":
        container["volumeMounts"] = [{"name": "certificates", "mountPath": FOLDER, "readOnly": True}]
        pod["volumes"] = [{"name": "certificates", "secret": {"secretName": SECRET}}]
    labels = {"app": f"vpa-{name}"}
    spec = {
        "replicas": 1,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": f"vpa-{name}", "namespace": SPACE}, "spec": spec}


def _secret(address: str) -> dict[str, Any]:
    data = {name: base64.b64encode(text).decode() for name, text in certificates(address).items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET, "namespace": SPACE}, "data": data}


def certificates(address: str) -> dict[str, bytes]:
    """A CA, and the webhook's certificate for its address, by the names of their files."""
    now = datetime.now(UTC)

    def named(name: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])

    def signed(name: str, key: ec.EllipticCurvePrivateKey, signer: ec.EllipticCurvePrivateKey, *, ca: bool) -> bytes:
        made = (
            x509.CertificateBuilder().subject_name(named(name)).issuer_name(named("vpa-ca")).public_key(key.public_key())
            .serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )  # fmt: skip
        if not ca:
            made = made.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), critical=False)
        return made.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    authority, server = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    private = server.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return {
        "ca.pem": signed("vpa-ca", authority, authority, ca=True),
        "server.pem": signed("vpa-webhook", server, authority, ca=False),
        "server.key": private,
    }
