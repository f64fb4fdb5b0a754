"""YAML as sigs.k8s.io/yaml reads it, with the place of every node in the text, so that edits splice text and touch nothing else.

Kubernetes reads YAML 1.1 (go-yaml v2's resolver): `yes` and `on` are true. Positions are character indexes of the decoded text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from roles.formats.errors import FormatError

# go-yaml v2 resolve.go; ruamel's YAML 1.1 knows neither y nor n.
YAML_TRUE = frozenset(["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"])
YAML_FALSE = frozenset(["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"])


@dataclass(frozen=True)
class Document:
    """One YAML document: its text, its graph of nodes, and how often each node is referred to (more than once: an alias)."""

    text: str
    root: MappingNode
    references: Counter[int]

    def line(self, node: Node) -> int:
        return int(node.start_mark.line) + 1

    def child(self, parent: MappingNode, key: str) -> Node | None:
        """The value of a key. Raises FormatError where the key stands twice or comes from a merge."""
        found = [value for name, value in parent.value if isinstance(name, ScalarNode) and name.value == key]
        if len(found) > 1:
            raise FormatError("a key stands twice in one map", value=key, line=self.line(found[1]))
        if not found and any(isinstance(name, ScalarNode) and name.value == "<<" for name, _ in parent.value):
            raise FormatError("a map is put together with `<<`", value=key, line=self.line(parent), way_out="write the key out")
        return found[0] if found else None

    def own(self, node: Node) -> None:
        """Refuse to edit what stands behind an alias: it would change elsewhere too."""
        if self.references[id(node)] > 1:
            raise FormatError(
                "is used in several places by an anchor and aliases", line=self.line(node), way_out="write it out at each place"
            )


def parse(data: bytes) -> Document:
    """The one document of a file. Raises FormatError: not UTF-8, not YAML, several documents, no map at its top."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError("is not UTF-8", line=data.count(b"\n", 0, error.start) + 1) from None
    try:
        root = YAML(typ="rt", pure=True).compose(text)
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise FormatError(f"is not YAML: {problem}", line=mark.line + 1 if mark else None) from None
    if not isinstance(root, MappingNode):
        raise FormatError("holds no map at its top", value=text.strip()[:60])
    references: Counter[int] = Counter()
    _count(root, references)
    load(data)
    return Document(text, root, references)


def _count(node: Node, references: Counter[int]) -> None:
    references[id(node)] += 1
    if references[id(node)] > 1:
        return
    for child in _children(node):
        _count(child, references)


def _children(node: Node) -> Iterator[Node]:
    if isinstance(node, MappingNode):
        for key, value in node.value:
            yield key
            yield value
    elif isinstance(node, SequenceNode):
        yield from node.value


def load(data: bytes) -> Any:
    """The file's content as plain values. Raises FormatError, also for a key that stands twice."""
    yaml = YAML(typ="safe", pure=True)
    yaml.version = (1, 1)
    try:
        return yaml.load(data.decode("utf-8"))
    except DuplicateKeyError as error:
        mark = error.problem_mark
        raise FormatError("a key stands twice in one map", line=mark.line + 1 if mark else None) from None
    except YAMLError as error:
        raise FormatError(f"is not YAML: {str(error).splitlines()[0]}") from None


def plain_boolean(node: Node) -> bool | None:
    """The boolean a scalar is for Kubernetes, None where it is none (a quoted "true" is a string)."""
    if isinstance(node, ScalarNode) and node.style is None:
        if node.value in YAML_TRUE:
            return True
        if node.value in YAML_FALSE:
            return False
    return None


def eol(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def line_start(text: str, position: int) -> int:
    return text.rfind("\n", 0, position) + 1


def line_end(text: str, position: int) -> int:
    """Position behind the line end of the line that `position` lies in (the end of the text for a last line without one)."""
    found = text.find("\n", position)
    return len(text) if found < 0 else found + 1


def splice(text: str, edits: list[tuple[int, int, str]]) -> bytes:
    """The text with (start, end, replacement) edits made, as bytes."""
    result = []
    position = 0
    for start, end, new in sorted(edits, key=lambda edit: edit[:2]):
        if start < position:
            raise AssertionError("edits overlap")
        result += [text[position:start], new]
        position = end
    return "".join([*result, text[position:]]).encode("utf-8")


def whole_lines(text: str, start: int, end: int, rule: str) -> tuple[int, int]:
    """The lines that start..end takes up alone; FormatError (`rule`) where anything but a comment shares them."""
    begin, stop = line_start(text, start), line_end(text, end)
    behind = text[end:stop].strip()
    if text[begin:start].strip() not in ("", "-") or (behind and not behind.startswith("#")):
        raise FormatError(rule, value=text[begin:stop].strip(), line=text.count("\n", 0, start) + 1)
    return begin, stop


def remove_lines(text: str, begin: int, stop: int) -> tuple[int, int, str]:
    """Take lines out; the last one without a line end takes the line end before it along."""
    if not text[begin:stop].endswith("\n") and begin > 0:
        begin = len(re.sub(r"\r?\n\Z", "", text[:begin]))
    return begin, stop, ""


def add_line(text: str, after: int, line: str) -> tuple[int, int, str]:
    """Put a line behind the line that `after` lies in (`after` is in it or at its end)."""
    stop = line_end(text, after)
    if stop and text[:stop].endswith("\n"):
        return stop, stop, line + eol(text)
    return stop, stop, eol(text) + line


def flow_remove(text: str, nodes: list[tuple[int, int]], index: int, open_at: int) -> tuple[int, int, str]:
    """Take one item out of a flow list or map, with the comma and blanks that parted it from its neighbour."""
    start, end = nodes[index]
    if index > 0:
        return nodes[index - 1][1], end, ""
    if len(nodes) > 1:
        return start, nodes[1][0], ""
    return open_at + 1, end, ""


def same(before: Any, after: Any) -> bool:
    """Equal content, types too (True is not 1)."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return list(before) == list(after) and all(same(before[key], after[key]) for key in before)
    if isinstance(before, list) and isinstance(after, list):
        return len(before) == len(after) and all(same(a, b) for a, b in zip(before, after, strict=True))
    return type(before) is type(after) and bool(before == after)
