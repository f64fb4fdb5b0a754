"""What runs beside the lanes: starts a worker for each, tells how far they are, and writes the tables."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

import tests.lab
from tests.lanes import schedule
from tests.lanes.dispatch import Dispatch
from tests.lanes.schedule import NONE, Lane, Plan, Unit
from tests.lanes.worker import EVIDENCE, keeps

# Seconds by test, of those in a lab or of one and more; a run rewrites it on request only.
DURATIONS = "tests/durations.json"
# Between two lines on the tests that need no lab, seconds: they are many and short.
PACE = 30.0
# The lane without a lab gives way to those that drive one, but not so far that it would be all that is left to do in the end.
BEHIND = 5
# How long lanes may take to go down when a run is interrupted: as long as execnet itself gives them.
PATIENCE = 20
_LANE = "DAYTWO_LANE"


def workers(lanes: Sequence[Lane]) -> list[str]:
    """xdist's --tx, one a lane. The environment is set before the worker loads anything; unit tests get what labs leave them."""
    ours = {lane.name: f"//env:LAB={lane.lab}//env:DAYTWO_LAB=1" if lane.has_lab else f"//nice={BEHIND}" for lane in lanes}
    return [f"popen//id={name}//env:{_LANE}={name}{more}" for name, more in ours.items()]


def lane_of(node: Any) -> str:
    return str(node.gateway.spec.env[_LANE])


@dataclass
class Known:
    """What is known of one test: its result is the worst of setup, call and teardown; empty while it has none."""

    lane: str = ""
    seconds: float = 0.0
    result: str = ""

    def add(self, report: pytest.TestReport) -> None:
        self.seconds += report.duration
        # A setup or teardown that passed says nothing; what crashed has another `when`.
        found = "" if report.passed and report.when != "call" else report.outcome
        self.result = max(self.result, found, key=("", "passed", "skipped", "failed").index)


