"""The rules about budgets: which of them can never allow an eviction, and which allow none now. Pure.

The numbers are those of roles/engine/disruption/budgets.py. What upstream says: https://kubernetes.io/docs/tasks/run-application/configure-pdb/
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from roles.engine.bounds import span
from roles.engine.disruption.budgets import ALWAYS_ALLOW, DELETION_TIMEOUT, BudgetState
from roles.engine.disruption.evicting import eviction_answer
from roles.engine.disruption.owners import Controller, DisruptionObjects
from roles.engine.disruption.problem import ReplicaRange, Scene, autoscaler, few, unhealthy
from roles.engine.disruption.rules import DEPLOY, DisruptionRule
from roles.engine.disruption.strays import by_owner, strays_of, strays_text
from roles.engine.findings import Finding, Severity
from roles.engine.folding import counted
from roles.engine.kube import Object, full_name, namespace_and_name
from roles.engine.kube.amounts import scaled
from roles.engine.kube.fields import conditions, created_of, ends_at, is_observed, spec_of, status_of
from roles.engine.kube.pods import is_alive, is_over, node_of, stuck

#: How long nothing must have happened to the pods of a budget before a status that differs counts as wrong.
_QUIET = span(60)


def budget_problems(state: BudgetState, scene: Scene) -> Iterator[Finding]:
    """All problems of one budget; an overlap with another budget is `overlaps`. Of a budget that a controller keeps they are notes that
    name the controller, without advice to change the budget."""
    for one in _problems(state, scene):
        if state.keepers or (state.kept and one.rule is DisruptionRule.NEEDS_ALL):
            way_out = f"leave it to its keeper: {state.kept_by}; a drain asks again until drain_timeout"
            one = replace(one, severity=Severity.note, way_out=way_out)
        yield one


def _problems(state: BudgetState, scene: Scene) -> Iterator[Finding]:
    never = list(_never(state, scene))
    yield from never
    yield from _minimum(state, scene, bool(never))
    yield from _selector(state)
    yield from _strays(state, scene)
    yield from _status(state, scene)
    if not never and not state.problem and not state.unread:
        deadlock = list(_unhealthy(state))
        yield from deadlock
        if not deadlock:
            yield from _none_left(state)
        yield from _waves(state)


def name_of(state: BudgetState) -> str:
    return f"PodDisruptionBudget {state.key}"


def _of(state: BudgetState, *more: str) -> tuple[str, ...]:
    """The objects of a finding."""
    return name_of(state), *more


def alive(state: BudgetState) -> list[Object]:
    return [pod for pod in state.pods if is_alive(pod)]


# ---- never


def _never(state: BudgetState, scene: Scene) -> Iterator[Finding]:
    if not state.never:
        return
    pods = alive(state)
    severity = Severity.critical if pods else Severity.warning
    blocks = f"no eviction of its {counted(len(pods), 'pod')} can ever succeed, and a drain of their nodes never ends" if pods else ""
    if pods and state.kept:
        blocks = f"no eviction of its {counted(len(pods), 'pod')} succeeds now"
    if state.problem:
        way_out = f"let it select only pods of one kind of workload, or use min_available with a number ({DEPLOY})"
        foreign = strays_of(state, scene.live)
        why, out = strays_text(foreign)
        why = "; ".join(filter(None, (state.never, why, blocks)))
        yield DisruptionRule.NO_SCALE.found(_of(state, *by_owner(foreign)), why, out or way_out, severity)
    elif state.unmanaged and state.numbers.expected_pods <= 0:
        way_out = f"use min_available with a number ({DEPLOY}), or let a workload create the pods"
        yield DisruptionRule.NO_SCALE.found(_of(state), f"{state.never}; {blocks}", way_out, Severity.critical)
    elif state.allows_none or state.has_no_rule:
        why = f"{state.never}; {blocks or 'it selects no pods now'}"
        yield DisruptionRule.ALLOWS_NONE.found(_of(state), why, severity=severity)
    elif not lifted_by(state, scene.live):
        if not state.only_scales:
            fewer = max(0, state.numbers.desired_healthy - 1)
            way_out = (
                f"set min_available to {fewer} ({DEPLOY}): one pod fewer is protected, and max_unavailable cannot be computed for them"
            )
        elif len(pods) == 1:
            way_out = f"run 2 replicas, or accept that its one pod is away for a moment: max_unavailable 1 ({DEPLOY})"
        else:
            way_out = f"run more replicas, or set max_unavailable to 1 instead ({DEPLOY}): one pod fewer is protected then"
        yield DisruptionRule.NEEDS_ALL.found(_of(state, *_controllers(state)), f"{state.rule}: {state.never}; {blocks}", way_out)


def _controllers(state: BudgetState) -> list[str]:
    return [str(one) for one in state.controllers]


def lifted_by(state: BudgetState, live: DisruptionObjects) -> list[ReplicaRange]:
    """The autoscalers that can end a `never` of too few pods, by scaling out: then it is one only for now. `live` has
    HorizontalPodAutoscalers."""
    if not state.never or state.problem or state.unread or not state.controllers or state.numbers.desired_healthy <= 0:
        return []
    found = {one: scaler for one in state.controllers if one.replicas > 0 and (scaler := autoscaler(live, *one.place))}
    most = sum(max(one.replicas, found[one].maximum) if one in found else one.replicas for one in state.controllers)
    return list(found.values()) if _healthy_at(state, most) > _needs(state, most) else []


def _healthy_at(state: BudgetState, scale: int) -> int:
    """How many of its pods can be healthy if its controllers want so many."""
    return scale + state.attainable - sum(one.replicas for one in state.controllers)


def _needs(state: BudgetState, scale: int) -> int:
    """How many healthy pods it needs then."""
    spec = spec_of(state.budget)
    if spec.get("maxUnavailable") is not None:
        return scale - scaled(spec["maxUnavailable"], scale, up=True)
    return scaled(spec["minAvailable"], scale, up=True)


def _minimum(state: BudgetState, scene: Scene, never: bool) -> Iterator[Finding]:
    """With the autoscaler at its minimum, the budget allows nothing."""
    scaled_by = {one: found for one in state.controllers if (found := autoscaler(scene.live, *one.place))}
    if not scaled_by or never or state.problem or state.unread:
        return
    scale = sum(scaled_by[one].minimum if one in scaled_by else one.replicas for one in state.controllers)
    most, needs = _healthy_at(state, scale), _needs(state, scale)
    if most <= needs:
        least = ", ".join(f"{one} to {found.minimum}" for one, found in scaled_by.items())
        yield DisruptionRule.AUTOSCALER_MINIMUM.found(
            _of(state, *_controllers(state)),
            f"{state.rule}: an autoscaler may scale {least}; then {counted(most, 'pod')} can be healthy, and the budget needs "
            f"{needs}: no eviction succeeds at times of low load",
            f"raise minReplicas above {needs}, or set max_unavailable to 1 instead ({DEPLOY}): one pod fewer is protected then",
        )  # fmt: skip


# ---- what it selects


def _selector(state: BudgetState) -> Iterator[Finding]:
    if not state.pods and not state.selector.matches_everything:
        why = f"its selector ({state.selector}) matches no pod: it protects nothing"
        yield DisruptionRule.SELECTS_NOTHING.found(_of(state), why)
    if state.selector.matches_everything:
        yield DisruptionRule.SELECTS_EVERYTHING.found(
            _of(state),
            f"its selector is {{}}: it counts all pods of the namespace ({len(state.pods)} now) as one workload. The first pod of a Job or "
            "DaemonSet stops a budget with maxUnavailable or a percentage. A second budget makes evictions fail with 500",
        )  # fmt: skip
    if state.unmanaged and state.numbers.expected_pods > 0 and not state.problem:
        yield DisruptionRule.NO_SCALE.found(
            _of(state),
            f"{few(state.unmanaged)} {'has' if len(state.unmanaged) == 1 else 'have'} no controller: healthy ones count, but none is "
            "expected, so the budget lets more of the other pods go than it says",
            f"let a workload create the pods, correct the selector, or use min_available with a number ({DEPLOY})", Severity.warning,
        )  # fmt: skip


def overlaps(states: Sequence[BudgetState]) -> Iterator[Finding]:
    """Pods with more than one budget: the API server answers 500 to each eviction."""
    by_pod: dict[str, list[BudgetState]] = {}
    for state in states:
        for pod in alive(state):
            by_pod.setdefault(full_name(pod), []).append(state)
    shared: dict[tuple[str, ...], list[str]] = {}
    for pod_name, found in by_pod.items():
        if len(found) > 1:
            shared.setdefault(tuple(state.key for state in found), []).append(pod_name)
    names = {state.key: state for state in states}
    for keys, pods in shared.items():
        kept = [f"{key}: {keeper}" for key in keys for keeper in names[key].keepers]
        keep = (
            f"correct the selectors, or leave it to the keeper ({'; '.join(kept)})"
            if kept
            else f"keep one of {', '.join(keys)}, or correct the selectors ({DEPLOY})"
        )
        yield DisruptionRule.TWO_BUDGETS.found(
            tuple(name_of(names[key]) for key in keys),
            f"{counted(len(pods), 'pod')} ({few(pods)}) {'has' if len(pods) == 1 else 'have'} {len(keys)} budgets: "
            "the API server answers each eviction with 500, and events of a pod update only one of the budgets",
            keep, Severity.note if kept else None,
        )  # fmt: skip


def _strays(state: BudgetState, scene: Scene) -> Iterator[Finding]:
    """Pods of others in a budget that can be computed: each Ready one lets one more of the workload's own pods go."""
    foreign = strays_of(state, scene.live)
    if state.unmanaged or state.problem or state.unread or state.selector.matches_everything or not foreign:
        return
    why, out = strays_text(foreign)
    yield DisruptionRule.FOREIGN_PODS.found(
        _of(state, *by_owner(foreign)),
        f"{why}, beside {few([str(one) for one in state.controllers])}: while they are Ready it lets more pods of these go than it says",
        out,
    )  # fmt: skip


