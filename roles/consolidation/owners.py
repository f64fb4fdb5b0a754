"""What its owner takes back: which reclaimable machines take no more pods, and which must be free, by when. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from roles.consolidation.hours import Availability, availability
from roles.consolidation.kept import Keep, Keeper, KeepReason
from roles.consolidation.model import Machines
from roles.engine.bounds import moment, span
from roles.engine.commands import command
from roles.engine.kube.fields import name_of, spec_of

#: The taint and the label of a reclaimable machine's node; deploys/node_labels.py sets them.
TAINT, LABEL = "daytwo.dev/reclaimable", "daytwo.dev/capacity"
_KEEP_OUT = ("NoSchedule", "NoExecute")
#: Reasons that are about whether a node could be done without: a machine that is taken back goes all the same.
_OF_CHOICE = frozenset((
    KeepReason.LAST_NODE, KeepReason.LAST_OF_ZONE, KeepReason.SCALE_DOWN_DISABLED, KeepReason.NODE_DO_NOT_DISRUPT,
    KeepReason.CSI_CONTROLLER,
))  # fmt: skip


@dataclass(frozen=True)
class MustGo:
    """`free_by`: None for hours that ended long ago."""

    reason: Literal["hours-over", "taken-back"]
    free_by: datetime | None


class Owners:
    """Of the nodes of a cluster; `hosts`: the inventory's name of each."""

    def __init__(self, keeper: Keeper, machines: Machines, hosts: Mapping[str, str]) -> None:
        self._keeper, self._machines = keeper, machines
        self._hosts = {node: host for node, host in hosts.items() if host in machines.reclaimable}
        self._states = {node: self._state(host) for node, host in self._hosts.items()}
        #: Nodes that take no more pods, and are not woken.
        self.closed = frozenset(
            node for node, state in self._states.items() if state.state != "available" or self._hosts[node] in machines.taken_back
        )
        #: Nodes that are on, and that their owners want.
        self.must_go = {node: self._must(node) for node in sorted(self.closed) if not self._is_free(node)}

    def _state(self, host: str) -> Availability:
        terms = self._machines.reclaimable[host]
        return availability(terms.hours, terms.notice, self._keeper.now)

    def _must(self, node: str) -> MustGo:
        host, free_by = self._hosts[node], self._states[node].free_by
        if host not in self._machines.taken_back:
            return MustGo("hours-over", free_by)
        asked = self._keeper.now + span(self._machines.reclaimable[host].notice)
        return MustGo("taken-back", min(asked, free_by or asked))

    def _is_free(self, node: str) -> bool:
        live = next((one for one in self._keeper.live.of("Node") if name_of(one) == node), None)
        cordoned = live is not None and bool(spec_of(live).get("unschedulable"))
        return live is None or node in self._keeper.asleep or (cordoned and not self._keeper.leaving(node))

    def kept(self) -> dict[str, tuple[Keep, ...]]:
        """As the keeper has it, without what does not keep a machine from its owner."""
        found = {}
        for node, keeps in self._keeper.kept.items():
            left = tuple(one for one in keeps if node not in self.must_go or one.reason not in _OF_CHOICE)
            if left:
                found[node] = left
        return found

    def hours(self, node: str) -> str:
        """As the data has them, "" for none."""
        found = self._hosts.get(node)
        return "" if found is None or (hours := self._machines.reclaimable[found].hours) is None else str(hours)

    def changes(self, node: str) -> datetime | None:
        """When its hours begin, or their notice does, or they end."""
        return self._states[node].changes if node in self._states else None

    def notes(self) -> Iterator[str]:
        """Machines that are free already, and nodes where the scheduler places any pod, with the way out."""
        for node in sorted(self.closed - self.must_go.keys()):
            if self._hosts[node] in self._machines.taken_back:
                yield f"{node} is free already: it is off, or cordoned and without pods that would have to move"
        for live in self._keeper.live.of("Node"):
            node = name_of(live)
            if node in self._hosts and not is_tainted(live):
                set_it = command("node_labels", node_taints=f"{TAINT}=true:NoSchedule", node_labels=f"{LABEL}=reclaimable")
                yield (
                    f"{node} is reclaimable and has no taint {TAINT}: the scheduler places any pod there, and no plan does. Set it:"
                    f" {set_it} --limit {self._hosts[node]} -y"
                )


def is_tainted(node: object) -> bool:
    """Pods that do not tolerate that it is reclaimable stay away."""
    assert isinstance(node, Mapping)
    return any(one.get("key") == TAINT and one.get("effect") in _KEEP_OUT for one in spec_of(node).get("taints") or ())


def at(when: datetime | str | None) -> str:
    """For people, in UTC; "" for none."""
    found = moment(when) if isinstance(when, str) else when
    return "" if found is None else found.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
