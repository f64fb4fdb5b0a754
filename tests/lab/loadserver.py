"""The load server as an image on the lab's nodes: it uses as much CPU and memory as a test asks for (load/main.go)."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from tests.lab import binaries, images
from tests.lab.cluster import Lab
from tests.lab.tools import CACHE, locked, long_step, run

SOURCE = Path(__file__).with_name("load") / "main.go"
# The standard library is all that it needs.
GO_MOD = "module load\n\ngo 1.21\n"
PORT = 8080


def _version() -> str:
    return hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]


def binary() -> Path:
    """Built once for each state of the source."""
    folder = CACHE / "extras" / f"load-{_version()}-{binaries.architecture()}"
    if (folder / "complete").exists():
        return folder / "load"  # another build may hold the lock for half an hour
    with locked(CACHE / "lock", "another process makes binaries; the load server waits for it"):
        if not (folder / "complete").exists():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "main.go").write_bytes(SOURCE.read_bytes())
            (folder / "go.mod").write_text(GO_MOD)
            environment = {**binaries._environment(), "CGO_ENABLED": "0"}
            with long_step("building the load server (once)"):
                run(binaries._go(), "build", "-trimpath", "-ldflags=-s -w", "-o", folder / "load", ".", env=environment, cwd=folder)
            (folder / "complete").touch()
    return folder / "load"


def load(lab: Lab) -> str:
    """The name of its image, which all nodes have afterwards."""
    return lab.load_image(f"{images.REPOSITORY}/load:{_version()}", binary)


def container(image: str, resources: dict[str, Any], **use: float) -> dict[str, Any]:
    """A container of a pod's spec: `use` as load/main.go has it (cpu=150, memory=96)."""
    return {
        "name": "app",
        "image": image,
        "imagePullPolicy": "Never",
        "args": [f"--{name.rstrip('_')}={value:g}" for name, value in use.items()],
        "resources": resources,
    }
