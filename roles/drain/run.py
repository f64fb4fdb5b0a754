"""The run of a drain: its steps, and the cordons as they were before, if it halts."""

from __future__ import annotations

from collections.abc import Sequence

from roles.engine import table
from roles.engine.bridge import Fleet
from roles.engine.context import ClusterStep
from roles.engine.folding import counted
from roles.engine.object_runs import ObjectRun
from roles.engine.outage import Drainer, undo
from roles.engine.outage.drainer import CORDON, MOVES
from roles.engine.transaction import RunInfo
from roles.engine.voice import show

CAPABILITY = "drain"
# More steps than this share rows in the table at the end.
_MOST_ROWS = 30


class DrainRun(ObjectRun):
    """An ObjectRun that gives the nodes back the cordons that they had, or none, if it halts, unless `keep_cordon`."""

    def __init__(self, info: RunInfo, drainer: Drainer, fleet: Fleet, take_over: str, *, keep_cordon: bool) -> None:
        self._drainer = drainer
        self._keep_cordon = keep_cordon
        super().__init__(
            info,
            drainer.stages(),
            fleet,
            take_over,
            lambda _: show_end(self),
            capability=CAPABILITY,
            about={"nodes": [node.name for node in drainer.plan.nodes]},
            leaving=lambda: (
                f"pods that were evicted stay so, and the nodes stay cordoned; continue with the same command, or: {self.uncordon}"
            ),
            warnings=drainer.warnings,
        )

    @property
    def names(self) -> list[str]:
        return [node.name for node in self._drainer.plan.nodes]

    @property
    def uncordon(self) -> str:
        return undo.command(self.names)

    def next_commands(self) -> list[str]:
        return super().next_commands() if self.halted else [f"Uncordon: {self.uncordon}"]

    @property
    def moved(self) -> list[ClusterStep]:
        return [step for step in self.steps if step.action in MOVES and step.outcome == self.success]

    def _give_back(self) -> None:
        # Also one whose answer was lost: its mark shows whether it was written.
        cordoned = [step for step in self.steps if step.action == CORDON and step.outcome in (self.success, "unknown")]
        if not cordoned:
            return
        if self._keep_cordon:
            show(f"\nkeep_cordon: {', '.join(step.name for step in cordoned)} stay cordoned; to uncordon: {self.uncordon}")
            return
        show(f"\nhalted: {', '.join(step.name for step in cordoned)}: restoring the cordons that were there before, or none")
        for step in cordoned:
            self._undo_cordon(step)

    def _undo_cordon(self, step: ClusterStep) -> None:
        try:
            # Another run may have the lock, and the nodes, by now.
            self._lock.ensure()
            back = self._drainer.uncordon(str(step.about["node"]), self.context)
        except Exception as error:
            self.warnings.append((step.name, f"{step.name} is STILL CORDONED by this run: {error}; uncordon it: {self.uncordon}"))
            ended = self._end(step)
        else:
            step.outcome, step.how, step.why = "reverted", "", f"{back.done or 'left as it is'}, since the run halted: {back.why}"
            show(f"  {step.name}: {step.why}")
            ended = self._end(step)
        self._note_done(ended)
        self._unsent.append(ended)


def rows(run: DrainRun) -> list[list[str]]:
    """A row for each step; with many, the pods of a workload that were moved alike share one, if their proofs differ only in amounts."""
    folds = len(run.steps) > _MOST_ROWS
    groups: dict[tuple[object, ...], list[ClusterStep]] = {}
    for step in run.steps:
        alike = folds and step.action in MOVES
        key = (step.summary, step.action, step.outcome, *table.wording(_said(step))) if alike else (step.name,)
        groups.setdefault(key, []).append(step)
    return [_row(steps) for steps in groups.values()]


def _said(step: ClusterStep) -> str:
    return step.how or step.why


def _row(steps: Sequence[ClusterStep]) -> list[str]:
    step = steps[0]
    seconds = max(one.seconds for one in steps)
    name = step.name if len(steps) == 1 else f"{counted(len(steps), 'pod')}: {step.summary}"
    said = table.short(table.in_common([_said(one) for one in steps]))
    return [name, step.action, step.outcome, f"{seconds:.0f}" if seconds else "-", said or "-"]


def show_end(run: DrainRun) -> None:
    kept = [
        [f"Node {node.name}", "none", "no change", "-", f"cordoned by {node.by} before: that cordon stays"]
        for node in run._drainer.plan.nodes
        if node.cordon == "theirs"
    ]
    names = [*(step.name.removeprefix("pod ") for step in run.moved), *run._drainer.moved_late]
    more = []
    if run.halted and names:
        more.append(f"Moved until then, and not coming back: {', '.join(names)}")
    run.show_end(kept, more, rows(run))
