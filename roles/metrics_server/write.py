"""Carries out each write: applies an object, reads it back, waits for the roll-out and for fresh metrics, or reverts it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from roles.engine.api import ApiFailure
from roles.engine.bridge import show
from roles.engine.context import StepContext
from roles.engine.kube import Object, uid
from roles.engine.object_changes import (
    LOOK_AGAIN,
    ChangedByOthers,
    Gone,
    NotDone,
    RevertFailed,
    RollOuts,
    Session,
    Undone,
    Unknown,
    wait_gone,
)
from roles.engine.rollout import ClusterStep
from roles.engine.timeouts import Deadline
from roles.metrics_server import health
from roles.metrics_server.manifests import API_SERVICE, NAME, NAMESPACE, differing
from roles.metrics_server.plan import FIELD, ServerAction, as_manifest, identified, is_ours


class ServerWriter:
    """Carries out the actions of one plan. `force`: take over fields of other managers; `seconds`: for the roll-out, and as long again for
    the metrics; never scaled. `serves`: the metrics API exists after this run."""

    def __init__(self, session: Session, *, force: bool, seconds: float, serves: bool) -> None:
        self.session = session
        self.rolling = RollOuts(session)
        self._force, self._seconds, self._serves = force, seconds, serves

    def steps(self, actions: Sequence[ServerAction]) -> tuple[ClusterStep, ...]:
        last = actions[-1] if actions else None
        return tuple(
            ClusterStep(
                one.name, one.summary, one.shown, partial(self._carry_out, one, one is last), "", action=one.what,
                about={
                    "path": one.path,
                    "uid": uid(one.before) if one.before is not None else "",
                    "kind": one.kind,
                    "object_name": one.name.partition(" ")[2],
                    "version": str((one.manifest or one.before or {}).get("apiVersion", "")),
                },
            )
            for one in actions
        )  # fmt: skip

    def _carry_out(self, action: ServerAction, last: bool, context: StepContext) -> str:
        self._unchanged(action)
        after = identified(action.manifest) if action.manifest is not None else None
        context.begin([{"path": list(FIELD), "before": action.was, "after": after}])
        if action.manifest is None:
            removed = self._remove(action)
            return f"{removed}; {self._works()}" if last and self._serves else removed
        try:
            written = self._apply(action)
            proof = self._proven(action, uid(written))
            if last and self._serves:
                proof = f"{proof}; {self._works()}"
            return proof
        except Unknown as error:
            raise Unknown(f"STATE UNKNOWN: {error}; the same command, run again, continues") from error
        except (NotDone, ApiFailure) as error:
            raise self._revert(action, error) from error

    def _unchanged(self, action: ServerAction) -> None:
        found = self.session.fetch(action.path)
        if action.before is None and found is not None:
            raise NotDone("someone else has created it since daytwo read the objects; run this again")
        if action.before is not None and (found is None or uid(found) != uid(action.before)):
            raise Gone("it was deleted after daytwo read it; run this again")

    def _apply(self, action: ServerAction) -> Object:
        assert action.manifest is not None
        manifest, wanted = action.manifest, identified(action.manifest)

        def done(found: Object) -> bool:
            return not differing(wanted, found) and is_ours(found)

        return self.session.written(action.path, lambda api: api.apply(action.path, manifest, force=self._force), done)

    def _proven(self, action: ServerAction, written: str) -> str:
        """Raises NotDone, ApiFailure."""
        assert action.manifest is not None
        found = self.session.fetch(action.path)
        if found is None or uid(found) != written:
            raise Gone("it was applied, but does not exist when read back: someone else deletes it")
        if wrong := differing(identified(action.manifest), found):
            raise NotDone(f"it is not as written when read back: {', '.join(wrong)}; a webhook or another manager changes it")
        if action.kind == "Deployment":
            wanted = identified(action.manifest)

            def changed(now: Object) -> str:
                return (
                    "someone else has changed it during its roll-out"
                    if differing(wanted["spec"]["template"], now["spec"]["template"])
                    else ""
                )

            left = self.rolling.wait("Deployment", f"{NAMESPACE}/{NAME}", action.path, written, self._seconds, changed, lambda pod: True)
            return f"read back; rolled out{'; ' + left if left else ''}"
        return "read back"

    def _works(self) -> str:
        """Wait until the metrics API works. A server needs two scrapes before it knows a node's CPU. Raises NotDone, ApiFailure."""
        deadline, shown = Deadline(self._seconds, as_given=True), ""
        while True:
            found = health.look(self.session)
            if not found.problems:
                return found.proof
            text = "; ".join(found.problems)
            if text != shown:
                shown = text
                show(f"  waiting: {text} ({deadline.passed:.0f} of {deadline.seconds:g} s)")
            if deadline.over:
                raise NotDone(f"it does not work after {deadline.seconds:g} s: {text}; see kubectl logs -n {NAMESPACE} deployment/{NAME}")
            deadline.pause(LOOK_AGAIN)

    def _remove(self, action: ServerAction) -> str:
        assert action.before is not None
        self.session.deleted(action.path, action.before)
        wait_gone(self.session, action.path, uid(action.before))
        return "read back: it is gone"

    def _revert(self, action: ServerAction, error: Exception) -> Exception:
        """Revert this one object: a dead APIService would hold up the deletion of every namespace."""
        why = str(error) or repr(error)
        show(f"  {why}")
        assert action.manifest is not None
        try:
            found = self.session.fetch(action.path)
            if found is None:
                return Gone(f"{why}; it is gone, so there is nothing to revert")
            if not is_ours(found):
                return ChangedByOthers(f"{why}; somebody else owns it now: left as it is")
            if action.before is None:
                self.session.deleted(action.path, found)
                wait_gone(self.session, action.path, uid(found))
                return Undone(f"{why}; what this run created is removed: read back, it is gone")
            was = action.was or {}
            manifest = as_manifest(action.manifest["apiVersion"], action.kind, found["metadata"]["name"], was)
            self.session.written(action.path, lambda api: api.apply(action.path, manifest, force=True), lambda one: not differing(was, one))
            back = self.session.fetch(action.path)
            if back is None or differing(was, back):
                raise NotDone("it differs from before when read back")
        except Exception as other:
            return RevertFailed(
                f"{why}; and the revert is not proven: {str(other) or repr(other)}; STATE UNKNOWN; REPAIR BY HAND: look at {action.name}"
                + (f"; kubectl delete apiservice {API_SERVICE} if it is dead" if action.kind == "APIService" else "")
            )
        return Undone(f"{why}; what this run wrote is reverted, as read back")
