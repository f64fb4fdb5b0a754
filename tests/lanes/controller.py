"""What runs beside the lanes: starts a worker for each, tells how far they are, and writes the tables."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.lanes import report as told
from tests.lanes import schedule
from tests.lanes.dispatch import Dispatch
from tests.lanes.durations import Durations
from tests.lanes.schedule import NONE, Lane, Plan, Unit
from tests.lanes.worker import EVIDENCE, empty_evidence, keeps

DURATIONS = "tests/durations.json"
# Between two lines on the tests that need no lab, seconds: they are many and short.
PACE = 30.0
# The lane without a lab gives way to those that drive one, but not so far that it would be all that is left to do in the end.
BEHIND = 5
# How long lanes may take to go down when a run is interrupted: as long as execnet itself gives them.
PATIENCE = 20
# Each costs the whole time of collecting; what crashes more often than that is no accident.
MOST_CRASHES = 4
_LANE = "DAYTWO_LANE"


def workers(lanes: Sequence[Lane]) -> list[str]:
    """xdist's --tx, one a lane. The environment is set before the worker loads anything; unit tests get what labs leave them."""
    ours = {lane.name: f"//env:LAB={lane.lab}//env:DAYTWO_LAB=1" if lane.has_lab else f"//nice={BEHIND}" for lane in lanes}
    return [f"popen//id={name}//env:{_LANE}={name}{more}" for name, more in ours.items()]


def lane_of(node: Any) -> str:
    return str(node.gateway.spec.env[_LANE])


