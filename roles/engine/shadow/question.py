"""A question to a shadow control plane, and the answer. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from roles.engine.folding import counted
from roles.engine.harmless import one_line
from roles.engine.kube import Object, condition
from roles.engine.kube.pods import node_of


@dataclass(frozen=True)
class Move:
    """A pod that leaves (`old`, None: none does), and the one that is created for it (`new`, as its controller creates it; None: nothing
    does). `first`: the new one must have a node before the old one leaves."""

    old: Object | None
    new: Object | None
    first: bool = False


@dataclass(frozen=True)
class PlacedPod:
    """Where kube-scheduler puts a pod (`name`: of the one that leaves, or its own). `why`: its words, if it has no `node`. `state`:
    `pending` would wait in the cluster too; `not judged`: the shadow cannot tell."""

    name: str
    state: Literal["placed", "pending", "not judged"]
    node: str = ""
    why: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {f'on {self.node}' if self.node else f'{self.state}: {self.why}'}"


@dataclass(frozen=True)
class Verdict:
    pods: tuple[PlacedPod, ...]

    @property
    def agrees(self) -> bool:
        """True if kube-scheduler gave every pod a node that it was asked about; one that was not judged is not known."""
        return not self.of("pending")

    def of(self, state: str) -> list[PlacedPod]:
        return [one for one in self.pods if one.state == state]

    def __str__(self) -> str:
        placed = counted(len(self.of("placed")), "pod")
        return f"kube-scheduler agrees: {placed} placed" if self.agrees else f"kube-scheduler does not agree: {placed} placed"


@dataclass(frozen=True)
class Queues:
    """How many pods wait in the scheduler: `moving` will be tried (again), `resting` were tried, or must not be."""

    moving: int
    resting: int


# What follows is of preemption, which is off in the shadow, and of claims that none of its pods has.
_ABOUT_OTHERS = re.compile(r"[.,] (?:no new claims|preemption:)")
# scheduler_pending_pods (pkg/scheduler/metrics/metrics.go)
_PENDING = re.compile(r'^scheduler_pending_pods\{queue="([a-z]+)"\} ([0-9.e+]+)$', re.MULTILINE)


def queues(metrics: str) -> Queues | None:
    """From the scheduler's /metrics; None if it does not say."""
    found = {name: round(float(value)) for name, value in _PENDING.findall(metrics)}
    if not {"active", "backoff", "unschedulable"} <= found.keys():
        return None
    return Queues(found["active"] + found["backoff"], found["unschedulable"] + found.get("gated", 0))


def refused(pod: Object | None) -> str | None:
    """The scheduler's words about a pod that it could not place; None if it has not said any, or has placed it."""
    if pod is None or node_of(pod):
        return None
    said = condition(pod, "PodScheduled")
    if said.get("status") != "False":
        return None
    return one_line(_ABOUT_OTHERS.split(str(said.get("message") or said.get("reason") or ""))[0].rstrip("."))


def settled(found: Mapping[str, Object | None], own: Collection[str], queued: Queues | None) -> bool:
    """True if no pod of `own` (keys of `found`) will get a node without another change: each has one, or was refused, and nothing in the
    scheduler is about to be tried. `found` also has all other pods that wait in the scheduler."""
    waiting = [key for key, pod in found.items() if pod is not None and not node_of(pod)]
    if not any(key in waiting for key in own):
        return True
    if any(refused(found[key]) is None for key in waiting if key in own):
        return False
    return queued is not None and not queued.moving and queued.resting >= len(waiting)
