"""Where a pod can run that is to be recreated, and where many can."""

from __future__ import annotations

from typing import Any

import pytest

from roles.engine.placement import ClusterView, Placement, place_all, where
from tests.unit.placement.cluster import HOST, ZONE, affinity, node, pod, prefers_node, spread

WEB = {"app": "web"}


def view(*objects: dict[str, Any], **more: Any) -> ClusterView:
    """Nodes and pods, whatever comes."""
    nodes = [one for one in objects if "containers" not in one["spec"]]
    return ClusterView(nodes, [one for one in objects if "containers" in one["spec"]], **more)


def states(found: Placement) -> dict[str, str]:
    return {name: verdict.state for name, verdict in found.nodes.items()}


def test_a_pod_of_a_node_to_leave_fits_elsewhere() -> None:
    found = where(one := pod("p", "w1"), view(node("w1"), node("w2"), one), ["w1"])
    assert found.fits and found.on == ("w2",) and states(found) == {"w1": "no", "w2": "fits"}
    assert str(found) == "x/p: fits"


@pytest.mark.parametrize(
    ("there", "asked", "why"),
    [
        (node("w2", cordoned=True), {}, "it is cordoned"),
        (node("w2", taints=[("gpu", "yes", "NoSchedule")]), {}, "taint gpu=yes:NoSchedule is not tolerated"),
        (node("w2", taints=[("gpu", "yes", "NoExecute")]), {"tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]}, "taint gpu=yes:NoExecute is not tolerated"),
        (node("w2"), {"nodeSelector": {"disk": "ssd"}}, "nodeSelector disk=ssd does not match"),
        (node("w2", disk="hdd"), {"affinity": prefers_node({"key": "disk", "operator": "NotIn", "values": ["hdd"]})}, "its required node affinity does not match"),
        (node("w2", size="4"), {"affinity": prefers_node({"key": "size", "operator": "Gt", "values": ["4"]})}, "its required node affinity does not match"),
        (node("w2", cpu="1"), {"cpu": "1001m"}, "cpu: 1001m requested, 1000m left"),
        (node("w2", pods="0"), {}, "pods: 1 requested, 0 left"),
        (node("w2"), {"overhead": {"memory": "8Gi"}}, "memory: 8256.0Mi requested, 8192.0Mi left"),
    ],
)  # fmt: skip
def test_what_keeps_a_pod_off_a_node(there: dict[str, Any], asked: dict[str, Any], why: str) -> None:
    one = pod("p", "w1", **asked)
    found = where(one, view(node("w1"), there, one), ["w1"])
    assert found.outcome == "nowhere"
    assert found.nodes["w2"].why == (why,)
    assert why in str(found)


@pytest.mark.parametrize(
    ("there", "asked"),
    [
        (node("w2", taints=[("gpu", "yes", "NoSchedule")]), {"tolerations": [{"key": "gpu", "operator": "Equal", "value": "yes"}]}),
        (node("w2", taints=[("gpu", "yes", "PreferNoSchedule")]), {}),
        (node("w2", disk="ssd"), {"nodeSelector": {"disk": "ssd"}}),
        (node("w2", size="5"), {"affinity": prefers_node({"key": "size", "operator": "Gt", "values": ["4"]})}),
        (node("w2"), {"affinity": prefers_node({"key": "disk", "operator": "DoesNotExist"})}),
        (node("w2", cpu="1"), {"cpu": "1"}),
    ],
)
def test_what_does_not(there: dict[str, Any], asked: dict[str, Any]) -> None:
    one = pod("p", "w1", **asked)
    assert where(one, view(node("w1"), there, one), ["w1"]).fits


def test_the_pods_of_a_node_hold_its_room_also_terminating_and_resized_ones() -> None:
    one, other = pod("p", "w1", cpu="2"), pod("q", "w2", cpu="3")
    there = [node("w1"), node("w2"), one]
    assert where(one, view(*there, other), ["w1"]).outcome == "nowhere"
    # It goes, but holds its room until then.
    assert where(one, view(*there, other | {"metadata": other["metadata"] | {"deletionTimestamp": "now"}}), ["w1"]).outcome == "unsure"
    assert where(one, view(*there, other | {"status": {"phase": "Succeeded"}}), ["w1"]).fits
    small = pod("q", "w2", cpu="1")
    assert where(one, view(*there, small), ["w1"]).fits
    small["status"]["containerStatuses"] = [{"name": "c", "resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "1"}}]
    assert where(one, view(*there, small), ["w1"]).outcome == "nowhere"
    big = pod("q", "w2", cpu="3")
    big["status"]["containerStatuses"] = [{"name": "c", "resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "1"}}]
    assert where(one, view(*there, big), ["w1"]).outcome == "nowhere"
    big["status"]["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]
    assert where(one, view(*there, big), ["w1"]).fits


def test_ports_of_the_host() -> None:
    one = pod("p", "w1", port=80)
    nodes = [node("w1"), node("w2"), one]
    found = where(one, view(*nodes, pod("q", "w2", port=80)), ["w1"])
    assert found.nodes["w2"].why == ("port 80/TCP of the host is held by x/q",)
    assert where(one, view(*nodes, pod("q", "w2", port=81)), ["w1"]).fits
    other = pod("q", "w2", port=80)
    other["spec"]["containers"][0]["ports"][0] |= {"hostIP": "10.0.0.1"}
    assert not where(one, view(*nodes, other), ["w1"]).fits
    other["spec"]["containers"][0]["ports"][0] |= {"protocol": "UDP"}
    assert where(one, view(*nodes, other), ["w1"]).fits


def test_a_cordoned_node_keeps_its_topology_domain_unless_taints_are_honored() -> None:
    pods = [pod(f"p{number}", f"w{number}", labels=WEB, topologySpreadConstraints=spread()) for number in (1, 2, 3)]
    nodes = [node(f"w{number}") for number in (1, 2, 3)]
    assert where(pods[0], view(*nodes, *pods), ["w1"]).outcome == "nowhere"
    honoring = pod("p1", "w1", labels=WEB, topologySpreadConstraints=spread(nodeTaintsPolicy="Honor"))
    assert where(honoring, view(*nodes, *pods[1:], honoring), ["w1"]).fits
    assert where(pods[0], view(*nodes, *pods[:2]), ["w1"]).on == ("w3",)


def test_anti_affinity_works_both_ways() -> None:
    nodes = [node("w1", zone="a"), node("w2", zone="a"), node("w3", zone="b")]
    one = pod("p", "w1", labels=WEB, affinity=affinity("podAntiAffinity", ZONE))
    assert where(one, view(*nodes, one, pod("q", "w2", labels=WEB)), ["w1"]).on == ("w3",)
    calm = pod("p", "w1", labels=WEB)
    shy = pod("q", "w2", affinity=affinity("podAntiAffinity", ZONE))
    assert where(calm, view(*nodes, calm, shy), ["w1"]).on == ("w3",)
    assert where(calm, view(*nodes, calm, pod("q", "w2", affinity=affinity("podAntiAffinity", ZONE, namespaces=["other"]))), ["w1"]).on == (
        "w2",
        "w3",
    )


def test_affinity_needs_a_partner_or_the_pod_itself() -> None:
    nodes = [node("w1"), node("w2"), node("w3")]
    one = pod("p", "w1", affinity=affinity("podAffinity"))
    assert where(one, view(*nodes, one, pod("q", "w2", labels=WEB)), ["w1"]).on == ("w2",)
    assert where(one, view(*nodes, one), ["w1"]).outcome == "nowhere"
    own = pod("p", "w1", labels=WEB, affinity=affinity("podAffinity"))
    assert where(own, view(*nodes, own), ["w1"]).on == ("w2", "w3")


def test_namespaces_by_label_have_to_be_read() -> None:
    term = affinity("podAntiAffinity", namespaceSelector={"matchLabels": {"team": "a"}})
    one, other = pod("p", "w1", affinity=term), pod("q", "w2", labels=WEB)
    there = [node("w1"), node("w2"), one, other]
    assert where(one, view(*there), ["w1"]).outcome == "not judged"
    assert where(one, view(*there, namespaces=[{"metadata": {"name": "x", "labels": {"team": "a"}}}]), ["w1"]).outcome == "nowhere"
    assert where(one, view(*there, namespaces=[{"metadata": {"name": "x"}}]), ["w1"]).fits


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"schedulerName": "mine"}, "its scheduler is mine"),
        ({"resourceClaims": [{"name": "gpu"}]}, "dynamic resource allocation"),
        ({"schedulingGroup": {"name": "g"}}, "part of a group"),
        ({"tolerations": [{"key": "a", "operator": "Gt", "value": "1"}]}, "compares numbers"),
        ({"volumes": [{"name": "v", "rbd": {}}]}, "volume v is of kind rbd"),
        ({"volumes": [{"name": "v", "ephemeral": {}}]}, "volume v is created with the pod"),
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}, "were not read"),
    ],
)
def test_what_is_not_modelled_is_not_judged(asked: dict[str, Any], why: str) -> None:
    one = pod("p", "w1", **asked)
    found = where(one, view(node("w1"), node("w2"), node("w3", cordoned=True), one), ["w1"])
    assert found.outcome == "not judged" and why in str(found)
    assert states(found) == {"w1": "no", "w2": "not judged", "w3": "no"}
    assert where(one, view(node("w1"), node("w2", cordoned=True), one), ["w1"]).outcome == "nowhere"


def test_a_gate_holds_a_pod_and_another_configuration_all() -> None:
    one = pod("p", schedulingGates=[{"name": "quota"}])
    assert str(where(one, view(node("w1"), one))) == "x/p: nowhere (scheduling gate quota holds it)"
    assert where(pod("p"), view(node("w1"), unknown="kube-scheduler has its own configuration")).outcome == "not judged"


def test_who_tolerates_the_cordon_comes_back() -> None:
    one = pod("p", "w1", tolerations=[{"operator": "Exists"}])
    found = where(one, view(node("w1"), node("w2"), one), ["w1"])
    assert (found.outcome, found.returns) == ("unsure", ("w1",))
    assert str(found) == "x/p: unsure (it may come back to w1: it tolerates the cordon)"


def test_a_node_that_does_not_report_is_no_place() -> None:
    one = pod("p", "w1")
    assert where(one, view(node("w1"), node("w2", ready=False), one), ["w1"]).outcome == "unsure"


# ---- volumes


def volume(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "pv", "labels": spec.pop("labels", {})}, "spec": spec}


