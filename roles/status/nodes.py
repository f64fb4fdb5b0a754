"""The nodes at a glance: a row for each, and what needs attention, a sentence each with the command that shows more or ends it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from roles.engine.bounds import EARLIEST, at_epoch, moment
from roles.engine.commands import command
from roles.engine.findings import Finding
from roles.engine.harmless import one_line
from roles.engine.kube import Object, condition, is_ready
from roles.engine.kube.fields import kubelet_version, name_of, node_info
from roles.engine.node import Observation
from roles.engine.outage import NodeFate
from roles.engine.placement import pressures_of
from roles.engine.table import brief_age, short
from roles.engine.transaction import in_flight
from roles.sleeping import asleep, findings, wake_by
from roles.status.model import Cordon, InFlightReport, LastRun, NodeReport

HEADERS = ("node", "ready", "cordoned", "pressure", "reboot", "last run", "run in flight", "kubelet", "runtime")


@dataclass(frozen=True)
class NodeGlance:
    """A node of the run. `seen`: its own answer, None if it has none, as a machine that is off; `item`: its Node, None if the API was not
    read or has none; `for_change`: the run that cordoned it for its change, or ""."""

    host: str
    seen: Observation | None
    item: Object | None
    fate: NodeFate | None
    for_change: str

    def report(self) -> NodeReport:
        silent = NodeReport(host=self.host, why_reboot="the node did not answer", answers=False)
        own = silent if self.seen is None else self._own(self.seen)
        if (item := self.item) is None:
            return own
        ready = is_ready(item)
        return own.model_copy(
            update={
                "name": name_of(item),
                "ready": ready,
                "why_not_ready": None if ready else str(condition(item, "Ready").get("reason") or "no reason"),
                "cordoned": self._cordon(),
                "wake_by": by.isoformat() if (by := wake_by(item)) is not None else None,
                "pressures": tuple(pressures_of(item)),
                "kubelet": str(kubelet_version(item) or "-"),
                "runtime": str(node_info(item).get("containerRuntimeVersion") or "-"),
            }
        )

    def _own(self, seen: Observation) -> NodeReport:
        reboot, why = seen.glance.reboot() if seen.glance else (None, "the node did not say")
        changes = in_flight(seen.changes, seen.boot_id, seen.uptime)
        return NodeReport(
            host=self.host,
            needs_reboot=reboot,
            why_reboot=why,
            last_run=_last_run(seen),
            in_flight=tuple(InFlightReport(run=seen.changes[one.name].get("run", "?"), text=str(one)) for one in changes),
        )

    def _cordon(self) -> Cordon | None:
        if self.fate is None or not self.fate.cordon:
            return None
        mark = self.fate.mark
        why = f" ({mark.purpose}: {mark.why})" if mark is not None and mark.why else ""
        by = one_line(f"run {self.fate.by}{why}") if self.fate.cordon == "ours" else self.fate.by
        return Cordon(by=by, since=self.fate.since.isoformat() if self.fate.since is not None else None)

    def attention(self, report: NodeReport, now: float) -> Iterator[str]:
        """What somebody should do something about."""
        if report.needs_reboot:
            plan = command("reboot", nodes=self.host)
            yield f"{self.host} needs a reboot ({short(report.why_reboot)}); its plan: {plan} --dry"
        if self.item is None:
            return
        if asleep(self.item) is not None:
            yield from (f"{self.host}: {one.place.value}; {one.why}; {one.way_out}" for one in self._dues(now))
            return
        if not report.ready:
            said = condition(self.item, "Ready")
            why = short(f"{said.get('reason') or 'no reason'}: {said.get('message') or 'no message'}")
            yield f"{self.host} is not Ready ({why}); {command('checks')} says more"
        for one in report.pressures or ():
            yield f"{self.host} has {one}; {command('eviction_order')} shows which pods would be evicted first"
        if cordoned := cordon_text(report.cordoned, now):
            yield f"{self.host}: cordoned {cordoned}; {self._way_out(report)}"

    def _dues(self, now: float) -> list[Finding]:
        assert self.item is not None
        return findings([self.item], at_epoch(now), None, {name_of(self.item): self.host})

    def _way_out(self, report: NodeReport) -> str:
        assert self.fate is not None
        if self.fate.cordon == "theirs" or not self.for_change or self.seen is None:
            return self.fate.way_out
        return "its change is in flight" if report.in_flight else f"that change is not in flight; {self.fate.way_out}"


def _last_run(seen: Observation) -> LastRun | None:
    newest = seen.glance.newest if seen.glance else None
    if newest is None:
        return None
    age = None if newest.at is None else max(seen.epoch - newest.at, 0)
    return LastRun(run=newest.values.get("run") or newest.name, state=newest.values.get("state", "lost"), age_seconds=age)


def cordon_text(cordon: Cordon | None, now: float) -> str:
    """`by run r1, for 3h`; "" if there is none. `now`: seconds since 1970."""
    if cordon is None:
        return ""
    since = (moment(cordon.since) or EARLIEST).timestamp() if cordon.since else None
    return f"by {cordon.by}" + (f", for {brief_age(now - since)}" if since is not None else "")


def last_run_text(last: LastRun | None) -> str:
    if last is None:
        return "-"
    return last.state + (f", {brief_age(last.age_seconds)} ago" if last.age_seconds is not None else "")


def _ready(one: NodeReport) -> str:
    if not one.ready:
        return f"NO ({one.why_not_ready})"
    return "yes" if one.answers else "yes, says the API, but it does not answer"


def row(one: NodeReport, now: float) -> list[str]:
    """The cells of HEADERS; `now`: seconds since 1970."""
    known = one.name is not None
    unknown = "not known"
    cells = [
        one.host,
        unknown if not known else _ready(one),
        (cordon_text(one.cordoned, now) or "-") if known else unknown,
        (", ".join(one.pressures or ()) or "-") if known else unknown,
        unknown if one.needs_reboot is None else "NEEDED" if one.needs_reboot else "no",
        last_run_text(one.last_run) if one.answers else unknown,
        (", ".join(dict.fromkeys(change.run for change in one.in_flight)) or "-") if one.answers else unknown,
        one.kubelet or unknown,
        one.runtime or unknown,
    ]
    return [one_line(cell) for cell in cells]
