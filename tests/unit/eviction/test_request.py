"""The request from one host's eviction data, as pyinfra passes it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from roles import eviction
from roles.engine.transaction import Refusal


def request(**data: Any) -> Any:
    remote: Any = SimpleNamespace(name="n1", data=data.get)
    return eviction._request(remote)


@pytest.mark.parametrize(("only", "names"), [(5, ("5",)), ("w1,w2", ("w1", "w2")), (["w1"], ("w1",))])
def test_names_in_the_forms_that_pyinfra_passes(only: Any, names: tuple[str, ...]) -> None:
    assert (
        request(eviction_hard="memory.available=500Mi", only=only).chosen_nodes
        == names
        == request(eviction_hard="memory.available=500Mi", nodes=only).chosen_nodes
    )


@pytest.mark.parametrize(
    ("data", "words"),
    [({"only": True}, "n1: only: true is not a list of names"), ({"move_flags": 5}, "n1: move_flags: 5 is not a boolean")],
)
def test_invalid_data(data: dict[str, Any], words: str) -> None:
    with pytest.raises(Refusal) as refused:
        request(eviction_hard="memory.available=500Mi", **data)
    assert str(refused.value).startswith(words)


def test_keys_of_other_deploys_are_ignored() -> None:
    other = dict.fromkeys(["eviction_order", "eviction_order_json", "priority_classes", "kubelet_config", "allow_unknown_gates"], "x")
    assert request(eviction_hard="memory.available=500Mi", **other).chosen_nodes is None
