"""The cluster's PriorityClasses as a table."""

from __future__ import annotations

from roles.priority_classes import ObservedClasses, rows


def test_the_highest_first_with_users_as_counts() -> None:
    def item(name: str, **fields: object) -> dict[str, object]:
        return {"metadata": {"name": name}, **fields}

    pod = {"metadata": {"name": "a", "namespace": "shop"}, "spec": {"priorityClassName": "web"}}
    classes = {"batch": item("batch", value=-10, preemptionPolicy="Never", globalDefault=True), "web": item("web", value=1000)}
    assert rows(ObservedClasses(classes=classes, objects={"Pod": [pod]})) == [
        ["web", "1000", "PreemptLowerPriority", "", "0 workloads, 1 pod", "-"],
        ["batch", "-10", "Never", "yes", "-", "-"],
    ]