def claim(bound: bool = True, mode: str = "ReadWriteOnce") -> dict[str, Any]:
    return {
        "metadata": {"name": "c", "namespace": "x"},
        "spec": {"accessModes": [mode]} | ({"volumeName": "pv"} if bound else {}),
        "status": {"phase": "Bound" if bound else "Pending"},
    }


MOUNTS = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]


def test_bound_volumes() -> None:
    one = pod("p", "w1", volumes=MOUNTS)
    there = [node("w1", zone="a"), node("w2", zone="a"), node("w3", zone="b"), one]

    def found(**spec: Any) -> Placement:
        return where(one, view(*there, claims=[claim()], volumes=[volume(**spec)]), ["w1"])

    assert found(hostPath={}).on == ("w2", "w3")
    assert found(labels={ZONE: "a"}).on == ("w2",)
    terms = [{"matchExpressions": [{"key": HOST, "operator": "In", "values": ["w1"]}]}]
    assert found(local={}, nodeAffinity={"required": {"nodeSelectorTerms": terms}}).outcome == "nowhere"
    assert found(csi={"driver": "d"}).outcome == "not judged"
    assert found(rbd={}).outcome == "not judged"


def test_claims() -> None:
    one, other = pod("p", "w1", volumes=MOUNTS), pod("q", "w2", volumes=MOUNTS)
    there = [node("w1"), node("w2"), one]
    assert where(one, view(*there, claims=[], volumes=[]), ["w1"]).why == ("PersistentVolumeClaim c does not exist",)
    assert where(one, view(*there, claims=[claim(bound=False)], volumes=[]), ["w1"]).outcome == "not judged"
    used = view(*there, other, claims=[claim(mode="ReadWriteOncePod")], volumes=[volume(hostPath={})])
    assert where(one, used, ["w1"]).why == ("PersistentVolumeClaim c is ReadWriteOncePod and in use",)
    assert where(one, view(*there, other, claims=[claim()], volumes=[volume(hostPath={})]), ["w1"]).fits


