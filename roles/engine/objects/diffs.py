"""How a change of an object is shown. Pure."""

from __future__ import annotations

import difflib
import io
from collections.abc import Iterator, Mapping
from typing import Any

from ruamel.yaml import YAML

from roles.engine.kube import Object
from roles.engine.kube.fields import annotations_of, bare, spec_of, with_meta
from roles.engine.transaction import mask_manifest, mask_text

_TOOL_ANNOTATIONS = ("kubectl.kubernetes.io/last-applied-configuration", "deprecated.daemonset.template.generation")


def object_diff(before: Object | None, after: Object | None, name: str) -> str:
    """A unified diff of two objects as YAML, secrets masked; "" if they do not differ."""
    old, new = (_masked(item).splitlines() if item is not None else [] for item in (before, after))
    return "\n".join(_unified(old, new, name))


def _masked(item: Object) -> str:
    # A PriorityClass and an autoscaler have a `value` that does not belong to an environment variable.
    plain = "spec" not in item or {"scaleTargetRef", "targetRef"} & set(spec_of(item))
    return (mask_text if plain else mask_manifest)(_yaml(_shown(item)))


def _shown(item: Object) -> dict[str, Any]:
    """The object without its type (items of a list have none) and the annotations that tools keep for themselves."""
    found = {key: value for key, value in bare(item).items() if key not in ("apiVersion", "kind")}
    annotations = annotations_of(found)
    kept = {key: value for key, value in annotations.items() if key not in _TOOL_ANNOTATIONS}
    return with_meta(found, annotations=kept) if annotations else found


def _unified(old: list[str], new: list[str], name: str) -> Iterator[str]:
    return difflib.unified_diff(old, new, f"{name} (cluster)", f"{name} (planned)", lineterm="")


def _yaml(item: Mapping[str, Any]) -> str:
    stream = io.StringIO()
    writer = YAML(typ="safe", pure=True)
    writer.default_flow_style = False
    writer.width = 200
    writer.dump({key: item[key] for key in sorted(item)}, stream)
    return stream.getvalue()
