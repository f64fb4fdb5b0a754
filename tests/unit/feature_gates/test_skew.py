"""Versions that the version skew policy allows, and versions that it does not."""

from __future__ import annotations

import pytest

from roles.feature_gates.skew import Running, problems


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
