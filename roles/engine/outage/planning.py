"""The plan of a drain, from the objects of the cluster. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime

from roles.engine.disruption import BudgetState, DisruptionObjects, budget_states
from roles.engine.inputs import unmatched
from roles.engine.kube import Object
from roles.engine.kube.fields import name_of
from roles.engine.kube.pods import node_of
from roles.engine.outage.cordon import node_fate
from roles.engine.outage.effects import nodes_problem, single_replicas, webhook_problems
from roles.engine.outage.fates import Judge, past_budgets_at_a_cost
from roles.engine.outage.keys import DrainConsents
from roles.engine.outage.model import DrainPlan, PodFate
from roles.engine.outage.reading import SCHEDULERS
from roles.engine.outage.replacing import replacement
from roles.engine.outage.surge import find_surges
from roles.engine.outage.volumes import no_place, times, with_volumes
from roles.engine.outage.volumes import warnings as volume_warnings
from roles.engine.outage.waves import cut, in_order, shares
from roles.engine.outage.workloads import Workloads
from roles.engine.placement import ClusterView, Placement, differs, place_all, without_passing


def plan_drain(live: DisruptionObjects, nodes: Collection[str], consents: DrainConsents, now: datetime) -> DrainPlan:
    """The plan for `nodes`, names of Nodes. `live` has all kinds of KINDS_OF_DRAIN; `now`: the control plane's time."""
    items = {name_of(item): item for item in live.of("Node")}
    if missing := unmatched(nodes, items, "no node of this cluster"):
        return DrainPlan((), refusals=tuple(missing))
    workloads, states = Workloads(live), budget_states(live, now)
    doomed = [pod for pod in live.of("Pod") if node_of(pod) in nodes]
    surges = find_surges(doomed, workloads, consents)
    judge = Judge(workloads, states, consents, now, surges.pods)
    first = in_order(with_volumes((judge.fate(pod, node_of(pod)) for pod in doomed), live, states, consents))
    pods, places, unknown = _with_places(first, workloads, nodes, consents)
    moving = [one for one in pods if one.fate in ("evicted", "deleted")]
    homeless = [] if consents.allow_pending else [one for one in first if one.leaves and one.workload is not None]
    waves = cut(moving, states)
    hook_refusals, hook_warnings = webhook_problems(pods, live)
    return DrainPlan(
        nodes=tuple(node_fate(items[name]) for name in nodes),
        pods=pods,
        surges=tuple(one for one in pods if one.fate == "surged"),
        waves=waves,
        budgets=shares(pods, waves, states),
        refusals=(
            *nodes_problem(items.values(), nodes, homeless),
            *_unknown_budgets(states, consents),
            *surges.refusals,
            *(f"{one.node}: pod {one.name}: {one.why}; {one.way_out}" for one in pods if one.fate == "blocks"),
            *_never_refilled(moving, states, consents),
            *hook_refusals,
        ),
        warnings=(*surges.warnings, *single_replicas(pods), *volume_warnings(pods, places), *hook_warnings),
        notes=(*unknown, *times(pods, consents)),
    )


def narrowed(consents: DrainConsents, live: DisruptionObjects, nodes: Collection[str]) -> DrainConsents:
    """The consents of a run as they apply to some of its nodes: of the Deployments that are named for a second pod, those with pods
    there."""
    if not isinstance(consents.surge, tuple):
        return consents
    workloads = Workloads(live)
    there = {found.key for pod in live.of("Pod") if node_of(pod) in nodes and (found := workloads.of(pod)) is not None}
    return consents.model_copy(update={"surge": tuple(name for name in consents.surge if name in there)})


def _with_places(
    pods: Sequence[PodFate], workloads: Workloads, nodes: Collection[str], consents: DrainConsents
) -> tuple[tuple[PodFate, ...], dict[str, Placement], tuple[str, ...]]:
    """The pods with where their replacements can run, placed one after the other; that by UID; and what could not be judged."""
    moving = [one for one in pods if one.leaves and one.workload is not None]
    made = [replacement(one.pod, workloads) for one in moving]
    new, view = [pod for pod, _ in made], cluster_view(workloads.live)
    try:
        places = place_all(new, view, nodes)
        later = passing_taints(new, places, view, nodes)
    except ValueError as error:
        return tuple(pods), {}, (f"where the replacements can run was not judged: {error}",)
    by_uid = {one.uid: place for one, place in zip(moving, places, strict=True)}
    found = {
        one.uid: _placed(replace(one, notes=(*one.notes, *notes)), place, waits, consents)
        for one, place, waits, (_, notes) in zip(moving, places, later, made, strict=True)
    }
    return tuple(found.get(one.uid, one) for one in pods), by_uid, ()


