"""Predicts evictions under node pressure. Pure: from a saved /stats/summary, the pods, the node and thresholds to the evicted pods.

The rules are those of pkg/kubelet/eviction/{eviction_manager,helpers}.go, which are the same in Kubernetes 1.32 to 1.36, except for a
pod's requests (pkg/api/v1/resource/helpers.go: pod-level resources and sidecars count since 1.34). This module cannot know the following,
and says so in `notes` where it matters:

- Usage comes from the summary. The kubelet measures again in each loop (every 10 s, and at once after an eviction), and the usage of
  volumes once per `volumeStatsAggPeriod` (1 min by default).
- Sizes decide whether images have their own file system: the summary names no devices.
- Pods of equal rank are evicted in any order (Go's sort.Sort is not stable, and the kubelet's list comes from a map).
- How much an eviction frees is an estimate: the pod's current use of that resource, without host paths, which stay. Logs count as being
  on the kubelet's file system.
- Before the kubelet evicts for a disk, it removes dead containers and unused images; how much that frees is unknown.
- A static pod's priority is the mirror pod's here; the kubelet reads it from the manifest, and uses 0 if the manifest has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from roles.engine.bounds import digits
from roles.engine.kube import Object, full_name
from roles.engine.kube.amounts import parse_quantity, whole
from roles.engine.kube.fields import containers_of, kubelet_version, name_of, spec_of, status_of, volumes_of
from roles.engine.kube.pods import CRITICAL, is_over, is_static, kubelet_uid, priority
from roles.engine.kube.resources import View, limits, of_container, of_containers, pod_level, ranked
from roles.engine.kubelet.thresholds import (
    ALLOCATABLE_MEMORY,
    CONTAINERFS,
    CONTAINERFS_INODES,
    IMAGEFS,
    IMAGEFS_INODES,
    MEMORY,
    NODEFS,
    NODEFS_INODES,
    PID,
    Threshold,
    with_containerfs,
)
from roles.engine.placement import rejected_under

MEMORY_SIGNALS = (MEMORY, ALLOCATABLE_MEMORY)
#: The resource that is short when a signal's threshold is met, by the kubelet's name (helpers.go: signalToResource).
RESOURCES = {
    MEMORY: "memory",
    ALLOCATABLE_MEMORY: "memory",
    NODEFS: "ephemeral-storage",
    NODEFS_INODES: "inodes",
    IMAGEFS: "ephemeral-storage",
    IMAGEFS_INODES: "inodes",
    CONTAINERFS: "ephemeral-storage",
    CONTAINERFS_INODES: "inodes",
    PID: "pids",
}
#: Pods with this priority or a higher one are critical (pkg/apis/scheduling/types.go: SystemCriticalPriority).
#: Pod-level resources and sidecars count in requests from this minor on; the rules were read up to minor 36.
POD_LEVEL_MINOR = 34

#: File systems: one for all; a separate one for images and writable layers; a separate one for images only.
Layout = Literal["one", "images and containers apart", "images apart"]
_ALL = ("rootfs", "logs", "volumes")
#: The parts of a pod's usage that count for a file system (helpers.go: buildSignalToRankFunc; that lists images too, which use nothing).
_PARTS: dict[Layout, dict[str, tuple[str, ...]]] = {
    "one": {"nodefs": _ALL, "imagefs": _ALL, "containerfs": _ALL},
    "images and containers apart": {"nodefs": ("logs", "volumes"), "imagefs": ("rootfs",), "containerfs": ("rootfs",)},
    "images apart": {"nodefs": _ALL, "imagefs": (), "containerfs": _ALL},
}
_EPHEMERAL = "ephemeral-storage"
_SAME_WITHIN = 1000

Stats = Mapping[str, Any]


@dataclass(frozen=True)
class Reading:
    """The kubelet's measurement of a signal: bytes, inodes or processes. `time`: when it was measured, as in the summary."""

    available: int
    capacity: int
    time: str = ""


