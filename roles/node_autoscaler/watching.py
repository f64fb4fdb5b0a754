"""Pass after pass, by the one process that holds the Lease; until it is stopped, or cannot renew the Lease."""

from __future__ import annotations

from roles.engine.api import ApiFailure
from roles.engine.bridge import on_interrupt
from roles.engine.bridge.tasks import Event, sleep, spawn
from roles.engine.lease import Holding, LeaseLost
from roles.engine.voice import conclude, show
from roles.node_autoscaler.passing import Passing


class Watching:
    """`interval`: seconds between two passes; None: one pass, and no waiting for another process."""

    def __init__(self, passing: Passing, holding: Holding, interval: float | None) -> None:
        self._passing, self._holding, self._interval = passing, holding, interval
        self._stop = Event()
        self._lost = ""

    def run(self) -> bool:
        """True for an orderly end, in which nothing failed."""
        on_interrupt(self.interrupt)
        if not self._taken():
            return False
        renewing = spawn(self._renew)
        try:
            well = self._passes()
        finally:
            renewing.kill()
            self._release()
        if self._lost:
            conclude(f"STOPPED: this process must not go on: {self._lost}", halted=True)
            return False
        return well

    def interrupt(self) -> None:
        """A signal: what is in progress finishes."""
        if not self._stop.is_set():
            show("\nstopping: what is in progress finishes")
            self._stop.set()
            self._passing.interrupt()

    def _taken(self) -> bool:
        said = ""
        while not self._stop.is_set():
            try:
                holder = self._holding.take()
            except ApiFailure as error:
                holder = f"it cannot be read: {error}"
            if not holder:
                return True
            if self._interval is None:
                conclude(f"NOT STARTED: the Lease of this loop: {holder}", halted=True)
                return False
            # The seconds that are left count down.
            if holder.partition(",")[0] != said:
                said = holder.partition(",")[0]
                show(f"\nwaiting for the Lease of this loop: {holder}")
            self._stop.wait(self._holding.pause)
        conclude("STOPPED: by a signal, while another process held the Lease")
        return False

    def _renew(self) -> None:
        """Also while what is in progress finishes after a signal; the end of the run ends it."""
        while True:
            sleep(self._holding.pause)
            if not self._renewed():
                return

    def _renewed(self) -> bool:
        try:
            self._holding.renew()
        except LeaseLost as error:
            self._lost = str(error)
            show(f"\nthe Lease of this loop is lost: {error}")
            self._stop.set()
            self._passing.interrupt()
            return False
        return True

    def _passes(self) -> bool:
        while True:
            decision = self._passing.once()
            if decision is not None and decision.kind == "stop":
                conclude(f"STOPPED: {decision.why}", halted=True)
                return False
            if self._interval is None:
                if decision is not None:
                    conclude(f"DONE: {decision.line}")
                else:
                    conclude("FAILED: see above", halted=True)
                return decision is not None
            if self._stop.wait(self._interval):
                if not self._lost:
                    conclude("STOPPED: by a signal")
                return True

    def _release(self) -> None:
        try:
            self._holding.release()
        except ApiFailure as error:
            show(f"WARNING: the Lease could not be released, so the next process waits until it ends by itself: {error}")
