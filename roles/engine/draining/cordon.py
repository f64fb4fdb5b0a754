"""The cordon of a node, and whose it is. Pure, and the writer of it.

daytwo marks its own cordon with an annotation that names the run. The mark alone is not enough: someone may have uncordoned the node since,
and cordoned it again. So daytwo must also own the field (metadata.managedFields).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from roles.engine.api import FIELD_MANAGER
from roles.engine.draining.model import NodeFate
from roles.engine.object_changes import FieldChange, FieldWriter, Object, ObjectPath, Request, field_changes, managers

#: Annotation of a Node that daytwo cordoned: the run that did it.
CORDONED_BY = "daytwo.dev/cordoned-by"
UNSCHEDULABLE: ObjectPath = ("spec", "unschedulable")
MARK: ObjectPath = ("metadata", "annotations", CORDONED_BY)


def node_path(name: str) -> str:
    return f"/api/v1/nodes/{quote(name, safe='')}"


def cordon_fields(node: Object) -> dict[ObjectPath, Any]:
    """The fields of a cordon that are set."""
    found: dict[ObjectPath, Any] = {}
    if (node.get("spec") or {}).get("unschedulable"):
        found[UNSCHEDULABLE] = True
    if mark := (node["metadata"].get("annotations") or {}).get(CORDONED_BY):
        found[MARK] = str(mark)
    return found


def cordoners(node: Object, path: ObjectPath = UNSCHEDULABLE) -> list[str]:
    return managers(node, *(f"f:{part}" for part in path))


def node_fate(node: Object) -> NodeFate:
    """Whether the node is cordoned, and by whom."""
    now = cordon_fields(node)
    if UNSCHEDULABLE not in now:
        return NodeFate(node)
    names = cordoners(node)
    if MARK in now and any(name.partition(" ")[0] == FIELD_MANAGER for name in names):
        return NodeFate(node, "ours", now[MARK])
    return NodeFate(node, "theirs", ", ".join(names) or "someone")


def cordon_change(node: NodeFate, run: str) -> FieldChange | None:
    """The write that cordons a node for a run; None if someone else has cordoned it: that cordon stays."""
    if node.cordon == "theirs":
        return None
    fields = field_changes(cordon_fields(node.item), {UNSCHEDULABLE: True, MARK: run})
    summary = f"cordon it, marked {CORDONED_BY}={run}" if not node.cordon else f"take over the cordon of run {node.by}"
    return FieldChange(f"Node {node.name}", node_path(node.name), node.item, fields, summary)


def uncordon_change(node: Object) -> FieldChange | None:
    """The write that uncordons a node; None if it is not cordoned and has no mark."""
    fields = field_changes(cordon_fields(node), {UNSCHEDULABLE: None, MARK: None})
    name = str(node["metadata"]["name"])
    return FieldChange(f"Node {name}", node_path(name), node, fields, "uncordon it") if fields else None


class CordonWriter(FieldWriter[FieldChange]):
    """Cordons and uncordons."""

    def values(self, item: Object) -> Mapping[ObjectPath, Any]:
        return cordon_fields(item)

    def requests(self, item: Object, wanted: Mapping[ObjectPath, Any]) -> list[Request]:
        now = cordon_fields(item)
        left = {path: value for path, value in wanted.items() if now.get(path) != value}
        body: dict[str, Any] = {}
        if UNSCHEDULABLE in left:
            body["spec"] = {"unschedulable": left[UNSCHEDULABLE]}
        if MARK in left:
            body["metadata"] = {"annotations": {CORDONED_BY: left[MARK]}}
        return [Request("patch", body, tuple(left))] if left else []

    def managers(self, item: Object, path: ObjectPath) -> list[str]:
        return cordoners(item, path)

    def look(self, change: FieldChange) -> str:
        return f"kubectl get node {change.before['metadata']['name']}"
