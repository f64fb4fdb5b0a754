"""Changes of a workload's pod template: the template is written, and its roll-out watched until only new pods are left and Ready; if that
fails, the old template is written, and rolled out too."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from roles.engine.api import Api, ApiFailure, Conflict, Forbidden, NotFound
from roles.engine.context import Say, StepContext
from roles.engine.folding import counted
from roles.engine.kube import Object, controller, full_name, is_ending, is_ready, preconditions, uid, version
from roles.engine.kube.field_managers import FIELD_MANAGER
from roles.engine.kube.fields import at, name_of, namespace_of, spec_of, with_meta
from roles.engine.kube.pods import is_alive, node_of, pod_path
from roles.engine.kube.workloads import COLLECTIONS, ObservedObjects, namespaced, node_path
from roles.engine.objects import workload_rollout
from roles.engine.objects.kind import ObjectChange, ObjectPath, nested
from roles.engine.objects.outcome import DELETED_SINCE, NOTHING_TO_REVERT, ChangedByOthers, Gone, NotDone, RevertFailed, Undone, Unknown
from roles.engine.objects.session import Session
from roles.engine.objects.write import ObjectWriter
from roles.engine.timeouts import LOOK_AGAIN, Deadline, patient

# Seconds between two lines about a roll-out that makes no progress.
TELL_AGAIN = 30.0
# Seconds that a pod may need after its grace period: the kubelet kills it, unmounts its volumes, and updates the API.
END_MARGIN = 30.0
#: Where a workload has the template of its pods.
TEMPLATE: ObjectPath = ("spec", "template")


class TemplateChange(ABC):
    """A change of a workload's pod template. `item`: the workload as it was read; `timeout`: of its roll-out in seconds, never scaled;
    `said`: what it changes, in a word."""

    kind: str
    item: Object
    path: str
    timeout: float
    said: str
    what = "the template"

    @abstractmethod
    def send(self, api: Api, of_version: str = "") -> Object:
        """Write the template; with `of_version` only in that version of the workload. Raises ApiError."""

    @abstractmethod
    def changed(self, found: Object) -> str:
        """Why the template is not, or no longer, as it is written; "" if it is."""

    @abstractmethod
    def is_new(self, pod: Object) -> bool:
        """The pod is of the template that it writes."""

    @abstractmethod
    def back(self) -> TemplateChange:
        """The change that reverts this one."""

    def is_written(self, found: Object) -> bool:
        """After a lost answer: this is the workload, and this change has written it."""
        return uid(found) == self.uid and not self.changed(found)

    def meddled(self, found: Object) -> str:
        """What others have changed since it was written; "" for nothing."""
        return self.changed(found)

    def proof(self, pods: Sequence[Object]) -> str:
        """What the pods after its roll-out prove. Raises NotDone if one of them is not as the template says."""
        if wrong := [full_name(pod) for pod in pods if not self.is_new(pod)]:
            raise NotDone(f"it is rolled out, but the {self.said} of {', '.join(wrong)} differ from it: an admission webhook changes them")
        return pods_have(pods, "it")

    def reverted(self, proof: str) -> str:
        """The proof of its revert, from that of `back`."""
        return f"reverted: {proof}"

    @property
    def name(self) -> str:
        return f"{self.kind} {full_name(self.item)}"

    @property
    def key(self) -> str:
        """Its name beside its progress."""
        return self.name

    @property
    def uid(self) -> str:
        return uid(self.item)

    @property
    def look(self) -> str:
        """As kubectl takes it."""
        return f"-n {namespace_of(self.item)} {self.kind.lower()}/{name_of(self.item)}"

    @property
    def by_hand(self) -> str:
        """How to repair it."""
        return f"if it has what this run set: kubectl rollout undo {self.look}"


def pods_have(pods: Sequence[Object], what: str) -> str:
    return f"rolled out; its {counted(len(pods), 'pod')} {'has' if len(pods) == 1 else 'have'} {what}, read back"


class FieldOfTemplate(TemplateChange):
    """A change of the one field of a pod template that its kind sets. `force`: take over the field of another manager."""

    def __init__(self, change: ObjectChange, timeout: float, said: str, *, force: bool) -> None:
        assert change.before is not None and change.manifest is not None
        self.change, self.timeout, self.said, self.force = change, timeout, said, force
        self.kind, self.item, self.path = change.kind.name, change.before, change.path
        (self.field,) = change.kind.sets
        written = change.sets if change.kind.verb == "patch" else change.kind.values(change.manifest)
        self.had, self.gets = at(change.before, self.field) or "", written.get(self.field) or ""
        self.what = f"to the {said} {self.had or 'none'}"

    def send(self, api: Api, of_version: str = "") -> Object:
        own = preconditions(self.uid, of_version)
        if self.change.kind.verb == "patch":
            return api.patch(self.path, {"metadata": own, **nested({self.field: self.gets or None})})
        return api.apply(self.path, with_meta(self.change.manifest or {}, **own), force=self.force)

    def is_written(self, found: Object) -> bool:
        return super().is_written(found) and not (self.gets and len(self._others(found)) == len(self._owners(found)))

    def changed(self, found: Object) -> str:
        same = (at(found, self.field) or "") == self.gets
        return "" if same else f"someone else changed its {self.said} during its roll-out (owned by {self._named(found)})"

    def meddled(self, found: Object) -> str:
        has = at(found, self.field) or ""
        same = has == self.gets
        return "" if same else f"someone else gave it the {self.said} {has or 'none'} meanwhile (owned by {self._named(found)})"

    def is_new(self, pod: Object) -> bool:
        return bool((at(pod, self.field[len(TEMPLATE) :]) or "") == self.gets)

    def back(self) -> FieldOfTemplate:
        old = self.change.kind.manifest(self.change.namespace, self.change.own_name, {self.field: self.had} if self.had else {})
        # By force: another owner has lost the field to this run. Its value returns.
        back = replace(self.change, manifest=old, sets={self.field: self.had or None})
        return type(self)(back, self.timeout, self.said, force=True)

    def reverted(self, proof: str) -> str:
        others = self._others(self.item) if self.had else []
        return f"reverted: {proof}" + (f"; {FIELD_MANAGER} now owns that field instead of {', '.join(others)}" if others else "")

    @property
    def key(self) -> str:
        return f"{self.change.namespace}/{self.kind.lower()}/{self.change.own_name}"

    @property
    def by_hand(self) -> str:
        return f"set {'.'.join(self.field)} back to {self.had or 'nothing'}: kubectl edit {self.look}"

    def _owners(self, found: Object) -> list[str]:
        return self.change.kind.owners(found, self.field)

    def _others(self, found: Object) -> list[str]:
        return self.change.kind.others(found, self.field)

    def _named(self, found: Object) -> str:
        return ", ".join(self._owners(found)) or "an unknown manager"


class RollOuts:
    """The roll-outs of one run. `warnings` are (workload, text): roll-outs that are done, but left something behind."""

    def __init__(self, session: Session, say: Say) -> None:
        self.session = session
        self._say = say
        self.warnings: list[tuple[str, str]] = []

    # ---- a change of a template

    def carry_out(self, change: TemplateChange, reverting: Callable[[], object] = lambda: None) -> str:
        """Write a template and roll it out, or revert it; returns the proof. `reverting` is called right before a revert, and raises
        nothing. Raises Undone, ChangedByOthers, Gone, RevertFailed, and an ApiError of REFUSED or NotDone if nothing was written."""
        try:
            self._write(change)
        except (NotFound, Conflict) as error:
            if self.session.is_gone(change.path, change.uid):
                raise Gone(DELETED_SINCE) from error
            raise
        except Unknown as error:
            why = str(error)
        else:
            try:
                return self.prove(change)
            except Exception as error:
                why = str(error) or repr(error)
        self._say(f"  {why}")
        self._say(f"  reverting {change.what}")
        reverting()
        try:
            proof = self._revert(change)
        except (ChangedByOthers, Gone) as error:
            raise type(error)(f"{why}; {error}") from error
        except Exception as error:
            if self.session.is_gone(change.path, change.uid):
                raise Gone(f"{why}; {NOTHING_TO_REVERT}") from error
            state = (
                f"{str(error) or repr(error)}. STATE UNKNOWN, check: kubectl get {change.look} -o yaml; REPAIR BY HAND: {change.by_hand}"
            )
            raise RevertFailed(f"{why}; and the revert is not proven: {state}") from error
        raise Undone(f"{why}; {proof}")

    def prove(self, change: TemplateChange) -> str:
        """Wait for the roll-out of a written template; returns the proof. Raises as `wait`."""
        left = self.wait(change.kind, change.key, change.path, change.uid, change.timeout, change.changed, change.is_new)
        proof = change.proof([pod for pod in self._pods_of(change) if is_alive(pod)])
        return "; ".join(filter(None, (proof, left)))

    def _pods_of(self, change: TemplateChange) -> list[Object]:
        return self.pods_of(change.kind, namespace_of(change.item), change.uid)

    def _write(self, change: TemplateChange, of_version: str = "") -> None:
        """Raises as Session.written."""
        self.session.written(change.path, lambda api: dict(change.send(api, of_version)), change.is_written)

    def _revert(self, change: TemplateChange) -> str:
        """Write the old template, and roll it out; returns the proof. It overwrites only what this run wrote, and only in the version that
        was read."""
        back = change.back()

        def write() -> None:
            there = self.session.fetch(change.path)
            if there is None or uid(there) != change.uid:
                raise Gone(NOTHING_TO_REVERT)
            if not back.changed(there):
                return
            if why := change.meddled(there):
                raise ChangedByOthers(f"{why}: left as it is now")
            self._write(back, version(there))

        self.session.unconflicted(write)
        if change.kind == "StatefulSet":
            self._free_statefulset(change)
        return change.reverted(self.prove(back))

    def _free_statefulset(self, change: TemplateChange) -> None:
        """Delete the broken pods of a StatefulSet, and no others: it waits forever for a pod that never gets ready before it recreates it
        from the old template (its documentation calls this "forced rollback")."""
        for pod in self._pods_of(change):
            if change.is_new(pod) and not is_ready(pod) and not is_ending(pod):
                self.session.deleted(pod_path(pod), pod)

    # ---- the roll-out

    def pods_of(self, kind: str, namespace: str, workload_uid: str) -> list[Object]:
        """The workload's pods, by their chain of controllers."""
        needed = ("Pod", "ReplicaSet") if kind == "Deployment" else ("Pod",)
        there = {one: self.session.fetch_all(namespaced(COLLECTIONS[one], namespace)) for one in needed}
        return ObservedObjects(there).pods_of(kind, workload_uid)

    def wait(
        self,
        kind: str,
        key: str,
        path: str,
        workload_uid: str,
        timeout: float,
        changed: Callable[[Object], str],
        new: Callable[[Object], bool],
    ) -> str:
        """Wait for the end of a roll-out: all new pods serve, and no pod of an older template is left (workload_rollout.Wait has the
        limits).

        `timeout` in seconds, never scaled. `changed` says why the template is no longer the written one ("": it is), `new` recognises the
        pods of this roll-out. Returns "", or the old pods that are left when all new pods serve and the time is over: that is a warning,
        shown here, and not a failure, since undoing the roll-out would not end those pods. Raises NotDone with the cluster's reasons,
        ApiFailure."""
        clock, shown, shown_at = Deadline(timeout, as_given=True), "", 0.0
        wait = workload_rollout.Wait(timeout, patient(END_MARGIN))
        revisions: dict[str, Object] | None = None
        while True:
            found = self.session.fetch(path)
            if found is None or uid(found) != workload_uid:
                raise Gone("it was deleted during its roll-out")
            if why := changed(found):
                raise NotDone(why)
            if revisions is None:
                # Read them at the start: an old ReplicaSet may be deleted before its pods.
                revisions = self._revisions(kind, found)
            state = workload_rollout.progress(kind, found)
            old = self._old_pods(kind, found, revisions) if state.done else []
            passed = clock.passed
            verdict = wait.judge(passed, state, old)
            text = f"{state.summary}; {workload_rollout.old_pods_text(old)}" if old else state.summary
            if text != shown or passed - shown_at > TELL_AGAIN:
                shown, shown_at = text, passed
                self._say(f"  {key}: {text} ({passed:.0f} of {wait.limit:.0f} s)")
            if verdict == "done":
                return ""
            if verdict == "left":
                return self._still_there(key, old, passed - (wait.served or 0))
            if verdict == "failed":
                why = state.failed or f"not rolled out within {max(timeout, round(wait.limit)):g} s ({shown})"
                raise NotDone("; ".join([why, *self._complaints(kind, found, new)]))
            clock.pause(LOOK_AGAIN)

    def _revisions(self, kind: str, found: Object) -> dict[str, Object]:
        """The objects that record its templates (workload_rollout.REVISIONS), by UID."""
        if kind not in workload_rollout.REVISIONS:
            return {}
        try:
            there = self.session.fetch_all(f"/apis/apps/v1/namespaces/{namespace_of(found)}/{workload_rollout.REVISIONS[kind]}")
        except Forbidden:
            # The operator's own identity may be allowed to read a DaemonSet but not these: then all pods that are ending count as old.
            if kind == "Deployment":
                raise
            return {}
        return {uid(one): one for one in there}

    def _old_pods(self, kind: str, found: Object, revisions: dict[str, Object]) -> list[Object]:
        """The old pods; adds new revisions to `revisions`."""
        revisions |= self._revisions(kind, found)
        # A controller releases a pod whose labels no longer match (pkg/controller: ClaimPods): this finds all its pods, perhaps others too.
        labels = (spec_of(found).get("selector") or {}).get("matchLabels") or {}
        pods = self.session.fetch_all(
            f"/api/v1/namespaces/{namespace_of(found)}/pods", labels=",".join(f"{key}={value}" for key, value in labels.items())
        )
        return workload_rollout.old_pods(kind, found, pods, list(revisions.values()))

    def _still_there(self, key: str, old: Collection[Object], waited: float) -> str:
        """Show the old pods that did not end in time; returns a short text for the proof."""
        what = workload_rollout.what_to_do(old, self._not_ready({node_of(pod) for pod in old} - {""}))
        text = f"{key}: all its new pods serve, and after {waited:.0f} s {workload_rollout.old_pods_text(old)}. {'; '.join(what)}"
        self.warnings.append((key, text))
        self._say(f"  WARNING: {text}")
        return f"{counted(len(old), 'old pod')} STILL THERE, see the warning"

    def _not_ready(self, nodes: Collection[str]) -> set[str]:
        """The nodes that are not Ready, or no longer exist. Best effort."""
        down = set()
        for name in nodes:
            with contextlib.suppress(ApiFailure):
                node = self.session.fetch(node_path(name))
                if node is None or not is_ready(node):
                    down.add(name)
        return down

    def _complaints(self, kind: str, found: Object, new: Callable[[Object], bool]) -> Collection[str]:
        """The cluster's reasons for a failed roll-out. Best effort: the failure is reported even if its reasons cannot be read."""
        try:
            where = namespace_of(found)
            pods = [pod for pod in self.pods_of(kind, where, uid(found)) if new(pod)]
            sets = self.session.fetch_all(f"/apis/apps/v1/namespaces/{where}/replicasets") if kind == "Deployment" else []
            own = [entry for entry in sets if controller(entry) == uid(found)]
            about = {uid(entry) for entry in (found, *pods, *own)}
            events = self.session.fetch_all(f"/api/v1/namespaces/{where}/events", "type=Warning")
            return workload_rollout.complaints(
                found, pods, [event for event in events if (event.get("involvedObject") or {}).get("uid") in about]
            )
        except ApiFailure as error:
            return [f"its reasons could not be read: {error}"]


class TemplateWriter(ObjectWriter):
    """Writes changes of a field of pod templates. `said`: the field, in a word; `seconds`: for each roll-out, never scaled."""

    said = "template"

    def __init__(self, session: Session, *, force: bool, seconds: float, say: Say) -> None:
        super().__init__(session, force=force)
        self.rolling = RollOuts(session, say)
        self.warnings = self.rolling.warnings
        self._seconds = seconds

    def template(self, change: ObjectChange) -> FieldOfTemplate:
        return FieldOfTemplate(change, self._seconds, self.said, force=self._force)

    def proven(self, change: ObjectChange, of: str) -> str:
        return self.rolling.prove(self.template(change))

    def write(self, change: ObjectChange, context: StepContext) -> str:
        now = self._unchanged(change)
        if at(now or {}, TEMPLATE) != at(change.before or {}, TEMPLATE):
            raise NotDone("its template was changed after daytwo read it; run this again")
        return self.rolling.carry_out(self.template(change))
