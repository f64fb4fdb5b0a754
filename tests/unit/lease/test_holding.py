"""A Lease that two processes want, whose clocks differ and whose requests may be lost: never do both hold it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roles.engine.api import Conflict, NoApi
from roles.engine.lease import ApiLease, Holding, LeaseLost
from roles.engine.lease.keeping import Record


@dataclass
class Board:
    """A Lease as the API server keeps it: written only at the version that was read. `lost`: whether this request, or its answer, is."""

    spec: dict[str, Any] = field(default_factory=dict)
    number: int = 0
    lost: Callable[[], bool] = lambda: False

    def read(self) -> Record:
        if self.lost():
            raise NoApi("no answer")
        return Record.of({"metadata": {"resourceVersion": str(self.number)}, "spec": self.spec} if self.number else None)

    def write(self, before: Record, spec: Mapping[str, Any]) -> Record:
        if self.lost():
            raise NoApi("no answer")
        if before.version != (str(self.number) if self.number else ""):
            raise Conflict("cp1", "/lease", "it was changed", "read it again")
        self.spec, self.number = {**self.spec, **spec}, self.number + 1
        if self.lost():
            raise NoApi("the answer was lost")
        return self.read()


class Clock:
    """Starts anywhere."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def two(board: Board, seconds: int = 60) -> tuple[Holding, Holding, list[Clock]]:
    clocks = [Clock(5.0), Clock(90000.0)]
    one, other = (Holding(board, name, seconds, clock=clock) for name, clock in zip(("one", "other"), clocks, strict=True))
    return one, other, clocks


def passes(clocks: list[Clock], seconds: float) -> None:
    for clock in clocks:
        clock.now += seconds


def test_the_second_waits_as_long_as_the_first_renews_and_takes_it_after_its_end() -> None:
    one, other, clocks = two(Board())
    assert one.take() == "" and one.held and one.term == "one/0"
    for _ in range(20):
        assert "one holds it" in other.take()
        passes(clocks, one.pause)
        one.renew()
    other.take()
    passes(clocks, 59)
    assert "free after 1 s" in other.take()
    passes(clocks, 1)
    assert other.take() == "" and other.term == "other/1"
    assert not one.held
    with pytest.raises(LeaseLost, match="other holds it now"):
        one.renew()


def test_an_orderly_end_makes_it_free_at_once() -> None:
    one, other, _ = two(Board())
    one.take()
    one.release()
    assert not one.held and other.take() == "" and other.term == "other/1"
    one.release()
    assert "other holds it" in one.take()


def test_who_cannot_renew_ends_before_another_may_begin() -> None:
    board = Board()
    one, other, clocks = two(board)
    one.take()
    other.take()
    board.lost = lambda: True
    passes(clocks, 39)
    one.renew()
    passes(clocks, 1)
    with pytest.raises(LeaseLost, match="was not renewed for 40 s"):
        one.renew()
    board.lost = lambda: False
    assert "one holds it" in other.take()
    with pytest.raises(LeaseLost):
        one.renew()


def test_a_lost_answer_is_settled_by_the_next_look() -> None:
    board = Board()
    one, other, _ = two(board)
    answers = iter([False, False, True])
    board.lost = lambda: next(answers, False)
    with pytest.raises(NoApi):
        one.take()
    assert "one holds it" in other.take()
    assert one.take() == "" and board.spec["leaseTransitions"] == 0


def test_whatever_is_written_there() -> None:
    hostile = {"holderIdentity": "x\n\x1b[2J" * 99, "leaseDurationSeconds": 10**12, "renewTime": {"a": 1}, "leaseTransitions": "no"}
    one, _, clocks = two(Board(hostile, 1))
    said = one.take()
    assert "holds it" in said and "\n" not in said and "\x1b" not in said and len(said) < 400
    passes(clocks, 3601)
    assert one.take() == ""


@pytest.mark.parametrize("name", ["", "Upper", "../pods", "a" * 64, "a/b"])
def test_a_name_that_no_lease_may_have(name: str) -> None:
    with pytest.raises(ValueError, match="is no name of a Lease"):
        ApiLease(lambda ask: pytest.fail("asked"), "kube-system", name)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_never_do_two_hold_it(seed: int) -> None:
    """Both try or renew at any time, may stop for a while or for ever, and the API loses requests and answers in phases."""
    dice, board = Random(seed), Board()
    one, other, clocks = two(board, dice.choice([10, 60]))
    for _ in range(120):
        odds = dice.choice([0.0, 0.0, 0.5, 0.9])
        board.lost = lambda odds=odds: dice.random() < odds  # type: ignore[misc]
        passes(clocks, dice.random() * one.pause * dice.choice([1, 1, 4]))
        who = dice.choice([one, other])
        try:
            if who.held:
                who.renew() if dice.random() < 0.9 else who.release()
            else:
                who.take()
        except (LeaseLost, NoApi, Conflict):
            pass
        assert not (one.held and other.held)
