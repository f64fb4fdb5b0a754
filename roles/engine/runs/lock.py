"""One run at a time on a cluster: a lock on one node, held as long as the operator's machine sends a heartbeat. That node numbers the runs
too: it decides their order, not the clocks of operators."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from roles.engine.bounds import digits
from roles.engine.bridge import Feed, Remote
from roles.engine.bridge.tasks import Event, Lock, sleep, spawn
from roles.engine.remote import RemoteError, Shell
from roles.engine.scripts import filled
from roles.engine.timeouts import patient
from roles.engine.transaction.change_script import HOME, Holder
from roles.engine.voice import show

# Seconds. A holder without a heartbeat for LIFE_SECONDS counts as dead.
LIFE_SECONDS = 60
BEAT_SECONDS = 15
# A busy node answers late. A node that waits for a holder of this same run, left behind by a lost connection, answers after LIFE_SECONDS.
ANSWER_SECONDS = 60
TAKE_SECONDS = LIFE_SECONDS + ANSWER_SECONDS
# How long to retry a lost connection to the lock's node: before a change begins, and at the end of a run.
RECONNECT_SECONDS = 120
RELEASE_SECONDS = 60
_NUMBER = re.compile(r"number ([0-9a-f-]{36}) ([0-9]{1,18})")


class Locked(Exception):
    """Another run holds the cluster, or has held it in between. Names the holder, its command, and the way out."""


class ClusterLock:
    """The lock as seen by one run. It is on `remote`, the first control-plane node of the inventory."""

    def __init__(self, remote: Remote, holder: Holder, take_over: str = "") -> None:
        self._remote = remote
        self._holder = holder
        self._take_over = take_over
        self._feed: Feed = Feed()
        self._held = False
        self._answered = Event()
        self._said: dict[str, str] = {}
        self._error = ""
        self._overtaken = False
        self._taking = Lock()
        #: The lock's name and a number: that of a later holder is greater. Empty until the lock is held for the first time.
        self.generation = ""

    def ensure(self) -> None:
        """Hold the lock now: its node confirms that, or it is taken again after a lost connection. Raises Locked, RemoteError.

        If another run has held it in between, this run is refused: its plan may be out of date.
        """
        # Several changes may be about to begin at the same time.
        with self._taking:
            if not (self._held and self._answers()):
                self._take(RECONNECT_SECONDS)

    def _answers(self) -> bool:
        """True if the node still says that the lock is held. A connection without an answer is dropped."""
        self._answered.clear()
        self._feed.put("?")
        if not self._answered.wait(patient(ANSWER_SECONDS)):
            self._held = False
            self._remote.drop()
        return self._held

    def _take(self, reconnect: float) -> None:
        if self.generation and not self._remote.alive:
            show(f"{self._remote.name}: reconnecting: the cluster's lock is on this host, and the connection was lost")
        try:
            self._remote.ensure_connected(patient(reconnect))
        except RemoteError as error:
            raise RemoteError(f"{error}; the cluster's lock is on this host") from error
        self._feed, self._answered, self._said, self._error = Feed(), Event(), {}, ""
        spawn(self._hold, self._feed, self._answered)
        if not self._answered.wait(patient(TAKE_SECONDS)):
            self._remote.drop()
            raise RemoteError(f"{self._remote.name}: no answer about the cluster's lock within {patient(TAKE_SECONDS):g} s")
        if self._error:
            raise RemoteError(self._error)
        if self._overtaken:
            raise Locked(
                f"another run has held this cluster's lock (on {self._remote.name}) since this run lost its connection to it. "
                "The plan of this run may be out of date, and it writes nothing more; run the same command again for a new plan"
            )
        if not self._held:
            raise Locked(_sentence(self._remote.name, self._said))

    def release(self) -> None:
        """Release the lock, over a new connection if the old one was lost. Raises Locked or RemoteError if that fails; the next run must
        then take it over by name."""
        with self._taking:
            if not self.generation or self._overtaken:
                return
            if not (self._held and self._answers()):
                self._take(RELEASE_SECONDS)
            self._answered.clear()
            self._feed.put("q")
            self._answered.wait(patient(ANSWER_SECONDS))
            self.generation = ""

    def release_or_warn(self) -> None:
        """`release` at the end of a run: an error is only shown."""
        try:
            self.release()
        except Exception as error:
            show(
                f"WARNING: the cluster's lock could not be released: {error}; "
                f"the next run must take it over by name: --data take_over={self._holder.run}"
            )

    def _hold(self, feed: Feed, answered: Event) -> None:
        script = filled(
            "lock.sh.j2",
            home=HOME,
            run=self._holder.run,
            generation=self.generation,
            take_over=self._take_over,
            life=round(patient(LIFE_SECONDS)),
            holder=self._holder.lines,
        )

        def on_line(line: str) -> None:
            if feed is not self._feed:
                return
            if line.startswith("locked "):
                self.generation = line.removeprefix("locked ")
                self._held = True
                spawn(self._beat, feed)
                answered.set()
            elif line == "held":
                answered.set()
            elif line == "overtaken":
                self._overtaken = True
            elif line.startswith("held "):
                key, _, value = line.removeprefix("held ").partition("=")
                self._said[key] = value
            elif line.startswith("taken over "):
                show(f"the cluster's lock was taken over from run {line.removeprefix('taken over ')}")

        error = ""
        try:
            answer = self._remote.run(script, on_line=on_line, feed=feed)
            if answer.code != 0:
                error = f"{self._remote.name}: the cluster's lock could not be taken: {' '.join(answer.stderr[-3:])}"
        except RemoteError as lost:
            error = str(lost)
        feed.put(None)
        # The result of an abandoned attempt does not count. A lock that was held and lost is taken again before the next change.
        if feed is self._feed:
            self._error = "" if self._held else error
            self._held = False
            answered.set()

    def _beat(self, feed: Feed) -> None:
        while self._held and feed is self._feed:
            feed.put(".")
            sleep(BEAT_SECONDS)


def _sentence(host: str, said: Mapping[str, str]) -> str:
    """Which run holds the lock on this host, and what to do; `said`: the run, who and command of its holder, and what is `left` of it."""
    run = said.get("run", "")
    who = f"run {run} of {said.get('who', '')} holds this cluster (`{said.get('command', '')}`, lock on {host})"
    if said.get("left") == "gone":
        return (
            f"{who}, and its operator's side is gone: deploys/changes.py shows what it left; "
            f"then take its lock over by name: --data take_over={run}"
        )
    return f"{who}, and it is {said.get('left')}: wait until it ends"


def seen_holder(host: str, said: Mapping[str, str], boot: str, uptime: float) -> str:
    """The same of a lock that was only read; `boot` and `uptime` (seconds) are the host's own."""
    expires = digits(said.get("expires", "")) if said.get("boot") == boot else None
    left = "gone" if expires is None or expires <= uptime else f"alive; its heartbeat is valid for {expires - int(uptime)} s"
    return _sentence(host, {**said, "left": left})


# ---- the number of a run


@dataclass(frozen=True)
class RunNumber:
    """`number` in the count named `count`; numbers of different counts do not compare."""

    count: str
    number: int

    @property
    def recorded(self) -> dict[str, str | int]:
        """As plain data."""
        return {"count": self.count, "number": self.number}


def number_script(home: str = HOME) -> str:
    """A script for POSIX sh as root; prints `number COUNT NUMBER`."""
    return filled("run_number.sh.j2", home=home)


def parse_number(lines: list[str]) -> RunNumber | None:
    found = next((match for line in lines if (match := _NUMBER.fullmatch(line.strip()))), None)
    return RunNumber(found[1], int(found[2])) if found else None


def run_number(remote: Shell) -> RunNumber:
    """The next number from the node that holds the cluster's lock. Raises RemoteError."""
    answer = remote.run(number_script(), timeout=patient(ANSWER_SECONDS))
    found = parse_number(answer.stdout) if answer.code == 0 else None
    if found is None:
        raise RemoteError(f"{remote.name}: the run could not get its number, and nothing begins without it: {answer.complaint}")
    return found
