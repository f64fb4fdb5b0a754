"""Who goes first on a node, and why: each pod's usage against its request, its rank for each resource, its OOM scores. Pure.

Two things end pods on a full node. The kubelet evicts by its own order (see predict.py). The kernel's OOM killer, where memory is
gone before the kubelet looks, takes the process with the highest score: its share of the memory in thousandths, plus
oom_score_adj (proc_pid_oom_score_adj(5)), which the kubelet gives each container when it is made.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from roles.engine.harmless import one_line
from roles.engine.kubelet import IMAGEFS, MEMORY, NODEFS, PID, Threshold, parse_quantity, whole
from roles.engine.rollout import table
from roles.eviction import predict
from roles.eviction.predict import Layout, Ranked, Reading
from roles.eviction.usage import ContainerProcess

# pkg/kubelet/qos/policy.go
GUARANTEED_ADJ = -997
BEST_EFFORT_ADJ = 1000
NODE_CRITICAL_CLASS = "system-node-critical"

#: What a signal is called in tables and pictures.
SIGNAL_TITLES = {MEMORY: "memory", NODEFS: "disk", IMAGEFS: "container disk", PID: "processes"}


@dataclass(frozen=True)
class Use:
    """One resource of a pod. `used` None where nothing is known. `place` in the kubelet's order, 1 goes first; `turn` among those
    that can go, None for a protected pod; `tied` where another has the same rank."""

    used: int | None
    requested: int
    over: bool
    place: int
    turn: int | None
    tied: bool


@dataclass(frozen=True)
class Adjust:
    """oom_score_adj of a container: `expected` by the kubelet's formula, `seen` in /proc of its PID 1 (None where none was read)."""

    container: str
    expected: int
    seen: int | None
    pid: int | None


@dataclass(frozen=True)
class OrderRow:
    """One pod. `uses` by signal; `protected` says why the kubelet never evicts it, "" where it does."""

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
    """One node: pods in the order of eviction for memory. `signals` are those that the rows have uses of."""

    node: str
    version: str
    memory: int
    layout: Layout
    readings: dict[str, Reading]
    thresholds: tuple[Threshold, ...]
    signals: tuple[str, ...]
    rows: tuple[OrderRow, ...]
    notes: tuple[str, ...] = field(default=())

    def by(self, signal: str) -> list[OrderRow]:
        """The rows in the order of eviction for one of `signals`."""
        return sorted(self.rows, key=lambda row: row.uses[signal].place)


