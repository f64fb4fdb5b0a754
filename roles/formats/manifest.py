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
    return _argv(_content_container(yaml_text.load(data), container))


def _argv(container: dict[str, Any]) -> list[str]:
    argv: list[str] = []
    for key in ("command", "args"):
        listed = container.get(key) or []
        if not isinstance(listed, list):
            raise FormatError(f"{key} is not a list", value=str(listed)[:60])
        argv += listed
    for word in argv:
        # The kubelet refuses a pod with anything else in the list.
        if not isinstance(word, str):
            raise FormatError("an argument is not a string", value=str(word), way_out="put it in quotes")
    return argv


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
    old = _argv(_content_container(before, container))
    lists = _argument_lists(document, container)
    items = [item for sequence in lists for item in sequence.value]
    words = [_word(document, item, str(number)) for number, item in enumerate(items)]
    edits: list[tuple[int, int, str]] = []
    taken: list[Node] = []

    def remove(gone: tuple[Mapped, ...]) -> list[Splice]:
        taken.extend(items[int(word.source)] for word in gone)
        return []

    def insert(flag: str) -> list[Splice]:
        flags.check_end(old)
        if not lists or not lists[-1].value:
            raise FormatError("the container has no command or args to add a flag to", value=container)
        edits.append(_add_item(document, lists[-1], flag))
        return []

    for splice in flags.edit(words, changes, remove, insert):
        item = items[int(splice.source)]
        if b"," in splice.text and item.style is None and any(item in found.value for found in lists if found.flow_style):
            raise FormatError("a comma would part the argument in two", line=document.line(item), way_out="put the argument in quotes")
        edits.append((splice.start, splice.end, splice.text.decode()))
    if not edits and not taken:
        return data
    for flag in flags.gate_flags(words):
        for word in flag.words:
            document.own(items[int(word.source)])
    for sequence in lists:
        document.own(sequence)
        edits += _remove_items(document, sequence, taken)
    after = yaml_text.splice(document.text, edits)
    _verify(before, after, container, changes)
    return after


def _remove_items(document: Document, sequence: SequenceNode, taken: list[Node]) -> list[tuple[int, int, str]]:
    text = document.text
    gone = {index for index, item in enumerate(sequence.value) if any(other is item for other in taken)}
    if not gone:
        return []
    spans = [(item.start_mark.index, item.end_mark.index) for item in sequence.value]
    if sequence.flow_style:
        return yaml_text.flow_remove(text, spans, gone)
    rule = "an argument shares its line with something else"
    return yaml_text.remove_lines(text, (yaml_text.whole_lines(text, *spans[index], rule) for index in gone))


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


def _add_item(document: Document, sequence: SequenceNode, flag: str) -> tuple[int, int, str]:
    text = document.text
    last = sequence.value[-1]
    document.own(last)
    styles = [item.style for item in sequence.value if isinstance(item, ScalarNode)]
    quote = styles[-1] if styles[-1] in ("'", '"') and len(styles) > 1 and styles[-2] == styles[-1] else ""
    if sequence.flow_style:
        # A comma in a plain item would part it in two.
        quote = '"' if '"' in styles or "," in flag else quote
        spans = [(item.start_mark.index, item.end_mark.index) for item in sequence.value]
        return spans[-1][1], spans[-1][1], yaml_text.flow_add(text, spans, [f"{quote}{flag}{quote}"])
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
    rest_before, rest_after = copy.deepcopy(before), copy.deepcopy(content)
    old, new = _content_container(rest_before, container), _content_container(rest_after, container)
    reached = flags.reached(_argv(old), _argv(new), changes)
    for rest in (old, new):
        rest.pop("command", None)
        rest.pop("args", None)
    if not reached or not yaml_text.same(rest_before, rest_after):
        raise FormatError("the edit would not give the manifest that is wanted", value=container, way_out="edit it by hand")
