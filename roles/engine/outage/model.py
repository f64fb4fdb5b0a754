"""What a drain is asked for, and what it decides: the purpose, the consents, the fate of each pod, the waves. Pure data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from roles.engine.commands import command
from roles.engine.disruption import Controller
from roles.engine.inputs import LIST_OR_TEXT, Boolean, Frozen, names
from roles.engine.kube import Object, full_name, uid
from roles.engine.kube.fields import name_of, spec_of
from roles.engine.kube.names import namespaced_name, workload_name
from roles.engine.kube.workloads import COLLECTIONS, object_path
from roles.engine.objects import Session
from roles.engine.outage.mark import Mark
from roles.engine.placement import PodVolume

#: What becomes of a pod: `evicted` by the Eviction API; `surged`: replaced first, then removed by its ReplicaSet; `deleted`: by consent,
#: past its budgets; `stays`; `ending`: already being deleted, waited for; `blocks`: the drain is refused.
Fate = Literal["evicted", "surged", "deleted", "stays", "ending", "blocks"]
#: The fates of pods that leave by this drain.
LEAVING: tuple[Fate, ...] = ("evicted", "surged", "deleted")

#: The most seconds that a drain may wait for one pod.
MOST_SECONDS = 86400
DEFAULT_SECONDS = 600
#: Kinds whose pods daytwo can count, and so waits for.
COUNTED = ("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController")


def _named(key: str, value: Any) -> tuple[str, ...]:
    """A list of NAMESPACE/NAME. Raises ValueError."""
    found = []
    for one in names(value) or ():
        namespace, _, name = one.partition("/")
        try:
            found.append(_deployment(one) if key == "surge" else namespaced_name(namespace, name, "shop/web"))
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from None
    return tuple(found)


def _deployment(text: str) -> str:
    """NAMESPACE/NAME of a Deployment, which may be written with its kind. Raises ValueError."""
    namespace, *_, name = workload_name(text, ("Deployment",)).split("/")
    return f"{namespace}/{name}"


def _surge(value: Any) -> bool | tuple[str, ...]:
    """true, false, or names of Deployments. Raises ValueError."""
    text = str(value).strip().lower()
    if isinstance(value, bool) or text in ("true", "false"):
        return text == "true"
    return _named("surge", value)


class DrainConsents(Frozen):
    """The consents of a drain. `drain_timeout` in seconds, for each pod."""

    allow_local_data: Annotated[
        Boolean, Field(description="consent: a drain evicts pods with emptyDir volumes too, whose data is lost", examples=[True])
    ] = False
    allow_unmanaged: Annotated[Boolean, Field(description="consent: a drain evicts pods that nothing recreates too", examples=[True])] = (
        False
    )
    allow_pending: Annotated[
        Boolean,
        Field(description="consent: a drain evicts pods too whose replacements no other node can take; they then wait", examples=[True]),
    ] = False
    surge: Annotated[
        bool | tuple[str, ...],
        BeforeValidator(_surge),
        WithJsonSchema({"type": ["boolean", "array", "string"], "items": {"type": "string"}}),
        Field(
            description="consent: Deployments with one replica get a second pod before the first one leaves: all of them, or only"
            " those named (NAMESPACE/deployment/NAME or NAMESPACE/NAME)",
            examples=[True, "shop/web,shop/api"],
        ),
    ] = False
    drain_timeout: Annotated[
        int,
        Field(
            ge=1,
            le=MOST_SECONDS,
            description="seconds for each pod of a drain, from its turn until it is gone and its replacement is Ready",
            examples=[1800],
        ),
    ] = DEFAULT_SECONDS
    max_grace: Annotated[
        int | None,
        Field(
            ge=1,
            le=MOST_SECONDS,
            description="consent: a drain gives pods that may take longer to end only so many seconds, whatever their"
            " terminationGracePeriodSeconds; then they are killed",
            examples=[300],
        ),
    ] = None
    ignore_budgets: Annotated[
        tuple[str, ...],
        BeforeValidator(lambda value: _named("ignore_budgets", value)),
        LIST_OR_TEXT,
        Field(
            description="consent: PodDisruptionBudgets (NAMESPACE/NAME) whose pods a drain deletes if the budget refuses their eviction;"
            " it needs a second one, `confirm_ignore`",
            examples=[["shop/web"], "shop/web,shop/db"],
        ),
    ] = ()
    confirm_ignore: Annotated[
        str,
        Field(
            pattern=r"^(pods-[0-9a-f]{8})?$",
            description="consent: the second one to `ignore_budgets`, for exactly the pods of a plan, which says it",
            examples=["pods-1f0c9a7e"],
        ),
    ] = ""

    @property
    def seconds(self) -> float:
        """For each pod, as it counts."""
        return self.limit("drain_timeout")


@dataclass(frozen=True)
class PodWorkload(Controller):
    """What recreates a pod: the end of its chain of controllers. `found`: the object, None for a kind that daytwo does not read; `ready`:
    how many of its pods were Ready when this was read; `counted`: daytwo knows how to wait for its pods."""

    ready: int = 0
    counted: bool = False

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def path(self) -> str:
        return object_path(COLLECTIONS[self.kind], self.namespace, self.name)


@dataclass(frozen=True)
class PodFate:
    """One pod of a drained node. `why`: the reason; `way_out`: what to do if it blocks; `budgets`: NAMESPACE/NAME of those that select it.

    `blocked_now`: why the API server would refuse its eviction at the moment, although it may succeed later; "" if it would not. `kept`:
    the controllers that may let it go, where nothing else does: it leaves last, since they may wait for the other pods. `waits`: the
    taints that keep its replacement from every node, with the controllers that remove them: it is not evicted before it has a place.
    `storage`: it has a volume that must follow it; `volumes`: all that it has; `together`: the UIDs of pods of its node that share a
    volume with it which only one node can have, so that they leave in one wave. `notes`: further effects, for the plan. `place`: where its
    replacement can run. `pending`: by consent its replacement may stay Pending, so nothing waits for it.
    """

    pod: Object
    node: str
    fate: Fate
    why: str
    way_out: str = ""
    workload: PodWorkload | None = None
    budgets: tuple[str, ...] = ()
    blocked_now: str = ""
    storage: bool = False
    volumes: tuple[PodVolume, ...] = ()
    together: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    pending: bool = False
    place: str = ""
    kept: str = ""
    waits: str = ""

    @property
    def name(self) -> str:
        return full_name(self.pod)

    @property
    def uid(self) -> str:
        return uid(self.pod)

    @property
    def priority(self) -> int:
        return int(spec_of(self.pod).get("priority") or 0)

    @property
    def leaves(self) -> bool:
        return self.fate in LEAVING


@dataclass(frozen=True)
class BudgetShare:
    """One budget with pods on the drained nodes: how many leave in all (`leaving`) and in each wave, what it allows now, and why.
    `leaving_by_node` by the node's name. `surged`: some of them are replaced first, and ask no budget. `healthy`: how many healthy pods
    it has."""

    key: str
    leaving_by_node: Mapping[str, int]
    allowed: int
    waves: tuple[int, ...]
    why: str
    surged: int = 0
    healthy: int = 0

    @property
    def leaving(self) -> int:
        return sum(self.leaving_by_node.values())


@dataclass(frozen=True)
class NodeFate:
    """One node to be drained. `cordon`: `ours` (cordoned by an earlier run of daytwo, `by`, with `mark`), `theirs` (by someone else, `by`),
    or "" (not cordoned). `since`: by the API server's clock; None if it does not say."""

    item: Object
    cordon: Literal["", "ours", "theirs"] = ""
    by: str = ""
    mark: Mark | None = None
    since: datetime | None = None

    @property
    def name(self) -> str:
        return name_of(self.item)

    @property
    def way_out(self) -> str:
        """What ends its cordon, for an operator. The change that a run cordoned it for may be in flight: the node knows that, not its
        Node."""
        if self.cordon == "theirs":
            return f"if nobody works on it: {command('uncordon', nodes=self.name, force='true')}"
        back = command("uncordon", nodes=self.name)
        if self.mark is None or self.mark.purpose != "change":
            return f"when the work on it is done: {back}"
        undo = command("rollback", run=self.mark.run)
        return f"if the run is over: repeat its command, undo it ({undo}), or only uncordon: {back}"


