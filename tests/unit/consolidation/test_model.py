"""What the inventory says of its machines, or is refused for."""

from __future__ import annotations

from typing import Any

import pytest

from roles.consolidation.model import Machines, Terms, read_machines
from roles.engine.transaction import Refusal

LENT = {"watts": 1, "capacity": "reclaimable"}


def machines(**hosts: dict[str, Any]) -> Machines:
    return read_machines([(host, data.get) for host, data in hosts.items()])


def test_one_unit_for_all_hosts() -> None:
    assert machines(w1={"watts": 120}, w2={"watts": "80.5", "capacity": "reclaimable"}) == Machines(
        "watts", {"w1": 120.0, "w2": 80.5}, {"w2": Terms()}
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
        ({"w1": {"watts": 1, "available": "Mo 07:00-19:00"}}, "w1: available is 'Mo 07:00-19:00', and the machine is owned; set capacity"),
        ({"w1": LENT | {"available": "at night"}}, "w1: 'at night' is not hours; write DAYS HH:MM-HH:MM"),
        ({"w1": LENT | {"tz": "CET"}}, "w1: tz is 'CET'; write the IANA name of a place, such as Europe/Berlin, or UTC"),
        ({"w1": LENT | {"notice": 15}}, "w1: notice is 15; write a time of at most 168h with its unit, such as 15m"),
        ({"w1": LENT | {"notice": "-1m"}}, "w1: notice is -1m; write a time"),
        ({"w1": LENT | {"notice": "1y"}}, "w1: notice is 1y; write a time"),
    ],
)
def test_what_is_refused_names_the_hosts(hosts: dict[str, dict[str, Any]], words: str) -> None:
    with pytest.raises(Refusal) as refused:
        machines(**hosts)
    assert words in str(refused.value)
    assert "give every host either watts" in str(refused.value) or "capacity" in words or "must be" in words or "write" in words


def test_the_terms_of_a_reclaimable_machine() -> None:
    found = machines(w1=LENT | {"available": "Mo-Fr 19:00-07:00,Sa 00:00-24:00", "tz": "Europe/Berlin", "notice": "1h30m"}, w2=LENT)
    assert (str(found.reclaimable["w1"].hours), found.reclaimable["w1"].notice) == ("Mo-Fr 19:00-07:00, Sa 00:00-24:00 Europe/Berlin", 5400)
    assert found.reclaimable["w2"] == Terms(None, 900)


def test_many_hosts_are_not_all_listed() -> None:
    with pytest.raises(Refusal, match=r"h0, h1, h2, h3, h4 and 15 more: neither"):
        machines(**{f"h{number}": {} for number in range(20)})
