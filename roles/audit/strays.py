"""Files in directories that a kubelet or systemd reads, and that do not belong there. Pure.

Sources: pkg/kubelet/config/file.go (all files of the directory, whatever their extension, except those whose names begin with a dot; no
subdirectories; of two files with the same pod the lexically last wins at the relist), KEP-3983 (--config-dir: *.conf, recursively),
systemd.unit(5) (drop-ins: *.conf).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

from roles.audit import parsed
from roles.audit.node_view import NodeView
from roles.audit.rules import AuditRule
from roles.engine.control_plane import ManifestFile, by_pod
from roles.engine.editing import FormatError, unit
from roles.engine.findings import Finding, Place, Severity

# What people, editors, package managers and tools add after a name, or before its extension.
_BACKUP = re.compile(
    r"(~|[.\-_](bak|backup|bkp|old|orig|original|save|saved|copy|prev|previous|tmp|disabled|swp|swo|"
    r"rpmsave|rpmnew|rpmorig|dpkg-(old|new|dist|tmp|bak)|ucf-(old|dist|new)|ansible[._-]?tmp.*)\.?[0-9]*"
    r"|[.\-_][0-9]{4}-?[0-9]{2}-?[0-9]{2}([T._-]?[0-9]{2}[:._-]?[0-9]{2}([:._-]?[0-9]{2})?)?| \(?copy\)?.*)\Z",
    re.IGNORECASE,
)
_ROTATED = re.compile(r"\.(ya?ml|json|conf)\.[0-9]{1,3}\Z")
_EXTENSIONS = re.compile(r"\.(ya?ml|json|conf)\Z")
# Files that packages create to keep an empty directory.
_KEEPERS = frozenset({".kubelet-keep", ".keep", ".gitkeep", ".placeholder"})


def looks_like_a_backup(name: str) -> bool:
    """`kube-apiserver.yaml.bak`, `10-kubelet.bak.conf`, `x.conf.rpmsave`, `x-2024-01-31.yaml`."""
    return bool(_BACKUP.search(name) or _ROTATED.search(name) or _BACKUP.search(_EXTENSIONS.sub("", name)))


def findings(view: NodeView) -> Iterator[Finding]:
    """The findings of one node."""
    if view.is_read:
        yield from _manifests(view)
        yield from _config_dropins(view)
        yield from _unit_dropins(view)


# ---- manifests


def _manifests(view: NodeView) -> Iterator[Finding]:
    folder = view.kubelet.manifests
    if folder is None:
        return
    yield from (_no_pod(view, one) for one in view.manifests if one.pod is None)
    for pod, listed in by_pod(view.manifests).items():
        if len(listed) > 1:
            yield from _twice(view, pod, listed)
        elif looks_like_a_backup(posixpath.basename(listed[0].path)):
            (one,) = listed
            why = "it is named like a backup, and the kubelet runs it: the kubelet reads every file here, whatever its extension"
            way_out = f"move it to another directory (mv {one.path} /root/); that ends its pod"
            yield AuditRule.BACKUP.found(Place(view.host, file=one.path, line=one.line, value=f"pod {pod}"), why, way_out)
    for name in view.seen.directories.get(folder, ()):
        path = posixpath.join(folder, name)
        file = view.seen.file(path)
        if name.startswith("."):
            if name not in _KEEPERS:
                why = "the kubelet skips names that begin with a dot: this file has no effect"
                yield AuditRule.STRAY.found(
                    Place(view.host, file=path, value=name), why, "remove it, or rename it if its pod should run", Severity.note
                )
        elif file is not None and file.kind == "directory":
            why = "a directory among the manifests: the kubelet does not read subdirectories, so no manifest in it creates a pod"
            way_out = "move it elsewhere, or move its manifests one directory up if they should run"
            yield AuditRule.STRAY.found(Place(view.host, file=path, value=f"{name}/"), why, way_out, Severity.note)
        elif file is not None and file.data is None:
            why = "among the manifests, and not readable: a broken link, a special file, or over 1 MiB"
            yield AuditRule.STRAY.found(Place(view.host, file=path, value=name), why, "remove it")


def _no_pod(view: NodeView, one: ManifestFile) -> Finding:
    name = posixpath.basename(one.path)
    kind = AuditRule.BACKUP if looks_like_a_backup(name) else AuditRule.STRAY
    why = (
        f"the kubelet reads every file here as a manifest, and this is not a manifest ({one.error}): the kubelet logs an error at each"
        " read, and a pod that the file created before is gone"
    )
    return kind.found(
        Place(view.host, file=one.path, line=one.line, value=name), why, "fix it, or move it to another directory", Severity.warning
    )


def _twice(view: NodeView, pod: str, listed: Sequence[ManifestFile]) -> Iterator[Finding]:
    """The kubelet reads them in order of name, and the last wins at each relist."""
    wins = listed[-1].path
    backups = [one for one in listed if looks_like_a_backup(posixpath.basename(one.path))]
    usual = [one for one in listed if _EXTENSIONS.sub("", posixpath.basename(one.path)) == pod.partition("/")[2]]
    keep = next(iter(usual), next((one for one in listed if one not in backups), listed[0]))
    for one in listed:
        if one is keep:
            continue
        kind = AuditRule.BACKUP if one in backups else AuditRule.STRAY
        why = (
            f"it defines the same pod as {keep.path}; the kubelet uses the lexically last, which is {wins}:"
            " an edit of the other one does not last"
        )
        way_out = (
            f"move it to another directory (mv {one.path} /root/), then check that the pod still runs: the removal can end the pod until"
            " the kubelet next reads the directory"
        )
        yield kind.found(Place(view.host, file=one.path, line=one.line, value=f"pod {pod}"), why, way_out, Severity.critical)


# ---- drop-ins


def _config_dropins(view: NodeView) -> Iterator[Finding]:
    folder = view.kubelet.dropin_folder
    if folder is None:
        return
    read = view.kubelet.dropin_paths
    for path in read:
        if why := _copied(view, path, read):
            rule = f"{why}, and the kubelet reads every *.conf in --config-dir in order of name: later files override earlier ones"
            line = _first_field(view.seen.data(path) or b"")
            name = posixpath.basename(path)
            yield AuditRule.BACKUP.found(Place(view.host, file=path, line=line, value=name), rule, "move it out of the directory")
    for name in view.seen.directories.get(folder, ()):
        path = posixpath.join(folder, name)
        file = view.seen.file(path)
        if file is not None and file.kind in ("file", "link") and not name.endswith(".conf"):
            rule = "the kubelet reads only *.conf in --config-dir: this file has no effect"
            way_out = "rename it to end in .conf if the kubelet should read it; otherwise remove it"
            yield AuditRule.STRAY.found(Place(view.host, file=path, value=name), rule, way_out, Severity.note)


def _unit_dropins(view: NodeView) -> Iterator[Finding]:
    units = view.kubelet.sources.dropins
    read = tuple(one.path for one in units)
    for one in units:
        if why := _copied(view, one.path, read):
            rule = f"{why}, and systemd reads every *.conf here in order of name: later files override earlier ones"
            way_out = "move it out of the directory, then `systemctl daemon-reload` and restart the kubelet"
            name = posixpath.basename(one.path)
            yield AuditRule.BACKUP.found(Place(view.host, file=one.path, line=first_entry(one), value=name), rule, way_out)


def _copied(view: NodeView, path: str, read: Sequence[str]) -> str:
    """Why a drop-in of `read` seems to be a copy, or "". A copy of an earlier one has no effect today, but it overrides a later edit of
    the first."""
    data = view.seen.data(path)
    for other in read[: read.index(path)]:
        # The original of a backup is not a backup.
        if data and view.seen.data(other) == data and not looks_like_a_backup(posixpath.basename(other)):
            return f"it has the same content as {other}"
    return "it is named like a backup" if looks_like_a_backup(posixpath.basename(path)) else ""


def _first_field(data: bytes) -> int | None:
    try:
        lines = parsed.lines(data)
    except FormatError:
        return None
    return min((line for path, line in lines.items() if path[0] not in ("apiVersion", "kind")), default=None)


def first_entry(file: unit.UnitFile) -> int | None:
    """The line of the first assignment of a unit, or of its error; None if it has no assignment."""
    try:
        return next((entry.line for entry in unit.entries(file)), None)
    except FormatError as error:
        return error.line
