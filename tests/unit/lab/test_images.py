"""Image archives: the same bytes for the same content, and whole."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from tests.lab import images


@pytest.fixture
def binary(tmp_path: Path) -> Path:
    path = tmp_path / "tool"
    path.write_bytes(b"\x7fELF" + bytes(range(256)) * 100)
    path.chmod(0o700)
    return path


def test_the_same_content_gives_the_same_bytes(binary: Path, tmp_path: Path) -> None:
    first = images.busybox_tar("registry.local/app:1", binary)
    other = tmp_path / "elsewhere"
    other.write_bytes(binary.read_bytes())
    other.chmod(0o755)
    assert images.busybox_tar("registry.local/app:1", other) == first
    other.write_bytes(b"x")
    assert images.busybox_tar("registry.local/app:1", other) != first


def test_an_image_can_be_loaded(binary: Path) -> None:
    data = images.busybox_tar("registry.local/app:1", binary)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        parts = {entry.name: archive.extractfile(entry).read() for entry in archive}  # type: ignore[union-attr]
    [manifest] = json.loads(parts.pop("manifest.json"))
    assert manifest["RepoTags"] == ["registry.local/app:1"]
    config_data = parts.pop(manifest["Config"])
    assert manifest["Config"] == hashlib.sha256(config_data).hexdigest() + ".json"
    config = json.loads(config_data)
    assert config["config"]["Entrypoint"] == list(images.WAIT_FOR_TERM)
    [name] = manifest["Layers"]
    layer = parts.pop(name)
    assert not parts
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
    with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
        entries = {entry.name: entry for entry in archive}
        content = archive.extractfile("bin/busybox").read()  # type: ignore[union-attr]
    assert content == binary.read_bytes()
    assert entries["bin/busybox"].mode == 0o755
    assert entries["bin"].isdir() and entries["tmp"].isdir()
    assert {name for name, entry in entries.items() if entry.issym()} == {f"bin/{applet}" for applet in images.APPLETS}


def test_a_component_is_found_by_its_bare_name(binary: Path) -> None:
    data = images.component_tar("registry.local/tool:v1", binary)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        [manifest] = json.loads(archive.extractfile("manifest.json").read())  # type: ignore[union-attr]
        config = json.loads(archive.extractfile(manifest["Config"]).read())  # type: ignore[union-attr]
        layer = archive.extractfile(manifest["Layers"][0]).read()  # type: ignore[union-attr]
    assert config["config"]["Entrypoint"] == ["/usr/local/bin/tool"]
    assert "PATH=/usr/local/bin:/usr/bin:/bin" in config["config"]["Env"]
    with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
        assert "usr/local/bin/tool" in archive.getnames()
