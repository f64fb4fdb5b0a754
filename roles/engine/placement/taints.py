"""Taints that a controller removes by itself: a pod that only these keep from a node has no place for now, and not for good. Pure.

A cordon (node.kubernetes.io/unschedulable) and node.kubernetes.io/out-of-service are not among them: people set and remove these.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from roles.engine.kube import Object
from roles.engine.kube.fields import name_of, spec_of

#: Keys as regular expressions, and who removes the taint, and when. docs/disruption.md has a row for each.
PASSING: tuple[tuple[str, str], ...] = (
    (r"node\.kubernetes\.io/(not-ready|unreachable)", "kube-controller-manager, when the node is Ready"),
    (r"node\.kubernetes\.io/(memory|disk|pid)-pressure", "kube-controller-manager, when the kubelet reports no pressure"),
    (r"node\.kubernetes\.io/network-unavailable", "kube-controller-manager, when the network plugin has set up the node"),
    (r"node\.cloudprovider\.kubernetes\.io/(uninitialized|shutdown)", "the cloud-controller-manager"),
    (
        r"(ToBeDeletedBy|DeletionCandidateOf)ClusterAutoscaler|((ignore|status)-taint\.)?cluster-autoscaler\.kubernetes\.io/.+",
        "the cluster autoscaler",
    ),
    (r"k8s\.ovn\.org/network-unavailable", "OVN-Kubernetes, when it has set up the node"),
    (
        r"(kubevirt|medik8s)\.io/drain|medik8s\.io/(remediation|fence-agents-remediation)",
        "the operator of the node's maintenance or repair",
    ),
    (r"cloud\.google\.com/impending-node-termination", "the cloud, with the node"),
    (r"UpdateInProgress|machineconfiguration\.openshift\.io/.+", "the Machine Config Operator"),
    (r"karpenter\.sh/.+|node\.karpenter\..+", "Karpenter"),
    (r"node\.cluster\.x-k8s\.io/(uninitialized|outdated-revision)", "Cluster API"),
    (r"aws-node-termination-handler/.+|node\.ocean\.spot\.io/.+", "the handler of the cloud's interruptions"),
    (r"readiness\.k8s\.io/.+|startup-taint\.cluster-autoscaler\.kubernetes\.io/.+", "the controller of the node's readiness"),
    (r"(nidhogg\.uswitch\.com|nodetaint)/.+", "the controller that waits for DaemonSets on the node"),
    (r"[^/]+/(.*-)?(not-?ready|notReady|uninitialized|unregistered|initializing)", "the agent of that name, when it serves the node"),
)
_PASSING = tuple((re.compile(pattern), who) for pattern, who in PASSING)


def removed_by(taint: Mapping[str, Any]) -> str:
    """Who removes a taint without anybody; "" if only people do."""
    key = str(taint.get("key") or "")
    return next((who for pattern, who in _PASSING if pattern.fullmatch(key)), "")


def without_passing(nodes: Iterable[Object]) -> tuple[list[Object], dict[str, str]]:
    """The nodes without such taints; and these, as `KEY on NODE`, with who removes them."""
    found: list[Object] = []
    removed: dict[str, str] = {}
    for node in nodes:
        spec = spec_of(node)
        taints: Sequence[Mapping[str, Any]] = spec.get("taints") or ()
        removed |= {f"{one.get('key')} on {name_of(node)}": who for one in taints if (who := removed_by(one))}
        found.append({**node, "spec": {**spec, "taints": [one for one in taints if not removed_by(one)]}})
    return found, removed
