"""Which runs deploys/changes.py lists."""

from __future__ import annotations

from typing import Any

import pytest

from roles.engine.bounds import moment
from roles.engine.inputs import read_host
from roles.engine.transaction import Refusal
from roles.history import ChangesOptions, Recorded, age, change_reports, chosen, facts
from roles.history.facts import HistoryError, parse
from tests.unit.history.world import answer

NOW = 1_770_000_000.0


def change(run: str, at: str, state: str = "confirmed", host: str = "w1") -> Recorded:
    return Recorded(host, f"{run}-{host}", state, "", "", "", {"run": run, "at": at}, None)


CHANGES = [
    change("r1", "2026-01-01T00:00:00Z"),
    change("r2", "2026-01-20T00:00:00Z", "revert-failed"),
    change("r3", "2026-01-30T00:00:00Z"),
    change("r3", "2026-01-30T00:00:00Z", host="w2"),
    change("r4", "no time"),
    change("r5", "2026-02-02T00:00:00Z", "reverted"),
]


@pytest.mark.parametrize(
    ("given", "runs"),
    [
        ({}, ["r1", "r2", "r3", "r3", "r4", "r5"]),
        ({"last": 2}, ["r2", "r4", "r5"]),
        ({"since": "1m"}, ["r2", "r4"]),
        ({"since": "36h"}, ["r2", "r4", "r5"]),
        ({"since": "4d"}, ["r2", "r3", "r3", "r4", "r5"]),
        ({"since": "99999d", "last": 1}, ["r2", "r5"]),
    ],
)
def test_an_age_and_a_number_choose_runs_and_hide_nothing_that_is_not_over(given: dict[str, Any], runs: list[str]) -> None:
    now = moment("2026-02-02T12:00:00Z")
    assert now is not None
    assert [one.run for one in chosen(CHANGES, ChangesOptions(**given), now.timestamp())] == runs


def test_a_change_for_a_program_has_what_the_record_says_and_nothing_that_it_does_not() -> None:
    made, bare = change_reports([change("r4", "no time"), Recorded("w1", "x", "applying", "", "", "", {}, None)], ())
    assert made.model_dump(mode="json") == {
        "run": "r4", "at": "no time", "host": "w1", "component": "?", "state": "confirmed", "reason": "",
        "who": "?", "what": "?", "command": "?", "of_cluster": False, "undone_by": None,
    }  # fmt: skip
    assert bare.at is None


def test_one_run_alone() -> None:
    names = [change("r20260131-235900-1a2b", "2026-01-01T00:00:00Z"), *CHANGES]
    assert chosen(names, ChangesOptions(run="r20260131-235900-1a2b"), NOW) == names[:1]


@pytest.mark.parametrize("given", [{"since": "7"}, {"since": "1w"}, {"since": "-1d"}, {"since": "0d"}, {"last": 0}, {"run": "r1"}])
def test_what_chooses_nothing_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(Refusal):
        read_host("w1", lambda key, default=None: given.get(key, default), ChangesOptions, tuple(given))


def test_a_node_with_records_without_an_end_is_an_error_of_that_node() -> None:
    lines = answer(*((f"r{number}-w1-kubelet", "state=reverted\n", "", []) for number in range(facts.MOST_RECORDS + 2)))
    with pytest.raises(HistoryError, match=r"w1: .* it has more than 1000 records"):
        parse("w1", lines)


@pytest.mark.parametrize(
    ("at", "seconds"), [("2026-02-02T02:40:00Z", 0), ("2026-02-02T02:50:00Z", -600), ("9999-12-31T23:59:59Z", None), ("soon", None)]
)
def test_an_age_that_no_clock_gives_is_not_known(at: str, seconds: float | None) -> None:
    assert age(at, NOW) == seconds
