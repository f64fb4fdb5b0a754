"""Compares kubeadm's ConfigMaps with the nodes: what the next `kubeadm upgrade` would overwrite. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from roles.audit import parsed
from roles.audit.model import SourcedSetting
from roles.audit.node_view import GATES, NodeView
from roles.audit.rules import AuditRule
from roles.audit.versions import gate_then
from roles.engine.editing import FormatError, cluster_configuration, flags, yaml_text
from roles.engine.findings import Finding, Place
from roles.engine.kubeadm_config import (
    CLUSTER,
    KEYS,
    KUBELET,
    NAMESPACE,
    Difference,
    StoredSettings,
    gate_differences,
    kubelet_differences,
    written_by_kubeadm,
)
from roles.engine.kubelet.values import shown
from roles.feature_gates import Catalogue


def place_of(name: str) -> str:
    """The `file` of a finding for a ConfigMap: `configmap kube-system/kubelet-config kubelet`."""
    return f"configmap {NAMESPACE}/{name} {KEYS[name]}"


def settings(lasting: StoredSettings) -> tuple[SourcedSetting, ...]:
    """Each gate that the ConfigMaps set; lines count in the text under the key."""
    found: list[SourcedSetting] = []
    for component, gates in lasting.gates.items():
        source = KUBELET if component == "kubelet" else CLUSTER
        data = lasting.maps[source].data
        for name, value in gates.items():
            line = _kubelet_lines(data).get((GATES, name)) if source == KUBELET else _argument_line(data, component)
            written = "true" if value else "false"
            found.append(
                SourcedSetting(component=component, name=name, value=written, source="configmap", file=place_of(source), line=line)
            )
    return tuple(found)


def findings(lasting: StoredSettings, views: Sequence[NodeView], catalogue: Catalogue, target: int | None = None) -> Iterator[Finding]:
    """The findings of the cluster, and of the nodes that kubeadm set up."""
    for name, problem in lasting.problems.items():
        yield AuditRule.UNREADABLE.found(
            Place(None, file=place_of(name)),
            f"cannot be read: {problem}; kubeadm could not upgrade the cluster",
            f"fix it: kubectl edit configmap -n {NAMESPACE} {name}",
        )
    kept = settings(lasting)
    if target is not None:
        for place in kept:
            yield from gate_then(None, place, _oldest(views, place.component), target, catalogue)
    yield from _splits(lasting, kept, views)


def _oldest(views: Sequence[NodeView], component: str) -> int | None:
    return min((minor for view in views if (minor := view.minor(component)) is not None), default=None)


def _splits(lasting: StoredSettings, kept: Sequence[SourcedSetting], views: Sequence[NodeView]) -> Iterator[Finding]:
    by_host = {view.host: view for view in views}
    gates, fields = written_by_kubeadm((view.kubelet, view.components, view.running) for view in views if view.is_read)
    for difference in gate_differences(lasting, gates):
        if difference.lasting != difference.files:
            yield _gate(by_host[difference.host], difference, kept)
    for difference in kubelet_differences(lasting, fields):
        yield _field(by_host[difference.host], difference, lasting)


def _gate(view: NodeView, difference: Difference, kept: Sequence[SourcedSetting]) -> Finding:
    name, component = difference.setting, difference.component
    place = next((one for one in view.gates if (one.component, one.name) == (component, name) and one.source != "flag"), None)
    place = place or next((one for one in kept if (one.component, one.name) == (component, name)), None)
    return _finding(view, difference, place, f"{name}={shown(difference.files)}", "deploys/feature_gates.py")


def _field(view: NodeView, difference: Difference, lasting: StoredSettings) -> Finding:
    place = next((one for one in view.settings if one.name == difference.setting and one.source == "file"), None)
    if place is None:
        lines = _kubelet_lines(lasting.maps[KUBELET].data)
        line = next((line for path, line in lines.items() if ".".join(path) == difference.setting), None)
        place = SourcedSetting(
            component="kubelet", name=difference.setting, value="", source="configmap", file=place_of(KUBELET), line=line
        )
    return _finding(view, difference, place, f"{difference.setting}: {shown(difference.files)}", "deploys/kubelet_config.py")


def _finding(view: NodeView, difference: Difference, place: SourcedSetting | None, value: str, deploy: str) -> Finding:
    running = f", and {shown(difference.process)} in the process" if difference.process is not None else ""
    what = "removes it" if difference.lasting is None else f"overwrites it with {shown(difference.lasting)}"
    if difference.files is None:
        what = "writes it to this node"
    return AuditRule.SPLIT_BRAIN.found(
        view.at(difference.component, difference.setting, place, value),
        f"{shown(difference.lasting)} in {NAMESPACE}/{difference.source}, {shown(difference.files)} in the node's file{running}:"
        f" the next kubeadm upgrade {what}",
        f"set it for the whole cluster ({deploy} writes the ConfigMap last), keep it per node as a kubeadm patch, or remove it",
    )


def _kubelet_lines(data: bytes) -> Mapping[tuple[str, ...], int]:
    try:
        return parsed.lines(data)
    except FormatError:
        return {}


def _argument_line(data: bytes, component: str) -> int | None:
    """The line of a component's feature-gates among its extraArgs, in either form."""
    try:
        node = yaml_text.parse(data).node((cluster_configuration.SECTIONS[component], "extraArgs"))
    except FormatError:
        return None
    if node is None:
        return None
    for key, _ in node.pairs:
        if yaml_text.key_name(key).replace("_", "-") == flags.FEATURE_GATES:
            return key.line
    for item in node.items:
        if any(value.text.replace("_", "-") == flags.FEATURE_GATES for _, value in item.pairs):
            return item.line
    return None
