"""YAML and JSON as Kubernetes reads them, with the place of every node in the text, so that edits splice text and change nothing else.

Sources: k8s.io/apimachinery pkg/util/yaml (ToJSON: a text that begins with `{` is JSON), sigs.k8s.io/yaml (YAMLToJSON), go.yaml.in/yaml/v2
resolve.go and decode.go: YAML 1.1, where `yes`, `on` and `y` are true. Positions are character indexes of the decoded text.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from roles.engine.bounds import Twice, once, read_json
from roles.engine.editing.errors import FormatError

# (start, end, replacement) in characters of the text.
TextEdit = tuple[int, int, str]

_TRUE = frozenset(["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"])
_FALSE = frozenset(["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"])
_NULL = frozenset(["", "~", "null", "Null", "NULL"])
_NO_JSON = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
# Go's strconv.ParseInt with base 0, after underscores are removed.
_INTEGER = re.compile(r"([-+]?)(0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9][0-9]*)")
#: 64 bits, with the sign and 0b.
_LONGEST_INTEGER = 67
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_STRING_TAG = "tag:yaml.org,2002:str"
# Characters that ruamel refuses (YAML 1.2.2, 5.1 c-printable).
_NO_YAML = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_LAST_END = re.compile(r"(\r?\n)?\Z")
_CORRECT = "correct it by hand"
_NO_ALIAS = "write out its value"
_OWN_LINE = "write it on a separate line"
# More nodes than any real file has, with its aliases expanded.
_MOST_NODES = 100_000
# More brackets within brackets than any real file has; the time to read them grows with the cube of their number.
_MOST_BRACKETS = 300
# How many texts are cached with their nodes: enough for the files of one cluster node, and for those that all nodes share.
_REMEMBERED = 64


@dataclass(eq=False)
class YamlNode:
    """A part of the text. `aliased`: other places refer to it too, so an edit would change them as well."""

    kind: Literal["scalar", "list", "map"]
    start: int
    end: int
    line: int
    column: int
    text: str = ""
    style: str | None = None
    tag: str | None = None
    flow: bool = False
    items: list[YamlNode] = field(default_factory=list)
    pairs: list[tuple[YamlNode, YamlNode]] = field(default_factory=list)
    aliased: bool = False
    nodes: int = 1

    @property
    def plain(self) -> bool:
        return self.kind == "scalar" and self.style is None and self.tag is None

    @property
    def null(self) -> bool:
        return self.plain and self.text in _NULL

    @property
    def merges(self) -> bool:
        """True for a map that is merged with `<<`."""
        return any(_is_merge(key) for key, _ in self.pairs)


@dataclass(frozen=True)
class Document:
    """One file: its text, its top map, its content as Kubernetes reads it, and where its document ends: before a following `...` or `---`,
    or at the end of the text."""

    text: str
    root: YamlNode
    content: dict[str, Any]
    end: int

    def node(self, path: Iterable[str]) -> YamlNode | None:
        """The value at a path of keys."""
        found: YamlNode | None = self.root
        for name in path:
            found = next((value for key, value in found.pairs if key_name(key) == name), None) if found else None
        return found

    def child(self, parent: YamlNode, key: str) -> YamlNode | None:
        """The value of a key, for an edit. Raises FormatError if the edit would change other places too, or if a merge may set the key."""
        if parent.merges:
            raise FormatError("a mapping is merged with `<<`", value=key, line=parent.line, way_out="write out its keys")
        own(parent)
        return next((value for name, value in parent.pairs if name.text == key), None)


def own(node: YamlNode) -> None:
    """Refuse to edit a node with aliases. Raises FormatError."""
    if node.aliased:
        raise FormatError("is used in several places by an anchor and aliases", line=node.line, way_out="write it out at each place")


def parse(data: bytes) -> Document:
    """The only document of a file, with a content that the caller may change. A document's end (`...`), and empty documents after it
    (`---` as the last line), do not count as other documents. Raises FormatError: not UTF-8, neither YAML nor JSON, several documents, no
    map at its top, a key that occurs twice."""
    document = _parse(data)
    return replace(document, content=copy.deepcopy(document.content))


# Callers read a file's values, gates and lines one after the other, each time from its bytes; and most nodes have the same files.
@lru_cache(_REMEMBERED)
def _parse(data: bytes) -> Document:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError("is not UTF-8", line=data.count(b"\n", 0, error.start) + 1, way_out="write it in UTF-8") from None
    try:
        if text.lstrip().startswith("{"):
            content = _json(text)
            # A tab is a blank in JSON; its strings cannot have one.
            root, end = _compose(text.replace("\t", " "))
        else:
            root, end = _compose_yaml(text)
            content = _map(root) if root.kind == "map" else {}
    except RecursionError:
        raise FormatError("is nested too deeply", way_out="remove some of its levels") from None
    if root.kind != "map":
        raise FormatError("has no mapping at its top", value=text.strip()[:60], way_out="write it as fields, NAME: VALUE")
    return Document(text, root, content, end)


def load(data: bytes) -> dict[str, Any]:
    """The file's content as plain values. Raises FormatError as `parse` does."""
    return parse(data).content


