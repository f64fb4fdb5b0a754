"""Consolidation: which nodes the work could do without, what that saves, and what keeps the others. Only plans."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from roles.consolidation import kept, model, page, plan, report
from roles.consolidation.dump import as_dump
from roles.consolidation.kept import Keeper
from roles.consolidation.model import (
    ConsolidateOptions,
    ConsolidationReport,
    MachineData,
    Machines,
    read_machines,
)
from roles.consolidation.plan import Consolidation
from roles.consolidation.plan import consolidate as planned
from roles.engine import bridge
from roles.engine.api import ApiFailure
from roles.engine.bridge import Fleet, Remote
from roles.engine.files import FILE_MODE, write_whole
from roles.engine.folding import shortened
from roles.engine.inputs import Declared, unmatched
from roles.engine.kube import Object
from roles.engine.kube.fields import labels_of, name_of, node_addresses
from roles.engine.object_runs import connect_servers
from roles.engine.outage import cluster_time, read_drain
from roles.engine.placement.storage import HOSTNAME
from roles.engine.runs import Ended, deploying, document, one, show_report
from roles.engine.transaction import Refusal
from roles.engine.voice import show

_FEW = 5


@dataclass(frozen=True)
class _Asked:
    options: ConsolidateOptions
    machines: Machines


def _read(fleet: Fleet) -> _Asked:
    if not bridge.only_plans():
        why = "this deploy only plans so far, and takes no node out: add --dry (deploys/drain.py drains the nodes that it names)"
        raise bridge.refusals([why])
    with bridge.refusing(Refusal):
        machines = read_machines([(remote.name, remote.data) for remote in fleet.inventory])
    return _Asked(one(ConsolidateOptions)(fleet), machines)


@deploying("Consolidation", _read, of_cluster=True)
def consolidate(fleet: Fleet, asked: _Asked) -> Ended:
    """Show which nodes the work could do without. Changes nothing.

    Data keys: those of roles/consolidation/model.py. Raises DeployError without --dry, for data that does not have the cost of each host,
    and if the cluster cannot be read.
    """
    options = asked.options
    found, notes = _plan(fleet, asked)
    result = report.as_document(found, notes)
    if options.dump is not None:
        with bridge.refusing(OSError, f"dump={options.dump}: choose another path; it cannot be written there: "):
            write_whole(options.dump, as_dump(found.problem, secrets.token_bytes(32)), FILE_MODE)
    forms: dict[str, Callable[[], str]] = {
        "text": lambda: "\n".join(report.text(result)),
        "json": lambda: document(result),
        "html": lambda: page.page(result),
    }
    show_report(forms, options.format, options.output)
    people = options.format == "text" or options.output is not None
    if people and options.dump is not None:
        show(f"\ndump: {options.dump}")
    return Ended(result.verdict if people else "")


def _plan(fleet: Fleet, asked: _Asked) -> tuple[Consolidation, list[str]]:
    options = asked.options
    _, session = connect_servers(fleet, options.kubeconfig)
    with bridge.refusing((ApiFailure, ValueError), "the cluster cannot be read: "):
        live, now = read_drain(session), cluster_time(session)
        hosts = hosts_of(live.of("Node"), fleet.inventory)
        keeper = Keeper(
            live,
            now,
            servers={node for node, host in hosts.items() if host.is_control_plane},
            known=hosts,
            chosen=_chosen(fleet, options, hosts, live.of("Node")),
            allow_local_data=options.allow_local_data,
        )
        names = {node: host.name for node, host in hosts.items()}
        return planned(keeper, asked.machines, names, options.spare_nodes, options.max_moves), _notes(fleet, hosts)


def hosts_of(nodes: Collection[Object], inventory: Sequence[Remote]) -> dict[str, Remote]:
    """The host of each Node, by its name: a host has the Node's name or, if no other Node has that, its hostname or one of its addresses
    (which the node itself reports)."""
    by_name = {name: remote for remote in reversed(inventory) for name in (remote.address, remote.name)}
    ways: tuple[Callable[[Object], list[str]], ...] = (
        lambda node: [name_of(node)],
        lambda node: [labels_of(node).get(HOSTNAME, "")],
        lambda node: [address for _, address in node_addresses(node)],
    )
    found: dict[str, Remote] = {}
    for names in ways:
        for node in nodes:
            host = next((by_name[name] for name in names(node) if name in by_name), None)
            if host is not None and name_of(node) not in found and host not in found.values():
                found[name_of(node)] = host
    return found


def _chosen(fleet: Fleet, options: ConsolidateOptions, hosts: Mapping[str, Remote], nodes: Collection[Object]) -> Collection[str] | None:
    """The Nodes that may go, None: all. Raises DeployError."""
    limited = [remote.name for remote in (*fleet.targets, *fleet.unreachable)] if fleet.others else []
    if options.nodes and limited:
        raise bridge.refusals(["nodes are named twice, by --data nodes= and by --limit: keep one of them"])
    asked = options.nodes or limited
    if not asked:
        return None
    by_host = {host.name: node for node, host in hosts.items()}
    bridge.stop(f"nodes: {text}" for text in unmatched(asked, {*by_host, *map(name_of, nodes)}, "no host of the inventory and no node"))
    return {by_host.get(name, name) for name in asked}


def _notes(fleet: Fleet, hosts: Mapping[str, Remote]) -> list[str]:
    there = {host.name for host in hosts.values()}
    without = [remote.name for remote in fleet.inventory if remote.name not in there]
    return [f"no Node of the cluster has the name or address of {shortened(without, _FEW)}: not counted"] if without else []


DATA_KEYS = (
    Declared(ConsolidateOptions, ("consolidate",)),
    Declared(MachineData, ("consolidate",)),
)
DOCUMENTS = {"consolidate": ConsolidationReport}

__all__ = ["DATA_KEYS", "DOCUMENTS", "consolidate", "kept", "model", "plan"]
