"""The answer: as a document, and as text for people. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from roles.consolidation.kept import Keep, KeepReason, sentence
from roles.consolidation.model import HOURS_A_MONTH, ConsolidationReport, KeepReport, NodeReport, PodReport, Unit
from roles.consolidation.owners import at
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
_MUST_GO = ("node", "free by", "pods", "to", "left")
#: Why an owner has a machine back.
WANTED = {"hours-over": "its hours end", "taken-back": "its owner takes it back"}
_NO_RESERVE = "what must go leaves no reserve: if another node fails, not all of its pods have room"
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
        notes=(*([] if found.plan.reserve else [_NO_RESERVE]), *found.owners.notes(), *notes),
    )


def verdict(found: Consolidation, before: float, after: float, awake: int) -> str:
    """The answer in one line. `awake`: how many machines are on now."""
    unit, bound = found.machines.unit, min(found.bound, after)
    least = "No plan costs less" if after - bound < 1e-6 * max(1.0, after) else f"Nothing below {amount(unit, bound)} is possible"
    wanted = [_wanted(found, node) for node in found.owners.must_go]
    first = [f"Must be free: {shortened(wanted, _FEW, ';')}."] if wanted else []
    if not found.goes:
        return " ".join([*first, f"No node of {awake} could go: together they cost {amount(unit, before)}. {least}."])
    parts = [*first, f"{len(found.goes)} of {counted(awake, 'node')} could go: {shortened(found.goes, 10)}."]
    if found.plan.woken:
        parts.append(f"Wakes {', '.join(sorted(found.plan.woken))}.")
    saves = before - after
    month = f", {number(saves * HOURS_A_MONTH)} a month" if unit == "cost" else ""
    share = f" ({saves / before:.0%})".replace("%", " %") if before else ""
    parts.append(f"Saves {amount(unit, saves)}{share}{month}." if saves >= 0 or not wanted else f"Costs {amount(unit, -saves)} more.")
    moves = len(found.plan.moves)
    said = "No pod moves" if not moves else "1 pod moves" if moves == 1 else f"{moves} pods move"
    parts.append(f"{said}. {least}.")
    return " ".join(parts)


def _wanted(found: Consolidation, node: str) -> str:
    must = found.owners.must_go[node]
    when = f"{node} by {at(must.free_by)}" if must.free_by else f"{node}, whose hours have ended"
    return when if node in found.plan.goes else f"{when}, and pods are left"


def not_free(found: Consolidation) -> Iterator[str]:
    """Why machines that their owners take back cannot be free in time."""
    for node, must in found.owners.must_go.items():
        if must.reason == "taken-back" and node not in found.plan.goes:
            yield f"{node} cannot be free by {at(must.free_by)}: {sentence(found.kept.get(node, ()))}"


def _node(found: Consolidation, name: str) -> NodeReport:
    node = next(one for one in found.keeper.live.of("Node") if name_of(one) == name)
    has = amounts.listed(status_of(node).get("allocatable"))
    keeps = found.kept.get(name, ())
    must, changes = found.owners.must_go.get(name), found.owners.changes(name)
    gone, woken, asleep = name in found.plan.goes, name in found.plan.woken, name in found.keeper.asleep
    return NodeReport(
        node=name,
        host=found.hosts.get(name),
        state="goes" if gone else "wakes" if woken else "asleep" if asleep else "stays",
        cost=found.cost(name),
        reclaimable=found.hosts.get(name, "") in found.machines.reclaimable,
        hours=found.owners.hours(name),
        changes=changes.isoformat(timespec="seconds") if changes else None,
        must_go=must.reason if must else None,
        free_by=must.free_by.isoformat(timespec="seconds") if must and must.free_by else None,
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
    """The tables: the nodes that must go, those that could, and those that stay."""
    must = [one for one in report.nodes if one.must_go]
    goes = [one for one in report.nodes if one.state == "goes" and not one.must_go]
    others = [one for one in report.nodes if one.state != "goes" and not one.must_go]
    if must:
        yield render.section("Reclaimable machines that must be free", _MUST_GO, [_leaving(one) for one in must])
    if goes:
        yield render.section(
            "Nodes that could go, the most savings for the least disruption first", _GOES, [_going(report, one) for one in goes]
        )
    yield render.section("Nodes that stay, and why", _STAYS, [_staying(report, one) for one in others])
    yield from ("\n" + wrapped(note) for note in report.notes)


def _leaving(node: NodeReport) -> list[str]:
    by = at(node.free_by) or "now"
    return [node.node, f"{by}: {WANTED[str(node.must_go)]}", str(len(node.pods)), _to(node), "-" if node.state == "goes" else node.why]


def _going(report: ConsolidationReport, node: NodeReport) -> list[str]:
    moving = [one for one in node.pods if one.to]
    return [_name(node), amount(report.unit, node.cost), str(len(moving)), _to(node), number(node.disruption)]


def _to(node: NodeReport) -> str:
    """Where its pods go, and how many to each."""
    counts = Counter(one.to for one in node.pods if one.to)
    return shortened([f"{name} ({count})" for name, count in counts.items()], _FEW) or "-"


def _staying(report: ConsolidationReport, node: NodeReport) -> list[str]:
    why = {"wakes": "asleep, and wakes: it is cheaper than a node that goes", "asleep": "asleep: cordoned by daytwo, and off or empty"}
    if node.state == "asleep" and node.hours and node.changes:
        why["asleep"] += f"; its hours change {at(node.changes)}"
    costs = "-" if node.state == "asleep" else amount(report.unit, node.cost)
    return [_name(node), costs, str(len(node.pods)), why.get(node.state, node.why or "-")]


def _name(node: NodeReport) -> str:
    lent = f"reclaimable, {node.hours}" if node.hours else "reclaimable"
    return f"{node.node} ({lent})" if node.reclaimable else node.node


def amount(unit: Unit, value: float) -> str:
    """`240 W`, or `0.35 an hour`."""
    return f"{number(value)} W" if unit == "watts" else f"{number(value)} an hour"


def number(value: float) -> str:
    """With at most two digits behind the point, four below 0.1."""
    return f"{value:.{2 if abs(value) >= 0.1 else 4}f}".rstrip("0").rstrip(".") or "0"
