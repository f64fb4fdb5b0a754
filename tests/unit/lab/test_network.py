"""Which /24 the lab takes on a machine with given routes."""

from __future__ import annotations

import ipaddress

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.lab.machine import NUMBERS, candidates, free_prefix

HOME = ["default", "192.168.1.0/24", "192.168.1.7", "127.0.0.0/8", "127.0.0.1", "169.254.0.0/16"]


@pytest.mark.parametrize(
    ("routes", "prefix"),
    [
        ([], "10.77.0"),
        (HOME, "10.77.0"),
        ([*HOME, "10.77.0.0/24"], "10.99.77"),
        ([*HOME, "10.77.0.9"], "10.99.77"),  # one host is enough
        ([*HOME, "10.77.0.0/16"], "10.99.77"),
        ([*HOME, "10.0.0.0/8"], "172.27.77"),
        ([*HOME, "10.0.0.0/8", "172.16.0.0/12"], "192.168.177"),
        (["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"], "198.18.77"),
        (["0.0.0.0/1", "128.0.0.0/1", "0.0.0.0/0"], "10.77.0"),  # a VPN's default route in two halves
        (["110.77.0.0/24", "10.77.10.0/24"], "10.77.0"),  # alike only as text
        (["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "198.18.0.0/15"], None),
    ],
)
def test_free_prefix(routes: list[str], prefix: str | None) -> None:
    assert free_prefix(routes) == prefix


@given(st.lists(st.tuples(st.ip_addresses(v=4), st.integers(2, 32)), max_size=6))
def test_no_route_leads_into_the_chosen_network(pairs: list[tuple[ipaddress.IPv4Address, int]]) -> None:
    routes = [ipaddress.ip_network(f"{address}/{length}", strict=False) for address, length in pairs]
    prefix = free_prefix([str(route) for route in routes])
    for candidate in candidates(0)[: candidates(0).index(prefix) if prefix else None]:
        assert any(route.overlaps(ipaddress.ip_network(f"{candidate}.0/24")) for route in routes)
    if prefix:
        assert not any(route.overlaps(ipaddress.ip_network(f"{prefix}.0/24")) for route in routes)


def test_no_two_labs_have_a_candidate_in_common() -> None:
    numbered = [candidate for number in NUMBERS for candidate in candidates(number)]
    assert len({*numbered}) == len(numbered) == 5 * len(NUMBERS)
    assert all(ipaddress.ip_network(f"{candidate}.0/24").is_private for candidate in numbered)


def test_a_second_lab_takes_a_network_beside_the_first() -> None:
    assert free_prefix([*HOME, "10.77.0.0/24"], number=1) == "10.77.1"
