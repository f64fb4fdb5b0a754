"""One node that a run takes out of service, and gives back or leaves, around what the run does there."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from roles.engine.commands import command
from roles.engine.context import ClusterStep, Fields, StepContext
from roles.engine.kube import uid
from roles.engine.kube.workloads import node_path
from roles.engine.objects import NotDone, Session
from roles.engine.outage.cordon import CordonBack, give_back
from roles.engine.outage.drainer import Drainer
from roles.engine.outage.evicting import RunLimit
from roles.engine.outage.mark import Mark
from roles.engine.outage.model import DrainConsents, DrainPlan, Purpose
from roles.engine.outage.plan import narrowed, plan_drain
from roles.engine.outage.reading import cluster_time, read_drain
from roles.engine.outage.surge import end_surges


class NodeOutage:
    """Cordon and drain a node (`take`), what the run does with it, uncordon it (`give_back`); without that it stays cordoned.

    `node`: the name of a Node; `why` in sentences; `boot`, and `reason`, as in its mark, or `mark`: all of it. A cordon that the node has
    already stays at the end, whoever set it, unless `purpose` resumes it. `limit` is that of the run, if it may take other nodes meanwhile.
    """

    def __init__(
        self,
        session: Session,
        node: str,
        consents: DrainConsents,
        run: str,
        purpose: Purpose,
        *,
        why: tuple[str, ...] = (),
        boot: str = "",
        reason: str = "",
        mark: Mark | None = None,
        limit: RunLimit | None = None,
    ) -> None:
        self.node, self.why = node, why
        self._session, self._consents, self._purpose = session, consents, purpose
        self._mark = mark or Mark(run, purpose.name, boot, why=reason)
        self._limit = limit or RunLimit(session)
        self._drainer: Drainer | None = None
        #: This outage has cordoned the node (or taken over the cordon of an earlier run), and not uncordoned it.
        self.cordoned = False
        #: The pods (NAMESPACE/NAME) that it has moved.
        self.moved: list[str] = []

    def plan(self) -> DrainPlan:
        """What the drain would do now; its `refusals` say why it cannot. Raises ApiFailure."""
        live = read_drain(self._session)
        plan = plan_drain(live, [self.node], narrowed(self._consents, live, [self.node]), cluster_time(self._session))
        # Also a cordon that a run has set after this one was planned stays.
        return replace(plan, nodes=tuple(map(self._purpose.seen, plan.nodes)))

    def take(self, context: StepContext) -> str:
        """Cordon and drain the node by a new plan; returns the proof. If it fails, the node gets back the cordon that it had, or none,
        and the error says so. Raises NotDone, ApiFailure."""
        plan = self.plan()
        if plan.refusals:
            raise NotDone(f"{self.node} cannot be drained now: {'; '.join(plan.refusals)}")
        self._drainer = drainer = Drainer(self._session, plan, self._consents, self._mark, self._limit)
        self.cordoned = all(node.cordon != "theirs" for node in plan.nodes)
        done: dict[str, str] = {}
        try:
            for stage in drainer.stages():
                if why := context.stopped():
                    raise NotDone(f"the drain stopped: {why}")
                self._carry_out(stage.steps, done, context)
        except Exception as error:
            self._note_moved(done)
            moved = ", ".join(self.moved) or "none"
            raise NotDone(f"{error}. Moved until then: {moved}; {self.node}: {self._back(context)}") from error
        self._note_moved(done)
        return done[f"Node {self.node} drained"]

    def give_back(self, context: StepContext) -> str:
        """Uncordon the node if this outage cordoned it; returns what was done, with the proof. Raises NotDone, ApiFailure."""
        said = self._end(context, over=True)
        self._purpose.back(self._session, self.node)
        return said

    def _end(self, context: StepContext, *, over: bool) -> str:
        """`over`: the run whose cordon it resumes is over too."""
        assert self._drainer is not None, "take() comes first"
        context.note({"event": "uncordon", "node": self.node})
        back = self._drainer.uncordon(self.node, context, over=over)
        self.cordoned = False
        return f"{back.done}: {back.why}" if back.done else back.why

    def _note_moved(self, done: Mapping[str, str]) -> None:
        self.moved = [name.removeprefix("pod ") for name in done if name.startswith("pod ")]

    def _carry_out(self, steps: Sequence[ClusterStep], done: dict[str, str], context: StepContext) -> None:
        def one(step: ClusterStep) -> None:
            try:
                done[step.name] = step.write(context.beginning(partial(_noted, context, step)))
                context.say(f"  {step.name}: {done[step.name]}")
            except Exception as error:
                context.say(f"  {step.name}: {error}")
                raise

        context.together(one, steps)

    def _back(self, context: StepContext) -> str:
        was, said = self.cordoned, "it keeps the cordon that it had"
        try:
            ended = self._end(context, over=False) if self._drainer is not None and self._drainer.cordon_changes() else said
            return ended if was else said
        except Exception as error:
            return f"STILL CORDONED: {error}; {command('uncordon', nodes=self.node)}"


def _noted(context: StepContext, step: ClusterStep, fields: Fields) -> None:
    context.note({**step.about, "event": "drain", "object": step.name, "what": step.action, "fields": list(fields)})


def end_outage(session: Session, node: str, left: str, runs: Collection[str], context: StepContext) -> tuple[str, CordonBack]:
    """End the outage of a node by a run that is over: the surges of `left` (its name, "" for none), and the hold that one of `runs` has of
    the cordon. Returns what became of both, the first in words. Raises NotDone, ApiFailure."""
    ended = end_surges(session, left, context) if left else ""
    if (found := session.fetch(node_path(node))) is None:
        return ended, CordonBack(why="the node was deleted")
    context.note({"event": "uncordon", "node": node, "of": left})
    return ended, give_back(session, node, uid(found), runs, context)