def order(
    summary: Mapping[str, Any],
    pods: Sequence[predict.PodUsage],
    node: Mapping[str, Any],
    *,
    processes: Iterable[ContainerProcess] | None = None,
    thresholds: Iterable[Threshold] = (),
    where: Layout | None = None,
    more_notes: Sequence[str] = (),
) -> NodeOrder:
    """The pods of a node in their order for each resource. `processes` as read on the node; None where nobody looked. `more_notes`
    is what went wrong while reading.

    Raises ValueError for a quantity that is none.
    """
    layout = where or predict.layout_of(summary)
    minor = predict.minor_of(node)
    there = predict.active(pods)
    status = node.get("status") or {}
    capacity = whole(parse_quantity(str((status.get("capacity") or {}).get("memory") or "0")))
    signals = (MEMORY, NODEFS, *(() if layout == "one" else (IMAGEFS,)), PID)
    uses: dict[str, dict[str, Use]] = {}
    for signal in signals:
        for uid, use in _uses(predict.rank(signal, summary, there, layout, minor)):
            uses.setdefault(uid, {})[signal] = use
    seen = None if processes is None else {(one.pod_uid, one.container_id): one for one in processes}
    rows = [_row(pod, uses[predict.uid(pod)], seen, capacity, minor) for pod in there]
    rows.sort(key=lambda row: row.uses[MEMORY].place)
    return NodeOrder(
        node=str(node["metadata"]["name"]),
        version=str((status.get("nodeInfo") or {}).get("kubeletVersion") or ""),
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


def _row(
    pod: predict.PodUsage, uses: dict[str, Use], seen: Mapping[tuple[str, str], ContainerProcess] | None, capacity: int, minor: int
) -> OrderRow:
    uid = predict.uid(pod)
    status = pod.get("status") or {}
    ids = {
        str(entry.get("name")): str(entry.get("containerID") or "").partition("://")[2]
        for key in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
        for entry in status.get(key) or ()
    }
    found = []
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for container in pod["spec"].get(kind) or ():
            process = (seen or {}).get((uid, ids.get(str(container["name"]), "")))
            # An init container that has ended has no process to be killed.
            if process or kind != "initContainers" or _is_sidecar(pod, container):
                adjust = oom_score_adj(pod, container, capacity, minor)
                found.append(
                    Adjust(str(container["name"]), adjust, process.oom_score_adj if process else None, process.pid if process else None)
                )
    return OrderRow(
        predict.name(pod), uid, predict.qos(pod), predict.priority(pod), str(pod["spec"].get("priorityClassName") or ""),
        predict.protected(pod), uses, tuple(found),
    )  # fmt: skip


def _notes(rows: Iterable[OrderRow], looked: bool) -> Iterable[str]:
    if not looked:
        yield "oom_score_adj was not read on the node: it is what the formula gives"
    for row in rows:
        for one in row.containers:
            if one.seen is not None and one.seen != one.expected:
                yield (
                    f"{row.pod}: PID 1 of {one.container} has oom_score_adj {one.seen}, and its request gives {one.expected} now; it is "
                    "set when a container is made, and a runtime that may not lower it leaves it higher"
                )
    unknown = [row.pod for row in rows if any(use.used is None for use in row.uses.values())]
    if unknown:
        yield f"no usage is known of {', '.join(unknown)}: the kubelet takes such pods first"
    if any(use.tied for row in rows for use in row.uses.values()):
        yield "pods of equal rank (=) are shown by name; the kubelet takes them in any order"


# ---- OOM scores


def oom_score_adj(pod: predict.PodUsage, container: Mapping[str, Any], capacity: int, minor: int) -> int:
    """oom_score_adj that the kubelet gives a container's processes (pkg/kubelet/qos/policy.go: GetContainerOOMScoreAdjust).

    `capacity` is the node's memory in bytes (status.capacity). The more of it a Burstable container requests, the lower, from 999
    down to 3; a sidecar is never higher than the regular container with the least request would be. Of a request at pod level
    (from 1.34), what the containers do not request themselves is divided among all of them, init containers included.
    Raises ValueError for a quantity that is none, or where the capacity is not known.
    """
    if predict.protected(pod) and pod["spec"].get("priorityClassName") == NODE_CRITICAL_CLASS:
        return GUARANTEED_ADJ
    quality = predict.qos(pod)
    if quality in ("Guaranteed", "BestEffort"):
        return GUARANTEED_ADJ if quality == "Guaranteed" else BEST_EFFORT_ADJ
    if capacity <= 0:
        raise ValueError("status.capacity of the node has no memory, which oom_score_adj is made of")
    share = _share_of_the_pods(pod, minor)
    adjust = 1000 - 1000 * (predict.container_request(pod, container, "memory") + share) // capacity
    if _is_sidecar(pod, container):
        least = min(predict.container_request(pod, regular, "memory") for regular in pod["spec"]["containers"])
        adjust = min(adjust, 1000 - 1000 * (least + share) // capacity)
    return min(max(adjust, 1000 + GUARANTEED_ADJ), BEST_EFFORT_ADJ - 1)


def _is_sidecar(pod: predict.PodUsage, container: Mapping[str, Any]) -> bool:
    return container.get("restartPolicy") == "Always" and any(
        one["name"] == container["name"] for one in pod["spec"].get("initContainers") or ()
    )


def _share_of_the_pods(pod: predict.PodUsage, minor: int) -> int:
    """What of the pod's own memory request falls to each container."""
    at_pod_level = predict.pod_level_request(pod, "memory", minor)
    if not at_pod_level:
        return 0
    spec = pod["spec"]
    containers = len(spec.get("containers") or ()) + len(spec.get("initContainers") or ())
    # Go cuts towards zero.
    return math.trunc((at_pod_level - predict.containers_request(pod, "memory")) / containers)


# ---- words


def amount(signal: str, value: int) -> str:
    """A value of a signal for people: 340Ki, 1.5Gi; processes and inodes are counted out."""
    if signal == PID or signal.endswith(".inodesFree"):
        return str(value)
    size = float(value)
    for unit in ("", "Ki", "Mi", "Gi"):
        if abs(size) < 1024 or unit == "Gi":
            break
        size /= 1024
    # Three digits tell enough, and whole bytes are whole.
    return f"{size:.1f}{unit}" if unit and abs(size) < (100 if unit == "Gi" else 10) else f"{size:.0f}{unit}"


def reason(signal: str, row: OrderRow) -> str:
    """Why a pod stands where it stands for a signal, in a few words."""
    if row.protected:
        return f"never evicted ({row.protected})"
    use = row.uses[signal]
    if use.used is None:
        return "no usage known"
    if signal == PID:
        return f"priority {row.priority}, {use.used} processes"
    distance = amount(signal, abs(use.used - use.requested))
    if use.over:
        return f"{distance} over its request" if use.requested else f"{distance} used, nothing requested"
    return f"within its request by {distance}"


def order_as_json(found: NodeOrder) -> dict[str, Any]:
    """The machine form: bytes, inodes and counts as whole numbers; pods in the order of eviction for memory."""
    return {
        "node": found.node,
        "version": found.version,
        "memory": found.memory,
        "layout": found.layout,
        "signals": {
            signal: {
                **asdict(reading),
                "thresholds": [
                    {"limit": one.amount.of(reading.capacity), "grace": one.grace} for one in found.thresholds if one.signal == signal
                ],
            }
            for signal, reading in found.readings.items()
        },
        "pods": [{**asdict(row), "containers": [asdict(one) for one in row.containers]} for row in found.rows],
        "notes": list(found.notes),
    }


def order_as_table(node: NodeOrder) -> str:
    """The table for people: in the first columns whose turn it is for each resource, pods of equal rank marked with =."""
    about = [f"{node.node}: {len(node.rows)} pods"]
    for signal in node.signals:
        if signal in node.readings:
            reading = node.readings[signal]
            limits = sorted(one.amount.of(reading.capacity) for one in node.thresholds if one.signal == signal)
            below = f" (evicts below {amount(signal, limits[-1])})" if limits else ""
            about.append(f"{SIGNAL_TITLES[signal]} {amount(signal, reading.available)} of {amount(signal, reading.capacity)} left{below}")
    headers = [*(SIGNAL_TITLES[signal] for signal in node.signals), "pod", "priority", "QoS"]
    headers += [f"{SIGNAL_TITLES[signal]} used/asked" for signal in node.signals if signal != PID] + [
        "processes",
        "oom_score_adj",
        "why (memory)",
    ]
    lines = ["; ".join(about), table.render(headers, [_line(node, row) for row in node.rows])] if node.rows else about
    return "\n".join([*lines, *(f"note: {one_line(note)}" for note in node.notes)])


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
