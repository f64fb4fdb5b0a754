"""Node objects without a kubelet: a provider, another cluster or a simulator is behind them. Pure.

Nothing of such a node is a kubelet's: its version is its maker's own text and is in no skew policy, no daytwo can restart it, and what it
answers is not what a kubelet would. A node on AWS Fargate (eks.amazonaws.com/compute-type=fargate) is none of these: a real kubelet runs
there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from roles.engine.kube.fields import annotations_of, kubelet_version, labels_of, spec_of

Where = Literal["label", "annotation", "taint", "version"]


@dataclass(frozen=True)
class Mark:
    """One sign. `key`: the key of a label, an annotation or a taint; of a version a part of it (`value` is "" then). `value`: "" for any.
    `made_by`: who sets it."""

    where: Where
    key: str
    value: str
    made_by: str

    def __str__(self) -> str:
        text = f"{self.key}={self.value}" if self.value else self.key
        return f"{self.where} {text}"


#: The signs, the most common first. docs/feature-gates.md has them for operators.
MARKS: tuple[Mark, ...] = (
    # virtual-kubelet, cmd/virtual-kubelet/internal/commands/root/node.go; all that build on it: Azure, Alibaba Cloud, Huawei, tensile-kube
    Mark("label", "type", "virtual-kubelet", "virtual-kubelet"),
    Mark("taint", "virtual-kubelet.io/provider", "", "virtual-kubelet"),
    # Admiralty, pkg/vk/node; a label where others have a taint
    Mark("label", "virtual-kubelet.io/provider", "", "Admiralty"),
    Mark("taint", "azure.com/aci", "", "Azure Container Instances"),
    # liqo, pkg/consts/nodes.go; its version is that of the other cluster
    Mark("label", "liqo.io/type", "virtual-node", "Liqo"),
    Mark("taint", "virtual-node.liqo.io/not-allowed", "", "Liqo"),
    # interLink, pkg/virtualkubelet
    Mark("label", "virtual-node.interlink/type", "virtual-kubelet", "interLink"),
    Mark("taint", "virtual-node.interlink/no-schedule", "", "interLink"),
    # Tencent Kubernetes Engine, super nodes
    Mark("label", "node.kubernetes.io/instance-type", "eklet", "Tencent super nodes"),
    Mark("taint", "eks.tke.cloud.tencent.com/eklet", "", "Tencent super nodes"),
    # vCluster, pkg/controllers/resources/nodes; a copy without its kubelet
    Mark("label", "vcluster.loft.sh/fake-node", "true", "vCluster"),
    # KWOK (kwok.sigs.k8s.io), also as a provider of Karpenter and of the cluster autoscaler; fake-kubelet is its ancestor
    Mark("annotation", "kwok.x-k8s.io/node", "", "KWOK"),
    Mark("label", "type", "kwok", "KWOK"),
    Mark("taint", "kwok.x-k8s.io/node", "", "KWOK"),
    Mark("label", "type", "fake-kubelet", "fake-kubelet"),
    Mark("taint", "fake-kubelet/provider", "", "fake-kubelet"),
    # What they write as the version of a kubelet.
    Mark("version", "-vk-", "", "virtual-kubelet"),
    Mark("version", "kwok", "", "KWOK"),
    Mark("version", "fake", "", "KWOK, fake-kubelet"),
    # edged is a part of edgecore and speaks to cloudcore, which has rules of its own about versions.
    Mark("version", "-kubeedge-", "", "KubeEdge"),
)


def virtual_mark(node: Mapping[str, Any]) -> Mark | None:
    """The sign that no kubelet is behind a Node object; None for any other node. `node` as the API has it."""
    return next((mark for mark in MARKS if _HAS[mark.where](node, mark)), None)


def version_mark(version: str) -> Mark | None:
    """The same, from the version alone."""
    return next((mark for mark in MARKS if mark.where == "version" and mark.key in version), None)


def _in(found: Any, mark: Mark) -> bool:
    value = found.get(mark.key) if isinstance(found, Mapping) else None
    return value is not None and mark.value in ("", value)


def _tainted(node: Mapping[str, Any], mark: Mark) -> bool:
    taints = spec_of(node).get("taints") or ()
    return any(_in({taint.get("key"): taint.get("value") or ""}, mark) for taint in taints)


def _versioned(node: Mapping[str, Any], mark: Mark) -> bool:
    return mark.key in kubelet_version(node)


_HAS: Mapping[Where, Callable[[Mapping[str, Any], Mark], bool]] = {
    "label": lambda node, mark: _in(labels_of(node), mark),
    "annotation": lambda node, mark: _in(annotations_of(node), mark),
    "taint": _tainted,
    "version": _versioned,
}
