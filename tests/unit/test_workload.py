"""Pods before and after a change: who was hurt, and who was expected to restart."""

from __future__ import annotations

from dataclasses import replace

from roles.api import Container, Pod
from roles.proof.workload import hurt

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
