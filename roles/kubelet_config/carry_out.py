"""Fields of KubeletConfigurations, wanted by host, as the engine changes them: planned, foreseen, proven by /configz."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from roles.engine import control_plane, kubeadm_config
from roles.engine.api import ApiError, NotFound
from roles.engine.kubelet import Kubelet, Pending, ask, blame, in_effect, kubelet_plan, lookup, pending_settings, settings
from roles.engine.node_changes import KUBELET, Basis, Capability, ComponentPlan, NodePlan, Steps, Verdicts, ended, refused_anyway
from roles.engine.proof import Cluster, NoApi, SurveyedNode, unmet_fields
from roles.engine.transaction import Effective, Refusal
from roles.kubelet_config import restart
from roles.kubelet_config.impact import Outlook, check_node
from roles.kubelet_config.state import KubeletState


@dataclass(frozen=True)
class Settled:
    """What a wish comes to on one node: `fields` to be written (formats.ABSENT: taken out), and what /configz must show afterwards,
    `expected` (None: not set). Both by field, dots between its parts. `named`: the settings that the data itself names, by where they
    stand in the configuration (None: absent)."""

    fields: Mapping[str, Any]
    expected: Mapping[str, Any]
    summary: str
    notes: tuple[str, ...] = ()
    named: Mapping[kubeadm_config.ConfigMapPath, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class FieldsRequest:
    """What one host's data wants. `settle` may raise Refusal; `impact` tells what the configuration `after` would come to; `write`
    gives the fields to write for some of the named settings, to a configuration as it stands in kubeadm's ConfigMap."""

    data: Mapping[str, Any]
    settle: Callable[[KubeletState], Settled]
    impact: Callable[[KubeletState, Mapping[str, Any]], Outlook]
    only: tuple[str, ...] | None = None
    move_flags: bool = False
    allow_evictions: bool = False
    write: Callable[[Mapping[str, Any], Mapping[kubeadm_config.ConfigMapPath, Any]], Mapping[kubeadm_config.ConfigMapPath, Any]] = (
        kubeadm_config.as_given
    )


@dataclass(frozen=True, kw_only=True)
class FieldsPlan(ComponentPlan):
    """Those of one kubelet. `beside`: what the restart brings besides."""

    state: KubeletState
    settled: Settled
    outlook: Outlook
    beside: tuple[Pending, ...] = ()


class KubeletFields(Capability[FieldsRequest, NodePlan[FieldsPlan]]):
    """Fields of the kubelets' configuration, whatever data they come from."""

    columns = ("node", "setting", "before", "after")

    def plan(self, basis: Basis, node: SurveyedNode, wish: FieldsRequest) -> NodePlan[FieldsPlan]:
        try:
            return plan_node(basis.run_id, state_of(basis.found.cluster, node.seen.host, node.kubelet), wish)
        except (ApiError, NoApi) as error:
            raise unreadable(node.seen.host, node.kubelet.node_name, error) from None

    def judge(self, basis: Basis, plan: NodePlan[FieldsPlan], verdicts: Verdicts) -> NodePlan[FieldsPlan]:
        """With why not to go on, from what the node's own kubelet has against the change."""
        refusals: list[object] = []
        for item in plan.changing:
            said = verdicts.against.get(KUBELET)
            if (anyway := refused_anyway(plan, KUBELET, verdicts)) is not None:
                refusals.append(anyway)
            elif said:
                why = f"{plan.version(KUBELET)} refuses {item.settled.summary}: {blame.plain(plan.kubelet, said)}"
                refusals.append(Refusal(plan.host, why, "correct the value of that field"))
        return replace(plan, refusals=tuple(refusals))

    def still(self, basis: Basis, plan: NodePlan[FieldsPlan], planned: ComponentPlan) -> str | None:
        """The look of the plan once more, since hours may lie between."""
        (item,), wish = plan.planned, self.wishes.by_host[plan.host]
        try:
            now = state_of(basis.found.cluster, plan.host, plan.kubelet)
            beside = restart.brought(now)
            if others := [str(one) for one in beside if one not in item.beside]:
                return f"since the plan was made the kubelet was restarted with other settings: {'; '.join(others)}; run this again"
            outlook = restarted(now, item.settled.expected, wish.impact)
        except Refusal as refusal:
            return str(refusal)
        except (ApiError, NoApi) as error:
            return None if basis.options.allow_unproven else str(unreadable(plan.host, plan.kubelet.node_name, error))
        if outlook.evicts and not wish.allow_evictions:
            return f"by now this would evict: {'; '.join(outlook.evicts)}; allow it by --data allow_evictions=true, or make room first"
        return None

    def rows(self, basis: Basis, plans: Sequence[NodePlan[FieldsPlan]], steps: Steps) -> list[list[str]]:
        """One for each field that changes, or for each entry of a map."""
        rows = []
        for plan in plans:
            (item,) = plan.planned
            step = steps.get((plan.host, KUBELET))
            before = item.state.configuration
            now: dict[str, Any] | None = before
            if step is not None and step.outcome != "not started":
                try:
                    now = basis.found.cluster.configuration(plan.kubelet.node_name)
                except (ApiError, NoApi):
                    now = None
            for name, wanted in item.settled.expected.items():
                old, new = lookup(before, name), lookup(now, name) if now is not None else "unknown"
                if step is None or not in_effect(wanted, old):
                    rows += [[plan.host, *row, *ended(step, "/configz")] for row in _cells(name, old, new)]
        return rows


