"""The eviction order as one HTML page that loads nothing else: no script, no font, no server. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from roles.engine import scripts
from roles.engine.folding import counted
from roles.engine.kubelet.thresholds import ALLOCATABLE_MEMORY, IMAGEFS, IMAGEFS_INODES, MEMORY, NODEFS, NODEFS_INODES, PID, Threshold
from roles.eviction.order import SIGNAL_TITLES, NodeOrder, OrderRow, Use, amount, reason
from roles.eviction.predict import Reading

# A protected pod is below all pods that can be evicted, wherever the kubelet ranks it.
_BELOW = 100_001
_GAUGES = {
    MEMORY: "memory",
    ALLOCATABLE_MEMORY: "memory of all pods",
    NODEFS: "disk",
    NODEFS_INODES: "disk, inodes",
    IMAGEFS: "images' disk",
    IMAGEFS_INODES: "images' disk, inodes",
    PID: "processes",
}


def page(nodes: Sequence[NodeOrder], *, made: str = "", problems: Iterable[str] = ()) -> str:
    """One page with all nodes. `made` says when the nodes were observed; `problems` lists what could not be shown."""
    signals = [signal for signal in SIGNAL_TITLES if any(signal in node.signals for node in nodes)] or list(SIGNAL_TITLES)[:1]
    return scripts.page(
        "eviction_order.html.j2",
        signals=signals,
        titles=SIGNAL_TITLES,
        nodes=[_node(node, signals) for node in nodes],
        made=made,
        problems=list(problems),
    )


def _node(node: NodeOrder, signals: Sequence[str]) -> dict[str, Any]:
    with_bars = [signal for signal in node.signals if signal != PID]
    scale = {signal: max([1, *(max(use.used or 0, use.requested) for use in _uses(node, signal))]) for signal in with_bars}
    candidates = [row for row in node.rows if not row.protected]
    rows = [_row(row, node.signals, signals, scale) for row in node.rows]
    return {
        "name": node.node,
        "about": f"{node.version}, {amount(MEMORY, node.memory)} of memory, {counted(len(node.rows), 'pod')}",
        "first": [min(candidates, key=lambda row: _use(row, signal).place).pod if candidates else "" for signal in signals],
        "gauges": gauges(node),
        "bars": [{"title": SIGNAL_TITLES[signal], "index": signals.index(signal)} for signal in with_bars],
        "counted": {"title": SIGNAL_TITLES[PID], "index": signals.index(PID)},
        "rows": rows,
        "kept": any(row.protected for row in node.rows),
        "notes": node.notes,
    }


def gauges(node: NodeOrder) -> list[dict[str, Any]]:
    """What the node has left of each resource, and the threshold of eviction: texts, and `used` and `limit` in percent."""
    return [
        _gauge(signal, node.readings[signal], [one for one in node.thresholds if one.signal == signal])
        for signal in _GAUGES
        if signal in node.readings and (signal in node.signals or any(one.signal == signal for one in node.thresholds))
    ]


def _uses(node: NodeOrder, signal: str) -> list[Use]:
    return [row.uses[signal] for row in node.rows]


def _use(row: OrderRow, signal: str) -> Use:
    """The use of a signal; that of memory if the node has no separate file system for the signal."""
    return row.uses.get(signal) or next(iter(row.uses.values()))


def _gauge(signal: str, reading: Reading, thresholds: Sequence[Threshold]) -> dict[str, Any]:
    limits = [(one.amount.of(reading.capacity), one.grace) for one in thresholds]
    highest = max((limit for limit, _ in limits), default=None)
    met = highest is not None and reading.available < highest
    says = "; ".join(f"evicts below {amount(signal, limit)}" + (f" after {grace:g} s" if grace else "") for limit, grace in sorted(limits))
    return {
        "title": _GAUGES[signal],
        "available": amount(signal, reading.available),
        "capacity": amount(signal, reading.capacity),
        "used": scripts.percent(reading.capacity - reading.available, reading.capacity),
        "limit": None if highest is None else scripts.percent(highest, reading.capacity),
        "met": met,
        "says": (f"under pressure: {says}" if met else says) or "no threshold",
    }


def _row(row: OrderRow, own: Sequence[str], signals: Sequence[str], scale: dict[str, int]) -> dict[str, Any]:
    namespace, _, name = row.pod.partition("/")
    return {
        "namespace": namespace,
        "name": name,
        "title": "; ".join(f"{SIGNAL_TITLES[signal]}: {reason(signal, row)}" for signal in own),
        "class": row.priority_class,
        "priority": row.priority,
        "qos": row.qos,
        "protected": row.protected,
        "order": [(index, _use(row, signal).place + (_BELOW if row.protected else 0)) for index, signal in enumerate(signals)],
        "turns": [_turn(index, signal, _use(row, signal)) for index, signal in enumerate(signals)],
        "bars": [_bar(signal, row, scale[signal]) for signal in scale],
        "counted": "?" if row.uses[PID].used is None else row.uses[PID].used,
        "scores": _scores(row),
        "scores_title": "; ".join(
            f"{one.container}: {one.expected}" + (f", observed {one.seen}" if one.seen not in (None, one.expected) else "")
            for one in row.containers
        ),
    }


def _turn(index: int, signal: str, use: Use) -> dict[str, Any]:
    return {
        "index": index,
        "title": SIGNAL_TITLES[signal],
        "text": f"{use.turn}{'=' if use.tied else ''}",
        "over": use.over or use.used is None,
    }


def _bar(signal: str, row: OrderRow, scale: int) -> dict[str, Any]:
    use = row.uses[signal]
    used = use.used or 0
    return {
        "title": SIGNAL_TITLES[signal],
        "says": reason(signal, row),
        "asked": scripts.percent(use.requested, scale),
        "used": scripts.percent(min(used, use.requested), scale),
        "above": scripts.percent(used - use.requested, scale),
        "over": use.over,
        "text": "?" if use.used is None else amount(signal, used),
        "request": amount(signal, use.requested) if use.requested else "-",
    }


def _scores(row: OrderRow) -> str:
    """The containers' oom_score_adj, highest first, as the kernel kills: the observed value, or the formula's."""
    values = sorted({one.expected if one.seen is None else one.seen for one in row.containers}, reverse=True)
    return " ".join(map(str, values[:2])) + (" ..." if len(values) > 2 else "")
