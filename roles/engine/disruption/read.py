"""Reads what decides about evictions: each kind once, and the scale of owners that are no kinds of Kubernetes."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from roles.engine.api import Api, ApiError, Denied, Forbidden, NotFound, list_objects
from roles.engine.bounds import moment
from roles.engine.disruption.budgets import counts_scales
from roles.engine.disruption.owners import NO_SCALE, PDB, DisruptionObjects, Scale
from roles.engine.disruption.problem import HPA
from roles.engine.disruption.webhooks import WEBHOOKS, service_of
from roles.engine.kube import Object, OwnerRef, namespace_and_name, owner_ref, uid
from roles.engine.kube.fields import created_of, labels_of, spec_of, volumes_of
from roles.engine.kube.selectors import label_selector
from roles.engine.kube.workloads import COLLECTIONS, replicas
from roles.engine.timeouts import API_WAIT

BUDGETS_PATH = "/apis/policy/v1/poddisruptionbudgets"
#: The kinds that decide about evictions, with their collections.
KINDS_OF_DISRUPTION = {
    PDB: BUDGETS_PATH,
    **{kind: COLLECTIONS[kind] for kind in ("Pod", "Deployment", "ReplicaSet", "StatefulSet", "ReplicationController")},
}
#: What the rules of the lint read besides, by kind. A kind that cannot be read leaves its rules out.
KINDS_OF_LINT = {
    "Node": "/api/v1/nodes",
    HPA: "/apis/autoscaling/v2/horizontalpodautoscalers",
    "PersistentVolumeClaim": "/api/v1/persistentvolumeclaims",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "CSIDriver": "/apis/storage.k8s.io/v1/csidrivers",
    "ValidatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
    "MutatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "Service": "/api/v1/services",
}
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
# client-go/scale (ScaleConverter.ScaleVersions)
_SCALE_VERSIONS = {("autoscaling", "v1"), ("extensions", "v1beta1"), ("apps", "v1beta1"), ("apps", "v1beta2")}


def read_disruption(
    api: Api,
    namespaces: Collection[str] | None = None,
    more: Mapping[str, str] | None = None,
    known: Mapping[str, Collection[Object]] | None = None,
) -> DisruptionObjects:
    """The objects that decide about evictions, in all namespaces or in these. `more`: further collections by kind; `known`: kinds that the
    caller has read already. Raises ApiError; a scale that cannot be read is no error, and the answer says so (Scale.unread)."""
    paths = {**KINDS_OF_DISRUPTION, **(more or {})}
    objects: dict[str, Collection[Object]] = dict(known or {})
    for kind, path in paths.items():
        if kind not in objects:
            objects[kind] = list_objects(api, path, namespaces, wait=API_WAIT)
    live = DisruptionObjects(objects)
    return DisruptionObjects(objects, read_scales(api, owners_to_ask(live)))


def read_lint(api: Api, known: Mapping[str, Collection[Object]]) -> tuple[DisruptionObjects, list[str]]:
    """The objects for `lint`, and the kinds that could not be read, with the reason: their rules say nothing. `known`: kinds that the
    caller has read already; a kind that no rule would use is not read. Raises ApiError if a kind that decides about evictions cannot be
    read."""
    live = read_disruption(api, known=known)
    objects, problems = dict(live.objects), list[str]()

    def read(*kinds: str) -> None:
        for kind in (one for one in kinds if one not in objects):
            try:
                objects[kind] = list_objects(api, KINDS_OF_LINT[kind], wait=API_WAIT)
            except ApiError as error:
                problems.append(f"{kind}: {error}")

    read(*WEBHOOKS)
    if live.of(PDB):
        read("Node", HPA)
    elif any(replicas(kind, item) > 1 for kind in ("ReplicaSet", "StatefulSet", "ReplicationController") for item in live.of(kind)):
        read("Node")
    if any(one.get("persistentVolumeClaim") or one.get("ephemeral") for pod in live.of("Pod") for one in volumes_of(pod)):
        read("PersistentVolumeClaim", "PersistentVolume", "CSIDriver")
    if any(service_of(hook) for kind in WEBHOOKS for item in objects.get(kind, ()) for hook in item.get("webhooks") or ()):
        read("Service")
    return DisruptionObjects(objects, live.scales), problems


def cluster_time(api: Api) -> datetime:
    """The API server's clock, in whole seconds: it writes the times of status.disruptedPods and of deletions. An answer to "who am I" has
    it, and nothing is stored (pkg/registry/authentication/selfsubjectreview/rest.go). If that is forbidden: the newest renewal of a node's
    lease, or this machine's time. Raises ApiError."""
    with contextlib.suppress(Denied, Forbidden, NotFound):
        answer = api.create(_REVIEWS, {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})
        if (found := moment(created_of(answer))) is not None:
            return found
    times = (moment(spec_of(lease).get("renewTime")) for lease in list_objects(api, _LEASES))
    return max((one for one in times if one is not None), default=datetime.now(UTC))


def owners_to_ask(live: DisruptionObjects) -> list[OwnerRef]:
    """The owners whose scale only the API knows: of pods in budgets that count by scales, and of no kind of Kubernetes."""
    selectors: dict[str, list[Any]] = {}
    for budget in live.of(PDB):
        if counts_scales(budget):
            spec = spec_of(budget)
            selectors.setdefault(namespace_and_name(budget)[0], []).append(label_selector(spec.get("selector")))
    found: dict[OwnerRef, None] = {}
    for pod in live.of("Pod"):
        ref = owner_ref(pod)
        if ref is None or ref in found or not live.asks_for(ref):
            continue
        if any(one.matches(labels_of(pod)) for one in selectors.get(ref.namespace, ())):
            found[ref] = None
    return list(found)


def read_scales(api: Api, owners: Iterable[OwnerRef]) -> dict[OwnerRef, Scale]:
    """The scale of each owner, as kube-controller-manager finds it (getScaleController)."""
    resources: dict[str, list[Mapping[str, Any]]] = {}
    found: dict[OwnerRef, Scale] = {}
    for owner in owners:
        try:
            found[owner] = _scale(api, owner, resources)
        except ApiError as error:
            found[owner] = Scale(unread=str(error))
    return found


def _scale(api: Api, owner: OwnerRef, resources: dict[str, list[Mapping[str, Any]]]) -> Scale:
    group, _, version = owner.api_version.rpartition("/")
    root = f"/apis/{quote(group, safe='')}/{quote(version, safe='')}" if group else f"/api/{quote(version, safe='')}"
    if root not in resources:
        try:
            resources[root] = api.get_json(root, wait=API_WAIT).get("resources") or []
        except NotFound:
            resources[root] = []
    plural = next((str(one["name"]) for one in resources[root] if one.get("kind") == owner.kind and "/" not in str(one["name"])), None)
    if plural is None:
        return Scale(problem=f'no matches for kind "{owner.kind}" in version "{owner.api_version}"')
    path = f"{root}/namespaces/{quote(owner.namespace, safe='')}/{quote(plural, safe='')}/{quote(owner.name, safe='')}/scale"
    try:
        answer = api.get_json(path, wait=API_WAIT)
    except NotFound:
        # The object is gone, or its kind has no scale.
        has_scale = any(
            one.get("name") == f"{plural}/scale"
            and one.get("kind") == "Scale"
            and (one.get("group") or group, one.get("version") or version) in _SCALE_VERSIONS
            for one in resources[root]
        )
        return Scale() if has_scale else Scale(problem=f"{plural}{'.' if group else ''}{group} {NO_SCALE}")
    return Scale(uid(answer), int(spec_of(answer).get("replicas") or 0))
