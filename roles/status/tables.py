"""The rows of the report, of one reading: processes, gates, sources, what `kubeadm upgrade` would change, the cluster's name. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from roles.engine import kubeadm_config
from roles.engine.api import GateMetric
from roles.engine.control_plane import sourced_gates
from roles.engine.editing import kubelet_config
from roles.engine.kubeadm_config import StoredSettings
from roles.engine.kubelet.values import shown
from roles.engine.node import Process
from roles.engine.proof import SurveyedNode
from roles.engine.proof.effective import unmet_gates
from roles.engine.transaction import in_flight
from roles.status.model import ClusterReport, ComponentReport, DifferenceReport, GateReport, SourceReport

#: The gates of running processes, by host and component.
Running = Mapping[str, Mapping[str, Mapping[str, GateMetric]]]


def cluster(stored: StoredSettings | None, nodes: Sequence[SurveyedNode]) -> ClusterReport:
    names = stored.names if stored is not None else {}
    servers = (node.components["kube-apiserver"].address for node in nodes if "kube-apiserver" in node.components)
    address = next((f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in servers), None)
    return ClusterReport(name=names.get("clusterName"), endpoint=names.get("controlPlaneEndpoint") or address)


def components(node: SurveyedNode) -> Iterator[ComponentReport]:
    seen, found = node.seen, node.kubelet
    unit = seen.unit
    state = f"{unit.first('ActiveState')}, {unit.first('NRestarts')} restarts" if unit else "unknown"
    state += "".join(f"; {sentence}" for sentence in in_flight(seen.changes, seen.boot_id, seen.uptime))
    yield _component(node, "kubelet", found.process, state, found.config_path or "flags only")
    for name, component in node.components.items():
        yield _component(node, name, component.process, "static pod", component.file.path)


def _component(node: SurveyedNode, name: str, process: Process, state: str, reads: str) -> ComponentReport:
    return ComponentReport(
        host=node.seen.host,
        kind=node.kubelet.style,
        component=name,
        version=process.version,
        pid=process.pid,
        age_seconds=node.seen.uptime - process.start_ticks / node.seen.ticks_per_second,
        state=state,
        reads=reads,
    )


def gates(node: SurveyedNode, running: Running) -> Iterator[GateReport]:
    found, effective = node.kubelet, running.get(node.remote.name, {})
    sources: dict[str, str] = {}
    for path in found.config_paths:
        for gate in kubelet_config.gates(node.seen.data(path) or b""):
            sources[gate] = path
    for word in found.service.argv:
        for gate in found.flag_gates:
            if f"{gate}=" in word.text:
                sources[gate] = str(word.origin)
    yield from _of_component(node, "kubelet", found.gates, sources, effective.get("kubelet", {}))
    for name, component in node.components.items():
        own = sourced_gates(component)
        yield from _of_component(node, name, own, dict.fromkeys(own, component.file.path), effective.get(name, {}))


def _of_component(
    node: SurveyedNode, component: str, gates: Mapping[str, bool], sources: Mapping[str, str], effective: Mapping[str, GateMetric]
) -> Iterator[GateReport]:
    unmet = {one.gate for one in unmet_gates(component, gates, effective)}
    for gate, value in sorted(gates.items()):
        yield GateReport(
            host=node.seen.host,
            component=component,
            gate=gate,
            set_to=value,
            in_effect=effective[gate].enabled if gate in effective else None,
            differs=gate in effective and gate in unmet,
            source=sources.get(gate),
        )


def differences(nodes: Sequence[SurveyedNode], running: Running, stored: StoredSettings | None) -> tuple[list[DifferenceReport], str]:
    """Differences between kubeadm's ConfigMaps, the files of the nodes that it set up, and the running processes; and why there is
    none."""
    if stored is None:
        return [], "not known"
    if not stored.by_kubeadm:
        return [], "nothing: kubeadm did not set up this cluster (there is no ConfigMap kube-system/kubeadm-config)"
    gates, fields = kubeadm_config.written_by_kubeadm((node.kubelet, node.components, running.get(node.remote.name, {})) for node in nodes)
    found = [*kubeadm_config.gate_differences(stored, gates), *kubeadm_config.kubelet_differences(stored, fields)]
    rows = [
        DifferenceReport(
            host=one.host,
            component=one.component,
            setting=one.setting,
            configmap=one.source,
            says=shown(one.lasting),
            files=shown(one.files),
            process=None if one.process is None else shown(one.process),
        )
        for one in found
    ]
    return rows, "nothing: kubeadm-config and kubelet-config match the nodes"


def sources(node: SurveyedNode) -> Iterator[SourceReport]:
    manifests = filter(None, (component.manifest_path for component in node.components.values()))
    for path in (*node.kubelet.source_paths, *manifests):
        file = node.seen.file(path)
        exists = file is not None and file.sha256 is not None
        yield SourceReport(
            host=node.seen.host,
            path=path,
            mode=f"{file.mode:04o}" if file and exists else None,
            sha256=file.sha256 if file and exists else None,
        )
