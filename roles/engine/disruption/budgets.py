"""PodDisruptionBudgets: the numbers that kube-controller-manager computes for them, computed from the live objects. Pure.

kubernetes 1.36, pkg/controller/disruption/disruption.go: trySync, getExpectedPodCount, getExpectedScale, countHealthyPods,
buildDisruptedPodMap, failSafe, updatePdbStatus. `budget_states` is the whole; `Budgets.of` finds the budgets of a pod.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import overload

from roles.engine.bounds import EARLIEST, moment, span
from roles.engine.disruption.keepers import Keeper, counters, keepers
from roles.engine.disruption.owners import PDB, Controller, DisruptionObjects, Unscaled
from roles.engine.folding import or_none
from roles.engine.kube import Object, condition, is_ending, is_ready, namespace_and_name, owner_ref
from roles.engine.kube.amounts import scaled
from roles.engine.kube.fields import generation_of, labels_of, spec_of, status_of
from roles.engine.kube.pods import is_alive
from roles.engine.kube.selectors import LabelSelector, label_selector

#: How long an eviction that the API server allowed counts, if the pod is not deleted (DeletionTimeout).
DELETION_TIMEOUT = span(2 * 60)
IF_HEALTHY, ALWAYS_ALLOW = "IfHealthyBudget", "AlwaysAllow"
SYNC_FAILED = "SyncFailed"
#: Rules that allow no eviction of any number of pods.
_NONE = (("maxUnavailable", "0"), ("maxUnavailable", "0%"), ("minAvailable", "100%"))


@dataclass(frozen=True)
class Numbers:
    """The numbers of a budget, as in its status. `disrupted`: pods whose eviction was allowed, by name, with the time."""

    expected_pods: int = 0
    desired_healthy: int = 0
    current_healthy: int = 0
    disruptions_allowed: int = 0
    disrupted: Mapping[str, datetime] = field(default_factory=dict)

    def differences(self, other: Numbers) -> list[str]:
        """What differs, as `expectedPods 3, not 2`: this one's number first."""
        pairs = {
            "expectedPods": (self.expected_pods, other.expected_pods),
            "desiredHealthy": (self.desired_healthy, other.desired_healthy),
            "currentHealthy": (self.current_healthy, other.current_healthy),
            "disruptionsAllowed": (self.disruptions_allowed, other.disruptions_allowed),
        }
        found = [f"{name} {one}, not {two}" for name, (one, two) in pairs.items() if one != two]
        if set(self.disrupted) != set(other.disrupted):
            found.append(f"disruptedPods {or_none(sorted(self.disrupted))}, not {or_none(sorted(other.disrupted))}")
        return found


@dataclass(frozen=True)
class BudgetStatus:
    """The status of a budget as the API has it. `reason` and `message`: of its condition DisruptionAllowed."""

    numbers: Numbers
    observed_generation: int
    reason: str = ""
    message: str = ""

    @property
    def sync_failed(self) -> bool:
        return self.reason == SYNC_FAILED


