"""Pure: what is wanted and what was seen on one node -> its changes, one a component; and the question to its binaries."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, replace

from roles import control_plane, kubelet
from roles.change import Change, FileEdit
from roles.change.model import change_id
from roles.change.refusal import Refusal
from roles.control_plane import Component
from roles.control_plane import plan as control_plane_plan
from roles.feature_gates.model import Desired
from roles.formats import flags
from roles.kubelet import Kubelet, ask
from roles.kubelet import plan as kubelet_plan
from roles.observe import Observation
from roles.patience import patient


@dataclass(frozen=True)
class Planned:
    """One component of one node: the gates wanted on it, those its sources set now, and the change (None: as wanted)."""

    host: str
    node_name: str
    component: str
    wanted: dict[str, bool | None]
    sourced: dict[str, bool]
    change: Change | None
    ask: str

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


def make(run_id: str, seen: Observation, desired: Desired) -> NodePlan:
    """The plan of one node. Raises Refusal."""
    found = kubelet.find(seen)
    components = control_plane.find(found)
    planned: list[Planned] = []
    warnings: list[str] = []
    for name in desired.components:
        if name == "kubelet":
            planned.append(_kubelet(run_id, found, desired))
            warnings += kubelet_plan.warnings(found)
        elif name in components:
            planned.append(_component(run_id, components[name], found, desired))
            warnings += control_plane_plan.warnings(components[name])
    return NodePlan(seen.host, found, components, tuple(planned), tuple(warnings))


def _summary(wanted: dict[str, bool | None]) -> str:
    return ", ".join(f"{name}={'absent' if value is None else str(value).lower()}" for name, value in wanted.items())


def _kubelet(run_id: str, found: Kubelet, desired: Desired) -> Planned:
    wanted = desired.feature_gates
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
    return Planned(host, found.node_name, "kubelet", wanted, found.gates, change, ask.ask_kubelet(found, asked, changed))


def _with_gates(found: Kubelet, changed: dict[str, bytes | None]) -> list[str]:
    """The running command line with the gates the changed files give: for a unit with parts only the node can resolve."""
    gates = flags.effective_gates([word.text for word in kubelet_plan.new_service(found, changed).argv])
    rest = flags.without_gates(found.process.argv)
    return [*rest, f"--{flags.FEATURE_GATES}={flags.written(gates)}"] if gates else rest


def _component(run_id: str, component: Component, found: Kubelet, desired: Desired) -> Planned:
    wanted = desired.feature_gates
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
            container=component.name,
        )
    gates = flags.effective_gates(control_plane_plan.argv(component, after) or component.argv)
    return Planned(component.host, component.node_name, component.name, wanted, component.gates, change, _ask_component(component, gates))


# ---- asking the binaries


def _ask_component(component: Component, gates: dict[str, bool]) -> str:
    words = [component.process.argv[0], f"--{flags.FEATURE_GATES}={flags.written(gates)}"]
    words += [f"--emulated-version={value}" for value in flags.flag_values(component.process.argv, "emulated-version")]
    command = shlex.join([*words, "--version"])
    # In the component's own mount namespace its binary is found as its manifest names it.
    return f"ask {component.name} timeout {patient(ask.SECONDS):.0f} nsenter --target {component.process.pid} --mount -- {command}"


def ask_script(plan: NodePlan) -> str:
    """A script for `sh -s` that shows the candidates to the node's own binaries; "" where nothing would change.

    None of them starts anything: the kubelet is given a value it must refuse, the others only tell their version.
    """
    return ask.script([planned.ask for planned in plan.planned if planned.change is not None])


UNKNOWN = "unrecognized feature gate"


def judge(plan: NodePlan, answers: dict[str, str], allow_unknown: bool) -> NodePlan:
    """The plan once its binaries have spoken. Raises Refusal with their words; an unknown gate may be consented to."""
    warnings = list(plan.warnings)
    for planned in plan.planned:
        if planned.change is None:
            continue
        said = answers.get(planned.component)
        if said is None:
            raise Refusal(plan.host, f"{planned.component}: the node's own binary could not be asked about this change")
        if not said:
            continue
        if UNKNOWN in said and allow_unknown:
            warnings.append(f"{planned.component}: its binary would refuse this ({said}); allow_unknown_gates writes it all the same")
            continue
        version = _version(plan, planned.component)
        raise Refusal(
            plan.host,
            f"{planned.component} {version} refuses {_summary(planned.wanted)}: {said}",
            "take the gate out of the data, or narrow the run with components=",
        )
    return replace(plan, warnings=tuple(warnings))


def _version(plan: NodePlan, component: str) -> str:
    process = plan.kubelet.process if component == "kubelet" else plan.components[component].process
    return process.version or "(version unknown)"
