"""Pure: what a kubelet asks of a pod before it admits it, apart from room on the node.

Sources (Kubernetes 1.36; 1.32 asks the same, but for the last two): pkg/kubelet/kubelet.go (the order of the handlers),
pkg/kubelet/eviction/eviction_manager.go (Admit), pkg/kubelet/sysctl/{allowlist,safe_sysctls}.go, pkg/kubelet/cm/topologymanager,
pkg/kubelet/lifecycle/{predicate,handlers}.go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from roles.engine.kube import Object, holds, matching, pods, resources
from roles.engine.kube.amounts import units
from roles.engine.kube.fields import containers_of, labels_of, spec_of, status_of
from roles.engine.kube.resources import View

_OS_LABEL = "kubernetes.io/os"
_PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")
_MEMORY_TAINT: Mapping[str, str] = {"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"}
_ALIGNING = ("restricted", "single-numa-node")
_MANAGERS = ("cpuManagerPolicy", "memoryManagerPolicy", "topologyManagerPolicy", "topologyManagerScope")


@dataclass(frozen=True)
class Objection:
    """Why a kubelet rejects a pod: `reason` as in the pod's status. `sure` is False if daytwo cannot judge it."""

    reason: str
    why: str
    sure: bool = True

    def __str__(self) -> str:
        return f"{self.reason}: {self.why}"


def before_room(pod: Object, node: Object, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Objection]:
    """What comes before the room on the node; `before` and `after` are the kubelet's configurations, as /configz shows them."""
    yield from _sysctls(pod, before, after)
    yield from _managers(pod, node, before, after)
    labels = labels_of(pod)
    if labels.get(_OS_LABEL, "linux") != "linux":
        yield Objection("PodOSSelectorNodeLabelDoesNotMatch", f"its own label {_OS_LABEL} is not linux")
    if ((spec_of(pod).get("os") or {}).get("name") or "linux") != "linux":
        yield Objection("PodOSNotSupported", "it is for another operating system")
    groups = (spec_of(pod).get("securityContext") or {}).get("supplementalGroupsPolicy")
    if groups == "Strict" and not (status_of(node).get("features") or {}).get("supplementalGroupsPolicy"):
        yield Objection(
            "SupplementalGroupsPolicyNotSupported", "the node does not report that it supports supplementalGroupsPolicy Strict", False
        )


def after_room(pod: Object, node: Object, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Objection]:
    """What comes after it; ports of the host are about other pods, and not here."""
    if why := matching.wrong_node(pod, node):
        yield Objection("NodeAffinity", why)
    taint = None if pods.is_static(pod) else matching.untolerated(pod, spec_of(node).get("taints") or (), ("NoExecute",))
    if taint is not None:
        yield Objection("TaintToleration", f"taint {matching.taint_text(taint)} is not tolerated", not matching.compares(pod))
    gates: Mapping[str, Any] = after.get("featureGates") or {}
    if gates.get("PodLevelResources") is False and (spec_of(pod).get("resources") or {}):
        yield Objection("PodLevelResourcesNotSupported", "it has pod-level resources, and the gate PodLevelResources is off")
    changed = {
        name for name in {**gates, **(before.get("featureGates") or {})} if gates.get(name) != (before.get("featureGates") or {}).get(name)
    }
    if used := _by_gate(pod, changed):
        yield Objection("PodFeatureUnsupported", f"it may need the gate {used}, which changes", False)


def _by_gate(pod: Object, changed: Collection[str]) -> str:
    spec = spec_of(pod)
    rules = [
        rule
        for one in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
        for rule in one.get("restartPolicyRules") or ()
    ]
    needs = {
        "RestartAllContainersOnContainerExits": any(rule.get("action") == "RestartAllContainers" for rule in rules),
        "UserNamespacesHostNetworkSupport": bool(spec.get("hostNetwork")) and spec.get("hostUsers") is False,
        "NodeDeclaredFeatures": bool(rules),
    }
    return next((name for name, needed in needs.items() if needed and name in changed), "")


def pressures_of(node: Object) -> list[str]:
    """The pressure conditions that the node has now."""
    return [kind for kind in _PRESSURES if holds(node, kind)]


def rejected_under(pod: Object, pressures: Collection[str]) -> bool:
    """True if a kubelet admits no such pod while its node has these conditions. The pod's status has its QoS class."""
    if not pressures or pods.is_critical(pod):
        return False
    if set(pressures) != {"MemoryPressure"}:
        return True
    return status_of(pod).get("qosClass") == "BestEffort" and matching.untolerated(pod, [_MEMORY_TAINT]) is not None


def under_pressure(pod: Object, pressures: Collection[str]) -> Iterator[Objection]:
    """A starting kubelet may find the pressure before it has admitted all pods, or after."""
    if rejected_under(pod, pressures):
        yield Objection("Evicted", f"the node is under {', '.join(pressures)}", False)


def _sysctls(pod: Object, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Objection]:
    """A sysctl that the running kubelet allows by its list, and the new one does not. The others are safe ones: the pod was admitted."""
    for one in (spec_of(pod).get("securityContext") or {}).get("sysctls") or ():
        name = str(one.get("name")).replace("/", ".")
        if _allowed(name, before) and not _allowed(name, after):
            yield Objection("SysctlForbidden", f"{name} is not in allowedUnsafeSysctls any more")


def _allowed(name: str, configuration: Mapping[str, Any]) -> bool:
    patterns = [str(one).replace("/", ".") for one in configuration.get("allowedUnsafeSysctls") or ()]
    return any(name.startswith(one[:-1]) if one.endswith("*") else name == one for one in patterns)


def _managers(pod: Object, node: Object, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Objection]:
    """Pods with CPUs, memory or devices of their own are given them again by the kubelet's own state, which daytwo does not model."""
    requests = resources.requests(pod, View.ALLOCATED)
    guaranteed = status_of(pod).get("qosClass") == "Guaranteed"
    own_cpus = guaranteed and any(cpu >= 1 and cpu.denominator == 1 for cpu in _of_containers(pod))
    allocatable = status_of(node).get("allocatable") or {}
    devices = [name for name, amount in requests.items() if "/" in name and name in allocatable and units(name, amount) > 0]
    changed = [name for name in _MANAGERS if after.get(name) != before.get(name)]
    if changed and (guaranteed or devices):
        yield Objection("UnexpectedAdmissionError", f"{', '.join(changed)} changes: its CPUs, memory or devices are assigned again", False)
    elif after.get("topologyManagerPolicy") in _ALIGNING:
        aligned = (own_cpus and after.get("cpuManagerPolicy") == "static") or (guaranteed and after.get("memoryManagerPolicy") == "Static")
        if aligned or devices:
            yield Objection("TopologyAffinityError", f"topologyManagerPolicy is {after['topologyManagerPolicy']}", False)
    if devices and status_of(pod).get("phase") != "Running":
        yield Objection(
            "UnexpectedAdmissionError", f"it does not run yet, and {devices[0]} is not there until its plugin has registered", False
        )


def _of_containers(pod: Object) -> Iterator[Fraction]:
    for container in (*containers_of(pod), *(spec_of(pod).get("initContainers") or ())):
        yield resources.of_container(pod, container, View.SPEC).get("cpu", Fraction(0))
