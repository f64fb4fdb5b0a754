"""The objects of a metrics-server, as its own release has them (manifests/base of v0.9.0), without --kubelet-insecure-tls. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from roles.engine.kube import Object
from roles.metrics_server.model import MetricsServer

NAMESPACE = "kube-system"
NAME = "metrics-server"
API_SERVICE = "v1beta1.metrics.k8s.io"
RESOLUTION_SECONDS = 15
_LABELS = {"k8s-app": NAME}
#: README.md, Scaling: enough for 100 nodes; each further node needs 1m and 2Mi.
_NODES, _CPU_MILLI, _MEMORY_MI = 100, 100, 200

_CORE, _APPS, _RBAC = "/api/v1", "/apis/apps/v1", "/apis/rbac.authorization.k8s.io/v1"
#: The collection of each kind, in the order in which they are created; the APIService is last, since from then on clients use it.
COLLECTIONS = {
    "ServiceAccount": f"{_CORE}/namespaces/{NAMESPACE}/serviceaccounts",
    "ClusterRole": f"{_RBAC}/clusterroles",
    "ClusterRoleBinding": f"{_RBAC}/clusterrolebindings",
    "RoleBinding": f"{_RBAC}/namespaces/{NAMESPACE}/rolebindings",
    "Service": f"{_CORE}/namespaces/{NAMESPACE}/services",
    "PodDisruptionBudget": f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets",
    "Deployment": f"{_APPS}/namespaces/{NAMESPACE}/deployments",
    "APIService": "/apis/apiregistration.k8s.io/v1/apiservices",
}
API_SERVICE_PATH = f"{COLLECTIONS['APIService']}/{API_SERVICE}"
DEPLOYMENT_PATH = f"{COLLECTIONS['Deployment']}/{NAME}"


@dataclass(frozen=True)
class WantedServer:
    """One object. `name` as in the table: KIND NAME."""

    kind: str
    manifest: Mapping[str, Any]

    @property
    def name(self) -> str:
        return f"{self.kind} {self.manifest['metadata']['name']}"

    @property
    def path(self) -> str:
        return path_of(self.kind, str(self.manifest["metadata"]["name"]))


def path_of(kind: str, name: str) -> str:
    return f"{COLLECTIONS[kind]}/{quote(name, safe=':.-')}"


def objects(desired: MetricsServer, replicas: int, nodes: int) -> list[WantedServer]:
    """All objects, in the order in which they are written."""
    made = [_service_account(), *_roles(), *_bindings(), _service()]
    if replicas > 1:
        made.append(_budget())
    return [WantedServer(str(one["kind"]), one) for one in (*made, _deployment(desired, replicas, nodes), _api_service())]


def own_pod(desired: MetricsServer, nodes: int) -> dict[str, Any]:
    """A pod of the Deployment, as the scheduler sees it, without its neighbours."""
    template = _deployment(desired, 1, nodes)["spec"]["template"]
    return {"metadata": {**template["metadata"], "name": NAME, "namespace": NAMESPACE}, "spec": template["spec"]}


def is_own_pod(pod: Object) -> bool:
    metadata = pod["metadata"]
    return metadata.get("namespace") == NAMESPACE and _LABELS.items() <= (metadata.get("labels") or {}).items()


def requests(nodes: int) -> dict[str, str]:
    more = max(0, nodes - _NODES)
    return {"cpu": f"{_CPU_MILLI + more}m", "memory": f"{_MEMORY_MI + 2 * more}Mi"}


def _made(version: str, kind: str, name: str, labels: Mapping[str, str] | None = None, **more: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "labels": {**_LABELS, **(labels or {})}}
    if f"/namespaces/{NAMESPACE}/" in COLLECTIONS[kind]:
        metadata["namespace"] = NAMESPACE
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **more}


def _service_account() -> dict[str, Any]:
    return _made("v1", "ServiceAccount", NAME)


def _roles() -> list[dict[str, Any]]:
    version = "rbac.authorization.k8s.io/v1"
    to = {f"rbac.authorization.k8s.io/aggregate-to-{role}": "true" for role in ("view", "edit", "admin")}
    reader = [{"apiGroups": ["metrics.k8s.io"], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"]}]
    own = [
        {"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"]},
    ]
    return [
        _made(version, "ClusterRole", "system:aggregated-metrics-reader", to, rules=reader),
        _made(version, "ClusterRole", f"system:{NAME}", rules=own),
    ]


def _bindings() -> list[dict[str, Any]]:
    version, group = "rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io"
    subjects = [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}]

    def bind(kind: str, name: str, role_kind: str, role: str) -> dict[str, Any]:
        return _made(version, kind, name, roleRef={"apiGroup": group, "kind": role_kind, "name": role}, subjects=subjects)

    return [
        bind("ClusterRoleBinding", f"{NAME}:system:auth-delegator", "ClusterRole", "system:auth-delegator"),
        bind("ClusterRoleBinding", f"system:{NAME}", "ClusterRole", f"system:{NAME}"),
        bind("RoleBinding", f"{NAME}-auth-reader", "Role", "extension-apiserver-authentication-reader"),
    ]


def _service() -> dict[str, Any]:
    ports = [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": "https", "appProtocol": "https"}]
    return _made("v1", "Service", NAME, spec={"ports": ports, "selector": dict(_LABELS)})


def _budget() -> dict[str, Any]:
    return _made("policy/v1", "PodDisruptionBudget", NAME, spec={"minAvailable": 1, "selector": {"matchLabels": dict(_LABELS)}})


def _deployment(desired: MetricsServer, replicas: int, nodes: int) -> dict[str, Any]:
    apart = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": dict(_LABELS)}, "namespaces": [NAMESPACE], "topologyKey": "kubernetes.io/hostname"}
            ]
        }
    }
    pod: dict[str, Any] = {
        "serviceAccountName": NAME,
        "priorityClassName": "system-cluster-critical",
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "containers": [_container(desired.image, nodes)],
        "volumes": [{"name": "tmp-dir", "emptyDir": {}}],
    }
    if replicas > 1:
        pod["affinity"] = apart
    if desired.pull_secret:
        pod["imagePullSecrets"] = [{"name": desired.pull_secret}]
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": dict(_LABELS)},
        # With one pod on each of two nodes, a new one only fits once an old one is gone.
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1 if replicas > 1 else 0}},
        "template": {"metadata": {"labels": dict(_LABELS)}, "spec": pod},
    }
    return _made("apps/v1", "Deployment", NAME, spec=spec)


def _container(image: str, nodes: int) -> dict[str, Any]:
    def probe(path: str, **more: int) -> dict[str, Any]:
        return {"httpGet": {"path": path, "port": "https", "scheme": "HTTPS"}, "periodSeconds": 10, "failureThreshold": 3, **more}

    return {
        "name": NAME,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": [
            "--cert-dir=/tmp",
            "--secure-port=10250",
            "--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
            "--kubelet-use-node-status-port",
            f"--metric-resolution={RESOLUTION_SECONDS}s",
        ],
        "ports": [{"name": "https", "containerPort": 10250, "protocol": "TCP"}],
        "readinessProbe": probe("/readyz", initialDelaySeconds=20),
        "livenessProbe": probe("/livez"),
        "resources": {"requests": requests(nodes)},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [{"name": "tmp-dir", "mountPath": "/tmp"}],
    }


def _api_service() -> dict[str, Any]:
    return _made(
        "apiregistration.k8s.io/v1",
        "APIService",
        API_SERVICE,
        spec={
            "service": {"name": NAME, "namespace": NAMESPACE},
            "group": "metrics.k8s.io",
            "version": "v1beta1",
            # It creates its own certificate at each start, as its release does.
            "insecureSkipTLSVerify": True,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
        },
    )


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


def body(found: Object) -> dict[str, Any]:
    """An object of a list or of an answer, with only what a manifest may name."""
    return {key: value for key, value in found.items() if key != "status"}
