"""Carries out each change of a PriorityClass, or of a workload's class: writes it, reads it back and compares it, or reverts it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote

from roles.engine import kube
from roles.engine.api import Api, Conflict, list_objects
from roles.engine.bridge import show
from roles.engine.context import StepContext
from roles.engine.detail import counted
from roles.engine.kube import FIELD_MANAGER, Object, is_ending, workloads
from roles.engine.kube.field_managers import managers
from roles.engine.kube.pods import is_alive
from roles.engine.kube.workloads import COLLECTIONS, class_of
from roles.engine.object_changes import (
    API_WAIT,
    LOOK_AGAIN,
    REFUSED,
    ChangedByOthers,
    NotDone,
    RevertFailed,
    RollOuts,
    Session,
    Undone,
    Unknown,
    object_diff,
    wait_gone,
    workload_rollout,
)
from roles.engine.rollout import ClusterStep
from roles.engine.timeouts import Deadline
from roles.priority_classes import class_facts, plan
from roles.priority_classes.class_facts import ObservedClasses, is_default, policy_of, value_of
from roles.priority_classes.compliance import unmet_class
from roles.priority_classes.fields import CLASS_OF_PODS, changed
from roles.priority_classes.model import CLASSES_PATH, PriorityClass, Workload
from roles.priority_classes.plan import Action

# Seconds: for a revert that conflicts with a controller that writes the object's status all the time.
CONFLICTS = 30.0

_FIELD = tuple(f"f:{part}" for part in CLASS_OF_PODS)


def read_live(api: Api) -> ObservedClasses:
    """The classes, and all objects that may name one. Raises ApiError."""
    classes = {str(item["metadata"]["name"]): item for item in list_objects(api, CLASSES_PATH, wait=API_WAIT)}
    return ObservedClasses(classes=classes, objects={kind: list_objects(api, path, wait=API_WAIT) for kind, path in COLLECTIONS.items()})


class Writer:
    """Carries out the actions of one plan. `force`: take over fields of other managers; `rollout_timeout` in seconds, never scaled."""

    def __init__(self, session: Session, *, force: bool, rollout_timeout: float) -> None:
        self.session = session
        self.rolling = RollOuts(session)
        self.warnings = self.rolling.warnings
        self._force = force
        self._rollout_timeout = rollout_timeout
        # While a class is being replaced: the command that recreates the old one; else "".
        self._recreate = ""

    def tried(self, action: Action, api: Api) -> str:
        """The diff by the API server's dry run. Raises ApiError."""
        name = action.name.replace(" ", "/")
        if action.before is not None and action.what in ("remove", "replace"):
            api.delete(action.path, kube.uid(action.before), version=kube.version(action.before), dry_run=True)
        if action.manifest is None:
            return object_diff(action.before, None, name)
        if action.what == "replace":
            # An apply on the existing class would be refused: only the deletion can have a dry run.
            return object_diff(action.before, action.manifest, name)
        after = api.apply(action.path, action.first or action.manifest, force=self._force, dry_run=True)
        if action.first is not None:
            after["globalDefault"] = True
        return object_diff(action.before, after, name)

    def steps(self, actions: Sequence[Action]) -> tuple[ClusterStep, ...]:
        return tuple(self._step(action) for action in actions)

    def leaving(self) -> str:
        """What a second Ctrl-C leaves behind."""
        left = "a started roll-out continues in the cluster; run this again to wait for its end"
        return (
            f"{left}; a class is being replaced, and may be gone; this recreates the old one: {self._recreate}" if self._recreate else left
        )

    def _step(self, action: Action) -> ClusterStep:
        about = {"path": action.path, "uid": kube.uid(action.before) if action.before is not None else ""}
        if action.workload is not None:
            about |= {"kind": action.workload.kind, "namespace": action.workload.namespace, "name": action.workload.name}
        return ClusterStep(
            action.name, action.summary, action.shown, partial(self._carry_out, action), "", action=action.what, about=about
        )  # fmt: skip

    def _carry_out(self, action: Action, context: StepContext) -> str:
        context.begin(changed(action))
        try:
            return self._do(action)
        except Unknown as error:
            raise Unknown(f"STATE UNKNOWN: {error}; check it: {_look(action)}; the same command, run again, continues") from error

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
        self._write_class(action.path, action.manifest, action.wanted)
        return self._proven(action.path, action.wanted)

    def _write_class(self, path: str, manifest: Mapping[str, Any], wanted: PriorityClass) -> dict[str, Any]:
        def done(found: Object) -> bool:
            return not unmet_class(wanted, found) and FIELD_MANAGER in managers(found, "f:value")

        return self._write(path, manifest, self._force, done)

    def _proven(self, path: str, wanted: PriorityClass) -> str:
        """Read the class back and compare. Raises NotDone."""
        found = self.session.fetch(path)
        if found is None:
            raise NotDone("it was applied, but does not exist when read back: someone else deletes it")
        wrong = unmet_class(wanted, found)
        if wrong:
            names = ", ".join(wrong.fields)
            raise NotDone(f"it was applied, but not as written when read back: {names}; a webhook or another manager changes it")
        if FIELD_MANAGER not in managers(found, "f:value"):
            raise NotDone(f"it was applied, but the field manager {FIELD_MANAGER} does not own its value when read back")
        default = ""
        if is_default(found):
            # The API server checks for another default before it stores this one, so that two can be created at the same moment.
            defaults = [str(item["metadata"]["name"]) for item in self.session.fetch_all(CLASSES_PATH) if is_default(item)]
            if len(defaults) > 1:
                raise NotDone(
                    f"{' and '.join(defaults)} are all globalDefault when read back, and the lowest value wins; remove it from all but one"
                )
            default = ", the one globalDefault"
        return f"read back: value {value_of(found)}, {policy_of(found)}{default}; field manager {FIELD_MANAGER}"

    def _write(self, path: str, manifest: Mapping[str, Any], force: bool, done: Callable[[Object], bool]) -> dict[str, Any]:
        """Raises the same as Session.written."""
        return self.session.written(path, lambda api: api.apply(path, manifest, force=force), done)

    def _replace(self, action: Action) -> str:
        assert action.before is not None and action.manifest is not None and action.wanted is not None
        old, created = action.before, ""
        manifest = _recreation(old)
        self._recreate = _create_by_hand(manifest)
        try:
            try:
                self.session.deleted(action.path, old, kube.version(old))
            except Exception as error:
                if isinstance(error, (*REFUSED, NotDone)) and not isinstance(error, Unknown):
                    raise
                raise self._restore(action.path, old, created, str(error) or repr(error)) from error
            try:
                wait_gone(self.session, action.path, kube.uid(old))
                answer = self._write_class(action.path, action.manifest, action.wanted)
                # If someone else was faster, the class is theirs.
                created = kube.uid(answer) if class_facts.is_ours(answer) else ""
                return f"{self._proven(action.path, action.wanted)}; it has a new UID"
            except Exception as error:
                raise self._restore(action.path, old, created, str(error) or repr(error)) from error
        finally:
            self._recreate = ""

    def _restore(self, path: str, old: Object, created: str, why: str) -> Exception:
        """Restore a class that was, or may have been, deleted; the error says how that ended, and what to do by hand. `created` is the UID
        of the class that this run created in its place, "" if it knows of none. A class that others have created since stays."""
        manifest, name = _recreation(old), old["metadata"]["name"]
        try:
            found = self.session.fetch(path)
            if found is not None and kube.uid(found) == kube.uid(old) and not is_ending(found):
                return Undone(f"{why}; the old class was not deleted, as read back")
            if found is not None and kube.uid(found) != kube.uid(old):
                if not _is_own(found, created):
                    return _created_by_others(found, manifest, why)
                self.session.deleted(path, found, kube.version(found))
            if found is not None:
                wait_gone(self.session, path, kube.uid(found))
            self._write(path, manifest, False, lambda one: not object_diff(old, one, "class"))
            restored = self.session.fetch(path)
            if restored is None or object_diff(old, restored, "class"):
                raise NotDone("it differs from the old class when read back")
        except Exception as error:
            return RevertFailed(
                f"{why}; and it is not proven that the old class is restored: {str(error) or repr(error)}; STATE UNKNOWN, check: "
                f"kubectl get priorityclass {name}; "
                f"if it is gone, pods that name it cannot be created; this recreates it: {_create_by_hand(manifest)}"
            )
        return Undone(f"{why}; the old class was recreated and read back: value {value_of(restored)}, {policy_of(restored)}")

    def _remove(self, action: Action) -> str:
        assert action.before is not None
        name = str(action.before["metadata"]["name"])
        usage = self.session.asked(read_live).users(name)
        if usage.any:
            raise NotDone(f"it is {usage}; daytwo never removes a class in use")
        self.session.deleted(action.path, action.before, kube.version(action.before))
        wait_gone(self.session, action.path, kube.uid(action.before))
        return "read back: it is gone; right before, nothing named it"

    # ---- a workload's class

    def _assign(self, action: Action) -> str:
        assert action.before is not None and action.manifest is not None and action.workload is not None
        item, old = action.workload, class_of(action.workload.kind, action.before)
        now = self.session.fetch(action.path)
        if now is None or kube.uid(now) != kube.uid(action.before):
            raise NotDone("it was deleted after daytwo read it; run this again")
        if workloads.template(item.kind, now) != workloads.template(item.kind, action.before):
            raise NotDone("its template was changed after daytwo read it; run this again")

        def done(found: Object) -> bool:
            ours = not item.priority_class or FIELD_MANAGER in managers(found, *_FIELD)
            return ours and kube.uid(found) == kube.uid(now) and class_of(item.kind, found) == item.priority_class

        try:
            found = self._write(action.path, action.manifest, self._force, done)
        except Unknown as error:
            why = str(error)
        else:
            try:
                left = self._rolled_out(item, kube.uid(found), item.priority_class)
                return self._has_class(item, kube.uid(found), item.priority_class, self._number(item.priority_class), left)
            except Exception as error:
                why = str(error) or repr(error)
        show(f"  {why}")
        show(f"  reverting to the class {old or 'none'}")
        try:
            proof = self._undo(item, action.before, old)
        except ChangedByOthers as error:
            raise ChangedByOthers(f"{why}; {error}") from error
        except Exception as error:
            raise RevertFailed(
                f"{why}; and the revert is not proven: {str(error) or repr(error)}; STATE UNKNOWN, check: {_look(action)}; REPAIR BY HAND: "
                f"set spec.template.spec.priorityClassName back to {old or 'nothing'}: kubectl edit -n {item.namespace} "
                f"{item.kind.lower()}/{item.name}"
            ) from error
        raise Undone(f"{why}; reverted: {proof}")

    def _undo(self, item: Workload, before: Object, old: str) -> str:
        """Set the old class again, and wait for the end of that roll-out. Raises Foreign if someone else gave it a class since."""
        found = self._class_back(item, before, old)
        if class_of(item.kind, found) != old:
            raise NotDone(f"its template has the class {class_of(item.kind, found) or 'none'}, not {old or 'none'}")
        if item.kind == "StatefulSet":
            self._free_statefulset(item, kube.uid(found), item.priority_class)
        left = self._rolled_out(item, kube.uid(found), old)
        owners = managers(before, *_FIELD) if old else []
        owned = f"; {FIELD_MANAGER} now owns that field instead of {', '.join(owners)}" if owners not in ([], [FIELD_MANAGER]) else ""
        # Pods that were not recreated may have an older number of the class: only their class counts.
        return self._has_class(item, kube.uid(found), old, None, left) + owned

    def _class_back(self, item: Workload, before: Object, old: str) -> Object:
        """The workload with its old class. This overwrites only what this run wrote, and only in the version that was read."""
        deadline = Deadline(CONFLICTS)
        while True:
            there = self.session.fetch(item.path)
            if there is None or kube.uid(there) != kube.uid(before):
                raise ChangedByOthers("it was deleted meanwhile, so there is nothing to revert")
            has = class_of(item.kind, there)
            if has == old:
                return there
            if has != item.priority_class:
                owners = ", ".join(managers(there, *_FIELD)) or "an unknown manager"
                raise ChangedByOthers(f"someone else gave it the class {has or 'none'} meanwhile (owned by {owners}): left as it is now")
            # With `force`, the previous owner lost the field; its value returns, but daytwo owns it then.
            manifest = plan.assignment(item, before, old or None)
            manifest["metadata"]["resourceVersion"] = kube.version(there)
            try:
                return self._write(
                    item.path,
                    manifest,
                    True,
                    lambda one: kube.uid(one) == kube.uid(before) and class_of(item.kind, one) == old,
                )
            except Conflict:
                # Its controller wrote its status meanwhile, or someone else wrote the class.
                if deadline.over:
                    raise
            deadline.pause(LOOK_AGAIN)

    def _free_statefulset(self, item: Workload, uid: str, failed_class: str) -> None:
        """Delete the broken pods of a StatefulSet, and no others: it waits forever for a pod that never gets ready before it recreates it
        from the old template (its documentation calls this "forced rollback")."""
        for pod in self.rolling.pods_of(item.kind, item.namespace, uid):
            if class_of("Pod", pod) == failed_class and not kube.is_ready(pod) and not is_ending(pod):
                path = f"/api/v1/namespaces/{item.namespace}/pods/{quote(str(pod['metadata']['name']), safe='')}"
                self.session.deleted(path, pod)

    def _rolled_out(self, item: Workload, uid: str, priority_class: str) -> str:
        """Wait for the end of a roll-out; returns the old pods that are left, or "". Raises NotDone with the cluster's reasons."""

        def changed(found: Object) -> str:
            if class_of(item.kind, found) == priority_class:
                return ""
            owners = managers(found, *_FIELD)
            return f"someone else changed its class during its roll-out (owned by {', '.join(owners) or 'an unknown manager'})"

        def new(pod: Object) -> bool:
            return class_of("Pod", pod) == priority_class

        return self.rolling.wait(item.kind, item.key, item.path, uid, self._rollout_timeout, changed, new)

    def _number(self, priority_class: str) -> int | None:
        """The value of a class; None for no class. Raises NotDone if the class is gone."""
        if not priority_class:
            return None
        found = self.session.fetch(f"{CLASSES_PATH}/{quote(priority_class, safe='')}")
        if found is None:
            raise NotDone(f"PriorityClass {priority_class} is gone")
        return value_of(found)

    def _has_class(self, item: Workload, uid: str, priority_class: str, number: int | None, left: str) -> str:
        """Check that all pods after a roll-out have the class, and its `number` (None: not checked); returns the proof. `left` are the old
        pods that are left, for the proof. Raises NotDone."""
        pods = [pod for pod in self.rolling.pods_of(item.kind, item.namespace, uid) if is_alive(pod)]
        # Pods whose template names no class have the cluster's default, or none.
        wrong = workload_rollout.wrong_pods(pods, priority_class, number) if priority_class else []
        if wrong:
            raise NotDone("; ".join(wrong))
        text = priority_class + (f" ({number})" if number is not None else "") if priority_class else "no class of their own"
        have = "has" if len(pods) == 1 else "have"
        return f"rolled out; its {counted(len(pods), 'pod')} {have} {text}, read back{'; ' if left else ''}{left}"


