"""The re-admission forecast of a run: before a kubelet is restarted, which pods of its node would be lost."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from roles.engine.api import ApiFailure
from roles.engine.commands import command
from roles.engine.harmless import one_line
from roles.engine.kube.fields import status_of
from roles.engine.kube.pods import left_by_drain
from roles.engine.kubelet import KubeletState
from roles.engine.kubelet.pending import pending_settings, restarted, with_fields, with_own_reservations
from roles.engine.node_changes.node_plan import KUBELET, ComponentPlan, NodePlan
from roles.engine.placement import Forecast, Readmission, forecast
from roles.engine.proof import Cluster
from roles.engine.transaction import Refusal

# The plan shows this many pods.
SHOWN = 20
_NEEDED = ("cpu", "memory", "pods")
_NO_HELP = "they are static or of DaemonSets, so a drain does not help: make room for them"
_AGAIN = "run this again: then the node is drained first"
_ACCEPT = "accept the loss with --data allow_evictions=true"


class NoForecast(Exception):
    """Why there is no forecast."""


def with_forecast(cluster: Cluster, plan: NodePlan[Any], consent: bool | None, *, may_drain: bool = False) -> NodePlan[Any]:
    """The plan of a node with its forecast, if it restarts the kubelet: shown, and refused if a pod may be lost.

    `consent`: the operator accepts lost pods; None: the deploy has no such consent. `may_drain`: if it helps, the node is drained first
    instead. Without an answer of the API the plan says that the forecast is missing.
    """
    planned = next((one for one in plan.changing if one.component == KUBELET), None)
    if planned is None or plan.refusals:
        return plan
    try:
        state = planned.state or _read(cluster, plan)
        losers = _forecast(state, planned).losers
        left = _forecast(_drained(state), planned).losers if losers and may_drain and not consent else losers
    except (ApiFailure, NoForecast) as error:
        warning = f"it is not known which pods a restart of its kubelet would lose: {error}"
        return replace(plan, warnings=(*plan.warnings, warning))
    names = frozenset(one.pod for one in losers) if consent else frozenset()
    known = replace(planned, state=state, may_be_evicted=planned.may_be_evicted | names)
    lines = [f"    LOSES: {one_line(text)}" for text in _listed(losers)] or ["    After the restart the kubelet takes all its pods back"]
    refused = [] if consent or not left else [refusal(plan, left, consent, _NO_HELP if may_drain else "")]
    if losers and not left:
        # With that consent no other reason for a drain must be left.
        instead = "" if consent is None or known.needs_drain else _ACCEPT
        known = replace(known, needs_drain=(*known.needs_drain, _not_admitted(losers)), instead=instead)
        lines = [f"    {one_line(_not_admitted(losers))}: so the node is drained first"]
    return replace(
        plan,
        planned=tuple(known if one is planned else one for one in plan.planned),
        outlook="\n".join(filter(None, (plan.outlook, *lines))),
        refusals=(*plan.refusals, *refused),
    )


def refusal(plan: NodePlan[Any], losers: Sequence[Readmission], consent: bool | None, way_out: str = "") -> Refusal:
    """Why the kubelet is not restarted while these pods are on the node. `way_out`: instead of a drain."""
    first = way_out or f"drain the node first: --data drain=auto, or {command('drain', nodes=plan.host)}"
    allow = "" if consent is None else f", or {_ACCEPT}"
    return Refusal(plan.host, _not_admitted(losers), first + allow)


def _not_admitted(losers: Sequence[Readmission]) -> str:
    return f"a restart of its kubelet would not admit these pods again: {one_line('; '.join(_listed(losers)))}"


def _drained(state: KubeletState) -> KubeletState:
    """The node with the pods that a drain leaves."""
    return replace(state, pods=[pod for pod in state.pods if left_by_drain(pod)])


def recheck(cluster: Cluster, plan: NodePlan[Any], planned: ComponentPlan, consent: bool | None, *, may_drain: bool = False) -> str | None:
    """The forecast once more, right before the change; a text if it must not begin. Without the API, others decide."""
    if planned.component != KUBELET or planned.state is None or consent:
        return None
    try:
        node, pods = cluster.node_with_pods(plan.kubelet.node_name)
        losers = _forecast(replace(planned.state, node=node, pods=pods), planned).losers
    except (ApiFailure, NoForecast):
        return None
    return str(refusal(plan, losers, consent, _AGAIN if may_drain else "")) if losers else None


def _read(cluster: Cluster, plan: NodePlan[Any]) -> KubeletState:
    configuration = with_own_reservations(plan.kubelet, cluster.configuration(plan.kubelet.node_name))
    node, pods = cluster.node_with_pods(plan.kubelet.node_name)
    return KubeletState(plan.host, plan.kubelet, configuration, node, pods, {})


def _forecast(state: KubeletState, planned: ComponentPlan) -> Forecast:
    """Raises NoForecast."""
    capacity = status_of(state.node).get("capacity") or {}
    if missing := [name for name in _NEEDED if name not in capacity]:
        raise NoForecast(f"its Node object has no capacity of {', '.join(missing)}")
    pending = pending_settings(state.kubelet, state.configuration) if state.kubelet.is_known else ()
    after = with_fields(restarted(state.configuration, pending), planned.settings)
    after["featureGates"] = {**(after.get("featureGates") or {}), **planned.gates}
    try:
        return forecast(state.pods, state.node, state.configuration, after, planned.pressures)
    except ValueError as error:
        raise NoForecast(str(error)) from None


def _listed(losers: Collection[Readmission]) -> list[str]:
    shown = [str(one) for one in losers][:SHOWN]
    return shown + ([f"and {len(losers) - SHOWN} more"] if len(losers) > SHOWN else [])
