"""The current state: nodes, versions, processes, the sources of gates and flags, and the effective gates. Changes nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from roles.engine import bridge, control_plane, kubeadm_config, kubelet, table
from roles.engine.api import ApiFailure, GateMetric, NoApi
from roles.engine.bridge import Fleet, Remote
from roles.engine.control_plane import sourced_gates
from roles.engine.editing import kubelet_config
from roles.engine.findings.render import not_known, section
from roles.engine.folding import counted
from roles.engine.kubelet.values import shown
from roles.engine.node import Observation, Process, look
from roles.engine.node_changes import cordoned_for_change, fates_of
from roles.engine.proof import Cluster, ObservedNode, Reported, SurveyedNode, claims, known_nodes, reported, surveyed
from roles.engine.proof.effective import unmet_gates
from roles.engine.runs import Ended, deploying, no_data
from roles.engine.transaction import Refusal, in_flight
from roles.engine.voice import show, show_lines
from roles.status.nodes import HEADERS, NodeGlance

#: The gates of running processes, by host and component.
_Running = Mapping[str, Mapping[str, Mapping[str, GateMetric]]]


@deploying("Status", no_data)
def status(fleet: Fleet, _: None) -> Ended:
    """Show all nodes of the run in tables. Raises DeployError if a node could not be read or is not supported."""
    observations = fleet.each(fleet.targets, lambda remote: look(remote, kubelet.wanted), doing="read")
    looked: list[SurveyedNode] = []
    failures = [f"{remote.unreachable}; fix the connection" for remote in fleet.unreachable]
    warnings: list[str] = []
    for remote in fleet.targets:
        seen = observations[remote.name]
        try:
            if isinstance(seen, Exception):
                raise Refusal.of(remote.name, [seen])
            looked.append(node := surveyed(remote, seen))
            warnings += map(str, claims(remote, node.components))
            missing = {name: refusal for name, refusal in node.control.refusals.items() if name not in node.components}
            failures += map(str, missing.values())
            warnings += [f"{remote.name}: {warning}" for name, warning in node.control.said if name not in missing]
        except Refusal as refusal:
            failures.append(str(refusal))
            if not isinstance(seen, Exception):
                # A change in flight can be the cause.
                failures += [f"{remote.name}: {sentence}" for sentence in in_flight(seen.changes, seen.boot_id, seen.uptime)]
    known = known_nodes([ObservedNode(one.remote, one.seen, one.kubelet, one.components) for one in looked], fleet.each, fleet.inventory)
    cluster, nodes = known.cluster, [surveyed(one.remote, known.seen[one.remote.name]) for one in looked]
    warnings += map(str, known.not_theirs.values())
    own = [node for node in nodes if node.remote.name not in known.not_theirs]
    running, notes = _effective(fleet, own, cluster)
    now, glances = time.time(), _glances(own, cluster)
    show_lines(section("Nodes", HEADERS, table.folded([one.row(now) for one in glances])))
    warnings += [sentence for one in glances for sentence in one.attention(now)]
    headers = ["node", "kind", "component", "version", "pid", "running for", "state", "reads"]
    show_lines(section("Components", headers, table.folded([row for node in nodes for row in _components(node)], vary=(4, 5))))
    headers = ["node", "component", "gate", "set to", "in effect", "source"]
    gates = [row for node in nodes for row in _gates(node, running)]
    show_lines(section("Feature gates that a file or flag sets", headers, table.folded(gates)))
    headers = ["node", "component", "setting", "ConfigMap", "says", "files", "process"]
    show_lines(section("What the next `kubeadm upgrade` would change", headers, *_lasting(nodes, running, cluster, notes)))
    sources = [row for node in nodes for row in _sources(node)]
    show_lines(section("Sources", ["node", "path", "mode", "sha256"], table.folded(sources)))
    for warning in warnings:
        show(f"\n{warning}")
    for line in [line for remote in fleet.targets for line in _ignored(remote.name, observations[remote.name], nodes)]:
        show(f"\n{line}")
    for note in not_known(notes):
        show(note)
    if failures:
        raise bridge.refuse("not all nodes could be read:", failures)
    return Ended(f"{counted(len(nodes), 'node')} read, {counted(len(warnings), 'warning')}")


def _ignored(host: str, seen: Observation | Exception, nodes: Sequence[SurveyedNode]) -> list[str]:
    """Sentences about processes that have a component's name and that daytwo ignores or does not change."""
    node = next((node for node in nodes if node.remote.name == host), None)
    if node is not None:
        found = control_plane.ignored_files(node.kubelet, node.components)
    else:
        found = [] if isinstance(seen, Exception) else seen.ignored
    return [f"{host}: {sentence}" for sentence in found]


def _glances(nodes: Sequence[SurveyedNode], cluster: Cluster) -> list[NodeGlance]:
    """The nodes, as the versions were read."""
    fates, found = fates_of(cluster), []
    for node in nodes:
        fate = fates.get(node.kubelet.node_name)
        busy = tuple(map(str, in_flight(node.seen.changes, node.seen.boot_id, node.seen.uptime)))
        item, run = (fate.item, cordoned_for_change(fate)) if fate is not None else (None, "")
        found.append(NodeGlance(node.seen.host, item, fate, run, busy))
    return found


