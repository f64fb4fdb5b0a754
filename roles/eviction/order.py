"""The eviction order of a node, and why: each pod's usage and request, its rank for each resource, its OOM scores. Pure.

Two mechanisms end pods on a full node. The kubelet evicts in its own order (see predict.py). If memory runs out before the kubelet
notices, the kernel's OOM killer kills the process with the highest score: its share of the memory in thousandths, plus oom_score_adj
(proc_pid_oom_score_adj(5)), which the kubelet sets for each container when it creates it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field

from roles.engine import table
from roles.engine.folding import counted
from roles.engine.kube import Object, full_name, pods
from roles.engine.kube.amounts import parse_quantity, whole
from roles.engine.kube.fields import kubelet_version, name_of, spec_of, status_of
from roles.engine.kube.pods import kubelet_uid
from roles.engine.kubelet.thresholds import IMAGEFS, MEMORY, NODEFS, PID, Threshold
from roles.engine.runs import Document
from roles.engine.screen import wrapped
from roles.eviction import predict
from roles.eviction.predict import Layout, Ranked, Reading
from roles.eviction.usage import ContainerProcess

# pkg/kubelet/qos/policy.go
GUARANTEED_ADJ = -997
BEST_EFFORT_ADJ = 1000
NODE_CRITICAL_CLASS = "system-node-critical"

#: The name of a signal in tables and on pages.
SIGNAL_TITLES = {MEMORY: "memory", NODEFS: "disk", IMAGEFS: "container disk", PID: "processes"}


@dataclass(frozen=True)
class Use:
    """One resource of a pod. `used`: None if unknown. `place`: in the kubelet's order of all pods, from 1; `turn`: among the pods that can
    be evicted, None for a protected pod; `tied`: another pod has the same rank."""

    used: int | None
    requested: int
    over: bool
    place: int
    turn: int | None
    tied: bool


@dataclass(frozen=True)
class Adjust:
    """oom_score_adj of a container: `expected` by the kubelet's formula, `seen` in /proc of its PID 1 (None if it was not read)."""

    container: str
    expected: int
    seen: int | None
    pid: int | None


@dataclass(frozen=True)
class OrderRow:
    """One pod. `uses` by signal; `protected`: why the kubelet never evicts it, "" if it can evict it."""

    pod: str
    uid: str
    qos: str
    priority: int
    priority_class: str
    protected: str
    uses: dict[str, Use]
    containers: tuple[Adjust, ...]


@dataclass(frozen=True)
class NodeOrder:
    """One node: pods in the eviction order for memory. `signals`: the keys of `uses` in each row."""

    node: str
    version: str
    memory: int
    layout: Layout
    readings: dict[str, Reading]
    thresholds: tuple[Threshold, ...]
    signals: tuple[str, ...]
    rows: tuple[OrderRow, ...]
    notes: tuple[str, ...] = field(default=())


class ThresholdReport(Document):
    limit: int
    grace: int | float = Field(description="seconds; 0: at once")


class SignalReport(Document):
    """What the kubelet has measured, in bytes, inodes or processes."""

    available: int
    capacity: int
    time: str
    thresholds: tuple[ThresholdReport, ...]


class OrderReport(Document):
    """One node. Bytes, inodes and counts are whole numbers."""

    node: str
    version: str
    memory: int
    layout: Layout = Field(description="which file systems the kubelet tells apart")
    signals: dict[str, SignalReport] = Field(description="by name, such as memory.available")
    pods: tuple[OrderRow, ...] = Field(description="in the eviction order for memory; `uses` by signal")
    notes: tuple[str, ...]


class OrdersReport(Document):
    """The JSON document of deploys/eviction_order.py."""

    nodes: tuple[OrderReport, ...]
    problems: tuple[str, ...] = Field(description="nodes that could not be shown; then the exit status is 1")
    ignored: tuple[str, ...] = Field(description="processes with a component's name that are not the node's own")


