"""What the deploys have in common: the data of a run, which is the same on all hosts, and hosts that did not answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from roles.engine.bridge.hosts import RunRefused
from roles.engine.runs import one, same, unreachable


class Asked(BaseModel):
    format: str = "text"
    depth: int = 1


def remotes(*data: dict[str, Any]) -> list[Any]:
    return [SimpleNamespace(name=f"w{number}", data=values.get) for number, values in enumerate(data, 1)]


def test_the_keys_of_all_hosts_are_read_once() -> None:
    assert same(remotes({"format": "json"}, {"format": "json", "other": 1}), Asked) == Asked(format="json")
    assert same([], Asked) == Asked()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ([{"format": "json"}, {"format": "text"}], "w1: format differs between w1 (json) and w2 (text); set it with --data"),
        ([{"depth": "x"}], "w1: depth: x, but it must be a whole number"),
    ],
)
def test_data_that_cannot_be_meant_are_refused(data: list[dict[str, Any]], words: str) -> None:
    fleet: Any = SimpleNamespace(targets=remotes(*data))
    with pytest.raises(RunRefused) as refused:
        one(Asked)(fleet)
    assert str(refused.value).endswith(f"  - {words}")


def away(name: str, *, control_plane: bool = False) -> Any:
    return SimpleNamespace(name=name, unreachable=f"{name}: unreachable: why", is_control_plane=control_plane)


@pytest.mark.parametrize(
    ("skip", "named"),
    [
        ({}, {"w7", "w8", "cp2", "lock"}),
        ({"skip_unreachable": "true"}, {"cp2", "lock"}),
        ({"skip_unreachable": False}, {"w7", "w8", "cp2", "lock"}),
    ],
)
def test_a_change_does_without_workers_that_do_not_answer_if_it_may(skip: dict[str, Any], named: set[str]) -> None:
    lock = away("lock")
    fleet: Any = SimpleNamespace(
        targets=remotes(skip), unreachable=[away("w7"), away("w8"), away("cp2", control_plane=True), lock], lock_host=lock
    )
    said = {text.partition(":")[0]: text for text in unreachable(fleet)}
    assert said.keys() == named and all(": unreachable: why; " in text and "fix the connection" in text for text in said.values())
    assert all(("skip_unreachable=true" in text) == (name in ("w7", "w8")) for name, text in said.items())


def test_a_value_of_skip_unreachable_that_is_no_boolean_is_refused() -> None:
    fleet: Any = SimpleNamespace(targets=remotes({"skip_unreachable": "maybe"}), unreachable=[away("w7")], lock_host=away("cp1"))
    with pytest.raises(RunRefused, match="skip_unreachable"):
        unreachable(fleet)
