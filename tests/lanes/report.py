"""Lines while a run goes on, and tables at its end. Pure: takes what happened, gives text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from tests.lanes.durations import UNKNOWN
from tests.lanes.schedule import NONE, Unit

SLOWEST = 10
# From the mildest to the worst: a test that passed, and failed in its teardown, has failed.
_ORDER = ("", "passed", "skipped", "xfailed", "xpassed", "failed")


@dataclass
class Test:
    """What is known of one test: its result is the worst of setup, call and teardown; empty while it has none."""

    lane: str
    seconds: float = 0.0
    result: str = ""

    def add(self, when: str | None, outcome: str, seconds: float, xfail: bool = False) -> None:
        self.seconds += seconds
        found = {"skipped": "xfailed", "passed": "xpassed"}.get(outcome, outcome) if xfail else outcome
        # A setup or teardown that passed says nothing.
        if found == "passed" and when in ("setup", "teardown"):
            return
        self.result = max(self.result, found, key=_ORDER.index)


def results(found: Iterable[str]) -> str:
    """`8 passed, 1 failed`; the failed first."""
    counted = Counter(one or "not run" for one in found)
    ordered = sorted(counted, key=lambda name: (name != "failed", name != "not run", name != "passed", name))
    return ", ".join(f"{counted[name]} {name}" for name in ordered)


def planned(units: Iterable[Unit]) -> str:
    """How many tests there are of each shape."""
    counted: Counter[str] = Counter()
    for unit in units:
        counted[unit.shape] += len(unit.tests)
    labs = [f"{number} in the {shape} lab" for shape, number in counted.items() if shape != NONE]
    return f"tests to run: {', '.join([*labs, *([f'{counted[NONE]} without a lab'] if counted[NONE] else [])]) or 'none'}"


def began(unit: Unit) -> str:
    likely = "never timed" if unit.seconds == UNKNOWN else f"likely {unit.seconds:.0f} s"
    return f"{unit.title}: {len(unit.tests)} {plural('test', len(unit.tests))}, {likely}"


def ended(unit: Unit, tests: Mapping[str, Test], seconds: float, lab_seconds: float, to_go: int) -> str:
    told = results(tests[test].result if test in tests else "" for test in unit.tests)
    lab = f", {lab_seconds:.0f} s of them for the lab" if lab_seconds >= 1 else ""
    return f"{unit.title}: {told}, {seconds:.0f} s{lab} [lane has {to_go} to go]"


def plural(word: str, number: int) -> str:
    return word if number == 1 else f"{word}s"


def failed(test: str, when: str | None, reason: str) -> str:
    place = "" if when == "call" else f" at {when}" if when in ("setup", "teardown") else ""
    first = " ".join(reason.split())[:200]
    return f"FAILED{place} {test}" + (f": {first}" if first else "")


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as their widest cell; numbers to the right."""
    lines = [list(headers), *(list(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
    right = [all(_is_number(row[column]) for row in rows) for column in range(len(headers))]
    return [
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width) for cell, width, to_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    ]


def _is_number(cell: str) -> bool:
    return cell.replace(".", "", 1).isdigit() or cell in ("", "-")


def modules(units: Iterable[Unit], tests: Mapping[str, Test]) -> list[str]:
    """Module, lab, lane, tests, seconds, result; those that failed or were not run first, then the longest. A folder of unit tests
    is one row."""
    found: dict[tuple[str, str], list[str]] = {}
    for unit in units:
        found.setdefault((_place(unit), unit.shape), []).extend(unit.tests)
    rows = []
    for (place, shape), names in found.items():
        known = [tests[name] for name in names if name in tests]
        told = [tests[name].result if name in tests else "" for name in names]
        lanes = "+".join(dict.fromkeys(test.lane for test in known)) or "-"
        seconds = sum(test.seconds for test in known)
        good = not {"failed", ""} & set(told)
        rows.append((good, -seconds, [place, shape, lanes, str(len(names)), f"{seconds:.1f}", results(told)]))
    return table(["module", "lab", "lane", "tests", "seconds", "result"], [row for _, _, row in sorted(rows, key=lambda row: row[:2])])


def _place(unit: Unit) -> str:
    path = PurePosixPath(unit.module)
    return f"{path.parent}/" if unit.shape == NONE and "unit" in path.parts else unit.module


def slowest(tests: Mapping[str, Test]) -> list[str]:
    chosen = sorted(tests.items(), key=lambda one: -one[1].seconds)[:SLOWEST]
    return table(["seconds", "lane", "test"], [[f"{test.seconds:.1f}", test.lane, name] for name, test in chosen])


def lanes(outputs: Mapping[str, Mapping[str, Mapping[str, float]]], total: float) -> list[str]:
    """Where the time of each lane went. `outputs`: lane -> what its worker sent; without its own end it sent nothing."""
    rows = []
    for lane, output in outputs.items():
        seconds, cpu = output.get("seconds"), output.get("cpu")
        if not seconds or not cpu:
            rows.append([lane, *("-" for _ in range(6)), f"{total:.0f}"])
            continue
        busy = seconds["start"] + seconds["tests"] + seconds["labs"]
        spans = [seconds["start"], seconds["tests"], seconds["labs"], max(0.0, total - busy), cpu["worker"], cpu["children"]]
        rows.append([lane, *(f"{one:.0f}" for one in spans), f"{total:.0f}"])
    return table(["lane", "start", "tests", "labs", "nothing to do", "CPU itself", "CPU children", "total"], rows)


def causes(outputs: Iterable[Mapping[str, Mapping[str, float]]]) -> list[str]:
    """Seconds by cause, over all lanes."""
    summed: Counter[str] = Counter()
    for output in outputs:
        for cause, seconds in output.get("spent", {}).items():
            summed[cause] += seconds  # type: ignore[assignment]
    return table(["seconds", "spent on"], [[f"{seconds:.0f}", cause] for cause, seconds in summed.most_common()]) if summed else []
