"""Pure: desired gates and one node's observation -> its changes, one per component; the question to its binaries, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from roles.engine import kubelet
from roles.engine.api import GateMetric
from roles.engine.control_plane import Component, ControlPlane, control_plane_plan, sourced_gates
from roles.engine.editing import flags
from roles.engine.kubeadm_config import GATES, ConfigMapPath
from roles.engine.kubelet import Kubelet, ask, kubelet_plan
from roles.engine.node import Process
from roles.engine.node_changes import KUBELET, ComponentPlan, NodePlan, Verdicts, refused_anyway
from roles.engine.proof import SurveyedNode
from roles.engine.transaction import Change, Effective, Refusal
from roles.feature_gates import gate_readers, reported_gates, verdict
from roles.feature_gates.catalogue import load
from roles.feature_gates.compliance import wanted_of
from roles.feature_gates.gate_readers import LeftOut
from roles.feature_gates.model import DesiredGates
from roles.feature_gates.verdict import Level, Subject


@dataclass(frozen=True, kw_only=True)
class GatePlan(ComponentPlan):
    """The gates `wanted` on one component, and those that its sources set now.

    `subject`: the component and its version; None if its version is unknown. `metrics`: the gates that it runs with; None if they were
    not read.
    """

    wanted: dict[str, bool | None]
    sourced: dict[str, bool]
    subject: Subject | None = None
    metrics: Mapping[str, GateMetric] | None = None


@dataclass(frozen=True)
class NodeGates(NodePlan[GatePlan]):
    """The plan of one node, and the components that are left out."""

    left_out: tuple[LeftOut, ...] = ()


def plan_gates(run_id: str, node: SurveyedNode, desired: DesiredGates) -> NodeGates:
    """The plan of one node. Raises Refusal."""
    seen, found, control, components = node.seen, node.kubelet, node.control, node.components
    planned: list[GatePlan] = []
    warnings: list[str] = []
    left_out: list[LeftOut] = []
    outlook = ""
    warnings += control.warnings
    for name in desired.components:
        if name != KUBELET:
            _check_known(control, name, desired)
            if name not in components:
                continue
        source = found if name == KUBELET else components[name]
        process = source.process
        wanted = wanted_of(seen.host, name, process, desired)
        if others := sorted({*desired.gates} - {*wanted}):
            set_now = sourced_gates(source)
            left_out += [
                LeftOut(seen.host, name, gate, gate_readers.readers(gate, process.minor) or (), set_now.get(gate)) for gate in others
            ]
        if not wanted:
            continue
        if name == KUBELET:
            edit = kubelet_plan.KubeletEdit(found, kubelet_plan.edits(found, wanted))
            change = edit.change(run_id, flags.changed(wanted)) if edit.files else None
            question = "\n".join([ask.ask_kubelet(found, edit.argv, edit.files), ask.list_kubelet(found.process)])
            present = ask.ask_kubelet(found, kubelet_plan.KubeletEdit(found, {}).argv, {})
            warnings += [*kubelet_plan.warnings(found), *edit.copies()]
            outlook = f"    {edit.why_there}" if edit.why_there else ""
        else:
            change, question, present = _component(run_id, components[name], found, wanted)
            warnings += control_plane_plan.warnings(components[name])
        # A gate that should be absent has no value to check.
        expected = {gate: value for gate, value in wanted.items() if value is not None}
        lasting: dict[ConfigMapPath, bool | None] = {(GATES, gate): value for gate, value in wanted.items()}
        one = GatePlan(
            name,
            change,
            question=question,
            question_present=present,
            gates=expected,
            lasting=lasting,
            wanted=wanted,
            sourced=source.gates,
            subject=_subject(name, process),
        )
        planned.append(one)
    return NodeGates(seen.host, found, components, tuple(planned), tuple(warnings), outlook, left_out=tuple(left_out))


def _check_known(control: ControlPlane, name: str, desired: DesiredGates) -> None:
    """Raises Refusal if the component should change and it is unclear which manifest belongs to it."""
    refusal, component = control.refusals.get(name), control.components.get(name)
    if refusal is not None and (component is None or wanted_of(refusal.host, name, component.process, desired)):
        raise Refusal(refusal.host, refusal.message, f"{refusal.way_out}, or exclude {name} with components=")


def _subject(component: str, process: Process) -> Subject | None:
    if process.minor is None:
        return None
    return Subject(component, process.minor, verdict.emulated_minor(flags.flag_values(process.argv, "emulated-version")))


# The change, the question that shows it to the binary, and the question about the present files.
ChangeAndQuestions = tuple[Change | None, str, str]


def _component(run_id: str, component: Component, found: Kubelet, wanted: dict[str, bool | None]) -> ChangeAndQuestions:
    after = control_plane_plan.edit(component, wanted)
    changes = after != component.data
    change = control_plane_plan.change(component, after, found.unit_name, run_id, flags.changed(wanted)) if changes else None
    gates = flags.effective_gates(control_plane_plan.argv(component, after) or component.argv)
    return change, _ask_component(component, gates), _ask_component(component, component.gates)


# ---- asking the binaries


def _ask_component(component: Component, gates: dict[str, bool]) -> str:
    words = [f"--{flags.FEATURE_GATES}={flags.written(gates)}"]
    words += [f"--emulated-version={value}" for value in flags.flag_values(component.process.argv, "emulated-version")]
    where = (component.name, component.process, component.log_name)
    return "\n".join([ask.ask_with_files(*where, [*words, "--version"]), ask.list_component(*where)])


UNKNOWN = "unrecognized feature gate"
_LOCKED = "cannot set feature gate"
# Rules that the binary does not judge: daytwo's own, and the prefix, which daytwo writes as the manifest has it.
_ALWAYS = verdict.OWN | {"prefix"}


def judge_gates(plan: NodeGates, verdicts: Verdicts, desired: DesiredGates, metrics: Mapping[str, Mapping[str, GateMetric]]) -> NodeGates:
    """The plan with the warnings and refusals that follow from the verdicts of its binaries and from the gates of its processes.

    The binary decides: what it refuses is refused; if only the catalogue refuses, that is a warning. allow_unknown_gates consents to an
    unknown gate. `metrics`: the gates that each component runs with; a component whose gates could not be read is missing.
    """
    warnings = list(plan.warnings)
    refusals: list[object] = list(plan.refusals)
    for planned in plan.changing:
        anyway = refused_anyway(plan, planned.component, verdicts)
        objection = verdicts.against.get(planned.component)
        if objection is None:
            refusals.append(anyway)
            continue
        subject = _live(plan, planned, verdicts.listed.get(planned.component, ""), metrics.get(planned.component, {}))
        findings = _findings(planned, subject, desired) if subject else []
        refusals += [Refusal(plan.host, finding.message, finding.way_out) for finding in findings if _always(finding)]
        against = [finding for finding in findings if finding.level == Level.REFUSE and not _always(finding)]
        version = plan.version(planned.component)
        if not objection:
            warnings += [
                f"{version} accepts this, and its binary decides; the catalogue of gates says: {found.message}" for found in against
            ]
        elif anyway is not None:
            refusals.append(anyway)
        elif UNKNOWN in objection and desired.allow_unknown_gates:
            warnings.append(f"{planned.component}: its binary would refuse this ({objection}); allow_unknown_gates writes it anyway")
        else:
            known = "; ".join(str(finding) for finding in against)
            way_out = known or "remove it from the data, or exclude this component with components="
            message = f"{version} refuses {flags.changed(planned.wanted)}: {objection}"
            mistake = against[0].mistake if len(against) == 1 and any(words in objection for words in (UNKNOWN, _LOCKED)) else ""
            refusals.append(Refusal(plan.host, message, way_out, mistake=mistake, by=planned.component))
        warnings += [str(finding) for finding in findings if finding.level < Level.REFUSE]
        warnings += _differences(planned, subject)
    known_now = tuple(_with_static_pods(_with_metrics(planned, metrics.get(planned.component))) for planned in plan.planned)
    if any(planned.recreates_static_pods for planned in known_now):
        warnings.append(kubelet.static_pods.warning(plan.components))
    return replace(plan, planned=known_now, warnings=tuple(dict.fromkeys(warnings)), refusals=tuple(refusals))


def _with_metrics(planned: GatePlan, metrics: Mapping[str, GateMetric] | None) -> GatePlan:
    # The values of the present files: undoing this change restores these, not the values that the old process ran with.
    before = {**{name: metric.enabled for name, metric in (metrics or {}).items()}, **planned.sourced}
    effective = Effective({name: {"before": before.get(name), "after": value} for name, value in planned.wanted.items()})
    return replace(planned, metrics=metrics, effective=effective)


def _always(finding: verdict.GateFinding) -> bool:
    return finding.level == Level.REFUSE and finding.rule in _ALWAYS


def _live(plan: NodeGates, planned: GatePlan, listed: str, metrics: Mapping[str, GateMetric]) -> Subject | None:
    """The component with the gates that it reports itself; None if its version is unknown."""
    subject = planned.subject
    if subject is None or not load().covers(subject.minor):
        return subject
    running = {**planned.sourced, **flags.effective_gates(plan.process(planned.component).argv)}
    return replace(
        subject,
        live=reported_gates.overlay(
            subject.component, subject.minor, metrics, reported_gates.parse_help(listed), running, subject.emulated
        ),
    )


def _findings(planned: GatePlan, subject: Subject, desired: DesiredGates) -> list[verdict.GateFinding]:
    as_written = {name: value for name, value in desired.feature_gates.items() if name.removeprefix(flags.KUBE) in planned.wanted}
    return verdict.judge_gate(subject, as_written, planned.sourced, desired.allow_hazards) + _unread(planned, subject)


def _unread(planned: GatePlan, subject: Subject) -> list[verdict.GateFinding]:
    """Gates that are set on a component although it does not read them."""
    found = []
    for name, value in planned.wanted.items():
        readers = gate_readers.readers(name, subject.minor)
        if value is not None and readers is not None and planned.component not in readers:
            by = f"{' and '.join(readers)} {'do' if len(readers) > 1 else 'does'}" if readers else "none of the four components does"
            message = f"{name} has no effect in {subject.label}, which does not read it; {by}"
            found.append(verdict.GateFinding(Level.ACCEPT, "other component", name, message))
    return found


def _differences(planned: GatePlan, subject: Subject | None) -> list[str]:
    if subject is None:
        return [f"{planned.component}: its version is unknown: only its binary judged this, not the catalogue of gates"]
    if not load().covers(subject.minor):
        return [f"{planned.component}: the catalogue of gates does not cover 1.{subject.minor}: only its binary judged this"]
    return reported_gates.differences(planned.component, subject.minor, subject.live, planned.wanted, subject.emulated)


def _with_static_pods(planned: GatePlan) -> GatePlan:
    minor = planned.subject.minor if planned.component == KUBELET and planned.change is not None and planned.subject else None
    return replace(planned, recreates_static_pods=kubelet.static_pods.recreated_by(minor, planned.effective.gates))


def moves(planned: GatePlan, metrics: Mapping[str, GateMetric]) -> set[bool]:
    """The directions in which this change moves gates: True for on, False for off; a value that stays in effect does not count."""
    found = set()
    for name, value in planned.wanted.items():
        subject = planned.subject
        stage = subject.stage(name, load()) if subject else None
        default = stage.default if stage else None
        before = metrics[name].enabled if name in metrics else planned.sourced.get(name, default)
        after = default if value is None else value
        if after is not None and before is not after:
            found.add(after)
    return found
