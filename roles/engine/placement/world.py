"""Pure: a cluster as its scheduler sees it, with pods whose place is not known.

A pod that waits for a node, one that is about to leave, and one that has just been placed are *possible* on some nodes: whatever is
judged then must hold wherever they are. All other pods are *certain*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from roles.engine.kube import Object, amounts, full_name, is_ending, is_ready, matching, pods, resources
from roles.engine.kube.fields import labels_of, name_of, spec_of, status_of, volumes_of
from roles.engine.kube.pods import node_of
from roles.engine.kube.resources import View
from roles.engine.kube.selectors import LabelSelector, label_selector
from roles.engine.placement.storage import HOSTNAME, Storage


@dataclass(frozen=True)
class ClusterView:
    """What was read of a cluster, as the API's raw JSON. None: not read, so what depends on it cannot be judged.

    `nodes`, `pods`: all of the cluster. `claims`, `volumes`, `csi_nodes`, `attachments`, `drivers`: PersistentVolumeClaims,
    PersistentVolumes, CSINodes, VolumeAttachments, CSIDrivers. `namespaces`: for terms with a namespaceSelector. `unknown`: why nothing of
    this cluster can be judged, such as another configuration of its scheduler.
    """

    nodes: Sequence[Object]
    pods: Sequence[Object]
    claims: Sequence[Object] | None = None
    volumes: Sequence[Object] | None = None
    csi_nodes: Sequence[Object] | None = None
    attachments: Sequence[Object] | None = None
    namespaces: Sequence[Object] | None = None
    unknown: str = ""
    drivers: Sequence[Object] | None = None

    def of(self, kind: str) -> Sequence[Object]:
        """The objects of a kind that Storage asks for."""
        found = {
            "Node": self.nodes,
            "PersistentVolumeClaim": self.claims,
            "PersistentVolume": self.volumes,
            "VolumeAttachment": self.attachments,
            "CSIDriver": self.drivers,
        }
        return found[kind] or ()


@dataclass(frozen=True)
class Term:
    """A term of required pod (anti-)affinity. `namespaces`: by name; `of_namespaces`: a selector of their labels."""

    key: str
    selector: LabelSelector
    namespaces: frozenset[str]
    of_namespaces: LabelSelector


def terms(pod: Object, kind: str) -> tuple[Term, ...]:
    """The required terms of podAffinity or podAntiAffinity."""
    found = ((spec_of(pod).get("affinity") or {}).get(kind) or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or ()
    return tuple(_term(pod, one) for one in found)


def _term(pod: Object, term: Mapping[str, Any]) -> Term:
    named, selector = term.get("namespaces") or (), label_selector(term.get("namespaceSelector"))
    own = (pods.namespace(pod),) if not named and selector.absent else named
    wanted = label_selector(term.get("labelSelector")).with_own(term.get("matchLabelKeys") or (), labels_of(pod))
    return Term(str(term.get("topologyKey")), wanted, frozenset(own), selector)


@dataclass(frozen=True, eq=False)
class Held:
    """A pod and the nodes it may be on. `certain`: it is on its only one, and stays."""

    pod: Object
    nodes: frozenset[str]
    certain: bool

    @cached_property
    def name(self) -> str:
        return full_name(self.pod)

    @cached_property
    def requests(self) -> dict[str, int]:
        return resources.in_units(resources.requests(self.pod, View.SCHEDULED))

    @cached_property
    def ports(self) -> frozenset[pods.Port]:
        return pods.host_ports(self.pod)

    @cached_property
    def against(self) -> tuple[Term, ...]:
        return terms(self.pod, "podAntiAffinity")

    @cached_property
    def claims(self) -> frozenset[str]:
        return claims_of(self.pod)


def claims_of(pod: Object) -> frozenset[str]:
    """The PersistentVolumeClaims that a pod mounts, as NAMESPACE/NAME."""
    found = (one.get("persistentVolumeClaim") for one in volumes_of(pod))
    return frozenset(f"{pods.namespace(pod)}/{one.get('claimName')}" for one in found if one)


@dataclass(eq=False)
class Room:
    """A node, and what the pods on it hold: for sure (`used`), and at most (`most`). `out`: it is to be left."""

    node: Object
    out: bool
    used: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)
    held: list[Held] = field(default_factory=list)

    @cached_property
    def name(self) -> str:
        return name_of(self.node)

    @cached_property
    def labels(self) -> Mapping[str, str]:
        return labels_of(self.node)

    @cached_property
    def taints(self) -> list[Mapping[str, Any]]:
        return matching.taints_of(self.node, self.out)

    @cached_property
    def allocatable(self) -> dict[str, int]:
        found = amounts.listed(status_of(self.node).get("allocatable"))
        return {resource: amounts.units(resource, amount) for resource, amount in found.items()}

    @property
    def ready(self) -> bool:
        return is_ready(self.node)

    def add(self, held: Held, sign: int = 1) -> None:
        both = (self.used, self.most) if held.certain else (self.most,)
        for counter in both:
            counter["pods"] += sign
            for resource, amount in held.requests.items():
                counter[resource] += sign * amount
        if sign > 0:
            self.held.append(held)
        else:
            self.held.remove(held)


class World:
    """The nodes and pods of a view. `without`: the nodes to leave; they stay in the cluster, cordoned."""

    def __init__(self, view: ClusterView, without: Collection[str] = ()) -> None:
        self.view = view
        self.rooms = {name_of(node): Room(node, name_of(node) in without) for node in view.nodes}
        self.held: dict[str, Held] = {}
        self._users: dict[str, dict[str, Held]] = {}
        self.storage = Storage(view.of)
        self.claims = None if view.claims is None else {full_name(one): one for one in view.claims}
        self.volumes = {name_of(one): one for one in view.volumes or ()}
        self.namespaces = None if view.namespaces is None else {name_of(one): labels_of(one) for one in view.namespaces}
        for pod in view.pods:
            node = node_of(pod)
            if not pods.is_over(pod) and node in self.rooms:
                self.put(Held(pod, frozenset({node}), not is_ending(pod)))

    @cached_property
    def waiting(self) -> list[Object]:
        """The pods that wait for a node."""
        return [one for one in self.view.pods if pods.is_alive(one) and not node_of(one)]

    def put(self, held: Held) -> None:
        """Also replaces where the pod was."""
        self.take(held.pod)
        self.held[held.name] = held
        for node in held.nodes:
            self.rooms[node].add(held)
        for claim in held.claims:
            self._users.setdefault(claim, {})[held.name] = held

    def take(self, pod: Object) -> None:
        found = self.held.pop(full_name(pod), None)
        if found is not None:
            for node in found.nodes:
                self.rooms[node].add(found, -1)
            for claim in found.claims:
                del self._users[claim][found.name]

    def users(self, claim: str, pod: Object) -> list[Held]:
        """The other pods that mount a claim."""
        return [held for held in self._users.get(claim, {}).values() if not pods.same(held.pod, pod)]

    def leaves(self, pod: Object) -> None:
        """The pod is about to leave its node."""
        found = self.held.get(full_name(pod))
        if found is not None and found.certain:
            self.put(Held(found.pod, found.nodes, False))

    def in_namespace(self, term: Term, namespace: str) -> bool | None:
        """None if the namespace's labels are not known."""
        if namespace in term.namespaces or term.of_namespaces.matches_everything:
            return True
        if term.of_namespaces.absent:
            return False
        if self.namespaces is None:
            return None
        return term.of_namespaces.matches(self.namespaces.get(namespace))

    def covers(self, term: Term, pod: Object) -> bool | None:
        """True if a pod is one that the term is about; None if its namespace's labels are not known."""
        return term.selector.matches(labels_of(pod)) and self.in_namespace(term, pods.namespace(pod))

    def on_one_node(self, one: Object, other: Object) -> bool:
        """A required affinity of one of them keeps both on the same node."""
        return any(
            term.key == HOSTNAME and bool(self.covers(term, against))
            for pod, against in ((one, other), (other, one))
            for term in terms(pod, "podAffinity")
        )

    def placed(self, held: Held) -> Iterator[Room]:
        return (self.rooms[node] for node in held.nodes)
