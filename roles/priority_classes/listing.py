"""The cluster's PriorityClasses as a table. Pure."""

from __future__ import annotations

from roles.engine.folding import counted
from roles.priority_classes.class_facts import ObservedClasses, is_default, policy_of, value_of
from roles.priority_classes.model import CLASS, VALUE

HEADERS = ("class", "value", "preemption policy", "default", "used by", "managers")


def rows(live: ObservedClasses) -> list[list[str]]:
    """One for each class, the highest value first; `managers`: who owns the value."""
    found = []
    for name, item in sorted(live.classes.items(), key=lambda pair: (-value_of(pair[1]), pair[0])):
        users = live.users(name)
        used = f"{counted(len(users.workloads), 'workload')}, {counted(len(users.pods), 'pod')}" if users.any else "-"
        managers = ", ".join(CLASS.owners(item, VALUE)) or "-"
        found.append([name, str(value_of(item)), policy_of(item), "yes" if is_default(item) else "", used, managers])
    return found