@dataclass(frozen=True)
class BudgetState:
    """One budget and what it means now.

    `pods`: all that it matches, also finished ones and those that are ending. `numbers`: computed from these pods; `status`: what the API
    has. `problem`: why kube-controller-manager cannot compute it, in its words: then it allows nothing, and leaves the other numbers as
    they were. `lasts`: that problem stays as long as the pods exist. `unread`: why daytwo cannot compute it; then `numbers` are those of
    the status. `unmanaged`: names of pods without a controller, in a budget that counts by controllers. `controllers`: what scales its
    pods. `attainable`: how many of its pods can be healthy at once, without a surge (`never` builds on it). `keepers`: the controllers that
    change it; `counters`: those that decide about the number of its pods.
    """

    budget: Object
    selector: LabelSelector
    pods: tuple[Object, ...]
    numbers: Numbers
    status: BudgetStatus
    problem: str = ""
    lasts: bool = False
    unread: str = ""
    unmanaged: tuple[str, ...] = ()
    controllers: tuple[Controller, ...] = ()
    attainable: int = 0
    keepers: tuple[Keeper, ...] = ()
    counters: tuple[Keeper, ...] = ()

    @property
    def namespace(self) -> str:
        return namespace_and_name(self.budget)[0]

    @property
    def name(self) -> str:
        return namespace_and_name(self.budget)[1]

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def generation(self) -> int:
        return generation_of(self.budget)

    @property
    def policy(self) -> str:
        """The unhealthyPodEvictionPolicy in effect: unset means IfHealthyBudget."""
        return str(spec_of(self.budget).get("unhealthyPodEvictionPolicy") or IF_HEALTHY)

    @property
    def policy_is_set(self) -> bool:
        return bool(spec_of(self.budget).get("unhealthyPodEvictionPolicy"))

    @property
    def rule(self) -> str:
        """What the budget asks for, as in its spec: `minAvailable 2`."""
        found = _rule(self.budget)
        return f"{found[0]} {found[1]}" if found else "neither minAvailable nor maxUnavailable"

    @property
    def disruptions_allowed(self) -> int:
        return self.numbers.disruptions_allowed

    @property
    def caught_up(self) -> bool:
        """kube-controller-manager has seen the newest spec."""
        return self.status.observed_generation >= self.generation

    @property
    def differences(self) -> list[str]:
        """How the status differs from the computed numbers; empty if it cannot be computed."""
        if self.unread:
            return []
        found = self.status.numbers.differences(self.numbers)
        if bool(self.problem) != self.status.sync_failed:
            found.append(f"the condition is {self.status.reason or 'not set'}, not {SYNC_FAILED if self.problem else 'computed'}")
        return found

    @property
    def why(self) -> str:
        """Why it allows what it allows."""
        if self.unread:
            return f"it cannot be computed: {self.unread}"
        if self.problem:
            return f"kube-controller-manager cannot compute it, and allows nothing: {self.problem}"
        one = self.numbers
        text = f"{self.rule}: needs {one.desired_healthy} healthy pods of {one.expected_pods}, has {one.current_healthy}"
        if one.disrupted:
            text += f"; evictions of {or_none(sorted(one.disrupted))} are under way"
        if one.expected_pods <= 0 and self.pods:
            text += "; it expects no pods, so it allows nothing"
        return text

    @property
    def never(self) -> str:
        """Why no healthy pod of it can ever be evicted, as long as the budget and the scales stay; "" if one can. A surge or an autoscaler
        may still lift it."""
        if self.unread:
            return ""
        if self.problem:
            return f"kube-controller-manager cannot compute it: {self.problem}" if self.lasts else ""
        found = _rule(self.budget)
        if found is None:
            return "it has neither minAvailable nor maxUnavailable"
        if self.allows_none:
            return f"{found[0]} {found[1]} allows none"
        alive = [pod for pod in self.pods if is_alive(pod)]
        if not alive:
            return ""
        if self.numbers.expected_pods <= 0 and self.counts_scales:
            return f"it counts the scales of controllers, and {', '.join(self.unmanaged)} has none" if self.unmanaged else ""
        if self.attainable <= self.numbers.desired_healthy:
            return f"it needs {self.numbers.desired_healthy} healthy pods, and its pods are at most {self.attainable}"
        return ""

    def lets_go(self, count: int) -> bool:
        """So many of its healthy pods can be away at once some time, as long as the budget and the scales stay."""
        return count <= 1 or bool(self.unread or self.problem) or self.attainable - self.numbers.desired_healthy >= count

    def broken_by(self, away: int) -> str:
        """Why nobody may take away so many of its healthy pods at a time, with the way out; "" if they may. A roll-out asks no budget: its
        controller deletes the pods itself."""
        allowed = self.disruptions_allowed
        if self.unread or self.problem:
            return f"it is not known what its PodDisruptionBudget {self.key} allows; fix the budget first: {self.why}"
        if self.numbers.current_healthy < self.numbers.desired_healthy:
            return f"its PodDisruptionBudget {self.key} is broken already; wait until its pods are Ready, or fix them: {self.why}"
        way_out = f"lower maxUnavailable to {allowed}" if allowed else "set maxUnavailable 0 and maxSurge 1, or change the budget"
        found = f"it takes away {away} pods at a time, and its PodDisruptionBudget {self.key} allows {allowed}; {way_out}: {self.why}"
        return found if away > allowed else ""

    @property
    def allows_none(self) -> bool:
        """By its rule alone, whatever its pods are."""
        found = _rule(self.budget)
        return found is not None and (found[0], str(found[1])) in _NONE

    @property
    def has_no_rule(self) -> bool:
        return _rule(self.budget) is None

    @property
    def only_scales(self) -> bool:
        """All its pods have a controller with a scale, so that maxUnavailable can be computed."""
        return bool(self.controllers) and self.attainable == sum(one.replicas for one in self.controllers)

    @property
    def kept(self) -> tuple[Keeper, ...]:
        """The controllers that may end what is wrong with it, without anybody: then it allows nothing for now, and not for good."""
        return self.keepers or (self.counters if self.never and not self.allows_none and not self.problem else ())

    @property
    def kept_by(self) -> str:
        """In a sentence; "" if only people can change it."""
        return " and ".join(map(str, self.kept))

    def settled(self) -> BudgetState:
        """The state when kube-controller-manager has caught up, if nothing else happens: its status has the computed numbers."""
        if self.unread:
            return self
        condition = (SYNC_FAILED, self.problem) if self.problem else ("", "")
        return replace(self, status=BudgetStatus(self.numbers, self.generation, *condition))

    @property
    def counts_scales(self) -> bool:
        return counts_scales(self.budget)

    def covers(self, pod: Object) -> bool:
        """The budget selects this pod, also one that it did not know."""
        return namespace_and_name(pod)[0] == self.namespace and self.selector.matches(labels_of(pod))

    def is_healthy(self, pod: Object) -> bool:
        """The pod counts in currentHealthy."""
        return is_ready(pod) and not is_ending(pod) and namespace_and_name(pod)[1] not in self.numbers.disrupted


