"""Undoes a run on API objects, by its name or as the newest: restores the old fields of each object.

The record is on the host of the cluster's lock, if that is a control-plane node; if it has none, a run that the operator names is on the
machine that started it. Records of other hosts are none of the cluster (roles/history/facts.py). The capability of the run says what its
undo may write (roles/engine/inputs/registry.py: `Undo`), and a record with anything else is refused before anything is read for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from roles.engine import bridge
from roles.engine.bridge import Fleet
from roles.engine.inputs import registry
from roles.engine.object_runs import Consents, ObjectRun
from roles.engine.runs import options
from roles.engine.transaction import ObjectsRecord, Refusal, RunInfo, object_record
from roles.engine.transaction.record import RunRecord, read_events
from roles.history.facts import Recorded
from roles.history.model import RollbackOptions


def to_undo(fleet: Fleet, wanted: RollbackOptions, run: str, history: Mapping[str, Sequence[Recorded]]) -> ObjectRun | None:
    """The run that undoes `run`; None if that is a run on nodes, or unknown. `history`: the hosts' records.

    Raises DeployError if a record cannot be used, or if someone else has changed an object since.
    """
    own = [change for changes in history.values() for change in changes if change.run == run]
    if (found := next((change for change in own if change.of_objects), None)) is not None:
        record = _of_node(found)
        others = (change for changes in history.values() for change in changes if change.of_objects and change.run != run)
        record = record and object_record.among(record, [other for change in others if (other := _readable(change)) is not None])
    else:
        # Without a name the hosts say which run is the newest: none of them may choose one of the operator's own records.
        record = _own(run) if wanted.run or not own else None
    return _undone(fleet, record, wanted) if record is not None else None


def _of_node(found: Recorded) -> ObjectsRecord | None:
    """Raises DeployError."""
    if found.problem is not None:
        raise bridge.refusals([f"{found.host}: the record of {found.id}: {found.problem}"])
    with bridge.refusing(ValueError, f"{found.host}: "):
        return object_record.parse(found.run, found.events)


def _readable(found: Recorded) -> ObjectsRecord | None:
    try:
        return None if found.problem else object_record.parse(found.run, found.events)
    except ValueError:
        return None


def _own(run: str) -> ObjectsRecord | None:
    """The operator's own record, for a run that no node knows; None if there is none, or if it is of a run on nodes. Raises DeployError."""
    path = RunRecord(RunInfo(run, "", "", "", "", "")).path
    try:
        events = read_events(path).events
        record = object_record.parse(run, events)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, Refusal) as error:
        raise bridge.refusals([f"run={run}: {error}"]) from None
    if record is None and any(
        event.keys() >= {"event", "object", "before"} or event.keys() >= {"event", "pod", "changes"} for event in events
    ):
        why = "an older daytwo wrote it and did not record fields"
        raise bridge.refusals([f"run={run}: {path}: {why}; it has the old version of each object: restore that by hand"])
    return record


def _undone(fleet: Fleet, record: ObjectsRecord, wanted: RollbackOptions) -> ObjectRun:
    """Raises DeployError."""
    if not record.objects:
        raise bridge.refuse(f"run {record.run} changed nothing that can be undone ({record.capability})")
    undo = registry.undo_of(record.capability)
    if undo is None:
        raise bridge.refuse(
            f"run {record.run} is of {record.capability}, which this daytwo cannot undo; use the daytwo that started it, or a later one"
        )
    bridge.stop(
        f"run {record.run} is not undone: its record has what no run of {record.capability} writes: {why}" for why in undo.refusals(record)
    )
    consents = Consents(wanted.force, wanted.allow_evictions, wanted.allow_restarts, wanted.kubeconfig)
    run: ObjectRun = undo.plan(fleet, options.read_options(fleet.targets), record, consents)
    return run
