"""Workloads whose pods have other CPU and memory than their template says: a resize in place leaves them so. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from roles.engine.object_changes import COLLECTIONS, Live, Object, workload_rollout
from roles.pod_resize import pod_resources, templates
from roles.pod_resize.pod_resources import KINDS, RESOURCES, Resources

#: Kinds with a template whose pods they make, by where they are listed; ReplicaSets and Jobs of others are asked for their owner alone.
KINDS_LOOKED_AT = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job")
#: Collections that `find` needs.
NEEDED = {kind: COLLECTIONS[kind] for kind in ("Pod", *KINDS_LOOKED_AT)}
_LIMIT_RANGER = "kubernetes.io/limit-ranger"
_REVISION = "controller-revision-hash"


@dataclass(frozen=True)
class Drift:
    """One container of one workload whose pods differ from the template. `pods` by what they have, as NAMESPACE/NAME."""

    kind: str
    namespace: str
    name: str
    container: str
    template: Resources
    pods: tuple[tuple[str, Resources], ...]

    @property
    def workload(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "container": self.container,
            "template": _plain(self.template),
            "pods": [{"pod": pod, "resources": _plain(resources)} for pod, resources in self.pods],
        }

    def lines(self) -> list[list[str]]:
        """A row for each set of resources that pods have: workload, container, template, pods have, how many."""
        rows: dict[str, list[str]] = {}
        for pod, resources in self.pods:
            rows.setdefault(pod_resources.told(resources), []).append(pod)
        return [[self.workload, self.container, pod_resources.told(self.template), has, ", ".join(pods)] for has, pods in rows.items()]


def _plain(resources: Resources) -> dict[str, dict[str, str]]:
    return {kind: dict(resources[kind]) for kind in KINDS if resources.get(kind)}


def find(objects: Mapping[str, Collection[Object]]) -> list[Drift]:
    """Drift of all workloads among `objects` (by kind: NEEDED). Pods of an older revision are being rolled out, and are none; nor is what
    a LimitRange filled in, or a request that is the limit because it was left out. Raises ValueError for a quantity that is none."""
    live = Live(objects)
    controllers = {str(item["metadata"].get("uid")): item for kind in KINDS_LOOKED_AT for item in objects.get(kind, ())}
    found: list[Drift] = []
    for kind in KINDS_LOOKED_AT:
        for item in sorted(objects.get(kind, ()), key=pod_resources.where):
            if _owned(item, controllers):
                continue
            found += _of(kind, item, live.pods_of(kind, str(item["metadata"].get("uid"))), controllers)
    return found


def _owned(item: Object, controllers: Mapping[str, Object]) -> bool:
    return any(owner.get("controller") and owner.get("uid") in controllers for owner in item["metadata"].get("ownerReferences") or ())


def _of(kind: str, item: Object, pods: Iterable[Object], controllers: Mapping[str, Object]) -> Iterable[Drift]:
    wanted = templates.of(item)
    differ: dict[str, list[tuple[str, Resources]]] = {}
    for pod in sorted(pods, key=pod_resources.where):
        if pod_resources.is_over(pod) or pod["metadata"].get("deletionTimestamp") or _older(kind, item, pod, wanted, controllers):
            continue
        for name, said in wanted.items():
            spec = pod_resources.container(pod, name)
            if spec is not None and not pod_resources.alike(_without_ranger(pod_resources.of(spec), said, pod), templates.defaulted(said)):
                differ.setdefault(name, []).append((pod_resources.where(pod), pod_resources.of(spec)))
    meta = item["metadata"]
    return [
        Drift(kind, str(meta.get("namespace", "")), str(meta["name"]), name, wanted[name], tuple(found)) for name, found in differ.items()
    ]


def _older(kind: str, item: Object, pod: Object, wanted: Mapping[str, Resources], controllers: Mapping[str, Object]) -> bool:
    """The pod was made from another template than today's: its roll-out is under way, or stands still."""
    if kind == "Deployment":
        owners = pod["metadata"].get("ownerReferences") or ()
        made_by = next((controllers.get(str(owner.get("uid"))) for owner in owners if owner.get("controller")), None)
        return made_by is not None and any(
            not pod_resources.alike(templates.of(made_by).get(name) or {}, said) for name, said in wanted.items()
        )
    if kind == "StatefulSet":
        newest = (item.get("status") or {}).get("updateRevision")
        revision = (pod["metadata"].get("labels") or {}).get(_REVISION)
        return bool(newest and revision and newest != revision)
    if kind == "DaemonSet":
        return not workload_rollout.progress(kind, item).done
    return False


def _without_ranger(has: Resources, said: Resources, pod: Object) -> Resources:
    """What a LimitRange gave a container that says nothing itself is no drift (plugin/pkg/admission/limitranger)."""
    if _LIMIT_RANGER not in (pod["metadata"].get("annotations") or {}):
        return has
    defaults = templates.defaulted(said)
    return {
        kind: {name: value for name, value in (has.get(kind) or {}).items() if name in (defaults.get(kind) or {})}
        for kind in KINDS
        if any(name in (defaults.get(kind) or {}) for name in RESOURCES)
    }
