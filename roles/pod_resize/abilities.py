"""Why pods cannot be resized in place: the component, version or setting that is missing. Pure.

Sources: KEP-1287; pkg/features/kube_features.go; pkg/kubelet/allocation and pkg/kubelet/kuberuntime (IsInPlacePodVerticalScalingAllowed).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from roles.engine.kube import Object
from roles.engine.kube.fields import containers_of
from roles.pod_resize.pod_resources import NO_RESTART, Resources, changed, policy, qos_of

GATE = "InPlacePodVerticalScaling"
#: Exceptions to the restrictions of static policies (both alpha, 1.32 and 1.34 or later).
EXCLUSIVE_CPUS, EXCLUSIVE_MEMORY = f"{GATE}ExclusiveCPUs", f"{GATE}ExclusiveMemory"
OLDEST_MINOR = 27
ON_BY_DEFAULT, LOCKED_ON = 33, 35
#: Only in this minor the API refuses a lower memory limit without a restart.
NO_LOWER_MEMORY = 33
#: The first containerd whose CRI reports the resources of a container (ContainerStatus.resources).
CONTAINERD = (1, 6, 9)
COMPONENTS = ("kube-apiserver", "kube-scheduler")


@dataclass(frozen=True)
class NodeAbility:
    """One node, from its Node object, its kubelet's /configz and the gates in its metrics. `gates`: None if they are not known;
    `unknown`: why something could not be read."""

    name: str
    version: str
    runtime: str
    system: str
    allocatable: Mapping[str, str]
    gates: Mapping[str, bool] | None
    configuration: Mapping[str, Any]
    unknown: tuple[str, ...] = ()

    @property
    def minor(self) -> int:
        return minor_of(self.version)

    @property
    def cfs_quota(self) -> bool:
        return self.configuration.get("cpuCFSQuota", True) is not False


@dataclass(frozen=True)
class Ability:
    """The cluster: the version of the API server, the gate on each control-plane component by `host component` (None: not known), nodes by
    name."""

    version: str
    components: Mapping[str, bool | None] = field(default_factory=dict)
    nodes: Mapping[str, NodeAbility] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()

    @property
    def minor(self) -> int:
        return minor_of(self.version)


def minor_of(version: str) -> int:
    """36 of v1.36.3; 0 if the text is not a version."""
    found = re.match(r"v?1\.([0-9]+)", version)
    return int(found.group(1)) if found else 0


def missing(ability: Ability, nodes: Iterable[str]) -> list[str]:
    """Why no pod of these nodes can be resized in place, one sentence each with its way out; empty: they can."""
    found = []
    if ability.minor < OLDEST_MINOR:
        return [f"kube-apiserver is {ability.version}: in-place resize needs 1.{OLDEST_MINOR} or later; upgrade the cluster"]
    off = [where for where, enabled in sorted(ability.components.items()) if enabled is False]
    too_old, wrong = [], []
    for name in nodes:
        node = ability.nodes.get(name)
        if node is None:
            continue
        if node.minor < OLDEST_MINOR:
            too_old.append(f"{name}: its kubelet is {node.version}: in-place resize needs 1.{OLDEST_MINOR} or later; upgrade it")
        elif node.gates is not None and GATE in node.gates and not node.gates[GATE]:
            off.append(f"{name} kubelet")
        wrong += _runtime(node)
    if off:
        default = "" if ability.minor >= ON_BY_DEFAULT else f" (alpha and off by default before 1.{ON_BY_DEFAULT})"
        consent = (
            "; in this version that can restart containers in the whole cluster, see the plan of deploys/feature_gates.py"
            if ability.minor < ON_BY_DEFAULT
            else ""
        )
        found.append(
            f"the feature gate {GATE} is off{default} on {', '.join(off)}; turn it on: "
            f"deploys/feature_gates.py --data feature_gates={GATE}=true{consent}"
        )
    return [*found, *too_old, *wrong]


def _runtime(node: NodeAbility) -> list[str]:
    if node.system == "windows":
        return [f"{node.name}: it runs Windows, which has no in-place resize"]
    name, _, version = node.runtime.partition("://")
    found = re.match(r"v?([0-9]+)\.([0-9]+)\.([0-9]+)", version)
    if name == "containerd" and found and tuple(map(int, found.groups())) < CONTAINERD:
        least = ".".join(map(str, CONTAINERD))
        return [f"{node.name}: containerd {version} does not report the resources of its containers; upgrade it to {least} or later"]
    return []


def unknown_facts(ability: Ability, nodes: Iterable[str]) -> list[str]:
    """What could not be checked, and may be missing."""
    found = list(ability.unknown)
    if ability.minor < LOCKED_ON:
        found += [
            f"{where}: it is unknown whether {GATE} is on" for where, enabled in sorted(ability.components.items()) if enabled is None
        ]
    for name in nodes:
        node = ability.nodes.get(name)
        found += [f"{name}: {one}" for one in node.unknown] if node else []
    return found


def infeasible(node: NodeAbility, pod: Object, changes: Mapping[str, tuple[Resources, Resources]]) -> list[str]:
    """Why the settings of this node's kubelet exclude these changes (container: before, after) of a pod."""
    found = []
    names = {name for before, after in changes.values() for name in changed(before, after)}
    gates, settings = node.gates or {}, node.configuration
    if qos_of(pod) == "Guaranteed":
        if settings.get("cpuManagerPolicy") == "static" and "cpu" in names and not gates.get(EXCLUSIVE_CPUS):
            found.append(f"{node.name} has the static CPU manager (cpuManagerPolicy): the CPU of a Guaranteed pod cannot change in place")
        if settings.get("memoryManagerPolicy") == "Static" and "memory" in names and not gates.get(EXCLUSIVE_MEMORY):
            found.append(
                f"{node.name} has the Static memory manager (memoryManagerPolicy): the memory of a Guaranteed pod cannot change in place"
            )
    swap = (settings.get("memorySwap") or {}).get("swapBehavior")
    if swap == "LimitedSwap" and settings.get("failSwapOn") is False and "memory" in names:
        by_name = {str(one.get("name")): one for one in containers_of(pod)}
        kept = [name for name in changes if policy(by_name.get(name, {}), "memory") == NO_RESTART]
        if kept:
            found.append(
                f"{node.name} gives its pods swap (memorySwap.swapBehavior LimitedSwap), so the memory of {', '.join(kept)} cannot change "
                "there without a restart (resizePolicy RestartContainer)"
            )
    return found