# ---- its status


def _status(state: BudgetState, scene: Scene) -> Iterator[Finding]:
    look = DisruptionRule.NOT_COMPUTED.way_out
    if state.status.sync_failed and not state.problem and not state.unread:
        yield DisruptionRule.NOT_COMPUTED.found(
            _of(state),
            f"kube-controller-manager could not compute it ({state.status.message}) and allows nothing",
            f"what daytwo reads now gives no reason for it; {look}",
        )  # fmt: skip
    elif state.problem and not state.lasts:
        yield DisruptionRule.NOT_COMPUTED.found(
            _of(state),
            f"kube-controller-manager cannot compute it ({state.problem}) and allows nothing",
            "the pod's controller is gone: delete the pod if nothing else does",
        )  # fmt: skip
    elif not state.caught_up and not state.problem:
        yield DisruptionRule.NOT_COMPUTED.found(
            _of(state),
            f"its status is of generation {state.status.observed_generation}, its spec of {state.generation}: until it catches up, the API "
            "server answers each eviction of a healthy pod with 429",
        )  # fmt: skip
    elif state.differences and _quiet(state, scene):
        yield DisruptionRule.NOT_COMPUTED.found(
            _of(state),
            f"its status does not fit its pods, for more than {_QUIET.seconds} s: {'; '.join(state.differences)}",
        )  # fmt: skip
    old = [name for name, at in state.status.numbers.disrupted.items() if at + DELETION_TIMEOUT < scene.now]
    if old:
        yield DisruptionRule.NOT_COMPUTED.found(
            _of(state),
            f"evictions of {few(old)} were allowed more than {DELETION_TIMEOUT.seconds} s ago, and are still in status.disruptedPods: "
            "kube-controller-manager does not update it", f"{look}; compare the clocks of the control-plane nodes",
        )  # fmt: skip