def _effective(fleet: Fleet, nodes: Sequence[SurveyedNode], cluster: Cluster) -> tuple[_Running, list[str]]:
    """The gates that the running processes report; and notes on what could not be read."""
    by_host = {node.remote.name: node for node in nodes}

    def ask(remote: Remote) -> Reported:
        node = by_host[remote.name]
        return reported(cluster, remote.name, node.kubelet.node_name, node.components, configuration=False)

    found = bridge.whole(fleet.each([node.remote for node in nodes], ask, doing="asked for the gates of"))
    unknown = [(f"{host} {name}", why) for host, one in found.items() for (name, _), why in one.unknown.items()]
    notes = [f"{'effective gates' if isinstance(why, NoApi) else where}: {why}" for where, why in unknown]
    return {host: one.gates for host, one in found.items()}, list(dict.fromkeys(notes))


def _components(node: SurveyedNode) -> list[list[str]]:
    seen, found = node.seen, node.kubelet
    unit = seen.unit
    state = f"{unit.first('ActiveState')}, {unit.first('NRestarts')} restarts" if unit else "unknown"
    state += "".join(f"; {sentence}" for sentence in in_flight(seen.changes, seen.boot_id, seen.uptime))
    rows = [_row(node, "kubelet", found.process, state, found.config_path or "flags only")]
    for name, component in node.components.items():
        rows.append(_row(node, name, component.process, "static pod", component.file.path))
    return rows


def _row(node: SurveyedNode, name: str, process: Process, state: str, reads: str) -> list[str]:
    age = node.seen.uptime - process.start_ticks / node.seen.ticks_per_second
    return [node.seen.host, node.kubelet.style, name, process.version or "unknown", str(process.pid), table.brief_age(age), state, reads]


def _gates(node: SurveyedNode, running: _Running) -> list[list[str]]:
    found, effective = node.kubelet, running.get(node.remote.name, {})
    sources: dict[str, str] = {}
    for path in found.config_paths:
        for gate in kubelet_config.gates(node.seen.data(path) or b""):
            sources[gate] = path
    for word in found.service.argv:
        for gate in found.flag_gates:
            if f"{gate}=" in word.text:
                sources[gate] = str(word.origin)
    rows = _of_component(node, "kubelet", found.gates, sources, effective.get("kubelet", {}))
    for name, component in node.components.items():
        gates = sourced_gates(component)
        rows += _of_component(node, name, gates, dict.fromkeys(gates, component.file.path), effective.get(name, {}))
    return rows


def _of_component(
    node: SurveyedNode, component: str, gates: Mapping[str, bool], sources: Mapping[str, str], effective: Mapping[str, GateMetric]
) -> list[list[str]]:
    effect = {name: str(metric.enabled).lower() for name, metric in effective.items()}
    effect |= {one.gate: f"{effect[one.gate]} (DIFFERS)" for one in unmet_gates(component, gates, effective) if one.gate in effect}
    return [
        [node.seen.host, component, gate, str(value).lower(), effect.get(gate, "unknown"), sources.get(gate, "unknown")]
        for gate, value in sorted(gates.items())
    ]


def _lasting(nodes: Sequence[SurveyedNode], running: _Running, cluster: Cluster, notes: list[str]) -> tuple[list[list[str]], str]:
    """Differences between kubeadm's ConfigMaps, the files of the nodes that it set up, and the running processes; or why there are none."""
    try:
        lasting = kubeadm_config.read_stored(cluster.object)
    except ApiFailure as error:
        notes.append(f"kubeadm's ConfigMaps: {error}")
        return [], "not known"
    if not lasting.by_kubeadm:
        return [], "nothing: kubeadm did not set up this cluster (there is no ConfigMap kube-system/kubeadm-config)"
    notes += [f"kubeadm's ConfigMaps: {problem}" for problem in lasting.problems.values()]
    gates, fields = kubeadm_config.written_by_kubeadm((node.kubelet, node.components, running.get(node.remote.name, {})) for node in nodes)
    found = [*kubeadm_config.gate_differences(lasting, gates), *kubeadm_config.kubelet_differences(lasting, fields)]
    process = ("-" if one.process is None else shown(one.process) for one in found)
    rows = [
        [one.host, one.component, one.setting, one.source, shown(one.lasting), shown(one.files), running]
        for one, running in zip(found, process, strict=True)
    ]
    return table.folded(rows), "nothing: kubeadm-config and kubelet-config match the nodes"


def _sources(node: SurveyedNode) -> list[list[str]]:
    manifests = filter(None, (component.manifest_path for component in node.components.values()))
    rows = []
    for path in (*node.kubelet.source_paths, *manifests):
        file = node.seen.file(path)
        exists = file is not None and file.sha256 is not None
        rows.append(
            [node.seen.host, path, f"{file.mode:04o}" if file and exists else "-", str(file.sha256)[:16] if file and exists else "absent"]
        )
    return rows


__all__ = ["status"]
