"""A host of an inventory, for tests of runs: it grants the cluster's lock, and gives each run its number."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from roles.engine.bridge import Feed, Fleet
from roles.engine.context import ClusterStep, Stage
from roles.engine.object_runs import ObjectRun
from roles.engine.remote import Answer
from roles.engine.transaction import ObjectsRecord, RunInfo
from roles.engine.transaction.change_script import HOME
from roles.engine.transaction.object_record import parse
from roles.engine.transaction.record import RunRecord, Unrecorded
from roles.history import facts

INFO = RunInfo("r20260101-000000-aaaa", "ann@desk", "", "pyinfra inv deploy", "d" * 64, "2026-01-01T00:00:00Z")
#: What counts the runs of a cluster.
COUNT = "6dc0be2b-6b01-44f8-9d9a-6c3a5a3b54f2"


class LockHost:
    connected, alive, is_control_plane, groups = True, True, True, ("control_plane",)

    def __init__(self, name: str = "cp1") -> None:
        self.name = name

    def ensure_connected(self, within: float = 0) -> None:
        """It always is connected."""

    def run(
        self,
        script: str,
        *,
        stdin: str | None = None,
        timeout: float | None = None,
        on_line: Callable[[str], None] | None = None,
        feed: Feed | None = None,
    ) -> Answer:
        if feed is None or on_line is None:
            return self.answer(script, stdin or "")
        if stdin:
            return self.change(on_line, feed)
        on_line("locked 0a 1")
        while (beat := feed.get()) not in ("q", None):
            if beat == "?":
                on_line("held")
        return Answer(0, [], [])

    def answer(self, script: str, stdin: str) -> Answer:
        """To a command: the number of the run."""
        return Answer(0, [f"number {COUNT} 7"], [])

    def change(self, on_line: Callable[[str], None], feed: Feed) -> Answer:
        """Take a change."""
        raise NotImplementedError


class RecordHost(LockHost):
    """The host of the cluster's lock; a shell runs the scripts that keep records, in a directory of the test. `full`: from that script
    on there is no room."""

    def __init__(self, home: Path) -> None:
        super().__init__()
        self.home, self.full, self.kept = home, 100, 0

    def answer(self, script: str, stdin: str) -> Answer:
        if not stdin:
            return super().answer(script, stdin)
        self.kept += 1
        if self.kept >= self.full:
            return Answer(1, [], ["No space left on device"])
        done = subprocess.run(["sh", "-s"], input=stdin.replace(HOME, str(self.home)), text=True, capture_output=True, check=False)
        return Answer(done.returncode, done.stdout.splitlines(), done.stderr.splitlines())

    def history(self) -> list[facts.Recorded]:
        asked = facts.question(home=str(self.home))
        answer = subprocess.run(["sh", "-s"], input=asked, text=True, capture_output=True, check=True).stdout
        return facts.parse(self.name, answer.splitlines(), facts.Speaker.keeper)


def object_run(
    *stages: Stage[ClusterStep], host: LockHost | None = None, name: str = "r1", capability: str = "x", undoes: str = "", **more: Any
) -> ObjectRun:
    """A run that has ended. `host` has the cluster's lock."""
    remotes: list[Any] = [host or LockHost()]
    fleet = Fleet(remotes, [], [], remotes)
    run = ObjectRun(
        replace(INFO, id=name), stages, fleet, "", lambda run: None, capability=capability, **{"leaving": lambda: "left", **more}
    )
    run.undoes = undoes
    run.result("cp1")
    return run


def unrecorded(patch: pytest.MonkeyPatch, event: str) -> None:
    """The record has no room for this event."""
    original = RunRecord.write

    def write(self: RunRecord, told: Mapping[str, Any]) -> None:
        if told["event"] == event:
            raise Unrecorded("the record could not be written (No space left on device)")
        original(self, told)

    patch.setattr(RunRecord, "write", write)


def own_record(run: ObjectRun) -> ObjectsRecord | None:
    return parse(run.info.id, [json.loads(line) for line in run.record.path.read_text().splitlines()])
