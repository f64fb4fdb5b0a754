"""Pods that a selector matches by accident: they belong to another controller than the workload that is meant. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from roles.engine.disruption.budgets import BudgetState
from roles.engine.disruption.owners import DisruptionObjects, Unscaled
from roles.engine.kube import Object, OwnerRef, namespace_and_name, owner_ref
from roles.engine.kube.pods import is_over


@dataclass(frozen=True)
class Stray:
    """A pod that a selector matches and that the workload does not control. `owner`: its controller; None: it has none."""

    pod: Object
    owner: OwnerRef | None

    @property
    def name(self) -> str:
        return namespace_and_name(self.pod)[1]

    @property
    def whose(self) -> str:
        """Its controller, or the pod itself."""
        return str(self.owner) if self.owner else f"Pod {'/'.join(namespace_and_name(self.pod))}"

    @property
    def labels_elsewhere(self) -> str:
        """How its owner keeps it away from the selector."""
        if self.owner is None:
            return f"give {self.whose} other labels, or delete it"
        over = "; a finished pod can be deleted (ttlSecondsAfterFinished does that)" if is_over(self.pod) else ""
        return f"give the pods of {self.whose} other labels{over}"


def by_owner(strays: Iterable[Stray]) -> dict[str, list[Stray]]:
    found: dict[str, list[Stray]] = {}
    for one in strays:
        found.setdefault(one.whose, []).append(one)
    return found


def strays_of(state: BudgetState, live: DisruptionObjects) -> list[Stray]:
    """The pods of a budget whose owner has no scale (those of Jobs and DaemonSets), or that have no owner, beside those of scaled
    workloads. None of a budget whose pods are all of that kind: it is meant for them."""
    if not state.controllers:
        return []
    return [Stray(pod, owner_ref(pod)) for pod in state.pods if not _may_be_scaled(pod, live)]


def _may_be_scaled(pod: Object, live: DisruptionObjects) -> bool:
    try:
        return live.controller_of(pod) is not None
    except Unscaled as error:
        return not error.lasts


def strays_text(strays: Iterable[Stray]) -> tuple[str, str]:
    """Which pods a budget selects by accident, with their owners, and how they leave it; ("", "") without any."""
    whose = by_owner(strays)
    names = ", ".join(f"{one.name} ({owner if one.owner else 'no controller'})" for owner, found in whose.items() for one in found[:1])
    more = sum(len(found) - 1 for found in whose.values())
    if not whose:
        return "", ""
    why = f"it also selects {names}{f' and {more} more of the same owners' if more else ''}"
    out = "; ".join(dict.fromkeys(found[0].labels_elsewhere for found in whose.values()))
    return why, f"{out}; or give the budget a narrower selector"
