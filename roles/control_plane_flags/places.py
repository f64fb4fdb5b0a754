"""Whether the path that a flag names is where an operator expects it: on the node, or only inside the container. Pure.

A static pod sees the node through its mounts only. What a component writes elsewhere goes to the container's own layer: on the node's disk,
where nobody looks and nothing rotates it away, and gone with the container. What it reads must be in its image, or mounted.
"""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from roles.control_plane_flags.reserved import reserved
from roles.engine.editing import FormatError, last_flag, manifest_parts
from roles.engine.named_paths import API_SERVER, WrittenPath, paths_in, written_path
from roles.engine.starting import FILES

_OUTPUT, _WEBHOOK, _POLICY = "audit-log-path", "audit-webhook-config-file", "audit-policy-file"


@dataclass(frozen=True)
class Misplaced:
    """A path of a flag that is not on the node as it should be. `fatal`: the component would not start, or not use it."""

    flag: str
    why: str
    way_out: str
    fatal: bool = False


def misplaced(
    program: str, container: str, manifest: bytes, argv: Sequence[str], flags: Mapping[str, Sequence[str]]
) -> Iterator[Misplaced]:
    """Of the `flags` of a component with these arguments (by name, their values): paths that are not on the node, by its manifest."""
    read = {row.flag for row in FILES if row.component == program}
    yield from _without_policy(program, argv, flags)
    for name, values in flags.items():
        named = written_path(program, name)
        if (named is None and name not in read) or (named is not None and named.unless and last_flag(argv, named.unless)):
            continue
        for path in paths_in(values):
            with contextlib.suppress(FormatError):  # the plan of the manifest's edit refuses that
                found = manifest_parts.place_of(manifest, container, path)
                judged = _read(name, path, found) if named is None else _written(named, path, found, argv)
                if judged is not None:
                    yield _with_directories(judged, manifest, container)


def _without_policy(program: str, argv: Sequence[str], flags: Mapping[str, Sequence[str]]) -> Iterator[Misplaced]:
    """Flags of the audit log, which an API server accepts and ignores without a policy (apiserver/pkg/server/options/audit.go, ApplyTo)."""
    for name in (_OUTPUT, _WEBHOOK):
        if program == API_SERVER and name in flags and not last_flag(argv, _POLICY):
            yield Misplaced(name, f"without {_POLICY} no event is written: it has no effect", f"set {_POLICY} too", fatal=True)


def _written(named: WrittenPath, path: str, place: manifest_parts.Place | None, argv: Sequence[str]) -> Misplaced | None:
    name = named.flag
    folder = path if named.directory else posixpath.dirname(path)
    elsewhere = 'use "-", or a directory that is mounted' if name == _OUTPUT else "use a directory that is mounted"
    if why := reserved(f"{path}/" if named.directory else path):
        return Misplaced(name, f"{named.what} would be written to {path}: {why}", "use a place below /var/log", fatal=True)
    if place is None:
        why = f"{folder.rstrip('/')}/ is no mount of the pod: {named.what} stays in the container, and is lost when it restarts"
        return Misplaced(name, why, elsewhere)
    if place.read_only:
        return Misplaced(name, f"{path} is mounted read-only, and the component could not write {named.what}", elsewhere, fatal=True)
    if place.source is None:
        return Misplaced(
            name, f"{folder.rstrip('/')}/ is a volume ({place.kind}): {named.what} is lost when the pod is recreated", elsewhere
        )
    if place.alone and name == _OUTPUT and last_flag(argv, "audit-log-maxsize") != "0":
        why = f"{path} is a mount of this file alone: the component cannot rename it, so it cannot rotate {named.what}"
        return Misplaced(name, why, f"{elsewhere}; or set audit-log-maxsize: 0, and rotate it on the node")
    return None


def _read(name: str, path: str, place: manifest_parts.Place | None) -> Misplaced | None:
    if place is not None:
        return None
    why = f"no mount of the pod has {path}: unless the image itself has it, the component does not start"
    return Misplaced(name, why, "place the file with control_plane_files, or name one that is mounted")


def _with_directories(found: Misplaced, manifest: bytes, container: str) -> Misplaced:
    if not found.way_out.endswith("a directory that is mounted"):
        return found
    there = manifest_parts.writable_directories(manifest, container)
    which = ", ".join(there) if there else "this pod has none that it can write to, so add a volume and a mount to its manifest first"
    return Misplaced(found.flag, found.why, f"{found.way_out}: {which}", found.fatal)
