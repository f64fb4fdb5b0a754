"""YAML as sigs.k8s.io/yaml reads it, with the place of every node in the text, so that edits splice text and touch nothing else.

Kubernetes reads YAML 1.1 (go-yaml v2's resolver): `yes` and `on` are true. Positions are character indexes of the decoded text.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError, SafeConstructor
from ruamel.yaml.error import ReusedAnchorWarning, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.resolver import VersionedResolver
from ruamel.yaml.tag import Tag

from roles.formats.errors import FormatError

# go-yaml v2 resolve.go; ruamel's YAML 1.1 knows neither y nor n.
YAML_TRUE = frozenset(["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"])
YAML_FALSE = frozenset(["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"])


class _Resolver(VersionedResolver):
    """YAML 1.1 throughout: ruamel's own falls back to 1.2 behind a `---`."""

    @property
    def processing_version(self) -> tuple[int, int]:
        return (1, 1)

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        if kind is ScalarNode and implicit[0] and value in ("y", "Y", "n", "N"):
            return Tag(suffix="tag:yaml.org,2002:bool")
        return super().resolve(kind, value, implicit)


class _Constructor(SafeConstructor):
    bool_values = SafeConstructor.bool_values | {"y": True, "n": False}


def _yaml(typ: str) -> YAML:
    yaml = YAML(typ=typ, pure=True)
    yaml.version = (1, 1)
    yaml.Resolver = _Resolver
    yaml.Constructor = _Constructor
    return yaml


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
    text = _decode(data)
    load(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ReusedAnchorWarning)  # YAML allows it
        root = _yaml("rt").compose(text)
    if not isinstance(root, MappingNode):
        raise FormatError("holds no map at its top", value=text.strip()[:60])
    references: Counter[int] = Counter()
    _count(root, references)
    return Document(text, root, references)


def _decode(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError("is not UTF-8", line=data.count(b"\n", 0, error.start) + 1) from None


def _count(node: Node, references: Counter[int]) -> None:
    references[id(node)] += 1
    # A second time, so that what an aliased node holds counts as aliased too; no third time, which could go on for ever.
    if references[id(node)] > 2:
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
    yaml = _yaml("safe")
    text = _decode(data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReusedAnchorWarning)
            return yaml.load(text)
    except DuplicateKeyError as error:
        mark = error.problem_mark
        raise FormatError("a key stands twice in one map", line=mark.line + 1 if mark else None) from None
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise FormatError(f"is not YAML: {problem}", line=mark.line + 1 if mark else None) from None
    except (ValueError, TypeError, RecursionError) as error:
        # Such as a date that does not exist, a map as a key, brackets a thousand deep.
        raise FormatError(f"is not YAML that can be read: {error}") from None


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
    """The text with (start, end, replacement) edits made, as bytes. Edits must not overlap."""
    result = []
    position = 0
    for start, end, new in sorted(edits, key=lambda edit: edit[:2]):
        if start < position:
            raise FormatError("two edits meet in one place", value=new, way_out="edit it by hand")
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


def remove_lines(text: str, lines: Iterable[tuple[int, int]]) -> list[tuple[int, int, str]]:
    """Take lines (begin, stop) out; the last of the text without a line end takes the line end before it along."""
    blocks: list[tuple[int, int]] = []
    for begin, stop in sorted(set(lines)):
        if blocks and blocks[-1][1] == begin:
            blocks[-1] = (blocks[-1][0], stop)
        else:
            blocks.append((begin, stop))
    if blocks and not text[: blocks[-1][1]].endswith("\n"):
        begin, stop = blocks[-1]
        blocks[-1] = (_content_end(text, begin), stop)
    return [(begin, stop, "") for begin, stop in blocks]


def _content_end(text: str, stop: int) -> int:
    """Position in front of the line end that `stop` lies behind."""
    return stop - len(re.search(r"(\r?\n)?\Z", text[:stop])[0])  # type: ignore[index]  # it always matches


def add_line(text: str, after: int, line: str) -> tuple[int, int, str]:
    """Put a line behind the line that `after` lies in (`after` is in it or at its end)."""
    end = _content_end(text, line_end(text, after))
    return end, end, eol(text) + line


def flow_remove(text: str, nodes: list[tuple[int, int]], gone: set[int]) -> list[tuple[int, int, str]]:
    """Take items out of a flow list or map, with the comma and blanks that parted them from their neighbours."""
    kept = [index for index in range(len(nodes)) if index not in gone]
    if not nodes or not gone:
        return []
    if not kept:
        last_comma = re.compile(r"\s*,").match(text, nodes[-1][1])
        return [(nodes[0][0], last_comma.end() if last_comma else nodes[-1][1], "")]
    edits = []
    if kept[0] > 0:
        edits.append((nodes[0][0], nodes[kept[0]][0], ""))
    for index, following in zip(kept, [*kept[1:], len(nodes)], strict=True):
        if following > index + 1:
            edits.append((nodes[index][1], nodes[following - 1][1], ""))
    return edits


def flow_add(text: str, nodes: list[tuple[int, int]], items: Iterable[str]) -> str:
    """What to put behind the last item, parted as the last two are."""
    between = text[nodes[-2][1] : nodes[-1][0]] if len(nodes) > 1 else ""
    comma = between if re.fullmatch(r"\s*,\s*", between) else ", "
    return "".join(comma + item for item in items)


def same(before: Any, after: Any) -> bool:
    """Equal content, types too (True is not 1)."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return list(before) == list(after) and all(same(before[key], after[key]) for key in before)
    if isinstance(before, list) and isinstance(after, list):
        return len(before) == len(after) and all(same(a, b) for a, b in zip(before, after, strict=True))
    return type(before) is type(after) and bool(before == after)
