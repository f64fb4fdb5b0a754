"""The objects of a metrics-server (templates/metrics_server.yaml.j2), and what differs between one and its manifest. Pure."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from ruamel.yaml import YAML

from roles.engine.kube import Object, fields
from roles.engine.kube.fields import labels_of, meta_of, name_of, pod_template, with_meta
from roles.engine.objects import Kind, ObjectPath
from roles.engine.scripts import filled
from roles.engine.transaction import ChangedField, ChangedObject
from roles.metrics_server.model import MetricsServer

NAMESPACE = "kube-system"
NAME = "metrics-server"
API_SERVICE = "v1beta1.metrics.k8s.io"
RESOLUTION_SECONDS = 15
_LABELS = {"k8s-app": NAME}
#: README.md, Scaling: enough for 100 nodes; each further node needs 1m and 2Mi.
_NODES, _CPU_MILLI, _MEMORY_MI = 100, 100, 200

#: The record has one field for an object: what daytwo sets of it.
FIELD = ("manifest",)
_RBAC = "rbac.authorization.k8s.io/v1"
_COLLECTIONS = {
    "ServiceAccount": ("v1", "/api/v1/serviceaccounts"),
    "ClusterRole": (_RBAC, f"/apis/{_RBAC}/clusterroles"),
    "ClusterRoleBinding": (_RBAC, f"/apis/{_RBAC}/clusterrolebindings"),
    "RoleBinding": (_RBAC, f"/apis/{_RBAC}/rolebindings"),
    "Service": ("v1", "/api/v1/services"),
    "PodDisruptionBudget": ("policy/v1", "/apis/policy/v1/poddisruptionbudgets"),
    "Deployment": ("apps/v1", "/apis/apps/v1/deployments"),
    "APIService": ("apiregistration.k8s.io/v1", "/apis/apiregistration.k8s.io/v1/apiservices"),
}


class _ServerKind(Kind):
    """It is recorded as one field: what daytwo sets of it, as a manifest without its name and kind. What others set does not count."""

    def has(self, found: Object, path: ObjectPath, value: Any) -> bool:
        return not differing(value or {}, found)

    def unlike(self, found: Object, path: ObjectPath, value: Any) -> str:
        return ", ".join(differing(value or {}, found))

    def said(self, found: Object, one: ChangedField) -> str:
        return self.unlike(found, one.path, one.after)

    def is_ours(self, found: Object) -> bool:
        return self.marked(found)

    def manifest(self, namespace: str, name: str, fields: Mapping[ObjectPath, Any]) -> dict[str, Any]:
        settings = fields.get(FIELD) or {}
        metadata = {"name": name, **meta_of(settings), **({"namespace": namespace} if namespace else {})}
        return {**settings, "apiVersion": self.version, "kind": self.name, "metadata": metadata}

    def after_apply(self, manifest: Mapping[str, Any], found: Object | None) -> dict[ObjectPath, Any]:
        return {FIELD: identified(manifest)}

    def restoring(self, found: Object, changed: Iterable[ChangedField]) -> tuple[dict[str, Any], tuple[ObjectPath, ...]]:
        return super().restoring(found, changed)[0], ()


_OF_CLUSTER = ("ClusterRole", "ClusterRoleBinding", "APIService")
#: In the order in which they are created; the APIService is last, since from then on clients use it.
KINDS = {
    name: _ServerKind(
        name, version, path, (FIELD,), owned=(), mark=(), maps=(), recorded=("kind", "object_name", "version"),
        of_cluster=name in _OF_CLUSTER, namespace="" if name in _OF_CLUSTER else NAMESPACE,
        refuse=lambda one: not_shipped(one),  # noqa: PLW0108  # it is defined below
    )
    for name, (version, path) in _COLLECTIONS.items()
}  # fmt: skip
API_SERVICE_PATH = KINDS["APIService"].path_of("", API_SERVICE)
DEPLOYMENT_PATH = KINDS["Deployment"].path_of(NAMESPACE, NAME)


@dataclass(frozen=True)
class WantedServer:
    """One object. `name` as in the table: KIND NAME."""

    kind: str
    manifest: Mapping[str, Any]

    @property
    def name(self) -> str:
        return f"{self.kind} {self.own_name}"

    @property
    def own_name(self) -> str:
        return name_of(self.manifest)

    @property
    def path(self) -> str:
        return KINDS[self.kind].path_of(KINDS[self.kind].namespace, self.own_name)


def objects(desired: MetricsServer, replicas: int, nodes: int) -> list[WantedServer]:
    """All objects, in the order in which they are written."""
    return [WantedServer(str(one["kind"]), one) for one in copy.deepcopy(_made(desired, replicas, nodes))]


@cache
def _made(desired: MetricsServer, replicas: int, nodes: int) -> list[dict[str, Any]]:
    said = {"image": desired.image, "pull_secret": desired.pull_secret, "replicas": replicas, "resolution": RESOLUTION_SECONDS}
    text = filled("metrics_server.yaml.j2", requests=requests(nodes), **said)
    made = YAML(typ="safe", pure=True).load_all(text)
    return [with_meta(one, labels={**_LABELS, **labels_of(one)}) for one in made]


def own_pod(desired: MetricsServer, nodes: int) -> dict[str, Any]:
    """A pod of the Deployment, as the scheduler sees it, without its neighbours."""
    template = next(pod_template(one.manifest) for one in objects(desired, 1, nodes) if one.kind == "Deployment")
    return with_meta(template, name=NAME, namespace=NAMESPACE)


def is_own_pod(pod: Object) -> bool:
    return fields.namespace_of(pod) == NAMESPACE and _LABELS.items() <= labels_of(pod).items()


def requests(nodes: int) -> dict[str, str]:
    more = max(0, nodes - _NODES)
    return {"cpu": f"{_CPU_MILLI + more}m", "memory": f"{_MEMORY_MI + 2 * more}Mi"}


# ---- comparing


def kept(manifest: Any, live: Any) -> Any:
    """The parts of a live object that a manifest names: what an apply of the manifest may change."""
    if isinstance(manifest, Mapping) and isinstance(live, Mapping):
        return {key: kept(value, live[key]) for key, value in manifest.items() if key in live}
    if isinstance(manifest, list) and isinstance(live, list) and len(manifest) == len(live):
        return [kept(one, other) for one, other in zip(manifest, live, strict=True)]
    return live


def differing(manifest: Any, live: Any, path: str = "") -> list[str]:
    """The fields of a manifest that a live object does not have so, by dotted path."""
    if isinstance(manifest, Mapping) and isinstance(live, Mapping):
        return [one for key, value in manifest.items() for one in differing(value, live.get(key), f"{path}.{key}" if path else str(key))]
    if isinstance(manifest, list) and isinstance(live, list) and len(manifest) == len(live):
        pairs = zip(manifest, live, strict=True)
        return [one for number, pair in enumerate(pairs) for one in differing(*pair, f"{path}[{number}]")]
    # The API server leaves out what is empty.
    return [] if manifest == live or (not manifest and not live and not isinstance(manifest, bool)) else [path]


def identified(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest without what is no setting."""
    found = {key: value for key, value in manifest.items() if key not in ("apiVersion", "kind")}
    found["metadata"] = {key: value for key, value in meta_of(manifest).items() if key in ("labels", "annotations")}
    return found