@dataclass(frozen=True)
class Ranked:
    """A pod's place in the eviction order for one signal, from 1.

    `usage` is None if the summary does not have the pod; `request` is what counts as requested (0 for inodes and processes);
    `protected` says why the kubelet skips the pod ("" if it does not). Pods of equal `rank` (the place of the first of them) may be
    evicted in any order; `tied`: another pod has the same rank.
    """

    place: int
    rank: int
    pod: str
    uid: str
    priority: int
    qos: str
    usage: int | None
    request: int
    over: bool
    protected: str
    tied: bool


@dataclass(frozen=True)
class Victim:
    """A pod that would be evicted. `freed`: estimate of what that frees. `certain`: if a pod is evicted for this signal, it is this one."""

    pod: str
    uid: str
    freed: int
    certain: bool


@dataclass(frozen=True)
class Pressure:
    """A threshold that is met. The kubelet evicts until `goal` (threshold and minimum reclaim) is available again.

    `grace` in seconds: a soft threshold evicts after it has been met that long. `enough`: by the estimate, these victims free enough.
    """

    threshold: Threshold
    reading: Reading
    limit: int
    goal: int
    order: tuple[Ranked, ...]
    victims: tuple[Victim, ...]
    enough: bool
    reclaims_first: bool

    @property
    def signal(self) -> str:
        return self.threshold.signal

    @property
    def grace(self) -> float:
        return self.threshold.grace


@dataclass(frozen=True)
class LocalEviction:
    """A pod over its own limit (emptyDir sizeLimit, limits.ephemeral-storage). The kubelet evicts all such pods at once, before any
    ranking, unless localStorageCapacityIsolation is false on the node (it is true by default).
    """

    pod: str
    uid: str
    what: str
    used: int
    limit: int


@dataclass(frozen=True)
class Prediction:
    """What would happen on a node with these thresholds.

    `thresholds` are those in effect, including those that the kubelet derives; `unobserved` the signals that the summary does not report:
    their thresholds are never met. `pressures` are in the kubelet's order: hard before soft, memory before others. `rejected`: pods that a
    restarted kubelet may refuse to re-admit while these pressures last.
    """

    node: str
    layout: Layout
    readings: dict[str, Reading]
    thresholds: tuple[Threshold, ...]
    unobserved: tuple[str, ...]
    pressures: tuple[Pressure, ...]
    local: tuple[LocalEviction, ...]
    rejected: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def victims(self) -> tuple[str, ...]:
        """All pods (namespace/name) that would be evicted, in order."""
        found = [*(entry.pod for entry in self.local), *(victim.pod for pressure in self.pressures for victim in pressure.victims)]
        return tuple(dict.fromkeys(found))

    @property
    def conditions(self) -> tuple[str, ...]:
        """The conditions of the node under these pressures."""
        return tuple(sorted({_condition(pressure.signal) for pressure in self.pressures}))

    def not_in(self, before: Prediction) -> tuple[Pressure, ...]:
        """The pressures that do not exist with the thresholds of `before`, or that reclaim more than with those."""
        goals: dict[tuple[str, bool], int] = {}
        for pressure in before.pressures:
            key = (pressure.signal, pressure.grace == 0)
            goals[key] = max(goals.get(key, 0), pressure.goal)
        return tuple(pressure for pressure in self.pressures if pressure.goal > goals.get((pressure.signal, pressure.grace == 0), -1))


