"""Carries out each change of a PriorityClass, or of a workload's class: writes it, reads it back and compares it, or reverts it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from roles.engine import kube
from roles.engine.api import Api, list_objects
from roles.engine.bridge import show
from roles.engine.context import StepContext
from roles.engine.detail import counted
from roles.engine.kube import Object, is_ending, workloads
from roles.engine.kube.field_managers import FIELD_MANAGER, managers
from roles.engine.kube.fields import at, name_of, with_meta
from roles.engine.kube.pods import is_alive
from roles.engine.kube.workloads import COLLECTIONS, class_of
from roles.engine.objects import (
    REFUSED,
    ChangedByOthers,
    NotDone,
    ObjectChange,
    ObjectWriter,
    RevertFailed,
    Reverting,
    RollOuts,
    Session,
    Undone,
    Unknown,
    object_diff,
    workload_rollout,
)
from roles.engine.timeouts import API_WAIT
from roles.priority_classes.class_facts import ObservedClasses, is_default, policy_of, value_of
from roles.priority_classes.model import CLASS, CLASS_OF_PODS, CLASSES_PATH, WORKLOADS

_FIELD = tuple(f"f:{part}" for part in CLASS_OF_PODS)


def read_live(api: Api) -> ObservedClasses:
    """The classes, and all objects that may name one. Raises ApiError."""
    classes = {name_of(item): item for item in list_objects(api, CLASSES_PATH, wait=API_WAIT)}
    return ObservedClasses(classes=classes, objects={kind: list_objects(api, path, wait=API_WAIT) for kind, path in COLLECTIONS.items()})


@dataclass(frozen=True)
class _Workload:
    """The workload of a change, and the class that it gets."""

    kind: str
    namespace: str
    name: str
    path: str
    priority_class: str

    @classmethod
    def of(cls, change: ObjectChange) -> _Workload:
        return cls(change.kind.name, change.namespace, change.own_name, change.path, str(at(change.manifest or {}, CLASS_OF_PODS) or ""))

    @property
    def look(self) -> str:
        """As kubectl takes it."""
        return f"-n {self.namespace} {self.kind.lower()}/{self.name}"

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.kind.lower()}/{self.name}"


class Writer(ObjectWriter):
    """`rollout_timeout` in seconds, never scaled."""

    def __init__(self, session: Session, *, force: bool, rollout_timeout: float) -> None:
        super().__init__(session, force=force)
        self.rolling = RollOuts(session, show)
        self.warnings = self.rolling.warnings
        self._rollout_timeout = rollout_timeout
        # While a class is being replaced: the command that recreates the old one; else "".
        self._recreate = ""

    def result(self, change: ObjectChange, api: Api) -> Object | None:
        if change.what == "replace" and change.before is not None:
            # An apply on the existing class would be refused: only the deletion can have a dry run.
            super().result(replace(change, manifest=None), api)
            return change.manifest
        found = super().result(change, api)
        return {**found, "globalDefault": True} if found is not None and change.trial is not None else found

    def leaving(self) -> str:
        """What a second Ctrl-C leaves behind."""
        left = "a started roll-out continues in the cluster; run this again to wait for its end"
        return (
            f"{left}; a class is being replaced, and may be gone; this recreates the old one: {self._recreate}" if self._recreate else left
        )

    def write(self, change: ObjectChange, context: StepContext) -> str:
        if change.what == "replace":
            return self._replace(change)
        return self._assign(change, context) if change.what == "assign" else super().write(change, context)

    def proven(self, change: ObjectChange, of: str) -> str:
        found = self.session.fetch(change.path)
        self.read_back(change, of, found)
        assert found is not None
        if not CLASS.marked(found):
            raise NotDone(f"it was applied, but the field manager {FIELD_MANAGER} does not own its value when read back")
        default = ""
        if is_default(found):
            # The API server checks for another default before it stores this one, so that two can be created at the same moment.
            defaults = [name_of(item) for item in self.session.fetch_all(CLASSES_PATH) if is_default(item)]
            if len(defaults) > 1:
                raise NotDone(
                    f"{' and '.join(defaults)} are all globalDefault when read back, and the lowest value wins; remove it from all but one"
                )
            default = ", the one globalDefault"
        return f"read back: value {value_of(found)}, {policy_of(found)}{default}; field manager {FIELD_MANAGER}"

    def kept(self, change: ObjectChange) -> str:
        usage = self.session.asked(read_live).users(change.own_name)
        return f"it is {usage}; daytwo never removes a class in use" if usage.any else ""

    def _write(self, path: str, manifest: Mapping[str, Any], force: bool, done: Callable[[Object], bool]) -> dict[str, Any]:
        """Raises the same as Session.written."""
        return self.session.written(path, lambda api: api.apply(path, manifest, force=force), done)

    def _replace(self, action: ObjectChange) -> str:
        assert action.before is not None and action.manifest is not None
        old, created = action.before, ""
        manifest = _recreation(old)
        self._recreate = _create_by_hand(manifest)
        try:
            try:
                self.session.deleted(action.path, old, kube.version(old))
            except Exception as error:
                if isinstance(error, (*REFUSED, NotDone)) and not isinstance(error, Unknown):
                    raise
                raise self._old_again(action.path, old, created, str(error) or repr(error)) from error
            try:
                self.wait_gone(action.path, kube.uid(old))
                answer = self._write(action.path, action.manifest, self._force, action.is_written)
                # If someone else was faster, the class is theirs.
                created = kube.uid(answer) if CLASS.is_ours(answer) else ""
                return f"{self.proven(action, kube.uid(answer))}; it has a new UID"
            except Exception as error:
                raise self._old_again(action.path, old, created, str(error) or repr(error)) from error
        finally:
            self._recreate = ""

    def _old_again(self, path: str, old: Object, created: str, why: str) -> Exception:
        """Restore a class that was, or may have been, deleted; the error says how that ended, and what to do by hand. `created` is the UID
        of the class that this run created in its place, "" if it knows of none. A class that others have created since stays."""
        manifest, name = _recreation(old), name_of(old)
        try:
            found = self.session.fetch(path)
            if found is not None and kube.uid(found) == kube.uid(old) and not is_ending(found):
                return Undone(f"{why}; the old class was not deleted, as read back")
            if found is not None and kube.uid(found) != kube.uid(old):
                if not _is_own(found, created):
                    return _created_by_others(found, manifest, why)
                self.session.deleted(path, found, kube.version(found))
            if found is not None:
                self.wait_gone(path, kube.uid(found))
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

    # ---- a workload's class

    def _assign(self, action: ObjectChange, context: StepContext) -> str:
        assert action.before is not None and action.manifest is not None
        item, old = _Workload.of(action), class_of(action.kind.name, action.before)
        if (now := self._unchanged(action)) is None or workloads.template(item.kind, now) != workloads.template(item.kind, action.before):
            raise NotDone("its template was changed after daytwo read it; run this again")

        def done(found: Object) -> bool:
            ours = not item.priority_class or FIELD_MANAGER in managers(found, *_FIELD)
            return ours and kube.uid(found) == kube.uid(now) and class_of(item.kind, found) == item.priority_class

        def proven(found: Object) -> str:
            left = self._rolled_out(item, kube.uid(found), item.priority_class)
            return self._has_class(item, kube.uid(found), item.priority_class, self._number(item.priority_class), left)

        manifest, before = action.manifest, action.before
        by_hand = f"set spec.template.spec.priorityClassName back to {old or 'nothing'}: kubectl edit {item.look}"
        reverting = Reverting(lambda: self._undo(item, before, old), f"to the class {old or 'none'}", item.look, by_hand)
        return reverting.unless(lambda: self._write(action.path, manifest, self._force, done), proven, context.say)

    def _undo(self, item: _Workload, before: Object, old: str) -> str:
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
        return f"reverted: {self._has_class(item, kube.uid(found), old, None, left)}{owned}"

    def _class_back(self, item: _Workload, before: Object, old: str) -> Object:
        """The workload with its old class. This overwrites only what this run wrote, and only in the version that was read."""

        def back() -> Object:
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
            manifest = WORKLOADS[item.kind].manifest(item.namespace, item.name, {CLASS_OF_PODS: old} if old else {})
            manifest = with_meta(manifest, uid=kube.uid(before), resourceVersion=kube.version(there))
            done = lambda one: kube.uid(one) == kube.uid(before) and class_of(item.kind, one) == old  # noqa: E731
            return self._write(item.path, manifest, True, done)

        return self.session.unconflicted(back)

    def _free_statefulset(self, item: _Workload, uid: str, failed_class: str) -> None:
        """Delete the broken pods of a StatefulSet, and no others: it waits forever for a pod that never gets ready before it recreates it
        from the old template (its documentation calls this "forced rollback")."""
        for pod in self.rolling.pods_of(item.kind, item.namespace, uid):
            if class_of("Pod", pod) == failed_class and not kube.is_ready(pod) and not is_ending(pod):
                path = f"/api/v1/namespaces/{item.namespace}/pods/{quote(name_of(pod), safe='')}"
                self.session.deleted(path, pod)

    def _rolled_out(self, item: _Workload, uid: str, priority_class: str) -> str:
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

    def _has_class(self, item: _Workload, uid: str, priority_class: str, number: int | None, left: str) -> str:
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
    return kube.uid(found) == created if created else CLASS.is_ours(found)


def _created_by_others(found: Object, manifest: Mapping[str, Any], why: str) -> ChangedByOthers:
    owners = ", ".join(managers(found, "f:value")) or "someone else"
    return ChangedByOthers(
        f"{why}; and {owners} created a class of that name meanwhile (value {value_of(found)}, {policy_of(found)}): left as it is now; "
        f"to restore the old class, delete the new one, then: {_create_by_hand(manifest)}"
    )
