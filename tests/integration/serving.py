"""Services without a proxy: a client that asks a Service's endpoints all the time, and a webhook whose backends are a Service's pods."""

from __future__ import annotations

import base64
import http.client
import http.server
import itertools
import json
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from roles.engine.api.kubectl import ADMIN_CONF
from tests.integration.draining import NAMESPACE, apply, get
from tests.integration.operator import wait_for
from tests.lab import Lab
from tests.unit.api.world import Authority

# An end that a client does not notice: the pod is not Ready from its deletion on, and serves until the last client knows.
SERVE = "echo ok >/tmp/index.html; httpd -p 8080 -h /tmp; trap 'sleep 4; exit 0' TERM; while :; do sleep 1 & wait $!; done"


def service(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": 8080}]},
    }  # fmt: skip


def wrong_answer(address: str, port: int) -> str:
    """What is wrong with a server's answer: empty where it is `ok`."""
    connection = http.client.HTTPConnection(address, port, timeout=20)
    try:
        connection.request("GET", "/")
        answer = connection.getresponse()
        return "" if answer.status == 200 and answer.read().strip() == b"ok" else str(answer.status)
    except OSError as error:
        return repr(error)
    finally:
        connection.close()


class Client:
    """Asks a Service every 50 ms, as a proxy of it would: at an endpoint that is ready, by the EndpointSlices that it watches."""

    def __init__(self, lab: Lab, service: str, port: int) -> None:
        self.lost: list[str] = []
        self.answers: set[str] = set()
        self.asked = 0
        self._lab, self._port = lab, port
        self._slices: dict[str, list[str]] = {}
        self._over = threading.Event()
        watch = f"kubectl --kubeconfig={ADMIN_CONF} get endpointslices -n {NAMESPACE} -l kubernetes.io/service-name={service} -o json --watch --output-watch-events"
        command = [
            "ssh",
            "-F",
            str(lab.ssh_config),
            "-o",
            "LogLevel=ERROR",
            "-o",
            "ControlMaster=no",
            "-o",
            "ControlPath=none",
            "cp1",
            watch,
        ]
        self._watch = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        self._threads = [threading.Thread(target=target, daemon=True) for target in (self._read, self._ask)]
        self._threads[0].start()
        wait_for(lambda: any(self._slices.values()), f"endpoints of {service}")
        self._threads[1].start()

    def _read(self) -> None:
        assert self._watch.stdout is not None
        for line in self._watch.stdout:
            event = json.loads(line)
            item = event["object"]
            ready = [one["nodeName"] for one in item.get("endpoints") or () if (one.get("conditions") or {}).get("ready")]
            self._slices[item["metadata"]["name"]] = [] if event["type"] == "DELETED" else ready

    def _ask(self) -> None:
        while not self._over.wait(0.05):
            nodes = [node for found in list(self._slices.values()) for node in found]
            self.asked += 1
            if not nodes:
                self.lost.append(f"{time.time():.3f}: no endpoint is ready")
                continue
            node = nodes[self.asked % len(nodes)]
            if why := wrong_answer(self._lab.address(node), self._port):
                self.lost.append(f"{time.time():.3f}: {node}: {why}")
            else:
                self.answers.add(node)

    def end(self) -> None:
        self._over.set()
        self._threads[1].join(timeout=60)
        self._watch.terminate()
        self._watch.wait()


class Hook:
    """What the API server asks: TLS ends here. A request is allowed if a pod of the Service answers at its port of the host; else this
    webhook does not answer. `asked` and `failed` count."""

    def __init__(self, lab: Lab, service: str, port: int, folder: Path) -> None:
        self.asked = self.failed = 0
        self._nodes = [(lab.address(node), port) for node in lab.nodes]
        authority = Authority("t-drain")
        self.authority = authority.pem
        (folder / "hook.pem").write_bytes(b"".join(authority.issue(f"{service}.{NAMESPACE}.svc")))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "hook.pem")
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.asked += 1
                if not outer.serves():
                    outer.failed += 1
                    self.send_error(503)
                    return
                answer = {"uid": review["request"]["uid"], "allowed": True}
                body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer((lab.machine("cp1").network.gateway, 0), Handler)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def serves(self) -> bool:
        for address in self._nodes:
            connection = http.client.HTTPConnection(*address, timeout=2)
            try:
                connection.request("GET", "/")
                if connection.getresponse().status == 200:
                    return True
            except OSError:
                continue
            finally:
                connection.close()
        return False


