"""The record of a change that is the cluster's own, as a node keeps it."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path

import pytest

from roles.engine.transaction import RunInfo, in_flight, model
from roles.engine.transaction.change_script import keep_script
from roles.engine.transaction.record import cluster_record, end_record
from roles.history import Speaker, plan
from roles.history.facts import parse, question

INFO = RunInfo("r20260101-000000-aaaa", "ann@desk", "", "pyinfra inv 'it''s' $HOME `x`", "d" * 64, "2026-01-01T00:00:00Z")
NAME = f"{INFO.id}-cluster-kubelet-config"
FIELDS = [{"path": ["featureGates", "A"], "before": None, "after": True}, {"path": ["x"], "before": "it's\n$(y)", "after": 5}]
PLANNED = cluster_record(INFO, 7, NAME, "cp1", "kubelet-config", "A=true", FIELDS)


def keep(home: Path, state: str, *events: dict[str, object]) -> subprocess.CompletedProcess[str]:
    script = keep_script(NAME, INFO.holder, state, events, home=str(home))
    return subprocess.run(["sh", "-s"], input=script, text=True, capture_output=True, check=False)


def test_it_is_kept_and_read_back(tmp_path: Path) -> None:
    home = tmp_path / "daytwo"
    done = keep(home, "staged", PLANNED)
    assert done.returncode == 0 and not done.stdout + done.stderr
    here = home / "changes" / NAME
    assert (here.stat().st_mode & 0o777, (here / "record.jsonl").stat().st_mode & 0o777) == (0o700, 0o600)
    assert json.loads((here / "record.jsonl").read_text()) == PLANNED
    assert (here / "number").read_text() == (home / "number").read_text() == "1\n"

    assert keep(home, "confirmed", PLANNED, end_record(NAME, "confirmed", "", "read back", 1.5)).returncode == 0
    assert (here / "number").read_text() == "1\n", "the same change, not another one"
    assert sorted(path.name for path in here.iterdir()) == ["holder", "number", "record.jsonl", "state"]

    told = subprocess.run(["sh", "-s"], input=question([INFO.id], str(home)), text=True, capture_output=True, check=True).stdout
    (found,) = parse("cp1", told.splitlines(), Speaker.keeper)
    assert found.of_cluster and (found.state, found.run, found.order, found.component) == ("confirmed", INFO.id, 7, "kubelet-config")
    assert found.number == 1 and found.problem is None
    assert found.plan["fields"] == FIELDS and found.plan["command"] == INFO.command and found.end is not None
    assert plan.of_cluster([found]) == {"kubelet-config": [(NAME, FIELDS)]}
    assert plan.newest({"cp1": [found]}) == (INFO.id,)


def test_lines_are_added_behind_what_is_kept(tmp_path: Path) -> None:
    home = tmp_path / "daytwo"
    ended = end_record(NAME, "confirmed", "", "read back", 1.5)
    for state, event in (("staged", PLANNED), ("confirmed", ended)):
        script = keep_script(NAME, INFO.holder, state, [event], str(home), append=True)
        done = subprocess.run(["sh", "-s"], input=script, text=True, capture_output=True, check=False)
        assert done.returncode == 0 and not done.stdout + done.stderr
    here = home / "changes" / NAME
    assert [json.loads(line) for line in (here / "record.jsonl").read_text().splitlines()] == [PLANNED, ended]
    assert sorted(path.name for path in here.iterdir()) == ["holder", "number", "record.jsonl", "state"]
    assert (here / "state").read_text() == "state=confirmed\n" and (here / "number").read_text() == "1\n"


@pytest.mark.parametrize("state", ["staged", "confirmed"])
def test_it_is_never_in_flight(tmp_path: Path, state: str) -> None:
    assert keep(tmp_path, state, PLANNED).returncode == 0
    values = dict(line.split("=", 1) for line in (tmp_path / "changes" / NAME / "state").read_text().splitlines())
    assert in_flight({NAME: values}, "boot", 5) == []


def test_one_that_was_begun_is_undone_too() -> None:
    state = base64.b64encode(b"state=staged\n").decode()
    record = base64.b64encode(json.dumps(PLANNED).encode()).decode()
    (found,) = parse("cp1", ["daytwo 1", "clock 5 b", f"change {NAME} {state}= = {record}=", "end"], Speaker.keeper)
    assert plan.changes_to_undo({"cp1": [found]}, [INFO.id]) == [found]
    assert plan.newest({"cp1": [found]}) == (), "but it is no run that did something"


def test_no_room_is_told(tmp_path: Path) -> None:
    (tmp_path / "changes").write_text("a file in the way")
    assert keep(tmp_path, "staged", PLANNED).returncode != 0


def test_records_of_runs_of_the_cluster_have_an_end_without_any_change_of_the_node(tmp_path: Path) -> None:
    others = {"in-flight": ("applied", "change.sh"), "failed": ("revert-failed", "change.sh"), "killed": ("staged", "record.jsonl")}
    for name, (state, file) in others.items():
        here = tmp_path / "changes" / name
        here.mkdir(parents=True)
        (here / "state").write_text(f"state={state}\n")
        (here / "number").write_text("0\n")
        (here / file).touch()
    (tmp_path / "changes/.being-staged.1").mkdir()
    for number in range(model.KEEP + 10):
        name = f"{INFO.id}-{number}-cluster-objects"
        script = keep_script(name, INFO.holder, "confirmed", [PLANNED], str(tmp_path))
        assert subprocess.run(["sh", "-s"], input=script, text=True, check=False).returncode == 0
    left = {path.name for path in (tmp_path / "changes").iterdir()}
    newest = {f"{INFO.id}-{number}-cluster-objects" for number in range(10, model.KEEP + 10)}
    assert left == newest | {"in-flight", "failed", ".being-staged.1"}
