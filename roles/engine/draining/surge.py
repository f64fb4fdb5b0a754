"""Which single pods can be replaced before they leave: by one replica more for a moment, without touching the template. Pure.

The Deployment gets a second replica; when it is Ready, the Deployment gets its old number back, and its ReplicaSet removes the pod with the
lowest controller.kubernetes.io/pod-deletion-cost (pkg/controller/controller_utils.go, ActivePodsWithRanks), which is the doomed one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roles.engine.draining.model import DrainConsents, PodWorkload
from roles.engine.draining.workloads import Workloads
from roles.engine.object_changes import Object, controller, is_ending, is_over, namespace_and_name, uid, workload_rollout
from roles.engine.placement import Storage

#: Annotation of a Deployment that has a replica more for a moment: the run that did it.
SURGED_BY = "daytwo.dev/surged-by"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
CHEAPEST = "-2147483647"


@dataclass(frozen=True)
class Surges:
    """`pods`: UIDs of pods that are replaced first, with their Deployment; `refusals`: why the consent cannot be used."""

    pods: Mapping[str, PodWorkload]
    refusals: tuple[str, ...] = ()


def find_surges(doomed: Sequence[Object], workloads: Workloads, consents: DrainConsents) -> Surges:
    """The surges among the pods of the nodes. A Deployment that an interrupted run left with a replica more is finished too."""
    chosen, refusals, problems = dict[str, PodWorkload](), list[str](), dict[str, str]()
    named = set(consents.surge) if isinstance(consents.surge, tuple) else set()
    seen: dict[str, str] = {}
    for pod in doomed:
        workload = workloads.of(pod)
        if workload is None or is_over(pod) or is_ending(pod):
            continue
        seen[workload.key] = seen.get(workload.key, "") or workload.kind
        started = workload.kind == "Deployment" and is_surged(workload)
        if not started and not _asked(workload, consents.surge):
            continue
        why = why_not(pod, workload, workloads)
        if why is None:
            chosen[uid(pod)] = workload
        else:
            problems[str(workload)] = why
    refusals += [f"{name}: a second pod first is not possible: {why}" for name, why in problems.items()]
    refusals += [f"surge: {name} has no pod on these nodes" for name in sorted(named - set(seen))]
    if problems and consents.surge is True:
        able = sorted({one.key for one in chosen.values()})
        refusals.append(f"name the others: --data surge={','.join(able)}" if able else "leave --data surge out")
    return Surges(chosen, tuple(refusals))


def is_surged(workload: PodWorkload) -> bool:
    return workload.item is not None and SURGED_BY in (workload.item["metadata"].get("annotations") or {})


def _asked(workload: PodWorkload, surge: bool | tuple[str, ...]) -> bool:
    if isinstance(surge, tuple):
        return workload.key in surge
    return surge and workload.kind == "Deployment" and workload.wanted == 1


def why_not(pod: Object, workload: PodWorkload, workloads: Workloads) -> str | None:
    """Why a pod cannot have a second one beside it; None if it can."""
    item = workload.item
    if workload.kind != "Deployment" or item is None:
        return f"it is a {workload.kind}, and only a Deployment can have one pod more for a moment"
    spec: Mapping[str, Any] = item.get("spec") or {}
    if workload.wanted != (2 if is_surged(workload) else 1):
        return f"it has {workload.wanted} replicas, not 1; its pods are evicted one after the other"
    if (spec.get("strategy") or {}).get("type") == "Recreate":
        return "its strategy is Recreate: its pods must not run beside each other"
    scaler = next((one for one in workloads.live.of("HorizontalPodAutoscaler") if _scales(one, workload)), None)
    if scaler is not None:
        return f"HorizontalPodAutoscaler {scaler['metadata']['name']} sets its replicas; raise its minReplicas for the time of the drain"
    storage = Storage(workloads.live.of)
    if claims := [volume.key.rpartition("/")[2] for volume in storage.volumes(pod) if not volume.allows_second]:
        return f"only one node can write to {', '.join(claims)}"
    state = workload_rollout.progress("Deployment", item)
    if not state.done and not is_surged(workload):
        return f"it is not healthy now ({state.failed or state.summary})"
    sets = [
        one
        for one in workloads.live.of("ReplicaSet")
        if controller(one) == workload.uid and int((one.get("spec") or {}).get("replicas") or 0)
    ]
    if len(sets) > 1:
        return "it is rolling out"
    return None


def _scales(scaler: Object, workload: PodWorkload) -> bool:
    target = (scaler.get("spec") or {}).get("scaleTargetRef") or {}
    return namespace_and_name(scaler)[0] == workload.namespace and (target.get("kind"), target.get("name")) == (
        workload.kind,
        workload.name,
    )
