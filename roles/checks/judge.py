"""Compares the evidence of a node with what must hold on every node, and with the inventory. Pure.

One table of checks for deploys/checks.py and for tests/acceptance. Each check finds one kind of fault. A check that depends on a failed one
is skipped, so a fault is reported once.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from roles import autoscalers, control_plane_flags, disruption_budgets, eviction, feature_gates, kubelet_config, priority_classes
from roles.checks.evidence import KUBELET, Evidence
from roles.desired import ClusterDesired, NodeDesired
from roles.engine.control_plane import COMPONENTS, by_pod
from roles.engine.disruption import DisruptionObjects
from roles.engine.editing import flags
from roles.engine.findings import Finding, Result, Severity
from roles.engine.folding import once_each
from roles.engine.kube import Object, condition, is_ready
from roles.engine.kubelet.pending import ANY_FLAGS, pending_arguments
from roles.engine.node_lint import NodeRule
from roles.engine.starting import Cause, Stops
from roles.engine.transaction import Refusal, mask_text

T = TypeVar("T")
# systemctl(1), is-enabled: what starts at boot. A static unit cannot be enabled; something else starts it.
STARTS = ("enabled", "static", "alias", "indirect", "generated")
CLUSTER = "cluster"


@dataclass(frozen=True)
class Check:
    """One check of a node. `about`: what holds if it passes. `needs`: checks that must pass first."""

    name: str
    about: str
    judge: Callable[[Evidence, NodeDesired], Result]
    needs: tuple[str, ...] = ()

    def result(self, found: Evidence, desired: NodeDesired) -> Result:
        made, rules = self.judge(found, desired), RULES.get(self.name, ())
        wrong = [one for one in found.wrong if one.rule in rules and one.severity is not Severity.note]
        if made.outcome != "pass" or not wrong:
            return made
        causes = tuple(rule for rule in rules if any(one.rule is rule for one in wrong))
        return replace(_fail(mask_text(once_each((*(one.said for one in wrong), *(one.way_out for one in wrong))))), causes=causes)


# Of the node and the check that are being judged.
_pass = partial(Result, "", "", "pass")
_fail = partial(Result, "", "", "fail")
_unknown = partial(Result, "", "", "unknown")
_skip = partial(Result, "", "", "skip", applies=False)


def _says(why: str) -> Callable[[Evidence, NodeDesired], Result]:
    """For a check that has rules only."""
    return lambda _, __: _pass(why)


def _verdict(problems: Iterable[str], why: str) -> Result:
    """Fails with the problems; without any, passes with `why`."""
    listed = "; ".join(problems)
    return _fail(listed) if listed else _pass(why)


# ---- the kubelet and its unit


def _running(found: Evidence, _: NodeDesired) -> Result:
    last = found.moments[-1].properties if found.moments else {}
    if found.running:
        return _pass(_process(found))
    if found.restarting:
        return _skip("it does not stay up: see kubelet-stable")
    state = f"{last.get('ActiveState', 'unknown')} ({last.get('SubState', '?')}, {last.get('Result', '?')})"
    return _fail(f"no kubelet runs as a systemd service; kubelet.service is {state}")


def _process(found: Evidence) -> str:
    assert found.seen is not None and found.seen.kubelet is not None and found.seen.unit is not None
    process = found.seen.kubelet
    return f"{found.seen.unit.name}, PID {process.pid}, {process.version or 'version unknown'}"


def _stable(found: Evidence, _: NodeDesired) -> Result:
    if found.restarting:
        return _fail(found.restarting)
    if not found.running:
        return _skip("no kubelet runs")
    last = found.moments[-1]
    assert found.seen is not None
    age = last.uptime - last.start_ticks / found.seen.ticks_per_second
    return _pass(f"the same process in {len(found.moments)} samples, {age:.0f} s old")


def _enabled(found: Evidence, _: NodeDesired) -> Result:
    state = found.moments[-1].properties.get("UnitFileState", "") if found.moments else ""
    answer = f"systemctl is-enabled says {state or 'nothing'}"
    if state in STARTS:
        return _pass(answer)
    way_out = f"enable it on the node: `systemctl enable {found.unit_name}`"
    return _fail(f"{found.unit_name} would not start at boot: {answer}; {way_out}")


def _readable(found: Evidence, _: NodeDesired) -> Result:
    if found.refused:
        return _fail(found.refused)
    own = (one for one in found.obstacles or () if one.stops is Stops.start and one.component not in COMPONENTS)
    # If no API server answers, its own check says so.
    if faults := [str(one) for one in own if one.cause is not Cause.api or not isinstance(found.node, str)]:
        return _fail("; ".join(faults))
    return _pass(f"{found.own_kubelet.config_path or 'flags only'}, {found.own_kubelet.style}")


def _new_pods(found: Evidence, _: NodeDesired) -> Result:
    if found.obstacles is None:
        return _unknown("the node gave no whole answer about its next start")
    pods = [str(one) for one in found.obstacles if one.stops in (Stops.pods, Stops.network)]
    return _verdict(pods, "its DNS file, its network plugin and the container runtime are ready for a new pod, as far as the node tells")


def _next_start(found: Evidence, _: NodeDesired) -> Result:
    if not found.components:
        return _skip("no control-plane component has a manifest on this node")
    if found.obstacles is None:
        return _unknown("the node gave no whole answer about its next start")
    own = [str(one) for one in found.obstacles if one.stops is Stops.start and one.component in COMPONENTS]
    unproven = [one.why for one in found.obstacles if one.cause is Cause.unproven and one.component in COMPONENTS]
    return _verdict(own, "; ".join(("the files and certificates that their flags name are there", *unproven)))


def _healthy(name: str, found: Evidence, _: NodeDesired) -> Result:
    if name != KUBELET and name not in found.components:
        return _skip(f"no {name} runs on this node as a static pod")
    url = found.own_kubelet.health_url if name == KUBELET else found.components[name].health_url
    health = found.health.get(name)
    if health is None:
        return _unknown(f"{url} was not asked")
    if health.status in ("401", "403"):
        return _unknown(f"{url} answers {health.status}: it serves, but refuses to report its health to daytwo")
    answer = f"{url} answers {health.status if health.status != '000' else 'nothing'}"
    return _pass(answer) if health.status == "200" else _fail(f"{answer}: {health.said[-400:]}".rstrip(": "))


def _binary(found: Evidence, _: NodeDesired) -> Result:
    return _pass(f"the kubelet runs {found.own_kubelet.process.exe}")


def _arguments(found: Evidence, _: NodeDesired) -> Result:
    if pending_arguments(found.own_kubelet) is None:
        return _unknown(ANY_FLAGS)
    return _pass(f"{len(found.own_kubelet.process.argv) - 1} arguments, the same as in its unit")


def _configuration(found: Evidence, _: NodeDesired) -> Result:
    if not (kubelet := found.own_kubelet).is_known:
        return _unknown(f"the fields of this kubelet are not known: {kubelet.process.version or 'it did not report its version'}")
    away = found.configuration if isinstance(found.configuration, str) else ""
    return _pass(f"no configuration file is newer than the process (/configz: {away})" if away else "/configz matches its files")


def _ready(found: Evidence, _: NodeDesired) -> Result:
    if isinstance(found.node, str):
        return _unknown(found.node)
    ready = condition(found.node, "Ready")
    said = f"Ready is {ready.get('status', 'not reported')} ({ready.get('reason', 'no reason')})"
    if is_ready(found.node):
        return _pass(said)
    return _fail(f"{said}: {ready.get('message', '')}".rstrip(": "))


# ---- what the inventory wants


def _gates(component: str, found: Evidence, desired: NodeDesired) -> Result:
    if component != KUBELET and component not in found.components:
        return _skip(f"no {component} runs on this node as a static pod")
    seen = found.own_kubelet if component == KUBELET else found.components[component]
    if not (wanted := desired.gates_of(seen)):
        return _skip("the inventory has no gate for it")
    effective = found.effective.get(component, "")
    metrics = None if isinstance(effective, str) else effective
    unmet = feature_gates.unmet(seen, wanted, metrics)
    problems = [str(one) for one in unmet if one.known]
    if unmet and not problems:
        off = ", ".join(one.gate for one in unmet)
        return _unknown(f"{off}: set nowhere, and its default is not known: {effective}")
    by = "in /metrics" if metrics is not None else f"on its command line and in its files ({effective})"
    return _verdict(problems, f"{flags.changed(wanted)} {by}")


def _settings(found: Evidence, desired: NodeDesired) -> Result:
    if desired.fields is None:
        return _skip("the inventory has no kubelet_config for it")
    if isinstance(found.configuration, str):
        return _unknown(found.configuration)
    try:
        unmet = kubelet_config.unmet(desired.fields, found.own_kubelet, found.configuration)
    except Refusal as refusal:
        return _fail(refusal.text)
    return _verdict(map(str, unmet), f"{', '.join(desired.fields.kubelet_config)} in /configz")


def _thresholds(found: Evidence, desired: NodeDesired) -> Result:
    if desired.eviction is None:
        return _skip("the inventory has no eviction thresholds for it")
    if isinstance(found.configuration, str):
        return _unknown(found.configuration)
    wanted = [name for name in desired.eviction.model_fields_set if name.startswith("eviction_")]
    unmet = eviction.unmet(desired.eviction, found.own_kubelet, found.configuration)
    return _verdict(map(str, unmet), f"{', '.join(sorted(wanted))} in /configz")


def _flags(found: Evidence, desired: NodeDesired) -> Result:
    """The flags and files of all components of a node: one check, since few nodes have any."""
    if desired.flags is None:
        return _skip("the inventory has no control_plane_flags for it")
    if not found.components:
        return _skip("no control-plane component runs on this node as a static pod")
    problems: list[str] = []
    shown: list[str] = []
    for name in COMPONENTS:
        wanted = control_plane_flags.wanted_of(found.host, name, desired.flags)
        if wanted and name not in found.components:
            problems.append(f"no {name} runs on this node as a static pod")
        elif wanted:
            problems += map(str, control_plane_flags.unmet(found.components[name], wanted))
            shown += [f"--{flag} of {name}" for flag in wanted]
    problems += map(str, control_plane_flags.unmet_files(found.own_kubelet.seen, found.components, desired.flags))
    return _verdict(problems, ", ".join([*shown, *desired.flags.control_plane_files]) + ": in the running arguments and on the node")


# ---- manifests and the control plane


def _no_manifests(found: Evidence) -> str:
    """Why there are none; "" if there is a directory for them."""
    folder = found.own_kubelet.manifests
    if folder is None:
        return "this kubelet has no directory for static pods"
    # On workers kubeadm configures the directory but does not create it; the kubelet waits for it.
    return "" if posixpath.normpath(folder) in found.own_kubelet.seen.directories else f"{folder} does not exist"


def _clean(found: Evidence, _: NodeDesired) -> Result:
    if none := _no_manifests(found):
        return _skip(none)
    return _pass(f"{sum(one.pod is not None for one in found.manifests)} manifests in {found.own_kubelet.manifests}")


def _pods(found: Evidence, _: NodeDesired) -> Result:
    if none := _no_manifests(found):
        return _skip(none)
    return _pass(f"each manifest defines a different pod: {len(by_pod(found.manifests))}")


def _control_plane(found: Evidence, _: NodeDesired) -> Result:
    if found.claim:
        return _fail(found.claim)
    if found.unclear and not any(one.rule is NodeRule.COMPONENT for one in found.wrong):
        return _skip("manifests-pods must pass first", applies=True)
    if not found.components and not found.unclear:
        return _skip("no control-plane component has a manifest on this node")
    return _pass(f"{', '.join(found.components)}, each from its manifest")


def _applied(found: Evidence, _: NodeDesired) -> Result:
    if not found.components:
        return _skip("no control-plane component has a manifest on this node")
    return _pass(f"{', '.join(found.components)}: the same arguments as in the manifest")


_READABLE = ("kubelet-running", "kubelet-stable", "kubelet-files")
_HEALTHY = (*_READABLE, "kubelet-healthy")
_APPLIED = (*_HEALTHY, "kubelet-unit", "kubelet-arguments")
_CURRENT = (*_HEALTHY, "kubelet-configuration")
_RUNNABLE = (*_READABLE, "node-ready")
_FOUND = (*_READABLE, "control-plane-runs")
_SERVING = (*_FOUND, "kube-apiserver-healthy")
_SERVED = {name: () if name == "kube-apiserver" else ("kube-apiserver-healthy",) for name in COMPONENTS}
_UNIT = "systemd has read the unit as it is on disk"
_GATES = "it runs with the gates that the inventory wants"

CHECKS: tuple[Check, ...] = (
    Check("kubelet-running", "a kubelet runs as a systemd service", _running),
    Check("kubelet-stable", "it stays the same process for half a minute", _stable),
    Check("kubelet-enabled", "its service starts at boot", _enabled),
    Check("kubelet-unit", _UNIT, _says(_UNIT), ("kubelet-running",)),
    Check("kubelet-files", "its unit and its configuration can be read, and it would start again", _readable, ("kubelet-running",)),
    Check("kubelet-healthy", "its /healthz answers 200 on the node", partial(_healthy, KUBELET), _READABLE),
    Check("kubelet-binary", "the running binary is the one on disk", _binary, _READABLE),
    Check("kubelet-arguments", "it runs with the arguments of its unit", _arguments, (*_READABLE, "kubelet-unit")),
    Check("kubelet-configuration", "it runs with the values of its files (/configz)", _configuration, _APPLIED),
    Check("kubelet-gates", _GATES, partial(_gates, KUBELET), _CURRENT),
    Check("kubelet-settings", "it runs with the fields that the inventory wants", _settings, _CURRENT),
    Check("eviction-thresholds", "it uses the thresholds that the inventory wants", _thresholds, _CURRENT),
    Check("node-ready", "the API reports the node as Ready", _ready, _HEALTHY),
    Check("new-pods", "a new pod would start on it: the DNS file, the network plugin, the container runtime", _new_pods, _RUNNABLE),
    Check("manifests-clean", "the manifests directory has only manifests", _clean, _READABLE),
    Check("manifests-pods", "each manifest can be read and defines a different pod", _pods, _READABLE),
    Check("control-plane-runs", "each control-plane component runs from its manifest", _control_plane, _READABLE),
    Check("control-plane-arguments", "each component runs with the arguments of its manifest", _applied, _FOUND),
    Check("control-plane-starts", "each component would start again: the files and certificates of its flags", _next_start, _READABLE),
    # Without the API server, the other components lose their leader's lease and end.
    *(
        Check(f"{name}-healthy", "it is healthy, asked on the node itself", partial(_healthy, name), (*_FOUND, *_SERVED[name]))
        for name in COMPONENTS
    ),
    *(Check(f"{name}-gates", _GATES, partial(_gates, name), (*_FOUND, f"{name}-healthy")) for name in COMPONENTS),
    Check("control-plane-flags", "its components run with the flags and files that the inventory wants", _flags, _SERVING),
    Check(
        "changes-settled", "no daytwo change is in flight or needs manual repair", _says("no change is in flight or needs manual repair")
    ),
)
#: What else fails a check: findings by these rules that are no notes.
RULES: Mapping[str, tuple[NodeRule, ...]] = {
    "kubelet-unit": (NodeRule.UNIT,),
    "kubelet-binary": (NodeRule.BINARY,),
    "kubelet-arguments": (NodeRule.ARGUMENT,),
    "kubelet-configuration": (NodeRule.SETTING, NodeRule.UNKNOWN, NodeRule.YOUNGER),
    "manifests-clean": (NodeRule.NO_MANIFEST, NodeRule.BACKUP, NodeRule.UNREAD),
    "manifests-pods": (NodeRule.TWIN, NodeRule.BROKEN),
    "control-plane-runs": (NodeRule.COMPONENT,),
    "control-plane-arguments": (NodeRule.MANIFEST,),
    "changes-settled": (NodeRule.IN_FLIGHT,),
}
CLUSTER_CHECKS = {
    "priority-classes": "the PriorityClasses match the inventory",
    "workload-classes": "the workloads have the class that the inventory sets",
    "disruption-budgets": "the PodDisruptionBudgets match the inventory",
    "autoscalers": "the autoscalers match the inventory",
    "asleep": "no machine that daytwo turned off is near its [due dates](power.md#due-dates)",
}
MEANINGS = {check.name: check.about for check in CHECKS} | CLUSTER_CHECKS


@dataclass(frozen=True)
class ClusterFound:
    """The objects of the cluster; a text says why they could not be read. `asleep`: the due dates of machines that are off."""

    classes: priority_classes.ObservedClasses | str = ""
    budgets: DisruptionObjects | str = ""
    scaled: Mapping[str, Sequence[Object]] | str = ""
    asleep: Sequence[Finding] | str = ""


def node(found: Evidence, desired: NodeDesired) -> list[Result]:
    """All checks of one node, in the order of the table. A node that could not be read has one result."""
    if found.why_not:
        return [Result(found.host, "looked-at", "unknown", found.why_not)]
    results: dict[str, Result] = {}
    for check in CHECKS:
        # A check is skipped if one that it needs has not passed. One that does not apply blocks only if it is a check of the kubelet.
        missing = [
            name
            for name in check.needs
            if (made := results[name]).outcome in ("fail", "unknown") or (made.outcome == "skip" and (made.applies or name in _HEALTHY))
        ]
        made = _skip(f"{missing[0]} must pass first", applies=True) if missing else check.result(found, desired)
        results[check.name] = replace(made, node=found.host, check=check.name)
    return list(results.values())


def cluster(desired: ClusterDesired, found: ClusterFound) -> list[Result]:
    """The checks of the cluster's objects."""
    classes, budgets, scaled = desired.classes, desired.budgets, desired.scaled
    verdicts = (
        _objects("priority_classes", (classes and classes.priority_classes) or (), found.classes, _unmet_class),
        _objects("workloads", (classes and classes.workloads) or (), found.classes, priority_classes.unmet_workload),
        _objects("disruption_budgets", (budgets and budgets.disruption_budgets) or (), found.budgets, disruption_budgets.unmet_budget),
        _objects("autoscalers", (scaled and scaled.every) or (), found.scaled, autoscalers.unmet_autoscaler),
        _asleep(found.asleep),
    )
    return [replace(made, node=CLUSTER, check=name) for name, made in zip(CLUSTER_CHECKS, verdicts, strict=True)]


def _asleep(found: Sequence[Finding] | str) -> Result:
    if not found or isinstance(found, str):
        return _skip("no machine is known that daytwo turned off")
    wrong = [one for one in found if one.severity is not Severity.note]
    listed = once_each(f"{one.place.node or one.place.name}: {one.why}; {one.way_out}" for one in wrong or found)
    made = _fail(listed) if wrong else _pass(listed)
    return replace(made, causes=tuple(dict.fromkeys(one.rule for one in wrong)))


def _objects(key: str, wanted: Iterable[Any], live: T | str, unmet: Callable[[Any, T], object | None]) -> Result:
    """The verdict about the objects of one data key; `unmet` compares one of them."""
    wanted = list(wanted)
    if not wanted:
        return _skip(f"the inventory declares no {key}")
    if isinstance(live, str):
        return _unknown(live)
    names = ", ".join(item.name if key == "priority_classes" else item.key for item in wanted)
    return _verdict((str(one) for item in wanted if (one := unmet(item, live)) is not None), names)


def _unmet_class(item: Any, live: priority_classes.ObservedClasses) -> object | None:
    return priority_classes.unmet_class(item, live.classes.get(item.name))
