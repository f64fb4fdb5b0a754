"""Waits for the roll-out of a workload, and reports why it does not end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import quote

from roles.engine.api import ApiFailure, Forbidden
from roles.engine.context import Say
from roles.engine.kube import Object, controller, is_ready, uid
from roles.engine.kube.fields import namespace_of, spec_of
from roles.engine.kube.pods import node_of
from roles.engine.kube.workloads import COLLECTIONS, ObservedObjects
from roles.engine.objects import workload_rollout
from roles.engine.objects.outcome import ChangedByOthers, NotDone, RevertFailed, Undone, Unknown
from roles.engine.objects.session import Session
from roles.engine.rollout import table
from roles.engine.timeouts import Deadline, patient

T = TypeVar("T")

# Seconds between two reads.
LOOK_AGAIN = 1.0
# Seconds between two lines about a roll-out that makes no progress.
TELL_AGAIN = 30.0
# Seconds that a pod may need after its grace period: the kubelet kills it, unmounts its volumes, and updates the API.
END_MARGIN = 30.0


class RollOuts:
    """The roll-outs of one run. `warnings` are (workload, text): roll-outs that are done, but left something behind."""

    def __init__(self, session: Session, say: Say) -> None:
        self.session = session
        self._say = say
        self.warnings: list[tuple[str, str]] = []

    def pods_of(self, kind: str, namespace: str, workload_uid: str) -> list[Object]:
        """The workload's pods, by their chain of controllers."""
        there = {}
        for one in ("Pod", "ReplicaSet") if kind == "Deployment" else ("Pod",):
            path = COLLECTIONS[one].rpartition("/")
            there[one] = self.session.fetch_all(f"{path[0]}/namespaces/{namespace}/{path[2]}")
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
                raise NotDone("it was deleted during its roll-out")
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
        return f"{table.counted(len(old), 'old pod')} STILL THERE, see the warning"

    def _not_ready(self, nodes: Collection[str]) -> set[str]:
        """The nodes that are not Ready, or no longer exist. Best effort."""
        down = set()
        for name in nodes:
            with contextlib.suppress(ApiFailure):
                node = self.session.fetch(f"/api/v1/nodes/{quote(name, safe='')}")
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


@dataclass(frozen=True)
class Reverting:
    """How a change of a template is reverted. `back` writes and rolls out the old one, and returns the proof; it raises ChangedByOthers.
    `what`: as in `reverting WHAT`; `where`: the workload, as kubectl takes it; `by_hand`: how to repair it."""

    back: Callable[[], str]
    what: str
    where: str
    by_hand: str

    def unless(self, write: Callable[[], T], proven: Callable[[T], str], say: Say) -> str:
        """Write a template and prove its roll-out, or revert it. Raises Undone, ChangedByOthers, RevertFailed, and what `write` raises."""
        try:
            found = write()
        except Unknown as error:
            why = str(error)
        else:
            try:
                return proven(found)
            except Exception as error:
                why = str(error) or repr(error)
        say(f"  {why}")
        say(f"  reverting {self.what}")
        try:
            proof = self.back()
        except ChangedByOthers as error:
            raise ChangedByOthers(f"{why}; {error}") from error
        except Exception as error:
            state = f"{str(error) or repr(error)}; STATE UNKNOWN, check: kubectl get {self.where} -o yaml; REPAIR BY HAND: {self.by_hand}"
            raise RevertFailed(f"{why}; and the revert is not proven: {state}") from error
        raise Undone(f"{why}; {proof}")