def _quiet(state: BudgetState, scene: Scene) -> bool:
    """Nothing has happened to its pods lately, so its status has had the time to follow."""
    limit = (scene.now - _QUIET).strftime("%Y-%m-%dT%H:%M:%SZ")
    for pod in state.pods:
        times = [str(one.get("lastTransitionTime") or "") for one in conditions(pod)]
        if max(*times, created_of(pod), ends_at(pod)) > limit:
            return False
    return True


# ---- now


def _unhealthy(state: BudgetState) -> Iterator[Finding]:
    """Pods that never become Ready, and that the budget does not let go: they keep the budget from being met."""
    if state.policy == ALWAYS_ALLOW or state.disruptions_allowed > 0:
        return
    settled = [state.settled()]
    held = [pod for pod in alive(state) if stuck(pod) and not eviction_answer(pod, settled).allowed]
    if held:
        names = few([f"{namespace_and_name(pod)[1]} ({stuck(pod)})" for pod in held])
        policy = state.policy if state.policy_is_set else f"not set, which means {state.policy}"
        yield DisruptionRule.UNHEALTHY_DEADLOCK.found(
            _of(state, *(f"Pod {full_name(pod)}" for pod in held)),
            f"{names} {'does' if len(held) == 1 else 'do'} not become Ready: it has {state.numbers.current_healthy} healthy pods, needs "
            f"{state.numbers.desired_healthy}; unhealthyPodEvictionPolicy is {policy}: not even the failing pods can be evicted",
        )  # fmt: skip