def passing_taints(pods: Sequence[Object], places: Sequence[Placement], view: ClusterView, nodes: Collection[str]) -> list[str]:
    """For each pod that has no place: the taints without which it would have one, with the controllers that remove them; "". Raises
    ValueError."""
    bare, removed = without_passing(view.nodes)
    if not removed or all(place.outcome != "nowhere" for place in places):
        return [""] * len(places)
    text = ", ".join(f"taint {taint} (removed by {who})" for taint, who in removed.items())
    later = place_all(pods, replace(view, nodes=bare), nodes)
    return [text if now.outcome == "nowhere" and then.outcome != "nowhere" else "" for now, then in zip(places, later, strict=True)]


def waits_for_place(one: PodFate, live: DisruptionObjects, nodes: Collection[str]) -> str:
    """Why a pod that waits for a place (PodFate.waits) has none now; "" if it has one, or if that is not judged."""
    pod = replacement(one.pod, Workloads(live))[0]
    try:
        place = place_all([pod], cluster_view(live), nodes)[0]
    except ValueError:
        return ""
    return str(place).partition(": ")[2] if place.outcome == "nowhere" else ""


def _placed(one: PodFate, place: Placement, waits: str, consents: DrainConsents) -> PodFate:
    if place.apart:
        return replace(one, place=f"on {', '.join(place.on)}, if {', '.join(place.apart)} goes to the same node")
    if place.outcome != "nowhere":
        return replace(one, place=f"on {', '.join(place.on)}" if place.fits and place.on else str(place).partition(": ")[2])
    why = str(place).partition(": ")[2]
    if place.returns:
        why = f"{why}; it would come back to {', '.join(place.returns)}, since it tolerates the cordon"
    can_wait = not place.returns and one.fate != "surged"
    if consents.allow_pending and can_wait:
        return replace(one, place=why, pending=True, notes=(*one.notes, "by consent: its replacement stays Pending"))
    if waits and can_wait:
        blocked = "; ".join(filter(None, (one.blocked_now, f"its replacement has no place: {waits}")))
        return replace(one, blocked_now=blocked, waits=waits, place=f"not yet: {why}")
    if waits:
        return replace(
            one, fate="blocks", why=f"its replacement has no place now: {why}", way_out=f"run this again later: {waits}", place=why
        )
    blocks, way_out = no_place(one, place, why, can_wait=can_wait)
    return replace(one, fate="blocks", why=blocks, way_out=way_out, place=why)


def cluster_view(live: DisruptionObjects) -> ClusterView:
    """A kind that was not read is not judged."""

    def read(kind: str) -> list[Object] | None:
        return list(live.of(kind)) if kind in live.objects else None

    return ClusterView(
        list(live.of("Node")), list(live.of("Pod")), read("PersistentVolumeClaim"), read("PersistentVolume"), read("CSINode"),
        read("VolumeAttachment"), read("Namespace"), _unlike_the_default(live), read("CSIDriver"),
    )  # fmt: skip


def _unlike_the_default(live: DisruptionObjects) -> str:
    """Why no pod can be placed: a scheduler whose own configuration decides otherwise than a default one."""
    for one in live.of(SCHEDULERS):
        configuration = one["configuration"]
        why = "its configuration could not be read" if configuration is None else differs(configuration)
        if why:
            return f"kube-scheduler of {one['host']} runs with --config: {why}"
    return ""


def _unknown_budgets(states: Sequence[BudgetState], consents: DrainConsents) -> list[str]:
    known = [state.key for state in states]
    return [f"ignore_budgets: {text}" for text in unmatched(consents.ignore_budgets, known, "no PodDisruptionBudget of this cluster")]


def _never_refilled(moving: Sequence[PodFate], states: Sequence[BudgetState], consents: DrainConsents) -> list[str]:
    """Budgets that allow some evictions now, but never all of them: some of the pods do not come back."""
    found = []
    for state in states:
        if state.key in consents.ignore_budgets or state.unread or state.kept:
            continue
        lost = [one for one in moving if state.key in one.budgets and (one.workload is None or one.pending)]
        if lost and state.attainable - len(lost) < state.numbers.desired_healthy:
            names = ", ".join(one.name for one in lost)
            found.append(
                f"budget {state.key}: {state.why}; {names} leave and do not come back, so it would refuse the last of them forever; "
                f"change the budget, {past_budgets_at_a_cost([state])}"
            )
    return found
