"""Why a node must stay, whatever it costs. Pure.

Sources: karpenter (pkg/controllers/disruption: candidates), cluster-autoscaler (FAQ.md: what prevents scale-down). Unlike both, a pod of
another scheduler, and a budget that lets no pod of the node go now, keep the whole node.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cached_property

from roles.engine.bounds import moment, span
from roles.engine.disruption import BudgetState, DisruptionObjects, budget_states, budgets_of, eviction_answer
from roles.engine.folding import shortened
from roles.engine.harmless import one_line
from roles.engine.kube import Object, is_ready
from roles.engine.kube.fields import annotations_of, containers_of, created_of, labels_of, name_of, spec_of, status_of, volumes_of
from roles.engine.kube.pods import is_alive, is_static, node_of
from roles.engine.kube.times import parse_duration
from roles.engine.outage import DrainConsents, PodFate, Purpose, node_fate
from roles.engine.outage.fates import Judge, empty_dirs
from roles.engine.packing import SCALE_DOWN_DISABLED
from roles.engine.placement import Storage
from roles.engine.placement.storage import ZONE_LABELS, Move

DO_NOT_DISRUPT = ("karpenter.sh/do-not-disrupt", "karpenter.sh/do-not-evict")
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
_CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_SCHEDULER = "default-scheduler"
#: The containers that Kubernetes' storage group gives for a CSI driver's controller (kubernetes-csi.github.io: sidecar containers), by
#: the last part of their images.
_CSI_CONTROLLER = ("csi-attacher", "csi-provisioner", "csi-resizer", "csi-snapshotter")
#: Its mark is on a Node that a consolidation has left cordoned; one that it has powered off has that of a power off.
CONSOLIDATION = Purpose("consolidation", "its consolidation")
#: The purposes of outages that may end with a machine that is off (roles/drain/, roles/power/).
_OFF_AFTER = ("drain", "power-off", CONSOLIDATION.name)
# Of a tenant's text.
_LONGEST = 60
_FEW = 3


class KeepReason(StrEnum):
    """Why a node stays."""

    CONTROL_PLANE = "control-plane"
    ETCD = "etcd"
    NOT_IN_INVENTORY = "not-in-inventory"
    NOT_CHOSEN = "not-chosen"
    NOT_READY = "not-ready"
    CORDONED = "cordoned"
    OUT_OF_SERVICE = "out-of-service"
    SCALE_DOWN_DISABLED = "scale-down-disabled"
    NODE_DO_NOT_DISRUPT = "node-do-not-disrupt"
    LAST_NODE = "last-node"
    LAST_OF_ZONE = "last-of-zone"
    DO_NOT_DISRUPT = "do-not-disrupt"
    SAFE_TO_EVICT = "safe-to-evict"
    CSI_CONTROLLER = "csi-controller"
    NODE_DATA = "node-data"
    EMPTY_DIR = "empty-dir"
    UNMANAGED = "unmanaged"
    OTHER_SCHEDULER = "other-scheduler"
    BUDGET = "budget"
    TWO_BUDGETS = "two-budgets"
    CANNOT_LEAVE = "cannot-leave"
    NO_PLACE = "no-place"
    NO_ROOM = "no-room"
    UNSURE = "unsure"


#: What each says of a node, before its subjects.
TEXTS: Mapping[KeepReason, str] = {
    KeepReason.CONTROL_PLANE: "it is of the control plane",
    KeepReason.ETCD: "etcd runs on it:",
    KeepReason.NOT_IN_INVENTORY: "no host of the inventory has its name or address, so its cost is not known",
    KeepReason.NOT_CHOSEN: "this run does not choose it (nodes=, --limit)",
    KeepReason.NOT_READY: "it is not Ready",
    KeepReason.CORDONED: "it is cordoned by",
    KeepReason.OUT_OF_SERVICE: "a run has it out of service:",
    KeepReason.SCALE_DOWN_DISABLED: "its annotation forbids it:",
    KeepReason.NODE_DO_NOT_DISRUPT: "its annotation forbids it:",
    KeepReason.LAST_NODE: "no other node would be left for pods",
    KeepReason.LAST_OF_ZONE: "no other node for pods would be left with",
    KeepReason.DO_NOT_DISRUPT: "an annotation forbids to disrupt",
    KeepReason.SAFE_TO_EVICT: "an annotation says that eviction is not safe for",
    KeepReason.CSI_CONTROLLER: "the controller of a storage driver runs on it:",
    KeepReason.NODE_DATA: "only it has the data of",
    KeepReason.EMPTY_DIR: "data in emptyDir would be lost (allow_local_data=true allows it):",
    KeepReason.UNMANAGED: "nothing recreates",
    KeepReason.OTHER_SCHEDULER: "another scheduler places",
    KeepReason.BUDGET: "a budget lets no pod go now:",
    KeepReason.TWO_BUDGETS: "no eviction can succeed under two budgets:",
    KeepReason.CANNOT_LEAVE: "a drain could not evict",
    KeepReason.NO_PLACE: "its new node would not take",
    KeepReason.NO_ROOM: "no other node has room for",
    KeepReason.UNSURE: "it is not sure that the new node takes",
}


@dataclass(frozen=True)
class Keep:
    """One reason and what it is about, "" for the node itself; `detail` in a few words."""

    reason: KeepReason
    subject: str = ""
    detail: str = ""

    @property
    def about(self) -> str:
        return f"{self.subject} ({self.detail})" if self.subject and self.detail else self.subject or self.detail


def sentence(keeps: Sequence[Keep]) -> str:
    """The reasons of one node, those of the same kind together."""
    found: dict[KeepReason, list[str]] = {}
    for one in keeps:
        found.setdefault(one.reason, []).append(one.about)
    return "; ".join(f"{TEXTS[reason]} {shortened(list(filter(None, about)), _FEW)}".rstrip() for reason, about in found.items())


@dataclass(frozen=True)
class Keeper:
    """Judges the nodes of a cluster. `live` has all kinds of a drain; `now`: the API server's time. `servers`, `known`: names of Nodes
    that are control-plane hosts of the inventory, and that are any of its hosts; `chosen`: those that may go, None for all."""

    live: DisruptionObjects
    now: datetime
    servers: Collection[str]
    known: Collection[str]
    chosen: Collection[str] | None = None
    allow_local_data: bool = False

    @cached_property
    def judge(self) -> Judge:
        return Judge.of(self.live, self.states, DrainConsents(allow_local_data=self.allow_local_data), self.now)

    @cached_property
    def states(self) -> Sequence[BudgetState]:
        return budget_states(self.live, self.now)

    @cached_property
    def fates(self) -> dict[str, list[PodFate]]:
        """What becomes of the pods of each node if it is drained."""
        found: dict[str, list[PodFate]] = {name_of(node): [] for node in self.live.of("Node")}
        for pod in self.live.of("Pod"):
            if (node := node_of(pod)) in found:
                found[node].append(self.judge.fate(pod, node))
        return found

    def leaving(self, node: str) -> list[PodFate]:
        """The pods that have to move."""
        return [one for one in self.fates[node] if one.fate not in ("stays", "ending")]

    @cached_property
    def asleep(self) -> frozenset[str]:
        """The machines that are off: NotReady, cordoned by daytwo (_OFF_AFTER), and without a pod that would have to move. And those that a
        consolidation has left cordoned, which may be powered off at any time."""
        return frozenset(name_of(node) for node in self.live.of("Node") if self._sleeps(node))

    def _sleeps(self, node: Object) -> bool:
        fate = node_fate(node)
        drained = fate.cordon == "ours" and fate.mark is not None and fate.mark.purpose in _OFF_AFTER
        drained = drained and (not is_ready(node) or (fate.mark is not None and fate.mark.purpose == CONSOLIDATION.name))
        return drained and name_of(node) in self.known and not self.leaving(name_of(node))

    @cached_property
    def kept(self) -> dict[str, tuple[Keep, ...]]:
        """By node, why it must stay; a node that may go, or that is asleep, is not in it."""
        zones = self.lost_zones()
        found = {}
        for node in self.live.of("Node"):
            name = name_of(node)
            keeps = [*self._of_node(node), *zones.get(name, ()), *self._of_pods(name)] if name not in self.asleep else []
            if keeps:
                found[name] = tuple(dict.fromkeys(keeps))
        return found

    # ---- the node

    def _of_node(self, node: Object) -> Iterator[Keep]:
        name, fate, notes = name_of(node), node_fate(node), annotations_of(node)
        if self._is_server(node):
            yield Keep(KeepReason.CONTROL_PLANE)
        if name not in self.known:
            yield Keep(KeepReason.NOT_IN_INVENTORY)
        elif self.chosen is not None and name not in self.chosen:
            yield Keep(KeepReason.NOT_CHOSEN)
        if not is_ready(node):
            yield Keep(KeepReason.NOT_READY)
        if fate.cordon:
            reason = KeepReason.OUT_OF_SERVICE if fate.cordon == "ours" else KeepReason.CORDONED
            yield Keep(reason, detail=_safe(fate.by))
        if notes.get(SCALE_DOWN_DISABLED) == "true":
            yield Keep(KeepReason.SCALE_DOWN_DISABLED, SCALE_DOWN_DISABLED)
        for text in _forbidding(notes, created_of(node), self.now):
            yield Keep(KeepReason.NODE_DO_NOT_DISRUPT, text)
        for volume in self._storage.only_on().get(name, ()):
            yield Keep(KeepReason.NODE_DATA, _safe(volume), "PersistentVolume")

    @cached_property
    def _storage(self) -> Storage:
        return Storage(self.live.of)

    def lost_zones(self, goes: Collection[str] = ()) -> dict[str, list[Keep]]:
        """The zones, and the cluster, that would have no node for pods if `goes` went, by each of their nodes; without any: if that node
        alone went."""
        found: dict[str, list[Keep]] = {}
        for (key, value), names in self._zones.items():
            if names <= set(goes) or (len(names) == 1 and not goes):
                for name in names:
                    keep = Keep(KeepReason.LAST_OF_ZONE, f"{key}={_safe(value)}") if key else Keep(KeepReason.LAST_NODE)
                    found.setdefault(name, []).append(keep)
        return found

    def least(self, cost: Callable[[str], float]) -> float:
        """What the nodes cost at least that must stay, with the cheapest of each zone that has none of them."""
        more: dict[str, float] = {}
        for (key, _), names in self._zones.items():
            if not names & self.kept.keys():
                more[key] = more.get(key, 0.0) + min(map(cost, names))
        return sum(map(cost, self.kept)) + max(more.values(), default=0.0)

    @cached_property
    def _zones(self) -> dict[tuple[str, str], set[str]]:
        """The nodes that take pods: all of them, and by the key and value of their zone."""
        found: dict[tuple[str, str], set[str]] = {}
        for node in self.live.of("Node"):
            if is_ready(node) and not spec_of(node).get("unschedulable") and not self._is_server(node):
                zones = [(key, value) for key in ZONE_LABELS if (value := labels_of(node).get(key))]
                for zone in [("", ""), *zones]:
                    found.setdefault(zone, set()).add(name_of(node))
        return found

    def _is_server(self, node: Object) -> bool:
        return name_of(node) in self.servers or any(label in labels_of(node) for label in _CONTROL_PLANE)

    # ---- its pods

    def _of_pods(self, node: str) -> Iterator[Keep]:
        for fate in self.fates[node]:
            pod = fate.pod
            if is_static(pod) and any(one.get("name") == "etcd" for one in containers_of(pod)):
                yield Keep(KeepReason.ETCD, _safe(fate.name))
            if is_alive(pod):
                # Also of a DaemonSet, and static: karpenter asks them all.
                texts = _forbidding(annotations_of(pod), str(status_of(pod).get("startTime")), self.now)
                yield from (Keep(KeepReason.DO_NOT_DISRUPT, _safe(fate.name), text) for text in texts)
            if fate.fate not in ("stays", "ending"):
                yield from self._of_leaving(fate)

    def _of_leaving(self, fate: PodFate) -> Iterator[Keep]:
        pod, name = fate.pod, _safe(fate.name)
        if annotations_of(pod).get(SAFE_TO_EVICT) == "false":
            yield Keep(KeepReason.SAFE_TO_EVICT, name)
        if is_csi_controller(pod):
            yield Keep(KeepReason.CSI_CONTROLLER, name)
        if (scheduler := str(spec_of(pod).get("schedulerName") or _SCHEDULER)) != _SCHEDULER:
            yield Keep(KeepReason.OTHER_SCHEDULER, name, _safe(scheduler))
        yield from (Keep(KeepReason.NODE_DATA, name, _safe(what)) for what in self._left_behind(fate))
        if fate.workload is None:
            yield Keep(KeepReason.UNMANAGED, name)
            return
        local = empty_dirs(pod)
        if local and not self.allow_local_data:
            yield Keep(KeepReason.EMPTY_DIR, name, _safe(", ".join(local)))
        budgets = budgets_of(pod, self.states)
        if len(budgets) > 1:
            yield Keep(KeepReason.TWO_BUDGETS, name, _safe(", ".join(state.key for state in budgets)))
        elif budgets and not eviction_answer(pod, self.states).allowed:
            yield Keep(KeepReason.BUDGET, _safe(budgets[0].key), f"pod {name}")
        elif fate.fate == "blocks" and not local:
            yield Keep(KeepReason.CANNOT_LEAVE, name, _safe(fate.why))

    def _left_behind(self, fate: PodFate) -> Iterator[str]:
        """Volumes whose data is on this node, and does not follow the pod."""
        for volume in self._storage.volumes(fate.pod):
            if volume.move in (Move.NODE_LOCAL, Move.LEFT_BEHIND):
                yield str(volume)
        if fate.workload is not None and fate.workload.kind == "StatefulSet":
            yield from (f"hostPath {(one.get('hostPath') or {}).get('path')}" for one in volumes_of(fate.pod) if "hostPath" in one)


def is_csi_controller(pod: Object) -> bool:
    """One of its containers is a part that every controller of a CSI driver has, by its image."""
    images = (str(one.get("image") or "") for one in containers_of(pod))
    return any(image.partition("@")[0].rpartition("/")[2].partition(":")[0] in _CSI_CONTROLLER for image in images)


def _forbidding(notes: Mapping[str, str], begun: str, now: datetime) -> Iterator[str]:
    """The annotations, `KEY=VALUE`, that forbid to disrupt a pod or a node now: "true", or a duration from when it has `begun`. Any other
    value forbids too, since somebody meant something by it; but for "false" and an empty one."""
    for key in DO_NOT_DISRUPT:
        value = str(notes.get(key) or "")
        if value not in ("", "false") and not _is_over(value, begun, now):
            yield f"{key}={_safe(value)}"


def _is_over(duration: str, begun: str, now: datetime) -> bool:
    since = moment(begun)
    try:
        return since is not None and since + span(float(parse_duration(duration))) <= now
    except ValueError:
        return False


def _safe(text: str) -> str:
    """A text of a tenant, for one line."""
    shown = one_line(text)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 3]}..."