@dataclass(frozen=True)
class Budgets(Sequence[BudgetState]):
    """The states of all budgets, sorted by namespace and name."""

    states: tuple[BudgetState, ...]

    def __len__(self) -> int:
        return len(self.states)

    @overload
    def __getitem__(self, index: int) -> BudgetState: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[BudgetState, ...]: ...
    def __getitem__(self, index: int | slice) -> BudgetState | tuple[BudgetState, ...]:
        return self.states[index]

    def __iter__(self) -> Iterator[BudgetState]:
        return iter(self.states)

    @functools.cached_property
    def _by_label(self) -> dict[tuple[str, str, str], list[tuple[int, BudgetState]]]:
        """With its place in the order, by namespace and one label that it asks for: the one that the fewest others ask for; ("", "") if it
        asks for none."""
        asked = Counter((state.namespace, *pair) for state in self.states for pair in state.selector.pairs)
        found: dict[tuple[str, str, str], list[tuple[int, BudgetState]]] = {}
        for number, state in enumerate(self.states):
            keys = [(state.namespace, *pair) for pair in state.selector.pairs] or [(state.namespace, "", "")]
            found.setdefault(min(keys, key=lambda key: asked[key]), []).append((number, state))
        return found

    def of(self, pod: Object) -> list[BudgetState]:
        """The budgets of a pod, by selector and namespace."""
        namespace = namespace_and_name(pod)[0]
        pairs = [("", ""), *labels_of(pod).items()]
        found = [one for pair in pairs for one in self._by_label.get((namespace, *pair), ()) if one[1].covers(pod)]
        return [state for _, state in sorted(found, key=lambda one: one[0])]

    def named(self, key: str) -> BudgetState | None:
        """The budget NAMESPACE/NAME."""
        return next((state for state in self.states if state.key == key), None)


def budgets_of(pod: Object, states: Sequence[BudgetState]) -> list[BudgetState]:
    """The budgets that select a pod. More than one: the API server refuses to evict it."""
    return states.of(pod) if isinstance(states, Budgets) else [state for state in states if state.covers(pod)]


def budget_states(live: DisruptionObjects, now: datetime) -> Budgets:
    """The state of each budget of `live`. `now`: the control plane's time with its zone; evictions that were allowed longer ago than
    DELETION_TIMEOUT do not count any more.

    `live` must have all pods of the budgets' namespaces, and their owners.
    """
    pods: dict[tuple[str, str, str], list[Object]] = {}
    for pod in live.of("Pod") if live.of(PDB) else ():
        namespace = namespace_and_name(pod)[0]
        for pair in (("", ""), *labels_of(pod).items()):
            pods.setdefault((namespace, *pair), []).append(pod)
    found = [_state(budget, pods, live, now) for budget in live.of(PDB)]
    return Budgets(tuple(sorted(found, key=lambda state: (state.namespace, state.name))))


def counts_scales(budget: Object) -> bool:
    """The budget's expectedPods is the sum of the scales of its pods' controllers: it has maxUnavailable, or minAvailable in percent."""
    rule = _rule(budget)
    return rule is not None and (rule[0] == "maxUnavailable" or isinstance(rule[1], str))


