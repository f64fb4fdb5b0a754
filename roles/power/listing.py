"""The power of the hosts as a table."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from roles.engine.api import ApiFailure
from roles.engine.api.nodes import node_lease
from roles.engine.bridge import Fleet, Remote, whole
from roles.engine.harmless import one_line
from roles.engine.kube import Object, is_ready
from roles.engine.kube.fields import name_of, node_of_host
from roles.engine.objects import Session
from roles.engine.outage import node_fate, read_mark
from roles.engine.power import Driver, PowerError, switch_of
from roles.engine.table import brief_age, render

HEADERS = ("host", "driver", "BMC says", "Node says", "lease", "mark")


def text(fleet: Fleet, drivers: Mapping[str, Driver], session: Session, nodes: Mapping[str, Object]) -> str:
    """A row for each host with the data key power."""
    remotes = [remote for remote in fleet.inventory if remote.name in drivers]
    said = whole(fleet.each(remotes, lambda remote: _bmc(drivers[remote.name]), doing="asked the power of"))
    return render(HEADERS, [_row(remote, drivers[remote.name], said[remote.name], session, nodes) for remote in remotes])


def _bmc(driver: Driver) -> str:
    if driver.driver == "wake_on_lan":
        return "cannot be asked"
    try:
        return switch_of(driver).state()
    except PowerError as error:
        return f"NOT KNOWN: {error}"


def _row(remote: Remote, driver: Driver, bmc: str, session: Session, nodes: Mapping[str, Object]) -> Sequence[str]:
    node = node_of_host(remote.name, remote.address, nodes)
    if node is None:
        return [remote.name, driver.about, bmc, "no such Node", "-", "-"]
    return [remote.name, driver.about, bmc, "Ready" if is_ready(node) else "NotReady", _lease(session, node), mark_text(node)]


def _lease(session: Session, node: Object) -> str:
    try:
        renewed = session.asked(lambda api: node_lease(api, name_of(node))).renewed
    except ApiFailure as error:
        return f"NOT KNOWN: {error}"
    return f"{brief_age(max(0.0, time.time() - renewed.timestamp()))} old" if renewed is not None else "never renewed"


def mark_text(node: Object) -> str:
    """Why it is out of service, by which run, and since when."""
    mark, fate = read_mark(node), node_fate(node)
    if mark is None:
        return f"cordoned by {fate.by}" if fate.cordon else "-"
    since = f" since {fate.since:%Y-%m-%d %H:%M}Z" if fate.since is not None else ""
    return one_line(f"{mark.purpose}{since} by run {mark.run}{f': {mark.why}' if mark.why else ''}")
