"""The API over a connection that may be lost at any moment, also during a write.

If the answer to a write is lost, the API server may have applied the write. The object itself shows this: its UID, its resourceVersion,
and the written fields. An error answer means that the write was not applied; but after a lost answer, 404 and 409 may be effects of the
lost write, so only the object counts.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from roles.engine.api import (
    Api,
    ApiConnectionLost,
    ApiError,
    ApiFailure,
    Conflict,
    Denied,
    Forbidden,
    NoApi,
    NotFound,
    find_object,
    list_objects,
)
from roles.engine.api.errors import EvictionRefused, ForwardingForbidden, Invalid, Unauthorized
from roles.engine.context import OutOfReach, Records, Schedulers
from roles.engine.kube import Object, is_ending, uid, version
from roles.engine.objects.outcome import NotDone, Unknown
from roles.engine.timeouts import API_WAIT, Deadline

T = TypeVar("T")

# Seconds: to retry a write that conflicts with a controller's own; between two tries; between two looks.
CONFLICTS = 30.0
PAUSE = 1.0

#: The API server refused the request, or nothing was sent: the request was not applied.
REFUSED = (Unauthorized, Forbidden, NotFound, Conflict, Invalid, Denied, EvictionRefused, ForwardingForbidden)


class Session:
    """Requests to the API, counted, over one Api as long as it answers. Temporary errors are retried, up to `wait` seconds for each
    request. `connect` returns a new Api; it raises NoApi, ApiError or OutOfReach. `recorded`: the events of earlier runs."""

    def __init__(
        self,
        connect: Callable[[], Api],
        wait: float = API_WAIT,
        schedulers: Schedulers = dict,
        recorded: Records = lambda run: (),
    ) -> None:
        self.schedulers = schedulers
        self.recorded = recorded
        self._connect = connect
        self._wait = wait
        self._api: Api | None = None
        self._locks: dict[str, AbstractContextManager[object]] = {}
        #: The number of requests by purpose.
        self.calls: Counter[str] = Counter()

    def alone(self, key: str) -> AbstractContextManager[object]:
        """One task at a time works on what `key` names; others wait."""
        # pyinfra's command line patches this lock, so that other greenlets run meanwhile.
        return self._locks.setdefault(key, threading.Lock())

    def asked(self, ask: Callable[[Api], T], what: str = "look") -> T:
        """The answer to a request that may be repeated. Raises ApiFailure."""
        deadline, settling = Deadline(self._wait), False
        while True:
            try:
                return self._once(ask, what)
            except ApiFailure as error:
                passing = isinstance(error, ApiConnectionLost) or error.passing
                # A restarted API server answers 403 until it has read its RBAC rules.
                if not passing and not (settling and isinstance(error, Forbidden)):
                    raise
                settling = settling or passing
                if deadline.over:
                    if isinstance(error, ApiError):
                        error.rule = f"{error.rule}, tried for {deadline.passed:.0f} s"
                    raise
            deadline.pause(PAUSE)

    def _once(self, ask: Callable[[Api], T], what: str) -> T:
        """One try. Raises ApiFailure, and never the OutOfReach of a broken SSH connection."""
        try:
            if self._api is None:
                self._api = self._connect()
            self.calls[what] += 1
            return ask(self._api)
        except (Forbidden, NotFound, Conflict, Invalid, Denied, EvictionRefused):
            raise  # an answer: this Api still serves
        except OutOfReach as error:
            self._api = None
            raise NoApi(str(error)) from error
        except Exception:
            # Connect again next time: this API server may never come back, and another one may serve.
            self._api = None
            raise

    def fetch(self, path: str) -> dict[str, Any] | None:
        return self.asked(lambda api: find_object(api, path))

    def is_gone(self, path: str, of: str) -> bool:
        """The API server says that the object with the UID `of` is not at `path`, or no longer. One request; False without an answer."""
        with contextlib.suppress(ApiFailure):
            found = self._once(lambda api: find_object(api, path), "look")
            return found is None or uid(found) != of
        return False

    def fetch_all(self, path: str, fields: str = "", labels: str = "") -> list[dict[str, Any]]:
        return self.asked(lambda api: list_objects(api, path, fields=fields, labels=labels))

    def create(self, path: str, body: Mapping[str, Any], what: str, *, dry_run: bool = False) -> None:
        """Create a subresource that may be created twice, as an eviction."""
        self.asked(lambda api: api.create(path, body, dry_run=dry_run), what)

    def unconflicted(self, write: Callable[[], T]) -> T:
        """What `write` returns, which reads an object and writes the version that it has read. A controller may write the object in
        between: then it is called again, for a while. If a field has an owner, that does not help. Raises as `write`."""
        deadline = Deadline(CONFLICTS)
        while True:
            try:
                return write()
            except Conflict as error:
                if error.owners or deadline.over:
                    raise
            deadline.pause(PAUSE)

    def written(self, path: str, send: Callable[[Api], dict[str, Any]], done: Callable[[Object], bool]) -> dict[str, Any]:
        """Send an idempotent write; returns its result.

        After a lost answer, `done` checks on the object at `path` whether the write was applied. Raises an ApiError of REFUSED if it
        surely was not, and Unknown.
        """
        unknown = "there was no answer ({}); when last read, the object did not have the change"
        found = self._settled(path, send, lambda now: now is not None and done(now), unknown)
        assert found is not None  # an answer, or an object that is done
        return found

    def deleted(self, path: str, item: Object, of_version: str = "", *, grace: int | None = None) -> None:
        """Delete exactly this object (if given, at resourceVersion `of_version`, or with `grace` seconds to end). It is no error if the
        object is gone already, another one has its name, or it is being deleted after a lost answer. Raises an ApiError of REFUSED if it
        surely was not deleted, NotDone, and Unknown."""

        def delete(api: Api) -> None:
            with contextlib.suppress(NotFound):
                if grace is None:
                    api.delete(path, uid(item), version=of_version)
                else:
                    api.delete(path, uid(item), version=of_version, grace=grace)

        def gone(now: Object | None) -> bool:
            if now is None or uid(now) != uid(item) or is_ending(now):
                return True
            if of_version and version(now) != of_version:
                raise NotDone("it was changed after daytwo read it, and is not deleted; run this again")
            return False

        try:
            self._settled(path, delete, gone, "there was no answer to its deletion ({}); when last read, it still existed")
        except Conflict:
            if not self.is_gone(path, uid(item)):
                raise

    def _settled(
        self, path: str, send: Callable[[Api], T], done: Callable[[Object | None], bool], unknown: str
    ) -> T | dict[str, Any] | None:
        """The answer to a write, or the object if `done` says after a lost answer that the write was applied. Raises as `written`."""
        deadline, lost = Deadline(self._wait), ""
        while True:
            refused: ApiError | None = None
            try:
                return self._once(send, "patch")
            except REFUSED as error:
                # A webhook that does not answer may do so a moment later.
                again = isinstance(error, Denied) and error.passing and not deadline.over
                if not lost and not again:
                    raise
                if again:
                    deadline.pause(PAUSE)
                    continue
                refused = error
            except ApiFailure as error:
                lost = str(error)
            found = self._after(path, lost)
            if done(found):
                return found
            # A restarted API server answers 403 until it has read its RBAC rules.
            if refused is not None and not (isinstance(refused, Forbidden) and not deadline.over):
                raise refused
            deadline.pause(PAUSE, late=Unknown(unknown.format(lost)))

    def _after(self, path: str, lost: str) -> dict[str, Any] | None:
        """The object after an answer was lost. Raises Unknown."""
        try:
            return self.fetch(path)
        except ApiFailure as error:
            raise Unknown(f"there was no answer ({lost}), and the object could not be read afterwards: {error}") from error