class EvictionHook:
    """Denies the evictions of pods named PREFIX..., each time with another status code, until `seconds` after the first one that is no dry
    run. `asked` has the name of each pod and whether it was a dry run."""

    def __init__(self, lab: Lab, prefix: str, seconds: float, folder: Path) -> None:
        self.asked: list[tuple[str, bool]] = []
        self._prefix, self._seconds, self._first = prefix, seconds, dict[str, float]()
        self._codes = itertools.cycle((429, 403, 500, 404, 409, 401))
        address = lab.machine("cp1").network.gateway
        authority = Authority("t-evict")
        self.authority = authority.pem
        (folder / "hook.pem").write_bytes(b"".join(authority.issue("hook", address)))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "hook.pem")
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
                body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": outer.answer(asked)}
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer((address, 0), Handler)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"https://{address}:{self.server.server_address[1]}/"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        name, dry = asked["name"], bool(asked.get("dryRun"))
        self.asked.append((name, dry))
        if not dry:
            self._first.setdefault(name, time.monotonic())
        over = name in self._first and time.monotonic() - self._first[name] > self._seconds
        if over or not name.startswith(self._prefix):
            return {"uid": asked["uid"], "allowed": True}
        return {"uid": asked["uid"], "allowed": False, "status": {"code": next(self._codes), "message": "moving it first; ask again"}}


@contextmanager
def eviction_webhook(lab: Lab, prefix: str, seconds: float, folder: Path) -> Iterator[EvictionHook]:
    """A validating webhook on pods/eviction: guard.t-evict.example."""
    hook = EvictionHook(lab, prefix, seconds, folder)
    made: dict[str, Any] = {
        "name": "guard.t-evict.example", "clientConfig": {"url": hook.url, "caBundle": base64.b64encode(hook.authority).decode()},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"]}],
        "failurePolicy": "Ignore", "sideEffects": "NoneOnDryRun", "admissionReviewVersions": ["v1"], "timeoutSeconds": 5,
    }  # fmt: skip
    try:
        kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
        apply(lab, {**kind, "metadata": {"name": "t-evict"}, "webhooks": [made]})
        yield hook
    finally:
        lab.kubectl("delete", "validatingwebhookconfiguration", "t-evict")
        hook.server.shutdown()
        hook.server.server_close()


@contextmanager
def webhook(lab: Lab, name: str, port: int, folder: Path) -> Iterator[Hook]:
    """Two webhooks with failurePolicy Fail behind the Service `name`, whose pods answer at `port` of their host: one is asked about all new
    pods, the other about those with a label that no pod has."""
    hook = Hook(lab, name, port, folder)
    address = get(lab, "service", name, "-n", NAMESPACE)["spec"]["clusterIP"]
    gateway, to = lab.machine("cp1").network.gateway, hook.server.server_address[1]
    nat = f"OUTPUT -d {address} -p tcp --dport 80 -j DNAT --to-destination {gateway}:{to}"
    common: dict[str, Any] = {
        "clientConfig": {
            "service": {"name": name, "namespace": NAMESPACE, "port": 80},
            "caBundle": base64.b64encode(hook.authority).decode(),
        },
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 5,
    }  # fmt: skip
    hooks = [
        {**common, "name": "all.t-drain.example"},
        {**common, "name": "some.t-drain.example", "objectSelector": {"matchLabels": {"t-drain": "guarded"}}},
    ]
    try:
        lab.run("cp1", f"iptables -t nat -A {nat}")
        kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
        apply(lab, {**kind, "metadata": {"name": "t-drain"}, "webhooks": hooks})
        probe = ("run", "probe", "--image=none", "--restart=Never", "--dry-run=server", "-n", NAMESPACE)
        wait_for(lambda: lab.kubectl(*probe, check=False) and hook.asked, "the API server to ask the webhook")
        yield hook
    finally:
        lab.kubectl("delete", "validatingwebhookconfiguration", "t-drain")
        lab.run("cp1", f"iptables -t nat -D {nat}", check=False)
        hook.server.shutdown()
        hook.server.server_close()
