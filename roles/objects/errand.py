"""What every run on the cluster's objects is made of: the lock, the record, Ctrl-C, the API over a connection that may be lost."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar
from urllib.parse import quote

import gevent
from gevent.event import Event

from roles.api import Api, ApiError, Forbidden
from roles.change.record import RunInfo, RunRecord, Unrecorded
from roles.objects import rollout
from roles.objects.access import Access, NotDone
from roles.objects.live import COLLECTIONS, Live, Object, uid
from roles.patience import patient
from roles.proof import NoApi
from roles.rollout import table
from roles.rollout.lock import ClusterLock, Locked
from roles.rollout.number import run_number
from roles.rollout.remote import Fleet, RemoteError, on_interrupt, show

T = TypeVar("T")

# Seconds: the pause between two looks.
LOOK_AGAIN = 1.0
# A roll-out that stands still is told of this often.
TELL_AGAIN = 30.0
# What a pod may need beyond its grace period: the kubelet ends it by force then, unmounts its volumes, and tells the API.
END_MARGIN = 30.0


class Errand:
    """A run that is carried out once, whichever host's turn it is. `connect` is as Access has it."""

    def __init__(self, info: RunInfo, connect: Callable[[], Api], fleet: Fleet, take_over: str) -> None:
        self.info = info
        self.record = RunRecord(info)
        self.halted = ""
        self.interrupted = False
        #: What is done, and leaves something that the operator must know of.
        self.warnings: list[str] = []
        self.api = Access(connect)
        self._keeper = fleet.lock_host
        self._lock = ClusterLock(fleet.lock_host, info.holder, take_over)
        self._ended = Event()

    # ---- what a run is about

    def work(self) -> None:
        """All there is to do; to halt is to set `halted`."""
        raise NotImplementedError

    def outcomes(self) -> Mapping[str, str]:
        """How each thing ended, by its name."""
        raise NotImplementedError

    def close(self) -> None:
        """Tell how it ended. The lock is still held."""
        raise NotImplementedError

    def leaving(self) -> str:
        """What to know when it is left at once, by a second Ctrl-C."""
        raise NotImplementedError

    # ---- the run

    def result(self, host: str) -> bool:
        """Carry all out; True when everything was done and proven."""
        on_interrupt(self.interrupt)
        # Ctrl-C must not end the greenlet that undoes what was begun.
        gevent.spawn(self._drive)
        self._ended.wait()
        return not self.halted and not self.interrupted and all(outcome == "done" for outcome in self.outcomes().values())

    def interrupt(self) -> None:
        """Ctrl-C: nothing more is begun, what is in hand ends; a second time: out at once."""
        if self.interrupted:
            show(f"\nleaving at once; {self.leaving()}")
            raise SystemExit(130)
        self.interrupted = True
        self.halted = self.halted or "interrupted by the operator"
        show("\nhalting: what is in hand is brought to its end; once more to leave at once")

    def _drive(self) -> None:
        try:
            try:
                self._lock.ensure()
                self.note({"event": "begin", "changes": len(self.outcomes()), "number": run_number(self._keeper).recorded})
            except (Locked, RemoteError, Unrecorded) as error:
                self.halted = str(error)
                show(f"\nnot begun: {error}")
            else:
                self._work()
                self.note_done({"event": "end-of-run", "halted": self.halted, "outcomes": dict(self.outcomes())})
            self.close()
        except Exception as error:
            self.halted = self.halted or repr(error)
            show(f"\nthe run ended by an error of its own: {error!r}")
            raise
        finally:
            self._lock.give_back()
            self._ended.set()

    def _work(self) -> None:
        try:
            self.work()
        except Unrecorded as error:
            self.halted = self.halted or str(error)
            show(f"\nhalting: {error}")

    def note(self, event: Mapping[str, object]) -> None:
        """Into the record, before what it is about is begun. Raises Unrecorded: without it that must not be begun."""
        self.record.write(event)

    def note_done(self, event: Mapping[str, object]) -> None:
        """Into the record what has happened already; where that cannot be written, nothing more is begun."""
        try:
            self.record.write(event)
        except Unrecorded as error:
            self.halted = self.halted or str(error)
            show(f"WARNING: {error}")

    # ---- the API

    def asked(self, ask: Callable[[Api], T]) -> T:
        """Ask what changes nothing. Raises ApiError, NoApi."""
        return self.api.asked(ask)

    def fetch(self, path: str) -> dict[str, Any] | None:
        return self.api.fetch(path)

    def fetch_all(self, path: str, fields: str = "", labels: str = "") -> list[dict[str, Any]]:
        return self.api.fetch_all(path, fields, labels)

    # ---- roll-outs

    def pods_of(self, kind: str, namespace: str, workload_uid: str) -> list[Object]:
        """The workload's pods, by their chain of controllers."""
        there = {}
        for one in ("Pod", "ReplicaSet") if kind == "Deployment" else ("Pod",):
            path = COLLECTIONS[one].rpartition("/")
            there[one] = self.fetch_all(f"{path[0]}/namespaces/{namespace}/{path[2]}")
        return Live({}, there).pods_of(kind, workload_uid)

    def rolled_out(
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

        `timeout` in seconds. `changed` says why the template is no longer what was written ("": it is), `new` tells the pods of this
        roll-out. Gives "", or what is left when the new pods all serve and the wait is over: that is a warning, shown here, and no
        failure, since nothing that daytwo could undo would end those pods. Raises NotDone with the reasons that the cluster gives,
        ApiError, NoApi."""
        begun, told, told_at = time.monotonic(), "", 0.0
        wait = rollout.Wait(timeout, patient(END_MARGIN))
        revisions: dict[str, Object] | None = None
        while True:
            found = self.fetch(path)
            if found is None or uid(found) != workload_uid:
                raise NotDone("it was deleted in the middle of its roll-out")
            if why := changed(found):
                raise NotDone(why)
            if revisions is None:
                # Now: an old ReplicaSet may be gone before its pods are.
                revisions = self._revisions(kind, found)
            state = rollout.progress(kind, found)
            old = self._old_pods(kind, found, revisions) if state.done else []
            passed = time.monotonic() - begun
            verdict = wait.judge(passed, state, old)
            now_told = f"{state.told}; {rollout.told_old(old)}" if old else state.told
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
            gevent.sleep(LOOK_AGAIN)

    def _revisions(self, kind: str, found: Object) -> dict[str, Object]:
        """What tells its templates apart, by UID."""
        if kind not in rollout.REVISIONS:
            return {}
        try:
            there = self.fetch_all(f"/apis/apps/v1/namespaces/{found['metadata']['namespace']}/{rollout.REVISIONS[kind]}")
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
        pods = self.fetch_all(
            f"/api/v1/namespaces/{found['metadata']['namespace']}/pods", labels=",".join(f"{key}={value}" for key, value in labels.items())
        )
        return rollout.old_pods(kind, found, pods, list(revisions.values()))

    def _still_there(self, key: str, old: Collection[Object], waited: float) -> str:
        """Show the old pods that did not end in time; in short for the proof."""
        what = rollout.what_to_do(old, self._not_ready({str((pod.get("spec") or {}).get("nodeName") or "") for pod in old} - {""}))
        text = f"{key}: all its new pods serve, and after {waited:.0f} s {rollout.told_old(old)}. {'; '.join(what)}"
        self.warnings.append(text)
        self.note_done({"event": "warning", "object": key, "text": text})
        show(f"  WARNING: {text}")
        return f"{table.counted(len(old), 'old pod')} STILL THERE, as the warning says"

    def _not_ready(self, nodes: Collection[str]) -> set[str]:
        """Best effort: those that are not Ready, or not there any more."""
        down = set()
        for name in nodes:
            with contextlib.suppress(ApiError, NoApi):
                node = self.fetch(f"/api/v1/nodes/{quote(name, safe='')}")
                conditions = ((node or {}).get("status") or {}).get("conditions") or ()
                if not any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions):
                    down.add(name)
        return down

    def _complaints(self, kind: str, found: Object, new: Callable[[Object], bool]) -> Collection[str]:
        """Best effort: what went wrong is told even where its reasons cannot be read."""
        try:
            where = str(found["metadata"]["namespace"])
            pods = [pod for pod in self.pods_of(kind, where, uid(found)) if new(pod)]
            sets = self.fetch_all(f"/apis/apps/v1/namespaces/{where}/replicasets") if kind == "Deployment" else []
            own = [entry for entry in sets if any(owner.get("uid") == uid(found) for owner in entry["metadata"].get("ownerReferences", ()))]
            about = {uid(entry) for entry in (found, *pods, *own)}
            events = self.fetch_all(f"/api/v1/namespaces/{where}/events", "type=Warning")
            return rollout.complaints(found, pods, [event for event in events if (event.get("involvedObject") or {}).get("uid") in about])
        except (ApiError, NoApi) as error:
            return [f"its reasons could not be read: {error}"]
