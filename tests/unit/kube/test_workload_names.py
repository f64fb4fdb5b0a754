"""One way to name a workload, for every key that names one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from roles.autoscalers import DesiredAutoscalers
from roles.disruption_budgets import DesiredBudgets
from roles.engine.inputs import read_common
from roles.engine.kube.names import named_alike, not_one_of, whole_name, workload_name
from roles.engine.outage import DrainConsents
from roles.engine.transaction import Refusal
from roles.pod_resize import DesiredResources
from roles.priority_classes import DesiredClasses
from roles.restart import RestartOptions
from roles.right_size import RightSizeOptions

FORMS = ("shop/deployment/web", "shop/Deployment/web", "shop/deployments/web", "shop/deploy/web", "shop/DEPLOY/web")
#: How a model reads a name, by its key: the result is the same for every form.
READS: dict[str, Callable[[str], Any]] = {
    "restart": lambda name: RestartOptions(restart=name).restart,
    "right_size only_objects": lambda name: RightSizeOptions(only_objects=name).only_objects,
    "workload": lambda name: DesiredResources(workload=name).workload,
    "deployment": lambda name: DesiredResources(deployment=name).deployment,
    "surge": lambda name: DrainConsents(surge=name).surge,
    "workloads": lambda name: DesiredClasses(workloads={name: "high"}).workloads,
    "autoscalers": lambda name: DesiredAutoscalers(autoscalers={name: "absent"}).autoscalers,
    "vertical_autoscalers": lambda name: DesiredAutoscalers(vertical_autoscalers={name: "absent"}).vertical_autoscalers,
    "disruption_budgets": lambda name: (
        DesiredBudgets(disruption_budgets={"shop/web": {"workload": name, "max_unavailable": 1}}).disruption_budgets
    ),
}


def exists(*there: str) -> Callable[[str, str, str], bool]:
    return lambda kind, namespace, name: f"{namespace}/{kind}/{name}" in there


@pytest.mark.parametrize("key", READS)
def test_every_key_reads_every_form(key: str) -> None:
    assert len({repr(READS[key](form)) for form in FORMS}) == 1
    assert READS[key]("shop/web")  # without its kind, too


@pytest.mark.parametrize("key", [one for one in READS if one != "disruption_budgets"])
@pytest.mark.parametrize(
    "wrong", ["web", "deploy/web", "shop/depoly/web", "shop/deployment/web/x", "Shop/deployment/web", "shop/deploy/We_b"]
)
def test_every_key_refuses_what_is_no_name(key: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=r"NAMESPACE/KIND/NAME|is not one of|not a valid"):
        READS[key](wrong)


def test_a_name_without_its_namespace_has_one_in_the_way_out() -> None:
    with pytest.raises(ValueError, match="'sts/db' has no namespace; write NAMESPACE/KIND/NAME, such as shop/sts/db"):
        workload_name("sts/db")
    assert workload_name("deploy/sts/db") == "deploy/StatefulSet/db"  # a namespace may have the name of a kind


def test_a_name_without_its_kind_means_the_one_that_is_there() -> None:
    both = exists("shop/Deployment/web", "shop/StatefulSet/web", "shop/DaemonSet/log")
    assert whole_name("shop/log", both) == "shop/DaemonSet/log"
    assert whole_name("shop/Deployment/gone", both) == "shop/Deployment/gone"
    assert whole_name("shop/web", both, ["StatefulSet"]) == "shop/StatefulSet/web"
    with pytest.raises(ValueError, match="is Deployment and StatefulSet; write shop/deployment/web or shop/statefulset/web"):
        whole_name("shop/web", both)
    with pytest.raises(ValueError, match="shop/db does not exist"):
        whole_name("shop/db", both)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("shop/web", "shop/deployment/web", True),
        ("shop/deploy/web", "shop/Deployment/web", True),
        ("shop/sts/web", "shop/deployment/web", False),
        ("shop/web", "blog/deployment/web", False),
        ("web", "web", True),
        ("web", "shop/web", False),
    ],
)
def test_names_that_can_mean_the_same(one: str, other: str, same: bool) -> None:
    assert named_alike(one, other) is named_alike(other, one) is same


def test_a_choice_that_is_none_or_several() -> None:
    known = ["shop/deployment/web", "shop/statefulset/web", "high"]
    assert not_one_of("shop/sts/web", known, "no entry") == not_one_of("high", known, "no entry") == ""
    assert "shop/deployment/web and shop/statefulset/web; write one" in not_one_of("shop/web", known, "no entry")
    assert "'hihg' is no entry of the data, did you mean 'high'?" in not_one_of("hihg", known, "no entry")


def test_desired_state_is_settled_with_its_kinds() -> None:
    there = exists("shop/StatefulSet/db", "shop/Deployment/web")
    scaled = DesiredAutoscalers(autoscalers={"shop/web": {"max": 3, "cpu": "60%"}, "shop/gone": "absent"}).settled(there)
    assert [one.kind for one in scaled.every] == ["Deployment", ""] and scaled.every[0].manifest()["scaleTargetRef"]["kind"] == "Deployment"
    classes = DesiredClasses(workloads={"shop/db": "high"}).settled(there)
    assert [one.key for one in classes.workloads] == ["shop/statefulset/db"]
    resources = DesiredResources(workload="shop/db", cpu="1").settled(there)
    assert (resources.kind, resources.place) == ("StatefulSet", ("shop", "db")) and resources.path.endswith("/shop/statefulsets/db")
    with pytest.raises(ValueError, match="shop/statefulset/db is given 2 times"):
        DesiredClasses(workloads={"shop/db": "high", "shop/sts/db": "low"}).settled(there)


def test_a_budget_protects_pods_of_its_own_namespace() -> None:
    data = {"disruption_budgets": {"shop/web": {"workload": "blog/deploy/web", "max_unavailable": 1}}}
    with pytest.raises(Refusal, match="'blog/deploy/web' is in another namespace"):
        read_common([("cp1", data.get)], DesiredBudgets, "")
