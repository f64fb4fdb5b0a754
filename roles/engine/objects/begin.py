"""How a deploy on objects of the cluster begins: its data, its session, what it reads, its plan with the API server's dry run, and its run.
All raise DeployError before any write."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

from pydantic import BaseModel

from roles.engine import bridge
from roles.engine.api import Api, ApiError, ApiFailure, Forbidden
from roles.engine.bridge import Fleet, show, show_lines
from roles.engine.detail import counted
from roles.engine.harmless import one_line
from roles.engine.inputs import unmatched
from roles.engine.kube.fields import name_of
from roles.engine.objects import object_report
from roles.engine.objects.planned import ObjectPlan, W
from roles.engine.objects.run import ObjectRun
from roles.engine.objects.session import Session, open_session
from roles.engine.proof import NoApi, survey
from roles.engine.rollout import ClusterStep, Options, Stage
from roles.engine.rollout.options import read_options
from roles.engine.timeouts import unless_set
from roles.engine.transaction import ObjectsRecord, Refusal, new_run_id, this_run

T = TypeVar("T")
W_contra = TypeVar("W_contra", contravariant=True)


def desired_of_cluster(
    fleet: Fleet, read: Callable[[Iterable[tuple[str, Callable[[str], Any]]]], T | None], missing: str
) -> tuple[Options, T]:
    """The options of the run, and what the data of all hosts of the inventory ask of the cluster. `read` gets each host's name and data; it
    returns None if no host has its keys (then `missing` says what to set), and raises Refusal."""
    if not fleet.targets:
        raise bridge.refuse("no host is in this run; name a control-plane node with --limit, or leave --limit out")
    options = read_options(fleet.targets)
    try:
        desired = read([(remote.name, remote.data) for remote in fleet.inventory])
    except Refusal as refusal:
        raise bridge.refusals([refusal]) from None
    if desired is None:
        raise bridge.refuse(missing)
    return options, desired


def cluster_session(fleet: Fleet, kubeconfig: str | None) -> Session:
    """A session of a deploy that needs the API alone. Nodes are read only where the operator's own identity (`kubeconfig`) needs their
    addresses: then the control-plane nodes that answer."""
    servers = [remote for remote in fleet.inventory if remote.is_control_plane] if kubeconfig is not None else []
    found = survey(fleet, [remote for remote in servers if remote.connected or remote.connect()])
    bridge.stop(found.refusals)
    return open_session(fleet, found, kubeconfig)


def check_namespaces(session: Session, asked: Collection[str] | None) -> None:
    """Raises DeployError if the cluster has not all of these namespaces. An identity that may not read namespaces cannot tell."""
    try:
        missing = [name for name in asked or () if session.fetch(f"/api/v1/namespaces/{quote(name, safe='')}") is None]
        known = [name_of(item) for item in session.fetch_all("/api/v1/namespaces")] if missing else []
    except Forbidden:
        return
    except ApiFailure as error:
        raise bridge.refusals([f"the namespaces cannot be read: {error}"]) from None
    bridge.stop(f"namespaces: {text}" for text in unmatched(missing, known, "no namespace of this cluster"))


def read_objects(session: Session, read: Callable[[Api], T]) -> T:
    """What `read` returns; it may be called again."""
    try:
        return session.asked(read)
    except ApiFailure as error:
        raise bridge.refusals([f"the cluster's objects cannot be read: {error}"]) from None


class PlanWriter(Protocol[W_contra]):
    """What carries out the changes of a plan. `tried`: the diff of one by the API server's dry run; it raises ApiError. `warnings`: see
    ObjectRun."""

    session: Session
    warnings: list[tuple[str, str]]

    def tried(self, change: W_contra, api: Api, /) -> str: ...
    def steps(self, changes: Sequence[W_contra], /) -> tuple[ClusterStep, ...]: ...


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
    plan: ObjectPlan[W],
    writer: PlanWriter[W],
    asked: BaseModel | Mapping[str, object] | ObjectsRecord,
    capability: str,
    what: str,
    *,
    limit: TimeLimit | None = None,
    tried: bool = False,
    leaving: Callable[[], str] | None = None,
    consents: Sequence[str] = (),
    then: str = "",
) -> ObjectRun:
    """The run of a plan, which is shown. `asked`: the data of the cluster or by host, or the record of the run that is undone; `what`: the
    objects, as a word; `tried`: the dry run has been made; `then`: what an operator can do who quits, if that is not the undo."""
    wanted, undoes = {"cluster": asked.model_dump()} if isinstance(asked, BaseModel) else asked, ""
    if isinstance(wanted, ObjectsRecord):
        show(f"\nUndoing run {wanted.run}")
        undoes, wanted = wanted.change, {"undo": wanted.run}
    bridge.stop(plan.refusals)
    if not tried:
        plan.actions = dry_run(plan.actions, writer.session, writer.tried)
    run = ObjectRun(
        this_run(new_run_id(), wanted),
        [Stage(writer.steps(plan.actions))],
        fleet,
        options.take_over,
        lambda run: object_report.show_objects_end(run, plan.rest),
        capability=capability,
        about={limit.key: limit.given} if limit else {},
        leaving=leaving or (lambda: f"written {what} stay; {then or f'to undo them: {run.undo}'}"),
        undoes=undoes,
        warnings=writer.warnings,
        consents=consents,
    )
    show_plan(run, plan)
    return run


def dry_run(writes: Sequence[W], session: Session, ask: Callable[[W, Api], str]) -> list[W]:
    """The same writes with the result of the API server's dry run, as `ask` shows it. Raises DeployError with all refusals."""
    refusals: list[object] = []
    shown: list[W] = []
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


def show_plan(run: ObjectRun, plan: ObjectPlan[W]) -> None:
    """Show the writes with their diffs and notes, and the dropped objects; if there is nothing to do, show the table."""
    show(f"\nPlan of run {run.info.id}: {counted(len(plan.actions), 'change')} of the cluster's objects")
    for number, action in enumerate(plan.actions, 1):
        show(f"\n[{number}/{len(plan.actions)}] {action.name}: {action.summary}")
        lines = [*action.shown.splitlines(), *(f"- {one_line(note)}" for note in action.notes)]
        if lines:
            show_lines("\n".join(f"    {line}" for line in lines))
    if plan.kept:
        show_lines("\nNo longer in the data:\n" + "\n".join(one_line(f"    {name}: {why}") for name, why in plan.kept))
    if not plan.actions:
        object_report.show_objects(run, plan.rest)
