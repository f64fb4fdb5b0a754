"""How a deploy on objects of the cluster begins: its data, its session, what it reads, its plan with the API server's dry run, and its run.
All raise DeployError before any write."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from pydantic import BaseModel

from roles.engine import bridge
from roles.engine.api import Api, ApiError, ApiFailure, Forbidden, NoApi, find_object
from roles.engine.bridge import Fleet
from roles.engine.context import Stage
from roles.engine.folding import counted
from roles.engine.inputs import Data, read_common, unmatched
from roles.engine.kube import Object
from roles.engine.kube.fields import name_of
from roles.engine.kube.workloads import object_path
from roles.engine.object_runs.connect import connect_servers
from roles.engine.object_runs.run import Asked, ObjectRun
from roles.engine.objects import Kind, ObjectChange, ObjectPlan, ObjectWriter, Session
from roles.engine.runs import Options
from roles.engine.runs.options import read_options
from roles.engine.timeouts import unless_set
from roles.engine.transaction import ObjectsRecord, Refusal
from roles.engine.voice import show, show_diff

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


def desired_of_cluster(
    fleet: Fleet, read: Callable[[Iterable[tuple[str, Callable[[str], Any]]]], T | None], missing: str
) -> tuple[Options, T]:
    """The options of the run, and what the data of all hosts of the inventory ask of the cluster. `read` gets each host's name and data; it
    returns None if no host has its keys (then `missing` says what to set), and raises Refusal."""
    if not fleet.targets:
        raise bridge.refuse("no host is in this run; name a control-plane node with --limit, or leave --limit out")
    options = read_options(fleet.targets)
    with bridge.refusing(Refusal):
        desired = read([(remote.name, remote.data) for remote in fleet.inventory])
    if desired is None:
        raise bridge.refuse(missing)
    return options, desired


def desired_or_listing(
    fleet: Fleet, read: Callable[[Iterable[tuple[str, Data]]], M | None], model: type[M], keys: str
) -> tuple[Options, M]:
    """As desired_of_cluster, for a deploy that lists what the cluster has if no host has its `keys`: then the model without them. A key of
    --data that needs them is refused."""

    def read_all(hosts: Iterable[tuple[str, Data]]) -> M:
        listed = list(hosts)
        if (desired := read(listed)) is not None:
            return desired
        if needing := sorted(fleet.given & (model.model_fields.keys() | {"take_over"}) - {"kubeconfig"}):
            raise Refusal(
                listed[0][0],
                f"--data {', '.join(needing)}: no host has {keys} in its data",
                "set them in group_data/all.py, or with --data; without any key, the deploy lists what the cluster has",
            )
        return read_common(listed, model, "it belongs to the cluster: set it in group_data/all.py")[1]

    return desired_of_cluster(fleet, read_all, "")


def cluster_session(fleet: Fleet, kubeconfig: str | None) -> Session:
    """A session of a deploy that needs the API alone."""
    return connect_servers(fleet, kubeconfig)[1]


def check_namespaces(session: Session, asked: Collection[str] | None) -> None:
    """Raises DeployError if the cluster has not all of these namespaces. An identity that may not read namespaces cannot tell."""
    try:
        missing = [name for name in asked or () if session.fetch(object_path("/api/v1/namespaces", "", name)) is None]
        known = [name_of(item) for item in session.fetch_all("/api/v1/namespaces")] if missing else []
    except Forbidden:
        return
    except ApiFailure as error:
        raise bridge.refusals([f"the namespaces cannot be read: {error}"]) from None
    bridge.stop(f"namespaces: {text}" for text in unmatched(missing, known, "no namespace of this cluster"))


def read_objects(session: Session, read: Callable[[Api], T]) -> T:
    """What `read` returns; it may be called again."""
    with bridge.refusing(ApiFailure, "the cluster's objects cannot be read: "):
        return session.asked(read)


def recorded_objects(session: Session, record: ObjectsRecord, kinds: Collection[Kind]) -> dict[str, Object]:
    """The objects of a record that can be of these kinds, and exist, by path. Raises DeployError."""
    paths = [one.path for one in record.objects if any(kind.place_of(one.path) for kind in kinds)]
    return read_objects(session, lambda api: {path: found for path in paths if (found := find_object(api, path)) is not None})


@dataclass(frozen=True)
class TimeLimit:
    """A time limit of a run that its record repeats. `given`: as the operator set it, None: not set; `seconds`: as it counts."""

    key: str
    given: int | None
    seconds: float

    @classmethod
    def of(cls, asked: BaseModel | ObjectsRecord, key: str, model: type[BaseModel]) -> TimeLimit:
        """Of a run's data, which `model` reads, or of the run that is undone."""
        if isinstance(asked, ObjectsRecord):
            given = asked.about.get(key)
        else:
            given = getattr(asked, key) if key in asked.model_fields_set else None
        return cls(key, given, unless_set(given or model.model_fields[key].default, given is not None))


def planned_run(
    fleet: Fleet,
    options: Options,
    plan: ObjectPlan,
    writer: ObjectWriter,
    asked: Asked,
    capability: str,
    what: str,
    *,
    limit: TimeLimit | None = None,
    tried: bool = False,
    leaving: Callable[[], str] | None = None,
    consents: Sequence[str] = (),
    then: str = "",
    again: str = "",
) -> ObjectRun:
    """The run of a plan, which is shown. `what`: the objects, as a word; `tried`: its dry run is over; `then`: what an operator can do who
    quits, if that is not the undo; `again`: how to continue after a halt, if not by the same command."""
    if isinstance(asked, ObjectsRecord):
        show(f"\nUndoing run {asked.run}")
    bridge.stop(plan.refusals)
    if not tried:
        plan.actions = dry_run(plan.actions, writer.session, writer.tried)
    run = ObjectRun(
        asked,
        [Stage(writer.steps(plan.actions))],
        fleet,
        options.take_over,
        lambda run: run.show_end(plan.rest),
        capability=capability,
        about={limit.key: limit.given} if limit else {},
        leaving=leaving or (lambda: f"written {what} stay; {then or f'to undo them: {run.undo}'}"),
        warnings=writer.warnings,
        consents=consents,
    )
    run.again = again or run.again
    show_plan(run, plan)
    return run


def dry_run(writes: Sequence[ObjectChange], session: Session, ask: Callable[[ObjectChange, Api], str]) -> list[ObjectChange]:
    """The same writes with the result of the API server's dry run, as `ask` shows it. Raises DeployError with all refusals."""
    refusals: list[object] = []
    shown: list[ObjectChange] = []
    for write in writes:
        try:
            shown.append(replace(write, shown=session.asked(partial(ask, write), "dry run")))
        except ApiError as error:
            refusals.append(f"{write.name}: {error}")
        except NoApi as error:
            refusals.append(f"{write.name}: {error}")
            break
    bridge.stop(refusals)
    return shown


def show_plan(run: ObjectRun, plan: ObjectPlan) -> None:
    """Show the writes with their diffs and notes, and the dropped objects; if there is nothing to do, show the table."""
    show(f"\nPlan of run {run.info.id}: {counted(len(plan.actions), 'change')} of the cluster's objects")
    for number, action in enumerate(plan.actions, 1):
        show(f"\n[{number}/{len(plan.actions)}] {action.name}: {action.summary}")
        show_diff(action.shown.splitlines())
        for note in action.notes:
            show(f"    - {note}")
    if plan.kept:
        show("\nNo longer in the data:")
    for name, why in plan.kept:
        show(f"    {name}: {why}")
    if not plan.actions:
        run.show_objects(plan.rest)
