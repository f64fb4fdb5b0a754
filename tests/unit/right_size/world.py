"""Reads, lives and pods as tests describe them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from roles.pod_resize import PodStep
from roles.pod_resize.plan import ResourceChange
from roles.right_size import CollectedUse, JudgedContainer, SampleHistory, SizedWorkload, grouped, judge_all, with_reads
from roles.right_size.samples import Kill, Read, Seen, added
from roles.right_size.workloads import Amounts, ContainerNow

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


NODE = {"status": {"allocatable": {"cpu": "4", "memory": "8Gi"}}}


def container(name: str, cpu: int | None = 100, memory: int | None = 112 * MI, **more: Any) -> ContainerNow:
    limits = more.pop("limits", Amounts())
    known = {"id": f"{abs(hash(name)):064x}"[:64], "pod": f"{name}-1", "name": "app", **more}
    return ContainerNow(
        SizedWorkload("Deployment", "shop", name),
        known.pop("pod"),
        "u",
        "w1",
        known.pop("name"),
        "i",
        Amounts(cpu, memory),
        limits,
        **known,
    )


def judged(*of: tuple[ContainerNow, Any], min_span: float = 0.0, **more: Any) -> list[JudgedContainer]:
    found = [one for one, _ in of]
    seen: dict[str, Seen] = {one.id: life(every, one.id, one.pod) for one, every in of if every}
    collected = CollectedUse("c", found, found, seen, nodes=[NODE], **more)
    kept = {workload: with_reads({}, lives, collected, START + 60) for workload, lives in grouped(found).items()}
    return judge_all(collected, kept, min_span, {})


def step(cpu: str, memory: str, pod: str = "web-1", node: str = "w1") -> PodStep:
    before = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "64Mi"}}
    after = {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": memory}}
    return PodStep("shop", pod, f"u-{pod}", node, {"app": ResourceChange(before, after)})


def running(name: str, cpu: str, memory: str, node: str = "w1", phase: str = "Running") -> dict[str, Any]:
    resources = {"requests": {"cpu": cpu, "memory": memory}}
    return {
        "metadata": {"name": name, "namespace": "shop", "uid": f"u-{name}"},
        "spec": {"nodeName": node, "containers": [{"name": "app", "resources": resources}], "schedulerName": "default-scheduler"},
        "status": {"phase": phase},
    }


def rolling(surge: Any = "25%", unavailable: Any = "25%", count: int = 1, kind: str = "RollingUpdate") -> dict[str, Any]:
    """A Deployment."""
    strategy = {"type": kind, "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}
    return {"metadata": {"name": "web", "namespace": "shop", "uid": "d"}, "spec": {"replicas": count, "strategy": strategy}}


ONE_BY_ONE = rolling(0, 1)