def predict(
    summary: Mapping[str, Any],
    pods: Sequence[Object],
    node: Mapping[str, Any],
    thresholds: Iterable[Threshold],
    *,
    known_layout: Layout | None = None,
) -> Prediction:
    """What the kubelet of `node` would do in its next loop with `thresholds`, as thresholds.effective returns them.

    `known_layout` overrides what the summary's sizes suggest. Raises ValueError for an invalid quantity.
    """
    layout = known_layout or layout_of(summary)
    seen = readings(summary)
    minor = minor_of(node)
    effective = in_effect(thresholds, layout)
    active_pods = active(pods)
    local = tuple(_local_evictions(summary, active_pods, layout))
    pressures = []
    for threshold in _in_kubelets_order(met(effective, seen)):
        pressures.append(_pressure(threshold, seen[threshold.signal], summary, active_pods, layout, minor, bool(local)))
    unobserved = tuple(dict.fromkeys(threshold.signal for threshold in effective if threshold.signal not in seen))
    conditions = {_condition(pressure.signal) for pressure in pressures}
    rejected = tuple(sorted(full_name(pod) for pod in active_pods if rejected_under(pod, conditions)))
    notes = _notes(known_layout is None, layout, summary, active_pods, pressures, local, rejected, unobserved)
    return Prediction(name_of(node), layout, seen, effective, unobserved, tuple(pressures), local, rejected, tuple(notes))


# ---- what the kubelet measures


def readings(summary: Mapping[str, Any]) -> dict[str, Reading]:
    """Each signal's available amount and capacity (helpers.go: makeSignalObservations). All come from the summary; a signal that it does
    not report is missing here, and its thresholds are never met.

    The capacity of memory.available is the sum of available and working set, not the node's memory: percentages refer to that sum.
    """
    node = summary.get("node") or {}
    found: dict[str, Reading] = {}

    def add(signal: str, stats: Mapping[str, Any] | None, available: str, capacity: str, *, sum_up: bool = False) -> None:
        free, other = (stats or {}).get(available), (stats or {}).get(capacity)
        if stats is not None and free is not None and other is not None:
            found[signal] = Reading(int(free), int(free) + int(other) if sum_up else int(other), str(stats.get("time") or ""))

    add(MEMORY, node.get("memory"), "availableBytes", "workingSetBytes", sum_up=True)
    no_pods: Mapping[str, Any] = {}
    all_pods = next((entry for entry in node.get("systemContainers") or () if entry.get("name") == "pods"), no_pods)
    add(ALLOCATABLE_MEMORY, all_pods.get("memory"), "availableBytes", "workingSetBytes", sum_up=True)
    runtime = node.get("runtime") or {}
    for signal, stats in (("nodefs", node.get("fs")), ("imagefs", runtime.get("imageFs")), ("containerfs", runtime.get("containerFs"))):
        add(f"{signal}.available", stats, "availableBytes", "capacityBytes")
        add(f"{signal}.inodesFree", stats, "inodesFree", "inodes")
    limits = node.get("rlimit") or {}
    if limits.get("maxpid") is not None and limits.get("curproc") is not None:
        most = int(limits["maxpid"])
        found[PID] = Reading(most - int(limits["curproc"]), most, str(limits.get("time") or ""))
    return found


def layout_of(summary: Mapping[str, Any]) -> Layout:
    """Which file systems exist, judged by their sizes: the kubelet compares devices, which the summary does not report."""
    node = summary.get("node") or {}
    runtime = node.get("runtime") or {}
    images, containers = runtime.get("imageFs"), runtime.get("containerFs")
    if images and containers and not _one_file_system(images, containers):
        return "images apart"
    return "one" if not images or _one_file_system(node.get("fs") or {}, images) else "images and containers apart"


