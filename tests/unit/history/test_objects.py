"""Which runs deploys/rollback.py undoes as runs on API objects, and why it does not undo one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from pyinfra.api.exceptions import DeployError

from roles.engine.bridge.hosts import Fleet, Remote
from roles.engine.transaction.object_record import ended, first_line, kind_of_run, planned
from roles.engine.transaction.record import RunInfo, RunRecord
from roles.history import objects
from roles.history.facts import Recorded, parse
from tests.unit.history.test_history import answer, change, numbered, recorded

RUN = "r20260102-000000-bbbb"
INFO = RunInfo(RUN, "ann@desk", "", "pyinfra inv deploy", "d" * 64, "2026-01-02T00:00:00Z", {"count": "one", "number": 9})
FIELDS = [{"path": ["value"], "before": None, "after": 5}]
LINES: list[dict[str, Any]] = [
    first_line(INFO, f"{RUN}-cluster-objects", "cp1", "nobody's", {}, "create PriorityClass web", ""),
    planned(RUN, 1, "PriorityClass web", "create", "", FIELDS, {"path": "/web", "uid": ""}),
    ended("PriorityClass web", "done", "", "read back", 1.0),
]


class Host:
    """The part of a Remote that is used before there is a plan."""

    name, connected, is_control_plane = "cp1", True, True

    def __init__(self, **data: Any) -> None:
        self._data = data

    def data(self, key: str) -> Any:
        return self._data.get(key)


def fleet(**data: Any) -> Fleet:
    hosts = cast("list[Remote]", [Host(**data)])
    return Fleet(hosts, [], [], hosts)


def of_objects(lines: list[dict[str, Any]] = LINES, state: str = "confirmed", number: str = "9") -> Recorded:
    (found,) = parse("cp1", answer((f"{RUN}-cluster-objects", f"state={state}\n", "", lines), number=number))
    return found


def to_undo(*known: Recorded, **data: Any) -> Any:
    history: Mapping[str, list[Recorded]] = {"cp1": list(known)}
    return objects.to_undo(fleet(**data), lambda fleet, remotes: (dict(history), []))


NO_WAY = r"run r20260102-000000-bbbb is of nobody's, which this daytwo cannot undo; use the daytwo that started it"


def test_a_run_on_objects_is_found_by_its_name_and_as_the_newest() -> None:
    on_node = numbered(3, recorded(change(run="r20260101-000000-aaaa")), run=3)
    for data in ({"run": RUN}, {}):
        with pytest.raises(DeployError, match=NO_WAY):
            to_undo(on_node, of_objects(), **data)


def test_a_run_on_nodes_is_not_one_on_objects() -> None:
    newest = numbered(12, recorded(change(run="r20260103-000000-cccc")), run=12)
    assert to_undo(of_objects(number="3"), newest) is None
    assert to_undo(of_objects(), newest, run="r20260103-000000-cccc") is None
    assert to_undo(run="r20260109-000000-ffff") is None and to_undo() is None


def test_an_incomplete_run_is_undone_only_by_its_name() -> None:
    cut = of_objects(LINES[:2], state="staged")
    assert to_undo(cut) is None
    with pytest.raises(DeployError, match=NO_WAY):
        to_undo(cut, run=RUN)


def test_a_record_that_cannot_be_used_says_why() -> None:
    with pytest.raises(DeployError, match=r"cp1: the record of .*a newer daytwo wrote it \(format 99"):
        to_undo(of_objects([{**LINES[0], "format": 99}, *LINES[1:]]), run=RUN)
    lost = {key: value for key, value in LINES[1].items() if key != "fields"}
    with pytest.raises(DeployError, match=r"lacks something .*undo it by hand"):
        to_undo(of_objects([LINES[0], lost]), run=RUN)
    with pytest.raises(DeployError, match=r"changed nothing that can be undone \(nobody's\)"):
        to_undo(of_objects(LINES[:1]), run=RUN)


def kept(path: Path, *events: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps(event) + "\n" for event in events))


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return RunRecord(INFO).path


def test_the_operators_own_record_is_read_if_no_node_knows_the_run(own: Path) -> None:
    kept(own, {"event": "run", "format": 1}, {"event": "begin", **kind_of_run("nobody's", {})}, *LINES[1:])
    with pytest.raises(DeployError, match=NO_WAY):
        to_undo(run=RUN)


def test_a_run_on_nodes_has_an_own_record_too(own: Path) -> None:
    kept(own, {"event": "run", "format": 1}, {"event": "begin"}, {"event": "plan", "component": "kubelet", "files": []})
    assert to_undo(run=RUN) is None


def test_a_check_left_nothing_to_undo(own: Path) -> None:
    kept(own, {"event": "run", "format": 1}, {"event": "begin", **kind_of_run("pod_resize_check", {})})
    with pytest.raises(DeployError, match=r"changed nothing that can be undone \(pod_resize_check\)"):
        to_undo(run=RUN)


@pytest.mark.parametrize("line", [{"object": "PriorityClass web", "before": None, "after": {}}, {"pod": "web-1", "changes": {}}])
def test_a_record_of_an_older_daytwo_is_restored_by_hand(own: Path, line: dict[str, Any]) -> None:
    kept(own, {"event": "run", "format": 1}, {"event": "begin"}, {"event": "plan", **line})
    with pytest.raises(DeployError, match=r"an older daytwo wrote it and did not record fields; .* restore that by hand"):
        to_undo(run=RUN)
