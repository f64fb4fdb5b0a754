"""A container of a workload, judged: what it has, what it was seen to use, what it should have, what is wasted and in danger. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from roles.right_size.autoscaling import Recommended, UtilizationTarget, corrected
from roles.right_size.evidence import UseEvidence
from roles.right_size.quantities import cpu_text, memory_text, rate_text
from roles.right_size.recommend import CLOSE, Advice, Present
from roles.right_size.samples import THROTTLED
from roles.right_size.workloads import STATIC, Amounts, ContainerNow, SizedWorkload

#: From this share of its memory limit on, a container is in danger.
NEAR_LIMIT = 0.9


@dataclass(frozen=True)
class UseTotal:
    """What all nodes can give to pods: thousandths of a core and bytes."""

    cpu: int
    memory: int


@dataclass(frozen=True)
class JudgedContainer:
    """One container of a workload. `pods`: those that it has now. `now` is what most of them have; `differ`: not all have the same.
    `restarts` of its containers that are there now; `sidecar`: an init container that keeps running. `wasted`: the share of the cluster
    that its pods request and do not need; `dangers`: sentences, the worst first; `critical`: it was killed, or it leaks."""

    workload: SizedWorkload
    container: str
    pods: tuple[str, ...]
    now: Present
    restarts: int
    found: UseEvidence
    cpu: Advice
    memory: Advice
    vpa: Recommended | None = None
    differ: bool = False
    wasted: float = 0.0
    wasted_cpu: int = 0
    wasted_memory: int = 0
    dangers: tuple[str, ...] = ()
    critical: bool = False
    notes: tuple[str, ...] = ()
    sidecar: bool = False

    @property
    def advices(self) -> tuple[Advice, Advice]:
        return self.cpu, self.memory


def judge(
    workload: SizedWorkload,
    container: str,
    now: Sequence[ContainerNow],
    found: UseEvidence,
    total: UseTotal,
    advices: tuple[Advice, Advice],
    vpa: Recommended | None = None,
    targets: Iterable[UtilizationTarget] = (),
    requested: Mapping[str, Amounts] | None = None,
) -> JudgedContainer:
    """`now`: the container in each pod. `advices`: for CPU and memory. `requested`: the requests of all containers of a pod, by name, for
    autoscalers that count them together."""
    kinds = _kinds(now)
    present, (cpu, memory) = present_of(now), advices
    wasted_cpu = _wasted(present.requests.cpu, cpu) * len(now)
    wasted_memory = _wasted(present.requests.memory, memory) * len(now)
    dangers = tuple(_dangers(found, present, cpu, memory, evicted=not all(one.critical for one in now)))
    return JudgedContainer(
        workload,
        container,
        tuple(one.pod for one in now),
        present,
        sum(one.restarts for one in now),
        found,
        cpu,
        memory,
        vpa,
        len(kinds) > 1,
        wasted_cpu / max(1, total.cpu) + wasted_memory / max(1, total.memory),
        wasted_cpu,
        wasted_memory,
        dangers,
        memory.decision == "fix" or _killed(memory),
        tuple(_notes(workload, container, now, (cpu, memory), vpa, targets, requested or {})),
        any(one.sidecar for one in now),
    )


def present_of(now: Iterable[ContainerNow]) -> Present:
    """What the container has in most of its pods."""
    kinds = _kinds(now)
    return max(kinds, key=lambda one: kinds[one])


def _kinds(now: Iterable[ContainerNow]) -> Counter[Present]:
    return Counter(Present(one.requests, one.limits, one.guaranteed) for one in now)


def in_order(found: Iterable[JudgedContainer]) -> list[JudgedContainer]:
    """The critical ones first, then those in danger, then by what is wasted."""
    return sorted(found, key=lambda one: (not one.critical, not one.dangers, -one.wasted, str(one.workload), one.container))


def _wasted(request: int | None, advice: Advice) -> int:
    if request is None or advice.target is None or request - advice.target <= CLOSE * request:
        return 0
    return request - advice.target


def _killed(memory: Advice) -> bool:
    """It was killed, and has no more memory since."""
    return memory.pattern == "OOM-killed" and memory.decision in ("raise", "unknown")


def _dangers(found: UseEvidence, now: Present, cpu: Advice, memory: Advice, *, evicted: bool) -> Iterator[str]:
    """`evicted`: its pods can be evicted for lack of memory."""
    if _killed(memory):
        yield f"the kernel killed it for its memory, {found.kills} times" if found.kills > 1 else "the kernel killed it for its memory"
    if memory.decision == "fix":
        rate = f" by {rate_text(found.trend.rate)}" if found.trend is not None else ""
        yield f"its memory rises{rate}, and has not stopped"
    limit, high = now.limits.memory, memory.high
    if limit and high is not None and memory.pattern not in ("OOM-killed", "leaking") and high >= NEAR_LIMIT * limit:
        yield f"it used {high / limit:.0%} of its memory limit"
    if found.throttled is not None and found.throttled >= THROTTLED and 0 < (now.limits.cpu or 0) <= (found.throttled_at or math.inf):
        yield f"its CPU limit stopped it in {found.throttled:.0%} of the periods"
    request = now.requests.memory
    if evicted and memory.low is not None and request is None:
        yield "it requests no memory: it is among the first to be evicted"
    elif evicted and memory.low is not None and request is not None and memory.low > request:
        yield f"it uses {memory_text(memory.low)} of memory and requests {memory_text(request)}: it is among the first to be evicted"
    if found.cpu_median is not None and now.requests.cpu is not None and cpu.pattern != "unknown" and found.cpu_median > now.requests.cpu:
        yield f"it uses {cpu_text(round(found.cpu_median))} of CPU and requests {cpu_text(now.requests.cpu)}: on a full node it gets less"


def _notes(
    workload: SizedWorkload,
    container: str,
    now: Sequence[ContainerNow],
    advices: tuple[Advice, Advice],
    vpa: Recommended | None,
    targets: Iterable[UtilizationTarget],
    requested: Mapping[str, Amounts],
) -> Iterator[str]:
    if workload.kind == STATIC:
        yield "a static pod: only its manifest on the node changes it"
    if any(one.sidecar for one in now):
        yield "a sidecar: only its template changes it"
    if workload.kind != STATIC and any(one.best_effort for one in now) and any(one.decision == "raise" for one in advices):
        # A resize never changes the QoS class (pkg/apis/core/validation/validation.go, ValidatePodResize).
        yield (
            "its pods are BestEffort: with a request they are Burstable, and evicted later; no running pod can become so: set it in the "
            "template"
        )
    if vpa is not None and vpa.mode != "Off":
        yield f"the VerticalPodAutoscaler {vpa.name} ({vpa.mode}) sets its requests: change its bounds, or turn it off first"
    for target in targets:
        advice = next(one for one in advices if one.resource == target.resource)
        before = {name: getattr(one, target.resource) for name, one in requested.items() if target.container in ("", name)}
        if container not in before or None in before.values() or advice.request is None or advice.request == before[container]:
            continue
        whole = sum(before.values())
        new = corrected(target, whole, whole - before[container] + advice.request)
        yield (
            f"the HorizontalPodAutoscaler {target.name} keeps {target.percent} % of the {target.resource} request: with the new request, "
            f"{new} % keeps as many pods"
        )
