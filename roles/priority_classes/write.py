"""Carries out each change of a PriorityClass, or of a workload's class: writes it, reads it back and compares it, or reverts it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from roles.engine import kube
from roles.engine.api import Api, list_objects
from roles.engine.context import StepContext
from roles.engine.kube import Object, is_ending
from roles.engine.kube.field_managers import FIELD_MANAGER, managers
from roles.engine.kube.fields import bare, name_of
from roles.engine.kube.workloads import COLLECTIONS, object_path
from roles.engine.objects import (
    REFUSED,
    ChangedByOthers,
    FieldOfTemplate,
    NotDone,
    ObjectChange,
    ObjectWriter,
    RevertFailed,
    Session,
    TemplateWriter,
    Undone,
    Unknown,
    pods_have,
    workload_rollout,
)
from roles.engine.timeouts import API_WAIT
from roles.engine.voice import show
from roles.priority_classes.class_facts import ObservedClasses, is_default, policy_of, value_of
from roles.priority_classes.model import CLASS, CLASSES_PATH


def read_live(api: Api) -> ObservedClasses:
    """The classes, and all objects that may name one. Raises ApiError."""
    classes = {name_of(item): item for item in list_objects(api, CLASSES_PATH, wait=API_WAIT)}
    return ObservedClasses(classes=classes, objects={kind: list_objects(api, path, wait=API_WAIT) for kind, path in COLLECTIONS.items()})


class ClassOfPods(FieldOfTemplate):
    """The class that a workload's template names. `value`: that of a class, which its new pods must have."""

    value: Callable[[str], int] | None = None

    def proof(self, pods: Sequence[Object]) -> str:
        # Pods whose template names no class have the cluster's default, or none. Pods that a revert did not recreate may have an older
        # number of the class: only their class counts.
        number = self.value(self.gets) if self.gets and self.value else None
        if self.gets and (wrong := workload_rollout.wrong_pods(pods, self.gets, number)):
            raise NotDone("; ".join(wrong))
        return pods_have(pods, self.gets + (f" ({number})" if number is not None else "") if self.gets else "no class of their own")


class Writer(TemplateWriter):
    """`rollout_timeout` in seconds, never scaled."""

    said = "class"

    def __init__(self, session: Session, *, force: bool, rollout_timeout: float) -> None:
        super().__init__(session, force=force, seconds=rollout_timeout, say=show)
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
            f"{left}. A class is being replaced, and may be gone; this recreates the old one: {self._recreate}" if self._recreate else left
        )

    def write(self, change: ObjectChange, context: StepContext) -> str:
        if change.what == "replace":
            return self._replace(change)
        return super().write(change, context) if change.what == "assign" else ObjectWriter.write(self, change, context)

    def template(self, change: ObjectChange) -> ClassOfPods:
        made = ClassOfPods(change, self._seconds, self.said, force=self._force)
        made.value = self._value
        return made

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

    def _replace(self, change: ObjectChange) -> str:
        assert change.before is not None and change.manifest is not None
        old, created, deleted = change.before, "", False
        self._recreate = _create_by_hand(_recreation(old))
        try:
            self.session.deleted(change.path, old, kube.version(old))
            deleted = True
            self.wait_gone(change.path, kube.uid(old))
            answer = self._applied(change, change.manifest, None, change.is_written, self._force)
            # If someone else was faster, the class is theirs.
            created = kube.uid(answer) if CLASS.is_ours(answer) else ""
            return f"{self.proven(change, kube.uid(answer))}; it has a new UID"
        except Exception as error:
            if not deleted and isinstance(error, (*REFUSED, NotDone)) and not isinstance(error, Unknown):
                raise
            raise self._old_again(change, old, created, str(error) or repr(error)) from error
        finally:
            self._recreate = ""

    def _old_again(self, change: ObjectChange, old: Object, created: str, why: str) -> Exception:
        """Restore a class that was, or may have been, deleted; the error says how that ended, and what to do by hand. `created` is the UID
        of the class that this run created in its place, "" if it knows of none. A class that others have created since stays."""
        try:
            found = self.session.fetch(change.path)
            if found is not None and kube.uid(found) == kube.uid(old) and not is_ending(found):
                return Undone(f"{why}; the old class was not deleted, as read back")
            if found is not None and kube.uid(found) != kube.uid(old):
                if not _is_own(found, created):
                    return self._created_by_others(found, why)
                self.session.deleted(change.path, found, kube.version(found))
            if found is not None:
                self.wait_gone(change.path, kube.uid(found))
            self._applied(change, _recreation(old), None, change.is_as_before, False)
            restored = self.session.fetch(change.path)
            if restored is None or not change.is_as_before(restored):
                raise NotDone("it differs from the old class when read back")
        except Exception as error:
            return RevertFailed(
                f"{why}; and it is not proven that the old class is restored: {str(error) or repr(error)}. STATE UNKNOWN, check: "
                f"kubectl get {change.look}; if the class is gone, no pod that names it can be created. This recreates it: {self._recreate}"
            )
        return Undone(f"{why}; the old class was recreated and read back: value {value_of(restored)}, {policy_of(restored)}")

    def _created_by_others(self, found: Object, why: str) -> ChangedByOthers:
        owners = ", ".join(managers(found, "f:value")) or "someone else"
        return ChangedByOthers(
            f"{why}; and {owners} created a class of that name meanwhile (value {value_of(found)}, {policy_of(found)}): left as it is now. "
            f"To restore the old class, delete the new one, then: {self._recreate}"
        )

    def _value(self, name: str) -> int:
        """The value of a class. Raises NotDone if the class is gone."""
        found = self.session.fetch(object_path(CLASSES_PATH, "", name))
        if found is None:
            raise NotDone(f"PriorityClass {name} is gone")
        return value_of(found)


def _recreation(item: Object) -> dict[str, Any]:
    """The manifest that recreates a deleted class with its old fields."""
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", **bare(item)}


def _create_by_hand(manifest: Mapping[str, Any]) -> str:
    """The command, as one line for messages; JSON in ASCII, so that no character needs escaping when shown."""
    text = json.dumps(manifest).replace("\x7f", "\\u007f")
    return f"printf %s {shlex.quote(text)} | kubectl create -f -"


def _is_own(found: Object, created: str) -> bool:
    """This run created the class: by its UID; after a lost answer, by the owner of its value (only one run holds the cluster's lock)."""
    return kube.uid(found) == created if created else CLASS.is_ours(found)
