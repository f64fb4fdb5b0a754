"""The plan of a run on budgets, and of its undo."""

from __future__ import annotations

from typing import Any

import pytest

from roles.disruption_budgets import BUDGET, plan_budgets, plan_undo, read_budgets
from roles.engine.objects import ObjectPlan, changed
from roles.engine.transaction import ChangedField, ChangedObject, ObjectsRecord
from tests.unit.disruption.world import NOW, budget, deployment, hpa, of_status, owned, pod, workload, world

WEB = {"workload": "deployment/web", "max_unavailable": 1}


def shop(*items: dict[str, Any], replicas: int = 3) -> list[dict[str, Any]]:
    """A Deployment with its selector, and more."""
    found = deployment(replicas, replicas)
    found[0]["spec"]["selector"] = {"matchLabels": {"app": "web"}}
    return [*found, *items]


def plan(value: Any, *items: dict[str, Any], **data: Any) -> ObjectPlan:
    desired = read_budgets([("cp1", {"disruption_budgets": value, **data}.get)])
    assert desired is not None
    return plan_budgets(desired, world(*items), NOW)


def test_create_says_what_it_allows_and_blocks() -> None:
    found = plan({"shop/web": WEB}, *shop())
    (one,) = found.actions
    assert (one.what, one.name, one.before) == ("create", "PodDisruptionBudget shop/web", None)
    assert one.manifest is not None and one.manifest["spec"] == {"selector": {"matchLabels": {"app": "web"}}, "maxUnavailable": 1}
    now, after, drains = one.notes
    assert now == "now: no such budget"
    assert after.startswith("after: allows 1 (maxUnavailable 1: needs 2 healthy pods of 3, has 3); selects 3 pods (app=web)")
    assert drains == "1 at a time: the drain of w1 (3 of its pods) waits for replacements in between"


def test_a_converged_plan_is_empty() -> None:
    there = owned(budget(maxUnavailable=1, status=of_status(3, 2, 3, 1)))
    found = plan({"shop/web": WEB}, *shop(there))
    assert (found.actions, found.refusals, found.unchanged) == ([], [], [("PodDisruptionBudget shop/web", "as wanted")])


def test_update_compares_now_and_after() -> None:
    there = owned(budget(maxUnavailable=0, status=of_status(3, 3, 3, 0)))
    (one,) = plan({"shop/web": WEB}, *shop(there)).actions
    assert (one.what, one.summary) == ("update", "set maxUnavailable")
    assert one.notes[0].startswith("now: allows 0 ") and one.notes[1].startswith("after: allows 1 ")


def test_a_field_that_left_the_data_is_removed_if_only_daytwo_set_it() -> None:
    spec = {"maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow"}
    assert plan({"shop/web": WEB}, *shop(owned(budget(**spec)))).actions[0].summary == "set unhealthyPodEvictionPolicy"
    assert not plan({"shop/web": WEB}, *shop(owned(budget(**spec), helm=("unhealthyPodEvictionPolicy",)))).actions


def test_from_a_minimum_to_a_maximum() -> None:
    there = budget(minAvailable=2)
    assert plan({"shop/web": WEB}, *shop(owned(there))).actions[0].summary == "set minAvailable, maxUnavailable"
    found = plan({"shop/web": WEB}, *shop(owned(there, manager="helm")))
    assert (
        not found.actions and "it has minAvailable from helm, and a budget has either minAvailable or maxUnavailable" in found.refusals[0]
    )
    (one,) = plan({"shop/web": WEB}, *shop(owned(there, manager="helm")), force=True).actions
    assert (one.drops, one.summary) == ((("spec", "minAvailable"),), "set minAvailable, maxUnavailable, which helm may set again")
    assert one.after == {("spec", "selector"): {"matchLabels": {"app": "web"}}, ("spec", "maxUnavailable"): 1}
    assert one.notes[1].startswith("after: allows 1 (maxUnavailable 1: ")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"workload": "deployment/web", "max_unavailable": 0}, "maxUnavailable 0 allows none"),
        ({"workload": "deployment/web", "min_available": 3}, "it needs 3 healthy pods, and its pods are at most 3"),
        ({"selector": {"matchLabels": {"app": "none"}}, "max_unavailable": 1}, "matches no pod"),
    ],
)
def test_warns_of_budgets_that_never_allow_an_eviction(fields: dict[str, Any], words: str) -> None:
    (one,) = plan({"shop/web": fields}, *shop()).actions
    assert any(note.startswith("WARNING: ") and words in note for note in one.notes), one.notes
    if "selector" not in fields:
        assert "never lets a drain end of w1 (3 of its pods)" in one.notes


def test_what_an_autoscaler_may_lift_blocks_only_now() -> None:
    (one,) = plan({"shop/web": {"workload": "deployment/web", "min_available": 3}}, *shop(hpa(3, 5))).actions
    assert "blocks now the drain of w1 (3 of its pods)" in one.notes


