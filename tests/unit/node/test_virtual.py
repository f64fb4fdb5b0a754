"""Node objects without a kubelet, by their signs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from roles.engine.node import minor_of
from roles.engine.node.virtual import MARKS, Mark, virtual_mark

ROOT = Path(__file__).resolve().parents[3]


def node_with(mark: Mark) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "n"}
    found: dict[str, Any] = {"metadata": metadata, "spec": {}, "status": {"nodeInfo": {"kubeletVersion": "v1.36.3"}}}
    if mark.where in ("label", "annotation"):
        metadata[f"{mark.where}s"] = {mark.key: mark.value or "anything"}
    elif mark.where == "taint":
        found["spec"]["taints"] = [{"key": "other", "effect": "NoExecute"}, {"key": mark.key, "effect": "NoSchedule"}]
    else:
        found["status"]["nodeInfo"]["kubeletVersion"] = f"v1.25.0{mark.key}1.6.2"
    return found


@pytest.mark.parametrize("mark", MARKS, ids=str)
def test_each_mark(mark: Mark) -> None:
    found = virtual_mark(node_with(mark))
    assert found == mark
    if mark.where == "version":
        assert minor_of(node_with(mark)["status"]["nodeInfo"]["kubeletVersion"]) is None


@pytest.mark.parametrize(
    "node",
    [
        {"metadata": {"labels": {"type": "worker", "eks.amazonaws.com/compute-type": "fargate"}}, "spec": {"taints": None}},
        {"metadata": {"name": "vk-1"}, "spec": {"taints": [{"key": "type", "value": "virtual-kubelet"}]}},
        {"metadata": {"labels": None, "annotations": None}, "status": {"nodeInfo": {"kubeletVersion": "v1.33.5-eks-3025e55"}}},
        {},
    ],
)
def test_a_real_kubelet_has_none(node: dict[str, Any]) -> None:
    assert virtual_mark(node) is None


def test_the_table_of_marks_in_the_documents() -> None:
    page = (ROOT / "docs/feature-gates.md").read_text().partition("| sign of a node without a kubelet |")[2].partition("\n\n")[0]
    told = re.findall(r"(?m)^\| (label|annotation|taint|version) `([^`]+)` \| ([^|]+) \|$", page)
    assert told == [(mark.where, f"{mark.key}={mark.value}" if mark.value else mark.key, mark.made_by) for mark in MARKS]
