"""The eviction order of every node: a table for people, JSON for programs, an HTML page. Only reads."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from pydantic import Field

from roles.engine import bridge, kubelet
from roles.engine.api import Api, ApiError, NoApi
from roles.engine.api.nodes import kubelet_config, node_usage
from roles.engine.bridge import Fleet
from roles.engine.files import write_whole
from roles.engine.folding import counted
from roles.engine.inputs import TEXT, Frozen
from roles.engine.inputs.values import TableOrJson, file_path
from roles.engine.kubelet.thresholds import Threshold, effective
from roles.engine.node import ObservationError, look
from roles.engine.proof import Cluster, ObservedNode, listed_nodes, not_their_node, observed
from roles.engine.remote import RemoteError
from roles.engine.runs import Ended, deploying, document, one, show_report
from roles.engine.screen import wrapped
from roles.engine.transaction import Refusal
from roles.engine.voice import show
from roles.eviction import picture, usage
from roles.eviction.order import NodeOrder, OrdersReport, order, order_as_table, order_report


class OrderOptions(Frozen):
    """The data keys of deploys/eviction_order.py."""

    format: TableOrJson = "table"
    picture: Annotated[
        Path | None,
        file_path("picture", "order.html"),
        TEXT,
        Field(description="a path on the operator's machine for one HTML page", examples=["order.html"]),
    ] = None


@deploying("Eviction order", one(OrderOptions))
def eviction_order(fleet: Fleet, options: OrderOptions) -> Ended:
    """Show the eviction order of each node of the run, and why.

    Data keys: `format` (table, or json: one document on standard output) and `picture` (a path on the operator's machine for one HTML
    page). Raises DeployError if a node could not be shown, after it has shown all others.
    """
    problems = [f"{remote.unreachable}; fix the connection" for remote in fleet.unreachable]
    ignored: list[str] = []
    nodes = _nodes(fleet, problems, ignored)
    forms = {
        "table": lambda: "\n".join(f"\n{part}" for part in (*map(order_as_table, nodes), *map(wrapped, ignored))),
        "json": lambda: document(OrdersReport(nodes=tuple(map(order_report, nodes)), problems=tuple(problems), ignored=tuple(ignored))),
    }
    show_report(forms, options.format)
    if options.picture:
        made = datetime.now(UTC).strftime("Observed on %Y-%m-%d at %H:%M UTC")
        try:
            write_whole(options.picture, picture.page(nodes, made=made, problems=problems))
        except OSError as error:
            problems.append(f"{options.picture}: the picture could not be written: {error.strerror or error}")
        else:
            if options.format != "json":
                show(f"\npicture: {options.picture}")
    if problems:
        raise bridge.refuse("not all nodes could be shown:", problems)
    return Ended("" if options.format == "json" else f"{counted(len(nodes), 'node')} read")


def _nodes(fleet: Fleet, problems: list[str], ignored: list[str]) -> list[NodeOrder]:
    """The nodes in the inventory's order. `problems` gets the nodes that could not be read, `ignored` the processes with a component's
    name that are not the node's own."""
    helpers = fleet.helpers()
    seen = fleet.each([*fleet.targets, *helpers], lambda remote: look(remote, kubelet.wanted))
    cluster, looked = Cluster(), list[ObservedNode]()
    for remote in (*fleet.targets, *helpers):
        found = seen[remote.name]
        # Even if the node cannot be shown: these processes may be the reason.
        if remote in fleet.targets and not isinstance(found, Exception):
            ignored += [f"{remote.name}: {sentence}" for sentence in found.ignored]
        try:
            looked.append(observed(cluster, remote, found))
        except Refusal as refusal:
            if remote in fleet.targets:
                problems.append(str(refusal))
    try:
        api = cluster.api()
    except NoApi as error:
        raise bridge.refuse("no node could be shown:", (f"usage is read through the API: {error}", *problems)) from None
    not_theirs = not_their_node(looked, fleet.inventory, listed_nodes(cluster))
    problems += [str(refusal) for host, refusal in not_theirs.items() if host in {remote.name for remote in fleet.targets}]
    names = {one.remote.name: one.kubelet.node_name for one in looked if one.kubelet is not None and one.remote.name not in not_theirs}
    targets = [remote for remote in fleet.targets if remote.name in names]
    processes = fleet.each(targets, usage.look)
    nodes = []
    for remote in targets:
        try:
            nodes.append(node_order(api, names[remote.name], processes[remote.name]))
        except (ApiError, ValueError) as error:
            problems.append(f"{remote.name}: {error}" if isinstance(error, ValueError) else str(error))
    return nodes


def node_order(api: Api, name: str, processes: Sequence[usage.ContainerProcess] | Exception) -> NodeOrder:
    """One node, by its name in the cluster; `processes` as usage.look returns them, or its error.

    Raises ApiError or ValueError; if optional data cannot be read, a note says so.
    """
    notes = []
    if isinstance(processes, Exception):
        if not isinstance(processes, (ObservationError, RemoteError)):
            raise processes
        notes.append(f"oom_score_adj: {processes}")
    thresholds: tuple[Threshold, ...] = ()
    try:
        thresholds = effective(kubelet_config(api, name))
    except (ApiError, ValueError) as error:
        notes.append(f"thresholds are unknown: {error}")
    got = node_usage(api, name)
    read = None if isinstance(processes, Exception) else processes
    return order(got.summary, got.pods, got.node, processes=read, thresholds=thresholds, more_notes=notes)
