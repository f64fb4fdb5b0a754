"""Writes objects: each one is as in the plan, is applied, patched or removed, read back, proven, or reverted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from roles.engine.api import Api, ApiFailure, Conflict, NotFound
from roles.engine.context import ClusterStep, Say, StepContext
from roles.engine.kube import Object, field_managers, is_ending, uid, version
from roles.engine.kube.field_managers import FIELD_MANAGER
from roles.engine.kube.fields import finalizers_of, with_meta
from roles.engine.objects.diffs import object_diff
from roles.engine.objects.kind import Kind, ObjectChange, ObjectPath, Request, foreign, left_as_it_is, nested
from roles.engine.objects.outcome import DELETED_SINCE, NOTHING_TO_REVERT, ChangedByOthers, Gone, NotDone, RevertFailed, Undone, Unknown
from roles.engine.objects.session import REFUSED, Session
from roles.engine.timeouts import LOOK_AGAIN, Deadline
from roles.engine.transaction import ChangedField

# Seconds: for a deletion with finalizers.
REMOVAL = 30.0


class ObjectWriter:
    """Carries out the changes of one plan. `force`: take over fields of other managers."""

    def __init__(self, session: Session, *, force: bool) -> None:
        self.session = session
        self.warnings: list[tuple[str, str]] = []
        self._force = force

    # ---- a capability defines

    def ready(self, change: ObjectChange) -> None:
        """Before a change is recorded. Raises NotDone if it must not begin."""

    def proven(self, change: ObjectChange, of: str) -> str:
        """The proof that the applied object, whose UID is `of`, works. Raises NotDone, ApiFailure."""
        return self.read_back(change, of, self.session.fetch(change.path))

    def in_effect(self, change: ObjectChange, fields: Sequence[ChangedField], found: Object, proof: str, *, back: bool) -> str:
        """The proof that these fields of a patch, read back as `proof`, are in effect; `found`: the object as it was written; `back`: they
        are reverted. Raises NotDone, ApiFailure: then a patch is reverted; RevertFailed of a revert."""
        return proof

    def by_hand(self, change: ObjectChange) -> str:
        """How to revert a change, if daytwo could not."""
        return f"if it has what this run set, undo it: {change.text}"

    def followed(self, change: ObjectChange) -> str:
        """What else a patch has done, for the proof; "" for nothing. Raises ApiFailure."""
        return ""

    def kept(self, change: ObjectChange) -> str:
        """Right before a removal: why the object must stay, or "". Raises ApiFailure."""
        return ""

    def removed(self, change: ObjectChange) -> str:
        """What else a removal proves. Raises NotDone, ApiFailure."""
        return change.kind.stays

    def steps(self, changes: Sequence[ObjectChange], action: str = "") -> tuple[ClusterStep, ...]:
        """`action`: if it has a word of its own."""
        return tuple(
            ClusterStep(one.name, one.summary, one.shown, partial(self.carry_out, one), "", action=action or one.what, about=one.about)
            for one in changes
        )

    # ---- the dry run

    def result(self, change: ObjectChange, api: Api) -> Object | None:
        """The object after the API server's dry run of a change. Raises ApiError."""
        if change.manifest is None:
            assert change.before is not None
            api.delete(change.path, uid(change.before), version=_version(change, change.before), dry_run=True)
            return None
        if drops := _drops(change):
            # The apply alone would be refused while the object has fields of others: the dry run is one patch.
            patch = _removing(change, {**change.kind.values(change.manifest), **dict.fromkeys(drops)})
            return api.patch(change.path, patch, dry_run=True)
        manifest = change.trial or change.manifest
        manifest = _pinned(manifest, change.before) if change.before is not None and change.kind.versioned else manifest
        try:
            return api.apply(change.path, manifest, force=self._force, dry_run=True)
        except Conflict as error:
            if not _of_daytwo(error):
                raise
            return api.apply(change.path, manifest, force=True, dry_run=True)

    def tried(self, change: ObjectChange, api: Api) -> str:
        """The diff, for `dry_run`. Raises ApiError."""
        if change.kind.verb == "patch" and change.before is not None:
            return "\n".join(object_diff(change.before, item, change.title) for item in self.patched(change, api))
        return object_diff(change.before, self.result(change, api), change.title)

    def patched(self, change: ObjectChange, api: Api) -> list[Object]:
        """The object after the API server's dry run of each request of a patch. Raises ApiError."""
        assert change.before is not None
        requests, path = change.kind.requests(change.before, change.sets), change.kind.target_of(change.path)
        return [one.send(api, path, change.before, force=self._force, dry_run=True) for one in requests]

    # ---- the write

    def carry_out(self, change: ObjectChange, context: StepContext) -> str:
        """Carry out one change; returns the proof. Raises NotDone, ApiFailure."""
        self.ready(change)
        context.begin([{"path": list(one.path), "before": one.before, "after": one.after} for one in change.fields])
        try:
            return self.write(change, context)
        except (NotFound, Conflict) as error:
            # Between the read and the write.
            if change.before is not None and self.session.is_gone(change.path, uid(change.before)):
                raise Gone(DELETED_SINCE) from error
            raise
        except Unknown as error:
            look = f"kubectl get {change.look} -o yaml --show-managed-fields"
            raise Unknown(f"STATE UNKNOWN: {error}. Check it: {look}; the same command, run again, continues") from error

    def write(self, change: ObjectChange, context: StepContext) -> str:
        """The write of a change that is recorded, and its proof."""
        if change.kind.verb == "patch":
            return self._patch(change, context)
        self._unchanged(change)
        return self._remove(change) if change.manifest is None else self._apply(change, change.manifest, context)

    def _unchanged(self, change: ObjectChange) -> Object | None:
        """The object now. Raises NotDone if it is not the one that was planned for; ApiFailure."""
        found = self.session.fetch(change.path)
        if change.before is None:
            if found is not None:
                raise NotDone("someone else has created it since the plan was made; run this again")
        elif found is None or uid(found) != uid(change.before):
            raise Gone(DELETED_SINCE)
        elif not change.is_as_before(found):
            raise NotDone("it was changed after daytwo read it; run this again")
        return found

    def _remove(self, change: ObjectChange) -> str:
        """Exactly the object of the plan, but without its resourceVersion: controllers write the status of an object all the time."""
        assert change.before is not None
        if why := self.kept(change):
            raise NotDone(why)
        self._delete(change, change.before)
        return "; ".join(filter(None, ("read back: it is gone", self.removed(change))))

    def _delete(self, change: ObjectChange, found: Object) -> None:
        self.session.deleted(change.path, found, _version(change, found))
        self.wait_gone(change.path, uid(found))

    def wait_gone(self, path: str, of: str) -> None:
        """Wait until the object with the UID `of` is gone. Raises NotDone if it still exists after the time limit; ApiFailure."""
        deadline = Deadline(REMOVAL)
        while (found := self.session.fetch(path)) is not None and uid(found) == of:
            if deadline.over:
                finalizers = ", ".join(finalizers_of(found)) or "none"
                ending = "deleted, but still exists" if is_ending(found) else "not deleted"
                raise NotDone(f"it was {ending} after {deadline.seconds:g} s; its finalizers: {finalizers}")
            deadline.pause(LOOK_AGAIN)

    def _apply(self, change: ObjectChange, manifest: Mapping[str, Any], context: StepContext) -> str:
        # Until the apply, a budget has no limit of its own, and allows no eviction.
        dropped = self._drop(change, _drops(change))
        written: Object | None = change.before
        try:
            read = partial(self._unchanged, replace(change, before=dropped))
            written = self._sent(change, manifest, read, change.is_written, force=self._force)
            return self.proven(change, uid(written))
        except Unknown:
            raise
        except Exception as error:
            if written is None:
                raise
            raise self._reverted(change, uid(written), error, partial(self._back, change, written), context.say) from error

    def _drop(self, change: ObjectChange, paths: tuple[ObjectPath, ...]) -> Object | None:
        """The object without these fields."""
        if not paths:
            return change.before
        patch, values = _removing(change, dict.fromkeys(paths)), change.kind.values
        gone = lambda found: not set(paths) & set(values(found))  # noqa: E731
        return self.session.written(change.path, lambda api: api.patch(change.path, patch), gone)

    def _sent(
        self,
        change: ObjectChange,
        manifest: Mapping[str, Any],
        read: Callable[[], Object | None],
        done: Callable[[Object], bool],
        *,
        force: bool,
    ) -> Object:
        """Apply the object that `read` returns. Raises as Session.written, and as `read`."""
        return self.session.unconflicted(lambda: self._applied(change, manifest, read(), done, force))

    def _applied(
        self, change: ObjectChange, manifest: Mapping[str, Any], there: Object | None, done: Callable[[Object], bool], force: bool
    ) -> Object:
        # With its UID: an apply would recreate an object that somebody deleted after the read.
        own = with_meta(manifest, uid=uid(there)) if there is not None else manifest
        pinned = _pinned(own, there) if there is not None else own
        first = pinned if change.kind.versioned else own
        try:
            return self.session.written(change.path, lambda api: api.apply(change.path, first, force=force), done)
        except Conflict as error:
            if there is None or not _of_daytwo(error):
                raise
        # By force in the version that was read before: no field of it has another owner.
        return self.session.written(change.path, lambda api: api.apply(change.path, pinned, force=True), done)

    def read_back(self, change: ObjectChange, of: str, found: Object | None) -> str:
        """The beginning of a proof. Raises NotDone if the object is not as written."""
        if found is None or uid(found) != of:
            raise Gone("it was applied, but does not exist when read back: someone else deletes it")
        if wrong := change.differing(found):
            raise NotDone(f"it is not as written when read back: {', '.join(wrong)}; a webhook or another manager changes it")
        return f"read back: field manager {FIELD_MANAGER}{'' if change.kind.marked(found) else ' NOT PROVEN'}"

    def _reverted(self, change: ObjectChange, of: str, error: Exception, back: Callable[[], str], say: Say) -> Exception:
        """Revert what this run wrote to the object with the UID `of`, but nothing that someone else has set since; the exception says how
        that ended."""
        why = str(error) or repr(error)
        say(f"  {change.key}: {why}; reverting")
        try:
            done = back()
        except ChangedByOthers as other:
            return ChangedByOthers(f"{why}; {other}")
        except Exception as other:
            if isinstance(other, Gone) or self.session.is_gone(change.path, of):
                return Gone(f"{why}; {NOTHING_TO_REVERT}")
            if isinstance(other, RevertFailed):
                return RevertFailed(f"{why}; {other}")
            return RevertFailed(
                f"{why}; and the revert is not proven: {str(other) or repr(other)}. STATE UNKNOWN, check: kubectl get"
                f" {change.look} -o yaml; REPAIR BY HAND: {self.by_hand(change)}"
            )
        ended = ChangedByOthers if isinstance(error, ChangedByOthers) else Undone
        return ended(f"{why}; {done}")

    def _back(self, change: ObjectChange, written: Object) -> str:
        found = self._still(change, written)
        if change.before is None:
            self._delete(change, found)
            return "what this run created is removed: read back, it is gone"
        self._restore(change, found)
        return f"what this run wrote is reverted: read back, {change.text}"

    def _still(self, change: ObjectChange, written: Object) -> Object:
        """The object that this run wrote. Raises Gone, ChangedByOthers."""
        found = self.session.fetch(change.path)
        if found is None or uid(found) != uid(written):
            raise Gone(NOTHING_TO_REVERT)
        if other := change.meddled(found):
            raise ChangedByOthers(other)
        return found

    def _restore(self, change: ObjectChange, found: Object) -> None:
        """Raises NotDone, ApiFailure."""
        manifest = change.reverting(found)
        self._drop(change, change.kind.held(found, manifest))
        self._sent(change, manifest, partial(self._still, change, found), change.is_as_before, force=True)
        if not change.is_as_before(self.session.fetch(change.path)):
            raise NotDone("it differs from the old object when read back")

    # ---- fields of an existing object

    def _patch(self, change: ObjectChange, context: StepContext) -> str:
        wrote: dict[ObjectPath, Any] = {}
        try:
            proof = self._set(change, change.fields, wrote)
        except (Unknown, Gone):
            raise
        except Exception as error:
            # What someone else has set to the same value is not this run's to revert.
            if isinstance(error, ChangedByOthers) and not wrote:
                raise
            own = [replace(one, after=wrote[one.path]) for one in change.fields if one.path in wrote]
            raise self._reverted(change, uid(change.before or {}), error, partial(self._reset, change, own), context.say) from error
        try:
            more = self.followed(change)
        except ApiFailure as error:
            more = f"the effects of the write are NOT PROVEN: {error}"
        return "; ".join(filter(None, (proof, more)))

    def put_back(self, change: ObjectChange, why: str, say: Say) -> Exception:
        """Revert a patch that is done, because of `why`; the exception says how that ended: Undone, Gone, ChangedByOthers, RevertFailed."""
        return self._reverted(change, uid(change.before or {}), NotDone(why), partial(self._reset, change, change.fields), say)

    def _reset(self, change: ObjectChange, wrote: Sequence[ChangedField]) -> str:
        """Each field that still has what this run wrote gets its old value. Raises Gone, and ChangedByOthers if others have changed one."""
        found, has = self._same(change, NOTHING_TO_REVERT), change.kind.has
        theirs = left_as_it_is(change.kind, found, foreign(change.kind, found, wrote))
        left = [one for one in wrote if has(found, one.path, one.after) and not has(found, one.path, one.before)]
        proof = "it has nothing that this run wrote, read back"
        if left:
            proof = self._set(change, [replace(one, before=one.after, after=one.before) for one in left], {}, back=True)
        if theirs:
            raise ChangedByOthers(theirs)
        return f"reverted: {proof}" if left else proof

    def _set(
        self, change: ObjectChange, fields: Sequence[ChangedField], wrote: dict[ObjectPath, Any], *, back: bool = False
    ) -> str:  # fmt: skip
        """Change each field from its `before` to its `after`; returns the proof. `wrote` gets what this writes, as the API server has it
        then: a webhook may make something else of it. `back`: this is the revert. Raises NotDone, ApiFailure."""
        kind, wanted = change.kind, {one.path: one.after for one in fields}

        def write() -> Object:
            there = self.current(change, fields)
            for _ in kind.requests(there, wanted):
                # Each request is built from the object that the previous one returned.
                if left := kind.requests(there, wanted):
                    there = self._send(change, left[0], there, wanted, wrote)
            return there

        there = self.session.unconflicted(write)
        _check_written(kind, there, wanted)
        _check_written(kind, self.current(change, fields), wanted)
        # From the answer to the write: a moment later a controller may have written the same list, and own it.
        own = all(FIELD_MANAGER in field_managers.writers(there, *kind.v1(path)) for path, value in wanted.items() if value is not None)
        proof = f"read back: {', '.join(map(kind.shown, fields))}; field manager {FIELD_MANAGER}" + ("" if own else " NOT PROVEN")
        return self.in_effect(change, fields, there, proof, back=back)

    def current(self, change: ObjectChange, fields: Sequence[ChangedField]) -> Object:
        """The object now. Raises Gone, and ChangedByOthers if a field has neither its `before` nor its `after`."""
        found = self._same(change, DELETED_SINCE)
        if why := left_as_it_is(change.kind, found, foreign(change.kind, found, fields)):
            raise ChangedByOthers(why)
        return found

    def _same(self, change: ObjectChange, gone: str) -> Object:
        """The object of the change, now. Raises Gone."""
        found = self.session.fetch(change.path)
        if found is None or change.before is None or uid(found) != uid(change.before):
            raise Gone(gone)
        return found

    def _send(
        self, change: ObjectChange, request: Request, there: Object, wanted: Mapping[ObjectPath, Any], wrote: dict[ObjectPath, Any]
    ) -> Object:  # fmt: skip
        """Raises as Session.written."""
        part, path = {path: wanted[path] for path in request.paths}, change.kind.target_of(change.path)

        def done(found: Object) -> bool:
            return uid(found) == uid(there) and not change.kind.differ(found, part)

        wrote |= part
        try:
            answer = self.session.written(change.path, lambda api: request.send(api, path, there, force=self._force), done)
        except REFUSED:
            for one in part:
                del wrote[one]
            raise
        made = change.kind.values(answer)
        wrote |= {one: made.get(one) for one in part}
        return answer


