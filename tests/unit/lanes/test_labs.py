"""The lab of a lane: what is asked of it before a unit. The stand-in has the lab's interface and no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lanes.labs import LOOKS, LaneLab


class Stand:
    def __init__(self, shape: str | None = None) -> None:
        self.shape_name, self.asked, self.wrong = shape, [], ""
        self.failing: dict[str, str] = {}
        # What is there, and what else there is for so many looks.
        self.there = {"w1 /etc/static": "folder, 755, 0:0", "node w1": "a=b, c=d"}
        self.passing: list[dict[str, str]] = []
        self.recovering: list[str] = []

    @property
    def exists(self) -> bool:
        return self.shape_name is not None

    def _do(self, verb: str) -> None:
        self.asked.append(verb)
        if verb in self.failing:
            raise RuntimeError(self.failing[verb])

    def become(self, shape: str) -> None:
        self.shape_name = None
        self._do(f"become {shape}")
        self.shape_name = shape

    def pristine(self) -> None:
        self._do("pristine")
        self.there = Stand().there

    def well(self) -> str:
        return self.recovering.pop(0) if self.recovering else self.wrong

    def fingerprint(self) -> dict[str, str]:
        if "fingerprint" in self.failing:
            raise RuntimeError(self.failing["fingerprint"])
        return {**self.there, **(self.passing.pop(0) if self.passing else {})}

    def evidence(self, folder: Path) -> None:
        raise AssertionError("not asked for here")

    def down(self) -> None:
        self._do("down")
        self.shape_name = None


def made(shape: str | None = None) -> tuple[Stand, LaneLab]:
    stand = Stand(shape)
    ticks = iter(range(1000))
    return stand, LaneLab(stand, lambda: float(next(ticks)), lambda seconds: None)


def begun() -> tuple[Stand, LaneLab]:
    """With a small lab, for a first module."""
    stand, lane = made()
    lane.need("small", "one.py")
    return stand, lane


def test_a_lab_is_made_once_for_units_of_its_shape() -> None:
    stand, lane = made()
    for module in ("one.py", "two.py"):
        lane.need("small", module)
    lane.need("wide", "three.py")
    assert stand.asked == ["become small", "become wide"] and lane.reason == ""
    assert lane.notes == ["lab (small) made in 1 s", "lab (wide) made in 1 s"] and lane.seconds > 0


def test_a_lab_that_is_found_is_not_trusted() -> None:
    stand, lane = made("small")
    lane.need("small", "one.py")
    assert stand.asked == ["become small"] and lane.notes == ["lab (small) found and reset in 1 s"]


def test_a_lab_that_tests_left_unwell_is_reset_once() -> None:
    stand, lane = begun()
    stand.wrong = "w1 is\nnot Ready"
    lane.need("small", "two.py")
    stand.wrong = ""
    lane.failed = lane.failed or "two.py::test_x"
    lane.failed = lane.failed or "two.py::test_y"
    lane.need("small", "three.py")
    lane.need("small", "four.py")
    assert stand.asked == ["become small", "pristine", "pristine"]
    assert lane.notes[1:] == ["lab reset after one.py: w1 is not Ready", "lab reset after two.py: two.py::test_x failed"]


def test_a_lab_that_recovers_in_a_moment_is_not_reset() -> None:
    stand, lane = begun()
    stand.recovering = ["pod kube-scheduler-cp1 is not ready"] * 5
    lane.need("small", "two.py")
    assert stand.asked == ["become small"] and stand.recovering == []


def test_a_failure_does_not_follow_into_another_lab() -> None:
    stand, lane = begun()
    lane.failed = lane.failed or "one.py::test_x"
    lane.need("wide", "two.py")
    lane.need("wide", "three.py")
    assert stand.asked == ["become small", "become wide"]


def test_what_cannot_be_reset_is_made_again() -> None:
    stand, lane = begun()
    stand.wrong, stand.failing = "no API", {"pristine": "disk full"}
    lane.need("small", "two.py")
    assert stand.asked == ["become small", "pristine", "down", "become small"] and lane.reason == ""
    assert lane.notes[-1] == "lab made again after one.py: no API; it could not be reset: disk full"


def test_without_a_lab_the_reason_is_kept_until_there_is_one() -> None:
    stand, lane = made()
    stand.failing = {"become small": "no memory"}
    lane.need("small", "one.py")
    assert lane.reason == "the lab (small) cannot be made: no memory"
    stand.failing = {}
    lane.need("small", "two.py")
    assert lane.reason == "" and stand.asked == ["become small", "become small"]


def test_what_was_made_or_found_is_taken_down_and_nothing_else() -> None:
    for shape, needed, asked in [(None, False, []), ("small", False, ["down"]), (None, True, ["become small", "down"])]:
        stand, lane = made(shape)
        if needed:
            stand.failing = {"become small": "half of it is there"}
            lane.need("small", "one.py")
        lane.down()
        assert stand.asked == asked


def test_a_module_that_leaves_something_changed_is_named_and_the_lab_reset() -> None:
    stand, lane = begun()
    del stand.there["w1 /etc/static"]
    stand.there |= {"node w1": "a=b, c=e, cordoned", "namespace shop": "there"}
    lane.need("small", "two.py")
    lane.need("small", "three.py")
    assert stand.asked == ["become small", "pristine"]
    said = "one.py: namespace shop is new; node w1 is another: c=d -> c=e, cordoned; w1 /etc/static is gone"
    assert lane.left == [said]
    assert lane.notes[1:] == [f"LEFT CHANGED by {said}", "lab reset after one.py: it left nodes or cluster changed"]


def test_only_some_of_what_was_left_is_named() -> None:
    stand, lane = begun()
    stand.there |= {f"namespace n{number}": "there" for number in range(9)}
    lane.leave()
    assert lane.left == ["one.py: " + "; ".join(f"namespace n{number} is new" for number in range(5)) + "; and 4 more"]


def test_what_goes_by_itself_in_a_moment_is_not_left() -> None:
    stand, lane = begun()
    stand.passing = [{"pod default/app": "there"}] * (LOOKS - 1)
    lane.need("small", "two.py")
    assert stand.asked == ["become small"] and lane.left == []
    stand.passing = [{"pod default/app": "there"}] * LOOKS
    lane.need("small", "three.py")
    assert stand.asked == ["become small", "pristine"] and lane.left == ["two.py: pod default/app is new"]


@pytest.mark.parametrize("then", ["another shape", "the end", "not well"])
def test_what_was_left_is_named_whatever_comes_next(then: str) -> None:
    stand, lane = begun()
    stand.there["namespace shop"] = "there"
    match then:
        case "another shape":
            lane.need("wide", "two.py")
        case "the end":
            lane.leave()
        case _:
            stand.wrong = "w1 is not Ready"
            lane.need("small", "two.py")
            assert lane.notes[-1] == "lab reset after one.py: w1 is not Ready"
    assert lane.left == ["one.py: namespace shop is new"]


def test_a_module_that_failed_is_not_blamed_for_what_it_left() -> None:
    """What failed could not clean up."""
    stand, lane = begun()
    stand.there["namespace shop"] = "there"
    lane.failed = lane.failed or "one.py::test_x"
    lane.need("small", "two.py")
    assert lane.left == [] and stand.asked == ["become small", "pristine"]


def test_where_nothing_can_be_seen_the_lab_is_reset() -> None:
    stand, lane = begun()
    stand.failing["fingerprint"] = "no answer"
    lane.need("small", "two.py")
    assert stand.asked == ["become small", "pristine"] and lane.left == [] and lane.reason == ""
    assert lane.notes[-1] == "lab reset after one.py: it cannot be seen whether all is as it was: no answer"


def test_without_a_first_look_there_is_nothing_to_compare_with() -> None:
    stand, lane = made()
    stand.failing["fingerprint"] = "no answer"
    lane.need("small", "one.py")
    lane.need("small", "two.py")
    assert stand.asked == ["become small"] and lane.notes[-1] == "what this lab is like when it is new is not known: no answer"
