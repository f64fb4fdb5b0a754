"""Feature gates on kubelets and control-plane components: planned on all nodes, changed one by one, proven or reverted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from roles.engine import bridge, folding, kubeadm_config
from roles.engine.api import ApiFailure, GateMetric
from roles.engine.bridge import Fleet
from roles.engine.harmless import one_line
from roles.engine.inputs import Changes, Declared
from roles.engine.node_changes import (
    KUBELET,
    Basis,
    Capability,
    ChangeDrains,
    ComponentPlan,
    NodeStep,
    Steps,
    Verdicts,
    change_nodes,
    ended,
    from_data,
)
from roles.engine.proof import Cluster, SurveyedNode
from roles.engine.runs import Turns, deploying
from roles.engine.screen import wrapped
from roles.engine.transaction import Refusal
from roles.eviction import eviction_impact
from roles.feature_gates import model
from roles.feature_gates.catalogue import SPECIAL, Catalogue, Gate, GateStage, load
from roles.feature_gates.compliance import unmet, wanted_of
from roles.feature_gates.gate_readers import readers
from roles.feature_gates.model import COMPONENTS, DesiredGates, read_gates
from roles.feature_gates.plan import GatePlan, NodeGates, judge_gates, moves, plan_gates
from roles.feature_gates.reported_gates import overlay
from roles.feature_gates.verdict import GateFinding, Level, Subject, emulated_minor, judge_gate
from roles.kubelet_config import restart_warnings

_NOTHING = "no host has feature_gates in its data; set it in group_data or with --data feature_gates=NAME=true"


def _wanted(fleet: Fleet) -> FeatureGates:
    return FeatureGates(from_data(fleet, lambda remote: read_gates(remote.name, remote.data), _NOTHING))


@deploying("Feature gates", _wanted)
def feature_gates(fleet: Fleet, gates: FeatureGates) -> Turns:
    """Set the gates from the inventory's data (or --data feature_gates=A=true,B=absent).

    Data keys: feature_gates, components, only, all_components, allow_unknown_gates, allow_hazards, and those of
    roles/engine/runs/options.py. Raises DeployError before it writes to any node, if the plan is refused.
    """
    return change_nodes(fleet, gates)


class FeatureGates(Capability[DesiredGates, NodeGates]):
    """Feature gates, for the engine that changes nodes (roles/engine/node_changes/capability.py)."""

    columns = ("node", "component", "gate", "before", "after")
    any_skew = True

    def plan(self, basis: Basis, node: SurveyedNode, desired: DesiredGates) -> NodeGates:
        return plan_gates(basis.run_id, node, desired)

    def judge(self, basis: Basis, plan: NodeGates, verdicts: Verdicts) -> NodeGates:
        """Judge by the binaries' verdicts, and by the gates that the components run with."""
        cluster = basis.found.reading
        metrics: dict[str, Mapping[str, GateMetric]] = {}
        unread: list[str] = []
        for planned in plan.planned:
            try:
                metrics[planned.component] = cluster.effective(plan.host, planned.component, plan.kubelet.node_name)
            except ApiFailure as error:
                unread.append(
                    f"{plan.host}: {planned.component}: its effective gates cannot be read, so no change could be proven: {error}; "
                    "fix that, or continue without proof with --data allow_unproven=true"
                )
        judged = judge_gates(plan, verdicts, self.desired.by_host[plan.host], metrics)
        refusals = [*judged.refusals, *([] if basis.options.allow_unproven else unread), *_not_restarted(judged)]
        try:
            return replace(_with_restart_warnings(cluster, judged), refusals=tuple(refusals))
        except Refusal as refusal:
            return replace(judged, refusals=(*refusals, refusal))

    def against_plans(self, basis: Basis, plans: Sequence[NodeGates]) -> Iterable[object]:
        """Components that no chosen node runs, and gates that no component of the run reads."""
        named = {name for desired in self.desired.by_host.values() for name in desired.components if desired.components != COMPONENTS}
        running = {planned.component for plan in plans for planned in plan.planned}
        return [*(f"components={name}: no chosen node runs it" for name in sorted(named - running)), *_without_reader(plans)]

    def order(self, basis: Basis, plans: Sequence[NodeGates]) -> tuple[list[ComponentPlan], bool]:
        """API servers first and kubelets last to turn gates on, the reverse to turn them off; nodes keep the inventory's order."""
        changing = [planned for plan in plans for planned in plan.changing]
        directions = [moves(planned, planned.metrics or {}) for planned in changing]
        bridge.stop(_both_directions(changing, directions))
        on = True in set().union(*directions) if any(directions) else any(desired.turns_on for desired in self.desired.by_host.values())
        order = list(COMPONENTS) if on else list(reversed(COMPONENTS))
        return sorted(changing, key=lambda planned: order.index(planned.component)), on

    def writes(self, basis: Basis, plans: Sequence[NodeGates]) -> kubeadm_config.ClusterWrites:
        """Also notes gates that this run does not change and that differ in kubeadm's ConfigMaps."""
        cluster_writes = super().writes(basis, plans)
        cluster_writes.notes += [one_line(f"DIFFERS {difference}") for difference in _other_differences(cluster_writes.lasting, plans)]
        return cluster_writes

    def notes(self, basis: Basis, plans: Sequence[NodeGates]) -> list[str]:
        return _left_out(plans)

    def rows(self, basis: Basis, plans: Sequence[NodeGates], steps: Steps) -> list[list[str]]:
        """One row for each gate of each component."""
        rows = []
        for plan in plans:
            for planned in plan.planned:
                rows += _rows(basis.found.cluster, plan, planned, steps.get((plan.host, planned.component)))
            # Of many hosts the plan has them in one line.
            left_out = () if folding.folds() else plan.left_out
            rows += [[item.host, item.component, item.gate, "-", "-", "left out", "-", item.why] for item in left_out]
        return rows


