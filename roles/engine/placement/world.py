"""Pure: a cluster as its scheduler sees it, with pods whose place is not known.

A pod that waits for a node, one that is about to leave, and one that has just been placed are *possible* on some nodes: whatever is
judged then must hold wherever they are. All other pods are *certain*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any, TypeVar

from roles.engine.kube import Object, amounts, full_name, is_ending, is_ready, matching, pods, resources
from roles.engine.kube.fields import labels_of, name_of, spec_of, status_of, volumes_of
from roles.engine.kube.pods import node_of
from roles.engine.kube.resources import View
from roles.engine.kube.selectors import LabelSelector, label_selector
from roles.engine.placement.storage import HOSTNAME, Attachment, Storage, attachments, driver_of

_S = TypeVar("_S")
_T = TypeVar("_T")
#: A namespace ("": any), a key and its value.
Label = tuple[str, str, str]
_ANY: Label = ("", "", "")


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


#: Amounts of resources that a pod takes.
Asked = tuple[tuple[str, int], ...]
_ITSELF = {"pods": 1}

#: What pods of one workload share, as far as the place of another pod depends on it: namespace, labels, anti-affinity, being deleted.
Likeness = tuple[str, frozenset[tuple[str, str]], tuple[Term, ...], bool]


@dataclass(eq=False)
class Alike:
    """All pods of one likeness: how many there are on each node for sure, and how many there may be; and those whose place is not known."""

    namespace: str
    labels: Mapping[str, str]
    against: tuple[Term, ...]
    ending: bool
    certain: Counter[str] = field(default_factory=Counter)
    possible: Counter[str] = field(default_factory=Counter)
    loose: dict[Held, None] = field(default_factory=dict)

    def add(self, held: Held) -> None:
        self.possible.update(held.nodes)
        if held.certain:
            self.certain.update(held.nodes)
        else:
            self.loose[held] = None

    def remove(self, held: Held) -> None:
        _subtract(self.possible, held.nodes)
        if held.certain:
            _subtract(self.certain, held.nodes)
        else:
            del self.loose[held]


def _subtract(counter: Counter[str], nodes: Iterable[str]) -> None:
    for node in nodes:
        counter[node] -= 1
        if not counter[node]:
            del counter[node]


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
    def requests(self) -> amounts.Amounts:
        return resources.in_units(self.pod, View.SCHEDULED)

    @cached_property
    def asked(self) -> Asked:
        """Its requests, and itself as one of the pods that a node can have."""
        return tuple({**_ITSELF, **self.requests, **_ITSELF}.items())

    @cached_property
    def ports(self) -> frozenset[pods.Port]:
        return pods.host_ports(self.pod)

    @cached_property
    def likeness(self) -> Likeness:
        return likeness(self.pod)

    @cached_property
    def claims(self) -> frozenset[str]:
        return claims_of(self.pod)

    @cached_property
    def own_claims(self) -> int:
        """How many claims are created with it."""
        return sum("ephemeral" in volume for volume in volumes_of(self.pod))


def _rarest(selectors: Iterable[LabelSelector], among: Mapping[Label, Sized], namespace: str = "") -> Label:
    """Of the labels that all have which these selectors match, the one with the least behind it; _ANY if they ask for none."""
    labels = [(namespace, *pair) for selector in selectors for pair in selector.pairs]
    return min(labels, key=lambda label: len(among.get(label, ())), default=_ANY)


def likeness(pod: Object) -> Likeness:
    return (pods.namespace(pod), frozenset(labels_of(pod).items()), terms(pod, "podAntiAffinity"), is_ending(pod))


def claims_of(pod: Object) -> frozenset[str]:
    """The PersistentVolumeClaims that a pod mounts, as NAMESPACE/NAME."""
    found = (one.get("persistentVolumeClaim") for one in volumes_of(pod))
    return frozenset(f"{pods.namespace(pod)}/{one.get('claimName')}" for one in found if one)


#: A taint that a pod does not tolerate, and why its selector or affinity is against the node; None and "" if nothing is.
Suits = tuple[Mapping[str, Any] | None, str]
SUITS: Suits = (None, "")


@dataclass(eq=False)
class Room:
    """A node, and what its pods leave of it: those that are there for sure (`left`), and all that may be (`spare`); less than nothing if
    they request more than it has. `out`: it is to be left. `loose`: the pods that may be there."""

    node: Object
    out: bool
    held: dict[Held, None] = field(default_factory=dict)
    loose: dict[Held, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.left, self.spare = dict(self.allocatable), dict(self.allocatable)

    @cached_property
    def name(self) -> str:
        return name_of(self.node)

    @cached_property
    def alone(self) -> frozenset[str]:
        """Where a pod may be that is on this node."""
        return frozenset((self.name,))

    @cached_property
    def labels(self) -> Mapping[str, str]:
        return labels_of(self.node)

    @cached_property
    def pairs(self) -> frozenset[tuple[str, str]]:
        return frozenset(self.labels.items())

    @cached_property
    def taints(self) -> list[Mapping[str, Any]]:
        return matching.taints_of(self.node, self.out)

    @cached_property
    def allocatable(self) -> dict[str, int]:
        found = amounts.listed(status_of(self.node).get("allocatable"))
        return {resource: amounts.units(resource, amount) for resource, amount in found.items()}

    @cached_property
    def ready(self) -> bool:
        return is_ready(self.node)

    def requested(self, resource: str) -> int:
        """At most, by all pods that may be there."""
        return self.allocatable.get(resource, 0) - self.spare.get(resource, 0)

    def add(self, held: Held) -> None:
        self._count(held, 1)
        self.held[held] = None
        if not held.certain:
            self.loose[held] = None

    def remove(self, held: Held) -> None:
        self._count(held, -1)
        del self.held[held]
        self.loose.pop(held, None)

    def _count(self, held: Held, sign: int) -> None:
        spare, left = self.spare, self.left if held.certain else {}
        for resource, amount in held.asked:
            spare[resource] = spare.get(resource, 0) - sign * amount
            left[resource] = left.get(resource, 0) - sign * amount


class World:
    """The nodes and pods of a view. `without`: the nodes to leave; they stay in the cluster, cordoned. `known`: of the same pods, what was
    read of them already."""

    def __init__(self, view: ClusterView, without: Collection[str] = (), known: Mapping[str, Held] | None = None) -> None:
        self.view = view
        self.rooms = {name_of(node): Room(node, name_of(node) in without) for node in view.nodes}
        self.held: dict[str, Held] = {}
        self.alike: dict[Likeness, Alike] = {}
        #: The same by namespace and label; all of them by ("", "", "").
        self._labelled: dict[Label, list[Alike]] = {}
        #: The terms of their anti-affinity, each by one label that it asks for, in any namespace: the pods that it is about have it.
        self._hostile: dict[Label, list[tuple[Alike, Term]]] = {}
        #: What has been found among the first of some of them: found again for those that came later only.
        self._found: dict[object, tuple[list[Any], dict[Label, int]]] = {}
        #: What has come and gone: the pods, and whether a node that is not left has more room since.
        self.changes: list[tuple[Alike, bool]] = []
        self._users: dict[str, dict[str, Held]] = {}
        self._suits: dict[str, dict[str, Suits]] = {}
        self._drivers: dict[str, tuple[str, str | None]] = {}
        self.storage = Storage(view.of)
        self.claims = None if view.claims is None else {full_name(one): one for one in view.claims}
        self.volumes = {name_of(one): one for one in view.volumes or ()}
        self.namespaces = None if view.namespaces is None else {name_of(one): labels_of(one) for one in view.namespaces}
        for pod in view.pods:
            node = node_of(pod)
            if node in self.rooms and not pods.is_over(pod):
                held = known.get(full_name(pod)) if known is not None else None
                self.put(held if held is not None and held.pod is pod else Held(pod, self.rooms[node].alone, not is_ending(pod)))
        self.changes.clear()

    @cached_property
    def drivers(self) -> dict[str, dict[str, Mapping[str, Any]]]:
        """The CSI drivers of each node, by name, as its CSINode has them."""
        return {
            name_of(node): {str(one.get("name")): one for one in spec_of(node).get("drivers") or ()} for node in self.view.csi_nodes or ()
        }

    def driver(self, claim: str) -> tuple[str, str | None]:
        """The volume of a claim ("" if it has none), and the driver whose limit it counts against: None if that is not known."""
        found = self._drivers.get(claim)
        if found is None:
            bound = str(spec_of((self.claims or {}).get(claim) or {}).get("volumeName") or "")
            found = bound, driver_of(self.volumes[bound], limited=True) if bound in self.volumes else None
            self._drivers[claim] = found
        return found

    @cached_property
    def attached(self) -> dict[str, list[Attachment]]:
        found: dict[str, list[Attachment]] = {}
        for one in attachments(self.view.attachments or ()):
            found.setdefault(one.node, []).append(one)
        return found

    @cached_property
    def waiting(self) -> list[Object]:
        """The pods that wait for a node."""
        return [one for one in self.view.pods if pods.is_alive(one) and not node_of(one)]

    def put(self, held: Held) -> None:
        """Also replaces where the pod was."""
        self._take(held.name)
        self.held[held.name] = held
        for node in held.nodes:
            self.rooms[node].add(held)
        found = self._alike(held)
        found.add(held)
        self.changes.append((found, False))
        for claim in held.claims:
            self._users.setdefault(claim, {})[held.name] = held

    def take(self, pod: Object) -> None:
        self._take(full_name(pod))

    def _take(self, name: str) -> None:
        found = self.held.pop(name, None)
        if found is not None:
            for node in found.nodes:
                self.rooms[node].remove(found)
            alike = self._alike(found)
            alike.remove(found)
            self.changes.append((alike, any(not self.rooms[node].out for node in found.nodes)))
            for claim in found.claims:
                del self._users[claim][found.name]

    def _alike(self, held: Held) -> Alike:
        found = self.alike.get(held.likeness)
        if found is None:
            namespace, _, against, ending = held.likeness
            found = self.alike[held.likeness] = Alike(namespace, labels_of(held.pod), against, ending)
            for label in (_ANY, *((*place, *pair) for place in (("",), (namespace,)) for pair in found.labels.items())):
                self._labelled.setdefault(label, []).append(found)
            for term in against:
                self._hostile.setdefault(_rarest([term.selector], self._hostile), []).append((found, term))
        return found

    def _all(self, key: object, of: Callable[[_S], _T | None], among: Mapping[Label, list[_S]], labels: Iterable[Label]) -> list[_T]:
        """What `of` finds behind these labels, as they were when it was first asked for; `key`: what it depends on."""
        found, seen = self._found.setdefault(key, ([], dict.fromkeys(labels, 0)))
        for label, number in seen.items():
            listed = among.get(label, ())
            if number < len(listed):
                found.extend(one for each in islice(listed, number, None) if (one := of(each)) is not None)
                seen[label] = len(listed)
        return found

    def near(self, wanted: tuple[Term, ...]) -> list[Alike]:
        """The pods that all of these terms are about."""

        def is_near(alike: Alike) -> Alike | None:
            return alike if all(self.is_about(term, alike) for term in wanted) else None

        return self._all(wanted, is_near, self._labelled, [_rarest([term.selector for term in wanted], self._labelled)])

    def selected(self, namespace: str, selector: LabelSelector) -> list[Alike]:
        """The pods of a namespace, without those being deleted, that a selector matches."""

        def is_selected(alike: Alike) -> Alike | None:
            return alike if alike.namespace == namespace and not alike.ending and selector.matches(alike.labels) else None

        return self._all((namespace, selector), is_selected, self._labelled, [_rarest([selector], self._labelled, namespace)])

    def against(self, pod: Object) -> list[tuple[Alike, Term, bool]]:
        """The pods whose anti-affinity is about this one, with its term; False: it may be, since its namespaces' labels are not known."""
        namespace, labels, _, _ = likeness(pod)

        def is_against(one: tuple[Alike, Term]) -> tuple[Alike, Term, bool] | None:
            covered = self.covers(one[1], pod)
            return (*one, covered is True) if covered is not False else None

        return self._all(("against", namespace, labels), is_against, self._hostile, [_ANY, *(("", *pair) for pair in labels)])

    def is_about(self, term: Term, alike: Alike) -> bool | None:
        """As `covers`, of all pods that are alike."""
        return term.selector.matches(alike.labels) and self.in_namespace(term, alike.namespace)

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

    def suits(self, pod: Object) -> dict[str, Suits]:
        """By node: what of it is against a pod, whatever other pods do. Pods of one workload ask the same."""
        key = repr(matching.asked_of_nodes(pod))
        found = self._suits.get(key)
        if found is None:
            found = {
                room.name: (matching.untolerated(pod, room.taints), matching.wrong_node(pod, room.node)) for room in self.rooms.values()
            }
            self._suits[key] = found
        return found
