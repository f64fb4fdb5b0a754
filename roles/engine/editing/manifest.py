"""Static pod manifests: the arguments of a container, edited in place (Pod v1; pkg/kubelet/config/common.go)."""

from __future__ import annotations

import copy
import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from roles.engine.editing import flags, yaml_text
from roles.engine.editing.errors import FormatError
from roles.engine.editing.flags import GateChanges
from roles.engine.editing.mapped import Mapped, Splice
from roles.engine.editing.yaml_text import Document, TextEdit, YamlNode

_QUOTES = ("'", '"')


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
    metadata = _map(content, "metadata")
    containers = tuple(
        ManifestContainer(str(item.get("name")), *(tuple(map(str, _list(item, key))) for key in ("command", "args")))
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


def _map(content: dict[str, Any], key: str) -> dict[str, Any]:
    found = content.get(key)
    if found is not None and not isinstance(found, dict):
        raise FormatError(f"{key} is not a mapping", value=str(found)[:60], way_out="write it as a mapping")
    return found or {}


def _list(content: dict[str, Any], key: str) -> list[Any]:
    found = content.get(key)
    if found is not None and not isinstance(found, list):
        raise FormatError(f"{key} is not a list", value=str(found)[:60], way_out="write it as a list")
    return found or []


def containers_of(content: dict[str, Any]) -> list[dict[str, Any]]:
    """The containers of a pod. Raises FormatError."""
    return [item for item in _list(_map(content, "spec"), "containers") if isinstance(item, dict)]


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
    argv = [*_list(container, "command"), *_list(container, "args")]
    for word in argv:
        # The kubelet refuses a pod with anything else in the list.
        if not isinstance(word, str):
            raise FormatError("an argument is not a string", value=str(word), way_out="put it in quotes")
    return argv


def edit_gates(data: bytes, container: str, changes: GateChanges) -> bytes:
    """The manifest with the container's desired --feature-gates; the same bytes if it has them already.

    A new flag becomes one new item at the end of args (or of command, if there are no args), written like its neighbours.
    Raises FormatError if the file cannot be read, has no such container, or the edit is ambiguous.
    """
    document = yaml_text.parse(data)
    old = argv_of(container_of(document.content, container))
    for other in containers_of(document.content):
        argv_of(other)
    lists = _argument_lists(document, container)
    items = [(sequence, item) for sequence in lists for item in sequence.items]
    words = [_word(document, item, str(number)) for number, (_, item) in enumerate(items)]
    edits: list[TextEdit] = []
    taken: list[YamlNode] = []

    def remove(gone: tuple[Mapped, ...]) -> list[Splice]:
        taken.extend(items[int(word.source)][1] for word in gone)
        return []

    def insert(flag: str) -> list[Splice]:
        flags.check_end(old)
        if not items:
            raise FormatError("the container has no command or args to add a flag to", value=container, way_out="write its command there")
        edits.append(_add_item(document, lists[-1], flag))
        return []

    by_item: dict[int, list[Splice]] = {}
    for splice in flags.edit(words, changes, remove, insert):
        by_item.setdefault(int(splice.source), []).append(splice)
    for number, splices in by_item.items():
        edits.append(_rewrite(document, *items[number], splices))
    for sequence in lists:
        edits += _remove_items(document, sequence, taken)
    if not edits:
        return data
    for sequence in lists:
        yaml_text.own(sequence)
    after = yaml_text.splice(document.text, edits)
    _verify(document.content, after, container, changes)
    return after


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


def _inner(item: YamlNode) -> tuple[int, int]:
    """The span of an item's text, without its quotes."""
    quoted = item.style in _QUOTES
    return item.start + quoted, item.end - quoted


def _word(document: Document, item: YamlNode, source: str) -> Mapped:
    """An item as a word whose bytes have positions in the text; with escapes, folds or an anchor, each byte's span is the whole item."""
    start = _inner(item)[0]
    text = item.text.encode("utf-8")
    if not text and _is_literal(document, item):
        return Mapped(b"", (), _inner(item), source)  # inside its quotes, so that new text is quoted
    if not _is_literal(document, item):
        return Mapped(text, ((item.start, item.end),) * len(text), (item.start, item.end), source)
    return Mapped(text, tuple((start + index, start + index + 1) for index in range(len(text))), (item.start, item.end), source)


def _is_literal(document: Document, item: YamlNode) -> bool:
    start, end = _inner(item)
    return document.text[start:end] == item.text and item.text.isascii()


def _rewrite(document: Document, sequence: YamlNode, item: YamlNode, splices: Sequence[Splice]) -> TextEdit:
    """The edit of one item."""
    yaml_text.own(item)
    if not _is_literal(document, item):
        raise FormatError(
            "a gate list is written with escapes, folds, an anchor or characters that no gate has",
            value=item.text,
            line=item.line,
            way_out="write it on one line, plain or in single quotes",
        )
    start, end = _inner(item)
    inner = yaml_text.splice(document.text[:end], [(splice.start, splice.end, splice.text.decode()) for splice in splices])
    text = inner.decode()[start:]
    if sequence.flow and item.style is None and "," in text:
        raise FormatError("a comma would split the argument", line=item.line, way_out="put the argument in quotes")
    return start, end, text


def _remove_items(document: Document, sequence: YamlNode, taken: Sequence[YamlNode]) -> list[TextEdit]:
    gone = {index for index, item in enumerate(sequence.items) if any(item is other for other in taken)}
    spans = [(item.start, item.end) for item in sequence.items]
    for index in gone:
        yaml_text.own(sequence.items[index])
    if sequence.flow:
        return yaml_text.flow_cut(document.text, spans, gone) if gone else []
    return yaml_text.cut_lines(document.text, (spans[index] for index in gone))


def _add_item(document: Document, sequence: YamlNode, flag: str) -> TextEdit:
    text = document.text
    last = sequence.items[-1]
    yaml_text.own(last)
    styles = [item.style for item in sequence.items[-2:]]
    quote = last.style if last.style in _QUOTES and len(set(styles)) == 1 else ""
    if sequence.flow:
        quote = quote or ('"' if "," in flag or document.is_json else "")
        spans = [(item.start, item.end) for item in sequence.items]
        return yaml_text.flow_add(text, spans, text.index("[", sequence.start) + 1, [f"{quote}{flag}{quote}"])
    lead = re.search(r"-(\s*)\Z", text[: last.start])
    if lead is None:
        raise FormatError("the last argument does not follow its dash", line=last.line, way_out="write it after the dash")
    indent = text[yaml_text.line_start(text, lead.start()) : lead.start()]
    gap = " " if "\n" in lead[1] else lead[1]
    # The list's first dash may follow something else on its line.
    return yaml_text.add_lines(text, last.end, [f"{indent if indent.isspace() else ' ' * len(indent)}-{gap}{quote}{flag}{quote}"])


def _verify(before: dict[str, Any], after: bytes, container: str, changes: GateChanges) -> None:
    """Read the result again: it must have the desired gates, and nothing else in the pod may have changed."""
    rest_before, rest_after = copy.deepcopy(before), yaml_text.load(after)
    old, new = container_of(rest_before, container), container_of(rest_after, container)
    reached = flags.reached(argv_of(old), argv_of(new), changes)
    for rest in (old, new):
        rest.pop("command", None)
        rest.pop("args", None)
    if not reached or not yaml_text.same(rest_before, rest_after):
        raise FormatError("the edit would not result in the desired manifest", value=container, way_out="edit it by hand")
