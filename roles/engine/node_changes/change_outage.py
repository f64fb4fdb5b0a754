"""The outage of a node around the change of its kubelet: drained before it, given back after it; and what earlier changes left."""

from __future__ import annotations

from dataclasses import dataclass

from roles.engine.context import StepContext
from roles.engine.kube import Object, is_ready
from roles.engine.kube.fields import spec_of
from roles.engine.objects import LOOK_AGAIN, NotDone, Session
from roles.engine.outage import Purpose, end_outage, node_path
from roles.engine.timeouts import Deadline

# A node with a restarted kubelet is Ready again within this time, and without the taint of its cordon.
READY_SECONDS = 90
_TAINT = "node.kubernetes.io/unschedulable"


def wait_schedulable(session: Session, node: str) -> None:
    """Until the node is Ready and takes pods. Raises NotDone, ApiFailure."""
    deadline = Deadline(READY_SECONDS)
    while why := _not_schedulable(session.fetch(node_path(node))):
        if deadline.over:
            raise NotDone(f"{node}: {why} after {deadline.passed:.0f} s")
        deadline.pause(LOOK_AGAIN)


def _not_schedulable(node: Object | None) -> str:
    """Why a node takes no pods; "" if it does, or does not exist."""
    spec = spec_of(node or {})
    if node is None or spec.get("unschedulable"):
        return ""  # someone has cordoned it since: that is not for this run to wait for
    if not is_ready(node):
        return "it is not Ready"
    return "it has the taint of its cordon" if any(one.get("key") == _TAINT for one in spec.get("taints") or ()) else ""


#: A cordon that an earlier change has left ends with the next one.
CHANGE = Purpose("change", "its change", wait_schedulable)


def back_command(node: str) -> str:
    """The command that uncordons a node."""
    return f"deploys/uncordon.py --data nodes={node}"


@dataclass(frozen=True)
class Leftover:
    """A node that an earlier run, which is over, cordoned for its change."""

    session: Session
    host: str
    node: str
    run: str

    def uncordon(self, context: StepContext) -> str:
        """End what that run has left of its surges, and uncordon the node if it still has its mark; returns the proof. Raises NotDone,
        ApiFailure."""
        ended, back = end_outage(self.session, self.node, self.run, {self.run}, context)
        if back.done:
            CHANGE.back(self.session, self.node)
        return "; ".join(filter(None, (ended, f"{back.done}: {back.why}" if back.done else f"left as it is: {back.why}")))
