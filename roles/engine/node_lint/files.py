"""Files in directories that a kubelet or systemd reads, and that do not belong there. Pure.

Sources: pkg/kubelet/config/file.go (all files of the directory, whatever their extension, except those whose names begin with a dot; no
subdirectories; of two files with the same pod the lexically last wins at the relist), KEP-3983 (--config-dir: *.conf, recursively),
systemd.unit(5) (drop-ins: *.conf).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

from roles.engine.control_plane import ManifestFile, by_pod
from roles.engine.editing import FormatError, kubelet_config, unit
from roles.engine.findings import Finding, Place
from roles.engine.kubelet import Kubelet
from roles.engine.node_lint.rules import NodeRule

# What people, editors, package managers and tools add after a name, or before its extension.
_BACKUP = re.compile(
    r"(~|[.\-_](bak|backup|bkp|old|orig|original|save|saved|copy|prev|previous|tmp|disabled|swp|swo|"
    r"rpmsave|rpmnew|rpmorig|dpkg-(old|new|dist|tmp|bak)|ucf-(old|dist|new)|ansible[._-]?tmp.*)\.?[0-9]*"
    r"|[.\-_][0-9]{4}-?[0-9]{2}-?[0-9]{2}([T._-]?[0-9]{2}[:._-]?[0-9]{2}([:._-]?[0-9]{2})?)?| \(?copy\)?.*)\Z",
    re.IGNORECASE,
)
_ROTATED = re.compile(r"\.(ya?ml|json|conf)\.[0-9]{1,3}\Z")
_EXTENSIONS = re.compile(r"\.(ya?ml|json|conf)\Z")
#: Of files that are meant to be manifests. The kubelet reads the others too.
_MANIFESTS = (".yaml", ".yml", ".json")
# Files that packages create to keep an empty directory.
_KEEPERS = frozenset({".kubelet-keep", ".keep", ".gitkeep", ".placeholder"})


def looks_like_a_backup(path: str) -> bool:
    """By the name of a file: `kube-apiserver.yaml.bak`, `10-kubelet.bak.conf`, `x.conf.rpmsave`, `x-2024-01-31.yaml`."""
    name = path.rpartition("/")[2]
    return bool(_BACKUP.search(name) or _ROTATED.search(name) or _BACKUP.search(_stem(path)))


def _stem(path: str) -> str:
    """The name of a file without its extension."""
    return _EXTENSIONS.sub("", path.rpartition("/")[2])


def manifests(kubelet: Kubelet, files: Sequence[ManifestFile]) -> Iterator[Finding]:
    """`files`: all of the manifests directory."""
    host, folder = kubelet.seen.host, kubelet.manifests or ""
    yield from (_no_pod(host, one) for one in files if one.pod is None)
    for pod, listed in by_pod(files).items():
        if len(listed) > 1:
            yield from _twins(host, pod, listed)
        elif looks_like_a_backup(listed[0].path):
            (one,) = listed
            why = "it is named like a backup, and the kubelet runs it: the kubelet reads every file here, whatever its extension"
            way_out = f"move it to another directory (mv {one.path} /root/); that ends its pod"
            yield NodeRule.BACKUP.found(Place(host, file=one.path, line=one.line, value=f"pod {pod}"), why, way_out)
    for name in kubelet.seen.directories.get(folder, ()):
        if name.startswith(".") and name not in _KEEPERS:
            where = Place(host, file=posixpath.join(folder, name), value=name)
            why = "the kubelet skips names that begin with a dot: this file has no effect"
            yield NodeRule.SKIPPED.found(where, why, "remove it, or rename it if its pod should run")


def _no_pod(host: str, one: ManifestFile) -> Finding:
    name = posixpath.basename(one.path)
    if one.file.kind == "directory":
        why = "a directory among the manifests: the kubelet does not read subdirectories, so no manifest in it creates a pod"
        way_out = "move it elsewhere, or move its manifests one directory up if they should run"
        return NodeRule.SKIPPED.found(Place(host, file=one.path, value=f"{name}/"), why, way_out)
    if one.file.data is None:
        why = "among the manifests, and not readable: a broken link, a special file, or over 1 MiB"
        return NodeRule.UNREAD.found(Place(host, file=one.path, value=name), why)
    why = (
        f"the kubelet reads every file here as a manifest, and this is not a manifest ({one.error}). The kubelet logs an error at each"
        " read, and a pod that the file created before is gone"
    )
    rule = NodeRule.BROKEN if name.endswith(_MANIFESTS) else NodeRule.NO_MANIFEST
    return rule.found(Place(host, file=one.path, line=one.line, value=name), why)


def _twins(host: str, pod: str, listed: Sequence[ManifestFile]) -> Iterator[Finding]:
    """The kubelet reads them in order of name, and the last wins at each relist."""
    usual = [one for one in listed if _stem(one.path) == pod.partition("/")[2]]
    keep = next(iter(usual), next((one for one in listed if not looks_like_a_backup(one.path)), listed[0]))
    for one in listed:
        if one is not keep:
            why = (
                f"it defines the same pod as {keep.path}; the kubelet uses the lexically last, which is {listed[-1].path}:"
                " an edit of the other one does not last"
            )
            way_out = (
                f"move it to another directory (mv {one.path} /root/), then check that the pod still runs: the removal can end the pod"
                " until the kubelet next reads the directory"
            )
            yield NodeRule.TWIN.found(Place(host, file=one.path, line=one.line, value=f"pod {pod}"), why, way_out)


# ---- drop-ins


def dropins(kubelet: Kubelet) -> Iterator[Finding]:
    """Of its configuration and of its unit."""
    seen, folder = kubelet.seen, kubelet.dropin_folder
    for path in kubelet.dropin_paths:
        if why := _copied(kubelet, path, kubelet.dropin_paths):
            why += ", and the kubelet reads every *.conf in --config-dir in order of name: later files override earlier ones"
            where = Place(seen.host, file=path, line=_first_field(seen.data(path) or b""), value=posixpath.basename(path))
            yield NodeRule.COPY.found(where, why, "move it out of the directory")
    for name in seen.directories.get(folder, ()) if folder else ():
        path = posixpath.join(folder or "", name)
        file = seen.file(path)
        if file is not None and file.kind in ("file", "link") and not name.endswith(".conf"):
            why = "the kubelet reads only *.conf in --config-dir: this file has no effect"
            yield NodeRule.NO_DROPIN.found(Place(seen.host, file=path, value=name), why)
    units = kubelet.sources.dropins
    for one in units:
        if why := _copied(kubelet, one.path, [other.path for other in units]):
            why += ", and systemd reads every *.conf here in order of name: later files override earlier ones"
            way_out = "move it out of the directory, then `systemctl daemon-reload` and restart the kubelet"
            where = Place(seen.host, file=one.path, line=first_entry(one), value=posixpath.basename(one.path))
            yield NodeRule.COPY.found(where, why, way_out)


def _copied(kubelet: Kubelet, path: str, read: Sequence[str]) -> str:
    """Why a drop-in of `read` seems to be a copy, or "". A copy of an earlier one has no effect today, but it overrides a later edit of
    the first."""
    data = kubelet.seen.data(path)
    for other in read[: read.index(path)]:
        # The original of a backup is not a backup.
        if data and kubelet.seen.data(other) == data and not looks_like_a_backup(other):
            return f"it has the same content as {other}"
    return "it is named like a backup" if looks_like_a_backup(path) else ""


def _first_field(data: bytes) -> int | None:
    try:
        lines = kubelet_config.lines(data)
    except FormatError:
        return None
    return min((line for path, line in lines.items() if path[0] not in ("apiVersion", "kind")), default=None)


def first_entry(file: unit.UnitFile) -> int | None:
    """The line of the first assignment of a unit, or of its error; None if it has no assignment."""
    try:
        return next((entry.line for entry in unit.entries(file)), None)
    except FormatError as error:
        return error.line
