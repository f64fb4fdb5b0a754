"""Changes of API objects, from the plan to the proof: tried by the API server's dry run, written under a precondition, read back, put back.

For a capability that changes fields of objects that are there (FieldWriter): it says what the fields are and what to send.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, Literal, TypeVar

from roles.engine import bridge
from roles.engine.api import FIELD_MANAGER, Api, ApiError, Conflict
from roles.engine.bridge import show, show_lines
from roles.engine.harmless import one_line
from roles.engine.object_changes import api_object, object_report
from roles.engine.object_changes.api_object import Object
from roles.engine.object_changes.outcome import Foreign, Gone, NotDone, RevertFailed, Undone, Unknown
from roles.engine.object_changes.planned import FieldChange, ObjectPath, ObjectPlan, W, told
from roles.engine.object_changes.rolling import LOOK_AGAIN
from roles.engine.object_changes.run import ObjectRun
from roles.engine.object_changes.session import Session
from roles.engine.proof import NoApi
from roles.engine.rollout import ClusterStep, Fields
from roles.engine.timeouts import Deadline
from roles.engine.transaction import ChangedField

# Seconds: a write beside a controller that writes the same object all the time.
CONFLICTS = 30.0

C = TypeVar("C", bound=FieldChange)


def dry_run(writes: Sequence[W], session: Session, ask: Callable[[W, Api], str]) -> list[W]:
    """The same writes with what the API server makes of them, as `ask` shows it. Raises DeployError with all that it refuses."""
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
    """The writes with their diffs and notes, and what was dropped; where there is nothing to do, the table."""
    show(f"\nPlan of run {run.info.id}: {len(plan.actions)} changes of the cluster's objects")
    for number, action in enumerate(plan.actions, 1):
        show(f"\n[{number}/{len(plan.actions)}] {action.name}: {action.summary}")
        lines = [*action.shown.splitlines(), *(f"- {one_line(note)}" for note in action.notes)]
        if lines:
            show_lines("\n".join(f"    {line}" for line in lines))
    if plan.kept:
        show_lines("\nNo longer in the data:\n" + "\n".join(one_line(f"    {name}: {why}") for name, why in plan.kept))
    if not plan.actions:
        object_report.show_objects(run, plan.rest)


# ---- fields of objects that are there


@dataclass(frozen=True)
class Request:
    """One write of some fields: `apply` is server-side, `patch` a strategic merge patch; `body` without preconditions. `paths` are the
    fields that it sets or takes out."""

    verb: Literal["apply", "patch"]
    body: Mapping[str, Any]
    paths: Collection[ObjectPath]

    def send(self, api: Api, path: str, there: Object, *, force: bool, dry_run: bool = False) -> dict[str, Any]:
        """To that very version of the object: nothing that came after the look is written over unseen. Raises ApiError."""
        own = {"uid": api_object.uid(there)}
        if not dry_run:
            # To try it, any version is good enough: some objects are written all the time.
            own["resourceVersion"] = api_object.version(there)
        body = {**self.body, "metadata": {**self.body.get("metadata", {}), **own}}
        if self.verb == "apply":
            return api.apply(path, body, force=force, dry_run=dry_run)
        return api.patch(path, body, dry_run=dry_run)


class FieldWriter(ABC, Generic[C]):
    """Writes the fields of each change, proves them, or puts them back. `force`: fields of other managers are taken over."""

    def __init__(self, session: Session, *, force: bool) -> None:
        self.session = session
        self.warnings: list[tuple[str, str]] = []
        self._force = force

    # ---- what the capability says

    @abstractmethod
    def values(self, item: Object) -> Mapping[ObjectPath, Any]:
        """All fields of an object that the capability knows, by path; what is not set is left out."""

    @abstractmethod
    def requests(self, item: Object, wanted: Mapping[ObjectPath, Any]) -> list[Request]:
        """What gives an object these fields, None: not set. The fields of others stay."""

    @abstractmethod
    def managers(self, item: Object, path: ObjectPath) -> list[str]:
        """Who owns a field (roles/priority_classes/live.py, managers)."""

    @abstractmethod
    def look(self, change: C) -> str:
        """The command that shows an object as it is."""

    def ready(self, change: C) -> None:
        """Right before the write. Raises NotDone where it must not be begun."""

    def followed(self, change: C) -> str:
        """What the write brought about besides, for the proof; "" for nothing."""
        return ""

    # ---- carrying out

    def steps(self, changes: Sequence[C]) -> tuple[ClusterStep, ...]:
        return tuple(
            ClusterStep(
                change.name, change.summary, change.shown, partial(self._carry_out, change), "", action="update",
                about={"path": change.path, "uid": api_object.uid(change.before)},
            )
            for change in changes
        )  # fmt: skip

    def tried(self, change: C, api: Api) -> str:
        """The diff of a change by the API server's dry run, for `dry_run`. Raises ApiError."""
        made = [
            request.send(api, change.path, change.before, force=self._force, dry_run=True)
            for request in self.requests(change.before, change.after)
        ]
        return "\n".join(api_object.diff(change.before, item, change.name.replace(" ", "/")) for item in made)

    def _carry_out(self, change: C, begin: Callable[[Fields], None]) -> str:
        self.ready(change)
        begin([{"path": list(one.path), "before": one.before, "after": one.after} for one in change.fields])
        try:
            proof = self._written(change, change.fields)
        except Unknown as error:
            raise Unknown(f"STATE UNKNOWN: {error}; look at it: {self.look(change)}; the same command, run again, goes on") from error
        except Gone:
            raise
        except Exception as error:
            raise self._put_back(change, error) from error
        try:
            more = self.followed(change)
        except (ApiError, NoApi) as error:
            more = f"what followed is NOT PROVEN: {error}"
        return "; ".join(filter(None, (proof, more)))

    def _put_back(self, change: C, error: Exception) -> Exception:
        """What this run wrote, and nothing that somebody else has set since, is as before."""
        why = str(error) or repr(error)
        show(f"  {why}")
        try:
            found = self.session.fetch(change.path)
            now = self.values(found) if found is not None else {}
            back = [replace(one, before=one.after, after=one.before) for one in change.fields if now.get(one.path) == one.after]
            proof = self._written(change, back) if back else "read back: nothing of it is there"
        except (Foreign, Gone) as other:
            return type(other)(f"{why}; {other}")
        except Exception as other:
            return RevertFailed(
                f"{why}; and it was not seen to be as before: {str(other) or repr(other)}; STATE UNKNOWN, look: {self.look(change)}; "
                f"BY HAND, where it has what this run set, set back: {told(change.fields)}"
            )
        ended = Foreign if isinstance(error, Foreign) else Undone
        return ended(f"{why}; what this run wrote is as before: {proof}")

    def _written(self, change: C, fields: Sequence[ChangedField]) -> str:
        """Each field from its `before` to its `after`; how that was seen. Raises NotDone, ApiError."""
        wanted = {one.path: one.after for one in fields}
        deadline = Deadline(CONFLICTS)
        while True:
            there = self._there(change, fields)
            try:
                for _ in self.requests(there, wanted):
                    # Each from the object as the one before has left it.
                    if left := self.requests(there, wanted):
                        there = self._send(change, left[0], there, wanted)
                break
            except Conflict as error:
                # Its controllers write it meanwhile; a field that has an owner stays owned.
                if error.owners or deadline.over:
                    raise
            deadline.pause(LOOK_AGAIN)
        found = self._there(change, fields)
        if wrong := self._differ(found, wanted):
            names = ", ".join(".".join(path) for path in wrong)
            raise NotDone(f"{names} is not as written when read back: a webhook or another manager changes it")
        # By the answer to the write: a moment later a controller may have written the same list, and own it.
        own = all(FIELD_MANAGER in _names(self.managers(there, path)) for path, value in wanted.items() if value is not None)
        return f"read back: {told(fields)}; field manager {FIELD_MANAGER}" + ("" if own else " NOT PROVEN")

    def _there(self, change: C, fields: Sequence[ChangedField]) -> Object:
        """The object as it is now. Raises Gone, and Foreign where a field is neither as before nor as it is to be."""
        found = self.session.fetch(change.path)
        if found is None or api_object.uid(found) != api_object.uid(change.before):
            raise Gone("it was deleted since it was looked at; run this again")
        now = self.values(found)
        if other := [one for one in fields if now.get(one.path) not in (one.before, one.after)]:
            seen = told([replace(one, after=now.get(one.path)) for one in other])
            raise Foreign(f"somebody else changed it meanwhile ({seen}): it is left as they have it")
        return found

    def _send(self, change: C, request: Request, there: Object, wanted: Mapping[ObjectPath, Any]) -> Object:
        """Raises as Session.written."""
        part = {path: wanted[path] for path in request.paths}

        def done(found: Object) -> bool:
            return api_object.uid(found) == api_object.uid(change.before) and not self._differ(found, part)

        return self.session.written(change.path, lambda api: request.send(api, change.path, there, force=self._force), done)

    def _differ(self, found: Object, wanted: Mapping[ObjectPath, Any]) -> list[ObjectPath]:
        now = self.values(found)
        return [path for path, value in wanted.items() if now.get(path) != value]


def _names(managers: Sequence[str]) -> list[str]:
    """Without the operation."""
    return [one.partition(" ")[0] for one in managers]
