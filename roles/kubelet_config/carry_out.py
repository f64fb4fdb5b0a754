"""The desired fields of KubeletConfigurations, for the engine that changes nodes: planned, predicted, proven by /configz."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from roles.engine import kubeadm_config, pairs
from roles.engine.api import ApiError, ApiFailure, NoApi, NotFound
from roles.engine.api.nodes import NodeUsage
from roles.engine.control_plane import ControlPlane
from roles.engine.kube import condition, is_ready
from roles.engine.kubelet import Kubelet, KubeletState, ask, blame, kubelet_plan, settings
from roles.engine.kubelet.drained import DRIVER, Needed
from roles.engine.kubelet.pending import Pending, pending_settings, with_fields, with_own_reservations
from roles.engine.kubelet.values import in_effect, lookup, without_replaced
from roles.engine.node_changes import (
    KUBELET,
    Basis,
    Capability,
    ComponentPlan,
    NodePlan,
    Steps,
    Verdicts,
    ended,
    own_warnings,
    refused_anyway,
    would_not_start,
)
from roles.engine.proof import Cluster, Proof, SurveyedNode
from roles.engine.proof.effective import unmet_fields
from roles.engine.transaction import Change, Effective, Refusal
from roles.kubelet_config import cgroups, drained, restart
from roles.kubelet_config.impact import Impact, check_node


@dataclass(frozen=True)
class Settled:
    """The desired state of one node: the `fields` to write (editing.ABSENT: removed), and what /configz must show afterwards,
    `expected` (None: not set). Both by field, dots between its parts. `named`: the settings that the data itself names, by their path in
    the configuration (None: absent)."""

    fields: Mapping[str, Any]
    expected: Mapping[str, Any]
    summary: str
    notes: tuple[str, ...] = ()
    named: Mapping[kubeadm_config.ConfigMapPath, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class FieldsRequest:
    """The desired state of one host. `settle` may raise Refusal; `impact` predicts the effect of a configuration; `write` returns the
    fields to write to the configuration in kubeadm's ConfigMap, for some of the named settings."""

    data: Mapping[str, Any]
    settle: Callable[[KubeletState], Settled]
    impact: Callable[[KubeletState, Mapping[str, Any]], Impact]
    chosen_nodes: tuple[str, ...] | None = None
    move_flags: bool = False
    allow_evictions: bool = False
    write: Callable[[Mapping[str, Any], Mapping[kubeadm_config.ConfigMapPath, Any]], Mapping[kubeadm_config.ConfigMapPath, Any]] = (
        kubeadm_config.as_given
    )


@dataclass(frozen=True, kw_only=True)
class FieldsPlan(ComponentPlan):
    """The plan of one kubelet. `pending`: what else the restart applies; `needed`: what it needs besides a restart."""

    state: KubeletState
    settled: Settled
    pending: tuple[Pending, ...] = ()
    needed: Needed | None = None


