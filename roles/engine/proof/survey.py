"""The first step of every deploy with changes: it reads all its nodes, and the control plane, even if --limit excludes it. And what deploys
that only read have in common: the nodes with the versions of their processes, and what these report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from roles.engine import control_plane, kubelet
from roles.engine.api import ApiFailure, GateMetric
from roles.engine.bridge import Fleet, Remote, stop
from roles.engine.control_plane import Component, ControlPlane
from roles.engine.kubelet import Kubelet
from roles.engine.node import FilesWanted, Observation, look
from roles.engine.proof.cluster import Cluster
from roles.engine.proof.identity import claimed_names, other_machine
from roles.engine.proof.versions import KUBELET, AskEach, ObservedNode, with_versions
from roles.engine.transaction import Refusal, in_flight


@dataclass(frozen=True)
class SurveyedNode:
    """One observed node, with what was derived from its observation, once."""

    remote: Remote
    kubelet: Kubelet
    control: ControlPlane

    @property
    def seen(self) -> Observation:
        return self.kubelet.seen

    @property
    def components(self) -> dict[str, Component]:
        return self.control.components


def surveyed(remote: Remote, seen: Observation) -> SurveyedNode:
    """Raises Refusal for a node whose kubelet cannot be read."""
    its_kubelet = kubelet.find(seen)
    return SurveyedNode(remote, its_kubelet, control_plane.look(its_kubelet))


@dataclass
class Survey:
    """The nodes to change, by host; all observed nodes; the cluster, and the same over kept connections (`reading`), for the plan; the
    refusals of all nodes; the processes and files that were ignored. `left_out`: the refusals of workers that --limit excludes: nothing of
    these is in the survey, and they stop no run."""

    nodes: dict[str, SurveyedNode] = field(default_factory=dict)
    observed: dict[str, SurveyedNode] = field(default_factory=dict)
    cluster: Cluster = field(default_factory=Cluster)
    reading: Cluster = field(default_factory=Cluster)
    refusals: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def refuse(self, remote: Remote, refusal: Refusal, fleet: Fleet) -> None:
        """Root on a worker must not stop the runs that leave it out."""
        matters = remote.is_control_plane or remote in fleet.targets
        (self.refusals if matters else self.left_out).append(str(refusal))


def survey(fleet: Fleet, targets: Sequence[Remote], wanted: FilesWanted = kubelet.wanted) -> Survey:
    """Observe `targets`, and the control-plane nodes of the inventory. Raises DeployError if one of the latter is unreachable.

    A node with a change in flight is refused.
    """
    chosen = {remote.name for remote in targets}
    control_planes = [remote for remote in (*fleet.targets, *fleet.others) if remote.is_control_plane and remote.name not in chosen]
    stop(
        f"{remote.unreachable}; no change begins before every control-plane node can be read: fix the connection"
        for remote in control_planes
        if not remote.connected and not remote.connect()
    )
    seen = fleet.each(
        [*targets, *control_planes], lambda remote: look(remote, wanted if remote.name in chosen else kubelet.wanted), doing="read"
    )
    found = Survey()
    looked: list[ObservedNode] = []
    for remote in (*targets, *control_planes):
        observation = seen[remote.name]
        try:
            if remote.name in chosen and (busy := _in_flight(observation)):
                raise Refusal(remote.name, "; ".join(busy), "wait until it is over; deploys/changes.py shows how it ended")
            one = observed(found.cluster, remote, observation)
            assert one.kubelet is not None  # `observed` has refused any other
            found.ignored += [f"{remote.name}: {sentence}" for sentence in control_plane.ignored_files(one.kubelet, one.components)]
            looked.append(one)
        except Refusal as refusal:
            found.refuse(remote, refusal, fleet)
            if not isinstance(observation, Exception):
                found.ignored += [f"{remote.name}: {sentence}" for sentence in observation.ignored]
    found.reading = found.cluster.kept()
    known, not_theirs = identified(found.reading, looked, fleet.each, fleet.inventory)
    for one in looked:
        if (stranger := not_theirs.get(one.remote.name)) is not None:
            found.refuse(one.remote, stranger, fleet)
            continue
        # The same as before, now with the versions.
        found.observed[one.remote.name] = node = surveyed(one.remote, known[one.remote.name])
        if one.remote.name in chosen:
            found.nodes[one.remote.name] = node
    return found


def _in_flight(seen: Observation | Exception) -> list[str]:
    return [] if isinstance(seen, Exception) else [*map(str, in_flight(seen.changes, seen.boot_id, seen.uptime))]


def observed(cluster: Cluster, remote: Remote, seen: Observation | Exception) -> ObservedNode:
    """A node that was observed, or the error of that; its API can be asked from then on. Raises Refusal."""
    if isinstance(seen, Exception):
        raise Refusal.of(remote.name, [seen])
    its_kubelet = kubelet.find(seen)
    components = control_plane.find(its_kubelet)
    refuse_claim(remote, components)
    cluster.add(remote, seen, components)
    return ObservedNode(remote, seen, its_kubelet, components)


def refuse_claim(remote: Remote, components: Mapping[str, Component]) -> None:
    """The inventory says which hosts are control plane; a host that shows its processes and is not in that group is none. Raises
    Refusal."""
    if components and not remote.is_control_plane:
        raise Refusal(
            remote.name,
            f"it runs {', '.join(components)} as static pods, and the inventory does not have it in the group control_plane",
            "add it to that group; or if it is none of the control plane, find out who runs these there, and leave it out with --limit",
        )


def claims(remote: Remote, components: Mapping[str, Component]) -> list[Refusal]:
    """The same for a deploy that only reads: what it would be refused for."""
    try:
        refuse_claim(remote, components)
    except Refusal as refusal:
        return [refusal]
    return []


def identified(
    cluster: Cluster, looked: Sequence[ObservedNode], each: AskEach, inventory: Iterable[Remote]
) -> tuple[dict[str, Observation], dict[str, Refusal]]:
    """The observations with the versions of their processes, which decide what fields and flags mean; and the hosts that are not the Node
    that they name."""
    known = with_versions(cluster, looked, each)
    return known, not_their_node(looked, inventory, cluster.last_nodes())


def not_their_node(
    looked: Sequence[ObservedNode], inventory: Iterable[Remote], nodes: Mapping[str, Mapping[str, Any]]
) -> dict[str, Refusal]:
    """The hosts that are not the Node that they name, and why. `nodes`: as the API has them; {} if it was not asked. What the API says of
    that Node is nothing about such a host, also for a deploy that only reads."""
    names = {one.remote.name: one.kubelet.node_name for one in looked if one.kubelet is not None}
    claimed = dict(claimed_names(names, [remote.name for remote in inventory]))
    found = {}
    for one in looked:
        host = one.remote.name
        if why := claimed.get(host):
            found[host] = Refusal(host, why, "correct its --hostname-override, or the address that the inventory has for it")
        elif why := other_machine(one.seen, nodes.get(names.get(host, ""), {})):
            way_out = "find out which machine it is; one whose IDs were changed reports them when its kubelet is restarted"
            found[host] = Refusal(host, why, way_out)
    return found


# ---- deploys that only read


@dataclass(frozen=True)
class KnownNodes:
    """`cluster`: over kept connections; `seen`: by host, with the versions; `not_theirs`: hosts that are not the Node that they name."""

    cluster: Cluster
    seen: Mapping[str, Observation]
    not_theirs: Mapping[str, Refusal]


def known_nodes(
    looked: Sequence[ObservedNode], each: AskEach, inventory: Iterable[Remote], helpers: Sequence[ObservedNode] = ()
) -> KnownNodes:
    """`helpers`: nodes that only serve the API."""
    cluster = Cluster()
    for one in (*looked, *helpers):
        cluster.add(one.remote, one.seen, dict(one.components))
    cluster = cluster.kept()
    return KnownNodes(cluster, *identified(cluster, looked, each, inventory))


@dataclass(frozen=True)
class Reported:
    """What the processes of a node say: `gates`, by component (/metrics), and the kubelet's whole `configuration` (/configz). `unknown`:
    what could not be asked, by component and one of these two."""

    gates: Mapping[str, Mapping[str, GateMetric]]
    configuration: Mapping[str, Any] | None
    unknown: Mapping[tuple[str, str], Exception]


def reported(cluster: Cluster, host: str, node_name: str, components: Iterable[str], *, configuration: bool = True) -> Reported:
    """Of the kubelet, and of these components of the control plane."""
    questions: dict[tuple[str, str], Callable[[], Any]] = {
        (one, "gates"): partial(cluster.effective, host, one, node_name) for one in (KUBELET, *components)
    }
    if configuration:
        questions[KUBELET, "configuration"] = partial(cluster.configuration, node_name)
    answers: dict[tuple[str, str], Any] = {}
    unknown: dict[tuple[str, str], Exception] = {}
    for about, ask in questions.items():
        try:
            answers[about] = ask()
        except ApiFailure as error:
            unknown[about] = error
    return Reported(
        {one: found for (one, what), found in answers.items() if what == "gates"}, answers.get((KUBELET, "configuration")), unknown
    )
