"""One node drained in the middle of another run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from roles.engine.context import Fields, StepContext
from roles.engine.object_changes import NotDone, Session
from roles.engine.outage.drainer import Drainer
from roles.engine.outage.model import DrainConsents, DrainPlan, NodeFate
from roles.engine.outage.planning import narrowed, plan_drain
from roles.engine.outage.reading import cluster_time, read_drain
from roles.engine.outage.run_limit import RunLimit
from roles.engine.rollout import ClusterStep


class NodeDrain:
    """Cordon, drain, (the caller's change), uncordon.

    `node`: the name of a Node. `run`: the mark of the run on the node. A cordon that the node already has stays at the end, whoever set it,
    unless `continues(mark)` says of an earlier run's that this one ends it. `limit` is that of the run, if it may drain other nodes
    meanwhile.
    """

    def __init__(
        self,
        session: Session,
        node: str,
        consents: DrainConsents,
        run: str,
        *,
        continues: Callable[[str], object] = lambda mark: False,
        limit: RunLimit | None = None,
    ) -> None:
        self._session = session
        self.node = node
        self._consents = consents
        self._run = run
        self._continues = continues
        self._limit = limit or RunLimit(session)
        self._drainer: Drainer | None = None
        #: This drain has cordoned the node (or taken over the cordon of an earlier run), and not uncordoned it.
        self.cordoned = False
        #: The pods (NAMESPACE/NAME) that this drain has moved.
        self.moved: list[str] = []

    def plan(self) -> DrainPlan:
        """What the drain would do now; its `refusals` say why it cannot. Raises ApiFailure."""
        live = read_drain(self._session)
        plan = plan_drain(live, [self.node], narrowed(self._consents, live, [self.node]), cluster_time(self._session))
        return replace(plan, nodes=tuple(replace(one, cordon="theirs") if self._stays(one) else one for one in plan.nodes))

    def _stays(self, node: NodeFate) -> bool:
        """Also a cordon that a run has set after this one was planned."""
        return node.cordon == "ours" and not self._continues(node.by)

    def begin(self, context: StepContext) -> str:
        """Cordon and drain the node by a new plan; returns the proof. If it fails, the node gets back the cordon that it had, or none,
        and the error says so. Raises NotDone, ApiFailure."""
        plan = self.plan()
        if plan.refusals:
            raise NotDone(f"{self.node} cannot be drained now: {'; '.join(plan.refusals)}")
        self._drainer = drainer = Drainer(self._session, plan, self._consents, self._run, self._limit)
        self.cordoned = bool(drainer.cordon_changes())
        done: dict[str, str] = {}
        try:
            for stage in drainer.stages():
                if why := context.stopped():
                    raise NotDone(f"the drain stopped: {why}")
                self._carry_out(stage.steps, done, context)
        except Exception as error:
            self._note_moved(done)
            moved = ", ".join(self.moved) or "none"
            raise NotDone(f"{error}; moved until then: {moved}; {self.node}: {self._back(context)}") from error
        self._note_moved(done)
        return done[f"Node {self.node} drained"]

    def end(self, context: StepContext) -> str:
        """Uncordon the node if this drain cordoned it; returns what was done, with the proof. Raises NotDone, ApiFailure."""
        return self._end(context, over=True)

    def _end(self, context: StepContext, *, over: bool) -> str:
        """`over`: the run whose cordon it continues is over too."""
        assert self._drainer is not None, "begin() comes first"
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
        if not self.cordoned:
            return "it keeps the cordon that it had"
        try:
            return self._end(context, over=False)
        except Exception as error:
            return f"STILL CORDONED: {error}; uncordon it with deploys/uncordon.py"


def _noted(context: StepContext, step: ClusterStep, fields: Fields) -> None:
    context.note({**step.about, "event": "drain", "object": step.name, "what": step.action, "fields": list(fields)})
