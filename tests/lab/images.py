"""Container images without a registry: a tar that `ctr images import` takes, made of a few static binaries."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.lab.binaries import architecture

REPOSITORY = "registry.local"
APPLETS = ("sh", "sleep", "echo", "cat", "ls", "ps", "wget", "httpd", "date", "id", "hostname", "kill", "env", "head", "dd")
# PID 1 has no default signal handlers: without the trap each stop of a pod would take its whole grace period.
WAIT_FOR_TERM = ("/bin/sh", "-c", "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done")


def image_tar(
    name: str, files: Mapping[str, Path], entrypoint: Sequence[str], links: Mapping[str, str] | None = None, variables: Sequence[str] = ()
) -> bytes:
    """An image archive in Docker's format (image-spec/specs-go v1.2), the same bytes for the same content.

    `files` maps paths in the image to files here, `links` maps symbolic links to what they point to. `variables` (NAME=VALUE) are those of
    its processes, beside PATH.
    """
    layer = io.BytesIO()
    made: set[str] = set()
    with tarfile.open(fileobj=layer, mode="w", format=tarfile.GNU_FORMAT) as archive:

        def folders(path: str) -> None:
            parts = path.strip("/").split("/")[:-1]
            for depth in range(1, len(parts) + 1):
                folder = "/".join(parts[:depth])
                if folder not in made:
                    made.add(folder)
                    entry = tarfile.TarInfo(folder)
                    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                    archive.addfile(entry)

        folders("tmp/x")
        for path, source in sorted(files.items()):
            folders(path)
            entry = tarfile.TarInfo(path.strip("/"))
            entry.mode, entry.size = 0o755, source.stat().st_size
            with source.open("rb") as content:
                archive.addfile(entry, content)
        for path, target in sorted((links or {}).items()):
            folders(path)
            entry = tarfile.TarInfo(path.strip("/"))
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            archive.addfile(entry)
    digest = hashlib.sha256(layer.getvalue()).hexdigest()
    config = json.dumps(
        {
            "architecture": architecture(),
            "os": "linux",
            "created": "1970-01-01T00:00:00Z",
            "config": {"Entrypoint": list(entrypoint), "Env": ["PATH=/usr/local/bin:/usr/bin:/bin", *variables]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
            "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "daytwo lab"}],
        },
        sort_keys=True,
    ).encode()
    config_name = hashlib.sha256(config).hexdigest() + ".json"
    manifest = json.dumps([{"Config": config_name, "RepoTags": [name], "Layers": [f"{digest}/layer.tar"]}]).encode()
    image = io.BytesIO()
    with tarfile.open(fileobj=image, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path, data in ((f"{digest}/layer.tar", layer.getvalue()), (config_name, config), ("manifest.json", manifest)):
            entry = tarfile.TarInfo(path)
            entry.mode, entry.size = 0o644, len(data)
            archive.addfile(entry, io.BytesIO(data))
    return image.getvalue()


def busybox_tar(name: str, busybox: Path) -> bytes:
    """An image that does nothing until it is told to stop: used as pause and as a working pod."""
    links = {f"bin/{applet}": "busybox" for applet in APPLETS}
    return image_tar(name, {"bin/busybox": busybox}, WAIT_FOR_TERM, links)


def component_tar(name: str, binary: Path, variables: Sequence[str] = ()) -> bytes:
    """An image with one binary in /usr/local/bin, which is where a manifest's bare command name is found."""
    return image_tar(name, {f"usr/local/bin/{binary.name}": binary}, (f"/usr/local/bin/{binary.name}",), variables=variables)
