"""Where the pods can run that take the places of those that leave, as the templates of their workloads make them. Pure.

A ReplicaSet, ReplicationController, StatefulSet or Job creates it from the template in its own spec; a Deployment does so by its
ReplicaSet. What admission added to the live pod is added again: its priority, its overhead, further containers, values of a LimitRange.
What somebody changed on the live pod is not: its labels, its resources.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from roles.engine.autoscaling.created import as_created
from roles.engine.disruption import DisruptionObjects
from roles.engine.harmless import one_line
from roles.engine.kube import Object
from roles.engine.kube.fields import labels_of, meta_of, name_of, pod_template, spec_of, status_of
from roles.engine.outage.model import DrainConsents, DrainPlan, PodFate
from roles.engine.outage.reading import SCHEDULERS
from roles.engine.outage.volumes import no_place
from roles.engine.outage.workloads import Workloads
from roles.engine.placement import ClusterView, Placement, differs, place_all, without_passing


def with_places(
    pods: Sequence[PodFate], workloads: Workloads, nodes: Collection[str], consents: DrainConsents
) -> tuple[tuple[PodFate, ...], dict[str, Placement], tuple[str, ...]]:
    """The pods with where their replacements can run, placed one after the other; that by UID; and what could not be judged."""
    moving = [one for one in pods if one.leaves and one.workload is not None]
    made = [replacement(one.pod, workloads) for one in moving]
    new, view = [pod for pod, _ in made], cluster_view(workloads.live)
    try:
        places = place_all(new, view, nodes)
        later = passing_taints(new, places, view, nodes)
    except ValueError as error:
        return tuple(pods), {}, (f"where the replacements can run was not judged: {error}",)
    by_uid = {one.uid: place for one, place in zip(moving, places, strict=True)}
    found = {
        one.uid: _placed(replace(one, notes=(*one.notes, *notes)), place, waits, consents)
        for one, place, waits, (_, notes) in zip(moving, places, later, made, strict=True)
    }
    return tuple(found.get(one.uid, one) for one in pods), by_uid, ()


def passing_taints(pods: Sequence[Object], places: Sequence[Placement], view: ClusterView, nodes: Collection[str]) -> list[str]:
    """For each pod that has no place: the taints without which it would have one, with the controllers that remove them; "". Raises
    ValueError."""
    bare, removed = without_passing(view.nodes)
    if not removed or all(place.outcome != "nowhere" for place in places):
        return [""] * len(places)
    text = ", ".join(f"taint {taint} (removed by {who})" for taint, who in removed.items())
    later = place_all(pods, replace(view, nodes=bare), nodes)
    return [text if now.outcome == "nowhere" and then.outcome != "nowhere" else "" for now, then in zip(places, later, strict=True)]


def replacements(plan: DrainPlan, live: DisruptionObjects) -> list[list[tuple[PodFate, Object | None]]]:
    """The pods that leave, wave by wave, each with the pod that is created for it: None if nothing creates one, or if it waits for a place
    anyway. The first wave has those that are replaced before they leave."""
    workloads = Workloads(live)

    def made(one: PodFate) -> Object | None:
        return None if one.workload is None or one.waits else replacement(one.pod, workloads)[0]

    return [[(one, made(one)) for one in wave] for wave in (plan.surges, *plan.waves) if wave]


def waits_for_place(one: PodFate, live: DisruptionObjects, nodes: Collection[str]) -> str:
    """Why a pod that waits for a place (PodFate.waits) has none now; "" if it has one, or if that is not judged."""
    pod = replacement(one.pod, Workloads(live))[0]
    try:
        place = place_all([pod], cluster_view(live), nodes)[0]
    except ValueError:
        return ""
    return str(place).partition(": ")[2] if place.outcome == "nowhere" else ""


def _placed(one: PodFate, place: Placement, waits: str, consents: DrainConsents) -> PodFate:
    if place.apart:
        return replace(one, place=f"on {', '.join(place.on)}, if {', '.join(place.apart)} goes to the same node")
    if place.outcome != "nowhere":
        return replace(one, place=f"on {', '.join(place.on)}" if place.fits and place.on else str(place).partition(": ")[2])
    why = str(place).partition(": ")[2]
    if place.returns:
        why = f"{why}; it would come back to {', '.join(place.returns)}, since it tolerates the cordon"
    can_wait = not place.returns and one.fate != "surged"
    if consents.allow_pending and can_wait:
        return replace(one, place=why, pending=True, notes=(*one.notes, "by consent: its replacement stays Pending"))
    if waits and can_wait:
        blocked = "; ".join(filter(None, (one.blocked_now, f"its replacement has no place: {waits}")))
        return replace(one, blocked_now=blocked, waits=waits, place=f"not yet: {why}")
    if waits:
        return replace(
            one, fate="blocks", why=f"its replacement has no place now: {why}", way_out=f"run this again later: {waits}", place=why
        )
    blocks, way_out = no_place(one, place, why, can_wait=can_wait)
    return replace(one, fate="blocks", why=blocks, way_out=way_out, place=why)


def cluster_view(live: DisruptionObjects) -> ClusterView:
    """A kind that was not read is not judged."""

    def read(kind: str) -> list[Object] | None:
        return list(live.of(kind)) if kind in live.objects else None

    return ClusterView(
        list(live.of("Node")), list(live.of("Pod")), read("PersistentVolumeClaim"), read("PersistentVolume"), read("CSINode"),
        read("VolumeAttachment"), read("Namespace"), _unlike_the_default(live), read("CSIDriver"),
    )  # fmt: skip


def _unlike_the_default(live: DisruptionObjects) -> str:
    """Why no pod can be placed: a scheduler whose own configuration decides otherwise than a default one."""
    for one in live.of(SCHEDULERS):
        configuration = one["configuration"]
        why = "its configuration could not be read" if configuration is None else differs(configuration)
        if why:
            return f"kube-scheduler of {one['host']} runs with --config: {why}"
    return ""


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