class Controller:
    """The plugin of the process that was called."""

    def __init__(self, config: pytest.Config, lanes: Sequence[Lane]) -> None:
        self.config, self.lanes = config, lanes
        self.root: Path = config.rootpath
        self.folder = Path(tempfile.mkdtemp(prefix="daytwo-lanes-"))
        self.begun = self.last_line = time.monotonic()
        self.quiet = True
        self.shapes: dict[str, str] = {}
        self.units: list[Unit] = []
        self.plan_: Plan | None = None
        self.tests: dict[str, Known] = {}
        self.outputs: dict[str, dict[str, Any]] = {lane.name: {} for lane in lanes}
        self.unit_begun: dict[str, float] = {}
        self.lab_seconds: Counter[str] = Counter()
        self.crashed = False

    # ---- workers

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self.session = session
        shutil.rmtree(self.root / EVIDENCE, ignore_errors=True)
        # Dots, and how many per cent of them, say nothing of lanes.
        if self._terminal:
            self._terminal._show_progress_info = False

    def pytest_configure_node(self, node: Any) -> None:
        lane = next(lane for lane in self.lanes if lane.name == lane_of(node))
        # A module without labs is only left unread where another lane reads it, and nobody has named it.
        folders = all((self.config.invocation_params.dir / str(argument)).is_dir() for argument in self.config.args)
        skims = lane.has_lab and folders and any(not other.has_lab for other in self.lanes)
        node.nodemanager.EXIT_TIMEOUT = PATIENCE
        given = {"lane": lane.name, "lab": lane.lab, "has_lab": lane.has_lab, "skims": skims, "folder": str(self.folder)}
        node.workerinput["lanes"] = given

    @pytest.hookimpl(tryfirst=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Dispatch:
        return Dispatch(config, log, self, lane_of)

    def pytest_testnodedown(self, node: Any, error: object) -> None:
        sent = getattr(node, "workeroutput", {}).get("lanes")
        if sent:
            self.outputs[lane_of(node)] = sent
            for note in sent["notes"]:
                self._line(lane_of(node), note)
        if error:
            self.crashed = True
            self._line(lane_of(node), f"the worker has gone: {error}")

    # ---- the plan

    def plan(self) -> Plan:
        there = {}
        for lane in self.lanes:
            sent = json.loads((self.folder / f"{lane.name}.json").read_text())
            self.shapes |= {test: shape for test, shape in sent["tests"].items() if test not in self.shapes}
            if sent["lab"]:
                there[lane.name] = sent["lab"]
        self.units = schedule.units(self.shapes, self._took())
        # xdist knows only what the last worker has collected.
        self.session.testscollected = len(self.shapes)
        counted = Counter(self.shapes.values())
        said = [f"{number} without a lab" if shape == NONE else f"{number} in the {shape} lab" for shape, number in counted.items()]
        self._line("", f"tests to run: {', '.join(said) or 'none'}")
        self.plan_ = Plan(self.lanes, list(self.units), there)
        return self.plan_

    def unit_began(self, lane: str, unit: Unit) -> None:
        self.unit_begun[lane], self.lab_seconds[lane] = time.monotonic(), 0
        if unit.shape != NONE:
            self._line(lane, f"{unit.title}: {_counted(len(unit.tests))}, likely {unit.seconds:.0f} s")

    def unit_ended(self, lane: str, unit: Unit) -> None:
        if unit.shape != NONE and self.plan_:
            took = f"{time.monotonic() - self.unit_begun[lane]:.0f} s, {self.lab_seconds[lane]:.0f} s of them for the lab"
            self._line(lane, f"{unit.title}: {self._results(unit.tests)}, {took} [lane has {self.plan_.to_go(lane)} to go]")

    # ---- reports

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        lane = lane_of(report.node)  # type: ignore[attr-defined]
        known = self.tests.setdefault(report.nodeid, Known())
        known.lane = lane
        known.add(report)
        for note in getattr(report, "lane_notes", []):
            self._line(lane, note)
        self.lab_seconds[lane] += getattr(report, "lane_lab_seconds", 0.0)  # type: ignore[assignment]
        if getattr(report, "lane_broken", False) and self.plan_:
            self.plan_.broken.add(lane)
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            why = " ".join(str(crash.message if crash else report.longrepr).split()).removeprefix("Failed: ")[:200]
            place = f" at {report.when}" if report.when in ("setup", "teardown") else ""
            self._line(lane, f"FAILED{place} {report.nodeid}: {why}")
        elif self.shapes.get(report.nodeid) == NONE and time.monotonic() - self.last_line >= PACE:
            mine = [name for name, shape in self.shapes.items() if shape == NONE]
            self._line(lane, f"{sum(name in self.tests for name in mine)} of {_counted(len(mine))} done")

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
        if session.exitstatus == pytest.ExitCode.OK and (self.crashed or self.shapes.keys() - self.tests.keys()):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        self._take_down()
        if self.config.getoption("--durations-record"):
            passed = {name: round(test.seconds, 1) for name, test in self.tests.items() if test.result == "passed"}
            worth = {name: seconds for name, seconds in passed.items() if seconds >= 1 or self.shapes[name] != NONE}
            took = {name: seconds for name, seconds in (self._took() | worth).items() if self._is_there(name)}
            (self.root / DURATIONS).write_text(json.dumps(took, indent=1, sort_keys=True, ensure_ascii=False) + "\n")

    def _took(self) -> dict[str, float]:
        path = self.root / DURATIONS
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def _is_there(self, test: str) -> bool:
        return (self.root / test.partition("::")[0]).exists()

    def _take_down(self) -> None:
        """The labs of workers that did not come to their end; each takes down its own, else."""
        for lane in self.lanes:
            if not lane.has_lab or keeps(lane.name):
                continue
            try:
                lab = tests.lab.Lab(lane.lab)
                if lab.exists or not self.outputs[lane.name]:
                    lab.down()
            except Exception as error:
                self._line(lane.name, f"the lab could not be taken down: {error}")

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        spent: Counter[str] = Counter()
        for output in self.outputs.values():
            spent.update(output.get("spent", {}))
        for title, lines in {
            "modules": self._modules(),
            "lanes, in seconds": self._lanes(),
            "seconds by cause": [f"{seconds:7.0f}  {cause}" for cause, seconds in spent.most_common()],
            "modules that left their lab changed": [line for output in self.outputs.values() for line in output.get("left", ())],
            "evidence": sorted(str(path.relative_to(self.root)) for path in (self.root / EVIDENCE).glob("*/*") if path.is_dir()),
        }.items():
            if lines:
                terminalreporter.section(title, sep="-")
            for line in lines:
                terminalreporter.write_line(line)

    def _modules(self) -> list[str]:
        """A row for a module, and one for a folder of unit tests: those that failed or were not run first, then the longest."""
        found: dict[tuple[str, str], list[str]] = {}
        for unit in self.units:
            path = PurePosixPath(unit.module)
            place = f"{path.parent}/" if unit.shape == NONE and "unit" in path.parts else unit.module
            found.setdefault((place, unit.shape), []).extend(unit.tests)
        rows = []
        for (place, shape), names in found.items():
            known = [self.tests.get(name, Known()) for name in names]
            seconds, used = sum(test.seconds for test in known), "+".join(dict.fromkeys(test.lane for test in known if test.lane))
            good = not {"failed", ""} & {test.result for test in known}
            rows.append((good, -seconds, f"{seconds:8.1f} s  {used:<5} {place} ({shape}): {self._results(names)}"))
        return [row for _, _, row in sorted(rows)]

    def _results(self, names: Iterable[str]) -> str:
        """`1 failed, 8 passed`."""
        counted = Counter(self.tests.get(name, Known()).result or "not run" for name in names)
        return ", ".join(f"{number} {result}" for result, number in sorted(counted.items()))

    def _lanes(self) -> list[str]:
        total = time.monotonic() - self.begun
        lines = ["lane    start   tests    labs    idle   CPU itself  CPU children"]
        for lane, output in self.outputs.items():
            start, tests, making, itself, children = output.get("seconds", [0.0] * 5)
            idle = max(0.0, total - start - tests - making)
            lines.append(f"{lane:<5} {start:7.0f} {tests:7.0f} {making:7.0f} {idle:7.0f} {itself:12.0f} {children:13.0f}")
        return lines

    # ---- lines

    @property
    def _terminal(self) -> Any:
        return self.config.pluginmanager.get_plugin("terminalreporter")

    def _line(self, lane: str, text: str) -> None:
        self.last_line = time.monotonic()
        if self._terminal:
            self._terminal.ensure_newline()
            self._terminal.write_line(f"{time.strftime('%H:%M:%S')}  {lane:<3} {text}")
            self._terminal.flush()  # a log is read while it is written


def _counted(number: int) -> str:
    return f"{number} test" if number == 1 else f"{number} tests"
