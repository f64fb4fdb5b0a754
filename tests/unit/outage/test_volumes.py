"""What volumes mean for a drain: what must be detached, which pods leave together, what does not come back."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from roles.engine.context import ClusterStep
from roles.engine.disruption import budget_states, lint
from roles.engine.outage import DrainConsents, DrainPlan, Mark, drainer, plan_text
from roles.engine.outage.volumes import EFFECTS, not_detached
from roles.engine.placement import Move
from roles.engine.placement.storage import attachments
from tests.context import context
from tests.unit.disruption.world import NOW, budget, deployment, of_status, pod, workload, world
from tests.unit.outage.cluster import LiveCluster
from tests.unit.outage.world import NODES, fates, node, plan, waves
from tests.unit.storage import HOST, attachment, claim, csi_node, mounts, volume

DATA = (claim("data"), volume("pv-data"), attachment("pv-data", "w1"), *(csi_node(name) for name in ("w1", "w2", "w3")))
DISK = "PersistentVolumeClaim data (volume pv-data, d)"
TWO = (node("w1"), node("w2"))


def app(name: str, *claims: str, pods: int = 1, replicas: int = 0, **more: Any) -> list[dict[str, Any]]:
    items = deployment(replicas or pods, pods, name)
    for one in items[2:]:
        one["spec"] |= {**mounts(*claims), **more}
        one["metadata"]["labels"]["group"] = "sharers"
    return items


def of(found: DrainPlan, name: str) -> Any:
    return next(one for one in found.pods if one.pod["metadata"]["name"] == name)


SHARERS = (*app("a", "data"), *app("b", "data"))


def test_a_pod_whose_volume_must_be_detached_says_so() -> None:
    found = plan(*app("a", "data"), *DATA)
    one = of(found, "a-1-0")
    assert (
        one.fate == "evicted" and one.why.endswith(f"its replacement starts when {DISK} is detached from w1") and one.place == "on w2, w3"
    )
    assert [volume.move for volume in one.volumes] == [Move.ONE_NODE] and not one.together
    assert "Multi-Attach error" in found.notes[0] and "drain_timeout (600 s) goes on" in plan_text(found)
    assert not plan(*app("a")).notes


def test_pods_with_one_volume_leave_together() -> None:
    found = plan(*SHARERS, *DATA, nodes=TWO)
    assert not found.refusals and waves(found) == [["a-1-0", "b-1-0"]]
    assert of(found, "a-1-0").together == of(found, "b-1-0").together == {"uid-a-1-0", "uid-b-1-0"}
    shared = f"shop/a-1-0, shop/b-1-0 share {DISK}: it is detached from w1 when all of them have left, so they leave together"
    assert shared in found.warnings and not any("podAffinity" in text for text in found.warnings), "w2 takes both"
    assert of(found, "a-1-0").place == "on w2"


def test_nothing_keeps_their_replacements_on_one_node() -> None:
    found = plan(*SHARERS, *DATA)
    assert of(found, "a-1-0").place == "on w2, w3, if shop/b-1-0 goes to the same node"
    (text,) = (text for text in found.warnings if "podAffinity" in text)
    assert text.startswith("nothing keeps the replacements of shop/a-1-0, shop/b-1-0 on one node") and "this drain fails" in text


def test_neither_a_priority_nor_another_volume_nor_their_own_roll_out_parts_them() -> None:
    """Of the pods that leave together, the last one says when."""
    three = [*app("a", "data", priority=-5), *app("b", "data", "more", priority=1000), *app("c", "more", pods=2)]
    found = plan(*three, *app("plain"), *DATA, claim("more"), volume("pv-more"), nodes=TWO)
    assert waves(found) == [["plain-1-0"], ["a-1-0", "b-1-0", "c-1-0", "c-1-1"]]
    (many,) = waves(plan(*app("web", "data", pods=4), *DATA, nodes=TWO))
    assert len(many) == 4, "alone, each would leave by itself"


def test_others_still_leave_apart() -> None:
    several = (claim("data", "ReadWriteMany"), volume("pv-data", "ReadWriteMany"))
    assert waves(plan(*app("web", "data", pods=2), *several, csi_node("w2"), nodes=TWO)) == [["web-1-0"], ["web-1-1"]]
    nfs = (claim("data"), volume("pv-data", nfs={"server": "s", "path": "/"}))
    found = plan(*app("web", "data", pods=2), *nfs, nodes=TWO)
    assert waves(found) == [["web-1-0"], ["web-1-1"]] and not found.notes
    elsewhere = app("b", "data")
    elsewhere[2]["spec"]["nodeName"] = "w2"
    found = plan(*app("a", "data"), *elsewhere, *DATA, on=("w1", "w2"))
    assert not any(one.together for one in found.pods), "a volume is attached to one node"


# ---- budgets


def guard(allowed: int, **spec: Any) -> dict[str, Any]:
    return budget("guard", selector={"matchLabels": {"group": "sharers"}}, status=of_status(2, 2 - allowed, 2, allowed), **spec)


def test_a_budget_that_keeps_one_of_them_is_a_deadlock() -> None:
    """The first replacement is not Ready before the second pod has left, and the budget wants it Ready first."""
    found = plan(*SHARERS, *DATA, guard(1, maxUnavailable=1), nodes=TWO)
    assert fates(found) == {"a-1-0": "blocks", "b-1-0": "blocks"} and not found.waves
    text = found.refusals[0]
    assert f"share {DISK}, and none of their replacements starts before all 2 have left w1; budget shop/guard lets 1 of them go" in text
    assert "all 2 are away at once then" in text and "--data ignore_budgets=shop/guard" in text
    assert waves(plan(*SHARERS, *DATA, guard(2, maxUnavailable=2), nodes=TWO)) == [["a-1-0", "b-1-0"]]


def test_by_consent_the_others_are_deleted_at_the_same_time() -> None:
    found = plan(*SHARERS, *DATA, guard(1, maxUnavailable=1), nodes=TWO, consents=DrainConsents(ignore_budgets=("shop/guard",)))
    assert sorted(fates(found).values()) == ["deleted", "evicted"] and waves(found) == [["a-1-0", "b-1-0"]] and not found.refusals


def test_a_budget_that_may_let_all_of_them_go_later_is_waited_for() -> None:
    third = app("c", pods=1)
    third[2]["status"]["conditions"][0]["status"] = "False"
    third[2]["spec"]["nodeName"] = "w2"
    own = budget("guard", selector={"matchLabels": {"group": "sharers"}}, status=of_status(3, 1, 2, 1), minAvailable=1)
    found = plan(*SHARERS, *third, *DATA, own)
    assert not found.refusals
    (waits,) = (one for one in found.pods if one.blocked_now)
    assert f"share {DISK}" in waits.blocked_now and "budget shop/guard lets 1 of them go" in waits.blocked_now


def test_the_audit_knows_the_same() -> None:
    def told(*more: dict[str, Any]) -> list[tuple[str, str]]:
        live = world(*NODES, *SHARERS, *DATA, *more)
        found = [one for one in lint(live, budget_states(live, NOW), NOW) if one.rule == "tied-to-node" and "share" in one.why]
        return [(one.severity, one.why) for one in found]

    ((severity, why),) = told()
    assert severity == "warning" and why.startswith(f"shop/a-1-0, shop/b-1-0 share {DISK} on node w1")
    ((severity, why),) = told(guard(1, maxUnavailable=1))
    assert severity == "critical" and "shop/guard never lets all of them go" in why
    assert [severity for severity, _ in told(guard(2, maxUnavailable=2))] == ["warning"]


# ---- what does not come back


def test_data_of_one_node_never_goes_elsewhere() -> None:
    local = (claim("data"), volume("pv-data", local={"path": "/x"}, on=(HOST, "w1")))
    found = plan(*app("a", "data"), *local)
    assert fates(found) == {"a-1-0": "blocks"}
    (text,) = found.refusals
    assert "the data of PersistentVolumeClaim data (volume pv-data) is on w1 and on no other node; move its data first, or" in text
    assert "(its replacement then waits until w1 is back and uncordoned; if it never comes back, the data is lost)" in text
    found = plan(*app("a", "data"), *local, consents=DrainConsents(allow_pending=True))
    assert of(found, "a-1-0").pending and "is on w1 and on no other node" in of(found, "a-1-0").why
    assert any("is on w1 and on no other node" in text for text in found.warnings)


def test_a_zone_may_get_another_node() -> None:
    zoned = (claim("data"), volume("pv-data", csi={"driver": "d"}, on=("topology.kubernetes.io/zone", "a")))
    (text,) = plan(*app("a", "data"), *zoned).refusals
    assert (
        "make room elsewhere (PersistentVolumeClaim data (volume pv-data, d) can be used only where topology.kubernetes.io/zone In a)"
        in text
    )
    named = (claim("data"), volume("pv-data", csi={"driver": "d"}, on=("topology.d/node", "w1")))
    assert "is on w1 and on no other node" in plan(*app("a", "data"), *named).refusals[0], "a topology that names the node"


def test_a_pod_on_another_node_gets_the_volume() -> None:
    other = app("b", "data")
    other[2]["spec"]["nodeName"] = "w2"
    found = plan(*app("a", "data"), *other, *DATA)
    text = "shop/a-1-0: its replacement starts on no other node: volume pv-data stays attached to w2, where shop/b-1-0 uses it"
    assert text in found.warnings and not found.refusals


def test_a_directory_stays_behind_and_an_ephemeral_volume_is_new() -> None:
    there = (claim("data"), volume("pv-data", hostPath={"path": "/x"}))
    found = plan(*app("a", "data"), *there)
    assert not found.refusals and any("stays on w1: another node has another directory" in text for text in found.warnings)
    items = deployment(1, 1, "e")
    items[2]["spec"]["volumes"] = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}]
    assert "volume scratch is ephemeral: it is deleted with the pod, and its replacement gets an empty one" in of(plan(*items), "e-1-0").why


def test_a_volume_that_a_pod_which_stays_uses_too() -> None:
    daemons = workload("DaemonSet", "logs")
    found = plan(*app("a", "data"), daemons, pod("logs-1", daemons, spec=mounts("data")), *DATA)
    assert of(found, "a-1-0").fate == "blocks"
    assert "its replacement starts nowhere else: volume pv-data stays attached to w1, where shop/logs-1 uses it" in found.refusals[0]


def test_a_claim_of_one_pod_allows_no_second_one() -> None:
    once = (claim("data", "ReadWriteOncePod"), volume("pv-data", "ReadWriteOncePod"), csi_node("w2"))
    found = plan(*app("a", "data"), *once, nodes=TWO)
    assert "its replacement is scheduled when this pod has ended" in of(found, "a-1-0").why and not found.refusals
    refused = plan(*app("a", "data"), *once, nodes=TWO, consents=DrainConsents(surge=("shop/a",))).refusals
    assert "only one node can write to data" in refused[0]


def test_an_attachment_that_was_left_elsewhere() -> None:
    found = plan(*app("a", "data"), *DATA, attachment("pv-data", "w3"))
    assert f"shop/a-1-0: {DISK} is still attached to w3 (VolumeAttachment csi-pv-data-w3), and must be detached there too" in found.warnings


# ---- while it runs


def test_what_a_replacement_waits_for() -> None:
    found = plan(*SHARERS, *DATA, nodes=TWO)
    one, (_, _, other) = of(found, "a-1-0"), app("b", "data")
    on_w1, new = attachments([attachment("pv-data", "w1")]), [pod("a-new", node="w2")]
    assert not_detached(one, new, on_w1, [other]) == f"{DISK} is not detached from w1 yet: shop/b-1-0 uses it there"
    assert not_detached(one, new, on_w1, []) == f"{DISK} is not detached from w1 yet: the kubelet there unmounts it"
    assert not_detached(one, new, attachments([attachment("pv-data", "w2")]), []) == ""
    taken = attachments([attachment("pv-data", "w3")])
    other["spec"]["nodeName"] = "w3"
    assert not_detached(one, new, taken, [other]) == f"{DISK} is not detached from w3 yet: shop/b-1-0 uses it there"


def drained(patch: pytest.MonkeyPatch, *items: dict[str, Any]) -> tuple[LiveCluster, drainer.Drainer, ClusterStep]:
    """With what is on w1 evicted, and the step that proves it."""
    cluster = LiveCluster(patch, *NODES[:2], *items)
    run = drainer.Drainer(cluster.session, plan(*items, nodes=TWO), DrainConsents(), Mark("r1"))
    cluster.node("w1")["spec"]["unschedulable"] = True
    for step in [step for stage in run.stages() for step in stage.steps if step.action == drainer.EVICT]:
        step.write(context())
    return cluster, run, run.stages()[-1].steps[0]


def test_the_run_moves_them_together_and_says_what_is_still_attached(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, run, proof = drained(monkeypatch, *SHARERS, *DATA)
    assert len(cluster.evictions) == 2 and len(run.plan.waves) == 1
    told = proof.write(context())
    assert "STILL ATTACHED to w1 after" in told and "pv-data (the kubelet there unmounts it)" in told and "out-of-service" in told
    assert run.warnings == [("Node w1 drained", told[told.index("STILL") :])]
    del cluster.there["/apis/storage.k8s.io/v1/volumeattachments/csi-pv-data-w1"]
    assert "ATTACHED" not in proof.write(context())


ISCSI = {"targetPortal": "192.0.2.9:3260", "iqn": "iqn.2026-01.example:disk", "lun": 1}
FC = {"targetWWNs": ["50060e801049cfd1", "50060e801049cfd2"], "lun": 2}


def test_what_has_no_volume_attachment_is_in_the_status_of_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """iSCSI, Fibre Channel and FlexVolume: kube-controller-manager attaches them, and makes no object of it."""
    daemons = workload("DaemonSet", "logs")
    staying = pod("logs-1", daemons, spec={"volumes": [{"name": "x", "iscsi": ISCSI}, *mounts("kept")["volumes"]]})
    items = [*app("a", "data"), claim("data"), volume("pv-data", fc=FC), daemons, staying]
    items += [claim("kept"), volume("pv-kept", flexVolume={"driver": "v/d"})]
    cluster, _, proof = drained(monkeypatch, *items)
    status = cluster.node("w1")["status"]
    kept = ["kubernetes.io/iscsi/192.0.2.9:3260:iqn.2026-01.example:disk:1", "v/d/pv-kept"]
    left = "kubernetes.io/fc/[50060e801049cfd1 50060e801049cfd2]:2"
    status["volumesAttached"] = [{"name": name} for name in (*kept, left, "kubernetes.io/csi/d^handle")]
    status["volumesInUse"] = [*kept, "other/disk"]
    told = proof.write(context())
    assert f": {left} (kube-controller-manager detaches it), other/disk (the kubelet there unmounts it);" in told
    status["volumesAttached"], status["volumesInUse"] = [{"name": name} for name in kept], kept
    assert "ATTACHED" not in proof.write(context())


def test_the_documentation_has_a_row_for_each_kind() -> None:
    text = (Path(__file__).parents[3] / "docs/disruption.md").read_text()
    section = text[text.index("### Volumes") :]
    rows = re.findall(r"^\| `([a-z -]+)` \|", section[: section.index("\n### ", 4)], re.MULTILINE)
    assert sorted(rows) == sorted(one.value for one in Move) and set(EFFECTS) < set(Move)
