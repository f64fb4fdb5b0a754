"""The parts that every object has: metadata, spec, status. A part that is missing is empty. Pure."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from roles.engine.kube.objects import Object

Part = Mapping[str, Any]

#: The API server fills these in; they are not part of the desired state.
_FILLED_IN = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink")


def name_of(item: Object) -> str:
    return str(item["metadata"]["name"])


def namespace_of(item: Object) -> str:
    """ "" for an object of the cluster."""
    return str(item["metadata"].get("namespace") or "")


def meta_of(item: Object) -> Part:
    return item.get("metadata") or {}


def labels_of(item: Object) -> Mapping[str, str]:
    return meta_of(item).get("labels") or {}


def annotations_of(item: Object) -> Mapping[str, str]:
    return meta_of(item).get("annotations") or {}


def finalizers_of(item: Object) -> list[str]:
    return [str(one) for one in meta_of(item).get("finalizers") or ()]


def created_of(item: Object) -> str:
    """When it was created, as the API writes times; "" if it does not say it."""
    return str(meta_of(item).get("creationTimestamp") or "")


def ends_at(item: Object) -> str:
    """When the grace period of its deletion ends, as the API writes times; "" while nobody deletes it."""
    return str(meta_of(item).get("deletionTimestamp") or "")


def generation_of(item: Object) -> int:
    """Counts the versions of its spec."""
    return int(meta_of(item).get("generation") or 0)


def is_observed(item: Object) -> bool:
    """Its controller has seen the newest spec: the rest of the status is of that."""
    return int(status_of(item).get("observedGeneration") or 0) >= generation_of(item)


def spec_of(item: Object) -> Part:
    return item.get("spec") or {}


def status_of(item: Object) -> Part:
    return item.get("status") or {}


def node_info(node: Object) -> Part:
    """What the kubelet of a node says of the machine: versions, IDs."""
    return status_of(node).get("nodeInfo") or {}


def node_addresses(node: Object) -> list[tuple[str, str]]:
    """The types and addresses of a node, as its kubelet reports them."""
    return [(str(one.get("type") or ""), str(one.get("address") or "")) for one in status_of(node).get("addresses") or ()]


def pod_ranges(node: Object) -> list[str]:
    """The ranges of addresses that a node has for its pods."""
    spec = spec_of(node)
    return [str(one) for one in dict.fromkeys([*(spec.get("podCIDRs") or ()), spec.get("podCIDR")]) if one]


def pod_template(item: Object) -> Part:
    """The pod template of a workload, an object like a pod; of a CronJob it is deeper."""
    return spec_of(item).get("template") or {}


def volumes_of(pod: Object) -> Sequence[Part]:
    return spec_of(pod).get("volumes") or ()


def containers_of(pod: Object) -> Sequence[Part]:
    """Its regular containers."""
    return spec_of(pod).get("containers") or ()


def kubelet_version(node: Object) -> str:
    """Of a node, `v1.36.3`; "" if it has not reported it."""
    return str(node_info(node).get("kubeletVersion") or "")


def conditions(item: Object) -> Sequence[Part]:
    """status.conditions of the newest kinds and of old ones: each has a `type` and a `status`."""
    return status_of(item).get("conditions") or ()


def node_of_host(host: str, address: str, nodes: Mapping[str, Object]) -> Object | None:
    """The Node (`nodes`: by name) of a host that cannot be asked: the one with its name, or else the only one with its address."""
    if host in nodes:
        return nodes[host]
    found = [node for node in nodes.values() if address in {value for _, value in node_addresses(node)}]
    return found[0] if len(found) == 1 else None


def with_meta(item: Object, **fields: Any) -> dict[str, Any]:
    """The object with these fields of its metadata."""
    return {**item, "metadata": {**meta_of(item), **fields}}


def at(item: Object, path: Sequence[str]) -> Any:
    """The value of a field; None if there is none."""
    found: Any = item
    for part in path:
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def bare(item: Object) -> dict[str, Any]:
    """The object without status and the fields that the API server fills in."""
    found = copy.deepcopy(dict(item))
    found.pop("status", None)
    for key in _FILLED_IN:
        found["metadata"].pop(key, None)
    return found
