"""Pure: the filters that look at other nodes: PodTopologySpread and InterPodAffinity.

Sources (Kubernetes 1.36): pkg/scheduler/framework/plugins/podtopologyspread/{common,filtering}.go,
pkg/scheduler/framework/plugins/interpodaffinity/filtering.go. Each is judged twice, for pods whose place is not known: with all of them
where they do most harm, and where they help most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from roles.engine.kube import Object, is_ending, matching, pods
from roles.engine.kube.fields import labels_of, spec_of
from roles.engine.kube.selectors import LabelSelector, label_selector
from roles.engine.placement.findings import Findings
from roles.engine.placement.world import Held, Room, Term, World, terms

# A topology key and its value.
Pair = tuple[str, str]


class Affinity:
    """The pod affinity of one pod, and that of the others against it."""

    def __init__(self, pod: Object, world: World) -> None:
        self._near, self._far = terms(pod, "podAffinity"), terms(pod, "podAntiAffinity")
        self.unknown = any(
            not one.of_namespaces.absent and not one.of_namespaces.matches_everything and world.namespaces is None
            for one in (*self._near, *self._far)
        )
        self._is_first = bool(self._near) and all(world.covers(term, pod) for term in self._near)
        #: The pairs with pods that it wants to be near (all terms), or far from; of certain pods, and of all.
        self._partners: tuple[set[Pair], set[Pair]] = (set(), set())
        self._avoided: tuple[set[Pair], set[Pair]] = (set(), set())
        #: The pairs that other pods keep it away from.
        self._barred: tuple[set[Pair], set[Pair]] = (set(), set())
        seeks = bool(self._near or self._far)
        for held in world.held.values():
            if seeks or held.against:
                self._see(held, pod, world)

    def _see(self, held: Held, pod: Object, world: World) -> None:
        if self._near and all(world.covers(term, held.pod) for term in self._near):
            self._note(self._partners, held, self._near, world)
        if self._far and (close := [term for term in self._far if world.covers(term, held.pod)]):
            self._note(self._avoided, held, close, world)
        for term in held.against:
            covered = world.covers(term, pod)
            if covered is not False:
                self._note(self._barred, held, [term], world, sure=covered is True)

    def _note(self, into: tuple[set[Pair], set[Pair]], held: Held, of: Iterable[Term], world: World, sure: bool = True) -> None:
        for room in world.placed(held):
            found = {(term.key, room.labels[term.key]) for term in of if term.key in room.labels}
            into[1].update(found)
            if held.certain and sure:
                into[0].update(found)

    def check(self, room: Room, found: Findings) -> None:
        """The filter for one node."""
        pairs = set(room.labels.items())
        near = {(term.key, room.labels.get(term.key, "")) for term in self._near}
        if any(term.key not in room.labels for term in self._near):
            found.no.append("it has not all labels that the pod's affinity names")
        elif near:
            self._check_near(near, found)
        far = {(term.key, room.labels[term.key]) for term in self._far if term.key in room.labels}
        for mine, theirs, why in (
            (far, self._avoided, "a pod is there that the pod's anti-affinity avoids"),
            (pairs, self._barred, "the anti-affinity of a pod there is against it"),
        ):
            if mine & theirs[0]:
                found.no.append(why)
            elif mine & theirs[1]:
                found.unsure.append(f"{why}, or will be")

    def _check_near(self, near: set[Pair], found: Findings) -> None:
        certain, possible = self._partners
        why = "no pod is there that the pod's affinity wants"
        if near <= certain:
            return
        if not possible and self._is_first:
            return  # the first of pods that want each other
        if near <= possible or (self._is_first and not certain):
            found.unsure.append(f"{why} for sure")
        else:
            found.no.append(why)


# ---- spread


@dataclass(frozen=True)
class _Constraint:
    key: str
    skew: int
    selector: LabelSelector
    least_domains: int
    honors_affinity: bool
    honors_taints: bool


def _constraints(pod: Object) -> list[_Constraint]:
    """Those that a scheduler must satisfy. The cluster's default ones only order nodes (plugins/podtopologyspread/plugin.go)."""
    return [
        _Constraint(
            str(one.get("topologyKey")),
            int(one.get("maxSkew") or 1),
            label_selector(one.get("labelSelector")).with_own(one.get("matchLabelKeys") or (), labels_of(pod)),
            int(one.get("minDomains") or 1),
            (one.get("nodeAffinityPolicy") or "Honor") == "Honor",
            (one.get("nodeTaintsPolicy") or "Ignore") == "Honor",
        )
        for one in spec_of(pod).get("topologySpreadConstraints") or ()
        if one.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"
    ]


class Spread:
    """The topology spread constraints of one pod."""

    def __init__(self, pod: Object, world: World) -> None:
        self._constraints = _constraints(pod)
        self._own = [one.selector.matches(labels_of(pod)) for one in self._constraints]
        #: By constraint and value of its key: how many pods are there for sure, and at most.
        self._least: list[Counter[str]] = [Counter() for _ in self._constraints]
        self._most: list[Counter[str]] = [Counter() for _ in self._constraints]
        if not self._constraints:
            return
        keys = {one.key for one in self._constraints}
        counted = [room for room in world.rooms.values() if keys <= room.labels.keys()]
        mine = [held for held in world.held.values() if pods.namespace(held.pod) == pods.namespace(pod) and not is_ending(held.pod)]
        for number, one in enumerate(self._constraints):
            eligible = {room.name: room.labels[one.key] for room in counted if _eligible(pod, room, one)}
            for value in eligible.values():
                self._least[number][value] += 0
                self._most[number][value] += 0
            if one.selector.matches_everything:
                continue  # an empty selector counts no pod (common.go: countPodsMatchSelector)
            for held in mine:
                if one.selector.matches(labels_of(held.pod)):
                    for value in {eligible[node] for node in held.nodes if node in eligible}:
                        self._most[number][value] += 1
                        self._least[number][value] += held.certain

    def check(self, room: Room, found: Findings) -> None:
        """The filter for one node."""
        for number, one in enumerate(self._constraints):
            if one.key not in room.labels:
                found.no.append(f"it has no label {one.key}, by which the pod is spread")
                continue
            value = room.labels[one.key]
            least, most = self._least[number], self._most[number]
            few = len(most) < one.least_domains
            worst = most[value] + self._own[number] - (0 if few else min(least.values()))
            best = least[value] + self._own[number] - (0 if few else min(most.values()))
            why = f"its spread by {one.key} would be over {one.skew}"
            if best > one.skew:
                found.no.append(why)
            elif worst > one.skew:
                found.unsure.append(f"{why}, if other pods go there")


def _eligible(pod: Object, room: Room, one: _Constraint) -> bool:
    if one.honors_affinity and matching.wrong_node(pod, room.node):
        return False
    return not (one.honors_taints and matching.untolerated(pod, room.taints) is not None)