def test_the_limits_of_a_driver() -> None:
    one = pod("p", "w1", volumes=MOUNTS)
    csi = [{"metadata": {"name": "w2"}, "spec": {"drivers": [{"name": "d", "allocatable": {"count": 1}}]}}]
    read = {"claims": [claim()], "volumes": [volume(csi={"driver": "d"})], "csi_nodes": csi}
    assert where(one, view(node("w1"), node("w2"), one, **read, attachments=[]), ["w1"]).fits
    attached = {"metadata": {"name": "a"}, "spec": {"attacher": "d", "nodeName": "w2", "source": {"persistentVolumeName": "other"}}}
    found = where(one, view(node("w1"), node("w2"), one, **read, attachments=[attached]), ["w1"])
    assert found.outcome == "not judged" and found.nodes["w2"].why == ("it may have more than 1 volumes of d then",)


# ---- many pods


def test_each_takes_its_room() -> None:
    pods = [pod(f"p{number}", "w1", cpu="2") for number in range(3)]
    found = place_all(pods, view(node("w1"), node("w2"), *pods), ["w1"])
    assert [one.outcome for one in found] == ["fits", "fits", "nowhere"]
    assert found[2].nodes["w2"].why == ("cpu: 2000m requested, 0m left",)


def test_a_pod_fits_wherever_those_before_it_go() -> None:
    pods = [pod(f"p{number}", "w1", cpu="2") for number in range(4)]
    nodes = [node("w1"), node("w2"), node("w3")]
    assert [one.outcome for one in place_all(pods, view(*nodes, *pods), ["w1"])] == ["fits"] * 4
    # Small ones may be where each of two large ones has room, or not.
    small, large = [pod(f"s{number}", "w1", cpu="1") for number in range(2)], pod("large", "w1", cpu="4")
    found = place_all([*small, large], view(*nodes, *small, large), ["w1"])
    assert [one.outcome for one in found] == ["fits", "fits", "unsure"]
    assert place_all([large, *small], view(*nodes, *small, large), ["w1"])[2].fits


