"""API objects as raw JSON: identity, owner, field managers. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Object = Mapping[str, Any]


def uid(item: Object) -> str:
    return str(item["metadata"].get("uid", ""))


def version(item: Object) -> str:
    return str(item["metadata"].get("resourceVersion", ""))


def preconditions(of_uid: str, of_version: str = "") -> dict[str, str]:
    """The metadata of a request for one object only, and if given for one version of it."""
    return {"uid": of_uid, **({"resourceVersion": of_version} if of_version else {})}


def namespace_and_name(item: Object) -> tuple[str, str]:
    return str(item["metadata"].get("namespace", "")), str(item["metadata"]["name"])


def full_name(item: Object) -> str:
    """NAMESPACE/NAME."""
    return "/".join(namespace_and_name(item))


@dataclass(frozen=True)
class OwnerRef:
    """The controller that an object names (metadata.ownerReferences with controller: true)."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


def owner_refs(item: Object) -> list[OwnerRef]:
    """All owners of an object."""
    return [_owner(item, one) for one in item["metadata"].get("ownerReferences") or ()]


def owner_ref(item: Object) -> OwnerRef | None:
    """The controller of an object; None if nothing controls it (metav1.GetControllerOf)."""
    for one in item["metadata"].get("ownerReferences") or ():
        if one.get("controller"):
            return _owner(item, one)
    return None


def _owner(item: Object, one: Object) -> OwnerRef:
    namespace = str(item["metadata"].get("namespace", ""))
    return OwnerRef(str(one.get("apiVersion", "")), str(one.get("kind", "")), namespace, str(one.get("name", "")), str(one.get("uid", "")))


def controller(item: Object) -> str:
    """UID of the owner that controls the object; "" without one."""
    found = owner_ref(item)
    return found.uid if found else ""


def is_ending(item: Object) -> bool:
    """The object is deleted but still exists: a pod in its grace period, or an object with a finalizer."""
    return bool(item["metadata"].get("deletionTimestamp"))


def is_ready(item: Object) -> bool:
    """The condition Ready of a pod or node is True."""
    return holds(item, "Ready")


def condition(item: Object, kind: str) -> Object:
    """The condition of this type; {} if there is none."""
    return next((one for one in (item.get("status") or {}).get("conditions") or () if one.get("type") == kind), {})


def holds(item: Object, kind: str) -> bool:
    """The condition of this type is True."""
    return bool(condition(item, kind).get("status") == "True")
