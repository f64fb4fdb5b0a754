"""The answer: as a document, and as text for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from roles.consolidation.kept import Keep, KeepReason, sentence
from roles.consolidation.model import HOURS_A_MONTH, ConsolidationReport, KeepReport, NodeReport, PodReport, Unit
from roles.consolidation.plan import Consolidation, disruption
from roles.engine.findings import render
from roles.engine.folding import counted, shortened
from roles.engine.harmless import one_line
from roles.engine.kube import amounts, namespace_and_name, resources
from roles.engine.kube.fields import name_of, status_of
from roles.engine.kube.pods import is_over
from roles.engine.kube.resources import View
from roles.engine.outage import PodFate
from roles.engine.screen import wrapped

_GOES = ("node", "saves", "pods", "to", "disruption")
_STAYS = ("node", "costs", "pods", "why")
_FEW = 3


def as_document(found: Consolidation, notes: Sequence[str]) -> ConsolidationReport:
    """Raises ValueError for a quantity that cannot be read."""
    goes, woken, asleep = found.goes, found.plan.woken, found.keeper.asleep
    names = [name_of(node) for node in found.keeper.live.of("Node")]
    order = [*goes, *sorted(woken), *sorted(set(names) - {*goes, *woken})]
    before = sum(found.cost(node) for node in names if node not in asleep)
    after = before - sum(found.cost(node) for node in goes) + sum(found.cost(node) for node in woken)
    saves, unit = before - after, found.machines.unit
    problem = found.problem
    return ConsolidationReport(
        made=found.keeper.now.isoformat(timespec="seconds"),
        verdict=verdict(found, before, after, len(names) - len(asleep)),
        unit=unit,
        before=round(before, 6),
        after=round(after, 6),
        saves=round(saves, 6),
        saves_a_month=round(saves * HOURS_A_MONTH, 6) if unit == "cost" else None,
        bound=round(min(found.bound, after), 6),
        moves=len(found.plan.moves),
        spare_nodes=problem.spare,
        max_moves=problem.max_moves,
        nodes=tuple(_node(found, name) for name in order),
        notes=tuple(notes),
    )


def verdict(found: Consolidation, before: float, after: float, awake: int) -> str:
    """The answer in one line. `awake`: how many machines are on now."""
    unit, bound = found.machines.unit, min(found.bound, after)
    least = "No plan costs less" if after - bound < 1e-6 * max(1.0, after) else f"Nothing below {amount(unit, bound)} is possible"
    if not found.goes:
        return f"No node of {awake} could go: together they cost {amount(unit, before)}. {least}."
    parts = [f"{len(found.goes)} of {counted(awake, 'node')} could go: {shortened(found.goes, 10)}."]
    if found.plan.woken:
        parts.append(f"Wakes {', '.join(sorted(found.plan.woken))}.")
    saves = before - after
    month = f", {number(saves * HOURS_A_MONTH)} a month" if unit == "cost" else ""
    share = f" ({saves / before:.0%})".replace("%", " %") if before else ""
    parts.append(f"Saves {amount(unit, saves)}{share}{month}.")
    moves = len(found.plan.moves)
    said = "No pod moves" if not moves else "1 pod moves" if moves == 1 else f"{moves} pods move"
    parts.append(f"{said}. {least}.")
    return " ".join(parts)


def _node(found: Consolidation, name: str) -> NodeReport:
    node = next(one for one in found.keeper.live.of("Node") if name_of(one) == name)
    has = amounts.listed(status_of(node).get("allocatable"))
    keeps = found.kept.get(name, ())
    gone, woken, asleep = name in found.plan.goes, name in found.plan.woken, name in found.keeper.asleep
    return NodeReport(
        node=name,
        host=found.hosts.get(name),
        state="goes" if gone else "wakes" if woken else "asleep" if asleep else "stays",
        cost=found.cost(name),
        reclaimable=found.hosts.get(name, "") in found.machines.reclaimable,
        cpu=float(has.get("cpu", 0)),
        memory=int(has.get("memory", 0)),
        disruption=round(sum(disruption(one.pod) for one in found.keeper.leaving(name)), 6),
        pods=tuple(_pod(found, one, gone) for one in found.keeper.fates[name] if not is_over(one.pod)),
        kept=tuple(_keeps(keeps)),
        why="" if gone or woken or asleep else sentence(keeps) or one_line(shortened(found.plan.why.get(name, "").split("; "), _FEW, ";")),
    )


def _pod(found: Consolidation, one: PodFate, gone: bool) -> PodReport:
    asked = resources.requests(one.pod, View.SCHEDULED)
    to = found.plan.moves.get(namespace_and_name(one.pod)) if gone else None
    return PodReport(
        pod=one_line(one.name),
        cpu=float(asked.get("cpu", 0)),
        memory=int(asked.get("memory", 0)),
        to=to,
        disruption=round(disruption(one.pod), 6),
        of_node=one.fate == "stays",
    )


def _keeps(keeps: Sequence[Keep]) -> Iterator[KeepReport]:
    by_reason: dict[KeepReason, list[Keep]] = {}
    for one in keeps:
        by_reason.setdefault(one.reason, []).append(one)
    for reason, group in by_reason.items():
        yield KeepReport(reason=reason, subjects=tuple(one.about for one in group if one.about), why=sentence(group))


# ---- for people


def text(report: ConsolidationReport) -> Iterator[str]:
    """The tables: the nodes that go, and those that stay."""
    goes = [one for one in report.nodes if one.state == "goes"]
    others = [one for one in report.nodes if one.state != "goes"]
    if goes:
        yield render.section(
            "Nodes that could go, the most savings for the least disruption first", _GOES, [_going(report, one) for one in goes]
        )
    yield render.section("Nodes that stay, and why", _STAYS, [_staying(report, one) for one in others])
    yield from ("\n" + wrapped(note) for note in report.notes)


def _going(report: ConsolidationReport, node: NodeReport) -> list[str]:
    moving = [one for one in node.pods if one.to]
    to: dict[str, int] = {}
    for one in moving:
        to[str(one.to)] = to.get(str(one.to), 0) + 1
    where = shortened([f"{name} ({count})" for name, count in to.items()], _FEW)
    return [_name(node), amount(report.unit, node.cost), str(len(moving)), where or "-", number(node.disruption)]


def _staying(report: ConsolidationReport, node: NodeReport) -> list[str]:
    why = {"wakes": "asleep, and wakes: it is cheaper than a node that goes", "asleep": "asleep: cordoned by daytwo, and off or empty"}
    costs = "-" if node.state == "asleep" else amount(report.unit, node.cost)
    return [_name(node), costs, str(len(node.pods)), why.get(node.state, node.why or "-")]


def _name(node: NodeReport) -> str:
    return f"{node.node} (reclaimable)" if node.reclaimable else node.node


def amount(unit: Unit, value: float) -> str:
    """`240 W`, or `0.35 an hour`."""
    return f"{number(value)} W" if unit == "watts" else f"{number(value)} an hour"


def number(value: float) -> str:
    """With at most two digits behind the point, four below 0.1."""
    return f"{value:.{2 if abs(value) >= 0.1 else 4}f}".rstrip("0").rstrip(".") or "0"
