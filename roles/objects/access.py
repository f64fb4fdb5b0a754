"""The API over a connection that may be lost at any moment, in the middle of a write as well.

A write whose answer was lost may have been carried out. What became of it is read from the object itself: by its UID, its
resourceVersion, and the fields that were written. An error that the API server answered with says that it was not; but after a lost
answer 404 and 409 may be what the lost one did, and then it is the object that counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import gevent

from roles.api import (
    Api,
    ApiError,
    Conflict,
    ConnectionLost,
    Forbidden,
    ForwardingForbidden,
    Invalid,
    NotFound,
    Unauthorized,
    find_object,
    list_objects,
)
from roles.objects.live import Object, is_ending, uid, version
from roles.patience import patient
from roles.proof import NoApi
from roles.rollout.remote import RemoteError

T = TypeVar("T")

# Seconds. An API server that restarts is away for about 40; the pause between two tries.
API_WAIT = 60.0
PAUSE = 1.0

#: The API server's own no, or nothing was sent at all: what was asked for was not carried out.
REFUSED = (Unauthorized, Forbidden, NotFound, Conflict, Invalid, ForwardingForbidden)


class NotDone(Exception):
    """A write that did not come to what was wanted; says why."""


class Unknown(NotDone):
    """A write that may have been carried out and may not, and its object does not tell; says what was tried."""


def once(connect: Callable[[], Api], ask: Callable[[Api], T]) -> T:
    """One try over a new connection. Raises ApiError or NoApi, and never the RemoteError of an SSH connection that broke beneath."""
    try:
        return ask(connect())
    except RemoteError as error:
        raise NoApi(str(error)) from error


class Access:
    """`connect` gives the API for one use: the connection may be another one by now; it raises NoApi, ApiError or RemoteError."""

    def __init__(self, connect: Callable[[], Api]) -> None:
        self._connect = connect

    def asked(self, ask: Callable[[Api], T]) -> T:
        """Ask what changes nothing, over a new connection where the one before was lost. Raises ApiError, NoApi."""
        until = time.monotonic() + patient(API_WAIT)
        while True:
            try:
                return once(self._connect, ask)
            except (ConnectionLost, NoApi):
                if time.monotonic() > until:
                    raise
                gevent.sleep(PAUSE)

    def fetch(self, path: str) -> dict[str, Any] | None:
        return self.asked(lambda api: find_object(api, path, wait=API_WAIT))

    def fetch_all(self, path: str, fields: str = "", labels: str = "") -> list[dict[str, Any]]:
        return self.asked(lambda api: list_objects(api, path, fields=fields, labels=labels, wait=API_WAIT))

    def written(self, path: str, send: Callable[[Api], T], done: Callable[[Object], bool]) -> T | dict[str, Any]:
        """Carry out a write that comes to the same when it is carried out twice; what it came to.

        `done` tells by the object at `path`, as it is read after an answer was lost, that it was carried out. Raises an ApiError of
        REFUSED where it surely was not, and Unknown.
        """
        until = time.monotonic() + patient(API_WAIT)
        lost = ""
        while True:
            refused: ApiError | None = None
            try:
                return once(self._connect, send)
            except REFUSED as error:
                if not lost:
                    raise
                refused = error
            except (ApiError, NoApi) as error:
                lost = str(error)
            found = self._after(path, lost)
            if found is not None and done(found):
                return found
            # An API server that just came back answers 403 until it has read its RBAC rules.
            if refused is not None and not (isinstance(refused, Forbidden) and time.monotonic() <= until):
                raise refused
            if time.monotonic() > until:
                raise Unknown(f"there was no answer ({lost}); when last read, it was not carried out")
            gevent.sleep(PAUSE)

    def deleted(self, path: str, item: Object, of_version: str = "") -> None:
        """Delete that very object (of resourceVersion `of_version`, where given); one that is gone already, or is being deleted after an
        answer was lost, is no error. Raises an ApiError of REFUSED where it surely was not deleted, NotDone, and Unknown."""
        until = time.monotonic() + patient(API_WAIT)
        lost = ""
        while True:
            refused: ApiError | None = None
            try:
                return once(self._connect, lambda api: api.delete(path, uid(item), version=of_version))
            except NotFound:
                return None
            except REFUSED as error:
                if not lost:
                    raise
                refused = error
            except (ApiError, NoApi) as error:
                lost = str(error)
            found = self._after(path, lost)
            if found is None or uid(found) != uid(item) or is_ending(found):
                return None
            if of_version and version(found) != of_version:
                raise NotDone("it was changed since it was looked at, and is not deleted; run this again, from a new look")
            if refused is not None and not (isinstance(refused, Forbidden) and time.monotonic() <= until):
                raise refused
            if time.monotonic() > until:
                raise Unknown(f"there was no answer to its deletion ({lost}); when last read, it was still there")
            gevent.sleep(PAUSE)

    def _after(self, path: str, lost: str) -> dict[str, Any] | None:
        """The object after an answer was lost. Raises Unknown."""
        try:
            return self.fetch(path)
        except (ApiError, NoApi) as error:
            raise Unknown(f"there was no answer ({lost}), and what became of it could not be read: {error}") from error
