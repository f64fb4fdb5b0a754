"""Pure: where a pod can run that is to be recreated, by the filters of kube-scheduler, and refused where daytwo does not model them.

Sources (Kubernetes 1.36): pkg/scheduler/apis/config/v1/default_plugins.go and pkg/scheduler/framework/plugins/*. What "fits" here is
scheduled by a default scheduler, wherever pods go whose place is not known; "unsure" depends on them; "not judged" on something else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from roles.engine.kube import Object, full_name, is_ending, matching, pods, resources
from roles.engine.kube.amounts import shown
from roles.engine.kube.fields import meta_of, spec_of
from roles.engine.kube.resources import View
from roles.engine.placement.findings import Findings, Verdict
from roles.engine.placement.profiles import DEFAULT
from roles.engine.placement.topology import Affinity, Spread, constraints
from roles.engine.placement.volumes import Volumes
from roles.engine.placement.world import SUITS, Alike, Asked, ClusterView, Held, Room, Suits, World, terms

Outcome = Literal["fits", "unsure", "nowhere", "not judged"]
_ANY_ORDER = "it depends on where other pods go"
#: Pods times nodes, up to which it is worked out node by node whether others can fill them; beyond, the answer may be "unsure" instead.
_EXACTLY = 10_000
_FITS = Verdict("fits")
_MAY_WAIT = "the scheduler does not ask where its volume is attached"


@dataclass(frozen=True)
class Placement:
    """Where one pod (NAMESPACE/NAME) can run. `nodes`: the verdict on each node; `why`: reasons that are about the pod as a whole.

    `outcome` is "fits" only if the pod is scheduled for sure, and on none of the nodes to leave. `returns`: the nodes to leave that may
    take it all the same, because it tolerates their cordon. `after_others`: it waits until others of the list have been placed.
    `apart`: pods that share a volume with it which only one node can have, and that nothing keeps on the same node.
    """

    pod: str
    outcome: Outcome
    nodes: Mapping[str, Verdict] = field(default_factory=dict)
    why: tuple[str, ...] = ()
    returns: tuple[str, ...] = ()
    after_others: bool = False
    apart: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        return self.outcome == "fits"

    @property
    def on(self) -> tuple[str, ...]:
        """The nodes that it can be scheduled on for sure, each by itself."""
        return tuple(name for name, verdict in self.nodes.items() if verdict.state == "fits")

    def __str__(self) -> str:
        """For an operator: the outcome and the reasons."""
        after = " after others have moved" if self.after_others else ""
        return f"{self.pod}: {self.outcome}{after}" + (f" ({'; '.join(self.reasons)})" if self.reasons and not self.fits else "")

    @property
    def reasons(self) -> list[str]:
        """The most frequent first, with the number of nodes."""
        return [*self.why, *(f"{count} x {why}" if count > 1 else why for why, count in self._counted())]

    def _counted(self) -> list[tuple[str, int]]:
        found: dict[str, int] = {}
        for verdict in self.nodes.values():
            for why in verdict.why:
                found[why] = found.get(why, 0) + 1
        return sorted(found.items(), key=lambda one: -one[1])


def where(pod: Object, view: ClusterView, without: Collection[str] = ()) -> Placement:
    """Where `pod` can run if it is recreated as it is written, while the nodes in `without` are cordoned; all other pods stay.

    The pod itself need not be in the view; if it is, it has left its node. Give it with its template's resources if it was resized in
    place. Whether the API server admits it (quotas, LimitRanges, webhooks) is not asked here. Raises ValueError if a quantity cannot be
    read.
    """
    return place_all([pod], view, without)[0]


def place_all(
    of: Iterable[Object], view: ClusterView, without: Collection[str] = (), known: Mapping[str, Held] | None = None
) -> list[Placement]:
    """Where each of many pods can run if they are recreated one after the other in this order, each placed before the next one leaves its
    node. A placed pod takes its room wherever it may be; a pod that is not placed waits, and comes before the pods after it.

    Shapes and errors as `where`; the list is in the order of `of`; `known`: as for a World.
    """
    return _Run(list(of), view, without, known).results()


class Trial:
    """Pods on nodes that are named for them. `known`: as for a World. Errors as `where`."""

    def __init__(self, view: ClusterView, without: Collection[str] = (), known: Mapping[str, Held] | None = None) -> None:
        self._world = World(view, without, known)

    def where(self, pod: Object) -> Placement:
        """Where a pod can run that is none of the view."""
        return assess(pod, self._world)

    def moves(self, moves: Iterable[tuple[Object, str]], *, undo: bool = False) -> list[Verdict]:
        """Whether each pod can run on its node, when they are recreated one after the other in this order, each placed before the next one
        leaves its node. A pod that fits has its place then; `undo`: only until all are judged.

        Each verdict is about that node alone: a scheduler may choose another one that fits, too.
        """
        found, before = [], list[Held]()
        for pod, node in moves:
            held = self._world.held.get(full_name(pod))
            before += [held] if held is not None else []
            self._world.take(pod)
            verdict = assess(pod, self._world, (self._world.rooms[node],)).nodes[node]
            if verdict.state == "fits":
                self._world.put(Held(_recreated(pod), frozenset({node}), True))
            found.append(verdict)
        for held in before if undo else ():
            self._world.put(held)
        return found


class _Run:
    """One sequence of pods."""

    def __init__(self, of: Sequence[Object], view: ClusterView, without: Collection[str], known: Mapping[str, Held] | None) -> None:
        self._of = of
        self._world = World(view, without, known)
        self._found: dict[int, Placement] = {}
        self._seen: dict[int, int] = {}
        self._matters: dict[tuple[int, Alike], bool] = {}
        #: The lowest priority of all pods.
        self._lowest = min(map(pods.priority, (*view.pods, *of)), default=0)
        for pod in of:
            self._world.leaves(pod)
        moved = {full_name(pod) for pod in of}
        self._waiting = [pod for pod in self._world.waiting if full_name(pod) not in moved]
        for pod in self._waiting:
            self._hold(pod, assess(pod, self._world), waits=True)

    def results(self) -> list[Placement]:
        for number, _ in enumerate(self._of):
            self._place(number)
            if len(self._of) > 1:
                self._retry(number, all_of_them=number == len(self._of) - 1)
        without = [*self._waiting, *(pod for number, pod in enumerate(self._of) if not self._found[number].fits)]
        pressing = [(pod, self._may_preempt_on(pod)) for pod in without]
        return [self._apart(number, self._preempted(number, pressing)) for number, _ in enumerate(self._of)]

    def _place(self, number: int, after_others: bool = False) -> None:
        pod = self._of[number]
        self._world.take(pod)
        found = assess(pod, self._world)
        found = replace(found, after_others=after_others or (found.fits and self._needs_late_ones(pod)))
        self._found[number] = found
        self._seen[number] = len(self._world.changes)
        self._hold(pod, found)

    def _needs_late_ones(self, pod: Object) -> bool:
        """It fits only because of pods that could be placed only after others: until they are, it waits, too."""
        names = [one.pod for one in self._found.values() if one.after_others] if _depends(pod) else []
        late = [self._world.held[name] for name in names if name in self._world.held]
        for held in late:
            self._world.take(held.pod)
        waits = bool(late) and not assess(pod, self._world).fits
        for held in late:
            self._world.put(held)
        return waits

    def _retry(self, last: int, all_of_them: bool) -> None:
        """Another pod can make a place possible, by affinity or spread."""
        moved = True
        while moved:
            moved = False
            for number in range(last):
                if self._found[number].outcome == "nowhere" and _depends(self._of[number]) and (all_of_them or self._may_fit(number)):
                    self._place(number, after_others=True)
                    moved = moved or self._found[number].outcome != "nowhere"

    def _may_fit(self, number: int) -> bool:
        """Something has changed since it was judged that could make a place for it."""
        if full_name(self._of[number]) in self._world.held:
            return True
        new = self._world.changes[self._seen[number] :]
        self._seen[number] = len(self._world.changes)
        return any(freed or self._about(number, alike) for alike, freed in new)

    def _about(self, number: int, alike: Alike) -> bool:
        """The place of a pod depends on pods like these."""
        key = (number, alike)
        if key not in self._matters:
            pod, namespace = self._of[number], pods.namespace(self._of[number])
            near = (*terms(pod, "podAffinity"), *terms(pod, "podAntiAffinity"))
            self._matters[key] = (
                any(self._world.is_about(term, alike) is not False for term in near)
                or any(self._world.covers(term, pod) is not False for term in alike.against)
                or (alike.namespace == namespace and any(one.selector.matches(alike.labels) for one in constraints(pod)))
            )
        return self._matters[key]

    def _hold(self, pod: Object, found: Placement, waits: bool = False) -> None:
        nodes = frozenset(name for name, verdict in found.nodes.items() if verdict.state != "no")
        if not found.fits:
            nodes |= self._taken_by_preemption(pod)
        if not nodes:
            return
        if not found.fits and _depends(pod):
            nodes = frozenset(self._world.rooms)  # while it waits, others can make any node possible
        self._world.put(Held(_recreated(pod), nodes, found.fits and len(nodes) == 1 and not waits))

    def _taken_by_preemption(self, pod: Object) -> frozenset[str]:
        """A pod that does not fit may have room on these nodes, because others are preempted for it, and those may be gone from there. The
        room is its own from then on, also before pods of the same priority (framework/runtime: RunFilterPluginsWithNominatedPods)."""
        nodes = self._may_preempt_on(pod)
        for held in {held: None for node in nodes for held in self._world.rooms[node].held}:
            if pods.priority(held.pod) < pods.priority(pod):
                self._world.leaves(held.pod)
        return nodes

    def _may_preempt_on(self, pod: Object) -> frozenset[str]:
        """The nodes that suit it, and would have room if all pods of lower priority were gone."""
        spec, rank = spec_of(pod), pods.priority(pod)
        if spec.get("preemptionPolicy") == "Never" or spec.get("schedulingGates") or rank <= self._lowest:
            return frozenset()
        asked = Held(pod, frozenset(), False).asked
        suits = self._world.suits(pod)
        return frozenset(room.name for room in self._world.rooms.values() if suits[room.name] == SUITS and _may_have(asked, rank, room))

    def _preempted(self, number: int, pressing: Sequence[tuple[Object, frozenset[str]]]) -> Placement:
        """A pod that does not fit may preempt one that does, if its priority is higher."""
        found, pod = self._found[number], self._of[number]
        nodes = self._world.held[full_name(pod)].nodes if found.fits else frozenset()
        for other, on in pressing:
            if pods.priority(other) > pods.priority(pod) and on & nodes:
                return replace(found, outcome="unsure", why=(*found.why, f"{full_name(other)} may preempt it: its priority is higher"))
        return found

    def _apart(self, number: int, found: Placement) -> Placement:
        """A pod that fits may not start all the same: another pod, with a volume that only one node can have, goes to another node."""
        pod = self._of[number]
        own = self._world.held.get(full_name(pod))
        if not found.fits or own is None:
            return found
        shared = {volume.claim: volume for volume in self._world.storage.volumes(pod) if volume.waits and volume.claim}
        others = {
            held.name: volume for volume in shared.values() for held in self._world.users(volume.claim, pod) if self._split(own, held)
        }
        why = (f"{volume} can be on one node only, and nothing keeps {name} on the same one" for name, volume in others.items())
        return replace(found, outcome="unsure", why=(*found.why, *why), apart=tuple(others)) if others else found

    def _split(self, one: Held, other: Held) -> bool:
        """They may be on two nodes, and stay there."""
        same = len(one.nodes | other.nodes) == 1 or is_ending(other.pod)
        return not same and not self._world.on_one_node(one.pod, other.pod)


def _may_have(asked: Sequence[tuple[str, int]], rank: int, room: Room) -> bool:
    """Beside the pods that are there for sure, and are not of lower priority."""
    kept: Counter[str] = Counter()
    for held in room.held:
        if held.certain and pods.priority(held.pod) >= rank:
            kept.update(dict(held.asked))
    return all(amount <= room.allocatable.get(resource, 0) - kept[resource] for resource, amount in asked if amount)


def _recreated(pod: Object) -> Object:
    return {"metadata": {key: value for key, value in meta_of(pod).items() if key != "deletionTimestamp"}, "spec": spec_of(pod)}


def _depends(pod: Object) -> bool:
    return bool(terms(pod, "podAffinity") or spec_of(pod).get("topologySpreadConstraints"))


# ---- one pod


def assess(pod: Object, world: World, rooms: Collection[Room] = ()) -> Placement:
    """As `where`, in a world that the pod is not in; of these rooms only, if some are given."""
    name, rooms = full_name(pod), rooms or world.rooms.values()
    if gates := [str(one.get("name")) for one in spec_of(pod).get("schedulingGates") or ()]:
        return Placement(name, "nowhere", {room.name: Verdict("no") for room in rooms}, (f"scheduling gate {', '.join(gates)} holds it",))
    volumes, affinity = Volumes(pod, world), Affinity(pod, world)
    unknown = [*_unmodelled(pod, world.view), *volumes.unknown]
    if affinity.unknown:
        unknown.append("its affinity names namespaces by label, and they were not read")
    if volumes.no:
        return Placement(name, "nowhere", {room.name: Verdict("no") for room in rooms}, tuple(volumes.no))
    spread = Spread(pod, world)
    requested, ports = resources.in_units(pod, View.SPEC), pods.host_ports(pod)
    asked = [(resource, amount) for resource, amount in {"pods": 1, **requested}.items() if amount > 0]
    judges = [one for one in (affinity, spread, volumes) if not one.idle]
    suits = world.suits(pod)
    nodes: dict[str, Verdict] = {}
    local: list[Room] = []
    only_room = not (unknown or judges or volumes.unsure or ports)
    for room in rooms:
        if only_room and room.ready and suits[room.name] == SUITS:
            verdict = nodes[room.name] = _by_room(asked, room)
            if verdict.state == "unsure" and not room.out:
                local.append(room)
            continue
        found = Findings(unknown=list(unknown))
        _check_node(suits[room.name], room, found)
        for one in judges:
            one.check(room, found)
        found.unsure += volumes.unsure
        _check_resources(asked, room, found)
        if ports:
            _check_ports(ports, room, found)
        nodes[room.name] = found.verdict()
        if not (found.no or found.unknown or found.waits or found.unsure or room.out):
            local.append(room)
    # Only asked if no node is sure by itself.
    certain = any(verdict.state == "fits" and not world.rooms[room].out for room, verdict in nodes.items())
    return _conclude(name, nodes, unknown, world, not certain and some_is_free(dict(asked), ports, local))


def _conclude(name: str, nodes: Mapping[str, Verdict], unknown: Sequence[str], world: World, free: bool) -> Placement:
    states = {room: verdict.state for room, verdict in nodes.items()}
    returns = tuple(room.name for room in world.rooms.values() if room.out and states.get(room.name, "no") != "no")
    elsewhere = {state for room, state in states.items() if not world.rooms[room].out}
    if not elsewhere - {"no", "waits"}:
        return Placement(name, "nowhere", nodes, returns=returns)
    if "fits" not in elsewhere and "not judged" in elsewhere and not free:
        return Placement(name, "not judged", nodes, tuple(unknown), returns)
    if returns:
        return Placement(name, "unsure", nodes, (f"it may come back to {', '.join(returns)}: it tolerates the cordon",), returns)
    if "waits" in elsewhere:
        return Placement(name, "unsure", nodes, (_MAY_WAIT,), returns)
    if "fits" in elsewhere or free:
        return Placement(name, "fits", nodes)
    return Placement(name, "unsure", nodes, (_ANY_ORDER,))


def _unmodelled(pod: Object, view: ClusterView) -> list[str]:
    """What daytwo does not model of this pod."""
    spec = spec_of(pod)
    found = [view.unknown] if view.unknown else []
    scheduler = spec.get("schedulerName") or DEFAULT
    if scheduler != DEFAULT:
        found.append(f"its scheduler is {scheduler}")
    if spec.get("resourceClaims"):
        found.append("it has resource claims (dynamic resource allocation)")
    if spec.get("workloadRef") or spec.get("schedulingGroup"):
        found.append("it is scheduled as part of a group")
    if matching.compares(pod):
        found.append("a toleration compares numbers, which depends on a feature gate")
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    if any(rule.get("action") == "RestartAllContainers" for one in containers for rule in one.get("restartPolicyRules") or ()):
        found.append("it restarts all its containers by a rule, which needs a feature of the node")
    if spec.get("hostNetwork") and spec.get("hostUsers") is False:
        found.append("it has a user namespace and the host's network, which needs a feature of the node")
    return found


def _check_node(suits: Suits, room: Room, found: Findings) -> None:
    """NodeUnschedulable, TaintToleration, NodeAffinity; and a kubelet that does not report cannot start the pod."""
    taint, wrong = suits
    if taint is not None:
        cordon = taint.get("key") == matching.UNSCHEDULABLE
        found.no.append("it is cordoned" if cordon else f"taint {matching.taint_text(taint)} is not tolerated")
    if wrong:
        found.no.append(wrong)
    if not room.ready:
        found.unsure.append("its kubelet is not ready")


def _by_room(asked: Sequence[tuple[str, int]], room: Room) -> Verdict:
    """If nothing else decides. Most pods have room on most nodes, wherever others go."""
    spare = room.spare
    for resource, amount in asked:
        if amount > spare.get(resource, 0):
            break
    else:
        return _FITS
    found = Findings()
    _check_resources(asked, room, found)
    return found.verdict()


def _check_resources(asked: Sequence[tuple[str, int]], room: Room, found: Findings) -> None:
    for resource, amount in asked:
        if amount <= room.spare.get(resource, 0):
            continue
        left = max(0, room.left.get(resource, 0))
        if amount > left:
            found.no.append(f"{resource}: {shown(resource, amount)} requested, {shown(resource, left)} left")
        else:
            found.local.append(f"{resource}: other pods may need what is left")


def _check_ports(ports: frozenset[pods.Port], room: Room, found: Findings) -> None:
    for held in room.held:
        port = pods.shared_port(ports, held.ports)
        if port is not None:
            text = f"port {port[2]}/{port[1]} of the host is held by {held.name}"
            (found.no if held.certain else found.local).append(text if held.certain else f"port {port[2]}/{port[1]} may be held")


def some_is_free(asked: Mapping[str, int], ports: frozenset[pods.Port], rooms: Sequence[Room]) -> bool:
    """True if the pods whose place is not known cannot fill all of these nodes, wherever they go. `asked`: what this pod requests, with
    itself as one of "pods".

    To fill a node they need, of one resource, what is free beyond this pod's request. Each pod is on one node, and fills one at most. So
    one node stays free if they are fewer than the pods that it takes to fill each; or if their largest shares of what it takes are
    together less than the number of nodes.
    """
    needed = {room: _beyond(room, asked) for room in rooms}
    largest = sorted(rooms, key=lambda room: -min(needed[room].values()))
    while largest:
        if _too_small(ports, largest, needed):
            return True
        largest = largest[: len(largest) // 2]
    loose = {held: None for room in rooms for held in room.loose}
    return len(rooms) * len(loose) <= _EXACTLY and _cannot_fill(loose, ports, needed)


def _cannot_fill(loose: Collection[Held], ports: frozenset[pods.Port], needed: Mapping[Room, Mapping[str, int]]) -> bool:
    """By the node, what each of the pods could take of it. Pods that ask for the same take the same."""
    shares: dict[Held, float] = dict.fromkeys(loose, 0.0)
    fewest = 0
    for room, lacks in needed.items():
        holds_port = {held for held in room.loose if ports and pods.shared_port(ports, held.ports)}
        counted = Counter(held.asked for held in room.loose)
        sizes = {asked: _share(dict(asked), lacks) for asked in counted}
        for held in room.loose:
            size = 1.0 if held in holds_port else sizes[held.asked]
            if size > shares[held]:
                shares[held] = size
        fewest += 1 if holds_port else min(_how_many(counted, resource, amount) for resource, amount in lacks.items())
    return len(shares) < fewest or sum(shares.values()) < len(needed) * (1 - 1e-9)


def _beyond(room: Room, asked: Mapping[str, int]) -> dict[str, int]:
    """What others need of a node so that the pod has no room there."""
    return {resource: room.left.get(resource, 0) - amount + 1 for resource, amount in asked.items()}


def _too_small(ports: frozenset[pods.Port], rooms: Sequence[Room], needed: Mapping[Room, Mapping[str, int]]) -> bool:
    """As `some_is_free`, with each pod as if it could be on the smallest of these nodes: costs nodes + pods."""
    loose: dict[Held, None] = {}
    for room in rooms:
        loose.update(room.loose)
    if len(loose) < len(rooms):
        return True
    lacks = {resource: min(needed[room][resource] for room in rooms) for resource in needed[rooms[0]]}
    by_size = Counter(held.asked if not (ports and held.ports) else () for held in loose)
    sizes = {asked: _share(dict(asked), lacks) for asked in by_size if asked} | {(): 1.0}
    return sum(count * sizes[asked] for asked, count in by_size.items()) < len(rooms) * (1 - 1e-9)


def _share(asked: Mapping[str, int], needed: Mapping[str, int]) -> float:
    return min(1.0, max(asked.get(resource, 0) / amount for resource, amount in needed.items()))


def _how_many(loose: Mapping[Asked, int], resource: str, amount: int) -> int:
    """How many of these pods it takes at least to need this amount; more than there are if all are not enough."""
    number = 0
    for requested, count in sorted(((dict(asked).get(resource, 0), count) for asked, count in loose.items()), reverse=True):
        if requested * count >= amount:
            return number - (-amount // requested)
        amount -= requested * count
        number += count
    return number + 1
