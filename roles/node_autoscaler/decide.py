"""From what a cluster is like now, and what the loop did before, to exactly one decision. Pure.

It never oscillates. What it takes away, it takes only if each pod has a place on the nodes that stay, and no pod that waits would want the
machine back. What it has woken stays as long as the load is not lower than it was then, and no other node has come. So with one load there
are wakes, then consolidations, then neither.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property

from roles.consolidation import hours, kept, model, owners, plan
from roles.engine.bounds import at_epoch
from roles.engine.folding import counted, shortened
from roles.engine.harmless import one_line
from roles.engine.kube import Object, is_ready, namespace_and_name, pods, resources
from roles.engine.kube.fields import labels_of, name_of, spec_of
from roles.engine.kube.resources import View
from roles.engine.outage import node_fate, places
from roles.engine.placement import storage
from roles.node_autoscaler.decision import UNREADY_COUNT, UNREADY_SHARE, Decision, Limits
from roles.node_autoscaler.history import Failed, History
from roles.node_autoscaler.waking import Sleeper, Waking, choose, wants_room

#: The most that a cool-down grows after failures in a row.
_MOST_BACK_OFF = 6
_FEW = 3
_POWER_OFF = "power-off"


@dataclass(frozen=True)
class Situation:
    """A cluster as it was read. `hosts`: the inventory's name of each Node; `switched`: Nodes whose machine has a power driver; `due`:
    Nodes that sleep and must be woken now, with the reason."""

    keeper: kept.Keeper
    machines: model.Machines
    hosts: Mapping[str, str]
    switched: Collection[str]
    due: Mapping[str, str] = field(default_factory=dict)

    @property
    def now(self) -> float:
        return self.time.timestamp()

    @property
    def time(self) -> datetime:
        found: datetime = self.keeper.now
        return found

    @cached_property
    def nodes(self) -> Mapping[str, Object]:
        return {name_of(node): node for node in self.keeper.live.of("Node")}

    @cached_property
    def asleep(self) -> Collection[str]:
        return self.keeper.asleep

    @cached_property
    def owners(self) -> owners.Owners:
        return owners.Owners(self.keeper, self.machines, self.hosts)

    @cached_property
    def unready(self) -> list[str]:
        return [name for name, node in self.nodes.items() if name not in self.asleep and not is_ready(node)]

    @cached_property
    def on(self) -> list[str]:
        """The nodes that take pods."""
        return [name for name, node in self.nodes.items() if is_ready(node) and not spec_of(node).get("unschedulable")]

    @cached_property
    def pending(self) -> list[Object]:
        return [pod for pod in self.keeper.live.of("Pod") if wants_room(pod)]

    @cached_property
    def load(self) -> dict[str, int]:
        """What all pods request that belong to no node."""
        found: dict[str, int] = {"pods": 0}
        for pod in self.keeper.live.of("Pod"):
            if pods.is_alive(pod) and not pods.stays_in_a_drain(pod):
                found["pods"] += 1
                for name, amount in resources.in_units(pod, View.SPEC).items():
                    found[name] = found.get(name, 0) + amount
        return found

    def sleepers(self, without: Collection[str] = ()) -> list[Sleeper]:
        """The machines that can be woken."""
        return [
            Sleeper(plan.awake(self.nodes[name]), self.machines.cost.get(self.hosts.get(name, ""), 0.0))
            for name in sorted(self.asleep)
            if name in self.switched and name not in without and name not in self.owners.closed
        ]

    def zone(self, name: str) -> str:
        """Its failure domain; a node without the label is one of its own."""
        labels = labels_of(self.nodes[name])
        return next((labels[key] for key in storage.ZONE_LABELS if labels.get(key)), f"node {name}")

    def unfinished(self, names: Iterable[str]) -> list[str]:
        """Of these nodes, those that are on and out of service by a run that turns machines off or on."""
        found = []
        for name in names:
            fate = node_fate(self.nodes[name]) if name in self.nodes else None
            ours = fate is not None and fate.cordon == "ours" and fate.mark is not None and fate.mark.purpose == _POWER_OFF
            if ours and name in self.switched and name not in found:
                found.append(name)
        return found


def decide(now: Situation, history: History, limits: Limits, refused: Collection[frozenset[str]] = ()) -> Decision:
    """What to do now. `refused`: sets of machines that the cluster's scheduler does not confirm for the pods that wait, in this pass.
    Raises ValueError if an object cannot be read."""
    if why := _too_many_unready(now):
        return Decision("stop", why)
    since = _not_needed(now, history, limits)
    if left := _left_behind(now, history, limits):
        return Decision("finish", "a run of this loop was ended before it was done: they are proven and uncordoned", left, not_needed=since)
    if wanted := _wanted_back(now, history, limits):
        return Decision("consolidate", "their owners take them back", wanted, not_needed=since)
    tired = _tired(history, limits, now.now)
    closed = now.owners.closed.union(tired)
    if due := {name: why for name, why in now.due.items() if name in now.asleep and name in now.switched and name not in closed}:
        name, why = min(due.items())
        return Decision("wake", one_line(why), (name,), not_needed=since)
    found = choose(places.cluster_view(now.keeper.live), now.pending, now.sleepers(tired), refused)
    if found.nodes:
        one = len(found.pods) == 1
        why = f"{_pods(found.pods)} {'waits' if one else 'wait'} for room, and no cheaper machines have it{_excuse(tired)}"
        return Decision("wake", why, found.nodes, found.pods, found.nowhere, since)
    consolidation = _consolidated(now, history, limits, since, found)
    return replace(consolidation, nowhere=found.nowhere, not_needed=since)


# ---- what stops, and what comes first


def _too_many_unready(now: Situation) -> str:
    awake = len(now.nodes) - len(now.asleep)
    if len(now.unready) <= UNREADY_COUNT or len(now.unready) <= UNREADY_SHARE * awake:
        return ""
    return (
        f"{len(now.unready)} of {counted(awake, 'node')} that should be on are not Ready: {shortened(sorted(now.unready), _FEW)}."
        f" Nothing is decided above {UNREADY_SHARE:.0%}: find out why, then start this again".replace("%", " %")
    )


def _left_behind(now: Situation, history: History, limits: Limits) -> tuple[str, ...]:
    """The nodes of a run that a killed loop began, or that failed some time ago, and that are on and not in service."""
    begun = history.begun
    waking = begun.nodes if begun is not None and begun.kind != "consolidate" else ()
    giving_back = begun.nodes if begun is not None and begun.kind == "consolidate" else ()
    tired = _tired(history, limits, now.now)
    again = [name for name in history.failed if name and name not in tired]
    on = [name for name in now.unfinished((*giving_back, *again)) if name not in now.asleep]
    return tuple(dict.fromkeys([*now.unfinished(waking), *on]))


def _back_off(failed: Failed, limits: Limits) -> float:
    return limits.cool_down * 2.0 ** min(failed.count - 1, _MOST_BACK_OFF)


def _tired(history: History, limits: Limits, now: float) -> list[str]:
    """The machines that have failed to wake, and are not tried again yet."""
    return [name for name, one in history.failed.items() if name and now < one.at + _back_off(one, limits)]


def _excuse(tired: Collection[str]) -> str:
    return f"; not tried again yet after a failure: {shortened(sorted(tired), _FEW)}" if tired else ""


def _wanted_back(now: Situation, history: History, limits: Limits) -> tuple[str, ...]:
    """The nodes that must go, at any hour and by as many as there are, if all their pods have room."""
    wanted, failed = [name for name in now.owners.must_go if name in now.on], history.failed.get("")
    if not wanted or (failed is not None and now.now < failed.at + _back_off(failed, limits)):
        return ()
    return tuple(_planned(now, limits, wanted).goes)


# ---- consolidation


def _planned(now: Situation, limits: Limits, chosen: Collection[str]) -> plan.Consolidation:
    keeper = replace(now.keeper, chosen=sorted(chosen))
    # A machine that is woken for one that goes might be worth less than the next one, and so on: only pods that wait wake machines.
    return plan.consolidate(keeper, now.machines, now.hosts, limits.spare, None, wakes=False)


def _not_needed(now: Situation, history: History, limits: Limits) -> dict[str, float]:
    """Since when each node could go, by a plan that lets it go now. A node keeps its time as long as the nodes with a time could go,
    whatever else could go instead."""
    known = {name: since for name, since in history.not_needed.items() if name in now.nodes}
    if now.now - history.passed > limits.idle or now.now < history.passed:
        known = {}  # nobody has looked in between
    may = _may_go(now, history)
    known = {name: since for name, since in known.items() if name in may}
    still = _planned(now, limits, known).plan.goes if known else ()
    new = _planned(now, limits, may).plan.goes if may else ()
    return {name: known.get(name, now.now) if name in still else now.now for name in sorted({*still, *new})}


def _may_go(now: Situation, history: History) -> list[str]:
    """What cannot be woken again stays."""
    return [name for name in now.on if name in now.switched and not _is_woken_for(now, history, name)]


def _is_woken_for(now: Situation, history: History, name: str) -> bool:
    """It was woken for at most the load that there is now, and nobody else has brought a node since: its pods would want it back."""
    woken = history.woken.get(name)
    if woken is None:
        return False
    same = all(now.load.get(resource, 0) >= amount for resource, amount in woken.load.items())
    return same and set(now.on) <= {*woken.on, *history.woken}


def _consolidated(now: Situation, history: History, limits: Limits, since: Mapping[str, float], waking: Waking) -> Decision:
    about = f"; {_nowhere(waking)}" if waking.nowhere else ""
    if waking.waits:
        return Decision("hold", f"{_pods(waking.waits)}: not placed yet, and nodes that are on have room{about}")
    if not since:
        return Decision("hold", f"no pod waits for room that a machine could give, and no node could go{about}")
    ripe = [name for name, begun in since.items() if now.now - begun >= limits.idle]
    if not ripe:
        first = min(since, key=lambda name: (since[name], name))
        then = _clock(since[first] + limits.idle)
        return Decision("hold", f"{shortened(list(since), _FEW)} could go: {first} at {then}, if it is not needed until then{about}")
    if why := _not_now(now, history, limits):
        return Decision("hold", f"{shortened(ripe, _FEW)} could go: {why}{about}")
    return replace(found := _taken(now, limits, ripe), why=f"{found.why}{about}")


def _not_now(now: Situation, history: History, limits: Limits) -> str:
    if hours.availability(limits.hours, 0.0, now.time).state != "available":
        return f"not outside of {limits.hours}"
    if now.now < (until := history.woken_at + limits.cool_down):
        return f"not before {_clock(until)}, since machines were woken"
    failed = history.failed.get("")
    if failed is not None and now.now < (until := failed.at + _back_off(failed, limits)):
        return f"not before {_clock(until)}, after {counted(failed.count, 'failure')}"
    return ""


def _taken(now: Situation, limits: Limits, ripe: Sequence[str]) -> Decision:
    """Nodes that go now: of each failure domain one at most, and none of a domain in which a node is not Ready."""
    order, broken = _planned(now, limits, ripe).goes, {now.zone(name) for name in now.unready}
    picked: dict[str, str] = {}
    for name in order:
        if now.zone(name) not in broken and len(picked) < limits.at_once:
            picked.setdefault(now.zone(name), name)
    if not picked:
        why = "a node of their failure domain is not Ready" if order else "together they are needed"
        return Decision("hold", f"{shortened(ripe, _FEW)} could go: {why}")
    found = _planned(now, limits, picked.values())
    if not found.goes:
        return Decision("hold", f"{shortened(ripe, _FEW)} could go: not {shortened(list(picked.values()), _FEW)} alone")
    if wanted := _would_wake(now, found):
        return Decision("hold", f"{shortened(found.goes, _FEW)} could go: {wanted}")
    cost, moves = sum(map(found.cost, found.goes)), counted(len(found.plan.moves), "pod")
    why = f"not needed for {limits.idle:.0f} s; {moves} {'has' if len(found.plan.moves) == 1 else 'have'} room on the others"
    saves = f"saves {cost:g} {'W' if now.machines.unit == 'watts' else 'an hour'}"
    return Decision("consolidate", f"{why}, {saves}", tuple(found.goes))


def _would_wake(now: Situation, found: plan.Consolidation) -> str:
    """The pods that would want a machine woken right after this plan; "" if none would."""
    goes, moves = set(found.goes), found.plan.moves
    view = places.cluster_view(now.keeper.live)
    moved = [
        {**pod, "spec": {**spec_of(pod), "nodeName": moves[key]}} if (key := namespace_and_name(pod)) in moves else pod for pod in view.pods
    ]
    nodes = [{**node, "spec": {**spec_of(node), "unschedulable": True}} if name_of(node) in goes else node for node in view.nodes]
    sleepers = [*now.sleepers(), *(Sleeper(now.nodes[name], found.cost(name)) for name in found.goes)]
    later = choose(replace(view, nodes=nodes, pods=moved), now.pending, sleepers)
    return f"then {_pods(later.pods)} would want {', '.join(later.nodes)} back" if later.nodes else ""


# ---- words


def _clock(at: float) -> str:
    """A time that stays the same from pass to pass, so that the same reason is one decision."""
    return f"{at_epoch(at):%Y-%m-%d %H:%M:%SZ}"


def _pods(names: Sequence[str]) -> str:
    return f"{'pod' if len(names) == 1 else 'pods'} {shortened([one_line(name) for name in names], _FEW)}"


def _nowhere(waking: Waking) -> str:
    name, why = next(iter(waking.nowhere.items()))
    count = len(waking.nowhere)
    more = f"; and {count - 1} more" if count > 1 else ""
    return f"no machine can take {counted(count, 'waiting pod')}: {one_line(name)} ({why}){more}"
