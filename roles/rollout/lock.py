"""One run at a time on a cluster: a lock on one node, held as long as the operator's side gives a sign of life."""

from __future__ import annotations

import gevent
from gevent.event import Event
from gevent.lock import BoundedSemaphore

from roles.change.bundle import HOME, Holder
from roles.patience import patient
from roles.rollout.remote import Feed, Remote, RemoteError, show
from roles.scripts import templates

# Seconds. A holder that gave no sign of life for LIFE_SECONDS is taken for dead.
LIFE_SECONDS = 60
BEAT_SECONDS = 15
ANSWER_SECONDS = 60


class Locked(Exception):
    """Another run holds the cluster. Names the holder, its command, and the way out."""


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

    def ensure(self) -> None:
        """Take it, or take it again after its connection was lost. Raises Locked, RemoteError."""
        # Several changes may be about to begin at the same moment.
        with self._taking:
            if not self._held:
                self._take()

    def _take(self) -> None:
        if not self._remote.connected and not self._remote.connect():
            raise RemoteError(f"{self._remote.name}: unreachable; the cluster's lock lies there")
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
                home=HOME, run=self._holder.run, take_over=self._take_over, life=round(patient(LIFE_SECONDS)), holder=self._holder.lines
            )
        )

        def on_line(line: str) -> None:
            if line == "locked":
                self._held = True
                gevent.spawn(self._beat, feed)
                answered.set()
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
            self._held = False
            feed.put(None)
            answered.set()

    def _beat(self, feed: Feed) -> None:
        while self._held and feed is self._feed:
            feed.put(".")
            gevent.sleep(BEAT_SECONDS)


def _sentence(host: str, said: dict[str, str]) -> str:
    run = said.get("run", "")
    who = f"run {run} of {said.get('who', '')} holds this cluster (`{said.get('command', '')}`, lock on {host})"
    if said.get("left") == "gone":
        return (
            f"{who}, and its operator's side is gone: look at what it left with deploys/changes.py, "
            f"then take its lock over by name: --data take_over={run}"
        )
    return f"{who}, and it is {said.get('left')}: wait for its end"
