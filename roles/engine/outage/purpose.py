"""Why a run takes a node out of service, and what follows for the node's cordon."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from roles.engine.object_changes import Session
from roles.engine.outage.model import NodeFate


def _as_it_is(session: Session, node: str) -> None:
    """For a purpose that proves its node before it gives it back."""


@dataclass(frozen=True)
class Purpose:
    """`text`: what a node is taken out for, in a plan. `mark(run)`: how the run marks the node. `resumes(mark)`: an earlier run's cordon
    with this mark ends with this outage; any other stays. `back(session, node)`: what proves that a node which was given back serves
    again; raises NotDone, ApiFailure."""

    text: str
    mark: Callable[[str], str] = str
    resumes: Callable[[str], object] = lambda mark: False
    back: Callable[[Session, str], None] = _as_it_is

    def seen(self, node: NodeFate) -> NodeFate:
        """A node as this outage finds it: a run's cordon that it does not resume is as that of anybody else."""
        return replace(node, cordon="theirs") if node.cordon == "ours" and not self.resumes(node.by) else node
