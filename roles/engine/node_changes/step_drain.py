"""The drain of a node around its change: cordon and drain before it, uncordon after it; and cordons that earlier changes left."""

from __future__ import annotations

from dataclasses import dataclass

from roles.engine.context import StepContext
from roles.engine.kube import Object, is_ready, uid
from roles.engine.object_changes import LOOK_AGAIN, NotDone, Session
from roles.engine.outage import DrainConsents, NodeDrain, RunLimit, end_surges, give_back, node_path, run_of_mark
from roles.engine.timeouts import Deadline

# A node with a restarted kubelet is Ready again within this time, and without the taint of its cordon.
READY_SECONDS = 90
_TAINT = "node.kubernetes.io/unschedulable"


def back_command(node: str) -> str:
    """The command that uncordons a node."""
    return f"deploys/uncordon.py --data nodes={node}"


class StepDrain(NodeDrain):
    """The drain of one node. `why` in sentences; `limit`: that of the run. A cordon that an earlier change has left ends with this one."""

    def __init__(self, session: Session, node: str, consents: DrainConsents, marked: str, why: tuple[str, ...], limit: RunLimit) -> None:
        super().__init__(session, node, consents, marked, continues=run_of_mark, limit=limit)
        self.why = why

    def end(self, context: StepContext) -> str:
        """Uncordon, and wait until the node is Ready and takes pods; returns the proof. Raises NotDone, ApiFailure."""
        proof = super().end(context)
        wait_schedulable(self._session, self.node)
        return proof


@dataclass(frozen=True)
class Leftover:
    """A node that an earlier run, which is over, cordoned for its change; `marked` is the mark."""

    session: Session
    host: str
    node: str
    marked: str

    @property
    def run(self) -> str:
        return run_of_mark(self.marked)

    def uncordon(self, context: StepContext) -> str:
        """End what that run has left of its surges, and uncordon the node if it still has this mark; returns the proof. Raises NotDone,
        ApiFailure."""
        ended = end_surges(self.session, self.marked, context)
        return "; ".join(filter(None, (ended, self._uncordoned(context))))

    def _uncordoned(self, context: StepContext) -> str:
        found = self.session.fetch(node_path(self.node))
        if found is None:
            return "the node was deleted"
        context.note({"event": "uncordon", "node": self.node, "of": self.run})
        back = give_back(self.session, self.node, uid(found), {self.marked}, context)
        if not back.done:
            return f"left as it is: {back.why}"
        wait_schedulable(self.session, self.node)
        return f"{back.done}: {back.why}"


def wait_schedulable(session: Session, node: str) -> None:
    """Until the node is Ready and takes pods. Raises NotDone, ApiFailure."""
    deadline = Deadline(READY_SECONDS)
    while why := _not_schedulable(session.fetch(node_path(node))):
        if deadline.over:
            raise NotDone(f"{node}: {why} after {deadline.passed:.0f} s")
        deadline.pause(LOOK_AGAIN)


def _not_schedulable(node: Object | None) -> str:
    """Why a node takes no pods; "" if it does, or does not exist."""
    spec = (node or {}).get("spec") or {}
    if node is None or spec.get("unschedulable"):
        return ""  # someone has cordoned it since: that is not for this run to wait for
    if not is_ready(node):
        return "it is not Ready"
    return "it has the taint of its cordon" if any(one.get("key") == _TAINT for one in spec.get("taints") or ()) else ""
