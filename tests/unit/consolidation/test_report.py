"""The answer in one line, in tables, as JSON and as a page."""

from __future__ import annotations

from typing import Any

import pytest

from roles.consolidation import page, report
from roles.consolidation.model import ConsolidationReport
from tests.unit.consolidation.cluster import keeper, nodes, planned, pod


def of(**more: Any) -> ConsolidationReport:
    cost = more.pop("cost", {"cp1": 100, "w1": 300, "w2": 100})
    items = more.pop("items", [pod("web-1", "w1")])
    found = planned(keeper(*nodes("cp1", "w1", "w2"), *items, servers={"cp1"}), cost, **more)
    return report.as_document(found, [])


def test_the_verdict() -> None:
    found = of(items=[pod("web-1", "w1"), pod("web-2", "w2", owner=None)])
    assert found.verdict.startswith("1 of 3 nodes could go: w1. Saves 300 W (60 %). 1 pod moves. ")
    assert (found.before, found.after, found.saves, found.saves_a_month) == (500, 200, 300, None)


def test_savings_of_a_month() -> None:
    found = of(cost={"cp1": 0.5, "w1": 0.25, "w2": 0.05}, unit="cost", items=[pod("web-1", "w1"), pod("web-2", "w2", owner=None)])
    assert ". Saves 0.25 an hour (31 %), 182.5 a month. " in found.verdict and found.saves_a_month == 182.5


def test_nothing_can_go() -> None:
    found = of(items=[pod("web-1", "w1", owner=None), pod("web-2", "w2", owner=None)])
    assert found.verdict == "No node of 3 could go: together they cost 500 W. No plan costs less."
    assert "Nodes that could go" not in "\n".join(report.text(found))


def test_the_tables() -> None:
    lines = "\n".join(report.text(of(items=[pod("web-1", "w1"), pod("web-2", "w2", owner=None)]))).splitlines()
    rows = {line.split()[0]: " ".join(line.split()) for line in lines if line}
    assert rows["w1"].startswith("w1 300 W 1 ") and rows["w1"].endswith("(1) 1")
    assert rows["w2"] == "w2 100 W 1 nothing recreates shop/web-2"
    assert rows["cp1"] == "cp1 100 W 0 it is of the control plane"


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (240, "240"), (100000000, "100000000"), (0.35, "0.35"), (0.0042, "0.0042"), (1.999, "2")]
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert report.number(value) == text


def test_the_page_escapes_what_others_wrote() -> None:
    hostile = "karpenter.sh/do-not-disrupt"
    item = pod("web-1", "w1", meta={"annotations": {hostile: "<script>alert(1)</script>"}})
    found = page.page(of(items=[item]))
    assert "<script>alert" not in found and "&lt;script&gt;alert(1)" in found


def test_the_page_has_each_pod_before_and_after() -> None:
    found = of(items=[pod("web-1", "w1", cpu="1"), pod("web-2", "w2", owner=None)])
    text = page.page(found)
    (gone,) = [one for one in found.nodes if one.state == "goes"]
    assert text.count('title="shop/web-1: 1000m"') == 2 and text.count('class="leaves" style="width:25.0%"') == 1
    assert f"shop/web-1 &rarr; {gone.pods[0].to}" in text
