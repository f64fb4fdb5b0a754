"""Names of nodes, consents, and the undo: whose cordon and whose surge is undone."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from roles.drain import DrainOptions, chosen_nodes
from roles.engine.api import Denied, Forbidden, Speaker
from roles.engine.api.errors import EvictionRefused, Unreachable, by_status
from roles.engine.node_changes import ChangeDrains
from roles.engine.outage import DrainConsents, Mark, node_fate, read_mark
from roles.engine.outage.cordon import cordon_back, cordon_change
from roles.engine.outage.drainer import CORDON, EVICT, PROVE, SURGE
from roles.engine.outage.mark import CORDONED_BY, OUTAGE, REBOOT
from roles.engine.outage.surge_marks import SURGED_BY
from roles.engine.outage.undo import plan_uncordon, plan_undo
from roles.engine.transaction import ChangedObject, ObjectsRecord
from roles.reboot import RebootOptions
from tests.unit.disruption.world import workload
from tests.unit.outage.world import node

W1 = "/api/v1/nodes/w1"
WEB = "/apis/apps/v1/namespaces/shop/deployments/web"


def test_names_of_nodes() -> None:
    hosts = {"w1": "node-1", "w2": "w2"}
    assert chosen_nodes(("w1", "node-1", "w2"), (), hosts, ["node-1", "w2"]) == ("node-1", "w2")
    assert chosen_nodes(None, ["w2"], hosts, ["node-1", "w2"]) == ("w2",)
    for asked, limited, words in (
        (None, (), "no nodes are named"),
        (("w1",), ("w2",), "nodes are named twice"),
        (("node-2",), (), "did you mean"),
    ):
        with pytest.raises(ValueError, match=words):
            chosen_nodes(asked, limited, hosts, ["node-1", "w2"])


@pytest.mark.parametrize("model", [DrainOptions, RebootOptions, ChangeDrains], ids=lambda model: model.__name__)
def test_the_consents_are_the_same_for_every_purpose(model: type[DrainConsents]) -> None:
    def read(**given: object) -> DrainConsents:
        return model.model_validate(given)

    assert read(surge="true").surge is True and read(surge="false").surge is False and read().surge is False
    assert read(surge="shop/web, shop/api").surge == ("shop/web", "shop/api") and read(allow_local_data="true").allow_local_data
    assert read(ignore_budgets="shop/web").ignore_budgets == ("shop/web",)
    assert read(confirm_ignore="pods-0123abcd").confirm_ignore == "pods-0123abcd" and read(drain_timeout=30).seconds == 30
    for wrong in ({"surge": "web"}, {"ignore_budgets": "true"}, {"drain_timeout": 0}, {"confirm_ignore": "true"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            read(**wrong)


def surged(run: str, replicas: int = 2) -> dict[str, Any]:
    item = workload("Deployment", "web", replicas)
    item["metadata"]["annotations"] = {SURGED_BY: run}
    return item


def test_uncordon_knows_whose_cordon_it_is() -> None:
    ours, theirs = node("w1", manager="daytwo", mark="r1"), node("w2", manager="kubectl-cordon")
    plan = plan_uncordon(
        {"w1": ours, "w3": node("w3")},
        [surged("r1"), surged("r2")],
        [node("w4", manager="daytwo", mark="r2")],
        [of("r1"), of("r2")],
        force=False,
    )
    assert [change.name for change in plan.actions] == ["Deployment shop/web", "Node w1"] and plan.unchanged == [
        ("Node w3", "it is not cordoned")
    ]
    assert {one.path[-1]: one.after for change in plan.actions for one in change.fields} == {
        "replicas": 1, SURGED_BY: None, "unschedulable": None, OUTAGE: None,
    }  # fmt: skip
    assert "kubectl-cordon" in plan_uncordon({"w2": theirs}, [], force=False).refusals[0]
    assert (
        plan_uncordon({"w2": theirs}, [], force=True).actions and "no node w9" in plan_uncordon({"w9": None}, [], force=False).refusals[0]
    )


def test_a_surge_to_which_no_node_leads_any_more_is_ended_too() -> None:
    """Someone has uncordoned the node of a killed run by hand, or had cordoned it before."""
    theirs = node("w2", manager="kubectl-cordon")
    plan = plan_uncordon({"w1": node("w1")}, [surged("r1"), workload("Deployment", "api", 2)], [theirs], [of("r1")], force=False)
    assert [change.name for change in plan.actions] == ["Deployment shop/web"] and not plan.refusals


@pytest.mark.parametrize("others", ["none", "of another Deployment", "of another node", "of another run"])
def test_uncordon_scales_no_deployment_that_the_drain_of_its_nodes_did_not_surge(others: str) -> None:
    """A mark that was copied with its object, is forged, or is stale."""
    surges = {
        "none": [], "of another Deployment": [{**of("r1"), "uid": "x"}], "of another node": [of("r1", "w2")], "of another run": [of("r2")]
    }[others]  # fmt: skip
    for one in (node("w1"), node("w1", manager="daytwo", mark="r3")):
        plan = plan_uncordon({"w1": one}, [surged("r1")], [], surges, force=False)
        assert not [change for change in plan.actions if "Deployment" in change.name]
        if others != "of another node":
            assert "is in no record of that run" in str(plan.unchanged) and "kubectl annotate deployment -n shop web" in str(plan.unchanged)


def of(run: str, on: str = "w1") -> dict[str, str]:
    """As a record has a surge."""
    return {"uid": "uid-Deployment-web", "mark": run, "node": on}


def record(*objects: ChangedObject) -> ObjectsRecord:
    return ObjectsRecord("r1", "c", "drain", {}, objects)


def step(name: str, action: str, path: str, uid: str, outcome: str = "done") -> ChangedObject:
    return ChangedObject(name, action, (), {"path": path, "uid": uid}, outcome)


def test_the_undo_of_a_drain() -> None:
    found = record(
        step("Node w1", CORDON, W1, "uid-w1"), step("pod shop/web-1", SURGE, WEB, "uid-Deployment-web", ""),
        step("pod shop/api-1", EVICT, "/x", "u"), step("Node w1 drained", PROVE, W1, "uid-w1", ""),
    )  # fmt: skip
    plan = plan_undo(found, {W1: node("w1", manager="daytwo", mark="r1"), WEB: surged("r1")})
    assert [change.name for change in plan.actions] == ["Deployment shop/web", "Node w1"]
    assert len(plan.unchanged) == 1 and "an eviction is not undone" in plan.unchanged[0][1]
    later = plan_undo(found, {W1: node("w1", manager="daytwo", mark="r2"), WEB: surged("r2")})
    assert not later.actions and "run r2 has taken its cordon over" in str(later.unchanged)
    theirs = plan_undo(found, {W1: node("w1", manager="kubectl-cordon")})
    assert not theirs.actions and "that cordon stays" in str(theirs.unchanged) and "is gone" in str(theirs.unchanged)
    assert "it is not cordoned" in str(plan_undo(found, {W1: node("w1")}).unchanged)


@pytest.mark.parametrize("old", [False, True])
def test_a_reboot_that_is_not_proven_keeps_its_mark(old: bool) -> None:
    """So that the next one proves the node. It had the cordon of a drain."""
    item = node("w1", manager="daytwo")
    before = {REBOOT: json.dumps({"run": "r2", "boot": "b", "keep": True}), CORDONED_BY: "r1"}
    item["metadata"]["annotations"] = before if old else {OUTAGE: Mark("r2", "reboot", "b", "r1").text()}
    (change,) = plan_uncordon({"w1": item}, [], force=False).actions
    after = {one.path[-1]: one.after for one in change.fields}
    assert after.pop("unschedulable") is None and after == dict.fromkeys(before if old else ()) | {OUTAGE: Mark("r2", "reboot", "b").text()}
    found = record(step("Node w1", CORDON, W1, "uid-w1"))
    assert [one.after for one in plan_undo(found, {W1: item}).actions] == [change.after]


def test_a_drain_of_a_node_whose_reboot_is_not_proven_leaves_that_to_the_next_reboot() -> None:
    left = Mark("r2", "reboot", "b")
    item = node("w1", manager="daytwo")
    item["metadata"]["annotations"] = {OUTAGE: left.text()}
    change = cordon_change(node_fate(item), Mark("r9"))
    assert change is not None
    drained = copy.deepcopy(item)
    drained["metadata"]["annotations"] = {OUTAGE: change.fields[-1].after}
    assert read_mark(drained) == Mark("r2", "reboot", "b", "r9") and node_fate(drained).by == "r9"
    # A drain that halts gives the cordon back; an undo or an uncordon leaves the mark.
    for before, after in ((left.text(), left), ("", left)):
        back = cordon_back(drained, {"r9"}, before)
        assert back.change is not None and {one.path[-1]: one.after for one in back.change.fields}[OUTAGE] == after.text()
    assert cordon_back(drained, {"r9"}).done == "uncordoned"


# ---- the answers of the API


def status(code: int, message: str, *causes: tuple[str, str]) -> bytes:

    listed = [{"reason": reason, "message": text} for reason, text in causes]
    return json.dumps({"kind": "Status", "code": code, "message": message, "details": {"causes": listed}}).encode()


def test_answers_to_an_eviction() -> None:
    refused = by_status("cp1", "/x", 429, status(429, "Cannot evict pod", ("DisruptionBudget", "The disruption budget web needs 2")))
    assert (
        isinstance(refused, EvictionRefused)
        and refused.budget
        and not refused.passing
        and refused.cause == "The disruption budget web needs 2"
    )
    two = by_status(
        "cp1", "/x", 500, status(500, "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.")
    )
    assert isinstance(two, EvictionRefused) and not two.budget
    # An API server that is busy is not a budget.
    assert isinstance(by_status("cp1", "/x", 429, status(429, "too many requests, please try again later")), Unreachable)
    assert isinstance(by_status("cp1", "/x", 500, b"etcdserver: leader changed"), Unreachable)
    words = 'pods "a" is forbidden: unable to create new content in namespace x because it is being terminated'
    ending = by_status("cp1", "/x", 403, status(403, words, ("NamespaceTerminating", "namespace x is being terminated")))
    assert isinstance(ending, Denied) and ending.speaker is Speaker.NAMESPACE
    other = by_status("cp1", "/x", 403, status(403, "no", ("NamespaceTerminating", "namespace x is being terminated")))
    assert isinstance(other, Forbidden) and other.speaker is not Speaker.NAMESPACE