class KubeletFields(Capability[FieldsRequest, NodePlan[FieldsPlan]]):
    """Fields of the kubelets' configuration, from the data of any deploy."""

    columns: ClassVar[tuple[str, ...]] = ("node", "setting", "before", "after")

    def plan(self, basis: Basis, node: SurveyedNode, desired: FieldsRequest) -> NodePlan[FieldsPlan]:
        try:
            state = state_of(basis.found.reading, node.seen.host, node.kubelet, node=node)
            if DRIVER in (desired.data.get("kubelet_config") or ()):
                state = cgroups.with_runtime(node.remote, state)
            return plan_node(basis.run_id, state, node.control, desired, may_drain=basis.drains.allowed)
        except ApiFailure as error:
            raise unreadable_node(node.seen.host, node.kubelet.node_name, error) from None

    def judge(self, basis: Basis, plan: NodePlan[FieldsPlan], verdicts: Verdicts) -> NodePlan[FieldsPlan]:
        """Adds the refusals of the node's own kubelet."""
        refusals: list[object] = []
        for item in plan.changing:
            objection = verdicts.against.get(KUBELET)
            if (anyway := refused_anyway(plan, KUBELET, verdicts)) is not None:
                refusals.append(anyway)
            elif objection:
                why = f"{plan.version(KUBELET)} refuses {item.settled.summary}: {blame.plain(plan.kubelet, objection)}"
                refusals.append(Refusal(plan.host, why, "correct the value of that field"))
        return replace(plan, refusals=tuple(refusals))

    def allows_evictions(self, host: str) -> bool:
        return self.desired.by_host[host].allow_evictions

    def recheck(self, basis: Basis, plan: NodePlan[FieldsPlan], planned: ComponentPlan) -> str | None:
        """Predicts again, since hours may pass between the plan and the change."""
        (item,), desired = plan.planned, self.desired.by_host[plan.host]
        if (problem := cgroups.recheck(basis.found, plan.host, planned)) is not None:
            return problem
        try:
            now = state_of(basis.found.cluster, plan.host, plan.kubelet)
            pending = restart.pending(now)
            if others := [str(one) for one in pending if one not in item.pending]:
                return f"after the plan was made, the kubelet was restarted with other settings: {'; '.join(others)}. Run this again"
            outlook = predict_restart(now, item.settled.expected, desired.impact)
            if item.needed is not None:
                drained.check(now, item.needed)
        except Refusal as refusal:
            return str(refusal)
        except ApiFailure as error:
            return None if basis.options.allow_unproven else str(unreadable_node(plan.host, plan.kubelet.node_name, error))
        if outlook.evicts and not desired.allow_evictions:
            return f"now this would evict: {'; '.join(outlook.evicts)}. Allow it with --data allow_evictions=true, or make room first"
        return None

    def also_prove(self, basis: Basis, plan: NodePlan[FieldsPlan], planned: ComponentPlan) -> Proof | None:
        return cgroups.proof(basis.found, plan.host, planned)

    def rows(self, basis: Basis, plans: Sequence[NodePlan[FieldsPlan]], steps: Steps) -> list[list[str]]:
        """One row for each field that changes, or for each entry of a map."""
        rows = []
        for plan in plans:
            (item,) = plan.planned
            step = steps.get((plan.host, KUBELET))
            before = item.state.configuration
            now: dict[str, Any] | None = before
            if step is not None and step.outcome != "not started":
                try:
                    now = basis.found.cluster.configuration(plan.kubelet.node_name)
                except ApiFailure:
                    now = None
            for name, wanted in item.settled.expected.items():
                old, new = lookup(before, name), lookup(now, name) if now is not None else "unknown"
                old, new = (without_replaced(name, one, now or before) for one in (old, new))
                if step is None or not in_effect(wanted, old):
                    rows += [[plan.host, *row, *ended(step, "/configz")] for row in _cells(name, old, new)]
        return rows


def state_of(
    cluster: Cluster, host: str, found: Kubelet, configuration: dict[str, Any] | None = None, *, node: SurveyedNode | None = None
) -> KubeletState:
    """The present state of a node, read from the API (also its `configuration`, if None). `node`: it is asked why its kubelet gives no
    usage, before that is waited for: without its runtime it gives none. Raises ApiFailure."""
    usage = _usage(cluster, found.node_name, node)
    if configuration is None:
        configuration = cluster.configuration(found.node_name)
    return KubeletState(host, found, with_own_reservations(found, configuration), usage.node, usage.pods, usage.summary)


def _usage(cluster: Cluster, node_name: str, node: SurveyedNode | None) -> NodeUsage:
    try:
        return cluster.usage(node_name, 0) if node is not None else cluster.usage(node_name)
    except ApiError as error:
        if node is None or not error.passing or would_not_start(node):
            raise
    return cluster.usage(node_name)


def unreadable_node(host: str, node_name: str, error: ApiFailure) -> Refusal:
    """Why daytwo cannot plan for a node, in an operator's terms."""
    what = "its kubelet's configuration and pods cannot be read"
    if isinstance(error, NotFound):
        return Refusal(
            host,
            f"{what}: the API has no node {node_name} (the kubelet's --hostname-override, or its host name) ({error.rule})",
            "compare with `kubectl get nodes`; a node must be registered under this name before it is changed",
        )
    if isinstance(error, NoApi):
        return Refusal(host, f"{what}: {error}", "without the API no change can be proven: fix that, or reach the API from another node")
    return Refusal(host, f"{what}: {error}")


