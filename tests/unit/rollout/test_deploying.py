"""What the deploys have in common: the data of a run, which is the same on all hosts, and hosts that did not answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from roles.engine.bridge.hosts import RunRefused
from roles.engine.rollout.deploying import one, same, unreachable


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
        ([{"depth": "x"}], "w1: depth: Input should be a valid integer, unable to parse string as an integer (given: 'x')"),
    ],
)
def test_data_that_cannot_be_meant_are_refused(data: list[dict[str, Any]], words: str) -> None:
    fleet: Any = SimpleNamespace(targets=remotes(*data))
    with pytest.raises(RunRefused) as refused:
        one(Asked)(fleet)
    assert str(refused.value).endswith(f"  - {words}")


def test_each_host_that_did_not_answer_is_named() -> None:
    fleet: Any = SimpleNamespace(unreachable=remotes({}, {}))
    assert [text.partition(":")[0] for text in unreachable(fleet)] == ["w1", "w2"]
