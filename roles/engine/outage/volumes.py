"""What the volumes of pods mean for a drain: what must be detached first, which pods leave together, what does not come back. Pure.

Sources (Kubernetes 1.36): pkg/controller/volume/attachdetach/reconciler/reconciler.go (no attach while another node has the volume, no
detach while it is mounted, the force-detach), pkg/scheduler/framework/plugins/volumerestrictions; roles/engine/placement/storage.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from roles.engine.disruption import BudgetState, DisruptionObjects, lifted_by
from roles.engine.kube import Object, namespace_and_name
from roles.engine.kube.pods import is_over, node_of
from roles.engine.outage.fates import kept_by, past_budgets_at_a_cost
from roles.engine.outage.model import DrainConsents, PodFate
from roles.engine.placement import Move, Placement, PodVolume, Storage, claims_of
from roles.engine.placement.storage import Attachment

#: What a volume means for a pod that leaves, by what it does then. docs/disruption.md has a row for each.
EFFECTS: Mapping[Move, str] = {
    Move.ONE_NODE: "its replacement starts when {volume} is detached from {node}",
    Move.ONE_POD: "its replacement is scheduled when this pod has ended: {volume} is ReadWriteOncePod",
    Move.NODE_LOCAL: "the data of {volume} is on {only} and on no other node",
    Move.LEFT_BEHIND: "the data of {volume} stays on {node}: another node has another directory",
    Move.NEW: "{volume} is ephemeral: it is deleted with the pod, and its replacement gets an empty one",
}
#: Those that hold without a replacement, too.
_ALWAYS = (Move.NODE_LOCAL, Move.NEW)
#: Those that lose data, or access to it.
_LOSES = (Move.NODE_LOCAL, Move.LEFT_BEHIND)
TIMES = (
    "a volume that one node can have is unmounted and detached before the next node attaches it. Until then the new pod is "
    "ContainerCreating (Multi-Attach error), and drain_timeout ({seconds:g} s) goes on. A volume that stays mounted is detached by force "
    "only if its node is not Ready for 6 minutes, or has the taint node.kubernetes.io/out-of-service"
)


def with_volumes(pods: Iterable[PodFate], live: DisruptionObjects, states: Sequence[BudgetState], consents: DrainConsents) -> list[PodFate]:
    """The pods with their volumes, and with the pods that they leave together with. Blocks those that a budget keeps apart."""
    storage = Storage(live.of)
    found = {one.uid: replace(one, volumes=tuple(storage.volumes(one.pod))) for one in pods}
    for group in groups(found.values()):
        uids = frozenset(one.uid for one in group)
        found |= {one.uid: replace(one, together=uids) for one in _past_budgets(group, live, states, consents)}
    return [_with_effects(one) for one in found.values()]


def _with_effects(one: PodFate) -> PodFate:
    told = [_effect(one, volume) for volume in one.volumes if volume.move in EFFECTS and (one.workload or volume.move in _ALWAYS)]
    return replace(one, why="; ".join([one.why, *told])) if one.leaves else one


def _effect(one: PodFate, volume: PodVolume) -> str:
    return EFFECTS[volume.move].format(volume=volume, node=one.node, only=volume.only or "a node that is not there")


def groups(pods: Iterable[PodFate]) -> list[list[PodFate]]:
    """Pods that leave one node and share volumes which only one node can have, directly or by others; without those that share none."""
    above: dict[tuple[str, str], tuple[str, str]] = {}

    def top(key: tuple[str, str]) -> tuple[str, str]:
        while above.setdefault(key, key) != key:
            key = above[key]
        return key

    users = [(one, keys) for one in pods if one.leaves and (keys := [(one.node, volume.key) for volume in one.volumes if volume.waits])]
    for _, keys in users:
        for key in keys:
            above[top(key)] = top(keys[0])
    found: dict[tuple[str, str], list[PodFate]] = {}
    for one, keys in users:
        found.setdefault(top(keys[0]), []).append(one)
    return [group for group in found.values() if len(group) > 1]


# ---- budgets


def _past_budgets(
    group: Sequence[PodFate], live: DisruptionObjects, states: Sequence[BudgetState], consents: DrainConsents
) -> list[PodFate]:
    """The pods of a group, whose replacements all wait until the last of them has left: what a budget means that lets fewer go."""
    found = {one.uid: one for one in group}
    for state in states:
        asking = [one for one in found.values() if one.fate == "evicted" and state.key in one.budgets and state.is_healthy(one.pod)]
        left = asking[state.disruptions_allowed :]
        if not left or len(asking) == 1 or state.unread or state.problem:
            continue
        found |= {one.uid: one for one in _kept(asking, left, state, live, consents)}
    return list(found.values())


def _kept(
    asking: Sequence[PodFate], left: Sequence[PodFate], state: BudgetState, live: DisruptionObjects, consents: DrainConsents
) -> list[PodFate]:
    """What becomes of pods that share a volume, of which a budget does not let all go now: `left` remain."""
    count, names = len(asking), ", ".join(one.name for one in asking)
    why = f"{names} share {_shared(asking)}, and none of their replacements starts before all {count} have left {asking[0].node}"
    allows = f"budget {state.key} lets {max(0, state.disruptions_allowed)} of them go ({state.why})"
    if state.key in consents.ignore_budgets:
        return [replace(one, fate="deleted", why=f"{one.why}; by consent past {state.key}: {why}") for one in left]
    if state.kept or state.attainable - state.numbers.desired_healthy >= count or lifted_by(state, live):
        kept = kept_by([state])
        return [replace(one, blocked_now=one.blocked_now or f"{why}; {allows}", kept=one.kept or kept) for one in left]
    way_out = (
        f"let the budget allow {count} at a time until the drain is over (all {count} are away at once then), "
        f"{past_budgets_at_a_cost([state])}"
    )
    return [
        replace(one, fate="blocks", why=f"{why}; {allows}, and waits for a replacement before the next one", way_out=way_out)
        for one in asking
    ]


def _shared(pods: Sequence[PodFate]) -> str:
    """The volumes that at least two of them have."""
    users: dict[str, tuple[PodVolume, int]] = {}
    for one in pods:
        for volume in one.volumes:
            if volume.waits:
                users[volume.key] = volume, users.get(volume.key, (volume, 0))[1] + 1
    return " and ".join(str(volume) for volume, count in users.values() if count > 1) or "volumes by way of other pods"


# ---- places, and what an operator must know


def no_place(one: PodFate, place: Placement, why: str, *, can_wait: bool) -> tuple[str, str]:
    """Why the replacement of a pod has no place, and the way out. `why`: in the words of the placement; `can_wait`: by consent it may stay
    Pending."""
    wait = ", or allow it with --data allow_pending=true" if can_wait else ""
    if local := [volume for volume in one.volumes if volume.move is Move.NODE_LOCAL]:
        lost = f" (its replacement then waits until {one.node} is back and uncordoned; if it never comes back, the data is lost)"
        return "; ".join(_effect(one, volume) for volume in local), f"move its data first{wait}{lost if can_wait else ''}"
    if kept := _kept_elsewhere(place):
        return f"its replacement starts nowhere else: {'; '.join(kept)}", f"let that pod leave first{wait}"
    where = " and ".join(f"{volume} can be used only where {volume.topology}" for volume in one.volumes if volume.topology)
    return f"its replacement would run nowhere else: {why}", f"make room elsewhere{f' ({where})' if where else ''}{wait}"


def _kept_elsewhere(place: Placement) -> list[str]:
    """Pods that stay and keep a volume of the pod on a node."""
    return list(dict.fromkeys(why for verdict in place.nodes.values() if verdict.state == "waits" for why in verdict.why))


def warnings(pods: Sequence[PodFate], places: Mapping[str, Placement]) -> list[str]:
    """What does not come back, and what may wait longer than for its own detach. `places` by UID."""
    found = [f"{one.name}: {_effect(one, volume)}" for one in pods if one.leaves for volume in one.volumes if volume.move in _LOSES]
    for group in groups(pods):
        names = ", ".join(one.name for one in group)
        found.append(
            f"{names} share {_shared(group)}: it is detached from {group[0].node} when all of them have left, so they leave together"
        )
    for one in pods:
        found += _elsewhere(one) if one.leaves else []
        if one.leaves and one.uid in places and (kept := _kept_elsewhere(places[one.uid])):
            found.append(f"{one.name}: its replacement starts on no other node: {'; '.join(kept)}")
    split = {frozenset((one.name, *places[one.uid].apart)) for one in pods if one.uid in places and places[one.uid].apart}
    found += [
        f"nothing keeps the replacements of {', '.join(sorted(names))} on one node. A replacement on another node than the first stays "
        "ContainerCreating (Multi-Attach error), and this drain fails after drain_timeout. Give them a required podAffinity by "
        "kubernetes.io/hostname"
        for names in sorted(split, key=sorted)
    ]
    return list(dict.fromkeys(found))


def _elsewhere(one: PodFate) -> list[str]:
    return [
        f"{one.name}: {volume} is still attached to {node} (VolumeAttachment {name}), and must be detached there too"
        for volume in one.volumes
        if volume.waits
        for node, name in volume.on.items()
        if node != one.node
    ]


def times(pods: Sequence[PodFate], consents: DrainConsents) -> list[str]:
    """How long it may take, if anything must be detached."""
    waits = any(volume.waits for one in pods if one.leaves and one.workload for volume in one.volumes)
    return [TIMES.format(seconds=consents.seconds)] if waits else []


# ---- while it runs


def not_detached(one: PodFate, new: Collection[Object], attached: Sequence[Attachment], there: Collection[Object]) -> str:
    """What the replacement of a pod that has left waits for, and why: volumes that another node still has. "" if none has. `new`: the pods
    that may be the replacement; `attached`: all of the cluster; `there`: the pods of its namespace."""
    own = {node_of(pod) for pod in new}
    waiting = [volume for volume in one.volumes if volume.waits]
    held = [(volume, found) for volume in waiting for found in attached if found.volume == volume.name and found.node not in own]
    return "; ".join(f"{volume} is not detached from {found.node} yet: {_why_attached(volume, found, there)}" for volume, found in held)


def _why_attached(volume: PodVolume, found: Attachment, there: Iterable[Object]) -> str:
    users = [pod for pod in there if node_of(pod) == found.node and not is_over(pod) and volume.claim in claims_of(pod)]
    return f"{', '.join('/'.join(namespace_and_name(pod)) for pod in users)} uses it there" if users else found.progress
