"""The steps that carry a plan out, node by node. `Carrying` has them, and knows no run; `ConsolidationRun` (roles/consolidation/run.py)
works on them with a lock, a record, a halt and an undo.

First the machines wake that the plan wakes. Then all nodes that go are cordoned, so that no replacement comes to one that goes next. Then
each in its turn: judged again, drained, and powered off or left cordoned. A node whose judgement has changed is skipped, and uncordoned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Self

from roles.consolidation.kept import CONSOLIDATION
from roles.engine.context import ClusterStep, Skipped, Stage, StepContext
from roles.engine.kube import Object, uid
from roles.engine.kube.fields import name_of
from roles.engine.kube.workloads import node_path
from roles.engine.objects import ChangedByOthers, NotDone, RevertFailed, Session, Undone
from roles.engine.outage import DrainConsents, Mark, NodeOutage, cordon, end_outage, node_fate
from roles.engine.outage.drainer import CORDON
from roles.engine.outage.evicting import RunLimit
from roles.power import POWER_OFF

DOCUMENT = "docs/consolidation.md"
POWERED_OFF, LEFT_CORDONED = "power off", "leave cordoned"


@dataclass(frozen=True)
class Leaving:
    """A node that goes. `host`: its name in the inventory; `why`: for its mark, at most 64 characters; `off`: drains it and powers it off
    (roles/power/), None if it stays cordoned; `boot`: the id of the boot that a power off ends."""

    node: Object
    host: str
    why: str
    off: Callable[[StepContext], str] | None = None
    boot: str = ""

    @property
    def name(self) -> str:
        return name_of(self.node)

    @property
    def path(self) -> str:
        return node_path(self.name)

    @property
    def about(self) -> dict[str, str]:
        return {"path": self.path, "uid": uid(self.node)}

    def mark(self, run: str) -> Mark:
        purpose = POWER_OFF if self.off is not None else CONSOLIDATION
        return Mark(run, purpose.name, self.boot, why=self.why)


#: Why a node must not go now, "" if it may; and how many pods move then. Its arguments: the node, and all whose turns are to come. May
#: raise any error of the cluster or of a shadow control plane.
JudgeAgain = Callable[[str, Sequence[str]], tuple[str, int]]


class Carrying:
    """The steps of a plan. `wakes`: those that wake machines; `leaving`: in the order of their turns; `closing`: what ends with it."""

    def __init__(
        self,
        session: Session,
        consents: DrainConsents,
        wakes: Sequence[ClusterStep],
        leaving: Sequence[Leaving],
        judge: JudgeAgain,
        closing: ExitStack | None = None,
    ) -> None:
        self._session, self._consents, self._judge = session, consents, judge
        self._closing = closing or ExitStack()
        self._limit = RunLimit(session)
        self.leaving = tuple(leaving)
        self._wakes = tuple(wakes)
        self._cordons = {one.name: self._cordon_step(one) for one in leaving}
        self._turns = {one.name: self._turn_step(one) for one in leaving}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._closing.close()

    # ---- the steps

    @property
    def stages(self) -> list[Stage[ClusterStep]]:
        cordons = tuple(self._cordons.values())
        alone = [[Stage((one,)) for one in steps] for steps in (self._wakes, self._turns.values())]
        made = [*alone[0], Stage(cordons, max(1, len(cordons))), *alone[1]]
        return [stage for stage in made if stage.steps]

    @property
    def steps(self) -> list[ClusterStep]:
        return [step for stage in self.stages for step in stage.steps]

    def _cordon_step(self, one: Leaving) -> ClusterStep:
        what = "cordon it, so that no pod comes before its turn"
        return ClusterStep(f"Node {one.name}", what, "", partial(self._cordon, one), "", action=CORDON, about=one.about)

    def _turn_step(self, one: Leaving) -> ClusterStep:
        end = "power off" if one.off is not None else "leave it cordoned"
        action = POWERED_OFF if one.off is not None else LEFT_CORDONED
        what = f"judge again, drain, {end} ({one.why})"
        return ClusterStep(one.host, what, "", partial(self._turn, one), f"see {DOCUMENT}", action=action, about=one.about)

    def _cordon(self, one: Leaving, context: StepContext) -> str:
        node = self._session.fetch(one.path)
        if node is None or uid(node) != uid(one.node):
            raise Skipped("its Node was deleted or recreated since the plan")
        fate, before, mark = node_fate(node), node_fate(one.node), one.mark(context.run)
        # An earlier run's cordon is taken over only as it was in the plan.
        if fate.cordon and (fate.cordon, fate.mark) != (before.cordon, before.mark):
            raise Skipped(f"{fate.by} has cordoned it since the plan: that cordon stays")
        change = cordon.cordon_change(fate, mark)
        if change is None:
            raise Skipped(f"{fate.by} has cordoned it: that cordon stays")
        try:
            return cordon.CordonWriter(self._session, force=False).carry_out(change, context)
        except ChangedByOthers as error:
            raise Skipped(str(error)) from error

    # ---- a node's turn

    def _turn(self, one: Leaving, context: StepContext) -> str:
        try:
            why = self._not_now(one, context)
        except Exception as error:
            raise self._released(one, f"it could not be judged again: {error}", context) from error
        if why:
            back = self._given_back(one, context)
            raise Skipped(f"{why}; {back}")
        return one.off(context) if one.off is not None else self._emptied(one, context)

    def _not_now(self, one: Leaving, context: StepContext) -> str:
        if why := self._not_held(one, context):
            return why
        context.say(f"  {one.host}: judging again")
        why, moves = self._judge(one.name, self._to_come(one))
        # That takes some seconds.
        why = why or self._not_held(one, context)
        if not why:
            context.say(f"  {one.host}: it may go; pods that move: {moves}")
        return why

    def _not_held(self, one: Leaving, context: StepContext) -> str:
        """Why the node is not this run's to take out any more."""
        node = self._session.fetch(one.path)
        if node is None or uid(node) != uid(one.node):
            return "its Node was deleted or recreated since the plan"
        fate = node_fate(node)
        if not fate.cordon:
            return "someone has uncordoned it since: it stays in service"
        if fate.cordon == "theirs" or fate.mark is None or fate.mark.run != context.run:
            return f"{fate.by} has cordoned it since"
        return ""

    def _to_come(self, one: Leaving) -> list[str]:
        names = [other.name for other in self.leaving]
        return [name for name in names[names.index(one.name) :] if self._cordons[name].outcome == "done"]

    def _emptied(self, one: Leaving, context: StepContext) -> str:
        context.begin(one.mark(context.run).fields(comes=True))
        outage = NodeOutage(
            self._session, one.name, self._consents, context.run, CONSOLIDATION, reason=one.why, limit=self._limit
        )  # fmt: skip
        try:
            moved = outage.take(context)
        except Exception as error:
            raise self._released(one, str(error) or repr(error), context) from error
        return f"{moved}; it stays cordoned, with the mark of this run"

    # ---- the way back of a node that does not go

    def give_back(self, context: StepContext) -> list[tuple[ClusterStep, str]]:
        """Uncordon the nodes whose turns did not begin: the run has halted. Returns their steps, each with what became of it."""
        found = []
        for one in self.leaving:
            step = self._cordons[one.name]
            if step.outcome in ("done", "unknown") and self._turns[one.name].outcome == "not started":
                try:
                    found.append((step, self._given_back(one, context)))
                except Exception as error:
                    found.append((step, f"STILL CORDONED by this run: {error}; the same command, run again, continues"))
        return found

    def _given_back(self, one: Leaving, context: StepContext) -> str:
        """Raises as a write."""
        context.hold()
        _, back = end_outage(self._session, one.name, "", {context.run}, context)
        if back.done or not back.of:
            self._cordons[one.name].outcome = "reverted"
        return back.done or back.why

    def _released(self, one: Leaving, why: str, context: StepContext) -> NotDone | RevertFailed:
        try:
            return Undone(f"{why}; {self._given_back(one, context)}")
        except Exception as other:
            return RevertFailed(f"{why}. It may still be cordoned ({other}): the same command, run again, continues; see {DOCUMENT}")
