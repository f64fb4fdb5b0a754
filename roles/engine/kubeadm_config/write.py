"""Writes one of kubeadm's ConfigMaps: read, edit, write under the precondition of the version that was read, read back."""

from __future__ import annotations

from typing import Any

from roles.engine.api import Conflict
from roles.engine.context import Fields, StepContext
from roles.engine.editing import FormatError
from roles.engine.kube import Object, field_managers
from roles.engine.kube.field_managers import FIELD_MANAGER
from roles.engine.kubeadm_config.plan import ConfigMapEdit
from roles.engine.kubeadm_config.stored import KEYS, NAMESPACE, ConfigMap, config_map, path_of
from roles.engine.objects import Session, Unknown


class NotWritten(Exception):
    """The ConfigMap does not have the settings; says why."""


def write(session: Session, name: str, edit: ConfigMapEdit, context: StepContext) -> str:
    """Apply the edit to the current content of the ConfigMap; returns the proof as text.

    Calls `begin` with the changed fields before each write whose fields differ from those of the previous write.
    Raises NotWritten, Refusal, ApiFailure.
    """
    noted: Fields = ()

    def done(item: Object) -> bool:
        return not edit(config_map(item).data).fields and FIELD_MANAGER in _managers(item)

    def once() -> None:
        nonlocal noted
        found = _read(session, name)
        try:
            edited = edit(found.data)
        except FormatError as error:
            raise NotWritten(str(error.in_file(f"ConfigMap {NAMESPACE}/{name}"))) from None
        if not edited.fields:
            # Someone else wrote the values since the plan; or daytwo did, and the answer was lost.
            return
        fields = [field.recorded for field in edited.fields]
        if fields != noted:
            noted = fields
            context.begin(fields)
        manifest = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            # A recreated ConfigMap, or another version, is a conflict: old content never overwrites new content.
            "metadata": {"name": name, "namespace": NAMESPACE, "uid": found.uid, "resourceVersion": found.version},
            "data": {KEYS[name]: edited.after.decode()},
        }
        try:
            # kubeadm owned the field; it writes the whole object, and takes the field back by force.
            session.written(path_of(name), lambda api: api.apply(path_of(name), manifest, force=True), done)
        except Conflict:
            context.say(f"  {name}: it was changed since it was read; reading it again")
            raise

    try:
        session.unconflicted(once)
    except Unknown as error:
        look = f"kubectl get configmap -n {NAMESPACE} {name} -o yaml"
        raise NotWritten(f"STATE UNKNOWN: {error}. Check it: {look}; the same command, run again, continues from there") from error
    except Conflict as error:
        raise NotWritten(f"others keep changing it: {error}") from error
    return _proven(session, name, edit, bool(noted))


def _proven(session: Session, name: str, edit: ConfigMapEdit, written: bool) -> str:
    item = _item(session, name)
    if wrong := edit(config_map(item).data).fields:
        raise NotWritten(f"it was written, but {'.'.join(wrong[0].path)} differs when read back: someone else changes it")
    if not written:
        return "read back: it has the values already"
    if FIELD_MANAGER not in _managers(item):
        raise NotWritten(f"it was written, but the field manager {FIELD_MANAGER} owns nothing of it when read back")
    return f"read back: resourceVersion {config_map(item).version}, field manager {FIELD_MANAGER}"


def _read(session: Session, name: str) -> ConfigMap:
    found = config_map(_item(session, name))
    if found.text is None:
        raise NotWritten(f"ConfigMap {NAMESPACE}/{name} has no key {KEYS[name]}")
    return found


def _item(session: Session, name: str) -> dict[str, Any]:
    item = session.fetch(path_of(name))
    if item is None:
        raise NotWritten(f"ConfigMap {NAMESPACE}/{name} is gone")
    return item


def _managers(item: Object) -> set[str]:
    return {*field_managers.writers(item)}
