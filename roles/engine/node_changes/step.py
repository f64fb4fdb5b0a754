"""One change of a run, and the order of all of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from roles.engine.context import Outcome, Stage
from roles.engine.outage import NodeOutage
from roles.engine.proof import Proof
from roles.engine.runs import Pace, stages
from roles.engine.transaction import Change, Effective, Status
from roles.engine.transaction.by_hand import Repair


@dataclass
class NodeStep:
    """One change of a run. `ready` is called right before it (a text: why it must not begin), `watch` gets each line of its log, `prove`
    proves it once it is applied, `blocking` asks its node what blocks a revert that failed: `blockers`. `drain`: its node is drained before
    it and uncordoned after it; `left_cordoned`: why it still is cordoned by this run; `recreates_pods`: the new kubelet ends the pods that
    are left, and creates them again; `unseen`: what nothing will show of it, besides its values. For the record: `effective`, the effective
    values before and after; `undoes`, the change it undoes; `node_seconds`, the part of `seconds` in which the node restarted the component
    and watched it, and `drain_seconds`, the part in which it was drained and uncordoned."""

    change: Change
    ready: Callable[[], str | None]
    prove: Callable[[Status], Proof]
    watch: Callable[[str], None] = lambda line: None
    blocking: Callable[[], Sequence[Repair]] = tuple
    effective: Effective = field(default_factory=Effective)
    undoes: str = ""
    drain: NodeOutage | None = None
    left_cordoned: str = ""
    recreates_pods: bool = False
    unseen: Sequence[str] = ()
    outcome: Outcome = "not started"
    why: str = ""
    how: str = ""
    seconds: float = 0.0
    node_seconds: float = 0.0
    drain_seconds: float = 0.0
    status: Status | None = field(default=None, repr=False)
    blockers: Sequence[Repair] = ()
    order: int = 0
    touched: bool = False


def arrange(steps: Sequence[NodeStep], control_plane: Collection[str], pace: Pace, on: bool) -> list[Stage[NodeStep]]:
    """The stages of a run from its steps in the desired order; `control_plane` are hosts. The first worker, the canary, soaks."""
    components = [step for step in steps if step.change.kind != "kubelet"]
    kubelets = [step for step in steps if step.change.kind == "kubelet"]
    workers = [step for step in kubelets if step.change.node not in control_plane]
    if workers:
        workers[0].change = replace(workers[0].change, soak=pace.soak)
    return stages(components, workers, [step for step in kubelets if step not in workers], pace, on)
