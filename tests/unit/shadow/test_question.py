"""When the scheduler has had its last word, and what it said."""

from __future__ import annotations

from typing import Any

import pytest

from roles.engine.shadow import PlacedPod, Verdict
from roles.engine.shadow.question import Queues, queues, refused, settled


def pod(node: str = "", message: str = "") -> dict[str, Any]:
    said = {"type": "PodScheduled", "status": "True" if node else "False", "reason": "Unschedulable", "message": message}
    return {"metadata": {"name": "p"}, "spec": {"nodeName": node}, "status": {"conditions": [said] if node or message else []}}


METRICS = """# TYPE scheduler_pending_pods gauge
scheduler_pending_pods{queue="active"} 1
scheduler_pending_pods{queue="backoff"} 2
scheduler_pending_pods{queue="gated"} 3
scheduler_pending_pods{queue="unschedulable"} 1e+01
"""


def test_the_queues_of_the_scheduler() -> None:
    assert queues(METRICS) == Queues(3, 13)
    assert queues("") is None


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("0/5 nodes are available: 5 Insufficient cpu. no new claims to deallocate, preemption: off.", "0/5 nodes are available: 5 Insufficient cpu"),
        ("0/5 nodes are available: 5 Insufficient cpu. preemption: off.", "0/5 nodes are available: 5 Insufficient cpu"),
        ("0/1 nodes are available: 1 node(s) had taint {a: b}.", "0/1 nodes are available: 1 node(s) had taint {a: b}"),
    ],
)  # fmt: skip
def test_its_words_about_a_pod(message: str, words: str) -> None:
    assert refused(pod(message=message)) == words


def test_no_words_yet_or_none_needed() -> None:
    assert refused(pod()) is None and refused(pod("w1")) is None and refused(None) is None
    assert "\n" not in (refused(pod(message="a\nb")) or "")


@pytest.mark.parametrize(
    ("pods", "queued", "over"),
    [
        ({"a": pod("w1"), "b": pod("w2")}, None, True),
        ({"a": pod("w1"), "b": pod()}, Queues(0, 1), False),  # never tried
        ({"a": pod("w1"), "b": pod(message="no")}, Queues(0, 1), True),
        ({"a": pod("w1"), "b": pod(message="no")}, Queues(1, 0), False),  # will be tried again
        ({"a": pod("w1"), "b": pod(message="no")}, Queues(0, 0), False),  # is being tried
        ({"a": pod("w1"), "b": pod(message="no"), "other": pod()}, Queues(0, 1), False),
        ({"a": pod("w1"), "b": pod(message="no"), "other": pod()}, Queues(0, 2), True),
        ({"a": pod("w1"), "b": pod(message="no")}, None, False),
    ],
)
def test_when_the_scheduler_has_no_more_to_try(pods: dict[str, Any], queued: Queues | None, over: bool) -> None:
    assert settled(pods, ["a", "b"], queued) is over


def test_a_verdict() -> None:
    placed, unknown = PlacedPod("x/a", "placed", "w1"), PlacedPod("x/b", "not judged", why="a gate")
    assert str(Verdict((placed, unknown))) == "kube-scheduler agrees: 1 pod placed"
    no = Verdict((placed, PlacedPod("x/c", "pending", why="no room")))
    assert not no.agrees
    assert [str(one) for one in no.pods] == ["x/a: on w1", "x/c: pending: no room"]
