"""Compares nodes with the inventory, with their own other sources, and with each other. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from roles import eviction, feature_gates, kubelet_config
from roles.audit.model import SourcedSetting
from roles.audit.node_view import NodeView, flat
from roles.audit.rules import AuditRule
from roles.desired import NodeDesired
from roles.engine.control_plane import Component
from roles.engine.findings import Finding, Place
from roles.engine.folding import shortened
from roles.engine.kubelet import Kubelet, schema
from roles.engine.kubelet.values import same_setting, shown
from roles.engine.proof.effective import UnmetField, UnmetGate
from roles.engine.transaction import Refusal

# Fields that belong to one node: siblings are not compared by them.
ITS_OWN = (
    *("address", "healthzBindAddress", "podCIDR", "providerID", "registerWithTaints", "registerNode", "resolvConf"),
    *("tlsCertFile", "tlsPrivateKeyFile", "staticPodURL", "reservedSystemCPUs", "reservedMemory", "volumePluginDir"),
)
# Fields that mean the same on nodes of every kind; other fields have paths and addresses that depend on the kind.
_WHATEVER_KIND = (
    *(name for name, deploy in schema.OWNED.items() if deploy == "eviction"),
    *("maxPods", "podsPerCore", "podPidsLimit", "containerLogMaxSize", "containerLogMaxFiles", "imageGCHighThresholdPercent"),
    *("imageGCLowThresholdPercent", "imageMinimumGCAge", "serializeImagePulls", "maxParallelImagePulls", "shutdownGracePeriod"),
    *("shutdownGracePeriodCriticalPods", "cpuManagerPolicy", "memoryManagerPolicy", "topologyManagerPolicy", "failSwapOn"),
    *("nodeStatusUpdateFrequency", "kubeAPIQPS", "kubeAPIBurst"),
)


def findings(view: NodeView, desired: NodeDesired) -> Iterator[Finding]:
    """The findings of one node: drift from the inventory, and flags that override a file."""
    for problem in desired.problems:
        yield AuditRule.INVENTORY.found(Place(view.host), problem)
    if view.is_read:
        yield from _gates(view, desired)
        yield from _fields(view, desired)
        yield from _flags(view)


# ---- the inventory


def _gates(view: NodeView, desired: NodeDesired) -> Iterator[Finding]:
    seen: dict[str, Kubelet | Component] = {"kubelet": view.kubelet, **view.components}
    for component, its in seen.items():
        for one in feature_gates.unmet(its, desired.gates_of(its), view.running.get(component)):
            if one.known:
                place = view.winner(component, one.gate)
                expected = f"{one.gate} absent" if one.wanted is None else f"{one.gate}={shown(one.wanted)}"
                yield _drift(view, component, one.gate, place, _has(one, place), expected, "feature_gates")


def _has(one: UnmetGate, place: SourcedSetting | None) -> str:
    """The value of a gate that was found, and the value of the file that counts if that differs."""
    if one.found is None:
        where = "/metrics" if one.by == "metrics" else "the process"
        return "not set" if place is None else f"not in {where}, {place.value} in the file"
    setting = f"{one.gate}={shown(one.found)}"
    if place is None:
        return f"{setting} {'by default' if one.by == 'metrics' else 'in the process'}"
    return setting if place.value == shown(one.found) else f"{setting} in the process, {place.value} in the file"


def _fields(view: NodeView, desired: NodeDesired) -> Iterator[Finding]:
    if (fields := desired.fields) is not None:
        try:
            yield from _unmet(view, "kubelet_config", kubelet_config.unmet(fields, view.kubelet, view.effective))
        except Refusal as refusal:
            yield AuditRule.INVENTORY.found(Place(view.host, "kubelet"), refusal.message, refusal.way_out or "")
    if (thresholds := desired.eviction) is not None:
        yield from _unmet(view, "eviction", eviction.unmet(thresholds, view.kubelet, view.effective))


def _unmet(view: NodeView, deploy: str, unmet: Iterable[UnmetField]) -> Iterator[Finding]:
    for one in (entry for whole in unmet for entry in whole.entries):
        place = view.setting(one.path) or view.setting(one.name)
        value, wanted = (f"{one.path}: {shown(each, one.name)}" for each in (one.found, one.wanted))
        yield _drift(view, "kubelet", one.path, place, value, wanted, deploy)


def _drift(view: NodeView, component: str, name: str, place: SourcedSetting | None, value: str, wanted: str, deploy: str) -> Finding:
    return AuditRule.DRIFT.found(
        view.at(component, name, place, value, _home(view, component)),
        f"the inventory wants {wanted}",
        f"deploys/{deploy}.py --dry shows what it would change; or update the inventory's data",
    )


def _home(view: NodeView, component: str) -> str | None:
    """The file that would set it, if no file does."""
    if component != "kubelet":
        return view.components[component].manifest_path
    return view.kubelet.config_path or view.kubelet.service.command_path


# ---- a flag that overrides a file


def _flags(view: NodeView) -> Iterator[Finding]:
    """Fields and gates that a flag and a file set to different values: the file does not show the effective value."""
    for listed, what in ((view.gates, "--feature-gates"), (view.settings, "")):
        for winner in listed:
            if winner.source != "flag" or not winner.counts:
                continue
            for place in listed:
                if place.source in ("file", "drop-in") and place.name == winner.name and not same_setting(place.value, winner.value):
                    flag = what or _flag_of(view, winner)
                    variable = f" ({winner.variable})" if winner.variable else ""
                    yield AuditRule.FLAG_BEATS_FILE.found(
                        view.at("kubelet", place.name, place, f"{place.name}: {place.value}"),
                        f"{flag} in {winner.place}{variable} says {winner.value}, and a flag overrides the file: this value has no effect",
                        "remove one of them; deploys/kubelet_config.py --data move_flags=true moves a flag to the file"
                        if not what
                        else "remove one of them (deploys/feature_gates.py changes the flag)",
                    )


def _flag_of(view: NodeView, winner: SourcedSetting) -> str:
    flag = next((one for one in view.flags if not one.masked and one.place.place == winner.place), None)
    return f"--{flag.name}" if flag else "a flag"


# ---- siblings


def siblings(views: Sequence[NodeView]) -> Iterator[Finding]:
    """Nodes whose value differs from most nodes of the same group, version and components; without a majority, those where a file or
    flag sets it. Fields with paths and addresses are compared only between nodes of the same kind."""
    alike: dict[tuple[object, ...], list[NodeView]] = {}
    for view in views:
        if view.is_read:
            alike.setdefault((view.groups, frozenset(view.components), view.minor("kubelet")), []).append(view)
    for group in alike.values():
        if len(group) > 1:
            yield from _unlike_gates(group)
            yield from _unlike_fields(group)


def _unlike_gates(group: Sequence[NodeView]) -> Iterator[Finding]:
    for component in group[0].processes:
        # If a process could not be asked, gates that no file sets are not known.
        asked = all(view.running.get(component) for view in group)
        names = {place.name for view in group for place in view.gates if place.component == component}
        if asked:
            names |= {name for view in group for name in view.running[component]}
        for name in sorted(names):
            values = {view.host: _gate_value(view, component, name) for view in group}
            for view in _outliers(group, values, lambda one: one.winner(component, name) is not None):  # noqa: B023 - used at once
                place = view.winner(component, name)
                yield _unlike(view, component, name, place, f"{name}={values[view.host]}", values, _home(view, component))


def _gate_value(view: NodeView, component: str, name: str) -> str:
    found = view.gate(component, name)
    return "not set" if found is None else shown(found)


def _unlike_fields(group: Sequence[NodeView]) -> Iterator[Finding]:
    configurations = {view.host: flat(view.effective) for view in group}
    names = {name for found in configurations.values() for name in found}
    for name in sorted(names):
        top = name.partition(".")[0]
        if top in ITS_OWN:
            continue
        kinds = {view.kind for view in group} if top not in _WHATEVER_KIND else {None}
        for kind in kinds:
            among = [view for view in group if kind is None or view.kind == kind]
            values = {view.host: shown(configurations[view.host].get(name), name) for view in among}
            for view in _outliers(among, values, lambda one: one.setting(name) is not None):  # noqa: B023 - used at once
                yield _unlike(view, "kubelet", name, view.setting(name), f"{name}: {values[view.host]}", values, _home(view, "kubelet"))


def _outliers(group: Sequence[NodeView], values: Mapping[str, str], is_set: Any) -> list[NodeView]:
    """Those that differ from the majority; without a majority, those where a source sets the value, or else all."""
    distinct: list[str] = []
    for value in values.values():
        if not any(same_setting(value, other) for other in distinct):
            distinct.append(value)
    if len(group) < 2 or len(distinct) < 2:
        return []
    counts = Counter({value: sum(same_setting(value, other) for other in values.values()) for value in distinct})
    value, most = counts.most_common(1)[0]
    if most * 2 > len(group):
        return [view for view in group if not same_setting(values[view.host], value)]
    return [view for view in group if is_set(view)] or list(group)


def _unlike(
    view: NodeView, component: str, name: str, place: SourcedSetting | None, value: str, values: Mapping[str, str], home: str | None
) -> Finding:
    others: dict[str, list[str]] = {}
    for host, other in values.items():
        if host != view.host and other != values[view.host]:
            others.setdefault(other, []).append(host)
    differences = "; ".join(_have(hosts, other) for other, hosts in others.items())
    return AuditRule.SIBLING.found(
        view.at(component, name, place, value, home),
        f"other nodes of the same group and version differ: {differences}",
    )


def _have(hosts: Sequence[str], value: str) -> str:
    many = len(hosts) > 1
    if value in ("not set", shown(None)):
        return f"{_hosts(hosts)} {'do' if many else 'does'} not set it"
    return f"{_hosts(hosts)} {'have' if many else 'has'} {value}"


def _hosts(hosts: Sequence[str]) -> str:
    return shortened(hosts, 4 if len(hosts) <= 4 else 3)
