"""The nodes at a glance: a row for each, and what needs attention, a sentence each with the command that shows more or ends it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from roles.engine.commands import command
from roles.engine.harmless import one_line
from roles.engine.kube import Object, condition, is_ready
from roles.engine.kube.fields import kubelet_version, name_of, node_info
from roles.engine.outage import NodeFate
from roles.engine.placement import pressures_of
from roles.engine.table import brief_age, short

HEADERS = ("node", "ready", "cordoned", "pressure", "in flight", "kubelet", "runtime")


@dataclass(frozen=True)
class NodeGlance:
    """A node of the run. `item`: its Node, None if the API was not read or has none; `for_change`: the run that cordoned it for its change,
    or ""; `in_flight`: sentences about changes that are not over."""

    host: str
    item: Object | None
    fate: NodeFate | None
    for_change: str
    in_flight: Sequence[str]

    def row(self, now: float) -> list[str]:
        """The cells of HEADERS; `now`: seconds since 1970."""
        if self.item is None:
            return [self.host, *["not known"] * 3, str(len(self.in_flight) or "-"), *["not known"] * 2]
        cells = (kubelet_version(self.item), node_info(self.item).get("containerRuntimeVersion"))
        return [
            self.host,
            "yes" if is_ready(self.item) else f"NO ({condition(self.item, 'Ready').get('reason') or 'no reason'})",
            self._cordoned(now) or "-",
            ", ".join(pressures_of(self.item)) or "-",
            str(len(self.in_flight) or "-"),
            *(one_line(str(cell or "-")) for cell in cells),
        ]

    def _cordoned(self, now: float) -> str:
        """`by run r1, for 3h`; "" if it is not."""
        if self.fate is None or not self.fate.cordon:
            return ""
        by = f"run {self.fate.by}" if self.fate.cordon == "ours" else self.fate.by
        return f"by {by}" + (f", for {brief_age(now - self.fate.since.timestamp())}" if self.fate.since is not None else "")

    def attention(self, now: float) -> Iterator[str]:
        """What somebody should do something about."""
        if self.item is None:
            return
        if not is_ready(self.item):
            said = condition(self.item, "Ready")
            why = short(f"{said.get('reason') or 'no reason'}: {said.get('message') or 'no message'}")
            yield f"{self.host} is not Ready ({why}); {command('checks')} says more"
        for one in pressures_of(self.item):
            yield f"{self.host} has {one}; {command('eviction_order')} shows which pods would be evicted first"
        if cordoned := self._cordoned(now):
            yield f"{self.host}: cordoned {cordoned}; {self._way_out()}"

    def _way_out(self) -> str:
        assert self.fate is not None
        name = name_of(self.fate.item)
        back = command("uncordon", nodes=name)
        if self.fate.cordon == "theirs":
            return f"if nobody works on it: {command('uncordon', nodes=name, force='true')}"
        if self.for_change and self.in_flight:
            return "its change is in flight"
        if self.for_change:
            undo = command("rollback", run=self.for_change)
            return f"that change is not in flight; if the run is over: repeat its command, undo it ({undo}), or only uncordon: {back}"
        return f"when the work on it is done: {back}"
