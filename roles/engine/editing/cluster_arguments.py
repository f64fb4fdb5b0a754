"""kubeadm's ClusterConfiguration: any flag of a control-plane component (extraArgs), and the files that are mounted into its pod
(extraVolumes), edited in place.

extraArgs is a map in v1beta3 and before, which has one value for each flag. In v1beta4 it is a list, which may have a name several times.
Either replaces all values that kubeadm itself would give the flag
(cmd/kubeadm/app/util/arguments.go, ArgumentsToCommand).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roles.engine.editing.any_flag import FlagChanges
from roles.engine.editing.cluster_configuration import KIND, SECTIONS, extra_of, is_list, parse
from roles.engine.editing.errors import FormatError
from roles.engine.editing.kubelet_config import ABSENT, edit_fields
from roles.engine.editing.manifest_parts import volume_name
from roles.engine.editing.yaml_items import ItemChanger

_ARGUMENTS, _VOLUMES = "extraArgs", "extraVolumes"


@dataclass(frozen=True)
class Extras:
    """What kubeadm adds to the pod of one component: values by flag, and the files of the node that are mounted at their own path."""

    flags: Mapping[str, tuple[str, ...]]
    files: frozenset[str]


def read(data: bytes) -> dict[str, Extras]:
    """The extras of each component, by its name. Raises FormatError."""
    content = parse(data).content
    return {component: Extras(_flags(content, component), _files(content, component)) for component in SECTIONS}


def edit(data: bytes, component: str, changes: FlagChanges, mounts: Mapping[str, bool]) -> bytes:
    """The text with the desired flags of a component, and with files mounted (True) or not (False); the same bytes if it has them. Raises
    FormatError, also for several values that this version cannot have."""
    content = parse(data).content
    now, section = _flags(content, component), SECTIONS[component]
    wanted = {name: values for name, values in changes.items() if now.get(name) != values}
    if wanted:
        made = _arguments(content, component, wanted)
        data = edit_fields(data, {(section, _ARGUMENTS): made or ABSENT}, KIND, ItemChanger)
    volumes = _volumes(content, component)
    kept = [item for item in volumes if not (mounts.get(_path(item)) is False and item.get("mountPath") == _path(item))]
    there = _files(content, component)
    new = [
        {"hostPath": path, "mountPath": path, "name": volume_name(path), "pathType": "File", "readOnly": True}
        for path, mount in mounts.items()
        if mount and path not in there
    ]
    if kept + new != volumes:
        data = edit_fields(data, {(section, _VOLUMES): kept + new or ABSENT}, KIND, ItemChanger)
    return data


def _flags(content: Mapping[str, Any], component: str) -> dict[str, tuple[str, ...]]:
    extra = extra_of(content, component)
    items = (
        extra.items() if isinstance(extra, dict) else [(item.get("name"), item.get("value", "")) for item in extra or () if _named(item)]
    )
    found: dict[str, tuple[str, ...]] = {}
    for name, value in items:
        flag = _normal(name)
        found[flag] = (*found.get(flag, ()), str(value))
    return found


def _named(item: Any) -> bool:
    if not isinstance(item, dict) or not isinstance(item.get("name"), str):
        raise FormatError(f"an item of {_ARGUMENTS} has no name", value=str(item)[:60], way_out="name it")
    return True


def _normal(name: object) -> str:
    return str(name).replace("_", "-")


def _arguments(content: Mapping[str, Any], component: str, changes: FlagChanges) -> Any:
    """extraArgs with the changes: values replace those that are there, in their places."""
    extra = extra_of(content, component)
    if not is_list(content):
        kept = {name: value for name, value in (extra or {}).items() if changes.get(_normal(name), ()) is not None}
        written = {_normal(name): name for name in kept}
        if several := [name for name, values in changes.items() if values is not None and len(values) > 1]:
            raise FormatError(
                f"this version of {KIND} has one value for each flag", value=several[0], way_out="convert it: kubeadm config migrate"
            )
        return {**kept, **{written.get(name, name): values[0] for name, values in changes.items() if values}}
    left = {name: list(values or ()) for name, values in changes.items()}
    made: list[dict[str, Any]] = []
    for item in extra or ():
        flag = _normal(item["name"])
        if flag not in left:
            made.append(item)
        elif left[flag]:
            made.append({**item, "value": left[flag].pop(0)})
    return [*made, *({"name": name, "value": value} for name, values in left.items() for value in values)]


def _volumes(content: Mapping[str, Any], component: str) -> list[dict[str, Any]]:
    section = content.get(SECTIONS[component])
    found = section.get(_VOLUMES) if isinstance(section, dict) else None
    if found is not None and not (isinstance(found, list) and all(isinstance(item, dict) for item in found)):
        raise FormatError(
            f"{SECTIONS[component]}.{_VOLUMES} is not a list of mappings", value=str(found)[:60], way_out="write it as a list"
        )
    return found or []


def _path(item: Mapping[str, Any]) -> str:
    return str(item.get("hostPath"))


def _files(content: Mapping[str, Any], component: str) -> frozenset[str]:
    return frozenset(_path(item) for item in _volumes(content, component) if item.get("mountPath") == _path(item))