def _not_ready(state: KubeletState) -> list[str]:
    one = condition(state.node, "Ready")
    if not one or is_ready(state.node):
        return []
    return [f"the node is not Ready ({one.get('reason') or 'no reason given'}: {one.get('message') or 'no message'}); check that first"]


def plan_node(
    run_id: str, state: KubeletState, control: ControlPlane, desired: FieldsRequest, *, may_drain: bool = False
) -> NodePlan[FieldsPlan]:
    """The plan of one node in its present state; `may_drain`: the run drains the node if its change needs that. Raises Refusal."""
    found = state.kubelet
    check_node(state)
    pending = tuple(pending_settings(found, state.configuration))
    # The desired fields are compared with the result of the files, or the change would revert somebody's edit of them.
    restarted_state = restart.with_pending(state, pending)
    settled = desired.settle(restarted_state)
    edits = settings.edits(found, settled.fields, move_flags=desired.move_flags)
    warnings = [*kubelet_plan.warnings(found), *control.warnings, *_not_ready(state), *settled.notes, *edits.notes]
    change = needed = None
    checkpoints: dict[str, str] = {}
    if edits.files:
        restart.check(state, pending)
        outlook = _predicted(state, restarted_state, desired, settled, pending)
        edit = kubelet_plan.KubeletEdit(found, edits.files)
        warnings += edit.copies()
        warnings += restart.warnings(pending, settled.named or [tuple(name.split(".")) for name in settled.fields])
        if outlook.evicts and not desired.allow_evictions:
            why = "this would evict: " + "; ".join(outlook.evicts)
            raise Refusal(state.host, why, "allow it with --data allow_evictions=true, or choose values that evict no pod")
        side = pairs.kubelet_side(found, pairs.FIELDS, restarted_state.configuration)
        warnings += own_warnings(state.host, side, state.node, settled.expected)
        change = edit.change(run_id, settled.summary)
        needed = drained.needed(state, control.components, after(restarted_state.configuration, settled))
        if needed is not None:
            if not may_drain:
                drained.check(state, needed)
            change, checkpoints = drained.complete(state, change, needed)
            warnings += drained.warnings(needed, by_this_run=may_drain)
    else:
        settled = _in_process(state, control.components, desired)
        outlook = desired.impact(state, after(state.configuration, settled))
    # The values of the present files: undoing this change restores these, not the values that the old process ran with.
    values = {name: {"before": lookup(restarted_state.configuration, name), "after": value} for name, value in settled.expected.items()}
    item = FieldsPlan(
        KUBELET,
        change,
        question=ask.ask_kubelet(found, change.new_argv or edits.argv, edits.files) if change else "",
        question_present=ask.ask_kubelet(found, change.old_argv or found.process.argv, {}) if change else "",
        settings=settled.expected,
        checkpoints=checkpoints,
        needs_drain=needed.why if needed else (),
        recreates_pods=needed is not None and needed.recreates,
        may_be_evicted=outlook.may_be_evicted if desired.allow_evictions else frozenset(),
        effective=Effective(settings=values),
        lasting=settled.named,
        write=desired.write,
        state=state,
        pressures=outlook.pressures,
        settled=settled,
        pending=pending,
        needed=needed,
    )
    text = outlook.text() if change else ""
    return NodePlan(state.host, found, control.components, (item,), tuple(warnings), text)


def _in_process(state: KubeletState, components: Collection[str], desired: FieldsRequest) -> Settled:
    """The desired state if the files already have it. Raises Refusal if the process does not."""
    settled = desired.settle(state)
    if wrong := unmet_fields(settled.expected, state.configuration):
        drain = ""
        if any(one.name == DRIVER for one in wrong):
            # The runtime's driver may beat the file's: then no restart helps.
            cgroups.check(state, components, settled.expected, may_edit=False)
            drain = "drain the node first, then "
        raise Refusal(
            state.host,
            f"the kubelet's files have the desired values, but its process does not: {'; '.join(map(str, wrong))}",
            f"it was not restarted since: {drain}`systemctl restart {state.kubelet.unit_name}` on the node, then run this again",
        )
    return settled


