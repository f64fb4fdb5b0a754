"""Metrics APIs of the tests' own: metrics.k8s.io, custom and external ones, with the values that a test sets. The cluster's API server
reaches them on this machine, through an APIService whose Service is a name only."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.integration.operator import wait_for
from tests.lab import Lab

RESOURCE, CUSTOM, EXTERNAL = "metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io"
VERSIONS = {RESOURCE: "v1beta1", CUSTOM: "v1beta2", EXTERNAL: "v1beta1"}
WINDOW = 15


class MetricsApi:
    """`cpu`, `memory`: what each pod uses, by the value of its label app, as quantities; a pod of another app has no sample. `custom` and
    `external`: by the metric's name: of each pod, or of an object, and in all."""

    def __init__(self, pods: Callable[[str, str], list[dict[str, Any]]]) -> None:
        self.cpu: dict[str, str] = {}
        self.memory: dict[str, str] = {}
        self.custom: dict[str, str] = {}
        self.external: dict[str, str] = {}
        self.silent: set[str] = set()
        self.at: datetime | None = None
        self.asked: list[str] = []
        self.port = 0
        self._pods = pods

    def answer(self, path: str) -> Mapping[str, Any] | None:
        parts, query = urlsplit(path).path.strip("/").split("/"), parse_qs(urlsplit(path).query)
        group, rest = parts[1] if len(parts) > 1 else "", [unquote(one) for one in parts[3:]]
        if group not in VERSIONS:
            return None
        if not rest:
            return {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": f"{group}/{VERSIONS[group]}",
                "resources": _RESOURCES[group],
            }
        namespace, rest = (rest[1], rest[2:]) if rest[0] == "namespaces" else ("", rest)
        items = self._items(group, namespace, rest, (query.get("labelSelector") or [""])[0])
        return (
            None if items is None else {"kind": _LISTS[group], "apiVersion": f"{group}/{VERSIONS[group]}", "metadata": {}, "items": items}
        )

    def _items(self, group: str, namespace: str, rest: list[str], selector: str) -> list[dict[str, Any]] | None:
        at = _text(self.at or datetime.now(UTC))
        if group == EXTERNAL:
            value = self.external.get(rest[0])
            return [] if value is None else [{"metricName": rest[0], "metricLabels": {}, "timestamp": at, "value": value}]
        if group == CUSTOM:
            resource, name, metric = rest
            if metric not in self.custom:
                return None
            found = self._pods(namespace, selector) if name == "*" else [{"metadata": {"name": name}}]
            one = {"metric": {"name": metric}, "timestamp": at, "windowSeconds": WINDOW, "value": self.custom[metric]}
            return [
                {**one, "describedObject": {"kind": resource, "namespace": namespace, "name": pod["metadata"]["name"]}} for pod in found
            ]
        found = self._pods(namespace, selector)
        heard = [
            pod
            for pod in found
            if (pod["metadata"].get("labels") or {}).get("app") in self.cpu and pod["metadata"]["name"] not in self.silent
        ]
        return [self._pod(pod, at) for pod in heard]

    def _pod(self, pod: Mapping[str, Any], at: str) -> dict[str, Any]:
        app, count = pod["metadata"]["labels"]["app"], len(pod["spec"]["containers"])
        # All of it is the first container's.
        usages = [
            {"cpu": self.cpu[app] if not number else "0", "memory": self.memory.get(app, "1Mi") if not number else "0"}
            for number in range(count)
        ]
        containers = [{"name": one["name"], "usage": usage} for one, usage in zip(pod["spec"]["containers"], usages, strict=True)]
        names = {"name": pod["metadata"]["name"], "namespace": pod["metadata"]["namespace"]}
        return {"metadata": names, "timestamp": at, "window": f"{WINDOW}s", "containers": containers}


