"""What the inventory says of its machines, or is refused for."""

from __future__ import annotations

from typing import Any

import pytest

from roles.consolidation.model import Machines, read_machines
from roles.engine.transaction import Refusal


def machines(**hosts: dict[str, Any]) -> Machines:
    return read_machines([(host, data.get) for host, data in hosts.items()])


def test_one_unit_for_all_hosts() -> None:
    assert machines(w1={"watts": 120}, w2={"watts": "80.5", "capacity": "reclaimable"}) == Machines(
        "watts", {"w1": 120.0, "w2": 80.5}, frozenset({"w2"})
    )
    assert machines(w1={"cost": 0}).unit == "cost"


@pytest.mark.parametrize(
    ("hosts", "words"),
    [
        ({"w1": {"watts": 1}, "w2": {"cost": 1}}, "w1, w2: cost is set for w2, watts for w1"),
        ({"w1": {"watts": 1}, "w2": {}, "w3": {}}, "w2, w3: neither cost nor watts is set"),
        ({"w1": {"watts": 1, "cost": 1}}, "w1: cost and watts are both set"),
        ({"w1": {"watts": -1}}, "w1: watts: -1, but it must be 0.0 or more"),
        ({"w1": {"watts": "a lot"}}, "w1: watts: a lot, but it must be a number"),
        ({"w1": {"watts": 1, "capacity": "spot"}}, "capacity is 'spot'; it must be one of owned, reclaimable"),
    ],
)
def test_what_is_refused_names_the_hosts(hosts: dict[str, dict[str, Any]], words: str) -> None:
    with pytest.raises(Refusal) as refused:
        machines(**hosts)
    assert words in str(refused.value)
    assert "give every host either watts" in str(refused.value) or "capacity" in words or "must be" in words


def test_many_hosts_are_not_all_listed() -> None:
    with pytest.raises(Refusal, match=r"h0, h1, h2, h3, h4 and 15 more: neither"):
        machines(**{f"h{number}": {} for number in range(20)})
