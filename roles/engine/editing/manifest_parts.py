"""Static pod manifests: any flags of a container, and the files of the node that are mounted into it, edited in place.

A file of the node is a volume (hostPath, type File) and a mount of the container, at the same path. Such a mount keeps the file that was
there when the container was created, also after another one was renamed onto its path (mount(2): a bind mount is of the inode). The
kubelet creates a static pod again if its manifest has another meaning (pkg/kubelet/config/common.go, applyDefaults: the UID is its hash).
So the pod of a changed file gets an annotation with the checksum of its files, and with it a new container that has the new file.
"""

from __future__ import annotations

import copy
import hashlib
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roles.engine.editing import any_flag, yaml_text
from roles.engine.editing.errors import FormatError
from roles.engine.editing.flags import FlagChanges
from roles.engine.editing.kubelet_config import edit_content
from roles.engine.editing.manifest import argv_of, container_of, containers_of
from roles.engine.editing.yaml_items import ItemChanger

ANNOTATION = "daytwo/files"
_LONGEST = 50
# Volumes that nobody can write to (kubernetes.io, Volumes).
_READ_ONLY = ("configMap", "secret", "projected", "downwardAPI", "image")


def edit(data: bytes, container: str, changes: FlagChanges, mounts: Mapping[str, bool], stamp: str | None = None) -> bytes:
    """The manifest with the desired flags of a container; with files mounted (True) or not (False), by path; and with the annotation
    `stamp` ("": without it; None: as it is). The same bytes if all this is so. Raises FormatError."""
    document = yaml_text.parse(data)
    content = copy.deepcopy(document.content)
    target = container_of(content, container)
    for other in containers_of(content):
        argv_of(other)
    parts = [key for key in ("command", "args") if target.get(key)]
    if any(changes.values()) and not parts:
        raise FormatError("the container has no command or args to add a flag to", value=container, way_out="write its command there")
    for key, words in zip(parts, any_flag.change([target[key] for key in parts], changes), strict=True):
        target[key] = words
    for path, wanted in mounts.items():
        _mount(content, target, path) if wanted else _unmount(content, target, path)
    if stamp is not None:
        _stamp(content["metadata"], stamp)
    return edit_content(document, data, content, ItemChanger)


def mounted(data: bytes, container: str, path: str) -> bool:
    """Whether a file of the node is in the container at its own path, through a mount of it or of a directory above it. Raises FormatError
    if something else is mounted there."""
    content = yaml_text.load(data)
    return _covered(content, container_of(content, container), path)


@dataclass(frozen=True)
class Place:
    """Where a path of a container is. `source`: the path on the node; None for a volume that is no directory of the node. `kind`: the type
    of the hostPath, or of such a volume. `alone`: the mount is of exactly this path."""

    source: str | None
    kind: str
    read_only: bool
    alone: bool


def place_of(data: bytes, container: str, path: str) -> Place | None:
    """Where a container's path is; None: in no mount, so in the container's own layer, which is gone with the container. The mount whose
    path is the longest counts. Raises FormatError."""
    content = yaml_text.load(data)
    found = _nearest(container_of(content, container), path)
    if found is None:
        return None
    above, mount = found
    volume = _volume(content, mount.get("name"))
    host = volume.get("hostPath")
    kind = str((host.get("type") if isinstance(host, dict) else next((key for key in volume if key != "name"), "")) or "")
    return Place(_source(content, mount, above, path), kind, mount.get("readOnly") is True or kind in _READ_ONLY, above == path)


def on_node(data: bytes, container: str, paths: Iterable[str]) -> dict[str, str]:
    """Paths of a container that are on the node, and where they are there. Raises FormatError."""
    found = {path: place_of(data, container, path) for path in paths}
    return {path: one.source for path, one in found.items() if one is not None and one.source is not None}


def writable_directories(data: bytes, container: str) -> list[str]:
    """The container's paths that are directories of the node, and not mounted read-only. Raises FormatError."""
    content = yaml_text.load(data)
    found = {place: place_of(data, container, place) for place in _by_place(container_of(content, container))}
    return sorted(path for path, one in found.items() if one and one.source and not one.read_only and "File" not in one.kind)


def host_paths(data: bytes) -> list[tuple[str, str, str]]:
    """The volumes of a manifest that are a directory or file of the node: name, path, and type ("": not checked). Raises FormatError."""
    volumes = [(str(one.get("name")), one.get("hostPath")) for one in _items(_spec(yaml_text.load(data)), "volumes")]
    return [(name, str(found.get("path")), str(found.get("type") or "")) for name, found in volumes if isinstance(found, dict)]


def images(data: bytes) -> list[tuple[str, str]]:
    """The images of a manifest's containers, and when they are pulled: Always, IfNotPresent or Never; without a policy Always if the tag is
    latest or missing (pkg/apis/core/v1/defaults.go, SetDefaults_Container). Raises FormatError."""
    spec = _spec(yaml_text.load(data))
    listed = [one for key in ("initContainers", "containers") for one in _items(spec, key) if isinstance(one.get("image"), str)]
    return [(one["image"], str(one.get("imagePullPolicy") or _policy(one["image"]))) for one in listed]


def _policy(image: str) -> str:
    tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2] or ("" if "@" in image else "latest")
    return "Always" if tag == "latest" else "IfNotPresent"


def host_network(data: bytes) -> bool:
    """Whether the pod of a manifest is in the node's own network. Raises FormatError."""
    return _spec(yaml_text.load(data)).get("hostNetwork") is True