def _not_restarted(plan: NodeGates) -> list[str]:
    """Components whose files have the desired gates, but whose process does not."""
    unmet_gates = {
        planned.component: unmet(plan.source(planned.component), planned.wanted, planned.metrics)
        for planned in plan.planned
        if planned.change is None and planned.metrics is not None
    }
    return [
        f"{plan.host}: the files of {component} have the desired gates, but its process does not: {'; '.join(map(str, wrong))}. "
        "It was not restarted since then: restart it, then run this again"
        for component, wrong in unmet_gates.items()
        if wrong
    ]


def _with_restart_warnings(cluster: Cluster, plan: NodeGates) -> NodeGates:
    """The plan with warnings of what else a restart of its kubelet applies. Raises Refusal."""
    named = [("featureGates", name) for planned in plan.changing if planned.component == KUBELET for name in planned.wanted]
    return replace(plan, warnings=(*plan.warnings, *restart_warnings(cluster, plan, eviction_impact, named)))


def _without_reader(plans: Sequence[NodeGates]) -> list[str]:
    """Gates that no component of the run reads, if the run has nothing else to do."""
    if any(plan.planned for plan in plans):
        return []
    left_out = {item.gate: item for plan in plans for item in plan.left_out}
    read_by = {gate: f" (read by {', '.join(item.readers)})" if item.readers else "" for gate, item in left_out.items()}
    return [
        f"{gate}: no component of the chosen nodes reads it{readers}; choose other nodes, name the components with components=, or set it"
        " everywhere with --data all_components=true"
        for gate, readers in read_by.items()
    ]


def _both_directions(changing: Sequence[GatePlan], directions: list[set[bool]]) -> list[str]:
    """Refuse a run that needs both orders: it turns gates on and off, on more than one kind of component."""
    if len(set().union(*directions)) < 2 or len({planned.component for planned in changing}) < 2:
        return []
    return [
        "this run would turn some gates on and others off. On goes from the API servers down, off from the kubelets up."
        " Use two runs: first with the gates of one kind in --data feature_gates=..., then with the others"
    ]


