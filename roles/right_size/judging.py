"""All containers of a cluster, judged: this run's reads added to the samples of earlier ones, then each container by itself. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from roles.engine.object_changes import Object
from roles.right_size import autoscaling
from roles.right_size.collected import Collected
from roles.right_size.evidence import evidence
from roles.right_size.judged import Judged, Total, in_order, judge
from roles.right_size.samples import History, Span, added
from roles.right_size.workloads import Amounts, ContainerNow, Workload, amounts

#: Containers of a workload, by name; each in several pods.
Grouped = dict[Workload, dict[str, list[ContainerNow]]]


def grouped(containers: Iterable[ContainerNow]) -> Grouped:
    found: Grouped = {}
    for one in containers:
        found.setdefault(one.workload, {}).setdefault(one.name, []).append(one)
    return found


def with_reads(kept: Mapping[str, History], lives: Mapping[str, Sequence[ContainerNow]], seen: Collected, now: float) -> dict[str, History]:
    """The samples of a workload's containers, with this run's: `lives` are its containers by name. Containers that it no longer has are
    dropped."""
    return {
        name: added(
            kept.get(name, History()),
            [seen.seen[one.id] for one in ones if one.id in seen.seen],
            [kill for one in ones for kill in one.kills],
            now,
        )
        for name, ones in lives.items()
    }


def judge_all(
    seen: Collected, histories: Mapping[Workload, Mapping[str, History]], min_span: float, more: Mapping[tuple[str, str, str], Span]
) -> list[Judged]:
    """In the order of the report. `more`: spans of another source, by namespace, pod and container."""
    vpas, targets = autoscaling.recommendations(seen.vpas), autoscaling.utilization_targets(seen.hpas)
    total = allocatable(seen.nodes)
    found = []
    for workload, by_name in grouped(seen.containers).items():
        requested = {name: ones[0].requests for name, ones in by_name.items()}
        for name, ones in by_name.items():
            history = histories.get(workload, {}).get(name, History())
            spans = [more[place] for one in ones if (place := (workload.namespace, one.pod, name)) in more]
            found.append(
                judge(
                    workload, name, ones, evidence(History((*history.spans, *spans), history.kills)), total, min_span,
                    vpas.get((workload, name)), targets.get(workload, ()), requested,
                )
            )  # fmt: skip
    return in_order(found)


def allocatable(nodes: Iterable[Object]) -> Total:
    """Of all nodes together; what cannot be read of one counts as nothing."""
    cpu = memory = 0
    for node in nodes:
        try:
            found = amounts((node.get("status") or {}).get("allocatable"))
        except ValueError:
            found = Amounts()
        cpu, memory = cpu + (found.cpu or 0), memory + (found.memory or 0)
    return Total(cpu, memory)