def _none_left(state: BudgetState) -> Iterator[Finding]:
    pods = alive(state)
    if not pods or state.disruptions_allowed > 0:
        return
    reasons = [f"{namespace_and_name(pod)[1]} {why}" for pod in state.pods if not is_over(pod) and (why := unhealthy(pod))]
    reasons += [f"{name} was just evicted" for name in state.numbers.disrupted]
    missing = state.numbers.expected_pods - len(pods)
    if state.counts_scales and missing > 0:
        reasons.append(f"missing: {missing} of {state.numbers.expected_pods}")
    reasons += [f"{one} is rolling out" for one in state.controllers if _rolls(one)]
    why = f"it allows no eviction now: {state.why}{f' ({few(reasons)})' if reasons else ''}"
    yield DisruptionRule.NONE_LEFT.found(_of(state, *(f"Pod {full_name(pod)}" for pod in pods if unhealthy(pod))), why)


def _rolls(one: Controller) -> bool:
    status = status_of(one.found or {})
    if one.kind != "Deployment" or one.found is None:
        return False
    old = int(status.get("replicas") or 0) - int(status.get("updatedReplicas") or 0)
    return old > 0 or not is_observed(one.found)


def _waves(state: BudgetState) -> Iterator[Finding]:
    """Nodes with more pods of it than it lets go at a time."""
    allowed = state.disruptions_allowed
    per_node = pods_per_node(state)
    crowded = {node: number for node, number in per_node.items() if number > allowed > 0}
    if crowded:
        where = few([f"{node} has {number}" for node, number in crowded.items()])
        why = f"it lets {counted(allowed, 'pod')} go at a time, and {where}: a drain waits for replacements in between"
        yield DisruptionRule.WAVES.found(_of(state), why)


def pods_per_node(state: BudgetState) -> Counter[str]:
    """The running pods of a budget by node: those for whose eviction it is asked."""
    running = (pod for pod in alive(state) if status_of(pod).get("phase") != "Pending")
    return Counter(node for pod in running if (node := node_of(pod)))
