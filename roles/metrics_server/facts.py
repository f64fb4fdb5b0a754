"""What a metrics-server depends on, read from the API servers, the kubelets and the objects of the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from roles.engine.api import ApiError, ApiFailure, NoApi
from roles.engine.bridge import at_once
from roles.engine.disruption import BUDGETS_PATH
from roles.engine.editing import last_flag
from roles.engine.kube import Object, field_managers, is_ready
from roles.engine.kube.fields import labels_of, meta_of, name_of, namespace_of, pod_template, spec_of
from roles.engine.kube.selectors import label_selector
from roles.engine.kube.workloads import COLLECTIONS, namespaced, object_path
from roles.engine.node.named_files import read_files
from roles.engine.node.virtual import virtual_mark
from roles.engine.objects import Session
from roles.engine.proof import Cluster, Survey, SurveyedNode
from roles.engine.proof.presented import presented
from roles.engine.remote import RemoteError
from roles.engine.tunnels.served import served
from roles.metrics_server.health import Installed
from roles.metrics_server.manifests import API_SERVICE_PATH, KINDS, NAMESPACE
from roles.metrics_server.preflight import ApiServer, ClusterNeeds, KubeletFacts

_FLAGS = (
    "requestheader-client-ca-file", "requestheader-allowed-names", "requestheader-username-headers", "requestheader-group-headers",
    "requestheader-extra-headers-prefix", "proxy-client-cert-file", "proxy-client-key-file", "enable-aggregator-routing",
)  # fmt: skip
_SERVICE = "/api/v1/namespaces/default/services/kubernetes"
_PUBLISHED = f"/api/v1/namespaces/{NAMESPACE}/configmaps/extension-apiserver-authentication"
_POLICIES = f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/networkpolicies"
_SERVICE_SECONDS = 5.0


def read_needs(found: Survey, session: Session) -> ClusterNeeds:
    """Raises ApiFailure."""
    nodes = session.fetch_all("/api/v1/nodes")
    service = session.fetch(_SERVICE) or {}
    address = str(spec_of(service).get("clusterIP") or "")
    ports = spec_of(service).get("ports") or [{}]
    where = (address, int(ports[0].get("port") or 443))
    servers = [node for node in found.observed.values() if "kube-apiserver" in node.components]
    ready = [node for node in nodes if is_ready(node) and virtual_mark(node) is None]
    works = [partial(_kubelet, found.reading, node) for node in ready]
    kubelets = [one for one in at_once(works) if isinstance(one, KubeletFacts)]
    return ClusterNeeds(
        [_server(found.reading, node, where) for node in servers],
        nodes,
        kubelets,
        session.fetch(_PUBLISHED),
        session.fetch_all(_POLICIES),
        session.fetch_all("/api/v1/pods"),
    )


def _server(cluster: Cluster, node: SurveyedNode, service: tuple[str, int]) -> ApiServer:
    process = node.components["kube-apiserver"].process
    flags = {name: last_flag(process.argv, name) for name in _FLAGS}
    own, authority = flags["proxy-client-cert-file"] or "", flags["requestheader-client-ca-file"] or ""
    try:
        files = read_files(node.remote, [path for path in (own, authority) if path.startswith("/") and path.isprintable()])
    except RemoteError as error:
        raise NoApi(str(error)) from error
    proxy = next(iter(files.get(own, ())), None)
    reaches = _reaches(cluster, node, service)
    return ApiServer(node.remote.name, flags, process.minor, reaches, proxy, tuple(files.get(authority, ())))


def _reaches(cluster: Cluster, node: SurveyedNode, service: tuple[str, int]) -> bool:
    """A TCP connection from the node of an API server to the Service kubernetes; its answer does not matter."""
    for remote, authority, _ in cluster.doors():
        if remote.name == node.remote.name and remote.transport is not None and service[0]:
            try:
                return not served(remote.transport, remote.name, service, authority, "Service kubernetes", _SERVICE_SECONDS).absent
            except (ApiError, RemoteError):
                return False
    return False


def _kubelet(cluster: Cluster, node: Mapping[str, Any]) -> KubeletFacts:
    name = name_of(node)
    configuration, shown, problem = None, None, ""
    try:
        shown = presented(cluster, node)
    except (ApiFailure, RemoteError) as error:
        problem = str(error)
    try:
        configuration = cluster.configuration(name)
    except ApiFailure as error:
        problem = problem or str(error)
    return KubeletFacts(name, configuration, shown, problem)


def read_installed(session: Session) -> Installed | None:
    """What serves the metrics API now, if it is not daytwo's. Raises ApiFailure."""
    service = session.fetch(API_SERVICE_PATH)
    if service is None or KINDS["APIService"].marked(service):
        return None
    reference = spec_of(service).get("service") or {}
    namespace, name = str(reference.get("namespace") or ""), str(reference.get("name") or "")
    writers = field_managers.writers(service, "f:spec")
    owner = ", ".join(dict.fromkeys(writers)) or "an unknown manager"
    if not namespace or not name:
        return Installed(owner, "the API server itself", None)
    return Installed(owner, f"{namespace}/{name}", _deployment(session, namespace, name))


def _deployment(session: Session, namespace: str, name: str) -> Object | None:
    """The Deployment whose pods the Service selects."""
    found = session.fetch(object_path("/api/v1/services", namespace, name))
    selector = spec_of(found or {}).get("selector")
    if not selector:
        return None
    for one in session.fetch_all(namespaced(COLLECTIONS["Deployment"], namespace)):
        labels = labels_of(pod_template(one))
        if label_selector({"matchLabels": selector}).matches(labels):
            return one
    return None


def pod_of(deployment: Object) -> Object:
    """A pod of a Deployment, as the scheduler sees it."""
    template = pod_template(deployment)
    metadata = {**meta_of(template), "name": name_of(deployment), "namespace": namespace_of(deployment)}
    return {"metadata": metadata, "spec": spec_of(template)}


def has_budget(session: Session, deployment: Object) -> bool:
    """Whether a budget covers the pods of a Deployment. Raises ApiFailure."""
    labels = labels_of(pod_template(deployment))
    budgets = session.fetch_all(namespaced(BUDGETS_PATH, namespace_of(deployment)))
    return any(label_selector(spec_of(one).get("selector")).matches(labels) for one in budgets)
