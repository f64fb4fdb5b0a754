"""Compares the desired objects with those of the cluster. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from roles.engine.object_changes import Object, api_object
from roles.priority_classes import class_facts
from roles.priority_classes.class_facts import ObservedClasses
from roles.priority_classes.model import PREEMPTS, PriorityClass, Workload


@dataclass(frozen=True)
class UnmetClass:
    """A PriorityClass that differs from the data. `fields`: those that differ, empty if the class does not exist; `value`: its current
    number."""

    wanted: PriorityClass
    fields: tuple[str, ...] = ()
    value: int = 0

    def __str__(self) -> str:
        if not self.fields:
            return f"{self.wanted.name}: does not exist"
        value = f" (it is {self.value}, wanted {self.wanted.value})" if "value" in self.fields else ""
        return f"{self.wanted.name}: {', '.join(self.fields)} {'differs' if len(self.fields) == 1 else 'differ'}{value}"


@dataclass(frozen=True)
class UnmetWorkload:
    """A workload that does not have the wanted class. `has`: its class now ("": none); None if the workload does not exist."""

    wanted: Workload
    has: str | None

    def __str__(self) -> str:
        if self.has is None:
            return f"{self.wanted.key}: does not exist"
        return f"{self.wanted.key}: its class is {self.has or 'none'}, wanted {self.wanted.priority_class}"


def unmet_class(item: PriorityClass, found: Object | None) -> UnmetClass | None:
    """How the class differs from the data; None if it does not."""
    if found is None:
        return UnmetClass(item)
    differ = _differences(item, found)
    return UnmetClass(item, tuple(differ), class_facts.value_of(found)) if differ else None


def unmet_workload(item: Workload, live: ObservedClasses) -> UnmetWorkload | None:
    """How the workload differs from the data; None if it does not."""
    found = live.find(item.kind, item.namespace, item.name)
    has = None if found is None else api_object.class_of(item.kind, found)
    return None if has == item.priority_class else UnmetWorkload(item, has)


def _differences(item: PriorityClass, found: Object) -> list[str]:
    """The fields in which a class differs from the data, including fields that daytwo set before and that are no longer in the data."""
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
        now = found["metadata"].get(key) or {}
        dropped = [name for name in now if name not in wanted and api_object.only_ours(found, "f:metadata", f"f:{key}", f"f:{name}")]
        if dropped or any(now.get(name) != value for name, value in wanted.items()):
            changed.append(key)
    return changed


def wanted_policy(item: PriorityClass, found: Object) -> str:
    """The preemptionPolicy after an apply: if the data does not set it, it returns to the default if only daytwo had set it."""
    if item.preemption_policy is not None:
        return item.preemption_policy
    return PREEMPTS if api_object.only_ours(found, "f:preemptionPolicy") else class_facts.policy_of(found)


def immutable(item: PriorityClass, found: Object) -> list[str]:
    """The required changes that the API does not allow (ValidatePriorityClassUpdate)."""
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
        return False  # it is recreated from the data only
    return found is not None and class_facts.is_default(found) and not api_object.only_ours(found, "f:globalDefault")
