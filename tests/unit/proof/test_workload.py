"""Pods before and after a change: who was hurt, and who was expected to restart."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from roles.engine.api.nodes import ContainerStatus, PodStatus
from roles.engine.proof.workload import Count, count, evicted_pods, harmed_pods, not_recreated

APP = PodStatus("default", "app", "u1", "Running", "", False, False, "", (ContainerStatus("c", "id1", True, 0, None),))

OTHER = replace(APP, name="other", uid="u2")


def test_nothing_happened() -> None:
    assert harmed_pods([APP], [APP], ()) == []


def test_a_restart_is_seen_by_its_count_and_by_its_container() -> None:
    counted = replace(APP, containers=(replace(APP.containers[0], restarts=1),))
    other = replace(APP, containers=(replace(APP.containers[0], id="id2"),))
    for after in (counted, other):
        assert harmed_pods([APP], [after], ()) == ["pod default/app: container c was restarted"]
        assert harmed_pods([APP], [after], ("app",)) == []


def test_a_pod_that_failed_newly() -> None:
    failed = replace(APP, phase="Failed", reason="OutOfcpu")
    assert harmed_pods([APP], [failed], ()) == ["pod default/app failed (OutOfcpu)"]
    assert harmed_pods([failed], [failed], ()) == []
    assert harmed_pods([], [failed], ()) == ["pod default/app failed (OutOfcpu)"]


def test_another_pod_of_the_name_is_its_controller_s_doing() -> None:
    assert harmed_pods([APP], [replace(APP, uid="u2", containers=(replace(APP.containers[0], id="id2"),))], ()) == []


def test_one_that_was_waiting_to_be_started_again_is_not_hurt_by_it() -> None:
    crashing = replace(APP, containers=(ContainerStatus("c", "id1", False, 7, None),))
    assert harmed_pods([crashing], [replace(APP, containers=(ContainerStatus("c", "id2", False, 8, None),))], ()) == []


def test_only_who_was_announced_may_go() -> None:
    for reason in ("Evicted", "OutOfpods", "OutOfcpu", "Preempting", "NodeAffinity", "UnexpectedAdmissionError"):
        failed = replace(APP, phase="Failed", reason=reason, containers=())
        assert harmed_pods([APP], [failed], (), {"default/app"}) == []
        assert harmed_pods([APP], [failed], (), {"default/other"}) == [f"pod default/app failed ({reason})"]
        assert harmed_pods([APP], [failed], ()) == [f"pod default/app failed ({reason})"]
        assert evicted_pods([APP], [failed]) == [f"default/app ({reason})"] and evicted_pods([failed], [failed]) == []


def test_one_that_its_kubelet_put_out_is_hurt_though_it_ended_well() -> None:
    """Its containers ended with 0: Succeeded, and no reason."""
    evicted = replace(APP, phase="Succeeded", was_evicted=True)
    assert harmed_pods([APP], [evicted], ()) == ["pod default/app was evicted by its kubelet"]
    assert harmed_pods([APP], [evicted], (), {"default/app"}) == [] and harmed_pods([evicted], [evicted], ()) == []
    assert harmed_pods([APP], [replace(APP, phase="Succeeded")], ()) == []
    assert evicted_pods([APP], [evicted]) == ["default/app (evicted by its kubelet)"] and evicted_pods([evicted], [evicted]) == []


def test_one_that_may_go_and_ended_has_gone() -> None:
    ended = replace(APP, phase="Succeeded")
    assert evicted_pods([APP], [ended]) == [] and evicted_pods([APP], [ended], {"default/other"}) == []
    assert (
        evicted_pods([APP], [ended], {"default/app"}) == ["default/app (ended)"] and evicted_pods([ended], [ended], {"default/app"}) == []
    )


def test_one_made_anew_that_finds_no_room_is_no_harm_where_others_may_go() -> None:
    new = replace(APP, name="app-2", uid="u2", phase="Failed", reason="OutOfpods")
    assert harmed_pods([APP], [new], (), {"default/app"}) == []
    assert harmed_pods([APP], [new], ()) == ["pod default/app-2 failed (OutOfpods)"]
    assert harmed_pods([APP], [replace(new, reason="UnexpectedAdmissionError")], (), {"default/app"}) != []


def test_one_that_was_deleted_ends_by_that() -> None:
    """A roll-out or a scale-down of somebody else's, caught between the end of its containers and its own."""
    for before in (APP, replace(APP, deleted=True)):
        assert harmed_pods([before], [replace(APP, deleted=True, phase="Failed")], ()) == []
        evicted = replace(APP, deleted=True, phase="Failed", reason="Evicted")
        assert harmed_pods([before], [evicted], ()) == ["pod default/app failed (Evicted)"], "deleted afterwards, by its controller"
    assert evicted_pods([APP], [replace(APP, deleted=True, phase="Failed")]) == []


STATIC = replace(APP, namespace="kube-system", name="etcd-cp1", uid="m1", mirror=True, config_hash="h1")
WEB = replace(APP, name="web-1", uid="w1", controller="ReplicaSet/web", controller_uid="rs")


def test_pods_that_are_as_they_were_are_counted() -> None:
    assert count([APP, WEB, STATIC], [APP, WEB, STATIC], ()) == Count(3)
    assert str(count([APP], [APP, WEB], ())) == "1 pod unharmed", "one that came is no matter"


