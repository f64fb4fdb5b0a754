"""Pure: a problem in whole numbers: machines with room, and pods that ask for the same in kinds.

What is not modelled here is careful: such a pod stays where it is, or within its domain. A host can have a number of pods of a *tag*: those
that an anti-affinity is about (none beside its owner), those that a spread counts, those with a port of the host.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from roles.engine.kube import Object, full_name, is_ending, matching, namespace_and_name, owner_ref, pods
from roles.engine.kube.fields import labels_of, spec_of, status_of, volumes_of
from roles.engine.kube.selectors import LabelSelector, label_selector
from roles.engine.packing.model import HOSTNAME, Cause, Machine, Problem
from roles.engine.placement import ClusterView, Held, Trial, World, claims_of, constraints, terms

#: What is about as much: a machine has 4 GiB and 8 pods for each core.
_BYTES_PER_MILLICORE = 4 * 2**30 // 1000
_HARMLESS_VOLUMES = frozenset(("name", "emptyDir", "configMap", "secret", "projected", "downwardAPI"))
_NEAR, _FAR, _SPREAD = "podAffinity", "podAntiAffinity", "spread"
_ALL = 1 << 30
#: Tag -> the most pods of it on a host.
Limits = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Kind:
    """Pods that ask for the same. `asks`: amounts by the number of the resource; `on`: the numbers of the machines that suit it, None for
    all; `limits`: how many pods of a tag may be on its host already; `shows`: the tags that it counts for;
    `pinned`: only placement knows where else it may go, for what it and other pods want of each other."""

    asks: tuple[tuple[int, int], ...]
    on: frozenset[int] | None
    limits: Limits
    shows: tuple[int, ...]
    pinned: bool = False

    @property
    def rank(self) -> int:
        """Pods that fewer machines suit are placed before others."""
        return len(self.on) if self.on is not None else _ALL - bool(self.limits)


@dataclass(frozen=True, eq=False)
class Pod:
    """A pod that may move. `home`: the number of its machine; `free`: it has no node yet, so that it moves without an eviction."""

    number: int
    kind: Kind
    home: int
    name: tuple[str, str]
    raw: Object
    free: bool = False


@dataclass(frozen=True)
class Stuck:
    """A pod that stays where it is: the cause, and its subject for people."""

    pod: tuple[str, str]
    cause: Cause
    subject: str

    @property
    def name(self) -> str:
        return "/".join(self.pod)


class Shape:
    """`machines`: in the order of the problem. `room`: by machine, the amount of each resource that is free of pods that stay there for
    good; `free`: of all its pods. `tags`: by machine, how many pods of each tag are there. `loose`: pods leave their domain, and those that
    they want to be beside, as if placement allowed it. `is_careful`: there are such pods."""

    def __init__(self, problem: Problem, *, loose: bool = False) -> None:
        self.problem, self.loose, self.is_careful = problem, loose, False
        self.machines = problem.machines
        self.view = _whole_view(problem)
        self.world = World(self.view)
        self._empty = Trial(replace(self.view, pods=()))
        self.numbers = {one.name: number for number, one in enumerate(self.machines)}
        self.pods: list[Pod] = []
        self.by_machine: list[list[Pod]] = [[] for _ in self.machines]
        self.stuck: dict[int, list[Stuck]] = defaultdict(list)
        self.tags: list[Counter[int]] = [Counter() for _ in self.machines]
        self._resources: dict[str, int] = {}
        self._terms = _Tags(self)
        self._kinds: dict[object, Kind] = {}
        self._suits: dict[str, frozenset[int] | None] = {}
        self._budgets = _Budgets(problem.budgets)
        self.free = [self._allocatable(one) for one in self.machines]
        self._daemons: dict[str, Held] = {}
        for held in self.world.held.values():
            self._add(held)
        self._wake_with_daemons()
        self.room = [list(amounts) for amounts in self.free]
        for pod in self.pods:
            for resource, amount in pod.kind.asks:
                self.room[pod.home][resource] += amount
        self._place_waiting()

    @property
    def width(self) -> int:
        return len(self._resources)

    @property
    def resources(self) -> Sequence[str]:
        return list(self._resources)

    def _allocatable(self, machine: Machine) -> list[int]:
        found = self.world.rooms[machine.name].allocatable
        for resource in found:
            self._resources.setdefault(resource, len(self._resources))
        for held in self.world.rooms[machine.name].held:
            for resource, _ in held.asked:
                self._resources.setdefault(resource, len(self._resources))
        return [found.get(resource, 0) for resource in self._resources]

    def _asks(self, held: Held) -> tuple[tuple[int, int], ...]:
        asked = [(self._resources.setdefault(resource, len(self._resources)), amount) for resource, amount in held.asked if amount > 0]
        # The number of pods, which is seldom what a machine lacks, is looked at last.
        return (*asked[1:], asked[0])

    def _add(self, held: Held) -> None:
        home = self.numbers[next(iter(held.nodes))]
        asks = self._asks(held)
        for resource, amount in asks:
            self._wide_enough(home, resource)
            self.free[home][resource] -= amount
        wants = self._terms.of(held)
        self.tags[home].update(wants.shows)
        if pods.stays_in_a_drain(held.pod):
            if (owner := owner_ref(held.pod)) is not None:
                self._daemons.setdefault(owner.uid, held)
            return
        if is_ending(held.pod):
            return
        self.is_careful = self.is_careful or bool(wants.odd or wants.pins)
        why = (None if self.loose else wants.odd) or self._why_stuck(held)
        if why is not None:
            self.stuck[home].append(why)
            return
        on = self._pinned(self._suiting(held.pod), () if self.loose else wants.pins, home)
        if on is not None and not on - {home}:
            self.stuck[home].append(Stuck(namespace_and_name(held.pod), Cause.BOUND, "no other machine suits it"))
            return
        key = (asks, on, wants.limits, wants.shows, bool(wants.pins or wants.odd))
        kind = self._kinds.setdefault(key, Kind(*key))
        pod = Pod(len(self.pods), kind, home, namespace_and_name(held.pod), held.pod)
        self.pods.append(pod)
        self.by_machine[home].append(pod)

    def _wide_enough(self, machine: int, resource: int) -> None:
        free = self.free[machine]
        free.extend([0] * (resource + 1 - len(free)))

    def _why_stuck(self, held: Held) -> Stuck | None:
        if owner_ref(held.pod) is None:
            return Stuck(namespace_and_name(held.pod), Cause.UNMANAGED, "no controller creates it again")
        if found := self._budgets.against(held.pod):
            return Stuck(namespace_and_name(held.pod), Cause.BUDGET, found)
        if claims_of(held.pod) and (self.problem.view is None or self.problem.view.claims is None):
            return Stuck(namespace_and_name(held.pod), Cause.BOUND, "its volumes were not read")
        return None

    def _suiting(self, pod: Object) -> frozenset[int] | None:
        """The machines that suit a pod, whatever other pods do: as placement judges it without any; None for all."""
        spec = spec_of(pod)
        odd = [volume for volume in volumes_of(pod) if not volume.keys() <= _HARMLESS_VOLUMES]
        parts = ("schedulerName", "resourceClaims", "workloadRef", "schedulingGroup", "schedulingGates", "hostNetwork", "hostUsers")
        rules = [one.get("restartPolicyRules") for part in ("containers", "initContainers") for one in spec.get(part) or ()]
        key = repr((matching.asked_of_nodes(pod), odd and (odd, pods.namespace(pod)), [spec.get(part) for part in parts], any(rules)))
        if key not in self._suits:
            found = self._empty.where(_alone(pod))
            closed = self.problem.closed | self.problem.must_go
            on = frozenset(self.numbers[name] for name in found.on if name not in closed)
            self._suits[key] = None if len(on) == len(self.machines) else on
        return self._suits[key]

    def _pinned(self, on: frozenset[int] | None, pins: Iterable[str], home: int) -> frozenset[int] | None:
        """Only the machines of the domain that it is in."""
        for key in pins:
            value = self.labels(home).get(key)
            domain = frozenset(number for number in range(len(self.machines)) if self.labels(number).get(key) == value)
            on = domain if on is None else on & domain
        return on

    def labels(self, machine: int) -> Mapping[str, str]:
        return labels_of(self.machines[machine].node)

    def _wake_with_daemons(self) -> None:
        """A machine that is woken gets a pod of each DaemonSet whose pods suit it."""
        for free in self.free:
            free.extend([0] * (self.width - len(free)))
        sleeping = [number for number, one in enumerate(self.machines) if one.off]
        for held in self._daemons.values():
            on = self._suiting(_without_node_name(held.pod)) if sleeping else None
            for number in sleeping:
                if on is None or number in on:
                    for resource, amount in self._asks(held):
                        self.free[number][resource] -= amount

    def _place_waiting(self) -> None:
        """A pod that waits for a node takes the first one that has room; one that has none now needs none afterwards."""
        on = [number for number, one in enumerate(self.machines) if not one.off]
        for raw in self.world.waiting:
            held = Held(raw, frozenset(), False)
            wants, asks = self._terms.of(held), self._asks(held)
            if wants.odd or wants.pins or any(resource >= len(self.free[0]) for resource, _ in asks):
                continue
            kind = Kind(asks, self._suiting(raw), wants.limits, wants.shows)
            home = next((number for number in on if self.takes(number, kind)), None)
            if home is not None:
                pod = Pod(len(self.pods), kind, home, namespace_and_name(raw), raw, free=True)
                self.pods.append(pod)
                self.by_machine[home].append(pod)
                self.tags[home].update(wants.shows)
                for resource, amount in asks:
                    self.free[home][resource] -= amount

    def takes(self, machine: int, kind: Kind) -> bool:
        """It has room now for a pod of a kind."""
        free, tags = self.free[machine], self.tags[machine]
        if kind.on is not None and machine not in kind.on:
            return False
        return all(amount <= free[resource] for resource, amount in kind.asks) and all(tags[tag] <= most for tag, most in kind.limits)

    def weight(self, asks: Iterable[tuple[int, int]]) -> int:
        """Amounts of all resources as one, about in thousandths of a core."""
        return sum(amount // self.scales[resource] for resource, amount in asks)

    @property
    def scales(self) -> Sequence[int]:
        return [_scale(resource) for resource in self._resources]


def _scale(resource: str) -> int:
    """How much of a resource is about a thousandth of a core."""
    if resource == "cpu":
        return 1
    return _BYTES_PER_MILLICORE if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-") else 1


def _whole_view(problem: Problem) -> ClusterView:
    nodes, all_of = [one.node for one in problem.machines], problem.pods
    return replace(problem.view, nodes=nodes, pods=all_of) if problem.view is not None else ClusterView(nodes, all_of)


def _alone(pod: Object) -> Object:
    """The pod without what it asks of room and of other pods."""
    spec = {key: value for key, value in spec_of(pod).items() if key not in ("topologySpreadConstraints", "overhead", "resources")}
    spec["affinity"] = {"nodeAffinity": (spec.get("affinity") or {}).get("nodeAffinity") or {}}
    for part in ("containers", "initContainers"):
        spec[part] = [{key: value for key, value in one.items() if key not in ("resources", "ports")} for one in spec.get(part) or ()]
    return {**pod, "spec": spec}


def _without_node_name(pod: Object) -> Object:
    """A pod of a DaemonSet, which is bound to its node by its name, as one of any node."""
    return {**pod, "spec": {**spec_of(pod), "affinity": {}}}


class _Budgets:
    """PodDisruptionBudgets, by what their status allows now."""

    def __init__(self, budgets: Iterable[Object]) -> None:
        self._of: dict[str, list[tuple[str, LabelSelector, int]]] = defaultdict(list)
        for one in budgets:
            allowed = int(status_of(one).get("disruptionsAllowed") or 0)
            self._of[pods.namespace(one)].append((full_name(one), label_selector(spec_of(one).get("selector")), allowed))

    def against(self, pod: Object) -> str:
        """Why no drain may evict the pod: the API server refuses one with two budgets."""
        found = [(name, allowed) for name, selector, allowed in self._of.get(pods.namespace(pod), ()) if selector.matches(labels_of(pod))]
        if len(found) > 1:
            return f"it has two budgets, {found[0][0]} and {found[1][0]}"
        return next((f"its budget {name} allows no disruption" for name, allowed in found if allowed <= 0), "")


@dataclass(frozen=True)
class _Found:
    """Of one pod: its tags, its limits, the topology keys whose domain it does not leave, and why it does not move at all."""

    shows: tuple[int, ...]
    limits: Limits
    pins: tuple[str, ...]
    odd: Stuck | None


@dataclass(frozen=True)
class _Wanted:
    """A term of some pods, or a spread. `covers`: the namespaces that it is about."""

    tag: int
    kind: str
    key: str
    selector: LabelSelector
    covers: Callable[[str], bool]


class _Tags:
    """What pods want of each other, as tags: each term and each spread has one, and one more for the owners of an anti-affinity."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._numbers: dict[object, int] = {}
        self._selected: dict[tuple[str, str], list[_Wanted]] = defaultdict(list)
        self._others: list[_Wanted] = []
        self._seen: dict[object, tuple[_Wanted, ...]] = {}
        for pod in (*(held.pod for held in shape.world.held.values()), *shape.world.waiting):
            self._register(pod)

    def _register(self, pod: Object) -> None:
        spec, world, own = spec_of(pod), self._shape.world, pods.namespace(pod)
        if not spec.get("affinity") and not spec.get("topologySpreadConstraints"):
            return
        for kind in (_NEAR, _FAR):
            for term in terms(pod, kind):
                covers = partial(lambda term, namespace: world.in_namespace(term, namespace) is not False, term)
                self._index((kind, term), kind, term.key, term.selector, covers)
        for one in constraints(pod):
            self._index((_SPREAD, own, one), _SPREAD, one.key, one.selector, own.__eq__)

    def _index(self, name: object, kind: str, key: str, selector: LabelSelector, covers: Callable[[str], bool]) -> None:
        if name not in self._numbers:
            found = _Wanted(self._tag(name), kind, key, selector, covers)
            pair = next(iter(selector.pairs), None)
            (self._others if pair is None else self._selected[pair]).append(found)

    def _tag(self, name: object) -> int:
        return self._numbers.setdefault(name, len(self._numbers) * 2)

    def is_by_host(self, key: str) -> bool:
        """Each machine is a domain of its own."""
        return key == HOSTNAME and self._hosts_differ

    @cached_property
    def _hosts_differ(self) -> bool:
        values = [self._shape.labels(number).get(HOSTNAME) for number in range(len(self._shape.machines))]
        return None not in values and len(set(values)) == len(values)

    def of(self, held: Held) -> _Found:
        pod, about = held.pod, self._about(held.pod)
        tags = [one.tag for one in about if one.kind != _NEAR and self.is_by_host(one.key)]
        limits = [(one.tag + 1, 0) for one in about if one.kind == _FAR and self.is_by_host(one.key)]
        keys = [one.key for one in about if not self.is_by_host(one.key)]
        for term in terms(pod, _FAR):
            tag = self._tag((_FAR, term))
            if self.is_by_host(term.key):
                limits.append((tag, 0))
                tags.append(tag + 1)
            else:
                keys.append(term.key)
        for one in constraints(pod):
            if self.is_by_host(one.key):
                limits.append((self._tag((_SPREAD, pods.namespace(pod), one)), one.skew - one.selector.matches(labels_of(pod))))
            else:
                keys.append(one.key)
        for port in sorted(held.ports):
            tag = self._tag(("port", port[1:]))
            tags.append(tag)
            limits.append((tag, 0))
        near = [term.key for term in terms(pod, _NEAR)]
        odd = Stuck(namespace_and_name(pod), Cause.BOUND, "it wants to be on the host of another pod")
        return _Found(
            tuple(tags),
            tuple(dict.fromkeys(limits)),
            tuple(dict.fromkeys((*keys, *near))),
            odd if any(map(self.is_by_host, near)) else None,
        )

    def _about(self, pod: Object) -> tuple[_Wanted, ...]:
        """The terms and spreads that are about a pod."""
        namespace, labels = pods.namespace(pod), labels_of(pod)
        key = (namespace, frozenset(labels.items()))
        if key not in self._seen:
            listed = [one for pair in labels.items() for one in self._selected.get(pair, ())]
            self._seen[key] = tuple(one for one in (*listed, *self._others) if one.covers(namespace) and one.selector.matches(labels))
        return self._seen[key]
