"""Workloads whose pods differ from their template in CPU or memory, as after an in-place resize. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from pydantic import Field

from roles.engine.kube import Object, full_name, namespace_and_name, owner_ref, uid
from roles.engine.kube.fields import annotations_of, labels_of, status_of
from roles.engine.kube.pods import is_alive
from roles.engine.kube.workloads import COLLECTIONS, ObservedObjects
from roles.engine.objects import workload_rollout
from roles.engine.runs import Document
from roles.pod_resize import pod_resources, templates
from roles.pod_resize.pod_resources import KINDS, RESOURCES, Resources

#: Kinds with a pod template; ReplicaSets and Jobs that have a controller only serve to find it.
_WORKLOADS = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job")
#: Collections that `find` needs.
NEEDED = {kind: COLLECTIONS[kind] for kind in ("Pod", *_WORKLOADS)}
_LIMIT_RANGER = "kubernetes.io/limit-ranger"
_REVISION = "controller-revision-hash"


# requests or limits -> resource -> amount, as Kubernetes writes it.
_Amounts = dict[str, dict[str, str]]


class DriftedPod(Document):
    pod: str = Field(description="NAMESPACE/NAME")
    resources: _Amounts = Field(description="`requests` and `limits`, by resource")


class DriftReport(Document):
    """One container of one workload."""

    kind: str
    namespace: str
    name: str
    container: str
    template: _Amounts = Field(description="`requests` and `limits`, by resource")
    pods: tuple[DriftedPod, ...]


class DriftsReport(Document):
    """The JSON document of deploys/resize_drift.py."""

    drift: tuple[DriftReport, ...]


@dataclass(frozen=True)
class Drift:
    """One container of one workload whose pods differ from the template. `pods` are (NAMESPACE/NAME, resources)."""

    kind: str
    namespace: str
    name: str
    container: str
    template: Resources
    pods: tuple[tuple[str, Resources], ...]

    @property
    def workload(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"

    def report(self) -> DriftReport:
        return DriftReport(
            kind=self.kind,
            namespace=self.namespace,
            name=self.name,
            container=self.container,
            template=_plain(self.template),
            pods=tuple(DriftedPod(pod=pod, resources=_plain(resources)) for pod, resources in self.pods),
        )

    def lines(self) -> list[list[str]]:
        """A row for each set of resources that pods have: workload, container, template, pods have, pods."""
        rows: dict[str, list[str]] = {}
        for pod, resources in self.pods:
            rows.setdefault(pod_resources.resources_text(resources), []).append(pod)
        return [
            [self.workload, self.container, pod_resources.resources_text(self.template), has, ", ".join(pods)] for has, pods in rows.items()
        ]


def _plain(resources: Resources) -> dict[str, dict[str, str]]:
    return {kind: dict(resources[kind]) for kind in KINDS if resources.get(kind)}


def find(objects: Mapping[str, Collection[Object]]) -> list[Drift]:
    """The drift of all workloads in `objects` (by kind: NEEDED). These do not count: pods of an older revision during a roll-out, values
    that a LimitRange filled in, and an unset request that defaults to the limit. Raises ValueError for an invalid quantity."""
    live = ObservedObjects(objects)
    found: list[Drift] = []
    for kind in _WORKLOADS:
        for item in sorted(objects.get(kind, ()), key=full_name):
            if live.meant(owner_ref(item)) is None:
                found += _of(kind, item, live)
    return found


def _of(kind: str, item: Object, live: ObservedObjects) -> Iterable[Drift]:
    wanted = templates.of(item)
    differ: dict[str, list[tuple[str, Resources]]] = {}
    for pod in sorted(live.pods_of(kind, uid(item)), key=full_name):
        if not is_alive(pod) or _older(kind, item, pod, wanted, live):
            continue
        for name, declared in wanted.items():
            spec = pod_resources.container(pod, name)
            if spec is not None and not pod_resources.alike(
                _without_ranger(pod_resources.of(spec), declared, pod), templates.defaulted(declared)
            ):
                differ.setdefault(name, []).append((full_name(pod), pod_resources.of(spec)))
    return [Drift(kind, *namespace_and_name(item), name, wanted[name], tuple(found)) for name, found in differ.items()]


def _older(kind: str, item: Object, pod: Object, wanted: Mapping[str, Resources], live: ObservedObjects) -> bool:
    """The pod was created from an older template: its roll-out is in progress, or stuck."""
    if kind == "Deployment":
        replica_set = live.meant(owner_ref(pod))
        return replica_set is not None and any(
            not pod_resources.alike(templates.of(replica_set).get(name) or {}, declared) for name, declared in wanted.items()
        )
    if kind == "StatefulSet":
        newest = status_of(item).get("updateRevision")
        revision = labels_of(pod).get(_REVISION)
        return bool(newest and revision and newest != revision)
    if kind == "DaemonSet":
        return not workload_rollout.progress(kind, item).done
    return False


def _without_ranger(has: Resources, declared: Resources, pod: Object) -> Resources:
    """The resources without the values that a LimitRange filled in (plugin/pkg/admission/limitranger): these are not drift."""
    if _LIMIT_RANGER not in annotations_of(pod):
        return has
    defaults = templates.defaulted(declared)
    return {
        kind: {name: value for name, value in (has.get(kind) or {}).items() if name in (defaults.get(kind) or {})}
        for kind in KINDS
        if any(name in (defaults.get(kind) or {}) for name in RESOURCES)
    }