def order(
    summary: Mapping[str, Any],
    pods: Sequence[Object],
    node: Mapping[str, Any],
    *,
    processes: Iterable[ContainerProcess] | None = None,
    thresholds: Iterable[Threshold] = (),
    known_layout: Layout | None = None,
    more_notes: Sequence[str] = (),
) -> NodeOrder:
    """The pods of a node in their order for each resource. `processes` as read on the node; None if they were not read. `more_notes`:
    errors while reading.

    Raises ValueError for an invalid quantity.
    """
    layout = known_layout or predict.layout_of(summary)
    minor = predict.minor_of(node)
    active = predict.active(pods)
    status = status_of(node)
    capacity = whole(parse_quantity(str((status.get("capacity") or {}).get("memory") or "0")))
    signals = (MEMORY, NODEFS, *(() if layout == "one" else (IMAGEFS,)), PID)
    uses: dict[str, dict[str, Use]] = {}
    for signal in signals:
        for uid, use in _uses(predict.rank(signal, summary, active, layout, minor)):
            uses.setdefault(uid, {})[signal] = use
    seen = None if processes is None else {(one.pod_uid, one.container_id): one for one in processes}
    rows = [_row(pod, uses[kubelet_uid(pod)], seen, capacity, minor) for pod in active]
    rows.sort(key=lambda row: row.uses[MEMORY].place)
    return NodeOrder(
        node=name_of(node),
        version=kubelet_version(node),
        memory=capacity,
        layout=layout,
        readings=predict.readings(summary),
        thresholds=predict.in_effect(thresholds, layout),
        signals=signals,
        rows=tuple(rows),
        notes=(*more_notes, *_notes(rows, seen is not None)),
    )


def _uses(ranked: Sequence[Ranked]) -> Iterable[tuple[str, Use]]:
    turn = 0
    for entry in ranked:
        turn += not entry.protected
        yield entry.uid, Use(entry.usage, entry.request, entry.over, entry.place, None if entry.protected else turn, entry.tied)


def _row(pod: Object, uses: dict[str, Use], seen: Mapping[tuple[str, str], ContainerProcess] | None, capacity: int, minor: int) -> OrderRow:
    uid = kubelet_uid(pod)
    status = status_of(pod)
    ids = {
        str(entry.get("name")): str(entry.get("containerID") or "").partition("://")[2]
        for key in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
        for entry in status.get(key) or ()
    }
    found = []
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec_of(pod).get(kind) or ():
            process = (seen or {}).get((uid, ids.get(str(container["name"]), "")))
            # An init container that has ended has no process that the kernel could kill.
            if process or kind != "initContainers" or _is_sidecar(pod, container):
                adjust = oom_score_adj(pod, container, capacity, minor)
                found.append(
                    Adjust(str(container["name"]), adjust, process.oom_score_adj if process else None, process.pid if process else None)
                )
    return OrderRow(
        full_name(pod), uid, predict.qos(pod), pods.priority(pod), str(spec_of(pod).get("priorityClassName") or ""),
        predict.protected(pod), uses, tuple(found),
    )  # fmt: skip


def _notes(rows: Iterable[OrderRow], processes_read: bool) -> Iterable[str]:
    if not processes_read:
        yield "oom_score_adj was not read on the node: the values come from the kubelet's formula"
    for row in rows:
        for one in row.containers:
            if one.seen is not None and one.seen != one.expected:
                yield (
                    f"{row.pod}: PID 1 of {one.container} has oom_score_adj {one.seen}, but its request results in {one.expected} now. "
                    "It is set when the container is created, and stays higher if the runtime may not lower it"
                )
    unknown = [row.pod for row in rows if any(use.used is None for use in row.uses.values())]
    if unknown:
        yield f"the usage of {', '.join(unknown)} is unknown: the kubelet evicts such pods first"
    if any(use.tied for row in rows for use in row.uses.values()):
        yield "pods of equal rank (=) are sorted by name; the kubelet evicts them in any order"


# ---- OOM scores


