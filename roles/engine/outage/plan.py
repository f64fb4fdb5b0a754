"""The plan of a drain, from the objects of the cluster; and those of all outages of a run, before anything is written. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from roles.engine.disruption import BudgetState, DisruptionObjects, budget_states, webhooks
from roles.engine.folding import counted
from roles.engine.inputs import unmatched
from roles.engine.kube import Object, full_name, is_ready, uid
from roles.engine.kube.fields import name_of, spec_of
from roles.engine.kube.pods import node_of
from roles.engine.outage.cordon import as_uncordoned, node_fate
from roles.engine.outage.fates import Judge, past_budgets_at_a_cost
from roles.engine.outage.model import BudgetShare, DrainConsents, DrainPlan, PodFate, Purpose, Wanted
from roles.engine.outage.places import with_places
from roles.engine.outage.report import outage_note
from roles.engine.outage.surge import find_surges
from roles.engine.outage.volumes import times, with_volumes
from roles.engine.outage.volumes import warnings as volume_warnings
from roles.engine.outage.waves import by_budget, cut, in_order, shares
from roles.engine.outage.workloads import Workloads


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
    pods, places, unknown = with_places(first, workloads, nodes, consents)
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


def _together(stages: Iterable[tuple[Sequence[str], int]], nodes: Sequence[Wanted]) -> list[list[Wanted]]:
    """Nodes that are drained at the same time: each two or more that follow each other, as the pace allows."""
    wanted = {one.host: one for one in nodes}
    found = []
    for names, at_once in stages:
        nodes = [wanted[host] for host in names if host in wanted]
        if at_once > 1 and len(nodes) > 1:
            found += [nodes[first : first + at_once] for first in range(max(1, len(nodes) - at_once + 1))]
    return found


def plan_outages(
    live: DisruptionObjects,
    wanted: Sequence[Wanted],
    stages: Iterable[tuple[Sequence[str], int]],
    asked: DrainConsents,
    now: datetime,
    purpose: Purpose,
    left: Collection[str] = (),
) -> tuple[list[str], list[str]]:
    """What becomes of the pods of each node, for the plan; and why they cannot leave. Each drain is planned as if the others were over;
    nodes that are drained at the same time are added up. `stages`: their hosts, and how many at once; `left`: names of nodes with a cordon
    that this run removes."""
    plans: dict[str, DrainPlan] = {}
    refusals: dict[str, None] = {}
    known: set[str] = set()
    for one in wanted:
        plan = _planned(live, [one], asked, now, purpose, left)
        plans[one.host] = plan
        known |= {*plan.refusals}
        what = f"{one.host}: it is drained for {purpose.text} ({'; '.join(one.why)}), and cannot be"
        instead = f"; or {one.instead}" if one.instead else ""
        refusals |= dict.fromkeys(f"{what}: {text}{instead}" for text in plan.refusals)
    notes = [outage_note(one, purpose, plans[one.host], len(wanted)) for one in wanted]
    for group in _together(stages, wanted):
        plan = _planned(live, group, asked, now, purpose, left)
        names = ", ".join(one.host for one in group)
        at_once = f"{names} are drained at the same time (max_unavailable)"
        refusals |= dict.fromkeys(f"{at_once}: {text}; or lower max_unavailable" for text in plan.refusals if text not in known)
        waits = [
            f"{one.key} ({one.leaving} of its pods leave, it allows {one.allowed})" for one in plan.budgets if one.leaving > one.allowed
        ]
        if waits:
            notes.append(f"{at_once}: they wait for each other's replacements by {', '.join(waits)}")
    refusals |= dict.fromkeys(_unknown_surges(live, wanted, asked))
    return list(dict.fromkeys(notes)), list(refusals) or ask_again(plans.values(), asked)


def _planned(
    live: DisruptionObjects, nodes: Sequence[Wanted], consents: DrainConsents, now: datetime, purpose: Purpose, left: Collection[str]
) -> DrainPlan:
    """The plan for some nodes, with the cordons that they have now."""
    names = [one.node for one in nodes]
    plan = plan_drain(as_uncordoned(live, left), names, narrowed(consents, live, names), now)
    fates = {fate.name: purpose.seen(fate) for fate in map(node_fate, live.of("Node"))}
    return replace(plan, nodes=tuple(fates[one.name] for one in plan.nodes))


def _unknown_surges(live: DisruptionObjects, wanted: Sequence[Wanted], consents: DrainConsents) -> list[str]:
    if not isinstance(consents.surge, tuple):
        return []
    there = narrowed(consents, live, [one.node for one in wanted]).surge
    missing = [name for name in consents.surge if not isinstance(there, tuple) or name not in there]
    return [f"surge: {name} has no pod on {', '.join(one.host for one in wanted)}" for name in missing]


def _unknown_budgets(states: Sequence[BudgetState], consents: DrainConsents) -> list[str]:
    known = [state.key for state in states]
    return [f"ignore_budgets: {text}" for text in unmatched(consents.ignore_budgets, known, "no PodDisruptionBudget of this cluster")]


def _never_refilled(moving: Sequence[PodFate], states: Sequence[BudgetState], consents: DrainConsents) -> list[str]:
    """Budgets that allow some evictions now, but never all of them: some of the pods do not come back."""
    found = []
    gone = by_budget(one for one in moving if one.workload is None or one.pending)
    for state in states if gone else ():
        if state.key in consents.ignore_budgets or state.unread or state.kept:
            continue
        lost = gone.get(state.key, ())
        if lost and state.attainable - len(lost) < state.numbers.desired_healthy:
            names = ", ".join(one.name for one in lost)
            found.append(
                f"budget {state.key}: {state.why}; {names} leave and do not come back, so it would refuse the last of them forever. "
                f"Change the budget, {past_budgets_at_a_cost([state])}"
            )
    return found


#: Keys that limit what a webhook is asked about; daytwo does not evaluate them.
_LIMITS = ("namespaceSelector", "objectSelector", "matchConditions")


def single_replicas(pods: Sequence[PodFate]) -> list[str]:
    """Workloads that would be without a pod for some time."""
    found = [
        f"{one.workload} has one replica: it is away from the end of {one.name} until its new pod is Ready"
        + ("" if one.workload.kind != "Deployment" else " (--data surge=true: a second pod first)")
        for one in pods
        if one.fate in ("evicted", "deleted") and one.workload is not None and one.workload.counted and one.workload.replicas == 1
    ]
    by_workload: dict[str, list[PodFate]] = {}
    for one in pods:
        if one.leaves and one.workload is not None and one.workload.counted and one.workload.replicas > 1:
            by_workload.setdefault(one.workload.uid, []).append(one)
    for group in by_workload.values():
        workload = group[0].workload
        if workload is not None and len(group) >= workload.replicas and not any(one.budgets for one in group):
            found.append(f"all {len(group)} pods of {workload} are on these nodes, and no budget limits their eviction")
    return list(dict.fromkeys(found))


def webhook_problems(pods: Sequence[PodFate], live: DisruptionObjects) -> tuple[list[str], list[str]]:
    """Refusals and warnings about webhooks whose only backends leave. With failurePolicy Fail the API server refuses what such a webhook
    is asked about, until a backend serves again."""
    leaving = {one.uid: one for one in pods if one.leaves}
    refusals, warnings = [], []
    for one in webhooks(live):
        if not one.backends or not all(uid(pod) in leaving for pod in one.backends):
            continue
        names = ", ".join(sorted(full_name(pod) for pod in one.backends))
        what = f"webhook {one.hook.get('name')} of {one.where} (failurePolicy Fail): its only backends leave ({names})"
        gap = any(pod.fate != "surged" and _alone(pod) for pod in (leaving[uid(pod)] for pod in one.backends))
        if not gap:
            warnings.append(f"{what}, one after the other: a new one must be Ready before the last one goes")
        elif one.asks_about_pods and not any(one.hook.get(key) for key in _LIMITS):
            refusals.append(
                f"{what}; until a new one is Ready the API server creates no pods, so the new one can never come: "
                "scale it to 2 replicas, or use --data surge=true"
            )
        else:
            warnings.append(f"{what}; until a new one is Ready, the API server refuses requests that this webhook is asked about")
    return refusals, warnings


def _alone(one: PodFate) -> bool:
    return one.workload is None or one.workload.replicas <= 1


def nodes_problem(nodes: Collection[Object], names: Collection[str], homeless: Sequence[PodFate] = ()) -> list[str]:
    """Refusals about the nodes themselves. `homeless`: the pods that leave, and whose replacements must not stay Pending."""
    found = [
        f"{name_of(item)} is not Ready: its kubelet may not run, and then its pods never end. Repair it first, "
        "or, if the machine is off for good: kubectl delete node"
        for item in nodes
        if name_of(item) in names and not is_ready(item)
    ]
    left = [item for item in nodes if name_of(item) not in names and is_ready(item) and not spec_of(item).get("unschedulable")]
    if homeless and not left:
        found.append(
            f"no other node is Ready and takes pods: the replacements of {counted(len(homeless), 'pod')} that leave ({homeless[0].name}"
            f"{', ...' if len(homeless) > 1 else ''}) would stay Pending; drain fewer nodes, or allow it with --data allow_pending=true"
        )
    return found


# ---- the second consent: the first one names budgets, this one exactly the pods of a plan


def past_budgets(plan: DrainPlan, consents: DrainConsents) -> list[PodFate]:
    """The pods that leave and that the drain may delete past their budgets: those that are refused now, and those that may be refused in
    their turn."""
    named = consents.ignore_budgets
    return [one for one in plan.pods if one.fate in ("deleted", "evicted") and one.budgets and all(key in named for key in one.budgets)]


def second_consent(pods: Collection[PodFate]) -> str:
    """The second consent: for these budgets and these pods, by their UIDs. It begins with a letter: pyinfra reads `1e5` as a number."""
    lines = sorted({" ".join((*sorted(one.budgets), one.name, one.uid)) for one in pods})
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return f"pods-{digest[:8]}"


def ask_again(plans: Iterable[DrainPlan], consents: DrainConsents) -> list[str]:
    """What the drains of a run would do past budgets, and the consent that is missing; empty if it was given, or if they do no such thing.
    For plans without refusals: another consent may add pods."""
    plans = list(plans)
    pods = {one.uid: one for plan in plans for one in past_budgets(plan, consents)}
    code = second_consent(pods.values())
    if not pods or consents.confirm_ignore == code:
        return []
    effects = [text for plan in plans for share in plan.budgets if (text := _effect(plan, share, consents))]
    other = f" (confirm_ignore={consents.confirm_ignore} is for other pods)" if consents.confirm_ignore else ""
    what = "exactly this pod" if len(pods) == 1 else f"exactly these {len(pods)} pods"
    return [*dict.fromkeys(effects), f"ignore_budgets needs a second consent, for {what}: add --data confirm_ignore={code}{other}"]


def _effect(plan: DrainPlan, share: BudgetShare, consents: DrainConsents) -> str:
    own = [one for one in past_budgets(plan, consents) if share.key in one.budgets]
    if not own:
        return ""
    now, later = ([one.name for one in own if one.fate == fate] for fate in ("deleted", "evicted"))
    parts = [f"{', '.join(now)} would be deleted"] if now else []
    parts += [f"{', '.join(later)} would be evicted, or deleted if still refused after {consents.seconds:g} s"] if later else []
    left = max(0, share.healthy - sum(is_ready(one.pod) for one in own))
    healthy = f"{counted(share.healthy, 'healthy pod')}, at worst {left} until the replacements are Ready"
    return f"budget {share.key} ({share.why}): on {', '.join(node.name for node in plan.nodes)}, {'; '.join(parts)}. It has {healthy}"
