"""The power of the hosts: a table, or a document (docs/reference/power.schema.json)."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Literal

from pydantic import Field

from roles import history, sleeping
from roles.engine.api import ApiFailure
from roles.engine.api.nodes import node_lease
from roles.engine.bounds import at_epoch, moment
from roles.engine.bridge import Fleet, whole
from roles.engine.findings import Severity
from roles.engine.harmless import one_line
from roles.engine.kube import Object, is_ready
from roles.engine.kube.fields import name_of, node_of_host
from roles.engine.objects import Session
from roles.engine.outage import node_fate, read_mark
from roles.engine.power import Driver, PowerError, State, switch_of
from roles.engine.runs import ChangeReport, Document
from roles.engine.table import brief_age, render

HEADERS = ("host", "driver", "BMC says", "Node says", "lease", "mark", "wake before")


class DueReport(Document):
    """Why a machine must not stay off."""

    due: sleeping.SleepRule
    severity: Severity = Field(description="critical from the date on")
    at: str | None = Field(description="RFC 3339; null: no date is known, or something else decides")
    why: str


class HostReport(Document):
    """A host with the data key power."""

    host: str
    driver: str
    bmc: State | None = Field(description="null: its driver cannot ask it")
    bmc_why: str = Field(default="", description="why its BMC says nothing")
    node: str | None = Field(description="the name of its Node; null: the cluster has none")
    ready: bool = False
    lease_seconds: int | None = Field(default=None, description="since the lease was renewed, by the operator's clock; null: not known")
    lease_why: str = Field(default="", description="why that is not known")
    mark: str | None = Field(default=None, description="who has taken it out of service, since when, and why")
    off: bool = Field(default=False, description="a run of daytwo turned it off, and its Node is not Ready")
    wake_by: str | None = Field(default=None, description="the first date of `dues`")
    dues: tuple[DueReport, ...] = Field(default=(), description="the worst first")
    waiting: tuple[str, ...] = Field(default=(), description="runs that changed hosts of its groups while it was off, the oldest first")


class PowerReport(Document):
    """The JSON document of deploys/power.py."""

    form: Literal[1] = 1
    made: str = Field(description="RFC 3339, the operator's clock")
    hosts: tuple[HostReport, ...]
    not_known: tuple[str, ...] = Field(default=(), description="what could not be read of waiting runs and versions")


def report(fleet: Fleet, drivers: Mapping[str, Driver], session: Session, nodes: Mapping[str, Object]) -> PowerReport:
    """A row for each host with the data key power."""
    now, not_known = time.time(), list[str]()
    remotes = [remote for remote in fleet.inventory if remote.name in drivers]
    said = whole(fleet.each(remotes, lambda remote: _bmc(drivers[remote.name]), doing="asked the power of"))
    there = {remote.name: node_of_host(remote.name, remote.address, nodes) for remote in remotes}
    newest, changes = None, list[ChangeReport]()
    if any(node is not None and sleeping.asleep(node) is not None for node in there.values()):
        try:
            newest = session.asked(sleeping.newest_minor)
        except ApiFailure as error:
            not_known.append(f"the version of the API server: {error}")
        recorded, problems = history.recorded_changes(fleet)
        changes, not_known = [*history.change_reports(recorded, recorded)], [*not_known, *problems]
    groups = {remote.name: remote.groups for remote in fleet.inventory}
    hosts = []
    for remote in remotes:
        host, node, (bmc, why) = remote.name, there[remote.name], said[remote.name]
        own = HostReport(host=host, driver=drivers[host].about, bmc=bmc, bmc_why=why, node=name_of(node) if node is not None else None)
        if node is not None:
            asleep = _asleep(node, at_epoch(now), newest, changes, sleeping.siblings(host, groups))
            own = own.model_copy(update={"ready": is_ready(node), **_lease(session, node, now), "mark": mark_text(node), **asleep})
        hosts.append(own)
    return PowerReport(made=at_epoch(now).isoformat(timespec="seconds"), hosts=tuple(hosts), not_known=tuple(map(one_line, not_known)))


def _bmc(driver: Driver) -> tuple[State | None, str]:
    if driver.driver == "wake_on_lan":
        return None, ""
    try:
        return switch_of(driver).state(), ""
    except PowerError as error:
        return "unknown", str(error)


def _lease(session: Session, node: Object, now: float) -> dict[str, object]:
    try:
        renewed = session.asked(lambda api: node_lease(api, name_of(node))).renewed
    except ApiFailure as error:
        return {"lease_why": f"NOT KNOWN: {error}"}
    if renewed is None:
        return {"lease_why": "never renewed"}
    return {"lease_seconds": max(0, round(now - renewed.timestamp()))}


def _asleep(
    node: Object, now: datetime, newest: int | None, changes: Collection[ChangeReport], siblings: Collection[str]
) -> dict[str, object]:
    one = sleeping.asleep(node)
    if one is None:
        return {}
    by = sleeping.wake_by(node)
    return {
        "off": True,
        "wake_by": by.isoformat() if by is not None else None,
        "dues": tuple(
            DueReport(due=due.rule, severity=due.severity(now), at=due.at.isoformat() if due.at is not None else None, why=due.why)
            for due in one.dues(now, newest)
        ),
        "waiting": tuple(sleeping.waiting(one, changes, siblings)),
    }


def text(made: PowerReport) -> str:
    """The table, and below it what is no note any more, what waits, and what is not known."""
    lines = [render(HEADERS, [_row(one) for one in made.hosts])]
    for one in made.hosts:
        urgent = [due for due in one.dues if due.severity is not Severity.note]
        lines += [f"{due.severity}: {one.host}: {due.why}; {due.due.way_out}" for due in urgent]
        if one.waiting:
            lines.append(
                f"{one.host}: its group was changed while it was off ({', '.join(map(one_line, one.waiting))}): its power on settles that"
            )
    return "\n".join([*lines, *(f"not known: {problem}" for problem in made.not_known)])


def _row(one: HostReport) -> Sequence[str]:
    bmc = "cannot be asked" if one.bmc is None else f"NOT KNOWN: {one.bmc_why}" if one.bmc_why else one.bmc
    if one.node is None:
        return [one.host, one.driver, bmc, "no such Node", "-", "-", "-"]
    lease = f"{brief_age(one.lease_seconds)} old" if one.lease_seconds is not None else one.lease_why
    by = moment(one.wake_by)
    return [
        one.host, one.driver, bmc, "Ready" if one.ready else "NotReady", lease, one.mark or "-",
        f"{by:%Y-%m-%d}" if by is not None else "NOT KNOWN" if one.off else "-",
    ]  # fmt: skip


def mark_text(node: Object) -> str | None:
    """Why it is out of service, by which run, and since when."""
    mark, fate = read_mark(node), node_fate(node)
    if mark is None:
        return f"cordoned by {fate.by}" if fate.cordon else None
    since = f" since {fate.since:%Y-%m-%d %H:%M}Z" if fate.since is not None else ""
    return one_line(f"{mark.purpose}{since} by run {mark.run}{f': {mark.why}' if mark.why else ''}")
