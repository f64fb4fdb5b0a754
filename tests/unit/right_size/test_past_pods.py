"""The past of a workload in a source that knows pods by their names: those of earlier roll-outs count, and none of another workload."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roles.right_size import CollectedUse, SizedWorkload, Span, judge_all
from roles.right_size.samples import Point, Read
from roles.right_size.workloads import PodOwners
from tests.unit.right_size.world import DAY, MI, NODE, START, container

WEB = SizedWorkload("Deployment", "shop", "web")
LOGS = SizedWorkload("DaemonSet", "shop", "logs")
DB = SizedWorkload("StatefulSet", "shop", "db")
NIGHTLY = SizedWorkload("CronJob", "shop", "nightly")
POD = "web-7d9f8b6c5d-x2x4z"


def owners(*more: SizedWorkload) -> PodOwners:
    return PodOwners({("shop", f"now-{number}"): one for number, one in enumerate((WEB, LOGS, DB, NIGHTLY, *more))})


@pytest.mark.parametrize(
    ("pod", "of"),
    [
        (POD, WEB),
        ("web-6b9c4d-bbbbb", WEB),
        ("logs-x2x4z", LOGS),
        ("db-11", DB),
        ("nightly-28912345-x2x4z", NIGHTLY),
        ("now-1", LOGS),
        ("web", None),
        ("web-x2x4z", None),
        ("web-api-7d9f8b6c5d-x2x4z", None),
        ("web-7d9f8b6c5d-x2x4z-x2x4z", None),
        ("web-7d9f8b6c5d-x2x4", None),
        ("web-7d9f8b6c51-x2x4z", None),
        ("web-7d9f8b6c5d-x2x4z\n", None),
        ("web-0", None),
        ("logs-7d9f8b6c5d-x2x4z", None),
        ("nightly-x2x4z", None),
        ("", None),
        ("-7d9f8b6c5d-x2x4z", None),
    ],
)
def test_whose_pod_one_was(pod: str, of: SizedWorkload | None) -> None:
    assert owners().of("shop", pod) == of
    assert owners().of("blog", pod) is None


def test_a_name_that_fits_two_workloads_is_nobodys() -> None:
    """A DaemonSet may have the name of a ReplicaSet of the Deployment."""
    assert owners(SizedWorkload("DaemonSet", "shop", "web-7d9f8b6c5d")).of("shop", POD) is None
    assert owners(SizedWorkload("DaemonSet", "blog", "web-7d9f8b6c5d")).of("shop", POD) == WEB
    assert owners(SizedWorkload("Rollout", "shop", "web")).of("shop", POD) == WEB


def test_a_pod_that_exists_is_its_controllers_whatever_its_name() -> None:
    other = SizedWorkload("Pod", "shop", POD)
    found = PodOwners({("shop", "web-1"): WEB, ("shop", POD): other})
    assert found.of("shop", POD) == other and found.exists("shop", POD) and not found.exists("shop", "web-7d9f8b6c5d-bbbbb")


def week(pod: str, end: float, memory: int = 100 * MI, rising: int = 0) -> Span:
    times = [end - 7 * DAY + 300 * number for number in range(2016)]
    points = tuple(Point(at, memory + rising * number, memory + rising * number) for number, at in enumerate(times))
    slow = {int(times[0] // DAY): {1 + 233: 2016}}  # about 100m
    return Span(f"prometheus {pod}", pod, "", "", times[0], Read(times[-1], "prometheus", memory=memory), 2016, slow=slow, points=points)


def seen(*more: tuple[str, Span]) -> CollectedUse:
    one = replace(container("web", 1000, 1024 * MI), workload=WEB, pod="web-6b9c4dbbbb-bbbbb")
    return CollectedUse("c", [one], [one], {}, {("shop", "web-77777777-x2x4z"): LOGS}, nodes=[NODE])


def test_pods_of_earlier_roll_outs_fill_the_least_span() -> None:
    """Rolled out a day ago, and Prometheus has the week before."""
    young = replace(week("web-6b9c4dbbbb-bbbbb", START + DAY), first=START, points=week("x", START + DAY).points[-288:])
    more = {("shop", "web-6b9c4dbbbb-bbbbb", "app"): young}
    [found] = judge_all(seen(), {}, 7 * DAY, more)
    assert (found.cpu.decision, found.memory.decision) == ("wait", "wait")
    for pod in (POD, "web-77777777-x2x4z", "web-api-7d9f8b6c5d-x2x4z"):
        [found] = judge_all(seen(), {}, 7 * DAY, {**more, ("shop", pod, "app"): week(pod, START)})
        decided = "lower" if pod == POD else "wait"
        assert (found.cpu.decision, found.memory.decision) == (decided, decided), "no pod of another workload counts"
    assert found.found.cpu_median == pytest.approx(100, rel=0.02)
    [found] = judge_all(seen(), {}, 7 * DAY, {**more, ("shop", POD, "other"): week(POD, START)})
    assert found.cpu.decision == "wait", "another container"


def test_a_pod_that_is_gone_counts_for_the_need_and_not_for_a_leak() -> None:
    gone = week(POD, START, 50 * MI, rising=MI // 4)
    more = {("shop", "web-6b9c4dbbbb-bbbbb", "app"): week("web-6b9c4dbbbb-bbbbb", START + DAY), ("shop", POD, "app"): gone}
    [found] = judge_all(seen(), {}, 0, more)
    assert found.memory.pattern == "spiky" and found.found.trend is None and found.memory.high == 50 * MI + 2015 * (MI // 4)
    [found] = judge_all(seen(), {}, 0, {("shop", "web-6b9c4dbbbb-bbbbb", "app"): gone})
    assert found.memory.pattern == "leaking", "it would be one of a pod that exists"
