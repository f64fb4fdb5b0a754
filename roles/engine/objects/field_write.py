"""Changes of fields of existing objects: written under a precondition, read back, proven, or reverted. A capability defines the fields and
the requests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, Literal, TypeVar

from roles.engine import kube
from roles.engine.api import Api, ApiFailure
from roles.engine.context import Say, StepContext
from roles.engine.kube import Object
from roles.engine.kube.field_managers import FIELD_MANAGER, managers
from roles.engine.kube.fields import with_meta
from roles.engine.objects.diffs import object_diff
from roles.engine.objects.kind import nested
from roles.engine.objects.outcome import ChangedByOthers, Gone, NotDone, RevertFailed, Undone, Unknown
from roles.engine.objects.planned import FieldChange, ObjectPath, changes_text
from roles.engine.objects.session import Session
from roles.engine.rollout import ClusterStep
from roles.engine.transaction import ChangedField

C = TypeVar("C", bound=FieldChange)


@dataclass(frozen=True)
class Request:
    """One write of some fields: `apply` is server-side, `patch` a strategic merge patch; `body` has no preconditions. `paths` are the
    fields that it sets or removes."""

    verb: Literal["apply", "patch"]
    body: Mapping[str, Any]
    paths: Collection[ObjectPath]

    def send(self, api: Api, path: str, there: Object, *, force: bool, dry_run: bool = False) -> dict[str, Any]:
        """Send it for exactly the version `there`, so that it does not overwrite a later change unseen. Raises ApiError."""
        own = {"uid": kube.uid(there)}
        if not dry_run:
            # A dry run accepts any version: controllers write some objects all the time.
            own["resourceVersion"] = kube.version(there)
        body = with_meta(self.body, **own)
        if self.verb == "apply":
            return api.apply(path, body, force=force, dry_run=dry_run)
        return api.patch(path, body, dry_run=dry_run)


class FieldWriter(ABC, Generic[C]):
    """Writes the fields of each change and proves them, or reverts them. `force`: take over fields of other managers."""

    def __init__(self, session: Session, *, force: bool) -> None:
        self.session = session
        self.warnings: list[tuple[str, str]] = []
        self._force = force

    # ---- the capability defines

    @abstractmethod
    def values(self, item: Object) -> Mapping[ObjectPath, Any]:
        """All fields of an object that the capability knows, by path; without fields that are not set."""

    def requests(self, item: Object, wanted: Mapping[ObjectPath, Any]) -> list[Request]:
        """The requests that set these fields of an object (None: remove). The fields of other managers stay. Here: one patch of what
        differs."""
        left = {path: wanted[path] for path in self._differ(item, wanted)}
        return [Request("patch", nested(left), tuple(left))] if left else []

    def managers(self, item: Object, path: ObjectPath) -> list[str]:
        """The owners of a field."""
        return managers(item, *(f"f:{part}" for part in path))

    @abstractmethod
    def look(self, change: C) -> str:
        """The command that shows the object."""

    def ready(self, change: C) -> None:
        """Runs right before the write. Raises NotDone if the write must not start."""

    def followed(self, change: C) -> str:
        """Further effects of the write, for the proof; "" for none."""
        return ""

    # ---- the write

    def steps(self, changes: Sequence[C], action: str = "update") -> tuple[ClusterStep, ...]:
        return tuple(
            ClusterStep(
                change.name, change.summary, change.shown, partial(self.write, change), "", action=action,
                about={"path": change.path, "uid": kube.uid(change.before)},
            )
            for change in changes
        )  # fmt: skip

    def tried(self, change: C, api: Api) -> str:
        """The diff of a change by the API server's dry run, for `dry_run`. Raises ApiError."""
        made = [
            request.send(api, change.path, change.before, force=self._force, dry_run=True)
            for request in self.requests(change.before, change.after)
        ]
        return "\n".join(object_diff(change.before, item, change.name.replace(" ", "/")) for item in made)

    def write(self, change: C, context: StepContext) -> str:
        """Carry out one change; returns the proof. Raises NotDone, ApiFailure."""
        self.ready(change)
        context.begin([{"path": list(one.path), "before": one.before, "after": one.after} for one in change.fields])
        sent: list[Request] = []
        try:
            proof = self._written(change, change.fields, sent)
        except Unknown as error:
            raise Unknown(f"STATE UNKNOWN: {error}; check it: {self.look(change)}; the same command, run again, continues") from error
        except Gone:
            raise
        except Exception as error:
            # What someone else has set to the same value is not this run's to revert.
            if isinstance(error, ChangedByOthers) and not sent:
                raise
            raise self._revert(change, error, context.say) from error
        try:
            more = self.followed(change)
        except ApiFailure as error:
            more = f"the effects of the write are NOT PROVEN: {error}"
        return "; ".join(filter(None, (proof, more)))

    def _revert(self, change: C, error: Exception, say: Say) -> Exception:
        """Revert what this run wrote, but nothing that someone else has set since."""
        why = str(error) or repr(error)
        say(f"  {why}")
        try:
            found = self.session.fetch(change.path)
            now = self.values(found) if found is not None else {}
            back = [replace(one, before=one.after, after=one.before) for one in change.fields if now.get(one.path) == one.after]
            proof = self._written(change, back) if back else "read back: it has nothing that this run wrote"
        except (ChangedByOthers, Gone) as other:
            return type(other)(f"{why}; {other}")
        except Exception as other:
            return RevertFailed(
                f"{why}; and the revert is not proven: {str(other) or repr(other)}; STATE UNKNOWN, check: {self.look(change)}; "
                f"REPAIR BY HAND: if it has what this run set, undo it: {changes_text(change.fields)}"
            )
        ended = ChangedByOthers if isinstance(error, ChangedByOthers) else Undone
        return ended(f"{why}; what this run wrote is reverted: {proof}")

    def _written(self, change: C, fields: Sequence[ChangedField], sent: list[Request] | None = None) -> str:
        """Change each field from its `before` to its `after`; return the proof. `sent` gets the requests. Raises NotDone, ApiError."""
        wanted = {one.path: one.after for one in fields}

        def write() -> Object:
            there = self._there(change, fields)
            for _ in self.requests(there, wanted):
                # Each request is built from the object that the previous one returned.
                if left := self.requests(there, wanted):
                    if sent is not None:
                        sent.append(left[0])
                    there = self._send(change, left[0], there, wanted)
            return there

        there = self.session.unconflicted(write)
        found = self._there(change, fields)
        if wrong := self._differ(found, wanted):
            names = ", ".join(".".join(path) for path in wrong)
            raise NotDone(f"{names} is not as written when read back: a webhook or another manager changes it")
        # From the answer to the write: a moment later a controller may have written the same list, and own it.
        own = all(FIELD_MANAGER in _names(self.managers(there, path)) for path, value in wanted.items() if value is not None)
        return f"read back: {changes_text(fields)}; field manager {FIELD_MANAGER}" + ("" if own else " NOT PROVEN")

    def _there(self, change: C, fields: Sequence[ChangedField]) -> Object:
        """The object now. Raises Gone, and Foreign if a field has neither its `before` nor its `after`."""
        found = self.session.fetch(change.path)
        if found is None or kube.uid(found) != kube.uid(change.before):
            raise Gone("it was deleted after daytwo read it; run this again")
        now = self.values(found)
        if other := [one for one in fields if now.get(one.path) not in (one.before, one.after)]:
            seen = changes_text([replace(one, after=now.get(one.path)) for one in other])
            raise ChangedByOthers(f"changed by someone else meanwhile ({seen}): left as it is now")
        return found

    def _send(self, change: C, request: Request, there: Object, wanted: Mapping[ObjectPath, Any]) -> Object:
        """Raises as Session.written."""
        part = {path: wanted[path] for path in request.paths}

        def done(found: Object) -> bool:
            return kube.uid(found) == kube.uid(change.before) and not self._differ(found, part)

        return self.session.written(change.path, lambda api: request.send(api, change.path, there, force=self._force), done)

    def _differ(self, found: Object, wanted: Mapping[ObjectPath, Any]) -> list[ObjectPath]:
        now = self.values(found)
        return [path for path, value in wanted.items() if now.get(path) != value]


def _names(managers: Sequence[str]) -> list[str]:
    """The managers without their operation."""
    return [one.partition(" ")[0] for one in managers]
