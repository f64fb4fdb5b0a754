"""Which single pods can be replaced before they leave: by one replica more for a moment, without touching the template. Pure.

The Deployment gets a second replica; when it is Ready, the Deployment gets its old number back, and its ReplicaSet removes the pod with the
lowest controller.kubernetes.io/pod-deletion-cost (pkg/controller/controller_utils.go, ActivePodsWithRanks), which is the doomed one.

Whoever may write a Deployment may write the mark of a surge, too, and copies of objects have it (a backup, GitOps). So it is a claim: it
counts only if the record of that run has begun this surge and not ended it, and if nobody but daytwo has set the replicas since.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roles.engine.disruption.problem import autoscaler
from roles.engine.harmless import one_line
from roles.engine.kube import Object, controller, namespace_and_name, uid
from roles.engine.kube.field_managers import FIELD_MANAGER, writers
from roles.engine.kube.fields import annotations_of, spec_of
from roles.engine.kube.pods import is_alive
from roles.engine.objects import workload_rollout
from roles.engine.outage.keys import DrainConsents
from roles.engine.outage.model import PodWorkload
from roles.engine.outage.workloads import Workloads
from roles.engine.placement import Storage

#: Annotation of a Deployment that has a replica more for a moment: the run that did it.
SURGED_BY = "daytwo.dev/surged-by"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
CHEAPEST = "-2147483647"
#: Not a kind of the API: the surges that records of runs have begun and not ended, as `surges_in` returns them.
SURGES = "RecordedSurge"
# The step of a record (drainer.SURGE), and of how many marks that do not count the plan speaks.
_STEP, _MOST_NOTES = "surge", 5


@dataclass(frozen=True)
class Surges:
    """`pods`: UIDs of pods that are replaced first, with their Deployment; `refusals`: why the consent cannot be used; `warnings`: marks of
    surges that do not count."""

    pods: Mapping[str, PodWorkload]
    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def find_surges(doomed: Sequence[Object], workloads: Workloads, consents: DrainConsents) -> Surges:
    """The surges among the pods of the nodes. A Deployment that an interrupted run left with a replica more is finished too."""
    chosen, refusals, problems, ignored = dict[str, PodWorkload](), list[str](), dict[str, str](), dict[str, str]()
    named = set(consents.surge) if isinstance(consents.surge, tuple) else set()
    seen: dict[str, str] = {}
    for pod in doomed:
        workload = workloads.of(pod)
        if workload is None or not is_alive(pod):
            continue
        seen[workload.key] = seen.get(workload.key, "") or workload.kind
        claim = doubt(workload.found, workloads.live.of(SURGES)) if workload.kind == "Deployment" and workload.found is not None else ""
        started, asked = claim == "" and workload.replicas == 2, _asked(workload, consents.surge)
        if claim:
            ignored[str(workload)] = claim
        if not started and not asked:
            continue
        why = why_not(pod, workload, workloads, started=started)
        if why is None:
            chosen[uid(pod)] = workload
        elif asked:
            problems[str(workload)] = why
        else:
            ignored[str(workload)] = f"its surge cannot be finished: {why}; its pods are evicted like others"
    refusals += [f"{name}: a second pod first is not possible: {why}" for name, why in problems.items()]
    refusals += [f"surge: {name} has no pod on these nodes" for name in sorted(named - set(seen))]
    if problems and consents.surge is True:
        able = sorted({one.key for one in chosen.values()})
        refusals.append(f"name the others: --data surge={','.join(able)}" if able else "leave --data surge out")
    return Surges(chosen, tuple(refusals), tuple(_ignored_text(ignored)))


def _ignored_text(ignored: Mapping[str, str]) -> list[str]:
    lines = [f"{name}: {why}" for name, why in list(ignored.items())[:_MOST_NOTES]]
    return lines + ([f"and {len(ignored) - _MOST_NOTES} more marks of surges do not count"] if len(ignored) > _MOST_NOTES else [])


def mark_of(deployment: Object) -> str:
    """The mark of a surge, as the object claims it; "" without one."""
    return str(annotations_of(deployment).get(SURGED_BY) or "")


def recorded(deployment: Object, surges: Iterable[Object]) -> Object | None:
    """The recorded surge that has set this mark on this object."""
    own = uid(deployment), mark_of(deployment)
    return next((one for one in surges if (one["uid"], one["mark"]) == own), None)


def doubt(deployment: Object, surges: Iterable[Object]) -> str | None:
    """Why the mark of a surge on a Deployment does not count, "" if it does; None without a mark."""
    if not (claim := mark_of(deployment)):
        return None
    remove = f"kubectl annotate deployment -n {namespace_and_name(deployment)[0]} {namespace_and_name(deployment)[1]} {SURGED_BY}-"
    if recorded(deployment, surges) is None:
        what = one_line(f"its annotation {SURGED_BY}={claim[:60]}")
        return f"{what} is in no record of that run, on this machine or on the host of the lock, and does not count; remove it: {remove}"
    if others := other_writers(deployment, "f:spec", "f:replicas"):
        return one_line(f"{', '.join(others)} has set its replicas since run {claim} surged it: they stay; remove its mark: {remove}")
    return ""


def other_writers(item: Object, *fields: str) -> list[str]:
    """Who has set a field, beside daytwo; `fields` is its path in FieldsV1."""
    return [name for name in writers(item, *fields) if name != FIELD_MANAGER]


def surges_in(mark: str, events: Iterable[Mapping[str, Any]]) -> list[Object]:
    """The surges with this mark that the record of its run has begun and not ended: {"uid" of the Deployment, "mark", "node" of the pod}.
    `events` are those of deploys/drain.py (`plan`, `end`) or of a drain inside another run (`drain`)."""
    found: dict[str, Object] = {}
    for event in events:
        name = str(event.get("object"))
        if event.get("event") == "end" and event.get("outcome") == "done":
            found.pop(name, None)
        elif event.get("event") in ("plan", "drain") and event.get("what") == _STEP and _sets(event, mark):
            found[name] = {"uid": str(event.get("uid")), "mark": mark, "node": str(event.get("node"))}
    return list(found.values())


def _sets(event: Mapping[str, Any], mark: str) -> bool:
    fields = event.get("fields")
    return isinstance(fields, list) and any(
        isinstance(field, Mapping) and field.get("path") == ["metadata", "annotations", SURGED_BY] and field.get("after") == mark
        for field in fields
    )


def _asked(workload: PodWorkload, surge: bool | tuple[str, ...]) -> bool:
    if isinstance(surge, tuple):
        return workload.key in surge
    return surge and workload.kind == "Deployment" and workload.replicas == 1


def why_not(pod: Object, workload: PodWorkload, workloads: Workloads, *, started: bool) -> str | None:
    """Why a pod cannot have a second one beside it; None if it can. `started`: an interrupted run has begun this."""
    item = workload.found
    if workload.kind != "Deployment" or item is None:
        return f"it is a {workload.kind}, and only a Deployment can have one pod more for a moment"
    spec: Mapping[str, Any] = spec_of(item)
    if workload.replicas != (2 if started else 1):
        return f"it has {workload.replicas} replicas, not 1; its pods are evicted one after the other"
    if (spec.get("strategy") or {}).get("type") == "Recreate":
        return "its strategy is Recreate: its pods must not run beside each other"
    if (scaler := autoscaler(workloads.live, *workload.place)) is not None:
        return f"HorizontalPodAutoscaler {scaler.name} sets its replicas; raise its minReplicas for the time of the drain"
    storage = Storage(workloads.live.of)
    if claims := [volume.key.rpartition("/")[2] for volume in storage.volumes(pod) if not volume.allows_second]:
        return f"only one node can write to {', '.join(claims)}"
    state = workload_rollout.progress("Deployment", item)
    if not state.done and not started:
        return f"it is not healthy now ({state.failed or state.summary})"
    sets = [one for one in workloads.live.of("ReplicaSet") if controller(one) == workload.uid and int(spec_of(one).get("replicas") or 0)]
    if len(sets) > 1:
        return "it is rolling out"
    return None
