"""Writing one of kubeadm's ConfigMaps: read, edited, written on the very version that was read, and read back."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import gevent

from roles.api import FIELD_MANAGER, Api, ApiError, Conflict, ConnectionLost, find_object
from roles.formats import FormatError
from roles.kubeadm.lasting import KEYS, NAMESPACE, ConfigMap, config_map, path_of
from roles.kubeadm.plan import Edit
from roles.patience import patient
from roles.proof import NoApi
from roles.rollout.remote import RemoteError, show
from roles.rollout.run import Fields

# Seconds. An API server that restarts is away for about 40; for as long a ConfigMap that others write again and again is tried.
API_WAIT = 60.0
CONFLICTS = 30.0
PAUSE = 0.5

T = TypeVar("T")


class NotWritten(Exception):
    """What was to last does not; says why."""


def write(connect: Callable[[], Api], name: str, edit: Edit, begin: Callable[[Fields], None]) -> str:
    """Make the edit in the ConfigMap as it is now, whoever wrote it last; how it was proven, in words.

    `connect` gives the API anew for each use; `begin` is called with the fields before each write that differs from the one before.
    Raises NotWritten, Refusal, ApiError or NoApi.
    """
    until = time.monotonic() + CONFLICTS
    noted: Fields = ()
    while True:
        found = _read(connect, name)
        try:
            edited = edit(found.data)
        except FormatError as error:
            raise NotWritten(str(error.in_file(f"ConfigMap {NAMESPACE}/{name}"))) from None
        if not edited.fields:
            # By somebody else since the plan; or by us, and the answer was lost.
            break
        fields = [field.recorded for field in edited.fields]
        if fields != noted:
            noted = fields
            begin(fields)
        manifest = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            # Another one under this name, or another version of it, is a conflict: old bytes never go over new ones.
            "metadata": {"name": name, "namespace": NAMESPACE, "uid": found.uid, "resourceVersion": found.version},
            "data": {KEYS[name]: edited.after.decode()},
        }
        try:
            # kubeadm owned the field; it writes the object whole, and takes it back without asking.
            _asked(connect, lambda api: api.apply(path_of(name), manifest, force=True, wait=API_WAIT))  # noqa: B023 - called at once
        except Conflict as error:
            if time.monotonic() > until:
                raise NotWritten(f"others write it again and again: {error}") from error
            show(f"  {name}: it was changed since it was read; reading it again")
            gevent.sleep(PAUSE)
            continue
        except ApiError as error:
            # No answer: it may have been written, and the next look tells.
            if not error.passing or time.monotonic() > until + patient(API_WAIT):
                raise
            gevent.sleep(PAUSE)
            continue
        break
    return _proven(connect, name, edit, bool(noted))


def _proven(connect: Callable[[], Api], name: str, edit: Edit, written: bool) -> str:
    item = _item(connect, name)
    if wrong := edit(config_map(item).data).fields:
        raise NotWritten(f"it was written, and when read back {'.'.join(wrong[0].path)} is another: somebody else changes it")
    if not written:
        return "read back: it says so already"
    owners = {str(entry.get("manager")) for entry in (item.get("metadata") or {}).get("managedFields") or ()}
    if FIELD_MANAGER not in owners:
        raise NotWritten(f"it was written, and the field manager {FIELD_MANAGER} has no part in it when read back")
    return f"read back: resourceVersion {config_map(item).version}, field manager {FIELD_MANAGER}"


def _read(connect: Callable[[], Api], name: str) -> ConfigMap:
    found = config_map(_item(connect, name))
    if found.text is None:
        raise NotWritten(f"ConfigMap {NAMESPACE}/{name} has no key {KEYS[name]}")
    return found


def _item(connect: Callable[[], Api], name: str) -> dict[str, Any]:
    item = _asked(connect, lambda api: find_object(api, path_of(name), wait=API_WAIT))
    if item is None:
        raise NotWritten(f"ConfigMap {NAMESPACE}/{name} is gone")
    return item


def _asked(connect: Callable[[], Api], ask: Callable[[Api], T]) -> T:
    """Ask what may be asked twice, over a new connection where the one before was lost."""
    until = time.monotonic() + API_WAIT
    while True:
        try:
            return ask(connect())
        except (ConnectionLost, NoApi):
            if time.monotonic() > until:
                raise
        except RemoteError as error:
            if time.monotonic() > until:
                raise NoApi(str(error)) from error
        gevent.sleep(PAUSE)
