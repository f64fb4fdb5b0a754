"""All containers of a cluster, judged: this run's reads added to the samples of earlier ones, then what each container has, what it used,
what it should have, what is wasted and in danger. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from roles.engine.autoscaling.created import RangeRule, range_rules
from roles.engine.kube import Object
from roles.engine.kube.fields import status_of
from roles.right_size import bounds, targets
from roles.right_size.evidence import UseEvidence, evidence
from roles.right_size.quantities import cpu_text, memory_text, rate_text
from roles.right_size.recommend import CLOSE, Advice, Present, advise
from roles.right_size.samples import THROTTLED, SampleHistory, Seen, Span, added
from roles.right_size.targets import Recommended, UtilizationTarget, kept_by
from roles.right_size.workloads import STATIC, Amounts, ContainerNow, PodOwners, SizedWorkload, amounts

#: From this share of its memory limit on, a container is in danger.
NEAR_LIMIT = 0.9


@dataclass
class CollectedUse:
    """What one run read of a cluster. `containers` as they were at the end of the reads; `lives`: with those that ended meanwhile; `seen`:
    what was read of each, by its container ID. `pods`: the workloads of all pods that were read, also of those that are in no report, by
    namespace and pod. `notes`: what is known less well, and why; `problems`: what could not be read."""

    cluster: str
    containers: list[ContainerNow]
    lives: list[ContainerNow]
    seen: dict[str, Seen]
    pods: Mapping[tuple[str, str], SizedWorkload] = field(default_factory=dict)
    vpas: list[Object] = field(default_factory=list)
    hpas: list[Object] = field(default_factory=list)
    limit_ranges: list[Object] = field(default_factory=list)
    nodes: list[Object] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


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


#: Containers of a workload, by name; each in several pods.
Grouped = dict[SizedWorkload, dict[str, list[ContainerNow]]]


def grouped(containers: Iterable[ContainerNow]) -> Grouped:
    found: Grouped = {}
    for one in containers:
        found.setdefault(one.workload, {}).setdefault(one.name, []).append(one)
    return found


def with_reads(
    kept: Mapping[str, SampleHistory], lives: Mapping[str, Sequence[ContainerNow]], seen: CollectedUse, now: float
) -> dict[str, SampleHistory]:
    """The samples of a workload's containers, with this run's: `lives` are its containers by name. Containers that it no longer has are
    dropped."""
    return {
        name: added(
            kept.get(name, SampleHistory()),
            [seen.seen[one.id] for one in ones if one.id in seen.seen],
            [kill for one in ones for kill in one.kills],
            now,
        )
        for name, ones in lives.items()
    }


def judge_all(
    seen: CollectedUse,
    histories: Mapping[SizedWorkload, Mapping[str, SampleHistory]],
    min_span: float,
    more: Mapping[tuple[str, str, str], Span],
) -> list[JudgedContainer]:
    """In the order of the report: the critical ones first, then those in danger, then by what is wasted. `more`: spans of another source,
    by namespace, pod and container; those of pods that are gone count for the workload that their names say."""
    vpas, scaled = targets.recommendations(seen.vpas), targets.utilization_targets(seen.hpas)
    whole = allocatable(seen.nodes)
    present, gone = _spans_by_workload(seen, more)
    found = []
    for workload, by_name in grouped(seen.containers).items():
        requested = {name: ones[0].requests for name, ones in by_name.items()}
        evidences = {}
        for name in by_name:
            history = histories.get(workload, {}).get(name, SampleHistory())
            known = SampleHistory((*history.spans, *present.get((workload, name), ())), history.kills)
            evidences[name] = evidence(known, gone.get((workload, name), ()))
        now = {name: present_of(ones) for name, ones in by_name.items()}
        advices = _advices(evidences, now, min_span, list(range_rules(seen.limit_ranges, workload.namespace)))
        for name, ones in by_name.items():
            vpa = vpas.get((workload, name))
            notes = _notes(workload, name, ones, advices[name], vpa, scaled.get(workload, ()), requested)
            found.append(_judged(workload, name, ones, evidences[name], whole, advices[name], vpa, tuple(notes)))
    return sorted(found, key=lambda one: (not one.critical, not one.dangers, -one.wasted, str(one.workload), one.container))


def _judged(
    workload: SizedWorkload, name: str, now: Sequence[ContainerNow], found: UseEvidence, whole: Amounts, advices: tuple[Advice, Advice],
    vpa: Recommended | None, notes: tuple[str, ...],
) -> JudgedContainer:  # fmt: skip
    """`now`: the container in each pod; `whole`: what all nodes can give to pods."""
    present, (cpu, memory) = present_of(now), advices
    wasted_cpu = _wasted(present.requests.cpu, cpu) * len(now)
    wasted_memory = _wasted(present.requests.memory, memory) * len(now)
    return JudgedContainer(
        workload, name, tuple(one.pod for one in now), present, sum(one.restarts for one in now), found, cpu, memory, vpa,
        differ=len(_kinds(now)) > 1,
        wasted=wasted_cpu / max(1, whole.cpu or 0) + wasted_memory / max(1, whole.memory or 0),
        wasted_cpu=wasted_cpu,
        wasted_memory=wasted_memory,
        dangers=tuple(_dangers(found, present, cpu, memory, evicted=not all(one.critical for one in now))),
        critical=memory.decision == "fix" or _killed(memory),
        notes=notes,
        sidecar=any(one.sidecar for one in now),
    )  # fmt: skip


def _advices(
    found: Mapping[str, UseEvidence], now: Mapping[str, Present], min_span: float, rules: Sequence[RangeRule]
) -> dict[str, tuple[Advice, Advice]]:  # fmt: skip
    """The advice for the containers of one pod, by name, within the LimitRanges of its namespace."""
    advices = {}
    for name, one in found.items():
        cpu, memory = advise(one, now[name], min_span)
        advices[name] = (bounds.within(cpu, now[name], rules), bounds.within(memory, now[name], rules))
    return bounds.within_pod(advices, now, rules)


#: By workload and container.
_Spans = dict[tuple[SizedWorkload, str], list[Span]]


def _spans_by_workload(seen: CollectedUse, more: Mapping[tuple[str, str, str], Span]) -> tuple[_Spans, _Spans]:
    """Spans of pods that exist, and of pods that are gone."""
    owners = PodOwners({**seen.pods, **{(one.workload.namespace, one.pod): one.workload for one in seen.containers}})
    present: _Spans = {}
    gone: _Spans = {}
    for (namespace, pod, container), span in more.items():
        if (workload := owners.of(namespace, pod)) is not None:
            (present if owners.exists(namespace, pod) else gone).setdefault((workload, container), []).append(span)
    return present, gone


def allocatable(nodes: Iterable[Object]) -> Amounts:
    """Of all nodes together; what cannot be read of one counts as nothing."""
    cpu = memory = 0
    for node in nodes:
        try:
            found = amounts(status_of(node).get("allocatable"))
        except ValueError:
            found = Amounts()
        cpu, memory = cpu + (found.cpu or 0), memory + (found.memory or 0)
    return Amounts(cpu, memory)


def present_of(now: Iterable[ContainerNow]) -> Present:
    """What the container has in most of its pods."""
    return _kinds(now).most_common(1)[0][0]


def _kinds(now: Iterable[ContainerNow]) -> Counter[Present]:
    return Counter(Present(one.requests, one.limits, one.guaranteed) for one in now)


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
        has = requested[container].of_resource(target.resource)
        changed = replace(requested[container], **{target.resource: advice.request})
        new = kept_by(target, requested, {**requested, container: changed})
        if new is not None and target.container in ("", container) and advice.request != has:
            yield (
                f"the HorizontalPodAutoscaler {target.name} keeps {target.percent} % of the {target.resource} request: with the new "
                f"request, {new} % keeps as many pods"
            )
