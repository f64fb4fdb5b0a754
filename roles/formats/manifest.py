"""Static pod manifests: the arguments of a container, edited in place (Pod v1; YAML as sigs.k8s.io/yaml reads it)."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from roles.formats import flags, yaml_text
from roles.formats.errors import FormatError
from roles.formats.flags import GateChanges
from roles.formats.mapped import Mapped, Splice
from roles.formats.yaml_text import Document


@dataclass(frozen=True)
class Pod:
    """What a manifest says of its pod."""

    namespace: str
    name: str
    host_network: bool
    containers: tuple[str, ...]


def read(data: bytes) -> Pod:
    """The pod of a manifest. Raises FormatError for what is no pod."""
    content = yaml_text.load(data)
    if not isinstance(content, dict) or content.get("kind") != "Pod":
        raise FormatError("is not a Pod", value=str(content.get("kind") if isinstance(content, dict) else content)[:60])
    metadata = content.get("metadata") or {}
    spec = content.get("spec") or {}
    containers = tuple(str(item.get("name")) for item in spec.get("containers") or [] if isinstance(item, dict))
    # A static pod without a namespace is in `default` (pkg/kubelet/config/common.go, applyDefaults).
    return Pod(str(metadata.get("namespace") or "default"), str(metadata.get("name", "")), bool(spec.get("hostNetwork")), containers)


def container_argv(data: bytes, container: str) -> list[str]:
    """command and args of a container, as they stand. Raises FormatError where there is no such container."""
    found = _content_container(yaml_text.load(data), container)
    return [str(word) for word in (found.get("command") or []) + (found.get("args") or [])]


def _content_container(content: Any, container: str) -> dict[str, Any]:
    listed = ((content or {}).get("spec") or {}).get("containers") or []
    named = [item for item in listed if isinstance(item, dict) and item.get("name") == container]
    if len(named) != 1:
        names = ", ".join(str(item.get("name")) for item in listed if isinstance(item, dict)) or "none"
        raise FormatError(f"has {len(named)} containers of the name; its containers are: {names}", value=container)
    return named[0]


def edit_gates(data: bytes, container: str, changes: GateChanges) -> bytes:
    """The manifest with the container's --feature-gates as wanted; the same bytes where they are so already.

    A new flag becomes one new item at the end of args (or of command, where there are no args), written like its neighbours.
    Raises FormatError where the file cannot be read, has no such container, or the edit needs guessing.
    """
    document = yaml_text.parse(data)
    before = yaml_text.load(data)
    _content_container(before, container)
    lists = _argument_lists(document, container)
    items = [item for sequence in lists for item in sequence.value]
    words = [_word(document, item, str(number)) for number, item in enumerate(items)]
    edits: list[tuple[int, int, str]] = []

    def remove(gone: tuple[Mapped, ...]) -> list[Splice]:
        for word in gone:
            edits.append(_remove_item(document, lists, items[int(word.source)]))
        return []

    def insert(flag: str) -> list[Splice]:
        if any(word.string == "--" for word in words):
            raise FormatError("a bare `--` ends the flags before the place a new one would go to", value=container)
        if not lists or not lists[-1].value:
            raise FormatError("the container has no command or args to add a flag to", value=container)
        edits.append(_add_item(document, lists[-1], flag))
        return []

    for splice in flags.edit(words, changes, remove, insert):
        edits.append((splice.start, splice.end, splice.text.decode()))
    if not edits:
        return data
    document_touched = {int(word.source) for flag in flags.gate_flags(words) for word in flag.words}
    for index in document_touched:
        document.own(items[index])
    for sequence in lists:
        document.own(sequence)
    after = yaml_text.splice(document.text, edits)
    _verify(before, after, container, changes)
    return after


def _argument_lists(document: Document, container: str) -> list[SequenceNode]:
    spec = document.child(document.root, "spec")
    listed = document.child(spec, "containers") if isinstance(spec, MappingNode) else None
    found: list[SequenceNode] = []
    for item in listed.value if isinstance(listed, SequenceNode) else ():
        name = document.child(item, "name") if isinstance(item, MappingNode) else None
        if isinstance(name, ScalarNode) and name.value == container:
            for key in ("command", "args"):
                sequence = document.child(item, key)
                if isinstance(sequence, SequenceNode) and sequence.value:
                    found.append(sequence)
    return found


def _word(document: Document, item: Node, source: str) -> Mapped:
    """An item as a word whose bytes lead back to the text. Where its writing has escapes or folds, the spans are empty: it can
    be read, and an edit inside it is refused by `_editable`."""
    if not isinstance(item, ScalarNode):
        raise FormatError("an argument is not a string", line=document.line(item))
    start, end = item.start_mark.index, item.end_mark.index
    quoted = item.style in ("'", '"')
    inner = document.text[start + 1 : end - 1] if quoted else document.text[start:end]
    value = str(item.value)
    text = value.encode("utf-8")
    if inner != value or item.anchor or not value.isascii():
        if flags.FEATURE_GATES in value.replace("_", "-"):
            raise FormatError(
                "a gate list is written with escapes, folds, an anchor or letters that no gate has",
                value=value,
                line=document.line(item),
                way_out="write it on one line, plain or in simple quotes",
            )
        return Mapped(text, ((start, end),) * len(text), (start, end), source)
    first = start + quoted
    return Mapped(text, tuple((first + i, first + i + 1) for i in range(len(text))), (start, end), source)


def _remove_item(document: Document, lists: list[SequenceNode], item: Node) -> tuple[int, int, str]:
    text = document.text
    sequence = next(sequence for sequence in lists if any(other is item for other in sequence.value))
    index = next(number for number, other in enumerate(sequence.value) if other is item)
    if sequence.flow_style:
        spans = [(other.start_mark.index, other.end_mark.index) for other in sequence.value]
        return yaml_text.flow_remove(text, spans, index, sequence.start_mark.index)
    begin, stop = yaml_text.whole_lines(text, item.start_mark.index, item.end_mark.index, "an argument shares its line with something else")
    return yaml_text.remove_lines(text, begin, stop)


def _add_item(document: Document, sequence: SequenceNode, flag: str) -> tuple[int, int, str]:
    text = document.text
    last = sequence.value[-1]
    styles = [item.style for item in sequence.value if isinstance(item, ScalarNode)]
    quote = styles[-1] if styles[-1] in ("'", '"') and len(styles) > 1 and styles[-2] == styles[-1] else ""
    quote = '"' if sequence.flow_style and '"' in styles else quote
    if sequence.flow_style:
        end = last.end_mark.index
        return end, end, f", {quote}{flag}{quote}"
    if last.style in ("|", ">"):
        raise FormatError("the last argument is a block of text", line=document.line(last), way_out="write it on one line")
    start = last.start_mark.index
    begin = yaml_text.line_start(text, start)
    lead = text[begin:start]
    if lead.strip() != "-":
        # The first item may stand behind its key's dash; the indent of a block list is where its dashes stand.
        lead = " " * (sequence.start_mark.column) + "- "
    return yaml_text.add_line(text, last.end_mark.index, f"{lead}{quote}{flag}{quote}")


def _verify(before: Any, after: bytes, container: str, changes: GateChanges) -> None:
    """Read the outcome again: the gates are as wanted, and nothing else in the pod has changed."""
    content = yaml_text.load(after)
    old, new = _content_container(before, container), _content_container(content, container)
    old_argv = [str(word) for word in (old.get("command") or []) + (old.get("args") or [])]
    new_argv = [str(word) for word in (new.get("command") or []) + (new.get("args") or [])]
    wanted = {name: value for name, value in flags.effective_gates(old_argv).items() if changes.get(name, value) is not None}
    wanted |= {name: value for name, value in changes.items() if value is not None}
    rest_before, rest_after = copy.deepcopy(before), copy.deepcopy(content)
    for rest in (rest_before, rest_after):
        for key in ("command", "args"):
            _content_container(rest, container).pop(key, None)
    if flags.effective_gates(new_argv) != wanted or not yaml_text.same(rest_before, rest_after):
        raise FormatError("the edit would not give the manifest that is wanted", value=container, way_out="edit it by hand")
