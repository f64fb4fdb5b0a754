"""One run at a time on a cluster: a lock on one node, held as long as the operator's side gives a sign of life."""

from __future__ import annotations

import contextlib

import gevent
from gevent.event import Event
from gevent.lock import BoundedSemaphore

from roles.change.bundle import HOME, Holder
from roles.patience import patient
from roles.rollout.remote import RECONNECT_SECONDS, ConnectionLost, Feed, Remote, RemoteError, show
from roles.scripts import templates

# Seconds. A holder that gave no sign of life for LIFE_SECONDS is taken for dead.
LIFE_SECONDS = 60
# Longer than a loaded node takes for a word; a connection that is dead without a sign is found out by it.
STILL_SECONDS = 30
BEAT_SECONDS = 15
ANSWER_SECONDS = 60


class Locked(Exception):
    """Another run holds the cluster, or had it since this one did. Names the holder, its command, and the way out."""


class ClusterLock:
    """The lock as seen by one run. It lies on `remote`, the first control-plane node of the inventory."""

    def __init__(self, remote: Remote, holder: Holder, take_over: str = "") -> None:
        self._remote = remote
        self._holder = holder
        self._take_over = take_over
        self._feed: Feed = Feed()
        self._held = False
        self._answered = Event()
        self._said: dict[str, str] = {}
        self._error = ""
        self._taking = BoundedSemaphore()
        self._still = Event()
        self.fence = ""

    @property
    def generation(self) -> int:
        """The number that the lock's node gave this run: higher than that of every run before it. 0: it has not been taken."""
        number = self.fence.rpartition(" ")[2]
        return int(number) if number.isdigit() else 0

    def ensure(self) -> None:
        """Before each step: it is held, as its node says at this very moment; where its connection was lost it is taken again, unless
        another run had it meanwhile. Raises Locked, RemoteError."""
        # Several changes may be about to begin at the same moment.
        with self._taking:
            if not self._held or not self._holds():
                self._take()

    def _holds(self) -> bool:
        """Ask: a machine that slept does not know that its lock was taken over."""
        self._still.clear()
        self._feed.put("?")
        if self._still.wait(patient(STILL_SECONDS)) and self._held:
            return True
        # No answer: whatever is left of that connection is not to be trusted.
        self._held = False
        self._feed.put(None)
        with contextlib.suppress(ConnectionLost):
            self._remote.reconnect()
        return False

    def _take(self) -> None:
        try:
            self._remote.ensure(patient(RECONNECT_SECONDS))
        except ConnectionLost as error:
            raise RemoteError(f"{error}; the cluster's lock lies there") from error
        self._feed, self._answered, self._said, self._error = Feed(), Event(), {}, ""
        gevent.spawn(self._hold, self._feed, self._answered)
        if not self._answered.wait(patient(ANSWER_SECONDS)):
            raise RemoteError(f"{self._remote.name}: the cluster's lock was not answered within {patient(ANSWER_SECONDS):g} s")
        if self._error:
            raise RemoteError(self._error)
        if not self._held:
            raise Locked(_sentence(self._remote.name, self._said))

    def release(self) -> None:
        """Give it back in order."""
        if self._held:
            self._answered.clear()
            self._feed.put("q")
            self._answered.wait(patient(ANSWER_SECONDS))

    def _hold(self, feed: Feed, answered: Event) -> None:
        script = (
            templates()
            .get_template("lock.sh.j2")
            .render(
                home=HOME,
                run=self._holder.run,
                take_over=self._take_over,
                life=round(patient(LIFE_SECONDS)),
                holder=self._holder.lines,
                had=self.fence,
            )
        )

        def on_line(line: str) -> None:
            if line.startswith("locked "):
                self.fence = line.removeprefix("locked ")
                self._held = True
                gevent.spawn(self._beat, feed)
                answered.set()
            elif line == "still" and feed is self._feed:
                self._still.set()
            elif line.startswith("held "):
                key, _, value = line.removeprefix("held ").partition("=")
                self._said[key] = value
            elif line.startswith("taken over "):
                show(f"the cluster's lock was {line}")

        try:
            answer = self._remote.run(script, on_line=on_line, feed=feed)
            if answer.code != 0 and not self._held:
                self._error = f"{self._remote.name}: the cluster's lock could not be taken: {' '.join(answer.stderr[-3:])}"
        except RemoteError as error:
            # A lock that was held and whose connection went is taken again before the next change.
            self._error = "" if self._held else str(error)
        finally:
            feed.put(None)
            answered.set()
            if feed is self._feed:
                self._held = False
                self._still.set()

    def _beat(self, feed: Feed) -> None:
        while self._held and feed is self._feed:
            feed.put(".")
            gevent.sleep(BEAT_SECONDS)


def _sentence(host: str, said: dict[str, str]) -> str:
    run = said.get("run", "")
    if said.get("left") == "fenced":
        return (
            f"this run lost the cluster's lock on {host}, and {f'run {run} has it now' if run else 'another run had it since'}: its plan "
            "is of before that; see what was done with deploys/changes.py, then run the same command again"
        )
    who = f"run {run} of {said.get('who', '')} holds this cluster (`{said.get('command', '')}`, lock on {host})"
    if said.get("left") == "gone":
        return (
            f"{who}, and its operator's side is gone: look at what it left with deploys/changes.py, "
            f"then take its lock over by name: --data take_over={run}"
        )
    return f"{who}, and it is {said.get('left')}: wait for its end"
