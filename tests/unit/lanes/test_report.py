"""Lines and tables."""

from __future__ import annotations

import pytest

from tests.lanes import report
from tests.lanes.durations import UNKNOWN
from tests.lanes.report import Test as Outcome
from tests.lanes.schedule import Unit
from tests.lanes.worker import LONGEST_NAME, folder_name


@pytest.mark.parametrize(
    ("phases", "result"),
    [
        ([("setup", "passed", False), ("call", "passed", False), ("teardown", "passed", False)], "passed"),
        ([("setup", "passed", False)], ""),
        ([("setup", "passed", False), ("call", "passed", False), ("teardown", "failed", False)], "failed"),
        ([("setup", "skipped", False), ("teardown", "passed", False)], "skipped"),
        ([("setup", "failed", False), ("teardown", "passed", False)], "failed"),
        ([("call", "skipped", True)], "xfailed"),
        ([("call", "passed", True)], "xpassed"),
        ([("call", "passed", False), ("???", "failed", False)], "failed"),
    ],
)
def test_the_result_of_a_test_is_its_worst(phases: list[tuple[str, str, bool]], result: str) -> None:
    test = Outcome("a")
    for when, outcome, xfail in phases:
        test.add(when, outcome, 1.5, xfail)
    assert (test.result, test.seconds) == (result, 1.5 * len(phases))


def test_the_lines_of_a_unit() -> None:
    unit = Unit("tests/test_audit.py", "small", ["x::1", "x::2", "x::3"], 120)
    assert report.planned([unit, Unit("u", "none", ["u::1"])]) == "tests to run: 3 in the small lab, 1 without a lab"
    assert report.began(unit) == "tests/test_audit.py (small): 3 tests, likely 120 s"
    assert report.began(Unit("m", "wide", ["m::1"], UNKNOWN)) == "m (wide): 1 test, never timed"
    found = {"x::1": Outcome("a", 1, "passed"), "x::2": Outcome("a", 1, "failed")}
    assert (
        report.ended(unit, found, 132.4, 61, 5)
        == "tests/test_audit.py (small): 1 failed, 1 not run, 1 passed, 132 s, 61 s of them for the lab [lane has 5 to go]"
    )
    assert report.ended(unit, found, 9, 0.2, 0).endswith("1 passed, 9 s [lane has 0 to go]")
    assert report.failed("x::1", "call", "assert 1\n  == 2") == "FAILED x::1: assert 1 == 2"
    assert report.failed("x::1", "setup", "") == "FAILED at setup x::1"


def test_the_table_of_modules() -> None:
    units = [
        Unit("tests/unit/transaction/test_a.py", "none", ["a::1", "a::2"]),
        Unit("tests/unit/transaction/test_b.py", "none", ["b::1"]),
        Unit("tests/integration/test_long.py", "small", ["l::1"]),
        Unit("tests/integration/test_gates.py", "none", ["g::1"]),
        Unit("tests/integration/test_bad.py", "wide", ["x::1", "x::2"]),
        Unit("tests/integration/test_late.py", "small", ["y::1"]),
    ]
    tests = {
        "a::1": Outcome("u", 0.25, "passed"),
        "a::2": Outcome("u", 0.25, "skipped"),
        "b::1": Outcome("u", 0.5, "passed"),
        "l::1": Outcome("a", 100, "passed"),
        "g::1": Outcome("u", 7, "passed"),
        "x::1": Outcome("w", 3, "failed"),
        "x::2": Outcome("w", 3, "passed"),
    }
    rows = [line.split(maxsplit=5) for line in report.modules(units, tests)]
    assert rows == [
        ["module", "lab", "lane", "tests", "seconds", "result"],
        ["tests/integration/test_bad.py", "wide", "w", "2", "6.0", "1 failed, 1 passed"],
        ["tests/integration/test_late.py", "small", "-", "1", "0.0", "1 not run"],
        ["tests/integration/test_long.py", "small", "a", "1", "100.0", "1 passed"],
        ["tests/integration/test_gates.py", "none", "u", "1", "7.0", "1 passed"],
        ["tests/unit/transaction/", "none", "u", "3", "1.0", "2 passed, 1 skipped"],
    ]


def test_columns_are_aligned_and_numbers_stand_to_the_right() -> None:
    assert report.table(["name", "s"], [["a", "10.5"], ["long one", "3"]]) == ["name         s", "a         10.5", "long one     3"]


def test_the_ten_slowest() -> None:
    tests = {f"t{number}": Outcome("a", number) for number in range(12)}
    rows = [line.split() for line in report.slowest(tests)]
    assert rows[1:] == [[f"{number}.0", "a", f"t{number}"] for number in range(11, 1, -1)]


def test_where_the_time_of_lanes_went() -> None:
    sent = {"seconds": {"start": 5.0, "tests": 60.0, "labs": 25.0, "waiting": 3.0}, "cpu": {"worker": 7.0, "children": 30.0}}
    rows = [line.split() for line in report.lanes({"a": sent, "crashed": {}}, 100.0)]
    assert rows[1:] == [["a", "5", "60", "25", "10", "7", "30", "100"], ["crashed", *"------", "100"]]


def test_causes_are_summed_over_lanes() -> None:
    rows = [line.split(maxsplit=1) for line in report.causes([{"spent": {"lab made": 60, "reboot": 5}}, {}, {"spent": {"reboot": 90.4}}])]
    assert rows[1:] == [["95", "reboot"], ["60", "lab made"]]
    assert report.causes([{}]) == []


def test_a_folder_has_a_harmless_name() -> None:
    taken: set[str] = set()
    for test, name in [
        ("tests/integration/test_x.py::test_a[w1-/etc/x y\x1b]", "test_x-test_a_w1-_etc_x_y"),
        ("tests/integration/test_x.py::test_a[w1-/etc/x_y]", "test_x-test_a_w1-_etc_x_y.2"),
        ("tests/integration/test_x.py::..", "test_x-"),
        ("tests/integration/test_x.py::" + "long" * 99, ("test_x-" + "long" * 99)[:LONGEST_NAME]),
    ]:
        found = folder_name(test, taken)
        assert found == name
        taken.add(found)
