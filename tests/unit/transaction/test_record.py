"""The record of a run: whole lines on disk or nothing more is begun; and read back, whatever a power cut made of its end."""

from __future__ import annotations

import contextlib
import json
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from roles.engine.transaction import Refusal
from roles.engine.transaction.record import FORMAT, RunRecord, Unrecorded, parse_events, read_events
from tests.unit.hosts import INFO


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


@contextlib.contextmanager
def room(size: int) -> Iterator[None]:
    """No file may become larger than this: a write that would go beyond takes a part, and the next one fails (setrlimit(2))."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_first_line_says_the_format() -> None:
    kept = RunRecord(INFO)
    kept.write({"event": "begin"})
    assert [event["event"] for event in lines(kept.path)] == ["run", "begin"] and lines(kept.path)[0]["format"] == FORMAT
    assert kept.path.stat().st_mode & 0o777 == 0o600 and kept.path.parent.stat().st_mode & 0o777 == 0o700


def test_a_line_that_does_not_fit_is_an_error_and_is_taken_back() -> None:
    kept = RunRecord(INFO)
    kept.write({"event": "begin"})
    before = kept.path.read_bytes()
    with room(len(before) + 20), pytest.raises(Unrecorded, match=r"could not be written .*nothing begins without it.*XDG_STATE_HOME"):
        kept.write({"event": "plan", "text": "x" * 100})
    assert kept.path.read_bytes() == before, "no half a line: what follows would be lost with it"
    kept.write({"event": "end"})
    assert [event["event"] for event in lines(kept.path)] == ["run", "begin", "end"]


def test_a_first_line_that_does_not_fit_is_written_later() -> None:
    kept = RunRecord(INFO)
    with room(10), pytest.raises(Unrecorded):
        kept.write({"event": "begin"})
    kept.write({"event": "begin"})
    assert [event["event"] for event in lines(kept.path)] == ["run", "begin"]


def test_a_home_that_cannot_be_written(home: Path) -> None:
    (home / "daytwo").write_text("a file in the way")
    with pytest.raises(Unrecorded, match=str(home)):
        RunRecord(INFO).write({"event": "begin"})


def test_a_record_of_another_run_is_not_added_to() -> None:
    RunRecord(INFO).write({"event": "begin"})
    with pytest.raises(Unrecorded, match="exists"):
        RunRecord(INFO).write({"event": "begin"})


def test_file_and_directories_are_synced(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    kept = RunRecord(INFO)
    kept.write({"event": "begin"})
    assert {str(kept.path), str(home / "daytwo/runs"), str(home / "daytwo"), str(home)} <= set(synced)
    assert synced[-1] == str(kept.path)


def test_a_cut_last_line_is_told_and_the_others_are_read(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(b'{"event": "run", "format": 1}\n{"event": "about"}\n{"event": "pl')
    found = read_events(path)
    assert [event["event"] for event in found.events] == ["run", "about"] and found.cut and found.damaged == (3,)
    path.write_bytes(b'{"event": "run", "format": 1}\n' + b"\0" * 40)
    assert read_events(path).cut, "as some file systems leave the end of a file after a power cut"
    path.write_bytes(b'{"event": "run"}\n')
    assert not read_events(path).cut and read_events(path).format == 0, "from before the format was said"


def test_a_damaged_line_in_the_middle_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(b'{"event": "run", "format": 1}\n{"event": "pl\n{"event": "end"}\n')
    with pytest.raises(Refusal, match=r"line 2 of this record cannot be read.*undo by hand"):
        read_events(path)


@pytest.mark.parametrize("version", [FORMAT + 1, "2", -1, 1.5, [1]])
def test_a_format_that_is_not_known_is_refused(tmp_path: Path, version: object) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps({"event": "run", "format": version}) + "\n")
    with pytest.raises(Refusal, match=r"a newer daytwo wrote this record.*use the daytwo that wrote it"):
        read_events(path)


@pytest.mark.parametrize("data", [b"", b"\n", b"[1]\n", b'"x"\n', b"\xff\xfe\n", b"[" * 100000])
def test_whatever_is_there_is_read_without_an_error(data: bytes) -> None:
    assert parse_events(data).events == ()
