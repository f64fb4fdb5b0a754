"""The pod that takes the place of one that leaves, as its workload's template makes it. Pure.

A ReplicaSet, ReplicationController, StatefulSet or Job creates it from the template in its own spec; a Deployment does so by its
ReplicaSet. What admission added to the live pod is added again: its priority, its overhead, further containers, values of a LimitRange.
What somebody changed on the live pod is not: its labels, its resources.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from roles.engine.autoscaling.created import as_created
from roles.engine.harmless import one_line
from roles.engine.kube import Object
from roles.engine.kube.fields import labels_of, meta_of, name_of, pod_template, spec_of, status_of
from roles.engine.outage.workloads import Workloads

#: Labels that the controllers themselves set on a pod. (Its topology labels are of its node.)
_OF_CONTROLLERS = (
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-completion-index",
    "batch.kubernetes.io/job-name",
    "controller-revision-hash",
    "controller-uid",
    "job-name",
    "statefulset.kubernetes.io/pod-name",
)
_OF_ADMISSION = ("overhead", "preemptionPolicy", "priority")
_CONTAINERS = ("containers", "initContainers")


def replacement(pod: Object, workloads: Workloads) -> tuple[dict[str, Any], list[str]]:
    """The pod, as it is recreated, with the name of the one that leaves; and what is not sure about it."""
    spec = {key: value for key, value in spec_of(pod).items() if key != "nodeName"}
    ref, item = workloads.owner(pod)
    template = pod_template(item or {})
    made = spec_of(template)
    if ref is None or item is None or not made:
        unread = [f"daytwo does not read the template of {ref.kind}: it is placed as it runs now"] if ref and not item else []
        return {"metadata": meta_of(pod), "spec": spec}, unread
    notes = []
    base = spec
    if _is_of_another(pod, item, ref.kind):
        notes.append(f"{ref.kind} {ref.name} is rolling out: its place is judged by the newest template")
        base = _newest(spec, made, item)
    if gates := [one_line(str(one.get("name"))) for one in made.get("schedulingGates") or ()]:
        notes.append(f"its replacement waits until something removes its scheduling gate ({', '.join(gates)})")
    return {"metadata": _metadata(pod, template), "spec": _merged(base, as_created(made, ()))}, notes


def _is_of_another(pod: Object, item: Object, kind: str) -> bool:
    """A pod of a StatefulSet that was made from an older template."""
    newest = status_of(item).get("updateRevision")
    own = labels_of(pod).get("controller-revision-hash")
    return kind == "StatefulSet" and bool(newest and own) and newest != own


def _newest(live: Mapping[str, Any], made: Mapping[str, Any], item: Object) -> dict[str, Any]:
    """The newest template, with what admission and the StatefulSet add."""
    claims = {name_of(one) for one in spec_of(item).get("volumeClaimTemplates") or ()}
    volumes = [*(made.get("volumes") or ()), *(one for one in live.get("volumes") or () if one.get("name") in claims)]
    return {**made, **{key: live[key] for key in _OF_ADMISSION if key in live}, "volumes": volumes}


def _metadata(pod: Object, template: Mapping[str, Any]) -> dict[str, Any]:
    live = labels_of(pod)
    kept = {key: live[key] for key in _OF_CONTROLLERS if key in live}
    return {**meta_of(pod), "labels": {**kept, **labels_of(template)}}


def _merged(base: Mapping[str, Any], made: Mapping[str, Any]) -> dict[str, Any]:
    """The template's own values over those of the live pod."""
    found = {key: value for key, value in base.items() if key != "schedulingGates"}
    for key in ("affinity", "topologySpreadConstraints"):
        if made.get(key):
            found[key] = made[key]
    if made.get("nodeSelector"):
        found["nodeSelector"] = {**(base.get("nodeSelector") or {}), **made["nodeSelector"]}
    tolerated = list(base.get("tolerations") or ())
    found["tolerations"] = [*tolerated, *(one for one in made.get("tolerations") or () if one not in tolerated)]
    if made.get("resources"):
        limits, requests = (made["resources"].get(kind) or {} for kind in ("limits", "requests"))
        found["resources"] = _resources(base.get("resources"), {"limits": limits, "requests": {**limits, **requests}})
    for key in _CONTAINERS:
        found[key] = _containers(base.get(key) or (), made.get(key) or ())
    return found


def _containers(live: Sequence[Mapping[str, Any]], made: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """In the order of the live pod: the order of init containers counts."""
    wanted = {one.get("name"): one for one in made}
    found = [
        {**one, "resources": _resources(one.get("resources"), same.get("resources"))} if (same := wanted.get(one.get("name"))) else one
        for one in live
    ]
    there = {one.get("name") for one in live}
    return [*found, *(one for one in made if one.get("name") not in there)]


def _resources(live: Mapping[str, Any] | None, made: Mapping[str, Any] | None) -> dict[str, Any]:
    """Amounts that the template does not name were filled in when the pod was created."""
    return {kind: {**((live or {}).get(kind) or {}), **((made or {}).get(kind) or {})} for kind in ("requests", "limits")}
