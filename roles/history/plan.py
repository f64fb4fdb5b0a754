"""Which of the recorded changes deploys/changes.py lists; and undoing a run: which changes, in which order, and the plan for each. Pure."""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roles.engine.bounds import moment
from roles.engine.node import Observation
from roles.engine.node_changes import KUBELET, ComponentPlan
from roles.engine.outage.undo import UNCORDON
from roles.engine.transaction import Change, Effective, FileEdit, Refusal, change_id
from roles.engine.transaction.model import ABSENT, cmdline_sha256
from roles.engine.transaction.object_record import CANNOT_UNDO
from roles.history.facts import Recorded
from roles.history.model import ChangesOptions
from roles.history.sequence import Sequenced, Unordered


@dataclass(frozen=True, kw_only=True)
class Undo(ComponentPlan):
    """What undoes one change; `change` is None if its files are already as before. `had_checkpoints`: the change removed some."""

    had_checkpoints: bool = False
    warnings: tuple[str, ...] = ()


_DAY = 86400


def newest(history: Mapping[str, Sequence[Recorded]]) -> tuple[str, ...]:
    """The newest run with a confirmed change that is not undone, and the runs right before it with the same data for other components: a
    run that halted and was run again is undone as one. The newest first; runs that undo others, or cannot be undone, do not count. Raises
    Unordered if it is not known which is the newest."""
    changes = [change for recorded in history.values() for change in recorded]
    undone = undone_by(changes)
    not_undone = [
        change
        for change in changes
        if change.state == "confirmed"
        and change.run
        and not change.plan.get("undoes")
        and place(change) not in undone
        and _can_undo(change)
    ]
    found: list[str] = []
    touched: set[tuple[str, str]] = set()
    data = None
    order, left = Sequenced(history), {change.run for change in not_undone}
    while left:
        run = _next(order, left, found)
        if run is None:
            break
        left.discard(run)
        own = [change for change in not_undone if change.run == run]
        parts = {(change.host, change.component) for change in own}
        data = data or own[0].plan.get("data")
        # All that have changes of the run must say so, or one node could have an older run undone on the others.
        if any(change.plan.get("data") != data for change in own) or parts & touched:
            break
        found.append(run)
        touched |= parts
    return tuple(found)


def undone_by(changes: Iterable[Recorded]) -> dict[tuple[str, str], str]:
    """The runs that have undone changes, by the `place` of what they have undone."""
    return {(_speaks_of(one), str(one.plan["undoes"])): one.run for one in changes if one.state == "confirmed" and one.plan.get("undoes")}


def place(change: Recorded) -> tuple[str, str]:
    return _speaks_of(change), change.id


def _speaks_of(change: Recorded) -> str:
    """A node does not say that a change of another node is undone."""
    return "" if change.of_cluster else change.host


def _can_undo(change: Recorded) -> bool:
    about = change.plan.get("about")
    return not (isinstance(about, Mapping) and about.get(CANNOT_UNDO))


def _next(order: Sequenced, left: Collection[str], found: Sequence[str]) -> str | None:
    """The newest of `left`; None if that is not known and there is already a run to undo. Raises Unordered."""
    try:
        return order.newest(left)
    except Unordered:
        if found:
            return None
        raise


def changes_to_undo(history: Mapping[str, Sequence[Recorded]], runs: Sequence[str]) -> list[Recorded]:
    """The confirmed changes of these runs (the newest first), the last one first. A change of the cluster itself counts even if it is only
    staged: the cluster shows whether it was written before the operator's machine was gone."""
    found = [
        change
        for recorded in history.values()
        for change in recorded
        if change.run in runs and (change.state == "confirmed" or (change.of_cluster and change.state == "staged"))
    ]
    return sorted(found, key=lambda change: (-runs.index(change.run), change.order, change.host), reverse=True)


def of_cluster(chosen: Sequence[Recorded]) -> dict[str, list[tuple[str, Sequence[Mapping[str, Any]]]]]:
    """The changes of the cluster itself: by object, in the order of `chosen`, each with the fields that it changed."""
    found: dict[str, list[tuple[str, Sequence[Mapping[str, Any]]]]] = {}
    for change in chosen:
        if change.of_cluster:
            found.setdefault(change.component, []).append((change.id, change.plan.get("fields") or ()))
    return found


def targets(recorded: Recorded) -> list[str]:
    return [posixpath.normpath(str(file["path"])) for file in recorded.plan.get("files") or ()]


