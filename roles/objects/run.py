"""One run on the cluster's objects: the lock, each write in its turn, read back and compared; the first failure halts."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

import gevent

from roles.api import FIELD_MANAGER, Api, ApiError, NotFound, list_objects
from roles.change.record import RunInfo, now
from roles.objects import live as facts
from roles.objects import plan as planning
from roles.objects import rollout
from roles.objects.errand import API_WAIT, LOOK_AGAIN, Errand, NotDone
from roles.objects.live import COLLECTIONS, Live, Object
from roles.objects.model import CLASSES_PATH, PriorityClass, Workload
from roles.objects.plan import Action, Plan
from roles.patience import patient
from roles.proof import NoApi
from roles.rollout.lock import Locked
from roles.rollout.remote import Fleet, RemoteError, show

Outcome = Literal["done", "reverted", "revert-failed", "failed", "not started"]

# Seconds: a deletion with finalizers.
REMOVAL = 30.0

_CLASS = ("spec", "template", "spec", "priorityClassName")
_FIELD = tuple(f"f:{part}" for part in _CLASS)


class Undone(NotDone):
    """It did not come to what was wanted, and all is as it was before; says how that was seen."""


class RevertFailed(Exception):
    """What was begun could neither be done nor undone; says what to do by hand."""


@dataclass
class Turn:
    """One action in its turn."""

    action: Action
    outcome: Outcome = "not started"
    why: str = ""
    proof: str = ""
    seconds: float = 0.0


def read_live(api: Api) -> Live:
    """All that may name a class. Raises ApiError."""
    classes = {str(item["metadata"]["name"]): item for item in list_objects(api, CLASSES_PATH, wait=API_WAIT)}
    return Live(classes, {kind: list_objects(api, path, wait=API_WAIT) for kind, path in COLLECTIONS.items()})


def recorded(action: Action) -> dict[str, Any]:
    """What is kept of an action before it is begun. A PriorityClass whole, as `before` and `after`: it can hold no secret, and one that is
    removed is made again from this. Of a workload, whose environment may hold some, the one field that changes, as `fields`:
    {"path": [...], "before": ..., "after": ...}, None where it is not set."""
    about = {"object": action.name, "path": action.path, "what": action.what, "summary": action.summary}
    if action.workload is not None:
        old = facts.class_of(action.workload.kind, action.before) if action.before is not None else ""
        after = action.workload.priority_class
        return {**about, "fields": [{"path": list(_CLASS), "before": old or None, "after": after or None}]}
    before = facts.bare(action.before) if action.before is not None else None
    return {**about, "before": before, "after": dict(action.manifest) if action.manifest is not None else None}


class ObjectRun(Errand):
    """Carries out a plan once."""

    def __init__(
        self,
        info: RunInfo,
        plan: Plan,
        connect: Callable[[], Api],
        fleet: Fleet,
        take_over: str,
        *,
        force: bool,
        rollout_timeout: float,
        finish: Callable[[ObjectRun], None],
    ) -> None:
        super().__init__(info, connect, fleet, take_over)
        self.turns = [Turn(action) for action in plan.actions]
        self._force = force
        self._rollout_timeout = rollout_timeout
        self._finish = finish

    def work(self) -> None:
        for number, turn in enumerate(self.turns, 1):
            if self.halted:
                break
            self._carry_out(number, turn)

    def outcomes(self) -> dict[str, str]:
        return {turn.action.name: turn.outcome for turn in self.turns}

    def close(self) -> None:
        self._finish(self)

    def leaving(self) -> str:
        return "a roll-out that was begun goes on in the cluster, run this again to see to its end"

    def _carry_out(self, number: int, turn: Turn) -> None:
        action, begun = turn.action, time.monotonic()
        show(f"\n[{number}/{len(self.turns)}] {action.name}: {action.summary}")
        self.note({"event": "plan", "run": self.info.id, "order": number, **recorded(action)})
        try:
            self._lock.ensure()
            turn.outcome = "failed"
            turn.proof = self._do(action)
            turn.outcome = "done"
        except Undone as error:
            turn.outcome, turn.why = "reverted", str(error)
        except RevertFailed as error:
            turn.outcome, turn.why = "revert-failed", str(error)
        except (NotDone, ApiError, NoApi, Locked, RemoteError) as error:
            turn.why = str(error)
        turn.seconds = time.monotonic() - begun
        show(f"  {turn.outcome}: {turn.proof or turn.why} ({turn.seconds:.0f} s)")
        if turn.outcome != "done":
            self.halted = self.halted or f"{action.name}: {turn.outcome}: {turn.why}"
        self.note(
            {
                "event": "end", "object": action.name, "at": now(), "outcome": turn.outcome, "why": turn.why, "proof": turn.proof,
                "seconds": round(turn.seconds, 1),
            }
        )  # fmt: skip

    # ---- one action

    def _do(self, action: Action) -> str:
        match action.what:
            case "create" | "update":
                return self._apply(action)
            case "replace":
                return self._replace(action)
            case "remove":
                return self._remove(action)
            case "assign":
                return self._assign(action)

    def _apply(self, action: Action) -> str:
        assert action.manifest is not None and action.wanted is not None
        self._write(action.path, action.manifest, self._force)
        return self._proven(action.path, action.wanted)

    def _proven(self, path: str, wanted: PriorityClass) -> str:
        """Read the class back and compare. Raises NotDone."""
        found = self.fetch(path)
        if found is None:
            raise NotDone("it was applied, and is not there when read back: somebody else deletes it")
        wrong = planning.differences(wanted, found)
        if wrong:
            raise NotDone(f"it was applied, and {', '.join(wrong)} is another when read back: a webhook or another manager changes it")
        if FIELD_MANAGER not in facts.managers(found, "f:value"):
            raise NotDone(f"it was applied, and the field manager {FIELD_MANAGER} does not own its value when read back")
        default = ""
        if facts.is_default(found):
            # The API server looks for another one before it takes this one in, and two can come at the same moment.
            names = [str(item["metadata"]["name"]) for item in self.fetch_all(CLASSES_PATH) if facts.is_default(item)]
            if len(names) > 1:
                raise NotDone(
                    f"{' and '.join(names)} are all the globalDefault when read back, and the lowest value wins: take it from all but one"
                )
            default = ", the one globalDefault"
        return f"read back: value {facts.value_of(found)}, {facts.policy_of(found)}{default}; field manager {FIELD_MANAGER}"

    def _write(self, path: str, manifest: Mapping[str, Any], force: bool) -> dict[str, Any]:
        return self.asked(lambda api: api.apply(path, manifest, force=force, wait=API_WAIT))

    def _delete(self, path: str, item: Object, version: str = "") -> None:
        """That very object; one that is gone already is no error."""
        with contextlib.suppress(NotFound):
            self.asked(lambda api: api.delete(path, facts.uid(item), version=version))

    def _replace(self, action: Action) -> str:
        assert action.before is not None and action.manifest is not None and action.wanted is not None
        old = action.before
        self._delete(action.path, old, facts.version(old))
        try:
            self._gone(action.path, facts.uid(old))
            self._write(action.path, action.manifest, self._force)
            return f"{self._proven(action.path, action.wanted)}; another UID than before"
        except (NotDone, ApiError, NoApi) as error:
            raise self._put_back(action.path, old, str(error)) from error

    def _put_back(self, path: str, old: Object, why: str) -> Exception:
        """A class that was deleted is there again, as it was; the answer says so, or what is to be done by hand."""
        manifest = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", **facts.bare(old)}
        try:
            found = self.fetch(path)
            if found is not None:
                self._delete(path, found)
                self._gone(path, facts.uid(found))
            self._write(path, manifest, False)
            again = self.fetch(path)
            if again is None or facts.diff(old, again, "class"):
                raise NotDone("it is not as it was")
        except (NotDone, ApiError, NoApi) as error:
            return RevertFailed(
                f"{why}; and the old one could not be made anew: {error}; MEND BY HAND, pods that name it cannot be created meanwhile: "
                f"kubectl create -f - <<'END'\n{json.dumps(manifest)}\nEND"
            )
        return Undone(f"{why}; the old one was made anew and read back: value {facts.value_of(again)}, {facts.policy_of(again)}")

    def _gone(self, path: str, uid: str) -> None:
        """Raises NotDone where the object with this UID is still there after a while."""
        until = time.monotonic() + patient(REMOVAL)
        while True:
            found = self.fetch(path)
            if found is None or facts.uid(found) != uid:
                return
            if time.monotonic() > until:
                finalizers = ", ".join(found["metadata"].get("finalizers") or ()) or "none"
                raise NotDone(f"it was deleted, and is still there after {patient(REMOVAL):g} s; its finalizers: {finalizers}")
            gevent.sleep(LOOK_AGAIN)

    def _remove(self, action: Action) -> str:
        assert action.before is not None
        name = str(action.before["metadata"]["name"])
        usage = self.asked(read_live).users(name)
        if usage.any:
            raise NotDone(f"it is {usage}; a class that is used is never removed")
        self._delete(action.path, action.before, facts.version(action.before))
        self._gone(action.path, facts.uid(action.before))
        return "read back: it is gone; nothing named it right before"

    # ---- a workload's class

    def _assign(self, action: Action) -> str:
        assert action.before is not None and action.manifest is not None and action.workload is not None
        item, old = action.workload, facts.class_of(action.workload.kind, action.before)
        now_there = self.fetch(action.path)
        if now_there is None or facts.uid(now_there) != facts.uid(action.before):
            raise NotDone("it was deleted since it was looked at; run this again")
        if facts.template(item.kind, now_there) != facts.template(item.kind, action.before):
            raise NotDone("its template was changed since it was looked at; run this again")
        found = self._write(action.path, action.manifest, self._force)
        try:
            left = self._rolled_out(item, facts.uid(found), item.priority_class)
            return self._has_class(item, facts.uid(found), item.priority_class, self._number(item.priority_class), left)
        except (NotDone, ApiError, NoApi) as error:
            why = str(error)
        show(f"  {why}")
        show(f"  putting the class {old or 'none'} back")
        try:
            proof = self._undo(item, action.before, old)
        except (NotDone, ApiError, NoApi) as error:
            raise RevertFailed(
                f"{why}; and it could not be undone: {error}; MEND BY HAND: set spec.template.spec.priorityClassName back to "
                f"{old or 'nothing'}: kubectl edit -n {item.namespace} {item.kind.lower()}/{item.name}"
            ) from error
        raise Undone(f"{why}; undone: {proof}")

    def _undo(self, item: Workload, before: Object, old: str) -> str:
        """The old class again, by a roll-out of its own, seen to its end."""
        # An owner that had the field alone lost it to `force`; the value comes back, and daytwo owns it then.
        manifest = planning.assignment(item, before, old or None)
        found = self._write(item.path, manifest, True)
        if facts.class_of(item.kind, found) != old:
            raise NotDone(f"its template has the class {facts.class_of(item.kind, found) or 'none'}, not {old or 'none'}")
        if item.kind == "StatefulSet":
            self._free_statefulset(item, facts.uid(found), item.priority_class)
        left = self._rolled_out(item, facts.uid(found), old)
        taken = facts.managers(before, *_FIELD) if old else []
        owned = f"; {FIELD_MANAGER} owns that field now, {', '.join(taken)} did" if taken not in ([], [FIELD_MANAGER]) else ""
        # Pods that were never made anew may have another number than the class has by now: their class is what counts.
        return self._has_class(item, facts.uid(found), old, None, left) + owned

    def _free_statefulset(self, item: Workload, uid: str, failed_class: str) -> None:
        """A StatefulSet waits for the pod that never gets ready before it makes it anew from the old template, for ever (known as
        "forced rollback" in its documentation): those pods are deleted, the broken ones only."""
        for pod in self.pods_of(item.kind, item.namespace, uid):
            if facts.class_of("Pod", pod) == failed_class and not _ready(pod) and not facts.is_ending(pod):
                path = f"/api/v1/namespaces/{item.namespace}/pods/{quote(str(pod['metadata']['name']), safe='')}"
                self._delete(path, pod)

    def _rolled_out(self, item: Workload, uid: str, priority_class: str) -> str:
        """Wait for the end of a roll-out; what is left of the old one, or "". Raises NotDone with the reasons that the cluster gives."""

        def changed(found: Object) -> str:
            if facts.class_of(item.kind, found) == priority_class:
                return ""
            owners = facts.managers(found, *_FIELD)
            return f"somebody else changed its class in the middle of its roll-out (owned by {', '.join(owners) or 'nobody'})"

        def new(pod: Object) -> bool:
            return facts.class_of("Pod", pod) == priority_class

        return self.rolled_out(item.kind, item.key, item.path, uid, self._rollout_timeout, changed, new)

    def _number(self, priority_class: str) -> int:
        """What a class stands for. Raises NotDone where it is gone."""
        found = self.fetch(f"{CLASSES_PATH}/{quote(priority_class, safe='')}")
        if found is None:
            raise NotDone(f"PriorityClass {priority_class} is gone")
        return facts.value_of(found)

    def _has_class(self, item: Workload, uid: str, priority_class: str, number: int | None, left: str) -> str:
        """The pods that are there after a roll-out all have the class, and its `number` (None: whatever it is). `left` is
        what the roll-out left behind, for the proof. Raises NotDone."""
        pods = [pod for pod in self.pods_of(item.kind, item.namespace, uid) if not facts.is_ending(pod) and not facts.is_over(pod)]
        # Without a class of their own they have the cluster's default, or none.
        wrong = rollout.wrong_pods(pods, priority_class, number) if priority_class else []
        if wrong:
            raise NotDone("; ".join(wrong))
        told = priority_class + (f" ({number})" if number is not None else "") if priority_class else "no class of their own"
        return f"rolled out; its {len(pods)} pods have {told}, read back{'; ' if left else ''}{left}"


def _ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(found.get("type") == "Ready" and found.get("status") == "True" for found in conditions)