def tops(text: str) -> list[YamlNode]:
    """The top nodes of all documents of a text, of any kind, tags included: for reading only, not for edits.

    Characters that YAML does not have count as letters. Raises FormatError for a text that is not YAML.
    """
    text = _NO_YAML.sub("_", text)
    try:
        events = iter(_events(text.replace("\t", " ") if text.lstrip().startswith("{") else text))
        return [_Composer(events, tags=True).node() for event in events if isinstance(event, DocumentStartEvent)]
    except RecursionError:
        raise FormatError("is nested too deeply", way_out="remove some of its levels") from None


def mapping(holder: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The mapping at a key; {} if there is none. Raises FormatError for anything else."""
    found = holder.get(key)
    if found is not None and not isinstance(found, dict):
        raise FormatError(f"{key} is not a mapping", value=str(found)[:60], way_out="write it as a mapping")
    return found or {}


def listing(holder: Mapping[str, Any], key: str, *, of_maps: str = "") -> list[Any]:
    """The list at a key; [] if there is none. `of_maps`: each item is a mapping ("": any), and this is the list's name. Raises
    FormatError for anything else."""
    found = holder.get(key)
    if found is not None and not (isinstance(found, list) and (not of_maps or all(isinstance(item, dict) for item in found))):
        what = f"{of_maps} is not a list of mappings" if of_maps else f"{key} is not a list"
        raise FormatError(what, value=str(found)[:60], way_out="write it as a list")
    return found or []


# ---- reading


def _json(text: str) -> dict[str, Any]:
    try:
        content: dict[str, Any] = read_json(text, pairs=once)
    except Twice as error:
        raise FormatError("a key occurs twice in one mapping", value=error.key, way_out="remove one of them") from None
    except json.JSONDecodeError as error:
        raise FormatError(f"begins as JSON, but is not JSON: {error.msg}", line=error.lineno, way_out=_CORRECT) from None
    except ValueError as error:
        raise FormatError(f"begins as JSON, but is not JSON: {error}", way_out=_CORRECT) from None
    return content


def _compose_yaml(text: str) -> tuple[YamlNode, int]:
    try:
        return _compose(text)
    except FormatError:
        # go-yaml takes a tab for a blank outside indents; ruamel does not. The copy has everything else at the same place.
        indents = re.compile(r"^[ \t]*(?:[-?:][ \t]+)*", re.MULTILINE)
        copy = "".join(found.group() if part else found.group().replace("\t", " ") for part, found in _cut(text, indents))
        if copy == text:
            raise
        root, end = _compose(copy)
        if any("\t" in text[node.start : node.end] for node in walk(root) if node.kind == "scalar"):
            raise
        return root, end


def _cut(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[bool, re.Match[str]]]:
    """The text in pieces: those that match the pattern (True), and those between them."""
    position = 0
    between = re.compile(r"[\s\S]*")
    for found in pattern.finditer(text):
        if gap := between.fullmatch(text, position, found.start()):
            yield False, gap
        yield True, found
        position = found.end()
    if rest := between.fullmatch(text, position):
        yield False, rest


def walk(node: YamlNode) -> Iterator[YamlNode]:
    """A node and all nodes below it; a node with aliases once for each of them."""
    yield node
    for child in (*node.items, *(part for pair in node.pairs for part in pair)):
        yield from walk(child)


def _compose(text: str) -> tuple[YamlNode, int]:
    """The top node of a text, and where its document ends."""
    events = _events(text)
    starts = [number for number, event in enumerate(events) if isinstance(event, DocumentStartEvent)]
    if not starts:
        raise FormatError("is empty", way_out="restore its content, or remove it")
    first = events[starts[0]]
    assert isinstance(first, DocumentStartEvent)  # `starts` has only these
    for start in starts[1:]:
        if not _is_bare(events, start):
            raise FormatError(
                "has several YAML documents; Kubernetes reads only the first",
                line=_line(events[start]),
                way_out="remove the others, or move each to its own file",
            )
    if first.tags or first.version not in (None, (1, 1)):
        raise FormatError("begins with a YAML directive", line=_line(first), way_out="remove it")
    if _is_bare(events, starts[0]):
        raise FormatError("is empty", way_out="restore its content, or remove it")
    return _Composer(events[2:]).node(), _document_end(text, events, starts)


def _events(text: str) -> list[Event]:
    if _brackets(text) > _MOST_BRACKETS:
        raise FormatError("is nested too deeply", way_out="remove some of its levels")
    try:
        return list(YAML(typ="safe", pure=True).parse(text))
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise FormatError(f"is not YAML: {problem}", line=mark.line + 1 if mark else None, way_out=_CORRECT) from None


def _brackets(text: str) -> int:
    """The largest number of brackets that are open at once, including those in texts and comments."""
    depth = most = 0
    for found in re.finditer(r"[\[\]{}]", text):
        depth = depth + 1 if found.group() in "[{" else max(0, depth - 1)
        most = max(most, depth)
    return most


def _is_bare(events: Sequence[Event], start: int) -> bool:
    """True for a document that has only its markers, and comments."""
    document, content = events[start], events[start + 1]
    assert isinstance(document, DocumentStartEvent)
    bare = isinstance(content, ScalarEvent) and (content.value, content.style, content.anchor, content.tag) == ("", None, None, None)
    return bare and content.start_mark.index == content.end_mark.index and not (document.tags or document.version)


def _document_end(text: str, events: Sequence[Event], starts: Sequence[int]) -> int:
    end = next(event for event in events if isinstance(event, DocumentEndEvent))
    if end.explicit:
        return int(end.start_mark.index)
    return int(events[starts[1]].start_mark.index) if len(starts) > 1 else len(text)


def _line(event: Event) -> int:
    return int(event.start_mark.line) + 1


class _Composer:
    """Composes nodes from events; an alias becomes another reference to its node."""

    def __init__(self, events: Iterable[Event], tags: bool = False) -> None:
        self.events = iter(events)
        self.tags = tags
        self.anchors: dict[str, YamlNode] = {}
        self.open: set[int] = set()

    def node(self) -> YamlNode:
        return self._node(next(self.events))

    def _node(self, event: Event) -> YamlNode:
        if isinstance(event, AliasEvent):
            return self._alias(event)
        assert isinstance(event, NodeEvent)  # no other event can start a node
        place = (event.start_mark.index, event.end_mark.index, line := _line(event), event.start_mark.column)
        if isinstance(event, ScalarEvent):
            tag = str(event.tag) if event.tag else None
            node = YamlNode("scalar", *place, text=str(event.value), style=event.style or None, tag=tag)
            if tag not in (None, _STRING_TAG) and not self.tags:
                raise FormatError("has a YAML tag", value=tag, line=line, way_out="write the value without it")
            self._name(event, node)
            return node
        kind: Literal["list", "map"] = "list" if isinstance(event, SequenceStartEvent) else "map"
        node = YamlNode(kind, *place, flow=bool(getattr(event, "flow_style", False)))
        if (tag := getattr(event, "tag", None)) and not self.tags:
            raise FormatError("has a YAML tag", value=str(tag), line=line, way_out="write the value without it")
        self._name(event, node)
        self.open.add(id(node))
        for inner in self.events:
            if isinstance(inner, (SequenceEndEvent, MappingEndEvent)):
                node.end = inner.end_mark.index
                break
            first = self._node(inner)
            node.nodes += first.nodes
            if isinstance(event, MappingStartEvent):
                second = self.node()
                node.nodes += second.nodes
                node.pairs.append((first, second))
            else:
                node.items.append(first)
            if node.nodes > _MOST_NODES:
                raise FormatError("is too large, with its aliases expanded", line=line, way_out="use fewer aliases")
        self.open.remove(id(node))
        return node

    def _name(self, event: Any, node: YamlNode) -> None:
        if event.anchor:
            self.anchors[str(event.anchor)] = node

    def _alias(self, event: Any) -> YamlNode:
        node = self.anchors.get(str(event.anchor))
        if node is None:
            raise FormatError("an alias to an anchor that does not exist", value=str(event.anchor), line=_line(event), way_out=_NO_ALIAS)
        if id(node) in self.open:
            raise FormatError("an anchor's value contains itself", value=str(event.anchor), line=_line(event), way_out=_NO_ALIAS)
        node.aliased = True
        return node


def _is_merge(key: YamlNode) -> bool:
    return key.plain and key.text == "<<"


def _map(node: YamlNode) -> dict[str, Any]:
    content: dict[str, Any] = {}
    written: set[str] = set()
    for key, value in node.pairs:
        if _is_merge(key):
            # A later key overrides an earlier one, also if the later one comes from a merge (go-yaml v2, decode.go).
            for merged in reversed(value.items if value.kind == "list" else [value]):
                if merged.kind != "map":
                    raise FormatError("`<<` accepts only mappings", line=value.line, way_out="write out its keys")
                content |= _map(merged)
            continue
        name = key_name(key)
        if name in written:
            raise FormatError("a key occurs twice in one mapping", value=name, line=key.line, way_out="remove one of them")
        written.add(name)
        content[name] = _value(value)
    return content


def key_name(key: YamlNode) -> str:
    """A key as JSON has it: `on` is "true". Raises FormatError for a node that cannot be a key."""
    value = _value(key) if key.kind == "scalar" else None
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        raise FormatError("a key is not a string", line=key.line, way_out="put it in quotes")
    return str(value)


def _value(node: YamlNode) -> Any:
    if node.kind == "map":
        return _map(node)
    if node.kind == "list":
        return [_value(item) for item in node.items]
    if any("\ud800" <= character <= "\udfff" for character in node.text):
        raise FormatError("is not YAML: half a Unicode character", line=node.line, way_out=_CORRECT)
    return _scalar(node) if node.plain else node.text


def _scalar(node: YamlNode) -> Any:
    """The value that go-yaml v2 reads from a plain scalar."""
    text = node.text
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if text in _NULL:
        return None
    if _NO_JSON.fullmatch(text):
        raise FormatError("a number that JSON does not have", value=text, line=node.line, way_out=_CORRECT)
    if text[0] not in "+-.0123456789":
        return text
    digits = text if text[0] == "." else text.replace("_", "")
    if (found := _INTEGER.fullmatch(digits)) and len(digits) <= _LONGEST_INTEGER:
        sign, number = found.groups()
        octal = re.fullmatch(r"0[0-7]+", number) is not None
        value = int(sign + number, 8 if octal else 0)
        # Beyond 64 bits it is a float, or else a string.
        if -(2**63) <= value < (2**63 if sign else 2**64):
            return value
    if _FLOAT.fullmatch(digits) and abs(float(digits)) != float("inf"):
        return float(digits)
    return text


# ---- writing


def splice(text: str, edits: Iterable[TextEdit]) -> bytes:
    """The text with the edits applied, as bytes; those at one position keep their order."""
    result = []
    position = 0
    for start, end, new in sorted(edits, key=lambda edit: edit[:2]):
        if start < position:
            raise FormatError("two edits overlap", line=text.count("\n", 0, start) + 1, way_out="edit it by hand")
        result += [text[position:start], new]
        position = end
    return "".join([*result, text[position:]]).encode("utf-8")


def line_end_of(text: str) -> str:
    """The line ends of a file. Raises FormatError for line ends that daytwo does not write."""
    if re.search(r"\r(?!\n)|[\x85\u2028\u2029]", text):
        raise FormatError("has line ends other than LF and CR LF", way_out="edit it by hand")
    return "\r\n" if "\r\n" in text else "\n"


def line_start(text: str, position: int) -> int:
    return text.rfind("\n", 0, position) + 1


def line_stop(text: str, position: int) -> int:
    """The position after the line end of `position`'s line (the end of the text for a last line without one)."""
    found = text.find("\n", position)
    return len(text) if found < 0 else found + 1


def cut_lines(text: str, parts: Iterable[tuple[int, int]]) -> list[TextEdit]:
    """Remove the lines of each part (start, end), with a comment after it.

    Raises FormatError if the lines have something else.
    """
    blocks: list[tuple[int, int]] = []
    for start, end in sorted(parts):
        # The end of a block of text is the start of the next line.
        begin, stop = line_start(text, start), end if text[end - 1] == "\n" else line_stop(text, end)
        behind = text[end:stop].strip()
        if text[begin:start].strip() not in ("", "-") or (behind and not behind.startswith("#")):
            line = text.count("\n", 0, start) + 1
            raise FormatError("shares its line with something else", value=text[begin:stop].strip(), line=line, way_out=_OWN_LINE)
        if blocks and blocks[-1][1] == begin:
            blocks[-1] = (blocks[-1][0], stop)
        else:
            blocks.append((begin, stop))
    if blocks and not text[: blocks[-1][1]].endswith("\n"):
        # The text has no line end at its end, and gets none.
        begin, stop = blocks[-1]
        blocks[-1] = (_content_end(text, begin), stop)
    return [(begin, stop, "") for begin, stop in blocks]


def add_lines(text: str, position: int, lines: Iterable[str]) -> TextEdit:
    """Add lines after the line of `position`, or after the line that ends there."""
    stop = position if text[position - 1] == "\n" else line_stop(text, position)
    place = _content_end(text, stop)
    end = line_end_of(text)
    return place, place, "".join(end + line for line in lines)


def _content_end(text: str, stop: int) -> int:
    """The position before the line end that precedes `stop`."""
    return stop - len(_LAST_END.search(text, 0, stop)[0])  # type: ignore[index]  # it always matches


def flow_cut(text: str, spans: Sequence[tuple[int, int]], gone: set[int]) -> list[TextEdit]:
    """Remove entries from a flow list or map, with the commas and blanks between them and their neighbours.

    Raises FormatError if a comment would be removed too.
    """
    kept = [index for index in range(len(spans)) if index not in gone]
    edits: list[TextEdit] = []
    if not kept:
        comma = re.compile(r"\s*,").match(text, spans[-1][1])
        edits.append((spans[0][0], comma.end() if comma else spans[-1][1], ""))
    elif kept[0] > 0:
        edits.append((spans[0][0], spans[kept[0]][0], ""))
    for index, following in pairwise([*kept, len(spans)]):
        if following > index + 1:
            edits.append((spans[index][1], spans[following - 1][1], ""))
    for (_, stop), (start, _) in pairwise(spans):
        if "#" in text[stop:start] and any(begin <= stop and start <= end for begin, end, _ in edits):
            line = text.count("\n", 0, stop) + 1
            raise FormatError("a comment is next to the part that should be removed", line=line, way_out="remove it by hand")
    return edits


def flow_add(text: str, spans: Sequence[tuple[int, int]], opened: int, entries: Iterable[str]) -> TextEdit:
    """Add entries after the last one of a flow list or map, separated like its neighbours. `opened`: the position after its bracket."""
    between = text[spans[-2][1] : spans[-1][0]] if len(spans) > 1 else "," + text[opened : spans[0][0]]
    if len(spans) == 1 and "\n" not in between:
        # The text after a bracket says little about how entries are separated.
        between = ", "
    comma = between if re.fullmatch(r"\s*,\s*", between) else ", "
    return spans[-1][1], spans[-1][1], "".join(comma + entry for entry in entries)


def same(before: Any, after: Any) -> bool:
    """Equal content, types too (True is not 1)."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return before.keys() == after.keys() and all(same(before[key], after[key]) for key in before)
    if isinstance(before, list) and isinstance(after, list):
        return len(before) == len(after) and all(same(a, b) for a, b in zip(before, after, strict=True))
    return type(before) is type(after) and bool(before == after)
