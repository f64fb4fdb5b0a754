"""The order of evictions, and the waves: pods that leave at the same time without going below a budget. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from roles.engine.disruption import BudgetState, budgets_of
from roles.engine.kube import Object, is_ready
from roles.engine.kube.fields import spec_of, volumes_of
from roles.engine.objects import workload_rollout
from roles.engine.outage.model import BudgetShare, PodFate
from roles.engine.outage.workloads import own_limit

_PRIORITY_OF_STORAGE = ("system-node-critical",)


def has_storage(pod: Object) -> bool:
    """A claimed volume must follow the pod. (Generic ephemeral volumes are new with each pod.)"""
    volumes = volumes_of(pod)
    return any("persistentVolumeClaim" in volume for volume in volumes)


def serves_storage(pod: Object) -> bool:
    """It shares mounts with its node, as drivers of volumes do, or has the highest priority: others may need it to release a volume."""
    spec: Mapping[str, Any] = spec_of(pod)
    mounts = [mount for container in spec.get("containers") or () for mount in container.get("volumeMounts") or ()]
    return spec.get("priorityClassName") in _PRIORITY_OF_STORAGE or any(
        mount.get("mountPropagation") == "Bidirectional" for mount in mounts
    )


def rank(one: PodFate) -> tuple[int, int]:
    """Pods of a lower rank are gone, and replaced, before the first of a higher rank leaves: storage last, and by priority. Pods that a
    controller lets go in its own time, or that wait for a place, come after those that it may wait for."""
    if one.kept or one.waits:
        return (4 if serves_storage(one.pod) else 2, 0)
    return (3 if serves_storage(one.pod) else 1 if one.storage else 0, one.priority)


def in_order(pods: Iterable[PodFate]) -> list[PodFate]:
    """By rank; then the cheapest to move first: pods that do not serve, workloads with several pods, short grace periods."""

    def cost(one: PodFate) -> tuple[object, ...]:
        single = one.workload is not None and one.workload.replicas == 1
        return (*rank(one), is_ready(one.pod), single, workload_rollout.grace(one.pod), one.name, one.uid)

    return sorted(pods, key=cost)


def cut(pods: Iterable[PodFate], states: Sequence[BudgetState]) -> tuple[tuple[PodFate, ...], ...]:
    """The waves: each pod in the first one that has room, in order; pods that leave together as one, with the last of them.

    A wave takes from each budget at most what it allows now (at least one pod, and those that leave with it: the run waits for them).
    Without a budget, the limit is that of the workload's own roll-out (`own_limit`). When the replacements are Ready, the budget allows the
    same number again.
    """
    waves: list[list[PodFate]] = []
    used: list[Counter[str]] = []
    first, last_rank = 0, None
    for unit in _units(pods):
        if (own := max(map(rank, unit))) != last_rank:
            first, last_rank = len(waves), own
        each = [_limits(one, states) for one in unit]
        limits, needs = dict(chain.from_iterable(found.items() for found in each)), Counter(chain.from_iterable(each))
        room = (index for index in range(first, len(waves)) if all(used[index][key] + needs[key] <= limits[key] for key in needs))
        place = next(room, len(waves))
        if place == len(waves):
            waves.append([])
            used.append(Counter())
        waves[place] += unit
        used[place] += needs
    return tuple(tuple(wave) for wave in waves)


def _units(pods: Iterable[PodFate]) -> list[list[PodFate]]:
    """Pods that leave together, or one alone; in the order of their highest rank."""
    units: dict[frozenset[str], list[PodFate]] = {}
    for one in in_order(pods):
        units.setdefault(one.together or frozenset((one.uid,)), []).append(one)
    return sorted(units.values(), key=lambda unit: max(map(rank, unit)))


def _limits(one: PodFate, states: Sequence[BudgetState]) -> dict[str, int]:
    """How many pods may leave in one wave, by budget or workload."""
    found = {state.key: max(1, state.disruptions_allowed) for state in budgets_of(one.pod, states) if state.is_healthy(one.pod)}
    if not found and one.workload is not None and one.workload.counted:
        return {one.workload.uid: own_limit(one.workload)}
    return found


def shares(
    pods: Sequence[PodFate], waves: Sequence[Sequence[PodFate]], states: Sequence[BudgetState]
) -> tuple[BudgetShare, ...]:  # fmt: skip
    """The sum over all nodes, for each budget with pods that leave."""
    leaving, in_waves = by_budget(one for one in pods if one.leaves), [by_budget(wave) for wave in waves]
    found = []
    for state in states:
        key = state.key
        if key not in leaving:
            continue
        by_node = dict(Counter(one.node for one in leaving[key]))
        counts = tuple(len(wave[key]) for wave in in_waves if key in wave)
        surged = sum(one.fate == "surged" for one in leaving[key])
        healthy = state.numbers.current_healthy
        found.append(BudgetShare(key, by_node, state.disruptions_allowed, counts, state.why, surged, healthy))
    return tuple(found)


def by_budget(pods: Iterable[PodFate]) -> dict[str, list[PodFate]]:
    """The pods of each budget that has some, by NAMESPACE/NAME."""
    found: dict[str, list[PodFate]] = {}
    for one in pods:
        for key in one.budgets:
            found.setdefault(key, []).append(one)
    return found