def _check_written(kind: Kind, found: Object, wanted: Mapping[ObjectPath, Any]) -> None:
    """Raises NotDone."""
    if wrong := ", ".join(kind.unlike(found, path, wanted[path]) for path in kind.differ(found, wanted)):
        raise NotDone(f"it is not as written when read back: {wrong}; a webhook or another manager changes it")


def _pinned(manifest: Mapping[str, Any], there: Object) -> dict[str, Any]:
    return with_meta(manifest, resourceVersion=version(there))


def _version(change: ObjectChange, found: Object) -> str:
    """That a deletion is of; "" for any."""
    return version(found) if change.kind.versioned else ""


def _of_daytwo(error: Conflict) -> bool:
    """The field that an apply would change is owned by daytwo, which has patched it."""
    return {one.manager for one in error.owners} == {FIELD_MANAGER}


def _drops(change: ObjectChange) -> tuple[ObjectPath, ...]:
    if change.before is None or change.manifest is None:
        return ()
    return (*change.drops, *(path for path in change.kind.held(change.before, change.manifest) if path not in change.drops))


def _removing(change: ObjectChange, fields: Mapping[ObjectPath, Any]) -> dict[str, Any]:
    """The patch that sets these fields; None removes one."""
    assert change.before is not None
    return nested({**fields, ("metadata", "uid"): uid(change.before)})
