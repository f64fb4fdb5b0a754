"""Pure: the objects that are wanted, held against the cluster's."""

from __future__ import annotations

from dataclasses import dataclass

from roles.engine.object_changes import Object, api_object
from roles.priority_classes import class_facts
from roles.priority_classes.class_facts import LiveClasses
from roles.priority_classes.model import PREEMPTS, PriorityClass, Workload


@dataclass(frozen=True)
class UnmetClass:
    """A PriorityClass that is not as declared. `fields`: those that differ, none where there is no such class; `value`: the number that
    it has."""

    wanted: PriorityClass
    fields: tuple[str, ...] = ()
    value: int = 0

    def __str__(self) -> str:
        if not self.fields:
            return f"{self.wanted.name}: there is none"
        value = f" (it is {self.value}, wanted {self.wanted.value})" if "value" in self.fields else ""
        return f"{self.wanted.name}: {', '.join(self.fields)} {'differs' if len(self.fields) == 1 else 'differ'}{value}"


@dataclass(frozen=True)
class UnmetWorkload:
    """A workload that does not have its class. `has`: the one that it has ("": none); None where there is no such workload."""

    wanted: Workload
    has: str | None

    def __str__(self) -> str:
        if self.has is None:
            return f"{self.wanted.key}: there is none"
        return f"{self.wanted.key}: its class is {self.has or 'none'}, wanted {self.wanted.priority_class}"


def unmet_class(item: PriorityClass, found: Object | None) -> UnmetClass | None:
    """What the cluster has otherwise; None where it is as wanted."""
    if found is None:
        return UnmetClass(item)
    differ = _differences(item, found)
    return UnmetClass(item, tuple(differ), class_facts.value_of(found)) if differ else None


def unmet_workload(item: Workload, live: LiveClasses) -> UnmetWorkload | None:
    """What the cluster has otherwise; None where it is as wanted."""
    found = live.find(item.kind, item.namespace, item.name)
    has = None if found is None else api_object.class_of(item.kind, found)
    return None if has == item.priority_class else UnmetWorkload(item, has)


def _differences(item: PriorityClass, found: Object) -> list[str]:
    """The fields in which a class differs from what is wanted, those that daytwo set before and that are wanted no more included."""
    changed = []
    if class_facts.value_of(found) != item.value:
        changed.append("value")
    if class_facts.policy_of(found) != wanted_policy(item, found):
        changed.append("preemptionPolicy")
    if item.description is not None:
        changed += ["description"] if (found.get("description") or "") != item.description else []
    elif found.get("description") and api_object.only_ours(found, "f:description"):
        changed.append("description")
    if default_after(item, found) != class_facts.is_default(found):
        changed.append("globalDefault")
    for key, wanted in (("labels", item.labels), ("annotations", item.annotations)):
        there = found["metadata"].get(key) or {}
        gone = [name for name in there if name not in wanted and api_object.only_ours(found, "f:metadata", f"f:{key}", f"f:{name}")]
        if gone or any(there.get(name) != value for name, value in wanted.items()):
            changed.append(key)
    return changed


def wanted_policy(item: PriorityClass, found: Object) -> str:
    """What preemptionPolicy comes to by an apply: left out of the data it goes back to the default where daytwo alone had set it."""
    if item.preemption_policy is not None:
        return item.preemption_policy
    return PREEMPTS if api_object.only_ours(found, "f:preemptionPolicy") else class_facts.policy_of(found)


def immutable(item: PriorityClass, found: Object) -> list[str]:
    """The changes of a class that the API does not allow (ValidatePriorityClassUpdate)."""
    changes = []
    if class_facts.value_of(found) != item.value:
        changes.append(f"value is {class_facts.value_of(found)} and cannot become {item.value}")
    if class_facts.policy_of(found) != wanted_policy(item, found):
        changes.append(f"preemptionPolicy is {class_facts.policy_of(found)} and cannot become {wanted_policy(item, found)}")
    return changes


def default_after(item: PriorityClass, found: Object | None) -> bool:
    """Whether a class is the globalDefault once it is applied."""
    if item.global_default is not None:
        return item.global_default
    if found is not None and immutable(item, found):
        return False  # recreated from the data alone
    return found is not None and class_facts.is_default(found) and not api_object.only_ours(found, "f:globalDefault")