def probe_ports(data: bytes, container: str) -> tuple[int, ...]:
    """The ports that the probes of a container ask by HTTP, names resolved. Raises FormatError."""
    target = container_of(yaml_text.load(data), container)
    names = {str(one.get("name")): one.get("containerPort") for one in target.get("ports") or () if isinstance(one, Mapping)}
    found: list[int] = []
    for kind in ("livenessProbe", "readinessProbe", "startupProbe"):
        asked = (target.get(kind) or {}).get("httpGet") or {}
        port = names.get(str(asked.get("port")), asked.get("port"))
        found += [port] if isinstance(port, int) and port not in found else []
    return tuple(found)


def mounted_alone(data: bytes, container: str, path: str) -> bool:
    """Whether the container mounts exactly this file of the node, which `edit` can take out."""
    content = yaml_text.load(data)
    return bool(_own_mounts(content, container_of(content, container), path))


def volume_name(path: str) -> str:
    """The name of a file's volume: a DNS label, the same for the same path."""
    readable = re.sub(r"[^a-z0-9]+", "-", posixpath.basename(path).lower()).strip("-")[:_LONGEST].strip("-")
    return f"{readable or 'file'}-{hashlib.sha256(path.encode()).hexdigest()[:6]}"


def _items(holder: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    return yaml_text.listing(holder, key, of_maps=key)


def _spec(content: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = content["spec"]
    return spec


def _volume(content: dict[str, Any], name: object) -> dict[str, Any]:
    return next((volume for volume in _items(_spec(content), "volumes") if volume.get("name") == name), {})


def _host_path(content: dict[str, Any], name: object) -> str | None:
    """The directory or file of the node that a volume is; None for any other volume."""
    found = _volume(content, name).get("hostPath")
    return str(found.get("path")) if isinstance(found, dict) else None


def _by_place(container: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {posixpath.normpath(str(mount.get("mountPath"))): mount for mount in _items(container, "volumeMounts")}


def _source(content: dict[str, Any], mount: dict[str, Any], above: str, path: str) -> str | None:
    """The path on the node of a path below a mount at `above`; None if the volume is no directory of the node."""
    source = _host_path(content, mount.get("name"))
    inside = path.removeprefix(above).lstrip("/")
    return posixpath.normpath(posixpath.join(source, str(mount.get("subPath") or ""), inside)) if source is not None else None


def _above(path: str) -> Sequence[str]:
    """The path and the directories above it, the path first."""
    found = [path]
    while found[-1] != "/":
        found.append(posixpath.dirname(found[-1]))
    return found


def _nearest(container: dict[str, Any], path: str) -> tuple[str, dict[str, Any]] | None:
    """The mount that a path is in, the one with the longest path, and its path."""
    mounts = _by_place(container)
    return next(((one, mounts[one]) for one in _above(path) if one in mounts), None)


def _covered(content: dict[str, Any], container: dict[str, Any], path: str) -> bool:
    found = _nearest(container, path)
    if found is None:
        return False
    above, mount = found
    if _source(content, mount, above, path) != path:
        other = _host_path(content, mount.get("name")) or "a volume that is no directory of the node"
        raise FormatError(f"something else is mounted at {above}: {other}", value=path, way_out="choose another path for the file")
    return True


def _own_mounts(content: dict[str, Any], container: dict[str, Any], path: str) -> list[dict[str, Any]]:
    return [
        mount
        for mount in _items(container, "volumeMounts")
        if posixpath.normpath(str(mount.get("mountPath"))) == path and _host_path(content, mount.get("name")) == path
    ]


def _mount(content: dict[str, Any], container: dict[str, Any], path: str) -> None:
    if _covered(content, container, path):
        return
    name = volume_name(path)
    if _host_path(content, name) != path:
        if any(volume.get("name") == name for volume in _items(_spec(content), "volumes")):
            raise FormatError("another volume has this name", value=name, way_out="rename it")
        _spec(content)["volumes"] = [*_items(_spec(content), "volumes"), {"hostPath": {"path": path, "type": "File"}, "name": name}]
    container["volumeMounts"] = [*_items(container, "volumeMounts"), {"mountPath": path, "name": name, "readOnly": True}]


def _unmount(content: dict[str, Any], container: dict[str, Any], path: str) -> None:
    """Remove the mount of exactly this file, and its volume if nothing else uses it."""
    own = _own_mounts(content, container, path)
    if not own:
        return
    _put(container, "volumeMounts", [mount for mount in _items(container, "volumeMounts") if mount not in own])
    used = {mount.get("name") for one in containers_of(content) for mount in _items(one, "volumeMounts")}
    names = {mount.get("name") for mount in own} - used
    _put(_spec(content), "volumes", [volume for volume in _items(_spec(content), "volumes") if volume.get("name") not in names])


def _stamp(metadata: dict[str, Any], stamp: str) -> None:
    kept = {key: value for key, value in (metadata.get("annotations") or {}).items() if key != ANNOTATION}
    if stamp:
        kept[ANNOTATION] = stamp
    if kept or metadata.get("annotations"):
        metadata["annotations"] = kept
    if not kept:
        metadata.pop("annotations", None)


def _put(holder: dict[str, Any], key: str, items: list[dict[str, Any]]) -> None:
    if items:
        holder[key] = items
    else:
        holder.pop(key, None)