# ---- what a record may bring back

#: What differs between the installations of daytwo: everything else is as it ships it.
_FREE = frozenset(("image", "replicas", "requests", "imagePullSecrets", "affinity", "maxUnavailable"))


@cache
def _shipped() -> dict[str, Mapping[str, Any]]:
    return {one.path: one.manifest for one in objects(MetricsServer(image="registry.example.com/metrics-server:v0"), 2, 1)}


def not_shipped(one: ChangedObject) -> str:
    """What a recorded object had that daytwo does not ship: another role, subject, rule, command or privilege; "" if nothing."""
    path, shipped = one.path, _shipped()
    if path not in shipped or one.about.get("object_name") != name_of(shipped[path]):
        return f"{path}, which daytwo does not ship"
    for field in one.fields:
        if found := _beyond(field.before or {}, identified(shipped[path])):
            return f"{', '.join(found)}, other than daytwo ships"
    version = shipped[path]["apiVersion"]
    return "" if one.about.get("version") in ("", version) else f"{one.about.get('version')!r}, which is not {version}"


def _beyond(found: Any, shipped: Any, path: str = "") -> list[str]:
    if isinstance(found, Mapping) and isinstance(shipped, Mapping):
        names = {key: f"{path}.{key}" if path else str(key) for key in found if key not in _FREE}
        unknown = [name for key, name in names.items() if key not in shipped]
        return [*unknown, *(one for key, name in names.items() if key in shipped for one in _beyond(found[key], shipped[key], name))]
    if isinstance(found, list) and isinstance(shipped, list) and len(found) == len(shipped):
        pairs = enumerate(zip(found, shipped, strict=True))
        return [one for number, pair in pairs for one in _beyond(*pair, f"{path}[{number}]")]
    return [] if found == shipped else [path]
