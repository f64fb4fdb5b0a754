"""How many pods of one workload leave at the same time, over all nodes that a run drains at once, if no budget says so."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from roles.engine.context import StepContext
from roles.engine.objects import LOOK_AGAIN, Session
from roles.engine.outage.evicting import NotEvicted
from roles.engine.outage.model import PodFate, PodWorkload
from roles.engine.outage.reading import Look
from roles.engine.outage.workloads import own_limit, ready_elsewhere
from roles.engine.timeouts import Deadline


class RunLimit:
    """Shared by all drains of a run. The waves of one drain keep `own_limit`; this keeps it over all of them: a pod leaves only if enough
    others of its workload are Ready at that moment. The Eviction API keeps budgets by itself."""

    def __init__(self, session: Session) -> None:
        self._look = Look(session)
        # By the UID of the workload: the UIDs of the pods that are leaving; and the most pods that were Ready in this run.
        self._leaving: dict[str, set[str]] = {}
        self._most: dict[str, int] = {}

    @contextlib.contextmanager
    def turn(self, one: PodFate, seconds: float, context: StepContext) -> Iterator[None]:
        """The time in which a pod leaves, from its eviction until its replacement is Ready. Waits for its begin, at most `seconds`; raises
        NotEvicted after that, or once the run halts; ApiFailure. In its own turn a pod does not wait again."""
        workload = one.workload
        if workload is None or not _limited(one, workload) or one.uid in self._leaving.get(workload.uid, ()):
            yield
            return
        self._await(one, workload, Deadline(seconds, as_given=True), context)
        try:
            yield
        finally:
            self._leaving[workload.uid].discard(one.uid)

    def _await(self, one: PodFate, workload: PodWorkload, deadline: Deadline, context: StepContext) -> None:
        said = False
        while True:
            # One drain decides at a time: a pod counts as leaving before the next one looks.
            with self._look.session.alone(workload.uid):
                why = self._too_few(one, workload)
                if not why:
                    self._leaving[workload.uid].add(one.uid)
                    return
            if not said:
                said = True
                context.say(f"  {one.name}: waits: {why}")
            if halted := context.stopped():
                raise NotEvicted(f"{one.name}: not evicted ({halted}): {why}")
            if deadline.over:
                raise NotEvicted(f"{one.name}: not evicted after {deadline.passed:.0f} s: {why}")
            deadline.pause(LOOK_AGAIN)

    def _too_few(self, one: PodFate, workload: PodWorkload) -> str:
        """Why the pod must not leave now; "" if it may."""
        leaving = self._leaving.setdefault(workload.uid, set())
        most = self._most[workload.uid] = max(self._most.get(workload.uid, 0), workload.ready)
        since = time.monotonic()
        wanted = self._look.wanted(workload, since)
        if wanted is None:
            return ""
        need = min(wanted, most) - own_limit(workload)
        owners = self._look.controllers(workload, since)
        ready = ready_elsewhere(self._look.pods(workload.namespace, since), owners, (), {one.uid, *leaving})
        if ready >= need:
            return ""
        return f"{ready} other pods of {workload} are Ready, and {need} must be, since no budget says how many"


def _limited(one: PodFate, workload: PodWorkload) -> bool:
    """No budget is asked before it leaves, its workload's pods can be counted, no consent lets them stay away, and no other pod must leave
    at the same time."""
    alone = not one.budgets or one.fate == "deleted"
    return one.fate in ("evicted", "deleted") and workload.counted and not one.pending and alone and not one.together
