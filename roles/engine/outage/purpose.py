"""Why a run takes a node out of service, and what follows for the node's cordon."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from roles.engine.objects import Session
from roles.engine.outage.mark import Mark
from roles.engine.outage.model import NodeFate


def _as_it_is(session: Session, node: str) -> None:
    """For a purpose that proves its node before it gives it back."""


@dataclass(frozen=True)
class Purpose:
    """`name`: in the mark on the node; `text`: what a node is taken out for, in a plan. `back(session, node)` proves that a node which was
    given back serves again; raises NotDone, ApiFailure."""

    name: str
    text: str
    back: Callable[[Session, str], None] = _as_it_is

    def resumes(self, mark: Mark | None) -> bool:
        """An earlier run's cordon with this mark ends with this outage; any other stays."""
        return mark is not None and mark.purpose == self.name and not mark.keep

    def seen(self, node: NodeFate) -> NodeFate:
        """A node as this outage finds it: a run's cordon that it does not resume is as that of anybody else."""
        return node if node.cordon != "ours" or self.resumes(node.mark) else replace(node, cordon="theirs")
