"""Pure: what is wanted and what was seen on one node -> its changes, one a component; the question to its binaries, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from roles import control_plane, kubelet
from roles.api import GateMetric
from roles.change import Change, FileEdit
from roles.change.model import change_id
from roles.change.refusal import Refusal
from roles.control_plane import Component, ControlPlane
from roles.control_plane import plan as control_plane_plan
from roles.feature_gates import reach, told, verdict
from roles.feature_gates.catalogue import load
from roles.feature_gates.compliance import sourced, wanted_of
from roles.feature_gates.model import Desired
from roles.feature_gates.reach import LeftOut
from roles.feature_gates.verdict import Level, Subject
from roles.formats import flags
from roles.kubelet import Kubelet, ask, blame
from roles.kubelet import plan as kubelet_plan
from roles.observe import Observation, Process


@dataclass(frozen=True)
class Planned:
    """One component of one node: the gates wanted on it, those its sources set now, and the change (None: as wanted).

    `ask` shows the change to its binary, `ask_present` its files as they are. `subject`: what it is that is to take them; None where it
    did not tell its version.
    """

    host: str
    node_name: str
    component: str
    wanted: dict[str, bool | None]
    sourced: dict[str, bool]
    change: Change | None
    ask: str
    subject: Subject | None = None
    ask_present: str = ""

    @property
    def expected(self) -> dict[str, bool]:
        """What the process must run with. A gate that is to be absent has no value to be held to."""
        return {name: value for name, value in self.wanted.items() if value is not None}


@dataclass(frozen=True)
class NodePlan:
    """What one node is to go through."""

    host: str
    kubelet: Kubelet
    components: dict[str, Component]
    planned: tuple[Planned, ...]
    warnings: tuple[str, ...] = field(default=())
    left_out: tuple[LeftOut, ...] = field(default=())


def make(run_id: str, seen: Observation, desired: Desired) -> NodePlan:
    """The plan of one node. Raises Refusal."""
    found = kubelet.find(seen)
    control = control_plane.look(found)
    components = control.components
    planned: list[Planned] = []
    warnings: list[str] = []
    left_out: list[LeftOut] = []
    warnings += control.warnings
    for name in desired.components:
        if name != "kubelet":
            _check_known(control, name, desired)
            if name not in components:
                continue
        process = found.process if name == "kubelet" else components[name].process
        wanted = wanted_of(seen.host, name, process, desired)
        if others := sorted({*desired.gates} - {*wanted}):
            set_there = sourced(found if name == "kubelet" else components[name])
            left_out += [LeftOut(seen.host, name, gate, reach.readers(gate, process.minor) or (), set_there.get(gate)) for gate in others]
        if not wanted:
            continue
        if name == "kubelet":
            planned.append(_kubelet(run_id, found, wanted))
            warnings += kubelet_plan.warnings(found)
            if (change := planned[-1].change) is not None:
                warnings += kubelet_plan.new_copies(found, {edit.path: edit.after for edit in change.files})
        else:
            planned.append(_component(run_id, components[name], found, wanted))
            warnings += control_plane_plan.warnings(components[name])
    return NodePlan(seen.host, found, components, tuple(planned), tuple(warnings), tuple(left_out))


def _check_known(control: ControlPlane, name: str, desired: Desired) -> None:
    """A component that is to be changed must be known for sure. Raises Refusal."""
    refusal, component = control.refusals.get(name), control.components.get(name)
    if refusal is not None and (component is None or wanted_of(refusal.host, name, component.process, desired)):
        raise Refusal(refusal.host, refusal.message, f"{refusal.way_out}, or leave {name} out with components=")


def _subject(component: str, process: Process) -> Subject | None:
    if process.minor is None:
        return None
    return Subject(component, process.minor, verdict.emulated_minor(flags.flag_values(process.argv, "emulated-version")))


def _summary(wanted: dict[str, bool | None]) -> str:
    return ", ".join(f"{name}={'absent' if value is None else str(value).lower()}" for name, value in wanted.items())


def _kubelet(run_id: str, found: Kubelet, wanted: dict[str, bool | None]) -> Planned:
    host = found.seen.host
    changed = kubelet_plan.edits(found, wanted)
    argv = found.service.known_argv
    change = None
    if changed:
        service = kubelet_plan.new_service(found, changed)
        argv = service.known_argv
        change = Change(
            id=change_id(run_id, host, "kubelet"),
            node=host,
            component="kubelet",
            kind="kubelet",
            unit=found.unit_name,
            summary=_summary(wanted),
            files=kubelet_plan.file_edits(found, changed),
            health_url=found.health_url,
            old_argv=found.service.known_argv,
            new_argv=argv,
            daemon_reload=kubelet_plan.touches_units(found, changed),
        )
    asked = argv or tuple(_with_gates(found, changed))
    question = "\n".join([ask.ask_kubelet(found, asked, changed), ask.list_kubelet(found.process)])
    present = ask.ask_kubelet(found, found.service.known_argv or tuple(_with_gates(found, {})), {})
    subject = _subject("kubelet", found.process)
    return Planned(host, found.node_name, "kubelet", wanted, found.gates, change, question, subject, present)


def _with_gates(found: Kubelet, changed: dict[str, bytes | None]) -> list[str]:
    """The running command line with the gates the changed files give: for a unit with parts only the node can resolve."""
    gates = flags.effective_gates([word.text for word in kubelet_plan.new_service(found, changed).argv])
    rest = flags.without_gates(found.process.argv)
    return [*rest, f"--{flags.FEATURE_GATES}={flags.written(gates)}"] if gates else rest


def _component(run_id: str, component: Component, found: Kubelet, wanted: dict[str, bool | None]) -> Planned:
    after = control_plane_plan.edit(component, wanted)
    argv = control_plane_plan.argv(component, after)
    change = None
    if after != component.data:
        change = Change(
            id=change_id(run_id, component.host, component.name),
            node=component.host,
            component=component.name,
            kind="static-pod",
            unit=found.unit_name,
            summary=_summary(wanted),
            files=(FileEdit(component.file.path, component.data, after),),
            health_url=component.health_url,
            old_argv=control_plane_plan.argv(component, component.data),
            new_argv=argv,
            pod=component.log_name,
            container=component.container,
        )
    gates = flags.effective_gates(control_plane_plan.argv(component, after) or component.argv)
    question, subject = _ask_component(component, gates), _subject(component.name, component.process)
    present = _ask_component(component, component.gates)
    return Planned(component.host, component.node_name, component.name, wanted, component.gates, change, question, subject, present)


# ---- asking the binaries


def _ask_component(component: Component, gates: dict[str, bool]) -> str:
    words = [f"--{flags.FEATURE_GATES}={flags.written(gates)}"]
    words += [f"--emulated-version={value}" for value in flags.flag_values(component.process.argv, "emulated-version")]
    name, process, pod = component.name, component.process, component.log_name
    return f"{ask.ask_component(name, process, pod, words)}\n{ask.list_component(name, process, pod)}"


def ask_script(plan: NodePlan) -> str:
    """A script for `sh -s` that shows the candidates to the node's own binaries; "" where nothing would change.

    None of them starts anything: the kubelet is given a value it must refuse, the others only tell their version.
    """
    return ask.script([planned.ask for planned in plan.planned if planned.change is not None])


def ask_present_script(plan: NodePlan, answers: Mapping[str, str]) -> str:
    """The same for the files as they are, of those components whose binary refused the change (`answers`, as for `judge`)."""
    return ask.script([planned.ask_present for planned in plan.planned if planned.change is not None and answers.get(planned.component)])


UNKNOWN = "unrecognized feature gate"
# Rules that the binary is not asked about: daytwo's own, and the prefix, which daytwo writes as the manifest has it.
_ALWAYS = verdict.OWN | {"prefix"}


def judge(
    plan: NodePlan,
    answers: Mapping[str, str],
    desired: Desired,
    listed: Mapping[str, str] | None = None,
    metrics: Mapping[str, Mapping[str, GateMetric]] | None = None,
    present: Mapping[str, str] | None = None,
) -> tuple[NodePlan, list[Refusal]]:
    """The plan once its binaries have spoken, with what is to be said of it; and why not to go on.

    `answers`: what each component's binary has against the change ("": nothing); it has the last word: what it refuses is refused, and
    where only the catalogue would refuse, that is a warning. `listed`: what its --help lists. `metrics`: the gates that it runs with.
    `present`: what those that refuse the change have against the files as they are; with such files the change is not to blame, and
    there would be no way back. An unknown gate may be consented to.
    """
    warnings = list(plan.warnings)
    refusals: list[Refusal] = []
    for planned in plan.planned:
        if planned.change is None:
            continue
        said = answers.get(planned.component)
        if said is None:
            why = "the node's own binary could not be asked about this change: it gave no answer"
            refusals.append(Refusal(plan.host, f"{planned.component}: {why}"))
            continue
        subject = _live(plan, planned, (listed or {}).get(planned.component, ""), (metrics or {}).get(planned.component, {}))
        findings = _findings(planned, subject, desired) if subject else []
        refusals += [Refusal(plan.host, finding.message, finding.way_out) for finding in findings if _always(finding)]
        against = [finding for finding in findings if finding.level == Level.REFUSE and not _always(finding)]
        version = f"{planned.component} {_version(plan, planned.component)}"
        if not said:
            warnings += [f"{version} takes this, its word counts; the catalogue of gates says: {found.message}" for found in against]
        elif blame.refuses(already := (present or {}).get(planned.component, "")):
            refusals.append(_refused_already(plan, planned, version, already))
        elif UNKNOWN in said and desired.allow_unknown_gates:
            warnings.append(f"{planned.component}: its binary would refuse this ({said}); allow_unknown_gates writes it all the same")
        else:
            known = "; ".join(str(finding) for finding in against)
            way_out = known or "take it out of the data, or leave this component out with components="
            refusals.append(Refusal(plan.host, f"{version} refuses {_summary(planned.wanted)}: {said}", way_out))
        warnings += [str(finding) for finding in findings if finding.level < Level.REFUSE]
        warnings += _differences(planned, subject)
    return replace(plan, warnings=tuple(dict.fromkeys(warnings))), refusals


def _refused_already(plan: NodePlan, planned: Planned, version: str, said: str) -> Refusal:
    if planned.component == "kubelet":
        said, where = blame.plain(plan.kubelet, said), blame.places(plan.kubelet, said)
    else:
        where = control_plane_plan.places(plan.components[planned.component], said)
    return blame.refusal(plan.host, version, said, where)


def _always(finding: verdict.Finding) -> bool:
    return finding.level == Level.REFUSE and finding.rule in _ALWAYS


def _live(plan: NodePlan, planned: Planned, listed: str, metrics: Mapping[str, GateMetric]) -> Subject | None:
    """The component with what it tells of its gates; None where it did not tell its version."""
    subject = planned.subject
    if subject is None or not load().covers(subject.minor):
        return subject
    process = plan.kubelet.process if planned.component == "kubelet" else plan.components[planned.component].process
    running = {**planned.sourced, **flags.effective_gates(process.argv)}
    return replace(
        subject, live=told.overlay(subject.component, subject.minor, metrics, told.parse_help(listed), running, subject.emulated)
    )


def _findings(planned: Planned, subject: Subject, desired: Desired) -> list[verdict.Finding]:
    as_written = {name: value for name, value in desired.feature_gates.items() if name.removeprefix(flags.KUBE) in planned.wanted}
    return verdict.judge(subject, as_written, planned.sourced, desired.allow_hazards) + _unread(planned, subject)


def _unread(planned: Planned, subject: Subject) -> list[verdict.Finding]:
    """Gates that a component is given though it does not read them."""
    found = []
    for name, value in planned.wanted.items():
        readers = reach.readers(name, subject.minor)
        if value is not None and readers is not None and planned.component not in readers:
            by = f"{' and '.join(readers)} {'do' if len(readers) > 1 else 'does'}" if readers else "none of the four components does"
            message = f"{name} has no effect in {subject.told}, which does not read it; {by}"
            found.append(verdict.Finding(Level.ACCEPT, "other component", name, message))
    return found


def _differences(planned: Planned, subject: Subject | None) -> list[str]:
    if subject is None:
        return [f"{planned.component} did not tell its version: only its binary was asked, not the catalogue of gates"]
    if not load().covers(subject.minor):
        return [f"the catalogue of gates does not cover 1.{subject.minor}: only the {planned.component}'s binary was asked"]
    return told.differences(planned.component, subject.minor, subject.live, planned.wanted, subject.emulated)


def moves(planned: Planned, metrics: Mapping[str, GateMetric]) -> set[bool]:
    """The ways that gates go by this change: True for on, False for off; neither where a value stays in effect as it is."""
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


def _version(plan: NodePlan, component: str) -> str:
    process = plan.kubelet.process if component == "kubelet" else plan.components[component].process
    return process.version or "(version unknown)"
