"""All containers of a cluster, judged: this run's reads added to the samples of earlier ones, then each container by itself. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from roles.engine.autoscaling.created import RangeRule, range_rules
from roles.engine.kube import Object
from roles.engine.kube.fields import status_of
from roles.right_size import autoscaling, bounds
from roles.right_size.collected import CollectedUse
from roles.right_size.evidence import UseEvidence, evidence
from roles.right_size.judged import JudgedContainer, UseTotal, in_order, judge, present_of
from roles.right_size.past_pods import PodOwners
from roles.right_size.recommend import Advice, Present, advise
from roles.right_size.samples import SampleHistory, Span, added
from roles.right_size.workloads import Amounts, ContainerNow, SizedWorkload, amounts

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
    """In the order of the report. `more`: spans of another source, by namespace, pod and container; those of pods that are gone count for
    the workload that their names say."""
    vpas, targets = autoscaling.recommendations(seen.vpas), autoscaling.utilization_targets(seen.hpas)
    total = allocatable(seen.nodes)
    present, gone = _by_workload(seen, more)
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
        found += [
            judge(
                workload, name, ones, evidences[name], total, advices[name],
                vpas.get((workload, name)), targets.get(workload, ()), requested,
            )
            for name, ones in by_name.items()
        ]  # fmt: skip
    return in_order(found)


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


def _by_workload(seen: CollectedUse, more: Mapping[tuple[str, str, str], Span]) -> tuple[_Spans, _Spans]:
    """Spans of pods that exist, and of pods that are gone."""
    owners = PodOwners({**seen.pods, **{(one.workload.namespace, one.pod): one.workload for one in seen.containers}})
    present: _Spans = {}
    gone: _Spans = {}
    for (namespace, pod, container), span in more.items():
        if (workload := owners.of(namespace, pod)) is not None:
            (present if owners.exists(namespace, pod) else gone).setdefault((workload, container), []).append(span)
    return present, gone


def allocatable(nodes: Iterable[Object]) -> UseTotal:
    """Of all nodes together; what cannot be read of one counts as nothing."""
    cpu = memory = 0
    for node in nodes:
        try:
            found = amounts(status_of(node).get("allocatable"))
        except ValueError:
            found = Amounts()
        cpu, memory = cpu + (found.cpu or 0), memory + (found.memory or 0)
    return UseTotal(cpu, memory)
