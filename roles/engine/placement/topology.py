"""Pure: the filters that look at other nodes: PodTopologySpread and InterPodAffinity.

Sources (Kubernetes 1.36): pkg/scheduler/framework/plugins/podtopologyspread/{common,filtering}.go,
pkg/scheduler/framework/plugins/interpodaffinity/filtering.go. Each is judged twice, for pods whose place is not known: with all of them
where they do most harm, and where they help most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from roles.engine.kube import Object, pods
from roles.engine.kube.fields import labels_of, spec_of
from roles.engine.kube.selectors import LabelSelector, label_selector
from roles.engine.placement.findings import Findings
from roles.engine.placement.world import Alike, Room, Suits, Term, World, terms

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
        self._world = world
        #: The pairs with pods that it wants to be near (all terms), or far from; of certain pods, and of all.
        self._partners = self._pairs((alike, term) for alike in (world.near(self._near) if self._near else ()) for term in self._near)
        self._avoided = self._pairs((alike, term) for term in self._far for alike in world.near((term,)))
        #: The pairs that other pods keep it away from.
        against = world.against(pod)
        self._barred = self._pairs((alike, term) for alike, term, sure in against if sure)
        self._barred[1].update(self._pairs((alike, term) for alike, term, sure in against if not sure)[1])
        #: No node is judged by it.
        self.idle = not (self._near or self._far or self._barred[1])

    def _pairs(self, of: Iterable[tuple[Alike, Term]]) -> tuple[set[Pair], set[Pair]]:
        found: tuple[set[Pair], set[Pair]] = (set(), set())
        for alike, term in of:
            for into, counted in zip(found, (alike.certain, alike.possible), strict=True):
                labels = (self._world.rooms[node].labels for node in counted)
                into.update((term.key, there[term.key]) for there in labels if term.key in there)
        return found

    def check(self, room: Room, found: Findings) -> None:
        """The filter for one node."""
        near = {(term.key, room.labels.get(term.key, "")) for term in self._near}
        if any(term.key not in room.labels for term in self._near):
            found.no.append("it has not all labels that the pod's affinity names")
        elif near:
            self._check_near(near, found)
        far = {(term.key, room.labels[term.key]) for term in self._far if term.key in room.labels}
        for mine, theirs, why in (
            (far, self._avoided, "a pod is there that the pod's anti-affinity avoids"),
            (room.pairs, self._barred, "the anti-affinity of a pod there is against it"),
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
class Constraint:
    key: str
    skew: int
    selector: LabelSelector
    least_domains: int
    honors_affinity: bool
    honors_taints: bool


def constraints(pod: Object) -> list[Constraint]:
    """Those that a scheduler must satisfy. The cluster's default ones only order nodes (plugins/podtopologyspread/plugin.go)."""
    return [
        Constraint(
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
        self._constraints = constraints(pod)
        self._own = [one.selector.matches(labels_of(pod)) for one in self._constraints]
        #: By constraint and value of its key: how many pods are there for sure, and at most.
        self._least: list[Counter[str]] = [Counter() for _ in self._constraints]
        self._most: list[Counter[str]] = [Counter() for _ in self._constraints]
        self.idle = not self._constraints
        if self.idle:
            return
        keys = {one.key for one in self._constraints}
        counted = [room for room in world.rooms.values() if keys <= room.labels.keys()]
        suits = world.suits(pod)
        for number, one in enumerate(self._constraints):
            eligible = {room.name: room.labels[one.key] for room in counted if _eligible(suits[room.name], one)}
            self._least[number].update(dict.fromkeys(eligible.values(), 0))
            self._most[number].update(dict.fromkeys(eligible.values(), 0))
            if not one.selector.matches_everything:  # an empty selector counts no pod (common.go: countPodsMatchSelector)
                for alike in world.selected(pods.namespace(pod), one.selector):
                    self._count(number, alike, eligible)
        self._fewest = [
            (min(least.values(), default=0), min(most.values(), default=0)) for least, most in zip(self._least, self._most, strict=True)
        ]

    def _count(self, number: int, alike: Alike, eligible: Mapping[str, str]) -> None:
        for node, count in alike.certain.items():
            if node in eligible:
                self._most[number][eligible[node]] += count
                self._least[number][eligible[node]] += count
        for held in alike.loose:
            self._most[number].update({eligible[node] for node in held.nodes if node in eligible})

    def check(self, room: Room, found: Findings) -> None:
        """The filter for one node."""
        for number, one in enumerate(self._constraints):
            if one.key not in room.labels:
                found.no.append(f"it has no label {one.key}, by which the pod is spread")
                continue
            value = room.labels[one.key]
            least, most = self._least[number], self._most[number]
            few = len(most) < one.least_domains
            fewest, at_most = (0, 0) if few else self._fewest[number]
            worst = most[value] + self._own[number] - fewest
            best = least[value] + self._own[number] - at_most
            why = f"its spread by {one.key} would be over {one.skew}"
            if best > one.skew:
                found.no.append(why)
            elif worst > one.skew:
                found.unsure.append(f"{why}, if other pods go there")


def _eligible(suits: Suits, one: Constraint) -> bool:
    taint, wrong = suits
    return not (one.honors_affinity and wrong) and not (one.honors_taints and taint is not None)
