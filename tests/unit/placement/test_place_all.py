"""What "fits" promises: whatever nodes the scheduler chooses for the pods before, there is one for this pod."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from roles.engine.placement import ClusterView, Placement, place_all, where
from tests.unit.placement.cluster import cluster_of, node, pod


def outcomes(there: list[dict[str, Any]], placed: list[dict[str, Any]], moving: list[dict[str, Any]], done: int = 0) -> Iterator[int]:
    """The pods that have no node in some sequence of choices: one after the other, each on any node that the filters allow."""
    if done == len(moving):
        return
    one, rest = moving[done], moving[done + 1 :]
    found = where(one, ClusterView(there, [*placed, *rest]), ["w0"])
    if not found.on:
        yield done
        yield from outcomes(there, placed, moving, done + 1)
    for name in found.on:
        on = one | {"spec": one["spec"] | {"nodeName": name}}
        yield from outcomes(there, [*placed, on], moving, done + 1)


@given(st.integers(0, 2**32))
@example(19395)  # the last one wants to be near a pod that finds a place only after others
@settings(max_examples=400, deadline=None)
def test_what_fits_is_placed_whatever_is_chosen_before_it(seed: int) -> None:
    one = cluster_of(seed)
    found = place_all(one.moving, ClusterView(one.nodes, [*one.resident, *one.moving]), ["w0"])
    left_over = set(outcomes(one.nodes, one.resident, one.moving))
    for number, placement in enumerate(found):
        assert not (placement.fits and not placement.after_others and number in left_over), (placement, found)


def test_the_list_is_in_the_order_given() -> None:
    pods = [pod("b", "w0"), pod("a", "w0")]
    found: list[Placement] = place_all(pods, ClusterView([node("w0"), node("w1")], pods), ["w0"])
    assert [one.pod for one in found] == ["x/b", "x/a"]
