"""The desired objects compared with those of the cluster."""

from __future__ import annotations

from typing import Any

import pytest

from roles.engine.kube.workloads import ObservedObjects
from roles.priority_classes import unmet_class, unmet_workload
from tests.unit.priority_classes.world import applied, priority_class, wanted, workload


@pytest.mark.parametrize(
    ("data", "found", "message"),
    [
        ({"value": 5}, priority_class("web", 5), None),
        ({"value": 5}, None, "web: does not exist"),
        ({"value": 5}, priority_class("web", 7), "web: value differs (it is 7, wanted 5)"),
        ({"value": 5, "description": "x"}, priority_class("web", 7), "web: value, description differ (it is 7, wanted 5)"),
        # A field that only daytwo had set, and that is no longer in the data; and one that others set.
        ({"value": 5}, priority_class("web", 5, description="x"), "web: description differs"),
        ({"value": 5}, priority_class("web", 5, "helm", description="x"), None),
    ],
)
def test_a_class(data: dict[str, Any], found: dict[str, Any] | None, message: str | None) -> None:
    (item,) = wanted(priority_classes={"web": data}).classes
    unmet = unmet_class(item, found)
    assert (str(unmet) if unmet else None) == message


def test_a_class_that_was_just_applied_is_as_wanted() -> None:
    (item,) = wanted(priority_classes={"web": {"value": 5, "description": "x", "globalDefault": True, "labels": {"a": "b"}}}).classes
    assert unmet_class(item, applied(item)) is None


@pytest.mark.parametrize(
    ("has", "message"),
    [
        ("web", None),
        ("", "default/deployment/shop: its class is none, wanted web"),
        ("batch", "default/deployment/shop: its class is batch, wanted web"),
        (None, "default/deployment/shop: does not exist"),
    ],
)
def test_a_workload(has: str | None, message: str | None) -> None:
    (item,) = wanted(workloads={"default/deployment/shop": "web"}).workloads
    there = [] if has is None else [workload("Deployment", "shop", has)]
    unmet = unmet_workload(item, ObservedObjects({"Deployment": there}))
    assert (str(unmet) if unmet else None) == message
