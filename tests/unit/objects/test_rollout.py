"""How far a roll-out is, and why it stands still."""

from __future__ import annotations

from typing import Any

import pytest

from roles.objects.rollout import complaints, progress, wrong_pods
from tests.unit.objects.world import pod, workload


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
def test_a_workload_that_is_well(kind: str) -> None:
    assert progress(kind, workload(kind, "x")).done
    assert progress(kind, workload(kind, "x", replicas=0)).done


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
def test_a_status_from_before_the_change_says_nothing(kind: str) -> None:
    found = workload(kind, "x")
    found["metadata"]["generation"] = 4
    assert not progress(kind, found).done and "has not seen the change" in progress(kind, found).told


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("Deployment", {"updatedReplicas": 1}),
        ("Deployment", {"replicas": 3}),
        ("Deployment", {"availableReplicas": 1}),
        ("StatefulSet", {"updateRevision": "r2"}),
        ("StatefulSet", {"readyReplicas": 1}),
        ("StatefulSet", {"availableReplicas": 1}),
        ("DaemonSet", {"updatedNumberScheduled": 1}),
        ("DaemonSet", {"numberAvailable": None}),
    ],
)
def test_what_is_not_over(kind: str, status: dict[str, Any]) -> None:
    found = workload(kind, "x")
    found["status"] |= status
    state = progress(kind, found)
    assert not state.done and not state.failed


def test_a_deployment_that_gave_up() -> None:
    found = workload("Deployment", "x")
    found["status"]["conditions"] = [
        {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "timed out"}
    ]
    state = progress("Deployment", found)
    assert not state.done and state.failed == "timed out"


def test_the_reasons_are_told_once_each() -> None:
    found = workload("Deployment", "x")
    found["status"]["conditions"] = [
        {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota"},
        {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable", "message": "fine"},
    ]
    waiting = pod("a", "high", phase="Pending")
    waiting["status"] |= {
        "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}],
        "containerStatuses": [{"name": "c", "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}],
    }
    crashing = pod("b", "high")
    crashing["status"]["containerStatuses"] = [
        {"name": "c", "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 3}}}
    ]
    fine = pod("c", "high")
    fine["status"]["containerStatuses"] = [{"name": "c", "state": {"running": {}}, "ready": True}]
    unready = pod("d", "high")
    unready["status"]["containerStatuses"] = [{"name": "c", "state": {"running": {}}, "ready": False}]
    event = {"type": "Warning", "reason": "Failed", "message": "two\nlines", "involvedObject": {"kind": "Pod", "name": "a"}}
    normal = {**event, "type": "Normal"}
    assert complaints(found, [waiting, crashing, fine, unready], [event, event, normal]) == [
        "pod a: not scheduled: 0/3 nodes are available",
        "pod a: container c: ErrImagePull: no such image",
        "pod b: container c: CrashLoopBackOff: - (exit status 3)",
        "pod d: container c runs and is not ready",
        "condition ReplicaFailure=True: FailedCreate: exceeded quota",
        "event of Pod a: Failed: two lines",
    ]


def test_pods_must_have_the_class_and_its_number() -> None:
    pods = [pod("a", "high", number=5), pod("b", "low", number=1), pod("c", "high", number=4)]
    assert wrong_pods(pods, "high", 5) == ["pod b has the class low, not high", "pod c has priority 4, and high is 5"]
    assert wrong_pods(pods, "high", None) == ["pod b has the class low, not high"]
