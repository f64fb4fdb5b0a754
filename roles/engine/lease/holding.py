"""Who holds a Lease, by the rules of client-go (tools/leaderelection): a holder renews it. Another process takes it only after it has seen
no renewal for as long as the Lease lasts, by its own clock. So no two clocks are compared.

A holder that cannot renew stops before anybody else can begin: `renew` raises LeaseLost after two thirds of the time that the Lease lasts.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from roles.engine.api import ApiFailure, Conflict
from roles.engine.lease.keeping import LeasePort, Record

#: Seconds that a Lease lasts without a renewal; its holder renews it four times as often.
LASTS = 60
_RENEW_BY = 2 / 3


class LeaseLost(Exception):
    """This process must end: another one may hold the Lease."""


def own_identity() -> str:
    """Of this process and no other: host, process, and a random number."""
    return f"{socket.gethostname()[:60]}_{os.getpid()}_{secrets.token_hex(4)}"


class Holding:
    """One process and one Lease. `seconds`: how long it lasts without a renewal. `clock`: monotonic; `now`: for the times in the Lease,
    which nothing here depends on."""

    def __init__(
        self,
        port: LeasePort,
        identity: str = "",
        seconds: int = LASTS,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._port, self.identity, self.seconds = port, identity or own_identity(), seconds
        self._clock, self._now = clock, now
        self._seen, self._seen_at = Record(), clock()
        self._renewed_at: float | None = None

    @property
    def pause(self) -> float:
        """Seconds between two renewals, and between two tries to take it."""
        return self.seconds / 4

    @property
    def held(self) -> bool:
        """As far as this process knows: it took the Lease, and its time is not over."""
        return self._renewed_at is not None and self._clock() - self._renewed_at < self.seconds * _RENEW_BY

    @property
    def term(self) -> str:
        """The holder and how often the Lease has changed hands: what a holder writes elsewhere names its term by it."""
        return f"{self.identity}/{self._seen.transitions}"

    def take(self) -> str:
        """Try to take the Lease, once. "" if this process holds it now, else who holds it. Raises ApiFailure."""
        asked, found = self._clock(), self._look()
        if found.holder not in ("", self.identity):
            lasts = found.seconds or self.seconds
            left = lasts - (self._clock() - self._seen_at)
            if left > 0:
                since = found.renewed or "at an unknown time"
                return f"{found.holder} holds it, last renewed {since}; it is free after {left:.0f} s without a renewal"
        transitions = found.transitions + (found.holder != self.identity and bool(found.version))
        try:
            self._write(found, asked, transitions)
        except Conflict:
            now = self._look()
            if now.holder != self.identity:
                return f"{now.holder or 'another process'} has just taken it"
            self._renewed_at = asked
        return ""

    def renew(self) -> None:
        """Renew it; to be called every `pause` seconds. Raises LeaseLost if another process holds it, or if it was not renewed for so long
        that another one soon may. An error of the API before that is forgiven."""
        if self._renewed_at is None:
            raise LeaseLost("this process does not hold it")
        asked = self._clock()
        try:
            found = self._look()
            if found.holder != self.identity:
                self._renewed_at = None
                raise LeaseLost(f"{found.holder or 'nobody'} holds it now")
            self._write(found, asked, found.transitions)
        except (ApiFailure, OSError) as error:
            # A conflict says that somebody wrote it meanwhile: the next look tells who holds it.
            if not self.held:
                self._renewed_at = None
                raise LeaseLost(f"it was not renewed for {self.seconds * _RENEW_BY:.0f} s: {error}") from error

    def release(self) -> None:
        """Give it up at an orderly end, so that the next process need not wait. Raises ApiFailure."""
        held, self._renewed_at = self._renewed_at is not None, None
        found = self._look() if held else Record()
        if found.holder == self.identity:
            self._port.write(found, {**self._spec(found.transitions), "holderIdentity": "", "leaseDurationSeconds": 1})

    def _look(self) -> Record:
        found = self._port.read()
        # Another version alone is no renewal: anybody may write an annotation.
        if replace(found, version="") != replace(self._seen, version=""):
            self._seen_at = self._clock()
        self._seen = found
        return found

    def _write(self, before: Record, asked: float, transitions: int) -> None:
        taken = {} if before.holder == self.identity else {"acquireTime": self._text()}
        self._seen = self._port.write(before, {**self._spec(transitions), **taken})
        # From before the request: nobody has seen it later than that.
        self._seen_at = self._renewed_at = asked

    def _spec(self, transitions: int) -> dict[str, Any]:
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self.seconds,
            "renewTime": self._text(),
            "leaseTransitions": transitions,
        }

    def _text(self) -> str:
        return self._now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
