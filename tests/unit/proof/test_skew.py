"""Versions that the version skew policy allows, and versions that it does not: now, and after a run's restarts."""

from __future__ import annotations

import pytest

from roles.engine.node import minor_of
from roles.engine.proof.skew import Restarts, Running, judge_skew, outside, problems


def cluster(*apiservers: int, **others: int) -> list[Running]:
    found = [Running(f"cp{number}", "kube-apiserver", minor) for number, minor in enumerate(apiservers, 1)]
    return found + [
        Running(f"n-{name}", {"kcm": "kube-controller-manager", "sched": "kube-scheduler"}.get(name, "kubelet"), minor)
        for name, minor in others.items()
    ]


@pytest.mark.parametrize(
    "running",
    [
        cluster(36, w1=36, kcm=36, sched=36),
        cluster(36, 35, w1=35, kcm=35),
        cluster(36, w1=33),
        cluster(27, w1=25, w2=24 + 1),
        cluster(26, w1=24),
        cluster(36, sched=35),
        [Running("w1", "kubelet", 20)],
    ],
)
def test_allowed_versions(running: list[Running]) -> None:
    assert problems(running) == []


@pytest.mark.parametrize(
    ("running", "words"),
    [
        (cluster(36, w1=37), "n-w1: kubelet 1.37 with the kube-apiserver 1.36 of cp1: a kubelet must not be newer than an API server"),
        (cluster(36, 35, w1=36), "of cp2"),
        (cluster(36, w1=32), "may be at most 3 minors older"),
        (cluster(27, w1=24), "may be at most 2 minors older"),
        (cluster(36, 34), "API servers must be within one minor; upgrade the API server of cp2 to at least 1.35"),
        (cluster(36, kcm=34), "a kube-controller-manager of 1.34 may be at most 1 minor older"),
        (cluster(35, sched=36), "a kube-scheduler must not be newer"),
    ],
)
def test_forbidden_versions(running: list[Running], words: str) -> None:
    (problem,) = problems(running)
    assert words in problem and problem.endswith("first")


def test_a_providers_version_is_in_no_policy() -> None:
    running = [Running("cp1", "kube-apiserver", 36), Running("virtual-1", "kubelet", minor_of("v1.25.0-vk-1.6.2"))]
    assert problems(running) == []


NOW = cluster(36, w1=36, w2=36)
NEWER = Restarts({("n-w1", "kubelet"): 37})


def test_what_a_restart_would_start_is_judged() -> None:
    found = judge_skew(NOW, NEWER)
    assert found.refused == (
        "n-w1: would be kubelet 1.37 with the kube-apiserver 1.36 of cp1: a kubelet must not be newer than an API server; install the old"
        " version of its package again, or upgrade the API server of cp1 first",
    )
    assert found.forbidden == {("n-w1", "kubelet")}
    # A new API server leaves an old kubelet behind, which the run does not touch.
    old = judge_skew(cluster(36, w1=33), Restarts({("cp1", "kube-apiserver"): 37}))
    assert "n-w1: kubelet 1.33 with the kube-apiserver 1.37 of cp1" in old.refused[0]


@pytest.mark.parametrize(
    ("restarts", "refused"),
    [
        (Restarts({("n-w2", "kubelet"): 36}), False),
        (Restarts({("n-w1", "kubelet"): 37}), True),
        (Restarts({("n-w1", "kubelet"): None}), True),
        (Restarts({("n-w1", "kubelet"): 37}, undoes=True), False),
        (Restarts({("n-w1", "kubelet"): 36}), False),
        (Restarts({("n-w2", "kubelet"): 36}, all_of_it=True), True),
    ],
)
def test_what_violates_the_policy_already_stops_only_what_touches_it(restarts: Restarts, refused: bool) -> None:
    found = judge_skew(cluster(36, w1=37, w2=36), restarts)
    assert bool(found.refused) is refused
    assert len(found.refused) + len(found.known) == (0 if restarts.minors == {("n-w1", "kubelet"): 36} else 1)
    assert found.forbidden == frozenset()


def test_a_node_outside_the_inventory_may_be_left_out_by_consent() -> None:
    old = {"far": {"metadata": {"name": "far"}, "status": {"nodeInfo": {"kubeletVersion": "v1.32.9"}}}}
    running = [*NOW, *outside(old, {"n-w1"}).running]
    (refused,) = judge_skew(running, Restarts(all_of_it=True)).refused
    assert refused.endswith("this node is not in the inventory: if its version should not count, --data allow_skew_of=far")
    consented = judge_skew(running, Restarts(all_of_it=True), ["far"])
    assert consented.refused == () and "(allow_skew_of)" in consented.known[0]
    # A node of the inventory has no such consent.
    assert judge_skew(cluster(36, w1=37), Restarts(all_of_it=True), ["n-w1"]).refused
