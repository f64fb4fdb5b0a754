"""How a workload's roll-out is waited for, and what is said where it does not end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from urllib.parse import quote

from roles.engine.api import ApiError, Forbidden
from roles.engine.bridge import show
from roles.engine.object_changes import workload_rollout
from roles.engine.object_changes.api_object import COLLECTIONS, Live, Object, uid
from roles.engine.object_changes.outcome import NotDone
from roles.engine.object_changes.session import Session
from roles.engine.proof import NoApi
from roles.engine.rollout import table
from roles.engine.timeouts import Deadline, patient

# Seconds: the pause between two looks.
LOOK_AGAIN = 1.0
# How often a roll-out that stands still is shown.
TELL_AGAIN = 30.0
# What a pod may need beyond its grace period: the kubelet ends it by force then, unmounts its volumes, and tells the API.
END_MARGIN = 30.0


class RollOuts:
    """Those of one run. `warnings` are (workload, text): what is done, and leaves something that the operator must know of."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.warnings: list[tuple[str, str]] = []

    def pods_of(self, kind: str, namespace: str, workload_uid: str) -> list[Object]:
        """The workload's pods, by their chain of controllers."""
        there = {}
        for one in ("Pod", "ReplicaSet") if kind == "Deployment" else ("Pod",):
            path = COLLECTIONS[one].rpartition("/")
            there[one] = self.session.fetch_all(f"{path[0]}/namespaces/{namespace}/{path[2]}")
        return Live(there).pods_of(kind, workload_uid)

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
        """Wait for the end of a roll-out: the new pods all serve, and no pod of an older template is left (rollout.Wait has the bounds).

        `timeout` in seconds, as they are. `changed` says why the template is no longer what was written ("": it is), `new` tells the pods
        of this roll-out. Gives "", or what is left when the new pods all serve and the wait is over: that is a warning, shown here, and no
        failure, since nothing that daytwo could undo would end those pods. Raises NotDone with the reasons that the cluster gives,
        ApiError, NoApi."""
        clock, told, told_at = Deadline(timeout, as_given=True), "", 0.0
        wait = workload_rollout.Wait(timeout, patient(END_MARGIN))
        revisions: dict[str, Object] | None = None
        while True:
            found = self.session.fetch(path)
            if found is None or uid(found) != workload_uid:
                raise NotDone("it was deleted in the middle of its roll-out")
            if why := changed(found):
                raise NotDone(why)
            if revisions is None:
                # Now: an old ReplicaSet may be gone before its pods are.
                revisions = self._revisions(kind, found)
            state = workload_rollout.progress(kind, found)
            old = self._old_pods(kind, found, revisions) if state.done else []
            passed = clock.passed
            verdict = wait.judge(passed, state, old)
            now_told = f"{state.told}; {workload_rollout.told_old(old)}" if old else state.told
            if now_told != told or passed - told_at > TELL_AGAIN:
                told, told_at = now_told, passed
                show(f"  {key}: {told} ({passed:.0f} of {wait.limit:.0f} s)")
            if verdict == "done":
                return ""
            if verdict == "left":
                return self._still_there(key, old, passed - (wait.served or 0))
            if verdict == "failed":
                why = state.failed or f"not rolled out within {max(timeout, round(wait.limit)):g} s ({told})"
                raise NotDone("; ".join([why, *self._complaints(kind, found, new)]))
            clock.pause(LOOK_AGAIN)

    def _revisions(self, kind: str, found: Object) -> dict[str, Object]:
        """What tells its templates apart, by UID."""
        if kind not in workload_rollout.REVISIONS:
            return {}
        try:
            there = self.session.fetch_all(f"/apis/apps/v1/namespaces/{found['metadata']['namespace']}/{workload_rollout.REVISIONS[kind]}")
        except Forbidden:
            # An identity of the operator's own may read a DaemonSet and not this: then pods that are ending count, whatever their template.
            if kind == "Deployment":
                raise
            return {}
        return {uid(one): one for one in there}

    def _old_pods(self, kind: str, found: Object, revisions: dict[str, Object]) -> list[Object]:
        """Notes in `revisions` what has come since."""
        revisions |= self._revisions(kind, found)
        # The controllers let a pod go whose labels no longer match (pkg/controller: ClaimPods), so these are all, and some others' maybe.
        labels = ((found.get("spec") or {}).get("selector") or {}).get("matchLabels") or {}
        pods = self.session.fetch_all(
            f"/api/v1/namespaces/{found['metadata']['namespace']}/pods", labels=",".join(f"{key}={value}" for key, value in labels.items())
        )
        return workload_rollout.old_pods(kind, found, pods, list(revisions.values()))

    def _still_there(self, key: str, old: Collection[Object], waited: float) -> str:
        """Show the old pods that did not end in time; in short for the proof."""
        what = workload_rollout.what_to_do(old, self._not_ready({str((pod.get("spec") or {}).get("nodeName") or "") for pod in old} - {""}))
        text = f"{key}: all its new pods serve, and after {waited:.0f} s {workload_rollout.told_old(old)}. {'; '.join(what)}"
        self.warnings.append((key, text))
        show(f"  WARNING: {text}")
        return f"{table.counted(len(old), 'old pod')} STILL THERE, as the warning says"

    def _not_ready(self, nodes: Collection[str]) -> set[str]:
        """Best effort: those that are not Ready, or not there any more."""
        down = set()
        for name in nodes:
            with contextlib.suppress(ApiError, NoApi):
                node = self.session.fetch(f"/api/v1/nodes/{quote(name, safe='')}")
                conditions = ((node or {}).get("status") or {}).get("conditions") or ()
                if not any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions):
                    down.add(name)
        return down

    def _complaints(self, kind: str, found: Object, new: Callable[[Object], bool]) -> Collection[str]:
        """Best effort: what went wrong is shown even where its reasons cannot be read."""
        try:
            where = str(found["metadata"]["namespace"])
            pods = [pod for pod in self.pods_of(kind, where, uid(found)) if new(pod)]
            sets = self.session.fetch_all(f"/apis/apps/v1/namespaces/{where}/replicasets") if kind == "Deployment" else []
            own = [entry for entry in sets if any(owner.get("uid") == uid(found) for owner in entry["metadata"].get("ownerReferences", ()))]
            about = {uid(entry) for entry in (found, *pods, *own)}
            events = self.session.fetch_all(f"/api/v1/namespaces/{where}/events", "type=Warning")
            return workload_rollout.complaints(
                found, pods, [event for event in events if (event.get("involvedObject") or {}).get("uid") in about]
            )
        except (ApiError, NoApi) as error:
            return [f"its reasons could not be read: {error}"]
