"""The page: complete, loads nothing else, has every pod in its place."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from roles.engine.kubelet.thresholds import effective
from roles.eviction import order, picture
from tests.unit.eviction.pods import GI, MI, filesystem, node, pod, stats, summary
from tests.unit.picture import Page


def node_with(*names: str, apart: bool = False, **more: Any) -> order.NodeOrder:
    pods = [pod(name, priority=index) for index, name in enumerate(names)]
    pods.append(pod("etcd", priority=2000001000, mirror="e" * 32))
    usage = [stats(name, memory=(index + 1) * MI, processes=index) for index, name in enumerate(names)]
    seen = summary(*usage, stats("etcd", uid="e" * 32, memory=90 * MI), imagefs=filesystem(capacity=GI) if apart else None, **more)
    limits = effective({"evictionHard": {"memory.available": "5Gi", "nodefs.available": "10%"}})
    return order.order(seen, pods, node(), thresholds=limits)


def test_it_loads_nothing_else() -> None:
    text = picture.page([node_with("a", "b"), node_with("c", apart=True)], made="now")
    page = Page(text)
    assert not page.all("script") and not page.all("link") and not page.all("img")
    assert all((attributes.get("href") or "#").startswith("#") for _, attributes in page.found)
    assert not re.search(r"https?://|url\(|@import", text)
    assert "prefers-color-scheme: dark" in text and "lang" in dict(page.found)["html"]


def test_every_choice_exists() -> None:
    page = Page(picture.page([node_with("a"), node_with("b", apart=True)]))
    choices = [attributes["id"] for attributes in page.all("input")]
    assert choices == ["by-0", "by-1", "by-2", "by-3"] == [attributes["for"] for attributes in page.all("label")]
    assert [attributes["id"] for attributes in page.all("input") if "checked" in attributes] == ["by-0"]
    links = [attributes["href"] for attributes in page.all("a")]
    assert links == ["#node-1", "#node-2"] == [f"#{attributes['id']}" for attributes in page.all("section")]


def test_every_pod_in_its_place() -> None:
    found = node_with("a", "b", "c")
    page = Page(picture.page([found]))
    rows = page.all("div", "row")
    places = [dict(re.findall(r"--o(\d):(\d+);", str(attributes["style"]))) for attributes in rows]
    assert [place["0"] for place in places] == ["1", "2", "3", str(4 + picture._BELOW)]
    assert [place["2"] for place in places] == [
        str(row.uses["pid.available"].place + picture._BELOW * bool(row.protected)) for row in found.rows
    ]
    assert page.text.count("never evicted") == 2  # in the legend, and above the protected pods
    assert len(page.all("span", "turn")) == 2 + 3 * 3  # two in the legend; three pods can be evicted, for three resources


def test_a_threshold_that_is_met_is_shown() -> None:
    assert "under pressure: evicts below 5.0Gi" in Page(picture.page([node_with("a")])).text
    assert "under pressure" not in Page(picture.page([node_with("a", memory=(6 * GI, GI))])).text


def test_bars_stay_in_their_frames() -> None:
    pods = [pod("a", requests={"memory": "100Mi"}), pod("b"), pod("new")]
    found = order.order(summary(stats("a", memory=300 * MI), stats("b", memory=30 * MI)), pods, node())
    text = picture.page([found])
    [bar] = re.findall(
        r'class="asked" style="width:33.33%"></i><i class="used" style="width:33.33%"></i><i class="above" style="left:33.33%;width:66.67%"',
        text,
    )
    assert bar and 'title="200Mi over its request"' in text and ">?</b>" in text


@given(st.text(max_size=40), st.text(max_size=40), st.integers(0, 5))
def test_no_text_becomes_markup(one: str, other: str, count: int) -> None:
    nasty = f"<script>alert(1)</script>{one}"
    found = order.NodeOrder(nasty, other, GI, "one", {}, (), ("memory.available", "pid.available"), (), (nasty,) * count)
    page = Page(picture.page([found], made=nasty, problems=[other, nasty]))
    assert not page.all("script") and page.text.count("alert(1)") == 3 + count


def test_a_hundred_pods() -> None:
    text = picture.page([node_with(*(f"pod-{index}" for index in range(100))) for _ in range(3)])
    assert len(Page(text).all("div", "row")) == 3 * 101 and len(text) < 900_000


def test_no_nodes_and_no_pods() -> None:
    assert Page(picture.page([], problems=["w1: unreachable"])).text.count("w1: unreachable") == 1
    assert "No pods run here." in Page(picture.page([order.order(summary(), [], node())])).text