def test_a_pod_that_vanished_is_named_and_is_not_unharmed() -> None:
    found = count([APP, WEB], [WEB], ())
    assert found == Count(1, (), ("default/app (nothing replaces it)",))
    assert str(found) == "1 pod unharmed; GONE: default/app (nothing replaces it)"
    assert count([APP], [], ()) == Count(0, (), ("default/app (nothing replaces it)",))
    assert count([replace(APP, deleted=True)], [], ()).missing == ("default/app (its deletion had begun before)",)
    assert harmed_pods([APP], [], ()) == [], "anybody may delete a pod at any time"


def test_one_that_its_controller_replaced_is_said_so() -> None:
    other = replace(WEB, name="web-2", uid="w2")
    assert count([WEB], [other], ()).missing == ("default/web-1 (replaced by ReplicaSet/web: default/web-2)",)
    assert count([WEB], [], ()).missing == ("default/web-1 (of ReplicaSet/web, which has not replaced it on this node)",)
    assert count([WEB, other], [other], ()).missing == ("default/web-1 (of ReplicaSet/web, which has not replaced it on this node)",)
    stranger = replace(other, controller_uid="another")
    assert "has not replaced it" in count([WEB], [stranger], ()).missing[0]


def test_one_of_the_same_name_is_another_pod() -> None:
    assert count([APP], [replace(APP, uid="u2")], ()) == Count(0, (), ("default/app (nothing replaces it)",))


def test_one_that_is_being_deleted_is_not_unharmed() -> None:
    assert count([APP], [replace(APP, deleted=True)], ()).missing == ("default/app (being deleted, nothing replaces it)",)
    assert count([WEB], [replace(WEB, deleted=True), replace(WEB, uid="w2", name="web-2")], ()).missing == (
        "default/web-1 (being deleted, replaced by ReplicaSet/web: default/web-2)",
    )


def test_one_that_completed_by_itself_is_said_so() -> None:
    assert count([APP], [replace(APP, phase="Succeeded")], ()) == Count(0, ("default/app",))
    assert str(count([APP], [replace(APP, phase="Succeeded")], ())) == "0 pods unharmed; completed by themselves: default/app"


def test_what_was_over_before_does_not_count() -> None:
    over = replace(APP, phase="Succeeded")
    assert count([over], [over], ()) == count([over], [], ()) == Count(0)


def test_what_is_named_elsewhere_is_neither_unharmed_nor_missing() -> None:
    evicted = replace(APP, phase="Failed", reason="Evicted")
    assert count([APP, WEB], [evicted, WEB], (), {"default/app"}) == Count(1)
    assert count([APP, WEB], [APP, WEB], (), {"default/app"}) == Count(2), "it may go, and did not"
    assert count([APP, WEB], [WEB], (), {"default/app"}) == Count(1, (), ("default/app (as announced)",))
    assert count([STATIC], [replace(STATIC, uid="m2", config_hash="h2")], ("etcd-cp1",)) == Count(0)


def test_a_static_pod_is_known_by_its_config_hash() -> None:
    """Its kubelet creates its picture in the API again, with another UID; that is no restart, and no other pod."""
    again = replace(STATIC, uid="m2")
    assert count([STATIC], [again], ()) == Count(1) and harmed_pods([STATIC], [again], ()) == []
    restarted = replace(again, containers=(replace(again.containers[0], restarts=1),))
    assert harmed_pods([STATIC], [restarted], ()) == ["pod kube-system/etcd-cp1: container c was restarted"]
    changed = replace(STATIC, uid="m3", config_hash="h2")
    assert count([STATIC], [changed], ()).missing == ("kube-system/etcd-cp1 (a static pod, whose manifest was changed meanwhile)",)
    assert count([STATIC], [], ()).missing == ("kube-system/etcd-cp1 (a static pod, whose manifest is gone)",)


def test_a_pod_that_runs_again_has_new_containers() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    running = replace(APP, containers=(ContainerStatus("c", "id1", True, 0, now),))
    again = replace(APP, containers=(ContainerStatus("c", "id2", False, 1, now),))
    waiting = replace(APP, containers=(ContainerStatus("c", "id2", False, 1, None),))
    assert not_recreated([running], [again]) == [] and not_recreated([running], [again, OTHER]) == []
    assert not_recreated([running], [running]) == not_recreated([running], [waiting]) == ["default/app"]
    assert not_recreated([running], [replace(again, containers=())]) == ["default/app"]
    # One that is gone, that had ended, or that did not run.
    assert not_recreated([running], []) == not_recreated([replace(running, phase="Succeeded")], [running]) == []
    assert not_recreated([waiting], [waiting]) == []


def test_the_mirror_pod_of_a_static_pod_may_be_another_one() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    mirror = replace(APP, mirror=True, config_hash="h", containers=(ContainerStatus("c", "id1", True, 0, now),))
    again = replace(mirror, uid="u9", containers=(ContainerStatus("c", "id2", True, 1, now),))
    assert not_recreated([mirror], [again]) == [] and not_recreated([mirror], [replace(again, containers=mirror.containers)]) == [
        "default/app"
    ]