def _state(budget: Object, pods: Mapping[tuple[str, str, str], Sequence[Object]], live: DisruptionObjects, now: datetime) -> BudgetState:
    """`pods` by namespace and one label, all of a namespace without one."""
    selector = label_selector(spec_of(budget).get("selector"))
    namespace = namespace_and_name(budget)[0]
    candidates = (pods.get((namespace, *pair), ()) for pair in (("", ""), *selector.pairs))
    matched = tuple(pod for pod in min(candidates, key=len) if selector.matches(labels_of(pod)))
    status = read_status(budget)
    controllers, alone, unscaled = _controllers(matched, live)
    rule = _rule(budget)
    by_scale = counts_scales(budget)
    unmanaged = tuple(namespace_and_name(pod)[1] for pod in matched if owner_ref(pod) is None) if by_scale else ()
    attainable = sum(one.replicas for one in controllers) + sum(is_alive(pod) for pod in alone)
    who = keepers(budget, matched, live), counters(controllers)
    problem: Unscaled | None = Unscaled(selector.problem, lasts=True) if selector.problem else unscaled if by_scale else None
    expected = desired = 0
    try:
        expected, desired = _wanted(rule, len(matched), sum(one.replicas for one in controllers))
    except ValueError as error:
        problem = problem or Unscaled(str(error), lasts=True)
    if problem is not None:
        # failSafe writes 0 and the condition; all other numbers stay, and so does observedGeneration.
        old = status.numbers
        kept = Numbers(old.expected_pods, old.desired_healthy, old.current_healthy, 0, old.disrupted)
        text = str(problem)
        return BudgetState(
            budget, selector, matched, old if problem.unread else kept, status, "" if problem.unread else text, problem.lasts,
            text if problem.unread else "", unmanaged, controllers, attainable, *who,
        )  # fmt: skip
    disrupted = _disrupted(matched, status.numbers.disrupted, now)
    leaving = {name for name, at in disrupted.items() if at + DELETION_TIMEOUT > now}
    healthy = sum(is_ready(pod) and not is_ending(pod) and namespace_and_name(pod)[1] not in leaving for pod in matched)
    allowed = max(0, healthy - desired) if expected > 0 else 0
    numbers = Numbers(expected, desired, healthy, allowed, disrupted)
    return BudgetState(budget, selector, matched, numbers, status, "", False, "", unmanaged, controllers, attainable, *who)


def _wanted(rule: tuple[str, int | str] | None, matched: int, scale: int) -> tuple[int, int]:
    """expectedPods and desiredHealthy (getExpectedPodCount)."""
    if rule is None:
        return 0, 0
    name, value = rule
    if name == "maxUnavailable":
        return scale, max(0, scale - scaled(value, scale, up=True))
    # A number counts the pods that there are, whoever created them; a percentage counts the pods that there should be.
    return (matched, value) if isinstance(value, int) else (scale, scaled(value, scale, up=True))


def _controllers(pods: Sequence[Object], live: DisruptionObjects) -> tuple[tuple[Controller, ...], list[Object], Unscaled | None]:
    """The controllers that scale the pods, the pods that nothing scales, and the first error of these."""
    found: dict[str, Controller] = {}
    alone: list[Object] = []
    first: Unscaled | None = None
    for pod in pods:
        try:
            one = live.controller_of(pod)
        except Unscaled as error:
            first = first if first is not None and not first.unread else error
            alone.append(pod)
            continue
        if one is None:
            alone.append(pod)
        else:
            found[one.uid] = one
    return tuple(found.values()), alone, first


def _disrupted(pods: Sequence[Object], noted: Mapping[str, datetime], now: datetime) -> dict[str, datetime]:
    """The pods whose eviction was allowed and is still noted (buildDisruptedPodMap). At the very end of that time a pod is noted, and
    counts as healthy again (countHealthyPods)."""
    names = {namespace_and_name(pod)[1] for pod in pods if not is_ending(pod)} if noted else ()
    return {name: at for name, at in noted.items() if name in names and at + DELETION_TIMEOUT >= now}


def _rule(budget: Object) -> tuple[str, int | str] | None:
    spec = spec_of(budget)
    for name in ("maxUnavailable", "minAvailable"):
        if spec.get(name) is not None:
            value = spec[name]
            return name, value if isinstance(value, int) else str(value)
    return None


def read_status(budget: Object) -> BudgetStatus:
    """The status of a budget; zeros if it has none yet."""
    status = status_of(budget)
    # A time that is none (null) is long ago for the controller: the zero of metav1.Time.
    disrupted = {str(name): moment(at) or EARLIEST for name, at in (status.get("disruptedPods") or {}).items()}
    keys = ("expectedPods", "desiredHealthy", "currentHealthy", "disruptionsAllowed")
    expected, desired, current, allowed = (int(status.get(key) or 0) for key in keys)
    allowed_by = condition(budget, "DisruptionAllowed")
    return BudgetStatus(
        Numbers(expected, desired, current, allowed, disrupted),
        int(status.get("observedGeneration") or 0),
        str(allowed_by.get("reason") or ""),
        str(allowed_by.get("message") or ""),
    )