def test_refuses_what_cannot_be_computed() -> None:
    daemons = workload("DaemonSet", "agent", spec={"selector": {"matchLabels": {"app": "agent"}}})
    items = [*shop(), daemons, pod("d", daemons, app="agent")]
    found = plan({"shop/agent": {"workload": "daemonset/agent", "max_unavailable": 1}}, *items)
    assert not found.actions and "daemonsets.apps does not implement the scale subresource" in found.refusals[0]
    assert plan({"shop/agent": {"workload": "daemonset/agent", "min_available": 0}}, *items).actions


def test_refuses_two_budgets_for_a_pod_unless_consented() -> None:
    there = owned(budget("old", maxUnavailable=1), manager="helm")
    found = plan({"shop/web": WEB}, *shop(there))
    (why,) = found.refusals
    assert "PodDisruptionBudget shop/old and PodDisruptionBudget shop/web" in why and "500" in why and "allow_overlaps=true" in why
    allowed = plan({"shop/web": WEB}, *shop(there), allow_overlaps=True)
    assert not allowed.refusals and any(note.startswith("WARNING: ") and "500" in note for note in allowed.actions[0].notes)
    # The other one leaves in the same run, after the new one has come.
    moved = plan({"shop/old": "absent", "shop/web": WEB}, *shop(there), force=True)
    assert not moved.refusals and [one.what for one in moved.actions] == ["create", "remove"]


def test_overlaps_of_others_are_for_the_audit() -> None:
    others = [owned(budget(name, selector={"matchLabels": {"app": "x"}}, maxUnavailable=1), manager="helm") for name in ("a", "b")]
    assert not plan({"shop/web": WEB}, *shop(*others, pod("x", app="x"))).refusals


def test_absent() -> None:
    there = budget(maxUnavailable=1, status=of_status(3, 2, 3, 1))
    (one,) = plan("shop/web=absent", *shop(owned(there))).actions
    assert (one.what, one.manifest) == ("remove", None)
    assert one.notes[1] == "after: its pods have no budget of this name, and nothing limits their evictions"
    assert plan("shop/web=absent", *shop()).unchanged == [("PodDisruptionBudget shop/web", "absent, as wanted")]
    foreign = owned(there, manager="helm")
    assert "helm created it" in plan("shop/web=absent", *shop(foreign)).refusals[0]
    touched = owned(there, **{"kubectl-edit": ("maxUnavailable",)})
    assert "kubectl-edit" in plan("shop/web=absent", *shop(touched)).refusals[0]
    assert plan("shop/web=absent", *shop(foreign), force=True).actions


def test_a_workload_that_does_not_exist() -> None:
    found = plan({"shop/web": {**WEB, "workload": "deployment/wep"}}, *shop())
    assert found.refusals == ["PodDisruptionBudget shop/web: Deployment shop/wep does not exist, did you mean 'web'?"]


def test_only_names_budgets_of_the_data() -> None:
    assert "did you mean 'shop/web'?" in plan({"shop/web": WEB}, *shop(), only_objects="shop/wep").refusals[0]


# ---- undo


def recorded(action: str, before: dict[str, Any] | None, after: dict[str, Any] | None, uid: str = "uid-pdb-web") -> ObjectsRecord:
    fields = tuple(ChangedField(one.path, one.before, one.after) for one in changed(BUDGET.values(before), BUDGET.values(after)))
    about = {"path": BUDGET.path_of("shop", "web"), "uid": uid, "namespace": "shop", "name": "web"}
    one = ChangedObject("PodDisruptionBudget shop/web", action, fields, about, "done")
    return ObjectsRecord("r", "c", "disruption_budgets", {}, (one,))


def back(record: ObjectsRecord, *items: dict[str, Any], force: bool = False) -> ObjectPlan:
    return plan_undo(record, world(*shop(*items)), NOW, force=force)


def test_undo_of_a_change_says_what_it_allows() -> None:
    old, new = budget(minAvailable=2), budget(maxUnavailable=1, unhealthyPodEvictionPolicy="AlwaysAllow")
    record = recorded("update", old, new)
    (one,) = back(record, owned(new)).actions
    assert one.what == "update" and one.manifest is not None
    assert one.manifest["spec"] == {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 2}
    assert one.notes[1].startswith("after: allows 1 (minAvailable 2: ")
    (forced,) = back(record, owned(new, helm=("maxUnavailable",)), force=True).actions
    assert forced.drops == (("spec", "maxUnavailable"),) and forced.after[("spec", "minAvailable")] == 2


def test_undo_of_a_removal_brings_labels_back() -> None:
    old = budget(maxUnavailable=1)
    old["metadata"]["labels"] = {"team": "a"}
    (one,) = back(recorded("remove", old, None)).actions
    assert one.manifest is not None and one.manifest["metadata"]["labels"] == {"team": "a"}