def test_a_partner_that_moves_later_makes_a_place() -> None:
    one, partner = pod("a", "w1", affinity=affinity("podAffinity")), pod("b", "w1", labels=WEB)
    found = place_all([one, partner], view(node("w1"), node("w2"), one, partner), ["w1"])
    assert [(each.outcome, each.after_others) for each in found] == [("fits", True), ("fits", False)]
    both = place_all([one, partner], view(node("w1"), node("w2"), node("w3"), one, partner), ["w1"])
    assert both[0].outcome == "unsure"


def test_a_pod_that_waits_competes() -> None:
    one, waits = pod("p", "w1", cpu="3"), pod("q", cpu="2")
    assert where(one, view(node("w1"), node("w2"), one, waits), ["w1"]).outcome == "unsure"
    assert where(one, view(node("w1"), node("w2"), node("w3"), one, waits), ["w1"]).fits
    # It fits nowhere now, but would take the place of pods of lower priority: on w2, and not on w3.
    one, waits, equal = pod("p", "w1", cpu="1"), pod("q", cpu="4", priority=1), pod("s", "w3", cpu="2", priority=1)
    there = (node("w1"), node("w2"), node("w3"), one, pod("r", "w2", cpu="2"), equal)
    found = where(one, view(*there, waits), ["w1"])
    assert found.why == ("x/q may preempt it: its priority is higher",)
    for other in ({"preemptionPolicy": "Never"}, {"nodeSelector": {"none": "x"}}, {"schedulingGates": [{"name": "g"}]}):
        assert where(one, view(*there, {**waits, "spec": waits["spec"] | other}), ["w1"]).fits


def test_a_pod_without_a_place_may_preempt_one_that_has() -> None:
    low, high = pod("low", "w1", cpu="3"), pod("high", "w1", cpu="3", priority=10)
    found = place_all([low, high], view(node("w1"), node("w2"), low, high), ["w1"])
    assert [one.outcome for one in found] == ["unsure", "nowhere"]


@pytest.mark.parametrize("priority", [0, 1, 2])
@pytest.mark.parametrize("selected", ["", "web"])
def test_what_a_pod_gets_by_preempting_others_is_taken(priority: int, selected: str) -> None:
    """`r` makes room for `first`: `then` finds neither the room that was left, nor `r` for sure."""
    resident = pod("r", "w2", cpu="3", labels=WEB)
    first = pod("first", "w1", cpu="3500m", priority=1)
    near = {"affinity": affinity("podAffinity", app=selected)} if selected else {}
    then = pod("then", "w1", cpu="100m" if selected else "1", priority=priority, **near)
    there = view(node("w1"), node("w2"), resident, first, then)
    assert [one.outcome for one in place_all([first, then], there, ["w1"])] == ["nowhere", "unsure"]
    first["spec"]["preemptionPolicy"] = "Never"
    assert [one.outcome for one in place_all([first, then], there, ["w1"])] == ["nowhere", "fits"]


def test_a_spread_may_depend_on_where_others_go() -> None:
    others = [pod(f"p{number}", "w1", labels=WEB) for number in range(2)]
    last = pod("last", "w1", labels=WEB, topologySpreadConstraints=spread(nodeTaintsPolicy="Honor"))
    found = place_all([*others, last], view(node("w1"), node("w2"), node("w3"), *others, last), ["w1"])
    assert [one.outcome for one in found] == ["fits", "fits", "unsure"]
