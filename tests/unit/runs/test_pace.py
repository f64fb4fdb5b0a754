"""Which changes come first, and how many at a time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.engine.runs import Pace, stages
from roles.engine.runs.pace import parse_max_unavailable

CONTROL_PLANE, OWN = ["cp1 apiserver", "cp2 apiserver", "cp1 scheduler"], ["cp1 kubelet", "cp2 kubelet"]
WORKERS = ["w1", "w2", "w3", "w4", "w5"]


def shape(found: list) -> list[tuple[list[str], int, bool]]:  # type: ignore[type-arg]
    return [(list(stage.steps), stage.at_once, stage.canary) for stage in found]


def test_on_the_control_plane_comes_first_and_a_canary_before_the_other_workers() -> None:
    found = shape(stages(CONTROL_PLANE, WORKERS, OWN, Pace("2"), on=True))
    assert found == [
        (["cp1 apiserver"], 1, False),
        (["cp2 apiserver"], 1, False),
        (["cp1 scheduler"], 1, False),
        (["w1"], 1, True),
        (["w2", "w3", "w4", "w5"], 2, False),
        (["cp1 kubelet"], 1, False),
        (["cp2 kubelet"], 1, False),
    ]


def test_off_the_control_plane_comes_last() -> None:
    found = shape(stages(CONTROL_PLANE, WORKERS, OWN, Pace("2"), on=False))
    assert [steps for steps, _, _ in found] == [
        ["w1"],
        ["w2", "w3", "w4", "w5"],
        ["cp1 kubelet"],
        ["cp2 kubelet"],
        *([name] for name in CONTROL_PLANE),
    ]


@given(
    st.lists(st.integers(), max_size=8),
    st.integers(0, 30),
    st.lists(st.integers(), max_size=4),
    st.sampled_from(["1", "3", "40%"]),
    st.booleans(),
)
def test_every_change_has_its_turn_once(components: list[int], workers: int, own: list[int], pace: str, on: bool) -> None:
    control_plane = [("component", *pair) for pair in enumerate(components)]
    kubelets = [("worker", number, 0) for number in range(workers)]
    owns = [("own", *pair) for pair in enumerate(own)]
    found = stages(control_plane, kubelets, owns, Pace(pace), on)
    assert sorted(step for stage in found for step in stage.steps) == sorted([*control_plane, *kubelets, *owns])
    assert all(stage.at_once == 1 for stage in found if any(step[0] != "worker" for step in stage.steps)), "only workers go together"
    assert [stage.steps for stage in found if stage.canary] == [(kubelet,) for kubelet in kubelets[:1]]


@pytest.mark.parametrize(
    ("value", "workers", "at_once"), [("1", 5, 1), ("2", 5, 2), ("40%", 5, 2), ("50%", 5, 2), ("10%", 5, 1), ("100%", 5, 5), ("9", 5, 9)]
)
def test_how_many_at_once(value: str, workers: int, at_once: int) -> None:
    assert Pace(parse_max_unavailable(value)).at_once(workers) == at_once


@pytest.mark.parametrize("value", ["0", "-1", "0%", "101%", "many", "1.5", "", "5 %"])
def test_what_cannot_be_meant_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="max_unavailable"):
        parse_max_unavailable(value)


def test_a_number_from_the_data_is_as_good_as_text() -> None:
    assert parse_max_unavailable(3) == "3"
