"""Nodes for tests of the audit: views of the answers of nodes, and a fleet of three hundred nodes with some faults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from roles.audit import Collected, Report, report
from roles.audit.model import FindingReport
from roles.audit.node_view import NodeView, view_of
from roles.engine.api import GateMetric
from roles.engine.findings import Finding
from roles.engine.kubelet.thresholds import effective
from roles.eviction import order
from roles.feature_gates import load
from tests.unit.eviction import pods
from tests.unit.node import node
from tests.unit.node.node import parse

COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
MADE = "2026-11-21T12:00:00+00:00"
_METRIC = {"Alpha": "ALPHA", "Beta": "BETA", "GA": "", "Deprecated": "DEPRECATED"}
CONFIGZ = {
    "staticPodPath": "/etc/kubernetes/manifests",
    "syncFrequency": "1m0s",
    "fileCheckFrequency": "20s",
    "authentication": {"x509": {"clientCAFile": "/etc/kubernetes/pki/ca.crt"}, "webhook": {"enabled": True, "cacheTTL": "2m0s"}},
    "authorization": {"mode": "Webhook"},
    "clusterDNS": ["10.96.0.10"],
    "clusterDomain": "cluster.local",
    "maxPods": 110,
    "evictionHard": {"memory.available": "100Mi", "nodefs.available": "10%"},
    "containerLogMaxSize": "10Mi",
}


def rows(found: Iterable[Finding]) -> list[FindingReport]:
    """Findings as the report has them."""
    return list(map(FindingReport.of, found))


def config(*lines: str, fields: Mapping[str, Any] = CONFIGZ) -> bytes:
    """A kubelet's configuration file with the fields above, and `lines` at its end."""
    text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
    for key, value in fields.items():
        text += _yaml(key, value, "")
    return (text + "".join(f"{line}\n" for line in lines)).encode()


def _yaml(key: str, value: Any, indent: str) -> str:
    if isinstance(value, Mapping):
        return f"{indent}{key}:\n" + "".join(_yaml(name, inner, indent + "  ") for name, inner in value.items())
    if isinstance(value, list):
        return f"{indent}{key}:\n" + "".join(f"{indent}- {item}\n" for item in value)
    return f"{indent}{key}: {str(value).lower() if isinstance(value, bool) else value}\n"


def metrics(minor: int = 36, **changed: bool) -> dict[str, GateMetric]:
    """All gates of a minor, those of `changed` with another value."""
    table = load()
    found = {}
    for name in table.known(minor):
        stage = table.gates[name].at(minor)
        assert stage is not None
        found[name] = GateMetric(_METRIC[stage.stage], changed.get(name, stage.default))
    return found


def make(
    host: str = "w1",
    *,
    groups: Sequence[str] = ("workers",),
    gates: Mapping[str, bool] | None = None,
    configuration: Mapping[str, Any] | None = None,
    asked: bool = True,
    **changes: Any,
) -> NodeView:
    """A view of one node. `gates`: those that its processes run with another value than the default; `configuration`: what
    /configz shows in addition to the usual; `asked` is False if the API could not be asked; the rest is as for tests.unit.node.node.answer."""
    made = view_of(parse(host, node.answer(**changes)), groups)
    if not asked or not made.is_read:
        return made
    running = {component: metrics(**(gates or {})) for component in made.processes}
    return replace(made, running=running, configuration={**made.kubelet.configuration, **(configuration or {})})


def control_plane(*more: str, **manifests: bytes) -> dict[str, Any]:
    """The manifests and processes of a control-plane node. `more`: flags of the apiserver."""
    argv = {name: (name, *(more if name == "kube-apiserver" else ()), "--v=2") for name in COMPONENTS}
    return {
        "manifests": {f"{name}.yaml": node.manifest(*words) for name, words in argv.items()} | manifests,
        "components": argv,
        "extra": [f"version {200 + number} {node.b64('Kubernetes v1.36.3')}=" for number, _ in enumerate(argv)],
    }


def many(count: int = 300) -> tuple[Report, list[order.NodeOrder]]:
    """A cluster of `count` nodes, most of them identical, some with faults of every kind; and their pods."""
    views = [make(f"cp{number}", groups=("control_plane",), **control_plane(), files={CONFIG: config()}) for number in (1, 2, 3)]
    for number in range(4, count + 1):
        host = f"node-{number:03d}"
        changes: dict[str, Any] = {"files": {CONFIG: config()}}
        configuration: dict[str, Any] = {}
        if number % 7 == 0:
            changes = {
                "files": {CONFIG: config("featureGates:", "  HPAScaleToZero: true"), EXTRA: b'KUBELET_EXTRA_ARGS="--node-ip=10.0.0.9"\n'}
            }
            changes["argv"] = (*node.KUBEADM_ARGV, "--node-ip=10.0.0.9")
            configuration = {"featureGates": {}}  # the gate was written after the start
        if number % 50 == 1:
            changes = {"files": {CONFIG: config("featureGates:", "  NoSuchGate: true")}}
        if number % 40 == 3:
            changes = {"files": {CONFIG: config(fields={**CONFIGZ, "maxPods": 250})}}
            configuration = {"maxPods": 110}
        if number % 60 == 5:
            changes["manifests"] = {"web.yaml": node.manifest("web"), "web.yaml.bak": node.manifest("web")}
        if number % 90 == 9:
            changes["needs_reload"] = "yes"
        views.append(make(host, **changes, configuration=configuration))
    orders = [_order(view.host, number) for number, view in enumerate(views)]
    found = report(Collected(views, orders=orders), load(), made=MADE, target=37)
    return found, orders


CONFIG = "/var/lib/kubelet/config.yaml"
EXTRA = "/etc/default/kubelet"


def _order(host: str, number: int) -> order.NodeOrder:
    names = [
        f"{name}-{number:03d}-{index}" for index, name in enumerate(("web", "cart", "search", "mail", "queue", "cache", "job", "log") * 3)
    ]
    listed = [pods.pod(name, priority=index * 10, requests={"memory": "100Mi"}) for index, name in enumerate(names)]
    stats = [pods.stats(name, memory=(30 + 37 * index * (number + 3) % 300) * pods.MI, processes=index) for index, name in enumerate(names)]
    left = (1 + number % 5) * pods.GI
    seen = pods.summary(*stats, memory=(left, 8 * pods.GI - left))
    made = order.order(
        seen, listed, pods.node(), thresholds=effective({"evictionHard": {"memory.available": "500Mi", "nodefs.available": "10%"}})
    )
    return replace(made, node=host)
