"""The resources of a pod's containers as fields of an object that daytwo writes. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from roles.engine.kube import Object
from roles.engine.kube.fields import containers_of
from roles.engine.objects import Kind, ObjectPath, Request
from roles.engine.transaction import ChangedField, ChangedObject
from roles.pod_resize import pod_resources
from roles.pod_resize.pod_resources import resources_text


def only_resources(one: ChangedObject) -> str:
    """Why the old values are no CPU and memory of containers; "" if they are."""
    for found in (changed.before for changed in one.fields if changed.path[-1] == "resources"):
        kinds = found.items() if isinstance(found, Mapping) else [("", None)]
        for kind, amounts in kinds:
            if kind not in pod_resources.KINDS or not isinstance(amounts, Mapping) or not set(amounts) <= set(pod_resources.RESOURCES):
                return f"{found!r} as resources"
    return ""


def field_of(container: str) -> ObjectPath:
    """CPU and memory of a container."""
    return ("spec", "containers", container, "resources")


class _PodKind(Kind):
    """Containers have names, and quantities are compared by their amounts: the API server writes them in its own way."""

    def values(self, found: Object | None) -> dict[ObjectPath, Any]:
        return {field_of(str(one.get("name"))): pod_resources.of(one) for one in containers_of(found or {})}

    def has(self, found: Object, path: ObjectPath, value: Any) -> bool:
        return pod_resources.alike(self.values(found).get(path) or {}, value or {})

    def requests(self, found: Object, wanted: Mapping[ObjectPath, Any]) -> list[Request]:
        now, left = self.values(found), self.differ(found, wanted)
        entries = pod_resources.patch_of((path[2], now.get(path) or {}, wanted[path] or {}) for path in left)
        return [Request("patch", {"spec": {"containers": entries}}, tuple(left))] if left else []

    def unlike(self, found: Object, path: ObjectPath, value: Any) -> str:
        return f"{path[2]} has {', '.join(pod_resources.differences(self.values(found).get(path) or {}, value or {}))}"

    def shown(self, one: ChangedField) -> str:
        return f"{one.path[2]}: {resources_text(one.before or {})} -> {resources_text(one.after or {})}"

    def v1(self, path: ObjectPath) -> tuple[str, ...]:
        return ("f:spec", "f:containers", f"k:{json.dumps({'name': path[2]}, separators=(',', ':'))}", "f:resources")


#: A pod by its subresource; and by itself, as before pod_resources.SUBRESOURCE_SINCE.
RESIZED = _PodKind(
    "Pod", "v1", "/api/v1/pods", (field_of("*"),), verb="patch", recorded=(), maps=(), subresource="resize", short="pod",
    refuse=only_resources,
)  # fmt: skip
PATCHED = replace(RESIZED, subresource="")


def kind_of(minor: int) -> Kind:
    """How the API server of this minor takes the resize of a pod (KEP-1287)."""
    return RESIZED if minor >= pod_resources.SUBRESOURCE_SINCE else PATCHED