class Controller:
    """The plugin of the process that was called."""

    def __init__(self, config: pytest.Config, lanes: Sequence[Lane]) -> None:
        self.config, self.lanes = config, lanes
        self.root: Path = config.rootpath
        self.durations = Durations.read(self.root / DURATIONS)
        self.folder = Path(tempfile.mkdtemp(prefix="daytwo-lanes-"))
        self.begun = time.monotonic()
        self.quiet = True
        self.shapes: dict[str, str] = {}
        self.units: list[Unit] = []
        self.dispatch: Dispatch | None = None
        self.tests: dict[str, told.Test] = {}
        self.outputs: dict[str, dict[str, Any]] = {lane.name: {} for lane in lanes}
        self.unit_begun: dict[str, float] = {}
        self.lab_seconds: dict[str, float] = {}
        self.crashed = False
        self.last_line = self.begun

    # ---- workers

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self.session = session
        empty_evidence(self.root)
        # Dots, and how many per cent of them, say nothing of lanes.
        if self._terminal:
            self._terminal._show_progress_info = False

    def pytest_configure_node(self, node: Any) -> None:
        lane = next(lane for lane in self.lanes if lane.name == lane_of(node))
        named = any("::" in str(argument) for argument in self.config.args)
        # A module without labs is only left unread where another lane reads it.
        skims = lane.has_lab and not named and any(not other.has_lab for other in self.lanes)
        node.nodemanager.EXIT_TIMEOUT = PATIENCE
        given = {"lane": lane.name, "lab": lane.lab, "has_lab": lane.has_lab, "skims": skims, "folder": str(self.folder)}
        node.workerinput["lanes"] = given

    @pytest.hookimpl(tryfirst=True)
    def pytest_xdist_make_scheduler(self) -> Dispatch:
        self.dispatch = Dispatch(self.lanes, self, lane_of)
        return self.dispatch

    def pytest_testnodedown(self, node: Any, error: object) -> None:
        sent = getattr(node, "workeroutput", {}).get("lanes")
        if sent:
            self.outputs[lane_of(node)] = sent
            for note in sent["notes"]:
                self._line(lane_of(node), note.removeprefix(f"lane {lane_of(node)}: "))
        if error:
            self.crashed = True
            self._line(lane_of(node), f"the worker has gone: {error}")

    # ---- the plan

    def plan(self) -> Plan:
        labs = {}
        for lane in self.lanes:
            sent = json.loads((self.folder / f"{lane.name}.json").read_text())
            self.shapes.update({test: shape for test, shape in sent["tests"].items() if test not in self.shapes})
            if sent["lab"]:
                labs[lane.name] = sent["lab"]
        self.units = schedule.units(self.shapes, self.durations.unit)
        # xdist knows only what the last worker has collected.
        self.session.testscollected = len(self.shapes)
        self._line("", told.planned(self.units))
        self.last_line = time.monotonic()
        return Plan(self.lanes, list(self.units), labs)

    def unit_began(self, lane: str, unit: Unit) -> None:
        self.unit_begun[lane], self.lab_seconds[lane] = time.monotonic(), 0.0
        if unit.shape != NONE:
            self._line(lane, told.began(unit))

    def unit_ended(self, lane: str, unit: Unit) -> None:
        if unit.shape == NONE:
            return
        assert self.dispatch and self.dispatch.plan
        seconds = time.monotonic() - self.unit_begun[lane]
        self._line(lane, told.ended(unit, self.tests, seconds, self.lab_seconds[lane], self.dispatch.plan.to_go(lane)))

    # ---- reports

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        lane = lane_of(report.node)  # type: ignore[attr-defined]
        test = self.tests.setdefault(report.nodeid, told.Test(lane))
        test.lane = lane
        test.add(report.when, report.outcome, report.duration, hasattr(report, "wasxfail"))
        for note in getattr(report, "lane_notes", []):
            self._line(lane, note.removeprefix(f"lane {lane}: "))
        self.lab_seconds[lane] = self.lab_seconds.get(lane, 0.0) + getattr(report, "lane_lab_seconds", 0.0)
        if getattr(report, "lane_broken", False) and self.dispatch and self.dispatch.plan:
            self.dispatch.plan.breaks(lane)
        if report.failed:
            self._line(lane, told.failed(report.nodeid, report.when, _reason(report)))
        elif self.shapes.get(report.nodeid) == NONE and time.monotonic() - self.last_line >= PACE:
            self.last_line = time.monotonic()
            mine = [name for name, shape in self.shapes.items() if shape == NONE]
            self._line(lane, f"{sum(name in self.tests for name in mine)} of {len(mine)} tests done")

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self) -> Generator[None, Any, Any]:
        """While tests run, pytest writes no letter for any: a line above says what matters. Its summary has the words."""
        found = yield
        return (found[0], "", "") if self.quiet and found else found

    # ---- the end

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self.quiet = False
        shutil.rmtree(self.folder, ignore_errors=True)
        left = [test for test in self.shapes if test not in self.tests]
        if session.exitstatus == pytest.ExitCode.OK and (self.crashed or left):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        self._take_down()
        if self.config.getoption("--durations-record"):
            self._record()

    def _take_down(self) -> None:
        """The labs of workers that did not come to their end; each takes down its own, else."""
        for lane in self.lanes:
            if not lane.has_lab or keeps(lane.name):
                continue
            try:
                lab = self.config.hook.pytest_lanes_lab(name=lane.lab)
                if lab.exists or not self.outputs[lane.name]:
                    lab.down()
            except Exception as error:
                self._line(lane.name, f"the lab could not be taken down: {error}")

    def _record(self) -> None:
        passed = {name: test.seconds for name, test in self.tests.items() if test.result in ("passed", "skipped", "xfailed")}
        # Of a module of which only some tests were chosen, the total is not known.
        chosen = self.config.getoption("keyword") or any("::" in str(argument) for argument in self.config.args)
        whole = {unit.module for unit in self.units if unit.shape == NONE and not chosen and passed.keys() >= set(unit.tests)}
        self.durations.record(passed, self.shapes, whole)
        self.durations.forget(self.root)
        self.durations.write(self.root / DURATIONS)

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        total = time.monotonic() - self.begun
        sections = {
            "modules": told.modules(self.units, self.tests),
            "slowest tests": told.slowest(self.tests),
            "lanes, in seconds": told.lanes(self.outputs, total),
            "causes": told.causes(self.outputs.values()),
        }
        for title, lines in sections.items():
            if len(lines) > 1:
                terminalreporter.section(title, sep="-")
                for line in lines:
                    terminalreporter.write_line(line)
        changed = [line for output in self.outputs.values() for line in output.get("left", ())]
        if changed:
            terminalreporter.section("modules that left their lab changed", sep="-")
            for line in changed:
                terminalreporter.write_line(line)
        kept = sorted(path for path in (self.root / EVIDENCE).glob("*/*") if path.is_dir())
        if kept:
            terminalreporter.section("evidence", sep="-")
            for path in kept:
                terminalreporter.write_line(str(path.relative_to(self.root)))

    # ---- lines

    @property
    def _terminal(self) -> Any:
        return self.config.pluginmanager.get_plugin("terminalreporter")

    def _line(self, lane: str, text: str) -> None:
        if self._terminal:
            self._terminal.ensure_newline()
            self._terminal.write_line(f"{time.strftime('%H:%M:%S')}  {lane:<3} {text}")
            self._terminal.flush()  # a log is read while it is written


def _reason(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash else report.longrepr or "").removeprefix("Failed: ")
