"""Who keeps a budget: the controllers that change, fill or remove it without anybody. Pure.

A budget that allows nothing stays so for good only if nothing but a person can change it. Storage engines, virtual machines and databases
write budgets of their own: they forbid an eviction while data moves, and allow it when it has moved. docs/disruption.md has the table.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from roles.engine.disruption.owners import Controller, DisruptionObjects
from roles.engine.harmless import one_line
from roles.engine.kube import Object, OwnerRef, owner_ref, owner_refs
from roles.engine.kube.field_managers import controllers_of, managers
from roles.engine.kube.pods import is_alive
from roles.engine.kube.workloads import is_known

#: Kinds of Kubernetes itself, beside those that create pods: their controllers change no budget, and daytwo knows what they do with pods.
_KNOWN = ("Node", "Pod", "ConfigMap", "Secret", "Namespace", "Service", "ServiceAccount")
_DECIDING = ("f:maxUnavailable", "f:minAvailable")
_LONGEST = 253
#: It sets the replicas for an autoscaler, which the rules about autoscalers know.
_AUTOSCALERS = "kube-controller-manager"


class Keeps(Enum):
    """What makes somebody the keeper of a budget."""

    OWNER = "owns it"
    MANAGER = "writes its spec"
    PODS = "creates its pods, as a kind that Kubernetes does not have"
    COUNT = "decides how many of its pods there are"


@dataclass(frozen=True)
class Keeper:
    """`who`: KIND NAMESPACE/NAME, or the name of a field manager; `look`: what to look at."""

    how: Keeps
    who: str
    look: str

    def __str__(self) -> str:
        return f"{self.who} {self.how.value} ({self.look})"


def keepers(budget: Object, pods: Collection[Object], live: DisruptionObjects) -> tuple[Keeper, ...]:
    """Who changes or removes a budget, or decides what becomes of its pods: its owners, the controllers that write its spec, and owners of
    its pods that are no kinds of Kubernetes. `pods`: those that it selects."""
    return tuple(dict.fromkeys((*_owners(budget), *_managers(budget), *_of_pods(pods, live))))


def counters(controllers: Iterable[Controller]) -> tuple[Keeper, ...]:
    """Who decides about the number of replicas of workloads, beside people and autoscalers."""
    found: dict[Keeper, None] = {}
    for one in controllers:
        item = one.found or {"metadata": {}}
        ref = owner_ref(item) if one.found is not None else None
        if ref is not None and not _is_known(ref):
            found[_by_owner(Keeps.COUNT, ref)] = None
        for name in controllers_of(item, "f:spec", "f:replicas"):
            if name != _AUTOSCALERS:
                found[_by_manager(Keeps.COUNT, name)] = None
    return tuple(found)


def _owners(budget: Object) -> Iterator[Keeper]:
    """Also owners that are no controllers: an operator that sets one removes the budget with it, and writes it."""
    return (_by_owner(Keeps.OWNER, ref) for ref in owner_refs(budget) if not _is_known(ref))


def _managers(budget: Object) -> Iterator[Keeper]:
    """Of the fields that decide; of the whole spec if nobody is noted for these."""
    noted = [field for field in _DECIDING if managers(budget, "f:spec", field)]
    found = [name for field in noted for name in controllers_of(budget, "f:spec", field)] if noted else controllers_of(budget, "f:spec")
    return (_by_manager(Keeps.MANAGER, name) for name in found)


def _of_pods(pods: Iterable[Object], live: DisruptionObjects) -> Iterator[Keeper]:
    for pod in pods:
        ref = None if not is_alive(pod) else live.creator(pod)
        if ref is not None and not _is_known(ref):
            yield _by_owner(Keeps.PODS, ref)


def _is_known(ref: OwnerRef) -> bool:
    return is_known(ref) or (not ref.group and ref.kind in _KNOWN)


def _by_owner(how: Keeps, ref: OwnerRef) -> Keeper:
    """Whoever may create a pod or a budget writes these names: they are cut, and quoted in the command."""
    kind, name = (f"{ref.kind.lower()}.{ref.group}" if ref.group else ref.kind.lower())[:_LONGEST], ref.name[:_LONGEST]
    look = shlex.join(["kubectl", "describe", kind, name, "-n", ref.namespace])
    return Keeper(how, one_line(f"{ref.kind[:_LONGEST]} {ref.namespace}/{name}"), one_line(look))


def _by_manager(how: Keeps, name: str) -> Keeper:
    return Keeper(how, f"the field manager {one_line(name[:_LONGEST])}", "see the log of that controller")
