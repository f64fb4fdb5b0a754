"""The progress of a roll-out, and why it does not end."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.engine.objects.workload_rollout import (
    RolloutProgress,
    Wait,
    complaints,
    grace,
    old_pods,
    old_pods_text,
    progress,
    unavailable,
    what_to_do,
    wrong_pods,
)
from tests.unit.priority_classes.world import ending, hashed, pod, revision, workload


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
def test_a_healthy_workload(kind: str) -> None:
    assert progress(kind, workload(kind, "x")).done
    assert progress(kind, workload(kind, "x", replicas=0)).done


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
def test_a_status_from_before_the_change_says_nothing(kind: str) -> None:
    found = workload(kind, "x")
    found["metadata"]["generation"] = 4
    assert not progress(kind, found).done and "has not seen the change" in progress(kind, found).summary


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
def test_an_unfinished_roll_out(kind: str, status: dict[str, Any]) -> None:
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


def test_each_reason_is_reported_once() -> None:
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


# ---- old pods


SERVES, STARTS = RolloutProgress(True, "all new"), RolloutProgress(False, "some new")


def names(pods: list[Any]) -> list[str]:
    return [item["metadata"]["name"] for item in pods]


def test_the_old_pods_of_a_deployment_are_those_of_its_other_replicasets() -> None:
    web = workload("Deployment", "web")
    old, new = revision("ReplicaSet", "web-1", 9, web), revision("ReplicaSet", "web-2", 10, web)
    other = revision("ReplicaSet", "other-1", 99, workload("Deployment", "other"))
    pods = [
        ending(pod("web-1-a", "", old)),
        pod("web-1-b", "", old),
        pod("web-1-failed", "", old, phase="Failed"),
        ending(pod("web-1-held", "", old, phase="Failed")),
        pod("web-2-a", "", new),
        ending(pod("web-2-b", "", new)),
        ending(pod("other-1-a", "", other)),
    ]
    assert names(old_pods("Deployment", web, pods, [new, old, other])) == ["web-1-a", "web-1-b", "web-1-held"]


def test_an_old_template_that_is_the_newest_again() -> None:
    """After an undone roll-out, the old ReplicaSet has the highest revision."""
    web = workload("Deployment", "web")
    back, bad = revision("ReplicaSet", "web-1", 3, web), revision("ReplicaSet", "web-2", 2, web)
    pods = [pod("web-1-a", "", back), ending(pod("web-2-a", "", bad))]
    assert names(old_pods("Deployment", web, pods, [back, bad])) == ["web-2-a"]


@pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet"])
def test_old_pods_by_the_hash_of_their_revision(kind: str) -> None:
    web = workload(kind, "web")
    web["status"]["updateRevision"] = "two" if kind == "StatefulSet" else None
    revisions = [revision("ControllerRevision", "one", 1, web), revision("ControllerRevision", "two", 2, web)]
    foreign = revision("ControllerRevision", "three", 3, workload(kind, "other"))
    pods = [hashed(pod("old", "", web), "one"), hashed(ending(pod("ends", "", web)), "one"), hashed(pod("new", "", web), "two")]
    pods += [pod("bare", "", web), hashed(pod("over", "", web, phase="Succeeded"), "one")]
    assert names(old_pods(kind, web, pods, [*revisions, foreign])) == ["old", "ends", "bare"]


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
def test_matching_labels_are_not_ownership(kind: str) -> None:
    web = workload(kind, "web")
    old = revision("ReplicaSet" if kind == "Deployment" else "ControllerRevision", "one", 1, web)
    orphan, others = hashed(ending(pod("orphan", "")), "one"), hashed(ending(pod("theirs", "", workload(kind, "x"))), "one")
    # A Deployment never controls a pod itself, so someone else created such a pod.
    claims = [ending(pod("claims", "", web))] if kind == "Deployment" else []
    served = hashed(ending(pod("served", "", web)), "one")
    served["metadata"]["ownerReferences"][0]["controller"] = False
    assert old_pods(kind, web, [orphan, others, served, *claims], [old]) == []


def test_without_a_known_newest_template_only_ending_pods_count() -> None:
    web = workload("DaemonSet", "web")
    pods = [hashed(pod("runs", "", web), "one"), hashed(ending(pod("ends", "", web)), "two")]
    assert names(old_pods("DaemonSet", web, pods, [])) == ["ends"]


def test_grace_periods() -> None:
    plain = pod("a", "")
    assert grace(plain) == 30
    plain["spec"]["terminationGracePeriodSeconds"] = 0
    assert grace(plain) == 0
    assert grace(ending(plain, 7)) == 7, "the grace period of the deletion counts"


def test_old_pods_are_shown_with_node_and_time() -> None:
    one, other = pod("a", ""), pod("b", "")
    one["spec"]["nodeName"] = "w1"
    assert old_pods_text([ending(one)]) == "1 old one is still there: a on w1, ending since 2026-01-31T10:00:00Z (grace period 30 s)"
    held = ending(pod("c", ""), 0, finalizers=["x.io/y"])
    assert old_pods_text([other, held]) == (
        "2 old ones are still there: b on no node, not deleted; "
        "c on no node, ending since 2026-01-31T10:00:00Z (grace period 0 s), held by x.io/y"
    )
    assert old_pods_text([other] * 15).endswith("not deleted; and 3 more")


@pytest.mark.parametrize(("until", "seconds"), [("33658-01-01T00:00:00Z", 10**12), ("2026-01-31T10:00:00Z", 10**12), ("soon", 1)])
def test_a_grace_period_beyond_every_calendar(until: str, seconds: int) -> None:
    odd = ending(pod("a", ""), deletionTimestamp=until, deletionGracePeriodSeconds=seconds)
    assert "ending since an unknown time" in old_pods_text([odd])


def test_what_to_do_is_reported_once_for_each_cause() -> None:
    lost, lost_too, held, slow = (
        ending(pod("a", "")),
        ending(pod("b", "")),
        ending(pod("c", ""), finalizers=["x.io/y"]),
        ending(pod("d", "")),
    )
    lost["spec"]["nodeName"] = lost_too["spec"]["nodeName"] = "w9"
    assert what_to_do([lost, lost_too, held, slow], {"w9"}) == [
        "w9 is not ready: its pods end when its kubelet is back; if the machine is off for good: kubectl delete node w9",
        "x.io/y: the tool that set this finalizer must remove it",
        "after its grace period, find out why: kubectl describe pod -n default d",
    ]


# ---- how long


def test_it_is_done_only_when_no_old_pod_is_left() -> None:
    wait, old = Wait(300, 30), [ending(pod("a", ""), 60)]
    assert wait.judge(10, STARTS, []) == "" == wait.judge(20, SERVES, old)
    assert wait.limit == 20 + 60 + 30
    assert wait.judge(25, SERVES, []) == "done"


def test_old_pods_have_their_longest_grace_period_and_a_margin() -> None:
    wait, old = Wait(300, 30), [ending(pod("a", ""), 60), ending(pod("b", ""), 5)]
    assert wait.judge(20, SERVES, old) == wait.judge(110, SERVES, old[1:]) == ""
    assert wait.judge(111, SERVES, old[1:]) == "left"


def test_no_grace_period_blocks_a_run_forever() -> None:
    wait, old = Wait(300, 30), [ending(pod("a", ""), deletionGracePeriodSeconds=10**12)]
    assert wait.judge(290, SERVES, old) == wait.judge(590, SERVES, old) == ""
    assert wait.judge(591, SERVES, old) == "left"


def test_new_pods_that_do_not_come_are_a_failure() -> None:
    assert Wait(300, 30).judge(300, STARTS, []) == "" and Wait(300, 30).judge(301, STARTS, []) == "failed"
    assert Wait(300, 30).judge(1, RolloutProgress(False, "", "gave up"), []) == "failed"


def test_new_pods_that_no_longer_serve_get_their_time_again() -> None:
    wait, old = Wait(300, 30), [ending(pod("a", ""), 60)]
    assert wait.judge(290, SERVES, old) == wait.judge(301, STARTS, []) == wait.judge(380, STARTS, []) == ""
    assert wait.judge(381, STARTS, []) == "failed"
    early = Wait(300, 30)
    assert early.judge(10, SERVES, old) == early.judge(299, STARTS, []) == "" and early.judge(301, STARTS, []) == "failed"


@given(st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 10**9), max_size=3)), min_size=1), st.integers(1, 50))
def test_every_wait_ends(looks: list[tuple[bool, list[int]]], timeout: int) -> None:
    """Whatever each read of the cluster shows, the wait ends within twice its time plus one read each."""
    wait = Wait(timeout, 30)
    for passed in range(2 * timeout + 3):
        serves, graces = looks[passed % len(looks)]
        old = [ending(pod("a", ""), deletionGracePeriodSeconds=seconds) for seconds in graces] if serves else []
        if verdict := wait.judge(passed, SERVES if serves else STARTS, old):
            assert verdict == ("failed" if not serves else "left" if old else "done")
            return
    pytest.fail("it waits on")


@pytest.mark.parametrize(
    ("kind", "strategy", "count"),
    [
        ("Deployment", {}, 2), ("Deployment", {"rollingUpdate": {"maxUnavailable": "9%"}}, 0),
        ("Deployment", {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 0}}, 1), ("Deployment", {"type": "Recreate"}, 10),
        ("StatefulSet", {}, 1), ("StatefulSet", {"rollingUpdate": {"maxUnavailable": "25%"}}, 2),
        ("DaemonSet", {}, 1), ("DaemonSet", {"rollingUpdate": {"maxUnavailable": "25%"}}, 3),
        ("DaemonSet", {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}, 0),
    ],
)  # fmt: skip
def test_how_many_pods_a_roll_out_takes_away(kind: str, strategy: dict[str, Any], count: int) -> None:
    assert unavailable(kind, workload(kind, "web", replicas=10, strategy=strategy, updateStrategy=strategy)) == count