def _predicted(
    state: KubeletState, restarted_state: KubeletState, desired: FieldsRequest, settled: Settled, pending: Sequence[Pending]
) -> Impact:
    """The prediction. Raises Refusal, which does not blame the change for what is already in the files."""
    try:
        return desired.impact(state, after(restarted_state.configuration, settled))
    except Refusal as refusal:
        if pending:
            desired.impact(state, after(state.configuration, settled))
            raise restart.refusal(state, pending, refusal.message, refusal.way_out) from None
        raise


def after(configuration: Mapping[str, Any], settled: Settled) -> dict[str, Any]:
    """The configuration that the kubelet will run with, as /configz would show it."""
    return with_fields(configuration, settled.expected)


def predict_restart(state: KubeletState, fields: Mapping[str, Any], impact: Callable[[KubeletState, Mapping[str, Any]], Impact]) -> Impact:
    """The effect of a restart with these fields set, and with what else it applies. Raises Refusal."""
    return impact(state, with_fields(restart.with_pending(state, restart.pending(state)).configuration, fields))


def drained_change(
    state: KubeletState, components: Collection[str], fields: Mapping[str, Any], change: Change, *, may_drain: bool = False
) -> tuple[Change, Mapping[str, str], Needed | None]:
    """The change as it must be if a restart with these fields needs a drained node: with the checkpoints that it removes and the runtime
    that restarts with it; the policies that the new checkpoints must have, by path; and what it needs (None: a restart is enough). Raises
    Refusal if the node is not drained and the run may not drain it (`may_drain`)."""
    wanted = drained.needed(state, components, with_fields(restart.with_pending(state, restart.pending(state)).configuration, fields))
    if wanted is None:
        return change, {}, None
    if not may_drain:
        drained.check(state, wanted)
    return *drained.complete(state, change, wanted), wanted


def restart_warnings(
    cluster: Cluster,
    plan: NodePlan[Any],
    impact: Callable[[KubeletState, Mapping[str, Any]], Impact],
    named: restart.Named = (),
    state: KubeletState | None = None,
) -> list[str]:
    """Warnings about the fields that a restart of its kubelet applies in addition to the change. `state`: that of the node, if it was read
    already. Raises Refusal if that would evict pods, or cannot be proven."""
    found = plan.kubelet
    if not found.is_known or all(planned.component != KUBELET for planned in plan.changing):
        return []
    try:
        configuration = state.configuration if state else cluster.configuration(found.node_name)
        if not pending_settings(found, configuration):
            return []
        state = state or state_of(cluster, plan.host, found, configuration)
    except ApiFailure as error:
        return [f"it is unknown whether a restart of the kubelet applies more than this change: its /configz could not be read: {error}"]
    pending = restart.pending(state)
    try:
        outlook = impact(state, restart.with_pending(state, pending).configuration)
    except Refusal as refusal:
        raise restart.refusal(state, pending, refusal.message, refusal.way_out) from None
    if outlook.evicts:
        way_out = f"apply that first, without this change (`systemctl restart {found.unit_name}` on the node)"
        raise restart.refusal(state, pending, f"that would evict: {'; '.join(outlook.evicts)}", way_out)
    return restart.warnings(pending, named)


def _cells(name: str, old: Any, now: Any) -> list[tuple[str, str, str]]:
    """One row per field, or per entry of a map that differs."""
    if isinstance(old, Mapping) and isinstance(now, Mapping):
        keys = [key for key in {**old, **now} if old.get(key) != now.get(key)] or list(now)
        return [(f"{name}.{key}", _text(old.get(key)), _text(now.get(key))) for key in keys]
    return [(name, _text(old), _text(now))]


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return ",".join(f"{key}={_text(entry)}" for key, entry in value.items()) or "-"
    if isinstance(value, list):
        return ",".join(map(_text, value)) or "-"
    return str(value)