_RESOURCES: dict[str, list[dict[str, Any]]] = {
    RESOURCE: [
        {"name": "pods", "singularName": "", "namespaced": True, "kind": "PodMetrics", "verbs": ["get", "list"]},
        {"name": "nodes", "singularName": "", "namespaced": False, "kind": "NodeMetrics", "verbs": ["get", "list"]},
    ],
    CUSTOM: [],
    EXTERNAL: [],
}
_LISTS = {RESOURCE: "PodMetricsList", CUSTOM: "MetricValueList", EXTERNAL: "ExternalMetricValueList"}


def _text(at: datetime) -> str:
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")


@contextmanager
def served(folder: Path, address: str, pods: Callable[[str, str], list[dict[str, Any]]]) -> Iterator[MetricsApi]:
    """The APIs at an address of this machine, not registered yet. `pods`: the running pods of a namespace, by a selector."""
    api = MetricsApi(pods)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.headers.get("User-Agent", "").startswith("kube-controller-manager"):
                api.asked.append(self.path)
            found = api.answer(self.path)
            body = json.dumps(found if found is not None else _NOT_FOUND).encode()
            self.send_response(200 if found is not None else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer((address, 0), Handler)
    server.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(_certificate(folder))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    api.port = server.server_address[1]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield api
    finally:
        server.shutdown()


_NOT_FOUND = {"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "no such metric"}
SERVICE = {"name": "metrics-of-the-test", "namespace": "kube-system"}


def objects(api: MetricsApi, address: str, *groups: str) -> list[dict[str, Any]]:
    """What registers some of the APIs: a Service that is a name only, and their APIServices."""
    items: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Service", "metadata": SERVICE, "spec": {"type": "ExternalName", "externalName": address}}
    ]
    for group in groups:
        spec = {
            "group": group, "version": VERSIONS[group], "groupPriorityMinimum": 100, "versionPriority": 100, "insecureSkipTLSVerify": True,
            "service": {**SERVICE, "port": api.port},
        }  # fmt: skip
        metadata = {"name": f"{VERSIONS[group]}.{group}"}
        items.append({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": metadata, "spec": spec})
    return items


# ---- in a lab


@contextmanager
def served_in(lab: Lab, folder: Path) -> Iterator[MetricsApi]:
    """The APIs, as the nodes of a lab reach this machine."""

    def pods(namespace: str, selector: str) -> list[dict[str, Any]]:
        where = ["-n", namespace] if namespace else ["--all-namespaces"]
        told = lab.kubectl("get", "pods", *where, "-l", selector, "--field-selector=status.phase=Running", "-o", "json")
        items: list[dict[str, Any]] = json.loads(told)["items"]
        return items

    with served(folder, _gateway(lab), pods) as api:
        try:
            yield api
        finally:
            for group, version in VERSIONS.items():
                lab.kubectl("delete", "apiservice", f"{version}.{group}", "--ignore-not-found", "--wait=false")
            lab.kubectl("delete", "service", "-n", SERVICE["namespace"], SERVICE["name"], "--ignore-not-found", "--wait=false")


def register(api: MetricsApi, lab: Lab, *groups: str) -> None:
    """Register some of the APIs, and wait until the API server finds them available."""
    items = objects(api, _gateway(lab), *groups)
    lab.kubectl("apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    for group in groups:
        name = f"{VERSIONS[group]}.{group}"
        wait_for(partial(_available, lab, name), f"the APIService {name}")


def _available(lab: Lab, name: str) -> bool:
    path = '{.status.conditions[?(@.type=="Available")].status}'
    return lab.kubectl("get", "apiservice", name, "-o", f"jsonpath={path}").strip() == "True"


def _gateway(lab: Lab) -> str:
    """This machine, as the nodes reach it."""
    return lab.run("cp1", "ip route show default").stdout.split()[2]


def _certificate(folder: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "metrics-of-the-test")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(int(time.time()))
        .not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1)).sign(key, hashes.SHA256())
    )  # fmt: skip
    path = folder / "metrics.pem"
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path
