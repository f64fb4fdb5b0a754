"""The load server as an image on the lab's nodes: it uses as much CPU and memory as a test asks for (load/main.go)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.lab import binaries, images
from tests.lab.cluster import Lab

SOURCE = Path(__file__).with_name("load") / "main.go"
PORT = 8080


def load(lab: Lab) -> str:
    """The name of its image, which all nodes have afterwards."""
    return lab.load_image(f"{images.REPOSITORY}/load:{binaries.version_of(SOURCE)}", lambda: binaries.own("load", SOURCE))


def container(image: str, resources: dict[str, Any], **use: float) -> dict[str, Any]:
    """A container of a pod's spec: `use` as load/main.go has it (cpu=150, memory=96)."""
    return {
        "name": "app",
        "image": image,
        "imagePullPolicy": "Never",
        "args": [f"--{name.rstrip('_')}={value:g}" for name, value in use.items()],
        "resources": resources,
    }
