"""Reads the cluster: what its containers use, over SSH from the kernel, and of other nodes from their kubelets; and what they request."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roles.engine.api import Api, ApiFailure, NotFound, list_objects
from roles.engine.autoscaling import HPAS_PATH, VPAS_PATH
from roles.engine.bridge import Fleet, Remote, doing, whole
from roles.engine.kube import Object
from roles.engine.kube.fields import name_of, namespace_of
from roles.engine.kube.workloads import COLLECTIONS, node_path
from roles.engine.node import ObservationError
from roles.engine.objects import Session
from roles.engine.remote import RemoteError
from roles.engine.timeouts import Deadline
from roles.right_size import kernel, resource_metrics
from roles.right_size.judged import CollectedUse
from roles.right_size.kernel import NodeUse
from roles.right_size.resource_metrics import KubeletUse
from roles.right_size.samples import Read, Seen
from roles.right_size.watching import SoakLook
from roles.right_size.workloads import BETWEEN, ContainerNow, SizedWorkload, containers, failure

#: Reads in one run, at most: a longer `watch` reads less often.
MOST_READS = 120
# What a read keeps of the kernel's counts as it is.
_COUNTED = ("memory", "cache", "peak", "oom_kills", "periods", "throttled", "cpu_pressure", "memory_pressure")


@dataclass(frozen=True)
class ReadAt:
    """One round of reads, at a time (seconds since the epoch by this machine's clock): the kernel's of some nodes, by their names, and the
    kubelet's of others."""

    at: float
    kernels: Mapping[str, NodeUse]
    kubelets: Mapping[str, Mapping[tuple[str, str, str], KubeletUse]]


def cluster_uid(api: Api) -> str:
    """The UID of the namespace kube-system: no other cluster has it."""
    return str(api.get_json("/api/v1/namespaces/kube-system")["metadata"]["uid"])


def list_containers(api: Api, namespaces: Collection[str] | None) -> list[ContainerNow]:
    """Of all namespaces, or of some. Raises ApiError, ValueError."""
    return containers(*_listed(api, namespaces))


def _listed(api: Api, namespaces: Collection[str] | None) -> tuple[list[dict[str, Any]], dict[str, list[dict[str, Any]]]]:
    """The pods, and what is between them and their workloads."""
    return list_objects(api, COLLECTIONS["Pod"], namespaces), {kind: list_objects(api, COLLECTIONS[kind], namespaces) for kind in BETWEEN}


def collect(
    fleet: Fleet, session: Session, nodes: Mapping[str, Remote], watch: float, interval: float, namespaces: Collection[str] | None
) -> CollectedUse:
    """`nodes`: those that are read over SSH, by their names in the cluster. Raises ApiFailure, ValueError."""
    before = session.asked(lambda api: list_containers(api, namespaces), "plan")
    used = {one.node for one in before if one.node}
    others = sorted(used - set(nodes))
    nodes = {name: remote for name, remote in nodes.items() if name in used}
    notes: dict[str, None] = {}
    problems: dict[str, None] = {}
    reads = []
    interval = max(interval, watch / MOST_READS)
    deadline = Deadline(watch, as_given=True)
    while True:
        doing(f"reading what containers use, {deadline.passed:.0f} of {watch:.0f} s")
        reads.append(_round(fleet, session, nodes, others, problems))
        if deadline.left < interval:
            break
        deadline.pause(interval)
    doing("")
    now = session.asked(lambda api: list_containers(api, namespaces), "plan")
    # A container that was restarted meanwhile has two IDs, and both lives count.
    known = {one.id: one for one in (*before, *now) if one.id}
    seen = {one.id: reads_of for one in known.values() if (reads_of := _seen(one, reads))}
    pods = {(one.workload.namespace, one.pod): one.workload for one in now}
    found = CollectedUse(session.asked(cluster_uid, "plan"), now, _lives(before, now), seen, pods)
    if others:
        notes[
            f"{', '.join(others)}: not read over SSH (not in the inventory, or left out by --limit). Only the kubelet's rates are known, "
            "no peak of memory and no OOM kills of processes"
        ] = None
    for node, use in reads[-1].kernels.items():
        if use.cut:
            notes[f"{node}: more than {kernel.MOST} records of containers; the others were not read"] = None
    found.vpas = _optional(session, VPAS_PATH, namespaces, notes)
    found.hpas = _optional(session, HPAS_PATH, namespaces, notes)
    found.limit_ranges = _optional(session, "/api/v1/limitranges", namespaces, notes)
    found.nodes = list(session.fetch_all("/api/v1/nodes"))
    found.notes, found.problems = list(notes), list(problems)
    return found


def look_at(fleet: Fleet, session: Session, nodes: Mapping[str, Remote], workload: SizedWorkload) -> SoakLook:
    """The containers of one workload now, and what the kernel has counted of each. Raises ApiFailure, RemoteError and
    ObservationError."""
    pods, between = session.asked(lambda api: _listed(api, [workload.namespace]))
    mine = [one for one in containers(pods, between) if one.workload == workload]
    failed = {name_of(pod): why for pod in pods if (why := failure(pod))}
    at, there = time.time(), {one.node: nodes[one.node] for one in mine if one.node in nodes}
    read = ReadAt(at, whole(_kernels(fleet, there)), {})
    places = {(one.pod, one.name): one for one in mine}
    return SoakLook(places, {place: seen for place, one in places.items() if (seen := _read(one, read)) is not None}, failed)


def _kernels(fleet: Fleet, nodes: Mapping[str, Remote]) -> dict[str, NodeUse | Exception]:
    """By node."""
    names = {remote.name: node for node, remote in nodes.items()}
    return {names[host]: answer for host, answer in fleet.each(list(nodes.values()), kernel.look).items()}


def _lives(before: Sequence[ContainerNow], now: Sequence[ContainerNow]) -> list[ContainerNow]:
    there = {one.id for one in now if one.id}
    return [*now, *(one for one in before if one.id and one.id not in there)]


def _round(fleet: Fleet, session: Session, nodes: Mapping[str, Remote], others: Sequence[str], problems: dict[str, None]) -> ReadAt:
    at = time.time()
    kernels: dict[str, NodeUse] = {}
    for node, answer in _kernels(fleet, nodes).items():
        if isinstance(answer, (ObservationError, RemoteError)):
            problems[str(answer)] = None
        elif isinstance(answer, Exception):
            raise answer
        else:
            kernels[node] = answer
    kubelets = {}
    for node in others:
        path = f"{node_path(node)}/proxy/metrics/resource"
        try:
            text = session.asked(lambda api, path=path: api.get_raw(path))  # type: ignore[misc]
            kubelets[node] = resource_metrics.parse(text.decode("utf-8", "replace"))
        except ApiFailure as error:
            problems[f"{node}: what its containers use could not be read: {error}"] = None
    return ReadAt(at, kernels, kubelets)


def _seen(one: ContainerNow, reads: Sequence[ReadAt]) -> Seen | None:
    found = [read for read in (_read(one, each) for each in reads) if read is not None]
    return Seen(one.id, one.pod, one.node, one.image, found) if found else None


def _read(one: ContainerNow, read: ReadAt) -> Read | None:
    node = read.kernels.get(one.node)
    if node is not None and (use := node.containers.get((one.uid, one.id))) is not None:
        return Read(
            at=read.at,
            source=f"kernel {node.boot}",
            clock=use.at,
            counter=use.cpu,
            # Both times are of the node's own clock, which may have been set meanwhile: no container is older than the boot of its node.
            age=None if one.started is None else min(use.at, max(0.0, node.clock - one.started)),
            cpu_limit=one.limits.cpu,
            memory_limit=one.limits.memory,
            **{name: getattr(use, name) for name in _COUNTED},
        )
    told = read.kubelets.get(one.node, {}).get((one.workload.namespace, one.pod, one.name))
    if told is None or (told.at is not None and one.started is not None and told.at < one.started):
        return None  # the kubelet's read is of the life before
    age = None if one.started is None or told.at is None else told.at - one.started
    return Read(read.at, f"kubelet {one.node}", told.at, told.cpu, age, told.memory, cpu_limit=one.limits.cpu)


def _optional(session: Session, path: str, namespaces: Collection[str] | None, notes: dict[str, None]) -> list[Object]:
    """The objects of a kind that the cluster may not have, or that this identity may not read."""
    try:
        found = session.asked(lambda api: list_objects(api, path), "plan")
    except NotFound:
        return []
    except ApiFailure as error:
        notes[f"{path.rpartition('/')[2]} could not be read: {error}"] = None
        return []
    return [item for item in found if namespaces is None or namespace_of(item) in namespaces]