def _left_out(plans: Sequence[NodeGates]) -> list[str]:
    """Components that are not changed for a gate, and why; nodes with the same text share a line, with many hosts components do, too."""
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for item in (item for plan in plans for item in plan.left_out):
        still = "" if item.set_to is None else f"; its sources set it to {str(item.set_to).lower()} anyway, and stay as they are"
        alone = "" if folding.folds() else item.component
        found.setdefault((f"not changed for {item.gate}: {item.why}{still}", alone), {}).setdefault(item.component, []).append(item.host)
    if not found:
        return []
    lines = []
    for (text, _), components in found.items():
        hosts = list(dict.fromkeys(host for of in components.values() for host in of))
        lines.append(f"LEFT OUT {folding.listed(hosts)}: {', '.join(components)} {'is' if len(components) == 1 else 'are'} {text}")
    way_out = "to restart these too: --data all_components=true, or name them with components="
    if folding.folds() and len(lines) == 1:
        return [f"{lines[0]}; {way_out}"]
    return ["\n".join(map(wrapped, [*lines, f"T{way_out[1:]}."]))]


def _other_differences(lasting: kubeadm_config.StoredSettings, plans: Sequence[NodeGates]) -> list[kubeadm_config.Difference]:
    """Gates that this run does not change and that differ between kubeadm's ConfigMaps and these nodes' files and processes."""
    found, _ = kubeadm_config.written_by_kubeadm(
        (plan.kubelet, plan.components, {planned.component: planned.metrics or {} for planned in plan.planned}) for plan in plans
    )
    wanted = {(plan.host, planned.component): planned.wanted for plan in plans for planned in plan.planned}
    return [
        difference
        for difference in kubeadm_config.gate_differences(lasting, found)
        if difference.setting not in wanted.get((difference.host, difference.component), (difference.setting,))
    ]


def _rows(cluster: Cluster, plan: NodeGates, planned: GatePlan, step: NodeStep | None) -> list[list[str]]:
    before = planned.metrics or {}
    after = before
    if step is not None and step.outcome == "confirmed":
        after = cluster.last_effective(plan.host, planned.component)  # as read for the proof
    elif step is not None and step.outcome != "not started":
        try:
            after = cluster.effective(plan.host, planned.component, plan.kubelet.node_name)
        except ApiFailure:
            after = {}
    proof = "gates in /metrics" if planned.metrics is not None else "NOT PROVEN: /metrics could not be read"
    return [
        [
            plan.host,
            planned.component,
            gate,
            _value(before, gate, planned.sourced),
            _value(after, gate, _after_sources(planned, step)),
            *ended(step, proof),
        ]
        for gate in planned.wanted
    ]


def _after_sources(planned: GatePlan, step: NodeStep | None) -> dict[str, bool]:
    if step is None or step.outcome != "confirmed":
        return planned.sourced
    kept = {name: value for name, value in planned.sourced.items() if name not in planned.wanted}
    return kept | {name: value for name, value in planned.wanted.items() if value is not None}


def _value(effective: Mapping[str, GateMetric], gate: str, sourced: dict[str, bool]) -> str:
    """The effective value, and whether a source sets it or it is the default; the source's value if the effective one is unknown."""
    found = effective.get(gate)
    if found is None:
        return f"{str(sourced[gate]).lower()} (set)" if gate in sourced else "unknown"
    return f"{str(found.enabled).lower()} ({'set' if gate in sourced else 'default'})"


DATA_KEYS = (Declared(DesiredGates, ("feature_gates",), changes=Changes.NODES), Declared(ChangeDrains, ("feature_gates",)))

__all__ = [
    "DATA_KEYS",
    "SPECIAL",
    "Catalogue",
    "DesiredGates",
    "Gate",
    "GateFinding",
    "GateStage",
    "Level",
    "Subject",
    "emulated_minor",
    "feature_gates",
    "judge_gate",
    "load",
    "model",
    "overlay",
    "read_gates",
    "readers",
    "unmet",
    "wanted_of",
]
