"""Compares the desired objects with those of the cluster. Pure."""

from __future__ import annotations

from roles.engine.findings import Unmet
from roles.engine.kube import Object, workloads
from roles.engine.objects import changed
from roles.priority_classes import class_facts
from roles.priority_classes.class_facts import ObservedClasses
from roles.priority_classes.model import CLASS, DEFAULT, POLICY, VALUE, PriorityClass, Workload


def unmet_class(item: PriorityClass, found: Object | None) -> Unmet | None:
    """How the class differs from the data; None if it does not."""
    if found is None:
        return Unmet(item.name, why="does not exist")
    differ = _differences(item, found)
    value = f" (it is {class_facts.value_of(found)}, wanted {item.value})" if "value" in differ else ""
    return Unmet(item.name, tuple(differ), value) if differ else None


def unmet_workload(item: Workload, live: ObservedClasses) -> Unmet | None:
    """How the workload differs from the data; None if it does not."""
    found = live.find(item.kind, item.namespace, item.name)
    has = None if found is None else workloads.class_of(item.kind, found)
    why = "does not exist" if has is None else f"its class is {has or 'none'}, wanted {item.priority_class}"
    return None if has == item.priority_class else Unmet(item.key, why=why)


def _differences(item: PriorityClass, found: Object) -> list[str]:
    """The fields in which a class differs from the data, including fields that daytwo set before and that are no longer in the data."""
    differ = [one.path for one in changed(CLASS.values(found), CLASS.after_apply(item.manifest(), found))]
    names = {path[1] if path[0] == "metadata" else path[0] for path in differ}
    return [name for name in ("value", "preemptionPolicy", "description", "globalDefault", *CLASS.maps) if name in names]


def immutable(item: PriorityClass, found: Object) -> list[str]:
    """The required changes that the API does not allow (ValidatePriorityClassUpdate)."""
    now, then = CLASS.values(found), CLASS.after_apply(item.manifest(), found)
    differ = (path for path in (VALUE, POLICY) if now[path] != then[path])
    return [f"{path[0]} is {now[path]} and cannot become {then[path]}" for path in differ]


def default_after(item: PriorityClass, found: Object | None) -> bool:
    """Whether a class is the globalDefault once it is applied."""
    if found is None or immutable(item, found):
        return bool(item.global_default)  # it is created from the data only
    return DEFAULT in CLASS.after_apply(item.manifest(), found)
