"""Static pod manifests: the arguments of a container, edited in place (Pod v1; pkg/kubelet/config/common.go)."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from typing import Any

from roles.engine.editing import yaml_text
from roles.engine.editing.errors import FormatError
from roles.engine.editing.yaml_text import Document, YamlNode


@dataclass(frozen=True)
class ManifestContainer:
    """A container's name, command and args."""

    name: str
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()

    @property
    def program(self) -> str:
        """The name of the binary that it runs: `kube-apiserver` of /usr/local/bin/kube-apiserver; "" if only its image defines it."""
        return posixpath.basename(self.command[0]) if self.command else ""

    def wraps(self, program: str) -> bool:
        """True if it may start a program through another one, or through its image's entry point: a word names the program, alone or in
        a longer text, such as `go-runner kube-apiserver ...` and `sh -c "exec kube-apiserver ..."`."""
        if self.program == program:
            return False
        named = re.compile(rf"(?<![\w.-]){re.escape(program)}(?![\w.-])")
        return any(
            posixpath.basename(word) == program or (re.search(r"\s", word) is not None and named.search(word) is not None)
            for word in (*self.command, *self.args)
        )


@dataclass(frozen=True)
class ManifestPod:
    """The pod of a manifest."""

    namespace: str
    name: str
    containers: tuple[ManifestContainer, ...]


def read(data: bytes) -> ManifestPod:
    """The pod of a manifest. Raises FormatError for a file that is not a pod."""
    content = yaml_text.load(data)
    if content.get("kind") != "Pod":
        raise FormatError("is not a Pod", value=str(content.get("kind"))[:60], way_out="move it to another directory")
    metadata = yaml_text.mapping(content, "metadata")
    containers = tuple(
        ManifestContainer(str(item.get("name")), *(tuple(map(str, yaml_text.listing(item, key))) for key in ("command", "args")))
        for item in containers_of(content)
    )
    # A static pod without a namespace is in `default` (pkg/kubelet/config/common.go, applyDefaults).
    return ManifestPod(str(metadata.get("namespace") or "default"), str(metadata.get("name") or ""), containers)


def container_argv(data: bytes, container: str) -> list[str]:
    """command and args of a container. Raises FormatError if there is no such container."""
    return argv_of(container_of(yaml_text.load(data), container))


def image(data: bytes, container: str) -> str:
    """The image of a container; "" if it has none. Raises FormatError as `container_argv` does."""
    return str(container_of(yaml_text.load(data), container).get("image") or "")


def argument_lines(data: bytes, container: str) -> list[tuple[str, int]]:
    """command and args of a container, each word with its line (1-based). Raises FormatError as `container_argv` does."""
    document = yaml_text.parse(data)
    argv = argv_of(container_of(document.content, container))
    items = [item for sequence in _argument_lists(document, container) for item in sequence.items]
    return list(zip(argv, (item.line for item in items), strict=True))


def name_line(data: bytes) -> int | None:
    """The line (1-based) of metadata.name; None if the pod has none. Raises FormatError."""
    root = yaml_text.parse(data).root
    metadata = next((value for key, value in root.pairs if yaml_text.key_name(key) == "metadata"), None)
    return next((key.line for key, _ in metadata.pairs if yaml_text.key_name(key) == "name"), None) if metadata else None


def containers_of(content: dict[str, Any]) -> list[dict[str, Any]]:
    """The containers of a pod. Raises FormatError."""
    return [item for item in yaml_text.listing(yaml_text.mapping(content, "spec"), "containers") if isinstance(item, dict)]


def container_of(content: dict[str, Any], name: str) -> dict[str, Any]:
    """The container of this name. Raises FormatError."""
    listed = containers_of(content)
    named = [item for item in listed if item.get("name") == name]
    if len(named) != 1:
        names = ", ".join(str(item.get("name")) for item in listed) or "none"
        raise FormatError(
            f"has {len(named)} containers of this name (its containers are: {names})", value=name, way_out="give one of them this name"
        )
    return named[0]


def argv_of(container: dict[str, Any]) -> list[str]:
    """command and args of a container. Raises FormatError."""
    argv = [*yaml_text.listing(container, "command"), *yaml_text.listing(container, "args")]
    for word in argv:
        # The kubelet refuses a pod with anything else in the list.
        if not isinstance(word, str):
            raise FormatError("an argument is not a string", value=str(word), way_out="put it in quotes")
    return argv


def _argument_lists(document: Document, container: str) -> list[YamlNode]:
    """command and args of the container, unless they are empty."""
    spec = document.child(document.root, "spec")
    listed = document.child(spec, "containers") if spec else None
    for item in listed.items if listed else ():
        name = document.child(item, "name") if item.kind == "map" else None
        if name and name.text == container:
            found = (document.child(item, "command"), document.child(item, "args"))
            return [sequence for sequence in found if sequence and sequence.items]
    return []
