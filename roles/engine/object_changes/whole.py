"""Changes of whole objects, shared by the writers of several capabilities: the object is as in the plan; it is removed, and gone; what a
run has written is reverted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roles.engine.bridge import show
from roles.engine.kube import Object, is_ending, uid
from roles.engine.object_changes.outcome import ChangedByOthers, Gone, NotDone, RevertFailed, Undone
from roles.engine.object_changes.planned import ObjectPath, changes_text
from roles.engine.object_changes.rolling import LOOK_AGAIN
from roles.engine.object_changes.session import Session
from roles.engine.timeouts import Deadline
from roles.engine.transaction import ChangedField

# Seconds: for a deletion with finalizers.
REMOVAL = 30.0


@dataclass(frozen=True)
class WholeObject:
    """One object that a run writes. `before`: as in the plan, None if it did not exist; `values`: the fields that count, by path, of an
    object or of none; `named`: its type and name as kubectl takes them."""

    session: Session
    path: str
    before: Object | None
    values: Callable[[Object | None], Mapping[ObjectPath, Any]]
    named: str

    def unchanged(self) -> None:
        """Raises NotDone if the object is not the one that was planned for; ApiFailure."""
        found = self.session.fetch(self.path)
        if self.before is None:
            if found is not None:
                raise NotDone("someone else has created it since the plan was made; run this again")
        elif found is None or uid(found) != uid(self.before):
            raise Gone("it was deleted after daytwo read it; run this again")
        elif self.values(found) != self.values(self.before):
            raise NotDone("it was changed after daytwo read it; run this again")

    def remove(self) -> str:
        """Remove exactly the object of the plan. Without its resourceVersion: controllers write the status of an object all the time.
        Raises NotDone, Unknown, ApiFailure."""
        assert self.before is not None
        self.unchanged()
        self.session.deleted(self.path, self.before)
        wait_gone(self.session, self.path, uid(self.before))
        return "read back: it is gone"

    def reverted(
        self, written: Object, changed: Sequence[ChangedField], restoring: Callable[[Object], Mapping[str, Any]], error: Exception
    ) -> Exception:
        """Revert what this run wrote, but nothing that someone else has set since; the exception says how that ended. `restoring` makes the
        manifest that restores the `changed` fields of an object, and raises NotDone if none can."""
        why = str(error) or repr(error)
        show(f"  {why}")
        try:
            found = self.session.fetch(self.path)
            if found is None or uid(found) != uid(written):
                return Gone(f"{why}; it was deleted meanwhile, so there is nothing to revert")
            now = self.values(found)
            if other := [one for one in changed if now.get(one.path) not in (one.before, one.after)]:
                return ChangedByOthers(f"{why}; changed by someone else meanwhile ({changes_text(other)}): left as it is now")
            if self.before is None:
                self.session.deleted(self.path, found)
                wait_gone(self.session, self.path, uid(found))
                return Undone(f"{why}; what this run created is removed: read back, it is gone")
            manifest, old = dict(restoring(found)), self.values(self.before)
            self.session.written(self.path, lambda api: api.apply(self.path, manifest, force=True), lambda one: self.values(one) == old)
            back = self.session.fetch(self.path)
            if back is None or self.values(back) != old:
                raise NotDone("it differs from the old object when read back")
        except Exception as other_error:
            return RevertFailed(
                f"{why}; and the revert is not proven: {str(other_error) or repr(other_error)}; STATE UNKNOWN, check: kubectl get"
                f" {self.named} -o yaml; REPAIR BY HAND: if it has what this run set, undo it: {changes_text(changed)}"
            )
        return Undone(f"{why}; what this run wrote is reverted: read back, {changes_text(changed)}")


def wait_gone(session: Session, path: str, of: str) -> None:
    """Wait until the object with the UID `of` is gone. Raises NotDone if it still exists after the time limit; ApiFailure."""
    deadline = Deadline(REMOVAL)
    while (found := session.fetch(path)) is not None and uid(found) == of:
        if deadline.over:
            finalizers = ", ".join(found["metadata"].get("finalizers") or ()) or "none"
            ending = "deleted, but still exists" if is_ending(found) else "not deleted"
            raise NotDone(f"it was {ending} after {deadline.seconds:g} s; its finalizers: {finalizers}")
        deadline.pause(LOOK_AGAIN)
