"""Reads the cluster: the versions, gates and settings that a resize needs; the pods; and their cgroups."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from roles.engine.api import Api, ApiError, ApiFailure, find_object, list_objects
from roles.engine.api.nodes import kubelet_config, kubelet_metrics
from roles.engine.bridge import Fleet, Remote
from roles.engine.kube import Object, uid
from roles.engine.kube.fields import containers_of, name_of, spec_of, status_of
from roles.engine.kube.pods import node_of
from roles.engine.kube.selectors import query_of
from roles.engine.kube.workloads import COLLECTIONS, ObservedObjects, namespaced
from roles.engine.node import ObservationError
from roles.engine.proof import Survey
from roles.engine.remote import RemoteError
from roles.engine.transaction import Refusal
from roles.pod_resize import abilities, cgroup, pod_resources
from roles.pod_resize.abilities import Ability, NodeAbility
from roles.pod_resize.cgroup import ContainerCgroup
from roles.pod_resize.model import DesiredResources


@dataclass(frozen=True)
class Selected:
    """The pods that a run resizes. `workload`: None for a selector; `labels` select all of them, and few others, in one LIST."""

    namespace: str
    labels: str
    workload: Object | None
    pods: tuple[Object, ...]


def select(api: Api, desired: DesiredResources) -> Selected:
    """Raises Refusal if the workload does not exist, and ApiError."""
    namespace, name = desired.place
    if desired.kind is None:
        return Selected(namespace, name, None, tuple(list_objects(api, namespaced(COLLECTIONS["Pod"], namespace), labels=name)))
    workload = find_object(api, desired.path)
    if workload is None:
        there = [name_of(one) for one in list_objects(api, namespaced(COLLECTIONS[desired.kind], namespace))]
        raise Refusal(f"{desired.kind} {namespace}/{name}", f"it does not exist; that namespace has {', '.join(sorted(there)) or 'none'}")
    try:
        labels = query_of(spec_of(workload).get("selector"))
    except ValueError as error:
        raise Refusal(f"{desired.kind} {namespace}/{name}", f"its selector cannot be read: {error}") from error
    return Selected(namespace, labels, workload, tuple(_pods(api, desired.kind, namespace, labels, uid(workload))))


def _pods(api: Api, kind: str, namespace: str, labels: str, uid: str) -> list[Object]:
    """The pods that the workload controls: other pods may have the same labels."""
    needed = ("Pod", "ReplicaSet") if kind == "Deployment" else ("Pod",)
    there = {one: list_objects(api, namespaced(COLLECTIONS[one], namespace), labels=labels) for one in needed}
    return ObservedObjects(there).pods_of(kind, uid)


def read_ability(found: Survey, api: Api, wanted: Collection[str] | None = None) -> Ability:
    """The ability of the cluster, and of the `wanted` nodes (None: all). Raises ApiError if the version or the nodes cannot be read; other
    facts that cannot be read are noted as unknown."""
    version = str(api.get_json("/version").get("gitVersion") or "")
    unknown: list[str] = []
    components: dict[str, bool | None] = {}
    minor = abilities.minor_of(version)
    # If the gate is locked on, there is nothing to check.
    if abilities.OLDEST_MINOR <= minor < abilities.LOCKED_ON:
        for host, node in found.nodes.items():
            for name in (one for one in abilities.COMPONENTS if one in node.components):
                try:
                    gate = found.reading.effective(host, name, node.kubelet.node_name).get(abilities.GATE)
                    components[f"{host} {name}"] = None if gate is None else gate.enabled
                except ApiFailure as error:
                    components[f"{host} {name}"] = None
                    unknown.append(f"{host} {name}: {error}")
    nodes = {}
    for item in list_objects(api, "/api/v1/nodes"):
        name = name_of(item)
        if wanted is None or name in wanted:
            nodes[name] = _node(api, name, item)
    return Ability(version, components, nodes, tuple(unknown))


def _node(api: Api, name: str, item: Object) -> NodeAbility:
    status = status_of(item)
    info = status.get("nodeInfo") or {}
    version, unknown = str(info.get("kubeletVersion") or ""), []
    gates: dict[str, bool] | None = None
    configuration: dict[str, object] = {}
    try:
        configuration = kubelet_config(api, name)
    except ApiError as error:
        unknown.append(f"the settings of its kubelet could not be read: {error}")
    set_by_name = configuration.get("featureGates") or {}
    if abilities.minor_of(version) < abilities.LOCKED_ON:
        try:
            gates = {gate: metric.enabled for gate, metric in kubelet_metrics(api, name).gates.items()}
        except ApiError as error:
            unknown.append(f"the gates of its kubelet could not be read: {error}")
    elif isinstance(set_by_name, Mapping):
        gates = {str(gate): bool(value) for gate, value in set_by_name.items()}
    return NodeAbility(
        name,
        version,
        str(info.get("containerRuntimeVersion") or ""),
        str(info.get("operatingSystem") or "linux"),
        {key: str(value) for key, value in (status.get("allocatable") or {}).items()},
        gates,
        configuration,
        tuple(unknown),
    )


def read_held(fleet: Fleet, nodes: Mapping[str, Remote], found: Iterable[Object]) -> tuple[dict[str, ContainerCgroup], list[str]]:
    """The cgroups of all containers of these pods, by container id, with one read per node; and why some could not be read."""
    ids: dict[str, list[str]] = {}
    for pod in found:
        for one in containers_of(pod):
            if identifier := cgroup.bare_id(pod_resources.identity(pod, str(one.get("name"))).container_id):
                ids.setdefault(node_of(pod), []).append(identifier)
    names = {nodes[node].name: node for node in ids if node in nodes}
    looked = fleet.each([nodes[node] for node in names.values()], lambda remote: cgroup.look(remote, ids[names[remote.name]]))
    held: dict[str, ContainerCgroup] = {}
    problems = []
    for answer in looked.values():
        if isinstance(answer, (ObservationError, RemoteError)):
            problems.append(str(answer))
        elif isinstance(answer, Exception):
            raise answer
        else:
            held |= answer
    return held, problems
