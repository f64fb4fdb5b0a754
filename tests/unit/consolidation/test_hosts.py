"""The host of each Node, by names and addresses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from roles.consolidation import hosts_of
from tests.unit.placement.cluster import HOST, node


def reported(name: str, *addresses: str, hostname: str = "") -> dict[str, Any]:
    one = node(name)
    one["metadata"]["labels"][HOST] = hostname or name
    one["status"]["addresses"] = [{"type": "InternalIP", "address": address} for address in addresses]
    return one


def found(*nodes: dict[str, Any], **hosts: str) -> dict[str, str]:
    """`hosts`: the addresses of hosts, by name."""
    inventory: Any = [SimpleNamespace(name=name, address=address) for name, address in hosts.items()]
    return {name: host.name for name, host in hosts_of(nodes, inventory).items()}


def test_a_name_a_hostname_or_an_address() -> None:
    nodes = (reported("w1"), reported("ip-10-0-0-2.internal", "10.0.0.2"), reported("n3", hostname="w3"), reported("w9"))
    assert found(*nodes, w1="10.0.0.1", w2="10.0.0.2", w3="10.0.0.3") == {"w1": "w1", "ip-10-0-0-2.internal": "w2", "n3": "w3"}


def test_a_node_cannot_take_the_host_of_another_by_what_it_reports() -> None:
    assert found(reported("evil", "10.0.0.1", hostname="w1"), reported("w1", "10.0.0.1"), w1="10.0.0.1") == {"w1": "w1"}
