"""The judgement of a plan: made once for all nodes, and again for each node right before its turn. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from roles.consolidation.kept import CONSOLIDATION, Keeper, sentence
from roles.consolidation.model import ConsolidateOptions, Machines
from roles.consolidation.plan import Consolidation
from roles.consolidation.plan import consolidate as planned
from roles.engine.disruption import DisruptionObjects
from roles.engine.kube import is_ready
from roles.engine.kube.fields import name_of, spec_of
from roles.engine.outage import cordon, node_fate
from roles.power import POWER_OFF


@dataclass(frozen=True)
class Judge:
    """What decides beside the objects of the cluster. `hosts`: the inventory's name of each Node; `servers`: Nodes that are control-plane
    hosts; `chosen`: those that may go, None for all."""

    machines: Machines
    hosts: Mapping[str, str]
    servers: Collection[str]
    options: ConsolidateOptions
    chosen: Collection[str] | None = None

    def plan(self, live: DisruptionObjects, now: datetime) -> tuple[Consolidation, list[str]]:
        """The plan, and notes. What an earlier run has left half done may go on; what does not go on stays cordoned, and has no room.
        `live`: all kinds of a drain. Raises ValueError if an object cannot be read."""
        left = half_done(self._keeper(live, now, self.chosen))
        while True:
            found = self._planned(cordon.as_uncordoned(live, left), now, self.chosen, self.options.max_moves, wakes=self.options.wakes)
            if left.keys() <= set(found.goes):
                notes = [f"{node}: run {run} began to take it out of service; this run continues" for node, run in left.items()]
                return found, notes
            left = {node: run for node, run in left.items() if node in found.goes}

    def again(self, live: DisruptionObjects, now: datetime, rest: Collection[str], moved: int) -> Consolidation:
        """The plan for the nodes whose turns are to come: they alone may go, no machine is woken for them, and `moved` pods have moved.
        Raises ValueError."""
        most = self.options.max_moves
        left = None if most is None else max(0, most - moved)
        return self._planned(cordon.as_uncordoned(live, rest), now, rest, left, wakes=False)

    def _planned(
        self, live: DisruptionObjects, now: datetime, chosen: Collection[str] | None, most: int | None, *, wakes: bool
    ) -> Consolidation:
        return planned(self._keeper(live, now, chosen), self.machines, self.hosts, self.options.spare_nodes, most, wakes=wakes)

    def _keeper(self, live: DisruptionObjects, now: datetime, chosen: Collection[str] | None) -> Keeper:
        return Keeper(
            live, now, servers=self.servers, known=self.hosts, chosen=chosen, allow_local_data=self.options.allow_local_data
        )  # fmt: skip


def half_done(keeper: Keeper) -> dict[str, str]:
    """By node, the run that began to take it out of service and has not ended: it is Ready, and has pods that would have to move or should
    be off."""
    found = {}
    for node in keeper.live.of("Node"):
        fate, name = node_fate(node), name_of(node)
        if fate.cordon != "ours" or fate.mark is None or fate.mark.keep or not is_ready(node):
            continue
        off = fate.mark.purpose == POWER_OFF.name
        if off or (fate.mark.purpose == CONSOLIDATION.name and keeper.leaving(name)):
            found[name] = fate.mark.run
    return found


def why_not(found: Consolidation, node: str) -> str:
    """Why a node does not go after all; "" if it goes."""
    if node in found.plan.goes:
        return ""
    return sentence(found.kept.get(node, ())) or found.plan.why.get(node, "") or "the plan does not need it to go any more"


def kept_on(found: Consolidation) -> list[str]:
    """The nodes that take pods after the plan."""
    out = {*found.goes, *(found.keeper.asleep - set(found.plan.woken))}
    woken = set(found.plan.woken)
    return sorted(
        name
        for node in found.keeper.live.of("Node")
        if (name := name_of(node)) not in out and name not in found.keeper.servers
        and (name in woken or (is_ready(node) and not spec_of(node).get("unschedulable")))
    )  # fmt: skip
