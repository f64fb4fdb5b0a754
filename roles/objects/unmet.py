"""Pure: the objects that are wanted, held against the cluster's. For looking, without a plan."""

from __future__ import annotations

from collections.abc import Mapping

from roles.objects import live as facts
from roles.objects.live import Live, Object
from roles.objects.model import Desired
from roles.objects.plan import differences


def unmet_classes(desired: Desired, classes: Mapping[str, Object]) -> list[str]:
    """Why the cluster's PriorityClasses are not as declared; [] where they are."""
    problems = []
    for item in desired.priority_classes or ():
        found = classes.get(item.name)
        if found is None:
            problems.append(f"{item.name}: there is none")
        elif differ := differences(item, found):
            value = f" (it is {facts.value_of(found)}, wanted {item.value})" if "value" in differ else ""
            problems.append(f"{item.name}: {', '.join(differ)} {'differs' if len(differ) == 1 else 'differ'}{value}")
    return problems


def unmet_workloads(desired: Desired, live: Live) -> list[str]:
    """Which workloads do not have the class that is declared for them; [] where all have."""
    problems = []
    for item in desired.workloads:
        found = live.find(item.kind, item.namespace, item.name)
        if found is None:
            problems.append(f"{item.key}: there is none")
        elif (has := facts.class_of(item.kind, found)) != item.priority_class:
            problems.append(f"{item.key}: its class is {has or 'none'}, wanted {item.priority_class}")
    return problems
