"""A cluster that metrics-server is installed in, and what it answers then."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from roles.engine.certificates import Certificate, parse_certificates
from roles.engine.certificates.x509 import SubjectNames
from roles.engine.proof.presented import Presented
from roles.engine.transaction import ChangedField, ChangedObject
from roles.metrics_server import ClusterNeeds, DesiredServer
from roles.metrics_server.manifests import WantedServer
from roles.metrics_server.preflight import ApiServer, KubeletFacts
from tests.unit.api.world import Authority

IMAGE = "registry.example.com/metrics-server:v0.9.0"
FLAGS: dict[str, str | None] = dict.fromkeys(("requestheader-client-ca-file", "requestheader-username-headers", "requestheader-group-headers", "requestheader-extra-headers-prefix", "proxy-client-cert-file", "proxy-client-key-file"), "x")  # fmt: skip
WEBHOOK = {"authentication": {"webhook": {"enabled": True}}, "authorization": {"mode": "Webhook"}}
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def node(name: str, ready: str = "True", system: str = "linux", cpu: str = "2", **spec: Any) -> dict[str, Any]:
    labels = {"kubernetes.io/os": system, "kubernetes.io/hostname": name}
    status = {"conditions": [{"type": "Ready", "status": ready}], "allocatable": {"cpu": cpu, "memory": "2Gi", "pods": "110"}}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}


def pod(name: str, on: str, cpu: str, **labels: str) -> dict[str, Any]:
    containers = [{"name": "a", "image": "a", "resources": {"requests": {"cpu": cpu}}}]
    metadata = {"name": name, "namespace": "kube-system", "labels": labels}
    return {"metadata": metadata, "spec": {"nodeName": on, "containers": containers}, "status": {"phase": "Running"}}


def kubelet(name: str = "w1", problem: str = "", **configuration: Any) -> KubeletFacts:
    certificate = Certificate("CN=a", "CN=b", "a", SubjectNames(), NOW, NOW + timedelta(365), False, b"")
    return KubeletFacts(name, {**WEBHOOK, **configuration}, Presented("192.0.2.1:10250", certificate, problem))


FRONT_PROXY = Authority("front-proxy-ca")


def server(flags: dict[str, str | None] | None = None, *, reaches: bool = True, **changed: Any) -> ApiServer:
    (own,), authority = parse_certificates(FRONT_PROXY.issue("front-proxy-client")[0]), tuple(parse_certificates(FRONT_PROXY.pem))
    return replace(ApiServer("cp1", flags or FLAGS, 36, reaches, own, authority), **changed)


def needs(**changed: Any) -> ClusterNeeds:
    whole = ClusterNeeds([server()], [node("w1"), node("w2")], [kubelet()], {"data": {"requestheader-client-ca-file": "pem"}})
    return replace(whole, **changed)


def desired(image: str = IMAGE, **more: Any) -> DesiredServer:
    return DesiredServer(metrics_server=image, **more)  # type: ignore[arg-type]


def live(one: WantedServer, uid: str = "u1", manager: str = "daytwo") -> dict[str, Any]:
    """As the API server gives it back: with defaults, and who has applied it."""
    found = {**one.manifest, "status": {}}
    found["metadata"] = {**one.manifest["metadata"], "uid": uid, "managedFields": [{"manager": manager, "operation": "Apply"}]}
    return found


def recorded(one: WantedServer, action: str, before: Any, after: Any) -> ChangedObject:
    about = {
        "path": one.path,
        "uid": "u1",
        "kind": one.kind,
        "object_name": one.name.partition(" ")[2],
        "version": one.manifest["apiVersion"],
    }
    return ChangedObject(one.name, action, (ChangedField(("manifest",), before, after),), about, "done")


def metrics(name: str, age: float = 20) -> dict[str, Any]:
    return {"metadata": {"name": name}, "timestamp": (NOW - timedelta(seconds=age)).isoformat().replace("+00:00", "Z"), "window": "15.012s"}
