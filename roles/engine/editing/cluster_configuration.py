"""kubeadm's ClusterConfiguration: any flag of a control-plane component (extraArgs), and the files that are mounted into its pod
(extraVolumes), edited in place.

extraArgs is a map in v1beta3 and before, which has one value for each flag. In v1beta4 it is a list, which may have a name several times.
Either replaces all values that kubeadm itself would give the flag
(cmd/kubeadm/app/util/arguments.go, ArgumentsToCommand).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from roles.engine.editing import flags, yaml_text
from roles.engine.editing.errors import FormatError
from roles.engine.editing.flags import FEATURE_GATES, FlagChanges, FlagValues, GateChanges
from roles.engine.editing.kubelet_config import ABSENT, edit_fields, parse
from roles.engine.editing.manifest_parts import volume_name
from roles.engine.editing.yaml_items import ItemChanger
from roles.engine.editing.yaml_text import Document

KIND = "ClusterConfiguration"
#: The section with a component's arguments.
SECTIONS: Final = {"kube-apiserver": "apiServer", "kube-controller-manager": "controllerManager", "kube-scheduler": "scheduler"}
_ARGUMENTS, _VOLUMES = "extraArgs", "extraVolumes"
_VERSION = re.compile(r"kubeadm\.k8s\.io/v1beta([1-4])")
_LIST_SINCE = 4


@dataclass(frozen=True)
class Extras:
    """What kubeadm adds to the pod of one component: values by flag, and the files of the node that are mounted at their own path."""

    flags: Mapping[str, tuple[str, ...]]
    files: frozenset[str]

    @property
    def gates(self) -> dict[str, bool]:
        """Raises FormatError for gates that the component would refuse."""
        return flags.effective_gates([f"--{FEATURE_GATES}={value}" for value in self.flags.get(FEATURE_GATES, ())])

    def with_gates(self, changes: GateChanges) -> FlagValues:
        """The values of --feature-gates after which the component has the desired gates."""
        return flags.with_gates(self.flags.get(FEATURE_GATES, ()), changes) or None


def read(data: bytes) -> dict[str, Extras]:
    """The extras of each component, by its name. Raises FormatError."""
    content = _parse(data).content
    return {component: Extras(_flags(content, component), _files(content, component)) for component in SECTIONS}


def edit(data: bytes, component: str, changes: FlagChanges, mounts: Mapping[str, bool]) -> bytes:
    """The text with the desired flags of a component, and with files mounted (True) or not (False); the same bytes if it has them. Raises
    FormatError, also for several values that this version cannot have."""
    content = _parse(data).content
    now, section = _flags(content, component), SECTIONS[component]
    wanted = {name: values for name, values in changes.items() if now.get(name) != values}
    made = _listed(content, component, wanted) if _is_list(content) else _by_name(content, component, wanted)
    data = edit_fields(data, {(section, _ARGUMENTS, *path): value for path, value in made.items()}, KIND, ItemChanger) if wanted else data
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
    extra = _extra_of(content, component)
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


def _by_name(content: Mapping[str, Any], component: str, changes: FlagChanges) -> dict[tuple[str, ...], Any]:
    """The fields of extraArgs that change, by path: each flag under the name that it has there."""
    if several := [name for name, values in changes.items() if values is not None and len(values) > 1]:
        raise FormatError(
            f"this version of {KIND} has one value for each flag", value=several[0], way_out="convert it: kubeadm config migrate"
        )
    written = {_normal(name): str(name) for name in _extra_of(content, component) or {}}
    return {(written.get(name, name),): values[0] if values else ABSENT for name, values in changes.items()}


def _listed(content: Mapping[str, Any], component: str, changes: FlagChanges) -> dict[tuple[str, ...], Any]:
    """extraArgs as a whole: values replace those that are there, in their places."""
    extra = _extra_of(content, component)
    left = {name: list(values or ()) for name, values in changes.items()}
    made: list[dict[str, Any]] = []
    for item in extra or ():
        flag = _normal(item["name"])
        if flag not in left:
            made.append(item)
        elif left[flag]:
            made.append({**item, "value": left[flag].pop(0)})
    made += [{"name": name, "value": value} for name, values in left.items() for value in values]
    return {(): made or ABSENT}


def _parse(data: bytes) -> Document:
    """Raises FormatError for a text that is not a ClusterConfiguration of a known version."""
    document = parse(data, KIND)
    version = str(document.content.get("apiVersion"))
    if not _VERSION.fullmatch(version):
        raise FormatError(f"is a {KIND} of an unknown version", value=version[:60], way_out="convert it: kubeadm config migrate")
    return document


def _is_list(content: Mapping[str, Any]) -> bool:
    """Whether this version's extraArgs are a list of name and value."""
    found = _VERSION.fullmatch(str(content.get("apiVersion")))
    return found is not None and int(found[1]) >= _LIST_SINCE


def _extra_of(content: Mapping[str, Any], component: str) -> Any:
    """A component's extraArgs; None if it has none."""
    section = SECTIONS[component]
    extra = yaml_text.mapping(content, section).get(_ARGUMENTS)
    kind = list if _is_list(content) else dict
    if extra is not None and not isinstance(extra, kind):
        shape = "a list of name and value" if kind is list else "a mapping"
        raise FormatError(
            f"{section}.{_ARGUMENTS} is not {shape}, which this version requires", value=str(extra)[:60], way_out="write it in that form"
        )
    return extra


def _volumes(content: Mapping[str, Any], component: str) -> list[dict[str, Any]]:
    section = SECTIONS[component]
    return yaml_text.listing(yaml_text.mapping(content, section), _VOLUMES, of_maps=f"{section}.{_VOLUMES}")


def _path(item: Mapping[str, Any]) -> str:
    return str(item.get("hostPath"))


def _files(content: Mapping[str, Any], component: str) -> frozenset[str]:
    return frozenset(_path(item) for item in _volumes(content, component) if item.get("mountPath") == _path(item))
