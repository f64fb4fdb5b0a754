"""The parts that every object has: metadata, spec, status. A part that is missing is empty. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from roles.engine.kube.objects import Object

Part = Mapping[str, Any]


def name_of(item: Object) -> str:
    return str(item["metadata"]["name"])


def namespace_of(item: Object) -> str:
    """ "" for an object of the cluster."""
    return str(item["metadata"].get("namespace") or "")


def labels_of(item: Object) -> Mapping[str, str]:
    return (item.get("metadata") or {}).get("labels") or {}


def annotations_of(item: Object) -> Mapping[str, str]:
    return (item.get("metadata") or {}).get("annotations") or {}


def spec_of(item: Object) -> Part:
    return item.get("spec") or {}


def status_of(item: Object) -> Part:
    return item.get("status") or {}


def conditions(item: Object) -> Sequence[Part]:
    """status.conditions of the newest kinds and of old ones: each has a `type` and a `status`."""
    return status_of(item).get("conditions") or ()
