"""The operator's record of a run: each event is whole and on the disk, or was not written; and nothing is done without."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from roles.change.record import FORMAT, NewerFormat, RunInfo, RunRecord, read_events

INFO = RunInfo("r20260101-000000-aaaa", "ann@desk", "", "pyinfra inv deploy", "d" * 64, "2026-01-01T00:00:00Z")


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> RunRecord:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return RunRecord(INFO)


def written(record: RunRecord) -> list[str]:
    return [str(event["event"]) for event in map(json.loads, record.path.read_text().splitlines())]


def test_it_says_its_format_and_is_private(record: RunRecord) -> None:
    record.write({"event": "begin"})
    assert written(record) == ["run", "begin"] and json.loads(record.path.read_text().splitlines()[0])["format"] == FORMAT
    assert (record.path.stat().st_mode & 0o777, record.path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_short_writes_are_gone_on_with(record: RunRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, bytes(data)[:7]))
    for number in range(5):
        record.write({"event": f"event {number}"})
    assert written(record) == ["run", *(f"event {number}" for number in range(5))]


@pytest.mark.parametrize("syncs", [False, True])
def test_a_full_disk_leaves_no_part_of_an_event(record: RunRecord, monkeypatch: pytest.MonkeyPatch, syncs: bool) -> None:
    record.write({"event": "begin"})
    before = record.path.read_bytes()
    write, calls = os.write, []

    def full(descriptor: int, data: Any) -> int:
        calls.append(1)
        if len(calls) > 1 and not syncs:
            raise OSError(28, "No space left on device")
        return write(descriptor, bytes(data) if syncs else bytes(data)[:9])

    def sync(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch, pytest.raises(OSError):
        patch.setattr(os, "write", full)
        if syncs:
            patch.setattr(os, "fsync", sync)
        record.write({"event": "lost"})
    assert record.path.read_bytes() == before
    record.write({"event": "again"})
    assert written(record) == ["run", "begin", "again"]


def test_a_beginning_that_failed_is_written_the_next_time(record: RunRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, pytest.raises(OSError):
        patch.setattr(os, "write", lambda descriptor, data: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        record.write({"event": "begin"})
    record.write({"event": "begin"})
    assert written(record) == ["run", "begin"]


def test_the_folder_is_synced_too(record: RunRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")) or fsync(descriptor))
    record.write({"event": "begin"})
    assert str(record.path) in synced and str(record.path.parent) in synced and str(record.path.parent.parent) in synced


def test_a_line_that_was_cut_short_spoils_no_other(record: RunRecord) -> None:
    record.write({"event": "begin"})
    with record.path.open("a") as stream:
        stream.write('{"event": "pl')
    record.write({"event": "end"})
    assert [event["event"] for event in read_events(record.path.read_text())] == ["run", "begin", "end"]
    assert read_events('[1]\n"x"\n{"event": "a"}\n' + "[" * 100_000) == [{"event": "a"}]


def test_a_later_format_is_refused() -> None:
    with pytest.raises(NewerFormat, match="use the one that wrote it"):
        read_events('{"event": "run", "format": 2}\n')
    with pytest.raises(NewerFormat):
        read_events('{"event": "run", "format": "x"}\n')
