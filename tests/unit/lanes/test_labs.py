"""The lab of a lane: what is asked of it before a unit. The stand-in has the lab's interface and no more."""

from __future__ import annotations

from pathlib import Path

from tests.lanes.labs import LaneLab


class Stand:
    def __init__(self, shape: str | None = None) -> None:
        self.shape_name, self.asked, self.wrong = shape, [], ""
        self.failing: dict[str, str] = {}

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

    def well(self) -> str:
        return self.wrong

    def evidence(self, folder: Path) -> None:
        raise AssertionError("not asked for here")

    def down(self) -> None:
        self._do("down")
        self.shape_name = None


def made(shape: str | None = None) -> tuple[Stand, LaneLab]:
    stand = Stand(shape)
    ticks = iter(range(1000))
    return stand, LaneLab("a", stand, lambda: float(next(ticks)))


def test_a_lab_is_made_once_for_units_of_its_shape() -> None:
    stand, lane = made()
    for module in ("one.py", "two.py"):
        lane.need("small", module)
    lane.need("wide", "three.py")
    assert stand.asked == ["become small", "become wide"] and lane.reason == ""
    assert lane.notes == ["lane a: lab (small) made in 1 s", "lane a: lab (wide) made in 1 s"] and lane.seconds > 0


def test_a_lab_that_is_found_is_not_trusted() -> None:
    stand, lane = made("small")
    lane.need("small", "one.py")
    assert stand.asked == ["become small"] and lane.notes == ["lane a: lab (small) found and reset in 1 s"]


def test_a_lab_that_tests_left_unwell_is_reset_once() -> None:
    stand, lane = made()
    lane.need("small", "one.py")
    stand.wrong = "w1 is\nnot Ready"
    lane.need("small", "two.py")
    stand.wrong = ""
    lane.failed("two.py::test_x")
    lane.failed("two.py::test_y")
    lane.need("small", "three.py")
    lane.need("small", "four.py")
    assert stand.asked == ["become small", "pristine", "pristine"]
    assert lane.notes[1:] == ["lane a: lab reset after one.py: w1 is not Ready", "lane a: lab reset after two.py: two.py::test_x failed"]


def test_a_failure_does_not_follow_into_another_lab() -> None:
    stand, lane = made()
    lane.need("small", "one.py")
    lane.failed("one.py::test_x")
    lane.need("wide", "two.py")
    lane.need("wide", "three.py")
    assert stand.asked == ["become small", "become wide"]


def test_what_cannot_be_reset_is_made_again() -> None:
    stand, lane = made()
    lane.need("small", "one.py")
    stand.wrong, stand.failing = "no API", {"pristine": "disk full"}
    lane.need("small", "two.py")
    assert stand.asked == ["become small", "pristine", "down", "become small"] and lane.reason == ""
    assert lane.notes[-1] == "lane a: lab made again after one.py: no API; it could not be reset: disk full"


def test_without_a_lab_the_reason_is_kept_until_there_is_one() -> None:
    stand, lane = made()
    stand.failing = {"become small": "no memory"}
    lane.need("small", "one.py")
    assert lane.reason == "lane a: the lab (small) cannot be made: no memory"
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