def plan_undo(run_id: str, recorded: Recorded, seen: Observation, force: bool) -> Undo:
    """The change that undoes a recorded one. Raises Refusal if a file was changed since (its message has the diff), unless `force`."""
    plan = recorded.plan
    if (why := recorded.problem) is not None:
        raise Refusal(recorded.host, f"the record of {recorded.id}: {why}")
    edits: list[FileEdit] = []
    warnings: list[str] = []
    conflicts: list[str] = []
    for number, file in enumerate(plan["files"], 1):
        path = str(file["path"])
        now = seen.file(path)
        if now is None:
            raise Refusal(recorded.host, f"{path} was not read")
        if (why := now.why_not_replaceable()) is not None:
            raise Refusal(recorded.host, f"{path} {why}")
        original = None if file["before"] == ABSENT else recorded.originals.get(number)
        if original is None and file["before"] != ABSENT:
            raise Refusal(recorded.host, f"the record of {recorded.id} no longer has the original of {path}", "restore the file by hand")
        if original is not None and hashlib.sha256(original).hexdigest() != file["before"]:
            why = f"the original of {path} in the record of {recorded.id} does not match its recorded checksum"
            raise Refusal(recorded.host, why, "restore the file by hand")
        found = now.sha256 or ABSENT
        if found == file["before"]:
            continue
        owner, hidden = str(file.get("owner") or ""), bool(file.get("hidden"))
        edit = FileEdit(path, now.data, original, int(str(file["mode"]), 8), owner, hidden)
        if found != file["after"]:
            message = f"{path} was changed since {recorded.id}; undoing {recorded.id} would result in:\n{edit.diff()}"
            if not force:
                conflicts.append(message)
            warnings.append(f"{path} was changed since {recorded.id}; force=true overwrites it")
        edits.append(edit)
    if conflicts:
        raise Refusal(recorded.host, "\n".join(conflicts), "undo the later edit first, or overwrite it with --data force=true")
    effective = Effective.of(plan)
    gates = {name: bool(values["before"]) for name, values in effective.gates.items() if values.get("before") is not None}
    settings = {name: values.get("before") for name, values in effective.settings.items()}
    flags = {name: None if (old := values.get("before")) is None else tuple(old) for name, values in effective.flags.items()}
    change = _change(run_id, recorded, seen, tuple(edits), forced=bool(warnings)) if edits else None
    return Undo(
        recorded.component,
        change,
        gates=gates,
        settings=settings,
        flags=flags,
        effective=effective.undone(),
        undoes=recorded.id,
        had_checkpoints=bool(plan.get("checkpoints")),
        warnings=tuple(warnings),
    )


def _change(run_id: str, recorded: Recorded, seen: Observation, edits: tuple[FileEdit, ...], forced: bool) -> Change:
    plan = recorded.plan
    component = recorded.component
    process = seen.kubelet if component == KUBELET else seen.static_pod_process(component, str(plan["pod"]))
    # After edits of others, the record does not say what the arguments will be.
    after = "" if forced else str(plan["arguments"]["before"])
    return Change(
        id=change_id(run_id, recorded.host, component),
        node=recorded.host,
        component=component,
        kind=plan["kind"],
        unit=str(plan["unit"]),
        summary=f"undo {recorded.id} ({plan['summary']})",
        files=edits,
        health_url=str(plan["health_url"]),
        old_argv=None,
        new_argv=None,
        daemon_reload=bool(plan["daemon_reload"]),
        pod=str(plan["pod"]),
        container=str(plan["container"]),
        arguments_sha256=(cmdline_sha256(process.argv) if process else "", after),
    )


# ---- the list


def chosen(changes: Sequence[Recorded], wanted: ChangesOptions, now: float) -> list[Recorded]:
    """`changes` in the order of their runs, the newest last; `now`: seconds since 1970. A run with a change that is not over is listed
    unless another run is asked for; so is one whose age is not known."""
    changes = [change for change in changes if wanted.nodes is None or change.host in wanted.nodes]
    if wanted.run is not None:
        return [change for change in changes if change.run == wanted.run]
    runs = list(dict.fromkeys(change.run for change in changes))
    young = {change.run for change in changes if _is_young(change, wanted, now)}
    kept = {run for run in runs if run in young}
    newest = {run for run in runs[-wanted.last :] if run in kept}
    open_runs = {change.run for change in changes if change.in_flight}
    return [change for change in changes if change.run in newest | open_runs]


def _is_young(change: Recorded, wanted: ChangesOptions, now: float) -> bool:
    seconds = age(str(change.plan.get("at", "")), now)
    return wanted.seconds is None or seconds is None or seconds <= wanted.seconds


def unsure(history: Mapping[str, Sequence[Recorded]], runs: Sequence[str], now: float) -> str:
    """Why a roll-back without a name does not undo these runs (the newest first), and what to do; "" if it may: a second roll-back may be a
    repeated first one. An undo that halted is continued by the same command, and nobody means a node that is back in service."""
    changes = [change for recorded in history.values() for change in recorded if change.state == "confirmed" and not change.disbelieved]
    own = [change for change in changes if change.run == runs[0]]
    if any(change.of_objects and change.component == UNCORDON for change in own):
        return f"the newest run, {runs[0]}, uncordoned nodes, and undoing it would cordon them again; name the run to undo"
    last = Sequenced(history).sort({change.run for change in changes})[-1]
    undone = {str(change.plan.get("undoes")) for change in changes if change.run == last and change.plan.get("undoes")}
    if undone and not any(change.id in undone for change in changes if change.run in runs):
        return f"the newest run, {last}, has undone another run already; name the run to undo"
    ages = [found for change in own if (found := age(str(change.plan.get("at", "")), now)) is not None]
    if ages and max(ages) > _DAY:
        return f"the newest run, {runs[0]}, is more than a day old; name the run to undo"
    return ""


def age(at: str, now: float) -> float | None:
    """Seconds since a time of a record; None if it is no time, or more than a day ahead: no clock is that wrong, so somebody wrote it."""
    found = moment(at)
    return None if found is None or found.timestamp() > now + 86400 else now - found.timestamp()