def oom_score_adj(pod: Object, container: Mapping[str, Any], capacity: int, minor: int) -> int:
    """The oom_score_adj that the kubelet sets for a container's processes (pkg/kubelet/qos/policy.go: GetContainerOOMScoreAdjust).

    `capacity` is the node's memory in bytes (status.capacity). The more memory a Burstable container requests, the lower its score, from
    999 down to 3; a sidecar's is at most that of the regular container with the smallest request. From 1.34 on, the part of a pod-level
    request that the containers do not request themselves is divided among all of them, including init containers.
    Raises ValueError for an invalid quantity, or if the capacity is unknown.
    """
    if predict.protected(pod) and spec_of(pod).get("priorityClassName") == NODE_CRITICAL_CLASS:
        return GUARANTEED_ADJ
    quality = predict.qos(pod)
    if quality in ("Guaranteed", "BestEffort"):
        return GUARANTEED_ADJ if quality == "Guaranteed" else BEST_EFFORT_ADJ
    if capacity <= 0:
        raise ValueError("status.capacity of the node has no memory, and oom_score_adj is computed from it")
    share = _share_of_the_pods(pod, minor)
    adjust = 1000 - 1000 * (predict.container_request(pod, container, "memory") + share) // capacity
    if _is_sidecar(pod, container):
        least = min(predict.container_request(pod, regular, "memory") for regular in spec_of(pod)["containers"])
        adjust = min(adjust, 1000 - 1000 * (least + share) // capacity)
    return min(max(adjust, 1000 + GUARANTEED_ADJ), BEST_EFFORT_ADJ - 1)


def _is_sidecar(pod: Object, container: Mapping[str, Any]) -> bool:
    return container.get("restartPolicy") == "Always" and any(
        one["name"] == container["name"] for one in spec_of(pod).get("initContainers") or ()
    )


def _share_of_the_pods(pod: Object, minor: int) -> int:
    """Each container's part of the pod-level memory request that the containers do not request themselves."""
    at_pod_level = predict.pod_level_request(pod, "memory", minor)
    if not at_pod_level:
        return 0
    spec = spec_of(pod)
    containers = len(spec.get("containers") or ()) + len(spec.get("initContainers") or ())
    # Go truncates towards zero.
    return math.trunc((at_pod_level - predict.containers_request(pod, "memory")) / containers)


# ---- words


def amount(signal: str, value: int) -> str:
    """A value of a signal for people: 340Ki, 1.5Gi; processes and inodes in full."""
    if signal == PID or signal.endswith(".inodesFree"):
        return str(value)
    size = float(value)
    for unit in ("", "Ki", "Mi", "Gi"):
        if abs(size) < 1024 or unit == "Gi":
            break
        size /= 1024
    # Three digits are enough, and bytes are whole numbers.
    return f"{size:.1f}{unit}" if unit and abs(size) < (100 if unit == "Gi" else 10) else f"{size:.0f}{unit}"


def reason(signal: str, row: OrderRow) -> str:
    """Why a pod has its place for a signal, in a few words."""
    if row.protected:
        return f"never evicted ({row.protected})"
    use = row.uses[signal]
    if use.used is None:
        return "usage unknown"
    if signal == PID:
        return f"priority {row.priority}, {use.used} processes"
    distance = amount(signal, abs(use.used - use.requested))
    if use.over:
        return f"{distance} over its request" if use.requested else f"{distance} used, nothing requested"
    return f"{distance} below its request"


def order_report(found: NodeOrder) -> OrderReport:
    signals = {
        signal: SignalReport(
            available=reading.available,
            capacity=reading.capacity,
            time=reading.time,
            thresholds=tuple(
                ThresholdReport(limit=one.amount.of(reading.capacity), grace=one.grace) for one in found.thresholds if one.signal == signal
            ),
        )
        for signal, reading in found.readings.items()
    }
    return OrderReport(
        node=found.node,
        version=found.version,
        memory=found.memory,
        layout=found.layout,
        signals=signals,
        pods=found.rows,
        notes=found.notes,
    )


def order_as_table(node: NodeOrder) -> str:
    """The table for people: the first columns have each pod's turn for each resource; = marks pods of equal rank."""
    about = [f"{node.node}: {counted(len(node.rows), 'pod')}"]
    for signal in node.signals:
        if signal in node.readings:
            reading = node.readings[signal]
            limits = sorted(one.amount.of(reading.capacity) for one in node.thresholds if one.signal == signal)
            below = f" (evicts below {amount(signal, limits[-1])})" if limits else ""
            about.append(f"{SIGNAL_TITLES[signal]} {amount(signal, reading.available)} of {amount(signal, reading.capacity)} left{below}")
    headers = [*(SIGNAL_TITLES[signal] for signal in node.signals), "pod", "priority", "QoS"]
    headers += [f"{SIGNAL_TITLES[signal]} used/requested" for signal in node.signals if signal != PID] + [
        "processes",
        "oom_score_adj",
        "why (memory)",
    ]
    lines = [wrapped("; ".join(about)), table.render(headers, [_line(node, row) for row in node.rows])] if node.rows else about
    return "\n".join([*lines, *(wrapped(f"note: {note}") for note in node.notes)])


def _line(node: NodeOrder, row: OrderRow) -> list[str]:
    uses = [row.uses[signal] for signal in node.signals]
    cells = [_turn(use) for use in uses] + [row.pod, str(row.priority), row.qos]
    cells += [_both(signal, row.uses[signal]) for signal in node.signals if signal != PID]
    processes = row.uses[PID].used
    scores = " ".join(f"{one.expected}" if one.seen in (None, one.expected) else f"{one.seen}(!{one.expected})" for one in row.containers)
    return [*cells, "?" if processes is None else str(processes), scores, reason(MEMORY, row)]


def _turn(use: Use) -> str:
    return "never" if use.turn is None else f"{use.turn}{'=' if use.tied else ''}"


def _both(signal: str, use: Use) -> str:
    used = "?" if use.used is None else amount(signal, use.used)
    return f"{used}/{amount(signal, use.requested) if use.requested else '-'}"