def _recreation(item: Object) -> dict[str, Any]:
    """The manifest that recreates a deleted class with its old fields."""
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", **kube.bare(item)}


def _create_by_hand(manifest: Mapping[str, Any]) -> str:
    """The command, as one line for messages; JSON in ASCII, so that no character needs escaping when shown."""
    text = json.dumps(manifest).replace("\x7f", "\\u007f")
    return f"printf %s {shlex.quote(text)} | kubectl create -f -"


def _is_own(found: Object, created: str) -> bool:
    """This run created the class: by its UID; after a lost answer, by the owner of its value (only one run holds the cluster's lock)."""
    return kube.uid(found) == created if created else class_facts.is_ours(found)


def _created_by_others(found: Object, manifest: Mapping[str, Any], why: str) -> ChangedByOthers:
    owners = ", ".join(managers(found, "f:value")) or "someone else"
    return ChangedByOthers(
        f"{why}; and {owners} created a class of that name meanwhile (value {value_of(found)}, {policy_of(found)}): left as it is now; "
        f"to restore the old class, delete the new one, then: {_create_by_hand(manifest)}"
    )


def _look(action: Action) -> str:
    """The command that shows the object."""
    if action.workload is not None:
        return f"kubectl get -n {action.workload.namespace} {action.workload.kind.lower()}/{action.workload.name} -o yaml"
    return f"kubectl get priorityclass {action.path.rpartition('/')[2]} -o yaml --show-managed-fields"
