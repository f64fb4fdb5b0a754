"""Reads, lives and pods as tests describe them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from roles.right_size import SampleHistory
from roles.right_size.samples import Kill, Read, Seen, added

MI = 2**20
START = 1_700_000_000.0
DAY = 86400.0
ID = "0123456789abcdef" * 4
OTHER = "fedcba9876543210" * 4


def reads(
    seconds: float,
    every: float,
    cpu: Callable[[float], float] = lambda _: 100.0,
    memory: Callable[[float], float] = lambda _: 100 * MI,
    *,
    begun: float = START,
    age: float = 0.0,
    **more: Any,
) -> list[Read]:
    """What is read of a container that uses cpu(t) thousandths of a core and memory(t) bytes, t seconds after `begun`. The counter adds up
    in steps of a second (of many reads that are far apart: longer ones), so that what happens between two reads counts."""
    found, counter, at, highest = [], 0.0, 0.0, 0.0
    width = max(1.0, every / 600)
    while at <= seconds:
        highest = max(highest, memory(at))
        found.append(
            Read(begun + at, "kernel b1", age + at, counter, age + at, int(memory(at)), more.pop("cache", 0) if at == 0 else 0,
                 peak=int(max(highest, more.get("peak", 0))), **{name: value for name, value in more.items() if name != "peak"})
        )  # fmt: skip
        step = 0.0
        while step < every:
            counter += cpu(at + step) / 1000 * min(width, every - step)
            highest = max(highest, memory(at + step))
            step += width
        at += every
    return found


def life(of: Sequence[Read], id: str = ID, pod: str = "web-1", image: str = "i1") -> Seen:
    return Seen(id, pod, "w1", image, of)


def history(*lives: Seen, kills: Sequence[Kill] = (), now: float | None = None) -> SampleHistory:
    end = now if now is not None else max((one.reads[-1].at for one in lives), default=START)
    return added(SampleHistory(), lives, kills, end)


def noise(around: float, share: float, seed: int = 1) -> Callable[[float], float]:
    """The same noise in each run of a test."""
    return lambda at: around * (1 + share * (random.Random(seed * 1_000_003 + int(at)).random() * 2 - 1))


def pod(name: str, **more: Any) -> dict[str, Any]:
    """A running pod of the Deployment shop/web."""
    return {
        "metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}",
                     "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "rs", "controller": True}], **more.pop("meta", {})},
        "spec": {"nodeName": "w1", "containers": [{"name": "app", "image": "i", "resources": more.pop("resources", {})}], **more.pop("spec", {})},
        "status": {"phase": "Running", "qosClass": "Burstable", "containerStatuses": [{
            "name": "app", "containerID": f"containerd://{ID}", "restartCount": 0, "imageID": "i@1",
            "state": {"running": {"startedAt": "2023-11-14T22:13:20Z"}}, **more.pop("state", {})}], **more},
    }  # fmt: skip


REPLICA_SET = {"metadata": {"name": "web-1", "namespace": "shop", "uid": "rs",
                            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d", "controller": True}]}}  # fmt: skip
