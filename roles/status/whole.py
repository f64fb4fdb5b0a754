"""The whole cluster, for the JSON and the page: what the audit, the eviction order, the history and the rooms of budgets and autoscalers
read and judge, in one report. Nothing is judged here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from roles import audit, autoscaler_status, history
from roles.engine.api import Api, ApiFailure, list_objects
from roles.engine.autoscaling import JudgedAutoscaler, JudgedVertical
from roles.engine.bridge import Fleet
from roles.engine.disruption import BudgetState
from roles.engine.kube import Object, amounts
from roles.engine.kube.fields import name_of
from roles.engine.kube.resources import Resources
from roles.engine.placement import ClusterView, World
from roles.engine.proof import Cluster
from roles.engine.remote import RemoteError
from roles.eviction import NodeOrder
from roles.feature_gates import load
from roles.status import page, reading
from roles.status.model import (
    AutoscalerReport,
    BudgetReport,
    CapacityReport,
    ResourceReport,
    StatusReport,
    UnreadSection,
    WholeReport,
)

_METRICS = "/apis/metrics.k8s.io/v1beta1/nodes"
_RESOURCES = ("cpu", "memory", "pods")


@dataclass(frozen=True)
class Whole:
    """`audited` and `orders`: what the page shows of `report.whole.audit`, as the audit's own page does."""

    report: StatusReport
    audited: audit.Report
    orders: tuple[NodeOrder, ...]

    def page(self) -> str:
        return page.page(self.report, self.audited, self.orders)


def read(fleet: Fleet, made: str, now: float) -> Whole:
    """`made`: RFC 3339; `now`: the same in seconds since 1970."""
    seen = audit.collect(fleet, with_order=True, glance=True)
    audited = audit.report(seen, load(), made=made)
    unread = [UnreadSection(section=what, why=why) for what, why in seen.unread.items()]
    capacity, more = _capacity(seen)
    unread += more
    recorded, problems = history.recorded_changes(fleet)
    unread += [UnreadSection(section="runs", why=problem) for problem in problems]
    whole = WholeReport(
        audit=audited.model_dump(mode="json"),
        capacity=capacity,
        budgets=None if seen.budgets is None else tuple(map(_budget, seen.budgets)),
        autoscalers=None if seen.autoscalers is None else tuple(map(_autoscaler, seen.autoscalers)),
        runs=tuple(history.change_reports(recorded, recorded)),
        unread=tuple(unread),
    )
    found = reading.report(fleet, _reading(fleet, seen), made, now).model_copy(update={"whole": whole})
    return Whole(found, audited, tuple(seen.orders))


def _reading(fleet: Fleet, seen: audit.Collected) -> reading.Reading:
    """What the text is made from, as the audit has read it."""
    found = reading.Reading(
        seen.seen,
        seen.cluster or Cluster(),
        running={view.host: view.running for view in seen.views},
        stored=seen.lasting,
        failures=[f"{remote.unreachable}; fix the connection" for remote in fleet.unreachable],
        not_known=list(seen.not_known),
    )
    found.nodes = found.take(fleet.targets)
    found.warnings += map(str, seen.not_theirs.values())
    found.own = [node for node in found.nodes if node.remote.name not in seen.not_theirs]
    return found


def _capacity(seen: audit.Collected) -> tuple[tuple[CapacityReport, ...] | None, list[UnreadSection]]:
    if seen.pods is None or seen.cluster is None:
        return None, [] if seen.unread else [UnreadSection(section="capacity", why="no node could be asked for the API")]
    try:
        nodes = list(seen.cluster.known_nodes().values())
        return capacity(nodes, seen.pods, seen.cluster.query(_used)), []
    except (ApiFailure, RemoteError, ValueError) as error:
        return None, [UnreadSection(section="capacity", why=str(error))]


def capacity(nodes: Sequence[Object], pods: Sequence[Object], used: Mapping[str, Resources]) -> tuple[CapacityReport, ...]:
    """Of each node, as its scheduler counts. `used`: by its name. Raises ValueError for what is no amount."""
    rooms = World(ClusterView(nodes, pods)).rooms
    return tuple(
        CapacityReport(
            name=name,
            resources=tuple(
                ResourceReport(
                    resource=resource,
                    allocatable=room.allocatable.get(resource, 0),
                    requested=room.requested(resource),
                    used=amounts.units(resource, used[name][resource]) if resource in used.get(name, {}) else None,
                )
                for resource in _RESOURCES
            ),
        )
        for name, room in sorted(rooms.items())
    )


def _used(api: Api) -> Mapping[str, Resources]:
    """What each node uses; {} without a metrics API that answers. Raises ValueError for what is no amount."""
    try:
        return {name_of(one): amounts.listed(one.get("usage")) for one in list_objects(api, _METRICS)}
    except ApiFailure:
        return {}


def _budget(one: BudgetState) -> BudgetReport:
    return BudgetReport(
        namespace=one.namespace,
        name=one.name,
        allowed=one.disruptions_allowed,
        healthy=one.numbers.current_healthy,
        needed=one.numbers.desired_healthy,
        why=one.why,
        never=one.never,
    )


def _autoscaler(one: JudgedAutoscaler | JudgedVertical) -> AutoscalerReport:
    problems = tuple(map(str, one.problems))
    if isinstance(one, JudgedVertical):
        found = one.vertical
        return AutoscalerReport(
            name=str(found), target=str(found.target), now=found.mode, why=one.outlook.text, works=one.works, problems=problems
        )
    item, pods = one.autoscaler, one.decision.current
    return AutoscalerReport(
        name=item.key,
        target=str(item.target),
        now=f"{'?' if pods is None else pods} of {item.minimum} to {item.maximum}",
        why=autoscaler_status.report.why(one),
        works=one.works,
        problems=problems,
    )
