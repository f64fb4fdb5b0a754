"""The cheapest set of sleeping machines on which the pods that wait for room have a place. Pure.

A set counts if placement finds a node for each of the pods. Where the cluster's scheduler puts them is asked afterwards, before a machine
is woken: what it does not confirm is a refused set, and the next one is tried.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from roles.engine.folding import shortened
from roles.engine.harmless import one_line
from roles.engine.kube import Object, condition, full_name, is_ending, pods, resources
from roles.engine.kube.fields import labels_of, name_of, spec_of
from roles.engine.kube.resources import View
from roles.engine.placement import ClusterView, Trial, terms, where

#: Sets that are tried in the order of what they cost; then the machines are left out one by one, the dearest first.
_MOST_SETS = 256
#: Pods that one pass looks at, those with the highest priority first.
MOST_PODS = 500
# Of a pod's reasons.
_FEW, _LONGEST = 3, 160


@dataclass(frozen=True)
class Sleeper:
    """A machine that is off. `node`: its Node as it is when it runs and is uncordoned."""

    node: Object
    cost: float

    @property
    def name(self) -> str:
        return name_of(self.node)


@dataclass(frozen=True)
class Waking:
    """`nodes`: the machines to wake, none if that helps no pod. `pods`: those that have a place then, NAMESPACE/NAME. `waits`: pods that
    nodes which are on have room for already. `nowhere`: pods that no machine can take, and why: no cause to wake."""

    nodes: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()
    nowhere: Mapping[str, str] = field(default_factory=dict)


def wants_room(pod: Object) -> bool:
    """The scheduler has found no node for it (condition PodScheduled, reason Unschedulable)."""
    said = condition(pod, "PodScheduled")
    waits = pods.is_alive(pod) and not pods.node_of(pod) and not is_ending(pod)
    return waits and said.get("status") == "False" and said.get("reason") == "Unschedulable"


def choose(view: ClusterView, pending: Sequence[Object], sleepers: Sequence[Sleeper], refused: Collection[frozenset[str]] = ()) -> Waking:
    """`view`: the cluster with the machines that sleep cordoned. `refused`: sets that are not asked for again. Raises ValueError if a
    quantity cannot be read."""
    order = sorted(pending, key=_urgency)
    trial = _Trials(view, order[:MOST_PODS], sorted(sleepers, key=lambda one: (one.cost, one.name)))
    here = trial.placed(())
    everywhere = trial.placed(trial.names)
    nowhere = {full_name(pod): trial.why(pod) for pod in trial.pods if full_name(pod) not in everywhere}
    nowhere |= {full_name(pod): f"more than {MOST_PODS} pods wait: the next pass looks at it" for pod in order[MOST_PODS:]}
    missing = [name for name in everywhere if name not in here]
    waits = tuple(sorted(here))
    if not missing:
        return Waking(waits=waits, nowhere=nowhere)
    wanted = set(everywhere)
    found = next((one for one in _sets(trial) if frozenset(one) not in refused and wanted <= trial.placed(one)), None)
    if found is None:
        found = trial.least(wanted)
        if frozenset(found) in refused:
            why = f"the scheduler has refused {shortened(sorted(found), _FEW)} for it"
            return Waking(waits=waits, nowhere={**nowhere, **dict.fromkeys(missing, why)})
    return Waking(tuple(sorted(found)), tuple(sorted(missing)), waits, nowhere)


def _urgency(pod: Object) -> tuple[int, tuple[int, ...], str]:
    """Higher priorities first, then larger pods."""
    asked = resources.in_units(pod, View.SPEC)
    return -pods.priority(pod), tuple(-asked.get(name, 0) for name in ("cpu", "memory")), full_name(pod)


def _sets(trial: _Trials) -> Iterator[tuple[str, ...]]:
    """The sets of machines in the order of what they cost together, and of their size."""
    names, costs = trial.names, [one.cost for one in trial.sleepers]
    if not names:
        return
    # A set is followed by itself with the next machine, and by itself with the next machine instead of its last one: each set once.
    heap: list[tuple[float, int, tuple[int, ...]]] = [(costs[0], 1, (0,))]
    for _ in range(_MOST_SETS):
        if not heap:
            return
        cost, size, chosen = heappop(heap)
        yield tuple(names[number] for number in chosen)
        last = chosen[-1]
        if last + 1 < len(names):
            heappush(heap, (cost + costs[last + 1], size + 1, (*chosen, last + 1)))
            heappush(heap, (cost - costs[last] + costs[last + 1], size, (*chosen[:-1], last + 1)))


class _Trials:
    """The pods on the nodes that are on, with some of the machines awake."""

    def __init__(self, view: ClusterView, order: Sequence[Object], sleepers: Sequence[Sleeper]) -> None:
        bound = [pod for pod in view.pods if pods.node_of(pod) or not pods.is_alive(pod)]
        self._view, self.pods, self.sleepers = replace(view, pods=bound), order, sleepers
        self.names = tuple(one.name for one in sleepers)
        self._awake = [name for name in map(name_of, view.nodes) if name not in self.names]
        self._found: dict[tuple[str, ...], set[str]] = {}
        self._all = self._with(self.names)
        judged: dict[str, dict[str, bool]] = {}
        self._on: dict[str, list[str]] = {}
        for pod in order:
            alike = repr((pods.namespace(pod), labels_of(pod), spec_of(pod)))
            if alike not in judged:
                verdicts = where(pod, self._all).nodes
                # One that wants to be near another pod that waits has a place only after that one.
                near = bool(terms(pod, "podAffinity"))
                judged[alike] = {node: near or verdict.state != "no" for node, verdict in verdicts.items()}
            self._on[full_name(pod)] = [node for node, may in judged[alike].items() if may]

    def _with(self, awake: Collection[str]) -> ClusterView:
        woken = {one.name: one.node for one in self.sleepers if one.name in awake}
        return replace(self._view, nodes=[woken.get(name_of(node), node) for node in self._view.nodes])

    def placed(self, awake: Sequence[str]) -> set[str]:
        """The pods that have a node, with these machines awake: first on the nodes that are on, then on the cheapest machine."""
        key = tuple(sorted(awake))
        if key not in self._found:
            asleep = set(self.names) - set(awake)
            places = {name: number for number, name in enumerate((*self._awake, *self.names))}
            trial, found, left = Trial(self._with(awake)), set[str](), list(self.pods)
            # Again for pods that want to be near one that was placed after them.
            while True:
                done = [pod for pod in left if self._place(pod, trial, asleep, places)]
                found.update(map(full_name, done))
                left = [pod for pod in left if full_name(pod) not in found]
                if not done or not left:
                    break
            self._found[key] = found
        return self._found[key]

    def _place(self, pod: Object, trial: Trial, asleep: Collection[str], places: Mapping[str, int]) -> bool:
        nodes = sorted((node for node in self._on[full_name(pod)] if node not in asleep), key=places.__getitem__)
        return any(trial.moves([(pod, node)])[0].state == "fits" for node in nodes)

    def least(self, wanted: Collection[str]) -> tuple[str, ...]:
        """All machines, without those that are not needed, the dearest left out first."""
        on = list(self.names)
        for name in reversed(self.names):
            without = [one for one in on if one != name]
            if set(wanted) <= self.placed(without):
                on = without
        return tuple(on)

    def why(self, pod: Object) -> str:
        """Why no machine takes it, for people: a tenant's names may be in it."""
        found = where(pod, self._all)
        if found.fits or found.on:
            return "no room is left beside the other pods that wait, with every machine on"
        text = one_line("; ".join(found.reasons[:_FEW])) or found.outcome
        return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