@dataclass(frozen=True)
class DrainPlan:
    """The plan of a drain. `pods`: all pods of the nodes; `waves`: those that are evicted or deleted, a tuple for each wave; `surges`:
    those that are replaced first. `refusals` stop the run before any write; `warnings` and `notes` are for the operator."""

    nodes: tuple[NodeFate, ...]
    pods: tuple[PodFate, ...] = ()
    surges: tuple[PodFate, ...] = ()
    waves: tuple[tuple[PodFate, ...], ...] = ()
    budgets: tuple[BudgetShare, ...] = ()
    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def leaving(self) -> tuple[PodFate, ...]:
        return tuple(one for one in self.pods if one.leaves)


@dataclass(frozen=True)
class Wanted:
    """A node to be drained. `host`, and its name in the cluster, `node`; `why` in sentences; `instead`: what an operator can do so that it
    is not drained."""

    host: str
    node: str
    why: tuple[str, ...]
    instead: str = ""


def _as_it_is(session: Session, node: str) -> None:
    """For a purpose that proves its node before it gives it back."""


@dataclass(frozen=True)
class Purpose:
    """Why a run takes a node out of service, and what follows for the node's cordon. `name`: in the mark on the node; `text`: what a node
    is taken out for, in a plan. `back(session, node)` proves that a node which was given back serves again; raises NotDone, ApiFailure."""

    name: str
    text: str
    back: Callable[[Session, str], None] = _as_it_is

    def resumes(self, mark: Mark | None) -> bool:
        """An earlier run's cordon with this mark ends with this outage; any other stays."""
        return mark is not None and mark.purpose == self.name and not mark.keep

    def seen(self, node: NodeFate) -> NodeFate:
        """A node as this outage finds it: a run's cordon that it does not resume is as that of anybody else."""
        return node if node.cordon != "ours" or self.resumes(node.mark) else replace(node, cordon="theirs")
