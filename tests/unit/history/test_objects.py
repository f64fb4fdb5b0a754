"""Which runs deploys/rollback.py undoes as runs on API objects, and why it does not undo one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from pyinfra.api.exceptions import DeployError

from roles.engine.bridge import Fleet
from roles.engine.transaction.object_record import kind_of_run, planned
from roles.history import Recorded, RollbackOptions, Speaker, objects
from roles.history.facts import parse
from tests.unit.history.world import NO_WAY, OBJECTS_LINES, OBJECTS_RUN, answer, change, kept, of_objects, recorded


def to_undo(*known: Recorded, run: str = OBJECTS_RUN) -> Any:
    return objects.to_undo(cast(Fleet, None), RollbackOptions(), run, {"cp1": list(known)})


def test_a_run_on_objects_is_found_in_the_records_of_the_nodes() -> None:
    with pytest.raises(DeployError, match=NO_WAY):
        to_undo(recorded(change(run="r20260101-000000-aaaa")), of_objects())


def test_a_run_on_nodes_is_not_one_on_objects() -> None:
    newest = recorded(change(run="r20260103-000000-cccc"))
    assert to_undo(of_objects(), newest, run="r20260103-000000-cccc") is None
    assert to_undo(run="r20260109-000000-ffff") is None


def test_a_record_that_cannot_be_used_says_why() -> None:
    with pytest.raises(DeployError, match=r"cp1: the record of .*a newer daytwo wrote it \(format 99"):
        to_undo(of_objects([{**OBJECTS_LINES[0], "format": 99}, *OBJECTS_LINES[1:]]))
    lost = {key: value for key, value in OBJECTS_LINES[1].items() if key != "fields"}
    with pytest.raises(DeployError, match=r"lacks something .*undo it by hand"):
        to_undo(of_objects([OBJECTS_LINES[0], lost]))
    with pytest.raises(DeployError, match=r"changed nothing that can be undone \(nobody's\)"):
        to_undo(of_objects(OBJECTS_LINES[:1]))


def test_the_operators_own_record_is_read_if_no_node_knows_the_run(own: Path) -> None:
    kept(own, {"event": "run", "format": 1}, {"event": "begin", **kind_of_run("nobody's", {})}, *OBJECTS_LINES[1:])
    with pytest.raises(DeployError, match=NO_WAY):
        to_undo()


def test_a_run_on_nodes_has_an_own_record_too(own: Path) -> None:
    kept(own, {"event": "run", "format": 1}, {"event": "begin"}, {"event": "plan", "component": "kubelet", "files": []})
    assert to_undo() is None


def test_a_check_left_nothing_to_undo(own: Path) -> None:
    kept(own, {"event": "run", "format": 1}, {"event": "begin", **kind_of_run("pod_resize_check", {})})
    with pytest.raises(DeployError, match=r"changed nothing that can be undone \(pod_resize_check\)"):
        to_undo()


@pytest.mark.parametrize("line", [{"object": "PriorityClass web", "before": None, "after": {}}, {"pod": "web-1", "changes": {}}])
def test_a_record_of_an_older_daytwo_is_restored_by_hand(own: Path, line: dict[str, Any]) -> None:
    kept(own, {"event": "run", "format": 1}, {"event": "begin"}, {"event": "plan", **line})
    with pytest.raises(DeployError, match=r"an older daytwo wrote it and did not record fields; .* restore that by hand"):
        to_undo()


def test_what_other_runs_did_to_the_same_objects_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def of(run: str, path: str, after: int, number: int) -> Recorded:
        fields = [{"path": ["value"], "before": 5, "after": after}]
        lines = [OBJECTS_LINES[0] | {"run": run}, planned(run, 1, "PriorityClass web", "update", "", fields, {"path": path, "uid": ""})]
        (found,) = parse("cp1", answer((f"{run}-cluster-objects", "state=confirmed\n", "", lines), number=str(number)), Speaker.keeper)
        return found

    known: list[Any] = []
    monkeypatch.setattr(objects, "_undone", lambda fleet, record, wanted: known.append(record))
    damaged = of_objects([OBJECTS_LINES[0] | {"run": "r4"}, {"event": "plan", "object": "x"}])
    to_undo(of_objects(), of("r2", "/web", 7, 10), of("r3", "/other", 8, 11), damaged)
    (one,) = known[0].objects
    assert [(run, field.after) for run, field in one.by_others] == [("r2", 7)]
    assert (one.run_that_set(("value",), 7), one.run_that_set(("value",), 8)) == ("r2", "")
