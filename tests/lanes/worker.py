"""What runs in a lane: an xdist worker that takes one unit at a time, and has the lab that it needs."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Generator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

import tests.lab
from tests.lanes.labs import LaneLab
from tests.lanes.schedule import NONE, PLAIN

EVIDENCE = ".evidence"
# What one module breaks must not take the place of the next one's.
MOST_FOLDERS, MOST_OF_A_MODULE = 20, 4
# Those of tests.lab.SHAPES: the shape of lab that a test needs, by the first of these markers that it has.
SHAPES = {"wide": "wide", "older": "older", "lab": "small"}
_MARKED = re.compile(rf"\bmark\.({'|'.join(SHAPES)})\b")
_END = object()


class Worker:
    """The plugin of a lane's process. `lab` is what the fixture of that name gives; None where the lane has none."""

    def __init__(self, config: pytest.Config) -> None:
        given: dict[str, Any] = config.workerinput["lanes"]  # type: ignore[attr-defined]
        self.config = config
        self.lane: str = given["lane"]
        self.folder = Path(given["folder"])
        self.skims: bool = given["skims"]
        self.lane_lab = LaneLab(tests.lab.Lab(given["lab"])) if given["has_lab"] else None
        if not self.lane_lab:
            os.environ.pop("DAYTWO_LAB", None)
        self.units: SimpleQueue[list[int] | None] = SimpleQueue()
        self.stopping = False
        self.patched = False
        self.kept: list[str] = []
        self.begun = time.monotonic()
        self.start = self.tests = self.labs_before = 0.0

    @property
    def lab(self) -> Any:
        return self.lane_lab.lab if self.lane_lab else None

    # ---- collecting

    @pytest.hookimpl(tryfirst=True)
    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """A module without a lab's marker in its text is not imported by lanes with labs, which saves them the time to load all others."""
        if self.skims and collection_path.match("test_*.py") and not _MARKED.search(collection_path.read_text(errors="replace")):
            return True
        return None

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        if isinstance(collector, pytest.Module) and self._newly_patched():
            report.outcome, report.longrepr, report.result = "failed", _patched(collector.nodeid), []
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        found = {item.nodeid: _shape(item) for item in session.items}
        lab = self.lab.shape_name if self.lane_lab else None
        (self.folder / f"{self.lane}.json").write_text(json.dumps({"tests": found, "lab": lab}))

    def _newly_patched(self) -> bool:
        monkey = sys.modules.get("gevent.monkey")
        before, self.patched = self.patched, bool(monkey and monkey.is_module_patched("threading"))
        return self.patched and not before

    # ---- running

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """In place of xdist's own loop, which starts a test only when it knows the next one: a lane would hold a unit that it
        has no time for, and which lab comes next would be chosen a test too early."""
        xdist = next(plugin for plugin in self.config.pluginmanager.get_plugins() if hasattr(plugin, "torun"))
        xdist.channel.setcallback(self._receive, endmarker=_END)
        between = Between.from_parent(session, name="between two units")
        self.start = time.monotonic() - self.begun
        while (unit := self.units.get()) is not None:
            items = [session.items[index] for index in unit]
            if self.lane_lab:
                self.lane_lab.need(_shape(items[0]), _module(items[0].nodeid))
            # Which unit comes next was not known when the last one ended: of its packages, those go that this one is not in.
            session._setupstate.teardown_exact(items[0])
            for index, item, following in zip(unit, items, [*items[1:], between], strict=True):
                if self.stopping:
                    return True
                begun = time.monotonic()
                xdist.item_index = index
                self.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                took = time.monotonic() - begun
                self.tests += took
                xdist.sendevent("runtest_protocol_complete", item_index=index, duration=took)
                if session.shouldfail or session.shouldstop:
                    return True
        if self.lane_lab:
            self.lane_lab.leave()
        return True

    def _receive(self, command: Any) -> None:
        """Called in a thread of execnet's. To be shut down with a unit in hand is to stop: the run was ended."""
        if command is _END or command[0] == "shutdown":
            self.stopping = True
            self.units.put(None)
        elif command[0] == "runtests":
            self.units.put(list(command[1]["indices"]))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        if self.lane_lab and self.lane_lab.reason:
            pytest.fail(self.lane_lab.reason, pytrace=False)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if self._newly_patched():
            report.outcome, report.longrepr = "failed", _patched(item.nodeid)
        if not self.lane_lab:
            return report
        if report.failed:
            self.lane_lab.failed = self.lane_lab.failed or item.nodeid
            self._keep(item, report)
        # What the controller is to know goes with the next report.
        report.lane_notes, self.lane_lab.notes = self.lane_lab.notes, []
        report.lane_broken = bool(self.lane_lab.reason)
        report.lane_lab_seconds = self.lane_lab.seconds - self.labs_before
        self.labs_before = self.lane_lab.seconds
        return report

    def _keep(self, item: pytest.Item, report: pytest.TestReport) -> None:
        """What a failed test has left to look at, before its teardown takes it away."""
        assert self.lane_lab
        new = item.nodeid not in self.kept
        alike = sum(_module(test) == _module(item.nodeid) for test in self.kept)
        if new and (len(self.kept) >= MOST_FOLDERS or alike >= MOST_OF_A_MODULE):
            return
        self.kept += [item.nodeid] if new else []
        folder = self.config.rootpath / EVIDENCE / self.lane / folder_name(item.nodeid, self.kept.index(item.nodeid) + 1)
        folder.mkdir(parents=True, exist_ok=True)
        if new and not self.lane_lab.reason:
            try:
                self.lane_lab.lab.evidence(folder)
            except Exception as error:
                (folder / "no-evidence.txt").write_text(f"{error!r}\n")
        with (folder / "report.txt").open("a", errors="backslashreplace") as file:
            file.write(f"{item.nodeid}: {report.when} failed in lane {self.lane}\n\n{report.longreprtext}\n\n")
            file.writelines(f"---- {title}\n{text}\n" for title, text in report.sections)

    # ---- the end

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        notes: list[str] = []
        left: list[str] = []
        making = 0.0
        if self.lane_lab:
            notes, left = self.lane_lab.notes, self.lane_lab.left
            try:
                if not keeps(self.lane):
                    self.lane_lab.down()
            except Exception as error:
                notes.append(f"the lab could not be taken down: {error}")
            making = self.lane_lab.seconds
        times = os.times()
        seconds = [self.start, self.tests, making, times.user + times.system, times.children_user + times.children_system]
        spent = {str(cause): float(took) for cause, took in getattr(sys.modules.get("tests.lab.tools"), "SPENT", {}).items()}
        self.config.workeroutput["lanes"] = {"seconds": seconds, "spent": spent, "notes": notes, "left": left}  # type: ignore[attr-defined]


class Between(pytest.Item):
    """Named as the next item after the last of a unit, and never run: it shares nothing but the session with any other, and so all is
    torn down but the fixtures of the session."""

    def runtest(self) -> None:
        raise NotImplementedError


def _shape(item: pytest.Item) -> str:
    return next((shape for marker, shape in SHAPES.items() if item.get_closest_marker(marker)), NONE)


def _module(test: str) -> str:
    return test.partition("::")[0]


def _patched(where: str) -> str:
    return (
        f"{where} has replaced Python's threading by gevent's, for all tests of this process: locks on files would block it for ever. "
        "Importing pyinfra_cli does that; do it as tests/unit/test_inventories.py does"
    )


def folder_name(test: str, number: int) -> str:
    """A folder's name for a test: no character that a shell, a file system or an archive of CI's minds, of bounded length."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", f"{number}-{Path(_module(test)).stem}-{test.partition('::')[2]}")[:120]


def keeps(lane: str) -> bool:
    """Whether a lane's lab stays up at the end: a developer's own always does."""
    return lane == PLAIN or os.environ.get("DAYTWO_KEEP_LABS") == "1"