def state_of(cluster: Cluster, host: str, found: Kubelet) -> KubeletState:
    """A node as it runs now, read from the API. Raises ApiError or NoApi."""
    usage = cluster.usage(found.node_name)
    return KubeletState(host, found, cluster.configuration(found.node_name), usage.node, usage.pods, usage.summary)


def unreadable(host: str, node_name: str, error: ApiError | NoApi) -> Refusal:
    """Why a node cannot be planned for, in an operator's terms."""
    what = "what its kubelet runs with and holds cannot be read"
    if isinstance(error, NotFound):
        return Refusal(
            host,
            f"{what}: the API knows no node {node_name} (by the kubelet's --hostname-override, else its host name) ({error.rule})",
            "compare with `kubectl get nodes`; a node must be registered, and under this name, before it is changed",
        )
    if isinstance(error, NoApi):
        return Refusal(host, f"{what}: {error}", "no change could be proven without the API: mend that, or reach it from another node")
    return Refusal(host, f"{what}: {error}")


def _not_ready(state: KubeletState) -> list[str]:
    conditions = (state.node.get("status") or {}).get("conditions") or ()
    return [
        f"the node is not Ready ({one.get('reason') or 'no reason given'}: {one.get('message') or 'no message'}); look at that first"
        for one in conditions
        if one.get("type") == "Ready" and one.get("status") != "True"
    ]


def plan_node(run_id: str, state: KubeletState, wish: FieldsRequest) -> NodePlan[FieldsPlan]:
    """The plan of one node as it runs now. Raises Refusal."""
    found = state.kubelet
    check_node(state)
    beside = tuple(pending_settings(found, state.configuration))
    # What is wanted is held against what the files come to; else an edit of somebody's would be put back with it.
    coming = restart.with_brought(state, beside)
    settled = wish.settle(coming)
    edits = settings.edits(found, settled.fields, move_flags=wish.move_flags)
    control = control_plane.look(found)
    warnings = [*kubelet_plan.warnings(found), *control.warnings, *_not_ready(state), *settled.notes, *edits.notes]
    change = None
    if edits.files:
        restart.check(state, beside)
        outlook = _foreseen(state, coming, wish, settled, beside)
        warnings += kubelet_plan.new_copies(found, edits.files)
        warnings += restart.warnings(beside, settled.named or [tuple(name.split(".")) for name in settled.fields])
        if outlook.evicts and not wish.allow_evictions:
            why = "this would evict: " + "; ".join(outlook.evicts)
            raise Refusal(state.host, why, "allow it by --data allow_evictions=true, or ask for less")
        change = kubelet_plan.change(found, edits.files, run_id, settled.summary)
    else:
        settled = _in_process(state, wish)
        outlook = wish.impact(state, after(state.configuration, settled))
    # What the files of before come to: that is what undoing this brings, and not what ran by chance until now.
    values = {name: {"before": lookup(coming.configuration, name), "after": value} for name, value in settled.expected.items()}
    item = FieldsPlan(
        KUBELET,
        change,
        question=ask.ask_kubelet(found, change.new_argv or edits.argv, edits.files) if change else "",
        question_present=ask.ask_kubelet(found, change.old_argv or found.process.argv, {}) if change else "",
        settings=settled.expected,
        may_go=outlook.may_go if wish.allow_evictions else frozenset(),
        effective=Effective(settings=values),
        lasting=settled.named,
        write=wish.write,
        state=state,
        settled=settled,
        outlook=outlook,
        beside=beside,
    )
    text = outlook.text() if change else ""
    return NodePlan(state.host, found, control.components, (item,), tuple(warnings), text)