def _one_file_system(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    # Two disks of the same model have the same size, but not the same free space; for one file system it only changes between measurements.
    if any(one.get(key) != other.get(key) for key in ("capacityBytes", "inodes")):
        return False
    for key, size in (("availableBytes", "capacityBytes"), ("inodesFree", "inodes")):
        first, second = one.get(key), other.get(key)
        if first is not None and second is not None and abs(first - second) > (one.get(size) or 0) // _SAME_WITHIN:
            return False
    return True


def minor_of(node: Mapping[str, Any]) -> int:
    """The minor version of the node's kubelet: 36 of v1.36.3. Raises ValueError if the node does not report it."""
    version = kubelet_version(node)
    parts = version.removeprefix("v").split(".")
    if len(parts) < 2 or (minor := digits(parts[1])) is None:
        raise ValueError(f"status.nodeInfo.kubeletVersion of the node is {version!r}; the kubelet writes it as v1.36.3")
    return minor


# ---- thresholds


def in_effect(thresholds: Iterable[Threshold], layout: Layout) -> tuple[Threshold, ...]:
    """The thresholds, including those of containerfs, which the kubelet copies from nodefs or imagefs."""
    given = [threshold for threshold in thresholds if threshold.signal not in (CONTAINERFS, CONTAINERFS_INODES)]
    return with_containerfs(given, image_filesystem=layout == "images and containers apart")


def met(thresholds: Iterable[Threshold], seen: Mapping[str, Reading]) -> tuple[Threshold, ...]:
    """The thresholds with less available than their limit (helpers.go: thresholdsMet), including soft ones in their grace period."""
    return tuple(one for one in thresholds if one.signal in seen and seen[one.signal].available < _limit(one, seen[one.signal]))


def _limit(threshold: Threshold, reading: Reading) -> int:
    return threshold.amount.of(reading.capacity)


def _in_kubelets_order(thresholds: Iterable[Threshold]) -> list[Threshold]:
    """Hard thresholds before soft ones, whose grace period runs first; memory before all others (helpers.go: byEvictionPriority)."""
    return sorted(thresholds, key=lambda one: (one.grace, one.signal not in MEMORY_SIGNALS))


def _condition(signal: str) -> str:
    return "MemoryPressure" if signal in MEMORY_SIGNALS else "PIDPressure" if signal == PID else "DiskPressure"


def _pressure(
    threshold: Threshold,
    reading: Reading,
    summary: Mapping[str, Any],
    pods: Sequence[Object],
    layout: Layout,
    minor: int,
    disturbed: bool,
) -> Pressure:
    limit = _limit(threshold, reading)
    goal = limit + (threshold.min_reclaim.of(reading.capacity) if threshold.min_reclaim else 0)
    order = rank(threshold.signal, summary, pods, layout, minor)
    frees = freed(threshold.signal, summary, pods, layout)
    evicted, enough = victims(order, reading.available, goal, frees, disturbed=disturbed)
    return Pressure(threshold, reading, limit, goal, order, evicted, enough, _reclaims_first(threshold.signal, layout))


def _reclaims_first(signal: str, layout: Layout) -> bool:
    """Whether the kubelet removes containers or images before it evicts a pod (helpers.go: buildSignalToNodeReclaimFuncs)."""
    if _condition(signal) != "DiskPressure":
        return False
    return not (layout == "images and containers apart" and signal.startswith("nodefs."))


# ---- pods


def active(pods: Iterable[Object]) -> list[Object]:
    """The pods that the kubelet ranks: those that are not Succeeded or Failed (kubelet_pods.go: isPodInactive).

    A pod without a container is ranked too: its usage is unknown, so it comes first.
    """
    return [pod for pod in pods if not is_over(pod)]


def protected(pod: Object) -> str:
    """Why the kubelet never evicts the pod; "" if it may (types/pod_update.go: IsCriticalPod, and evictPod, which continues with the next
    in rank). Only the value of the priority matters, not the class."""
    if is_static(pod):
        return "static pod"
    value = priority(pod)
    return f"critical: priority {value}" if value >= CRITICAL else ""


def qos(pod: Object) -> str:
    """The QoS class that the API server wrote; "" if it has not."""
    return str(status_of(pod).get("qosClass") or "")


def request(pod: Object, resource: str, minor: int) -> Fraction:
    """The request of `resource` that counts (api/v1/resource/helpers.go: GetResourceRequestQuantity).

    Before 1.34 there are no pod-level resources, and a sidecar counts as any other init container. Raises ValueError.
    """
    return ranked(pod if minor >= POD_LEVEL_MINOR else _of_old(pod), resource)


def _of_old(pod: Object) -> Object:
    spec = spec_of(pod)
    init = [{key: value for key, value in one.items() if key != "restartPolicy"} for one in spec.get("initContainers") or ()]
    return {**pod, "spec": {**spec, "initContainers": init, "resources": None}}


def pod_level_request(pod: Object, resource: str, minor: int) -> int:
    """The pod-level request, in whole units; 0 if there is none, or if the kubelet ignores it."""
    return whole(pod_level(pod, "requests").get(resource, Fraction(0))) if minor >= POD_LEVEL_MINOR else 0


def containers_request(pod: Object, resource: str) -> int:
    """The sum of the containers' requests, with sidecars counted as sidecars, in whole units."""
    return whole(of_containers(pod, View.ALLOCATED).get(resource, Fraction(0)))


def container_request(pod: Object, container: Mapping[str, Any], resource: str) -> int:
    """One container's request, or what an in-place resize allocated to it, in whole units."""
    return whole(of_container(pod, container, View.ALLOCATED).get(resource, Fraction(0)))


def _number(text: Any) -> Fraction:
    return parse_quantity(str(text)) if text not in (None, "") else Fraction(0)


def _stats(summary: Mapping[str, Any]) -> dict[str, Stats]:
    return {str(entry["podRef"].get("uid")): entry for entry in summary.get("pods") or ()}


def local_volumes(pod: Object) -> list[str]:
    """The volumes whose usage counts against the node's disk (helpers.go: localVolumeNames): hostPath, configMap, gitRepo, and
    emptyDir unless in memory. Secret, projected and downward API volumes do not count."""
    return [str(volume.get("name")) for volume in volumes_of(pod) if "hostPath" in volume or _is_local_ephemeral(volume)]


def _is_local_ephemeral(volume: Mapping[str, Any]) -> bool:
    empty = volume.get("emptyDir")
    return "gitRepo" in volume or "configMap" in volume or (empty is not None and not empty.get("medium"))


def _of(stats: Mapping[str, Any] | None, key: str) -> int:
    return int((stats or {}).get(key) or 0)


def usage(signal: str, pod: Object, stats: Stats, layout: Layout) -> int:
    """The pod's usage that counts in the ranking for `signal`: working set in bytes, bytes or inodes on that file system, processes
    (helpers.go: memoryUsage, podDiskUsage, processUsage). What the summary does not report counts as 0."""
    if signal in MEMORY_SIGNALS:
        return _of(stats.get("memory"), "workingSetBytes")
    if signal == PID:
        return _of(stats.get("process_stats"), "process_count")
    return _disk(signal, stats, layout, local_volumes(pod))


def _disk(signal: str, stats: Stats, layout: Layout, volumes: Sequence[str]) -> int:
    key = "inodesUsed" if signal.endswith(".inodesFree") else "usedBytes"
    parts = _PARTS[layout][signal.partition(".")[0]]
    total = sum(_of(container.get(part), key) for container in stats.get("containers") or () for part in parts if part != "volumes")
    if "volumes" in parts:
        by_volume = {entry.get("name"): entry for entry in reversed(stats.get("volume") or ())}
        total += sum(_of(by_volume.get(volume), key) for volume in volumes)
    return total


# ---- the order


def rank(signal: str, summary: Mapping[str, Any], pods: Sequence[Object], layout: Layout, minor: int) -> tuple[Ranked, ...]:
    """The kubelet's whole order for a signal, including protected pods. `pods` are active ones.

    Memory and disks: pods without stats first, then pods over their request; then by priority, lowest first; then by usage above the
    request. Processes: by priority, then by their number. For inodes the kubelet subtracts the requested bytes of ephemeral-storage from
    the used inodes (helpers.go: disk), and every pod that uses an inode counts as over its request. QoS classes do not matter.
    Raises ValueError for an unknown signal, and for an invalid quantity.
    """
    if signal not in RESOURCES:
        raise ValueError(f"{signal!r} is not an eviction signal; the signals are {', '.join(RESOURCES)}")
    stats = _stats(summary)
    resource = RESOURCES[signal]
    measured: list[tuple[tuple[Any, ...], Object, int | None, Fraction, bool]] = []
    for pod in pods:
        mine = stats.get(kubelet_uid(pod))
        used = usage(signal, pod, mine, layout) if mine is not None else None
        requested = request(pod, resource, minor) if resource in ("memory", _EPHEMERAL) else Fraction(0)
        over = used is not None and resource != "pids" and used > requested
        subtracted = request(pod, _EPHEMERAL, minor) if resource == "inodes" else requested
        above = (used if used is not None else 0) - (subtracted if used is not None else 0)
        if resource == "pids":
            key: tuple[Any, ...] = (priority(pod), used is not None, -above)
        else:
            key = (0 if used is None else 1 if over else 2, priority(pod), -above)
        measured.append((key, pod, used, requested, over))
    measured.sort(key=lambda entry: (entry[0], full_name(entry[1])))
    keys = [entry[0] for entry in measured]
    return tuple(
        Ranked(
            place,
            keys.index(key) + 1,
            full_name(pod),
            kubelet_uid(pod),
            priority(pod),
            qos(pod),
            used,
            whole(requested),
            over,
            protected(pod),
            keys.count(key) > 1,
        )
        for place, (key, pod, used, requested, over) in enumerate(measured, 1)
    )


def freed(signal: str, summary: Mapping[str, Any], pods: Sequence[Object], layout: Layout) -> Callable[[str], int]:
    """Estimates how much of `signal` the eviction of a pod (by the kubelet's UID) frees: all that it uses, except host paths and config
    maps, which other pods use too."""
    stats, by_uid = _stats(summary), {kubelet_uid(pod): pod for pod in pods}

    def of(key: str) -> int:
        pod, mine = by_uid[key], stats.get(key)
        if mine is None:
            return 0
        if _condition(signal) != "DiskPressure":
            return usage(signal, pod, mine, layout)
        own = [str(volume["name"]) for volume in volumes_of(pod) if _is_local_ephemeral(volume) and "configMap" not in volume]
        return _disk(signal, mine, layout, own)

    return of


def victims(
    order: Sequence[Ranked], available: int, goal: int, frees: Callable[[str], int], *, disturbed: bool = False
) -> tuple[tuple[Victim, ...], bool]:
    """The pods that are evicted until `goal` is available, one in each loop of the kubelet; and whether the estimate reaches the goal.

    The first victim is certain, unless another candidate has the same rank, or `disturbed`: pods over their own limits are evicted before.
    All later victims depend on what the evictions before them really freed.
    """
    evicted: list[Victim] = []
    candidates = [entry for entry in order if not entry.protected]
    for entry in candidates:
        if available >= goal:
            break
        gain = frees(entry.uid)
        alone = sum(other.rank == entry.rank for other in candidates) == 1
        evicted.append(Victim(entry.pod, entry.uid, gain, not evicted and not disturbed and alone))
        available += gain
    return tuple(evicted), available >= goal


# ---- a pod's own limits, and the effect of a restart


def _local_evictions(summary: Mapping[str, Any], pods: Sequence[Object], layout: Layout) -> Iterator[LocalEviction]:
    """Pods over an emptyDir's sizeLimit or their limits.ephemeral-storage (eviction_manager.go: localStorageEviction)."""
    stats = _stats(summary)
    for pod in pods:
        mine = stats.get(kubelet_uid(pod))
        if mine is not None and not protected(pod):
            found = next(iter((*_over_size(pod, mine), *_over_pod_limit(pod, mine), *_over_container_limit(pod, mine, layout))), None)
            if found:
                what, used, limit = found
                yield LocalEviction(full_name(pod), kubelet_uid(pod), what, used, limit)


def _over_size(pod: Object, stats: Stats) -> Iterator[tuple[str, int, int]]:
    by_volume = {entry.get("name"): entry for entry in stats.get("volume") or ()}
    for volume in volumes_of(pod):
        limit = _number((volume.get("emptyDir") or {}).get("sizeLimit"))
        used = _of(by_volume.get(volume.get("name")), "usedBytes")
        if limit > 0 and used > limit:
            yield f"emptyDir {volume['name']} over its sizeLimit", used, whole(limit)


def _over_pod_limit(pod: Object, stats: Stats) -> Iterator[tuple[str, int, int]]:
    limit, used = limits(pod).get(_EPHEMERAL), _of(stats.get(_EPHEMERAL), "usedBytes")
    if limit is not None and used > limit:
        yield "the pod over its containers' limits.ephemeral-storage", used, whole(limit)


def _over_container_limit(pod: Object, stats: Stats, layout: Layout) -> Iterator[tuple[str, int, int]]:
    most = {
        container.get("name"): _number(((container.get("resources") or {}).get("limits") or {}).get(_EPHEMERAL))
        for container in containers_of(pod)
    }
    for container in stats.get("containers") or ():
        limit = most.get(container.get("name")) or Fraction(0)
        used = _of(container.get("logs"), "usedBytes") + (_of(container.get("rootfs"), "usedBytes") if layout == "one" else 0)
        if limit and used > limit:
            yield f"container {container['name']} over its limits.ephemeral-storage", used, whole(limit)


def _notes(
    guessed: bool,
    layout: Layout,
    summary: Mapping[str, Any],
    pods: Sequence[Object],
    pressures: Sequence[Pressure],
    local: Sequence[LocalEviction],
    rejected: Sequence[str],
    unobserved: Sequence[str],
) -> Iterator[str]:
    if guessed and any(_condition(pressure.signal) == "DiskPressure" for pressure in pressures):
        kinds = {
            "one": "the node and the images have one file system",
            "images and containers apart": "images and writable layers have their own file system",
            "images apart": "images have their own file system",
        }
        yield f"{kinds[layout]}, judged by sizes: the summary names no devices"
    if unobserved:
        yield f"the summary does not report {', '.join(unobserved)}: thresholds on them are never met"
    unknown = sorted(full_name(pod) for pod in pods if kubelet_uid(pod) not in _stats(summary))
    if unknown and pressures:
        yield f"the usage of {', '.join(unknown)} is unknown: the kubelet evicts such pods first"
    if local:
        yield "pods over their own limits are evicted first, all at once; the ranking starts in the next loop"
    if any(pressure.reclaims_first for pressure in pressures):
        yield "before it evicts for a disk, the kubelet removes dead containers and unused images; if that is enough, no pod is evicted"
    if any(len(pressure.victims) > 1 for pressure in pressures):
        yield "victims after the first are an estimate: the kubelet measures again after each"
    if any(pressure.victims and not pressure.enough for pressure in pressures):
        yield "by the estimate, evicting every pod that may be evicted would not be enough"
    if any(entry.tied for pressure in pressures for entry in pressure.order):
        yield "pods of equal rank are sorted by name; the kubelet evicts them in any order"
    kinds_met = {pressure.signal.partition(".")[0] for pressure in pressures if pressure.signal not in MEMORY_SIGNALS}
    if len(kinds_met - {"containerfs"}) > 1:
        yield "several thresholds other than memory are met; it is not determined which one the kubelet handles first"
    for pressure in pressures:
        if pressure.grace:
            yield f"{pressure.signal} is a soft threshold: pods are evicted when it has been met for {pressure.grace:g} s"
    if pressures and any(map(_is_resized, pods)):
        yield "a pod is being resized: its allocated resources count, not the requests of its spec"
    if rejected:
        yield f"a kubelet that starts under this pressure may refuse to re-admit {len(rejected)} running pods"


def _is_resized(pod: Object) -> bool:
    views = (View.SPEC, View.ALLOCATED)
    return any(len({of_container(pod, one, view).get("memory") for view in views}) > 1 for one in containers_of(pod))
