"""What a run would change, and whether there is room for it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from roles.engine.placement import ClusterView
from roles.pod_resize import PodStep, WorkloadResize
from roles.pod_resize.templates import Template
from roles.right_size import JudgedContainer, SizedWorkload
from roles.right_size.room import node_problems, rollout_problems
from roles.right_size.samples import Kill
from roles.right_size.targets import Recommended
from roles.right_size.wanted import WantedResources, changed_since, new_resources, use_before, wanted
from roles.right_size.watching import SoakLook, UseBefore, worse
from roles.right_size.workloads import Amounts, ContainerNow
from tests.unit.autoscaling.world import utilization
from tests.unit.right_size.world import MI, ONE_BY_ONE, START, container, judged, reads, rolling, running, step

BIG = Amounts(None, 400 * MI)


def one(cpu: int | None = 1000, memory: int | None = 384 * MI, **more: Any) -> JudgedContainer:
    """A container that uses 100m and 100Mi."""
    return judged((container("web", cpu, memory, **more), reads(120, 5)))[0]


def test_only_what_changes_is_written() -> None:
    assert new_resources(one(limits=BIG)) == {"requests": {"cpu": "110m", "memory": "112Mi"}, "limits": {"memory": "128Mi"}}
    assert new_resources(one(110, 112 * MI)) == {}
    assert new_resources(one(110, 400 * MI)) == {"requests": {"memory": "112Mi"}}
    leaking = judged((container("web", 1000), reads(120, 5, memory=lambda at: (20 + at) * MI)))[0]
    assert new_resources(leaking) == {"requests": {"cpu": "110m"}}, "a leak keeps its memory"


def test_what_is_left_has_a_reason() -> None:
    vpa = Recommended("v", "Recreate", Amounts(), Amounts(), Amounts())
    found = [
        one(),
        replace(one(), workload=SizedWorkload("static pod", "kube-system", "etcd")),
        replace(one(), workload=SizedWorkload("StatefulSet", "shop", "db"), vpa=vpa),
        replace(one(), workload=SizedWorkload("DaemonSet", "shop", "logs"), sidecar=True),
        replace(one(110, 112 * MI), workload=SizedWorkload("Deployment", "shop", "fits")),
        replace(one(), workload=SizedWorkload("Deployment", "shop", "off"), vpa=replace(vpa, mode="Off")),
    ]
    waits = judged((container("web", 1000), reads(120, 5)), min_span=7 * 86400)[0]
    changes, left, waiting = wanted([*found, replace(waits, workload=SizedWorkload("Deployment", "shop", "young"))])
    [(name, why)] = waiting
    assert name == "Deployment shop/young" and "app cpu: " in why and "not lowered before 7 d were seen" in why
    assert [str(change.workload) for change in changes] == ["Deployment shop/web", "Deployment shop/off"]
    assert [name for name, _ in left] == ["static pod kube-system/etcd", "StatefulSet shop/db", "DaemonSet shop/logs"]
    assert "by hand" in left[0][1] and "updateMode to Off" in left[1][1] and "sidecar" in left[2][1]


def test_the_clusters_own_workloads_must_be_named() -> None:
    own = replace(one(), workload=SizedWorkload("DaemonSet", "kube-system", "proxy"))
    assert [str(change.workload) for change in wanted([own])[0]] == ["DaemonSet kube-system/proxy"]
    changes, left, _ = wanted([own], system=False)
    assert not changes and "--data namespaces=kube-system" in left[0][1]


# ---- autoscalers


def autoscaler(*metrics: dict[str, Any]) -> dict[str, Any]:
    target = {"kind": "Deployment", "name": "web"}
    return {"metadata": {"name": "h", "namespace": "shop", "uid": "u"}, "spec": {"scaleTargetRef": target, "metrics": list(metrics)}}


def test_utilization_targets_follow_the_request() -> None:
    found = one(55)
    change = WantedResources(found.workload, {"app": new_resources(found)}, [found])
    value = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "AverageValue", "averageValue": "50m"}}}
    item = autoscaler(utilization("cpu", 60), value, utilization("cpu", 70, "other"), utilization("cpu", 80, "app"))
    [target] = change.targets([item])
    assert target.path == "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers/h"
    assert list(target.after) == [utilization("cpu", 30), value, utilization("cpu", 70, "other"), utilization("cpu", 40, "app")]
    assert target.text == "cpu 60 % -> 30 %, cpu 80 % -> 40 %" and item["spec"]["metrics"][0] == utilization("cpu", 60), (
        "the old one is as it was"
    )
    assert target.meanwhile == list(target.after) and not target.rises, "all fall"
    assert target.window == 300.0
    item["spec"]["behavior"] = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    assert change.targets([item])[0].window == 0.0
    less = one(220)
    [target] = WantedResources(less.workload, {"app": new_resources(less)}, [less]).targets([item])
    assert target.rises and target.meanwhile == list(target.before)


def test_all_containers_of_the_pod_count() -> None:
    found, proxy = one(55), replace(one(110, 112 * MI), container="proxy")
    change = WantedResources(found.workload, {"app": new_resources(found)}, [found, proxy])
    [target] = change.targets([autoscaler(utilization("cpu", 60))])
    assert target.after[0] == utilization("cpu", 45), "from 165m to 220m"
    unknown = replace(proxy, now=replace(proxy.now, requests=Amounts()))
    assert replace(change, judged=[found, unknown]).targets([autoscaler(utilization("cpu", 60))]) == [], (
        "it does not work without a request"
    )


def test_others_stay() -> None:
    found = one(110)
    change = WantedResources(found.workload, {"app": new_resources(found)}, [found])
    assert change.targets([autoscaler(utilization("cpu", 60)), {"metadata": {}, "spec": {}}]) == [], "only memory changes"
    assert len(change.targets([autoscaler(utilization("memory", 60))])) == 1


# ---- what was planned, and how it is now


def resize(template: Template | None = None, *steps: PodStep, uid: str = "u") -> WorkloadResize:
    return cast(WorkloadResize, SimpleNamespace(item={"metadata": {"uid": uid}}, steps=steps, template=template))


def test_what_someone_else_changed_since_the_plan() -> None:
    old, new, other = ({"app": {"requests": {"cpu": text}}} for text in ("100m", "50m", "70m"))
    template = Template("Deployment", {"metadata": {}}, "/p", old, new, 60)
    planned = resize(template, step("50m", "64Mi"), step("50m", "64Mi", "web-2"))
    assert list(changed_since(planned, planned)) == []
    assert list(changed_since(planned, resize(template, step("50m", "64Mi", "web-3")))) == [], "an autoscaler replaced its pods"
    assert list(changed_since(planned, resize(None))) == [], "someone else has done it"
    assert list(changed_since(planned, resize(template, uid="v"))) == ["it was deleted and created again"]
    theirs = step("50m", "64Mi")
    theirs = replace(theirs, changes={"app": replace(theirs.changes["app"], before=other["app"])})
    assert list(changed_since(planned, resize(replace(template, before=other), theirs))) == [
        "its template got other resources",
        "the pod shop/web-1 got other resources",
    ]


# ---- room


NODES = [{"metadata": {"name": "w1"}, "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "110"}}, "spec": {}}]


def test_a_node_must_have_room_for_all_of_them() -> None:
    pods = [running("web-1", "100m", "64Mi"), running("other", "600m", "64Mi"), running("done", "900m", "64Mi", phase="Succeeded")]
    assert list(node_problems([step("300m", "64Mi")], NODES, pods)) == []
    [why] = node_problems([step("300m", "64Mi"), step("300m", "64Mi", "web-2")], NODES, pods)
    assert why == "w1 has 1 of cpu for pods, they request 700m, and this would add 400m"
    assert list(node_problems([step("50m", "32Mi")], NODES, [running("x", "2", "9Gi")])) == [], "less is never refused"


def test_a_pod_that_no_node_can_take_again() -> None:
    pods = [running("web-1", "100m", "64Mi")]
    view = ClusterView(NODES, pods, [], [], [], [], [])
    assert list(rollout_problems("Deployment", ONE_BY_ONE, pods, {"app": {"requests": {"cpu": "900m"}}}, view)) == []
    [why] = rollout_problems("Deployment", ONE_BY_ONE, pods, {"app": {"requests": {"cpu": "1100m"}}}, view)
    assert "recreated with the new resources, shop/web-1: nowhere" in why
    assert pods[0]["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "100m"


def test_a_pod_more_in_the_roll_out_needs_room_too() -> None:
    """600m fit once on a node of one core, and not twice."""
    pods = [running("web-1", "100m", "64Mi")]
    view = ClusterView(NODES, pods, [], [], [], [], [])
    wanted = {"app": {"requests": {"cpu": "600m"}}}
    assert list(rollout_problems("Deployment", ONE_BY_ONE, pods, wanted, view)) == []
    [why] = rollout_problems("Deployment", rolling(), pods, wanted, view)
    assert why.startswith("its roll-out starts a new pod before an old one ends (maxUnavailable 0): shop/web-1-new: nowhere"), why
    assert why.endswith("make room on a node, or set template=keep")
    assert list(rollout_problems("Deployment", rolling(), pods, {"app": {"requests": {"cpu": "400m"}}}, view)) == []
    # The API server accepts a share of any length (ValidatePositiveIntOrPercent).
    assert list(rollout_problems("Deployment", rolling("9" * 5000 + "%"), pods, wanted, view)) == [why]


# ---- the watch


def look(now: ContainerNow, **use: Any) -> SoakLook:
    [read] = reads(0, 5, **use)
    return SoakLook({(now.pod, now.name): now}, {(now.pod, now.name): read})


NOW = container("web", limits=Amounts(200, 128 * MI))


def test_what_is_worse_than_before() -> None:
    before = look(NOW, periods=100, throttled=10, oom_kills=1)
    assert list(worse(before, before, {})) == []
    killed = replace(NOW, restarts=1, kills=(Kill("f" * 64, START, 128 * MI, 3.0),))
    assert list(worse(before, look(killed), {})) == ["web-1, app: the kernel killed it for its memory at a limit of 128Mi, 1 time since"]
    assert list(worse(before, look(replace(NOW, restarts=1)), {})) == ["web-1, app: it was restarted"]
    assert list(worse(before, look(NOW, oom_kills=2), {})) == ["web-1, app: the kernel killed a process of it for its memory"]
    assert list(worse(look(killed), look(killed), {})) == [], "it was killed before"
    other = replace(NOW, pod="web-2")
    both = replace(before, containers={**before.containers, ("web-2", "app"): other})
    assert list(worse(both, before, {})) == [], "a pod is gone: an autoscaler or an operator removed it"
    assert list(worse(before, SoakLook({}, {}), {})) == ["none of its pods is left to be watched: someone else deleted them"]
    assert list(worse(both, replace(before, failed={"web-2": "Evicted", "other": "Evicted"}), {})) == ["web-2: it has ended: Evicted"]


@pytest.mark.parametrize(
    ("periods", "throttled", "share", "bad"),
    [
        (200, 40, 0.0, True),
        (200, 14, 0.0, False),
        (140, 30, 0.0, False),
        (200, 40, 0.28, False),
        (200, 60, 0.28, True),
        (200, 15, 0.0, True),
    ],
)
def test_throttling_counts_if_it_is_more_than_before(periods: int, throttled: int, share: float, bad: bool) -> None:
    known = {"app": UseBefore(share)}
    found = list(worse(look(NOW, periods=100, throttled=10), look(NOW, periods=periods, throttled=throttled), known))
    assert bool(found) == bad
    unlimited = replace(NOW, limits=Amounts())
    assert not list(worse(look(unlimited, periods=100, throttled=10), look(unlimited, periods=periods, throttled=throttled), known))


@pytest.mark.parametrize(
    ("seconds", "waited", "share", "bad"),
    [(60, 20.0, 0.02, True), (60, 12.0, 0.02, False), (60, 20.0, 0.3, False), (60, 40.0, 0.3, True), (5, 5.0, 0.0, False),
     (60, 20.0, None, False), (60, None, 0.02, False), (60, -9.0, 0.02, False)],
)  # fmt: skip
def test_one_that_waits_for_cpu_since_it_requests_less(seconds: int, waited: float | None, share: float | None, bad: bool) -> None:
    """No limit stops it, and nothing of it ends."""
    one = replace(NOW, limits=Amounts())
    before, now = look(one, cpu_pressure=100.0), look(one, begun=START + seconds, age=seconds)
    [read] = now.reads.values()
    now.reads[one.pod, one.name] = replace(read, cpu_pressure=None if waited is None else 100.0 + waited)  # type: ignore[index]
    found = list(worse(before, now, {"app": UseBefore(0.0, share)}))
    assert bool(found) == bad
    if waited == 20.0 and bad:
        assert found[0].startswith("web-1, app: its processes waited for CPU in 33% of the time, before in 2%: others")
    assert not list(worse(before, replace(now, reads={}), {"app": UseBefore(0.0, share)}))


def test_what_waited_before_is_compared_only_if_the_request_falls() -> None:
    def known(cpu: int | None) -> UseBefore:
        every = reads(120, 5, cpu_pressure=12.0)
        return use_before(judged((container("web", cpu), every))[0])

    assert known(1000) == UseBefore(0.0, 0.1)
    assert known(50) == known(110) == known(None) == UseBefore(0.0, None)