def _in_process(state: KubeletState, wish: FieldsRequest) -> Settled:
    """The wish where the files are as wanted already. Raises Refusal where the process is not."""
    settled = wish.settle(state)
    if wrong := unmet_fields(settled.expected, state.configuration):
        raise Refusal(
            state.host,
            f"the kubelet's files are as wanted and the process is not: {'; '.join(map(str, wrong))}",
            f"it was not restarted since: `systemctl restart {state.kubelet.unit_name}` on the node, then run this again",
        )
    return settled


def _foreseen(state: KubeletState, coming: KubeletState, wish: FieldsRequest, settled: Settled, beside: Sequence[Pending]) -> Outlook:
    """The look ahead. Raises Refusal; what the files say already is not blamed on the wish."""
    try:
        return wish.impact(state, after(coming.configuration, settled))
    except Refusal as refusal:
        if beside:
            wish.impact(state, after(state.configuration, settled))
            raise restart.refusal(state, beside, refusal.message, refusal.way_out) from None
        raise


def after(configuration: Mapping[str, Any], settled: Settled) -> dict[str, Any]:
    """The configuration that the kubelet will run with, as /configz would show it."""
    return restart.put(configuration, settled.expected)


def restarted(state: KubeletState, fields: Mapping[str, Any], impact: Callable[[KubeletState, Mapping[str, Any]], Outlook]) -> Outlook:
    """What a restart with these fields set would do to a node, with what it brings besides. Raises Refusal."""
    return impact(state, restart.put(restart.with_brought(state, restart.brought(state)).configuration, fields))


def brings(
    cluster: Cluster, plan: NodePlan[Any], impact: Callable[[KubeletState, Mapping[str, Any]], Outlook], named: restart.Named = ()
) -> list[str]:
    """For a deploy that is not about the configuration: what a restart of its kubelet brings of it, as warnings. Raises Refusal where pods
    would have to go for that, or where it cannot be proven."""
    found = plan.kubelet
    if not found.is_known or all(planned.component != KUBELET for planned in plan.changing):
        return []
    try:
        if not pending_settings(found, cluster.configuration(found.node_name)):
            return []
        state = state_of(cluster, plan.host, found)
    except (ApiError, NoApi) as error:
        return [f"whether a restart of the kubelet brings more than this change is not known: its /configz could not be read: {error}"]
    beside = restart.brought(state)
    try:
        outlook = impact(state, restart.with_brought(state, beside).configuration)
    except Refusal as refusal:
        raise restart.refusal(state, beside, refusal.message, refusal.way_out) from None
    if outlook.evicts:
        way_out = f"bring it first and by itself (`systemctl restart {found.unit_name}` on the node)"
        raise restart.refusal(state, beside, f"that would evict: {'; '.join(outlook.evicts)}", way_out)
    return restart.warnings(beside, named)


def _cells(name: str, old: Any, now: Any) -> list[tuple[str, str, str]]:
    """One row a field, or one for each entry of a map that differs."""
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
