"""What "fits" promises: whatever nodes the scheduler chooses for the pods before, there is one for this pod."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from roles.engine.placement import ClusterView, Placement, place_all, where
from tests.unit.placement.cluster import ZONE, affinity, node, pod, spread

KEYS = ("kubernetes.io/hostname", ZONE)
APPS = ("web", "db")


@st.composite
def nodes(draw: st.DrawFn) -> list[dict[str, Any]]:
    count = draw(st.integers(2, 4))
    found = [node("w0", cpu="8")]
    for number in range(1, count):
        taints = [("gpu", "", "NoSchedule")] if draw(st.integers(0, 4)) == 0 else []
        found.append(
            node(
                f"w{number}",
                cpu=draw(st.sampled_from(["1", "2", "3"])),
                pods=draw(st.sampled_from(["2", "110"])),
                taints=taints,
                zone=draw(st.sampled_from("ab")),
            )
        )
    return found


@st.composite
def a_pod(draw: st.DrawFn, name: str, on: str) -> dict[str, Any]:
    more: dict[str, Any] = {}
    kind = draw(st.sampled_from(["", "", "", "podAffinity", "podAntiAffinity", "spread"]))
    key, app = draw(st.sampled_from(KEYS)), draw(st.sampled_from(APPS))
    if kind == "spread":
        more["topologySpreadConstraints"] = spread(
            key, draw(st.integers(1, 2)), app, nodeTaintsPolicy=draw(st.sampled_from(["Honor", "Ignore"]))
        )
    elif kind:
        more["affinity"] = affinity(kind, key, app)
    if draw(st.integers(0, 3)) == 0:
        more["tolerations"] = [{"key": "gpu", "operator": "Exists"}]
    return pod(
        name,
        on,
        cpu=draw(st.sampled_from(["0", "500m", "1", "1500m"])),
        labels={"app": draw(st.sampled_from(APPS))},
        port=draw(st.sampled_from([0, 0, 0, 80])),
        priority=draw(st.sampled_from([0, 0, 10])),
        **more,
    )


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    there = draw(nodes())
    resident = [
        draw(a_pod(f"r{number}", draw(st.sampled_from([one["metadata"]["name"] for one in there]))))
        for number in range(draw(st.integers(0, 3)))
    ]
    moving = [draw(a_pod(f"p{number}", "w0")) for number in range(draw(st.integers(1, 4)))]
    return there, resident, moving


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


@given(clusters())
@settings(max_examples=60, deadline=None)
def test_what_fits_is_placed_whatever_is_chosen_before_it(
    cluster: tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]],
) -> None:
    there, resident, moving = cluster
    found = place_all(moving, ClusterView(there, [*resident, *moving]), ["w0"])
    left_over = set(outcomes(there, resident, moving))
    for number, placement in enumerate(found):
        assert not (placement.fits and not placement.after_others and number in left_over), (placement, found)


@given(clusters())
@settings(max_examples=60, deadline=None)
def test_what_fits_nowhere_is_placed_in_no_way(cluster: tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]) -> None:
    there, resident, (one, *_) = cluster
    found = where(one, ClusterView(there, [*resident, one]), ["w0"])
    for name, verdict in found.nodes.items():
        alone = where(one, ClusterView(there, resident), ["w0"]).nodes[name]
        assert verdict == alone
    assert (found.outcome == "nowhere") == all(verdict.state == "no" for name, verdict in found.nodes.items() if name != "w0")


def test_the_list_is_in_the_order_given() -> None:
    pods = [pod("b", "w0"), pod("a", "w0")]
    found: list[Placement] = place_all(pods, ClusterView([node("w0"), node("w1")], pods), ["w0"])
    assert [one.pod for one in found] == ["x/b", "x/a"]
