"""Consolidation: which nodes the work could do without, what that saves, and what keeps the others; and their way out of service."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from roles.consolidation import hours, kept, model, owners, page, plan, report
from roles.consolidation.carry_model import CarryOptions
from roles.consolidation.dump import as_dump
from roles.consolidation.judging import Judge
from roles.consolidation.model import (
    ConsolidateOptions,
    ConsolidationReport,
    MachineData,
    Machines,
    read_machines,
)
from roles.consolidation.plan import Consolidation
from roles.consolidation.preparing import Asked, ends, prepare, verified, with_awake
from roles.consolidation.preparing import read as read_live
from roles.consolidation.run import UNDO, ConsolidationRun
from roles.engine import bridge
from roles.engine.api import ApiFailure
from roles.engine.bridge import Fleet, Remote
from roles.engine.disruption import DisruptionObjects
from roles.engine.files import FILE_MODE, write_whole
from roles.engine.folding import shortened
from roles.engine.inputs import Changes, Declared, unmatched
from roles.engine.kube import Object
from roles.engine.kube.fields import labels_of, name_of, node_addresses
from roles.engine.object_runs import connect_servers
from roles.engine.outage import cluster_time
from roles.engine.placement.storage import HOSTNAME
from roles.engine.power.model import HostPower
from roles.engine.runs import Ended, Options, Turns, deploying, document, one, show_report, with_options
from roles.engine.transaction import Refusal
from roles.engine.voice import show, show_lines
from roles.power import PowerOptions, drivers_of, read_options

_FEW = 5


@dataclass(frozen=True)
class _Read:
    options: Options
    asked: Asked
    machines: Machines


def _read(fleet: Fleet) -> _Read:
    with bridge.refusing(Refusal):
        machines = read_machines([(remote.name, remote.data) for remote in fleet.inventory])
    options, own = with_options(ConsolidateOptions)(fleet)
    power = read_options(fleet).model_copy(update={"allow_local_data": own.allow_local_data})
    return _Read(options, Asked(own, one(CarryOptions)(fleet), power), machines)


@deploying("Consolidation", _read, of_cluster=True)
def consolidate(fleet: Fleet, read: _Read) -> Turns | Ended:
    """Show which nodes the work could do without, and take them out of service: drained, and powered off or left cordoned.

    Data keys: those of roles/consolidation/model.py and carry_model.py, consents of a drain, time limits of power, and those of
    roles/engine/runs/options.py. Raises DeployError for data that does not have the cost of each host, if the cluster cannot be read, and
    before any write if a node must not go after all.
    """
    asked, options = read.asked, read.asked.options
    surveyed, session = connect_servers(fleet, options.kubeconfig)
    with bridge.refusing((ApiFailure, ValueError), "the cluster cannot be read: "):
        live, now = read_live(session, asked), cluster_time(session)
        judge = _judge(fleet, read, live)
        found, left = judge.plan(live, now)
    drivers = drivers_of(fleet)
    notes = [*_notes(fleet, judge.hosts), *left, *([then] if (then := ends(found, asked, drivers)) else [])]
    result = report.as_document(found, notes)
    people = _show(options, found, result)
    line = result.verdict if people else ""
    if bridge.only_plans():
        if asked.verify and found.goes:
            answer = verified(surveyed, asked, with_awake(live, found.plan.woken), found)
            if people:
                show_lines(answer)
        return Ended(line)
    bridge.stop(report.not_free(found))
    if not found.goes:
        return Ended(f"NOTHING TO DO: {line}" if line else "")
    carrying, more = prepare(fleet, read.options, asked, judge, found, live)
    run = ConsolidationRun(asked.options.model_dump(mode="json"), fleet, read.options, carrying, found)
    show(f"\nPlan of run {run.info.id}: {result.verdict}")
    for step in run.steps:
        show(f"  {step.name}: {step.summary}")
    for text in more:
        show_lines(f"\n{text}")
    return Turns.of(run, fleet, "cordon, drain, and power off")


def _judge(fleet: Fleet, read: _Read, live: DisruptionObjects) -> Judge:
    hosts = hosts_of(live.of("Node"), fleet.inventory)
    chosen = _chosen(fleet, read.asked.options, hosts, live.of("Node"))
    taken = {hosts[node].name for node in chosen if node in hosts} if read.asked.options.take_back and chosen else set()
    bridge.stop(
        f"take_back: {host} is owned; name machines with capacity = 'reclaimable' (deploys/drain.py drains any node)"
        for host in sorted(taken - read.machines.reclaimable.keys())
    )
    return Judge(
        replace(read.machines, taken_back=frozenset(taken)),
        {node: host.name for node, host in hosts.items()},
        servers={node for node, host in hosts.items() if host.is_control_plane},
        options=read.asked.options,
        chosen=chosen,
    )


def _show(options: ConsolidateOptions, found: Consolidation, result: ConsolidationReport) -> bool:
    """True if standard output has text for people."""
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
    return people


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
    ways = {"--data nodes=": options.nodes, "--data take_back=": options.take_back, "--limit": limited}
    named = [way for way, names in ways.items() if names]
    if len(named) > 1:
        raise bridge.refusals([f"nodes are named twice, by {' and by '.join(named[:2])}: keep one of them"])
    key, asked = ("take_back" if options.take_back else "nodes"), options.nodes or options.take_back or limited
    if not asked:
        return None
    by_host = {host.name: node for node, host in hosts.items()}
    bridge.stop(f"{key}: {text}" for text in unmatched(asked, {*by_host, *map(name_of, nodes)}, "no host of the inventory and no node"))
    return {by_host.get(name, name) for name in asked}


def _notes(fleet: Fleet, hosts: Mapping[str, str]) -> list[str]:
    there = set(hosts.values())
    without = [remote.name for remote in fleet.inventory if remote.name not in there]
    return [f"no Node of the cluster has the name or address of {shortened(without, _FEW)}: not counted"] if without else []


DATA_KEYS = (
    Declared(ConsolidateOptions, ("consolidate",), changes=Changes.BOOTS, undo=UNDO),
    Declared(CarryOptions, ("consolidate",)),
    Declared(PowerOptions, ("consolidate",), names=("drain_timeout", "max_grace", "surge", "off_timeout", "on_timeout")),
    Declared(MachineData, ("consolidate", "node_autoscaler")),
    Declared(HostPower, ("consolidate",)),
)
DOCUMENTS = {"consolidate": ConsolidationReport}

__all__ = [
    "DATA_KEYS",
    "DOCUMENTS",
    "consolidate",
    "hosts_of",
    "hours",
    "kept",
    "model",
    "owners",
    "plan",
]
