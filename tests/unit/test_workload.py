"""Pods before and after a change: who was hurt, and who was expected to restart."""

from __future__ import annotations

from dataclasses import replace

from roles.api import Container, Pod
from roles.proof.workload import gone, hurt, vanished

APP = Pod("default", "app", "u1", "Running", "", False, False, "", (Container("c", "id1", True, 0, None),))


def test_nothing_happened() -> None:
    assert hurt([APP], [APP], ()) == []


def test_a_restart_is_seen_by_its_count_and_by_its_container() -> None:
    counted = replace(APP, containers=(replace(APP.containers[0], restarts=1),))
    other = replace(APP, containers=(replace(APP.containers[0], id="id2"),))
    for after in (counted, other):
        assert hurt([APP], [after], ()) == ["pod default/app: container c was restarted"]
        assert hurt([APP], [after], ("app",)) == []


def test_a_pod_that_failed_newly() -> None:
    failed = replace(APP, phase="Failed", reason="OutOfcpu")
    assert hurt([APP], [failed], ()) == ["pod default/app failed (OutOfcpu)"]
    assert hurt([failed], [failed], ()) == []
    assert hurt([], [failed], ()) == ["pod default/app failed (OutOfcpu)"]


def test_another_pod_of_the_name_is_its_controller_s_doing() -> None:
    assert hurt([APP], [replace(APP, uid="u2", containers=(replace(APP.containers[0], id="id2"),))], ()) == []


def test_one_that_was_waiting_to_be_started_again_is_not_hurt_by_it() -> None:
    crashing = replace(APP, containers=(Container("c", "id1", False, 7, None),))
    assert hurt([crashing], [replace(APP, containers=(Container("c", "id2", False, 8, None),))], ()) == []


def test_only_who_was_announced_may_go() -> None:
    for reason in ("Evicted", "OutOfpods", "OutOfcpu", "Preempting", "NodeAffinity", "UnexpectedAdmissionError"):
        failed = replace(APP, phase="Failed", reason=reason, containers=())
        assert hurt([APP], [failed], (), {"default/app"}) == []
        assert hurt([APP], [failed], (), {"default/other"}) == [f"pod default/app failed ({reason})"]
        assert hurt([APP], [failed], ()) == [f"pod default/app failed ({reason})"]
        assert gone([APP], [failed]) == [f"default/app ({reason})"] and gone([failed], [failed]) == []


def test_one_that_its_kubelet_put_out_is_hurt_though_it_ended_well() -> None:
    """Its containers ended with 0: Succeeded, and no reason."""
    evicted = replace(APP, phase="Succeeded", put_out=True)
    assert hurt([APP], [evicted], ()) == ["pod default/app was put out by its kubelet"]
    assert hurt([APP], [evicted], (), {"default/app"}) == [] and hurt([evicted], [evicted], ()) == []
    assert hurt([APP], [replace(APP, phase="Succeeded")], ()) == []
    assert gone([APP], [evicted]) == ["default/app (put out by its kubelet)"] and gone([evicted], [evicted]) == []


def test_one_that_may_go_and_ended_has_gone() -> None:
    ended = replace(APP, phase="Succeeded")
    assert gone([APP], [ended]) == [] and gone([APP], [ended], {"default/other"}) == []
    assert gone([APP], [ended], {"default/app"}) == ["default/app (ended)"] and gone([ended], [ended], {"default/app"}) == []


def test_one_made_anew_that_finds_no_room_is_no_harm_where_others_may_go() -> None:
    new = replace(APP, name="app-2", uid="u2", phase="Failed", reason="OutOfpods")
    assert hurt([APP], [new], (), {"default/app"}) == []
    assert hurt([APP], [new], ()) == ["pod default/app-2 failed (OutOfpods)"]
    assert hurt([APP], [replace(new, reason="UnexpectedAdmissionError")], (), {"default/app"}) != []


def test_one_that_was_deleted_ends_by_that() -> None:
    """A roll-out or a scale-down of somebody else's, caught between the end of its containers and its own."""
    for before in (APP, replace(APP, deleted=True)):
        assert hurt([before], [replace(APP, deleted=True, phase="Failed")], ()) == []
        evicted = replace(APP, deleted=True, phase="Failed", reason="Evicted")
        assert hurt([before], [evicted], ()) == ["pod default/app failed (Evicted)"], "deleted afterwards, by its controller"
    assert gone([APP], [replace(APP, deleted=True, phase="Failed")]) == []


def test_one_that_is_not_there_any_more_is_not_called_unharmed() -> None:
    assert vanished([APP], [], ()) == ["default/app"] and vanished([APP], [APP], ()) == []
    assert vanished([APP], [replace(APP, uid="u2")], ()) == ["default/app"], "another pod of the name"
    assert vanished([APP], [], ("app",)) == [] and vanished([APP], [], (), {"default/app"}) == []
    for over in (replace(APP, phase="Succeeded"), replace(APP, phase="Failed"), replace(APP, deleted=True)):
        assert vanished([over], [], ()) == []
