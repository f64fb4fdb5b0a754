"""Until when a machine may stay off: 13 months, day by day; and marks that anybody may have written."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roles.engine.findings import Severity
from roles.engine.outage import Mark
from roles.engine.outage.mark import parse_mark
from roles.engine.runs import ChangeReport
from roles.sleeping import Ends, SleepRule, asleep, due_now, findings, siblings, waiting, wake_by
from tests.unit.sleeping.world import OFF, RUN, marked, sleeper

DAY = timedelta(days=1)
YEAR = timedelta(days=365)


@pytest.mark.parametrize("age", [0, 100, 250, 328], ids=lambda days: f"certificate of {days} days")
def test_for_13_months_the_finding_comes_before_the_end_and_gets_worse(age: int) -> None:
    """A note, then a warning, then critical: at the latest on the day on which a kubelet that starts renews at once, and still can."""
    begins = OFF - age * DAY
    ends = begins + YEAR
    node, found = sleeper(marked(Ends(begins, ends, OFF + 9 * YEAR))), list[Severity]()
    for day in range(13 * 30 + 5):
        now = OFF + day * DAY
        one = asleep(node)
        assert one is not None
        first = one.dues(now, 36)[0]
        found.append(first.severity(now))
        by = wake_by(node)
        assert by is not None and by <= ends - YEAR / 10 and by <= OFF + YEAR
        assert (due_now([node], now) != {}) == (now >= by) == (first.severity(now) is Severity.critical)
        told = findings([node], now, 36, {"w1": "host-1"})[0]
        assert told.severity is first.severity(now) and told.place.node == "host-1"
        assert ("it should have been awake since" if now >= by else "wake it before") in told.why
        assert told.way_out.endswith("pyinfra INVENTORY deploys/power.py --data power_on=host-1")
        if now >= ends:
            assert "only with a new bootstrap token" in "".join(due.why for due in one.dues(now, 36))
    order = [list(Severity).index(one) for one in found]
    assert order == sorted(order, reverse=True) and set(found) == set(Severity) - ({Severity.warning} if age == 328 else set()), found
    # The alarm is there for days before the end.
    assert found.index(Severity.critical) * DAY + OFF <= ends - 30 * DAY


def test_what_nobody_has_read_is_due_soon_and_a_mark_without_its_cordon_has_no_date() -> None:
    node = sleeper(Mark(RUN, "power-off", "boot").text())
    assert wake_by(node) == OFF + 36 * DAY
    replaced = sleeper(Mark(RUN, "power-off", "boot").text(), manager="kubectl-cordon")
    assert wake_by(replaced) is None and due_now([replaced], OFF + 2 * YEAR) == {}
    one = asleep(replaced)
    assert one is not None and one.dues(OFF)[0].severity(OFF) is Severity.warning


def test_a_short_life_is_no_reason_for_a_warning_from_the_first_hour_on() -> None:
    node = sleeper(marked(Ends(OFF, OFF + DAY)))
    one = asleep(node)
    assert one is not None and wake_by(node) == OFF + 0.9 * DAY
    assert [one.dues(now)[0].severity(now).value for now in (OFF, OFF + 0.7 * DAY, OFF + 0.91 * DAY)] == ["note", "warning", "critical"]


@pytest.mark.parametrize(
    ("kubelet", "newest", "severity"),
    [("v1.36.3", 36, None), ("v1.34.0", 36, None), ("v1.33.1", 36, "warning"), ("v1.32.0", 36, "critical"), ("odd", 36, None)],
)
def test_the_version_skew(kubelet: str, newest: int, severity: str | None) -> None:
    one = asleep(sleeper(marked(Ends(OFF, OFF + YEAR)), version=kubelet))
    assert one is not None
    found = [due for due in one.dues(OFF, newest) if due.rule is SleepRule.VERSION]
    assert [due.severity(OFF) for due in found] == ([severity] if severity else [])
    assert all(due.rule is not SleepRule.VERSION for due in one.dues(OFF))


def test_the_ca_ends_too() -> None:
    node = sleeper(marked(Ends(OFF, OFF + 10 * YEAR, OFF + 100 * DAY)))
    one = asleep(node)
    assert one is not None and wake_by(node) == OFF + 70 * DAY
    assert (one.dues(OFF)[0].rule, one.dues(OFF)[0].severity(OFF)) == (SleepRule.AUTHORITY, "warning")


@pytest.mark.parametrize("node", [{}, sleeper(Mark(RUN, "drain").text()), sleeper(marked(Ends()), ready="True"), sleeper("x")])
def test_what_is_not_asleep(node: Any) -> None:
    assert asleep(node) is None and wake_by(node) is None


ODD = st.one_of(st.text(max_size=70), st.integers(), st.none(), st.lists(st.text(max_size=3), max_size=2))
TIMES = st.one_of(
    ODD, st.sampled_from(["0000-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2026-01-01T00:00:00Z", "2027-01-01", "/", "nan", "\x1b[31m"])
)


@settings(max_examples=200, deadline=None)
@given(TIMES, TIMES, TIMES, TIMES, TIMES)
def test_a_hostile_mark_breaks_nothing_and_puts_no_date_off(begins: Any, ends: Any, authority: Any, why: Any, since: Any) -> None:
    """With a cordon of a known time a machine is due within a year, whatever its mark says."""
    life = f"{begins}/{ends}" if isinstance(begins, str) and isinstance(ends, str) else begins
    text = json.dumps({"run": RUN, "purpose": "power-off", "why": why, "certificate": life, "authority": authority})
    for node in (sleeper(text), sleeper(text, since=since), sleeper(text, version=str(why))):
        if (one := asleep(node)) is None:
            continue
        for now in (OFF, datetime.max.replace(tzinfo=UTC) - DAY):
            for due in one.dues(now, 36):
                assert due.severity(now) in Severity and due.why.isprintable()
            assert all(f"{told.why}{told.place.value}".isprintable() for told in findings([node], now, 36, {}))
            due_now([node], now)
    if asleep(sleeper(text)) is not None:
        by = wake_by(sleeper(text))
        assert by is not None and by <= OFF + YEAR


def test_the_mark_has_the_dates_and_older_ones_have_none() -> None:
    ends = Ends(OFF, OFF + YEAR, OFF + 9 * YEAR)
    mark = parse_mark(marked(ends))
    assert mark is not None and Ends.of(mark) == ends and mark.why == "for the night"
    older = parse_mark('{"run": "r1", "purpose": "power-off", "boot": "b"}')
    assert older is not None and Ends.of(older) == Ends() and older.text() == '{"run": "r1", "purpose": "power-off", "boot": "b"}'


def test_the_changes_that_wait_are_those_of_its_group_since_it_is_off() -> None:
    def change(run: str, host: str, days: int, **more: Any) -> ChangeReport:
        at = (OFF + days * DAY).isoformat()
        return ChangeReport(
            run=run, at=at, host=host, component="kubelet", state="confirmed", reason="", who="", what="", command="", **more
        )

    one = asleep(sleeper(marked(Ends(OFF, OFF + YEAR))))
    assert one is not None
    groups = {"w1": ["workers", "all"], "w2": ["workers", "all"], "cp1": ["control_plane", "all"]}
    assert siblings("w1", groups) == {"w2"}
    changes = [
        change("r1", "w2", -1), change("r2", "w2", 1), change("r2", "w2", 1), change("r3", "cp1", 1),
        change("r4", "w2", 2, undone_by="r5"), change("r6", "w2", 2, of_cluster=True), change("r7", "w2", 3),
    ]  # fmt: skip
    assert waiting(one, changes, siblings("w1", groups)) == ["r2", "r7"]
