"""The data of deploys/consolidate.py: what each machine costs, what may go, and how much room stays; and its JSON document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from roles.consolidation.hours import Hours, parse_hours, parse_zone
from roles.consolidation.kept import KeepReason
from roles.engine.folding import shortened
from roles.engine.inputs import TEXT, Boolean, Data, Frozen, Kubeconfig, Names, choice, read_model
from roles.engine.inputs.values import Output, TextJsonOrHtml, file_path, written
from roles.engine.kube.times import parse_duration
from roles.engine.runs import Document
from roles.engine.transaction import Refusal

Unit = Literal["watts", "cost"]
#: The hours of a month: 8760 h a year, by 12.
HOURS_A_MONTH = 730
_MOST = 1e9
_FEW = 5
_LONGEST_NOTICE = 7 * 24 * 3600
_HINT = (
    "give every host either watts (what its machine draws, as its BMC or a meter shows it) or cost (for an hour, in any currency), in the"
    " inventory or in group_data"
)


class ConsolidateOptions(Frozen):
    """The data keys of deploys/consolidate.py that are for the whole run."""

    nodes: Annotated[
        Names,
        Field(
            description="only these nodes may go, by their names in the inventory or in the cluster; without it, those that --limit"
            " chooses, or all",
            examples=[["w1", "w2"], "w1,w2"],
        ),
    ] = None
    take_back: Annotated[
        Names,
        Field(
            description="reclaimable machines that their owners take back now, by their names in the inventory or in the cluster: they must"
            " be free within their `notice`, and no other node goes",
            examples=["w4"],
        ),
    ] = None
    spare_nodes: Annotated[
        int,
        Field(ge=0, le=1000, description="so many nodes more than the pods need stay: that many may fail, and all pods run", examples=[2]),
    ] = 1
    allow_local_data: Annotated[
        Boolean, Field(description="consent: pods with emptyDir volumes may move too, whose data is lost then", examples=[True])
    ] = False
    max_moves: Annotated[int | None, Field(ge=1, le=1_000_000, description="at most so many pods move", examples=[20])] = None
    wakes: Annotated[
        Boolean, Field(description="a plan may wake a machine for nodes that cost more; `false`: what is off stays off", examples=[False])
    ] = True
    format: TextJsonOrHtml = "text"
    output: Output = None
    dump: Annotated[
        Path | None,
        file_path("dump", "cluster.json"),
        TEXT,
        Field(
            description="a path on the operator's machine for the cluster as the planner reads it, with every name hashed: to show"
            " somebody a plan that looks wrong",
            examples=["cluster.json"],
        ),
    ] = None
    kubeconfig: Kubeconfig = None


def _notice(value: Any) -> str:
    try:
        seconds = parse_duration(value) if isinstance(value, str) else -1
    except ValueError:
        seconds = -1
    if not 0 <= seconds <= _LONGEST_NOTICE:
        raise ValueError(f"notice is {written(value)}; write a time of at most 168h with its unit, such as 15m or 1h30m")
    return str(value)


class MachineData(Frozen):
    """What the data of a host says of its machine."""

    cost: Annotated[
        float | None,
        Field(ge=0, le=_MOST, description="what the machine costs for an hour, in any currency; all hosts or none", examples=[0.35]),
    ] = None
    watts: Annotated[
        float | None,
        Field(ge=0, le=_MOST, description="the power that the machine draws, instead of `cost`; all hosts or none", examples=[120]),
    ] = None
    capacity: Annotated[
        Literal["owned", "reclaimable"],
        choice("capacity", "owned", "reclaimable"),
        Field(description="`reclaimable`: its owner may take the machine back at any time (spot)", examples=["reclaimable"]),
    ] = "owned"
    available: Annotated[
        str | None,
        Field(
            description="when a reclaimable machine may be used: days and times, several separated by commas. A range over midnight belongs"
            " to the day that it begins. Without it, until its owner takes it back",
            examples=["Mo-Fr 19:00-07:00", "Mo-Fr 19:00-07:00, Sa-Su 00:00-24:00"],
        ),
    ] = None
    tz: Annotated[str, Field(description="the time zone of `available`, by the IANA name of a place", examples=["Europe/Berlin"])] = "UTC"
    notice: Annotated[
        str,
        BeforeValidator(_notice),
        TEXT,
        Field(description="so long before a reclaimable machine must be free it takes no more pods", examples=["15m", "1h"]),
    ] = "15m"

    @model_validator(mode="after")
    def _of_reclaimable(self) -> Self:
        if self.available is not None and self.capacity == "owned":
            raise ValueError(f"available is {self.available!r}, and the machine is owned; set capacity to reclaimable, or remove available")
        _ = self.terms
        return self

    @property
    def terms(self) -> Terms:
        """Raises ValueError."""
        zone = parse_zone(self.tz)
        hours = parse_hours(self.available, zone) if self.available is not None else None
        return Terms(hours, float(parse_duration(self.notice)))


@dataclass(frozen=True)
class Terms:
    """On which the owner of a machine lends it. `hours`: None if it says none; `notice`: in seconds."""

    hours: Hours | None = None
    notice: float = 900.0


@dataclass(frozen=True)
class Machines:
    """What the machines of the inventory cost, by host, in one unit. `reclaimable`: those that are; `taken_back`: those of them that their
    owners want now."""

    unit: Unit
    cost: Mapping[str, float]
    reclaimable: Mapping[str, Terms] = field(default_factory=dict)
    taken_back: frozenset[str] = frozenset()


def read_machines(hosts: Iterable[tuple[str, Data]]) -> Machines:
    """The data of all hosts. Raises Refusal if they do not all have the same one of `cost` and `watts`."""
    found = {host: read_model(host, data, MachineData) for host, data in hosts}
    both = [host for host, one in found.items() if one.cost is not None and one.watts is not None]
    costs = {host: one.cost for host, one in found.items() if one.cost is not None}
    watts = {host: one.watts for host, one in found.items() if one.watts is not None}
    neither = [host for host in found if host not in costs and host not in watts]
    if both:
        raise Refusal(shortened(both, _FEW), "cost and watts are both set", _HINT)
    if costs and watts:
        raise Refusal(shortened(list(found), _FEW), f"cost is set for {shortened(costs, _FEW)}, watts for {shortened(watts, _FEW)}", _HINT)
    if neither:
        raise Refusal(shortened(neither, _FEW), "neither cost nor watts is set", _HINT)
    reclaimable = {host: one.terms for host, one in found.items() if one.capacity == "reclaimable"}
    return Machines("cost" if costs else "watts", costs or watts, reclaimable)


# ---- the JSON document


class PodReport(Document):
    """A pod on its node now."""

    pod: str = Field(description="NAMESPACE/NAME")
    cpu: float = Field(description="requested, in cores")
    memory: int = Field(description="requested, in bytes")
    to: str | None = Field(description="the node that it is planned to move to; null: it stays, or ends with its node")
    disruption: float = Field(description="what its move counts, from -10 to 10")
    of_node: bool = Field(description="of a DaemonSet, or static: it ends with its node")


class KeepReport(Document):
    """Why a node must stay."""

    reason: KeepReason
    subjects: tuple[str, ...] = Field(description="pods, budgets or labels; empty: the node itself")
    why: str


class NodeReport(Document):
    """`kept` is empty for a node that goes, and for one that could go and is needed: then `why` says so."""

    node: str
    host: str | None = Field(description="its name in the inventory; null: it is in none")
    state: Literal["goes", "stays", "wakes", "asleep"]
    cost: float
    reclaimable: bool
    hours: str = Field(description="when a reclaimable machine may be used, with the time zone; empty: always, or it is owned")
    changes: str | None = Field(description="RFC 3339: when its hours begin, or their notice does, or they end")
    must_go: Literal["hours-over", "taken-back"] | None = Field(description="its owner wants it. It goes, or `kept` says what is left")
    free_by: str | None = Field(description="RFC 3339: when a machine that must go must be free")
    cpu: float = Field(description="allocatable, in cores")
    memory: int = Field(description="allocatable, in bytes")
    disruption: float = Field(description="the sum over the pods that would move")
    pods: tuple[PodReport, ...]
    kept: tuple[KeepReport, ...]
    why: str


class ConsolidationReport(Document):
    """What the work could do without, now. Costs are in `unit`: watts, or a cost for an hour. The nodes that go come first, those with the
    most savings for the least disruption before the others."""

    made: str = Field(description="RFC 3339, the API server's clock")
    verdict: str
    unit: Unit
    before: float
    after: float
    saves: float
    saves_a_month: float | None = Field(description=f"cost for {HOURS_A_MONTH} hours; null for watts")
    bound: float = Field(description="no plan within these rules costs less")
    moves: int
    spare_nodes: int
    max_moves: int | None
    nodes: tuple[NodeReport, ...]
    notes: tuple[str, ...]
