"""KubeletConfiguration files (kubelet.config.k8s.io/v1beta1): what they set, and edits of any field in place."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from itertools import pairwise
from typing import Any, Final

from roles.engine.editing import words, yaml_text
from roles.engine.editing.errors import FormatError
from roles.engine.editing.flags import GateChanges
from roles.engine.editing.yaml_text import Document, TextEdit, YamlNode

KIND = "KubeletConfiguration"
_KEY = "featureGates"
# Names, paths, quantities and durations. `scalar_text` checks that YAML readers take such a text for a string.
_PLAIN = re.compile(r"[A-Za-z/_][A-Za-z0-9_./-]*|[1-9][0-9]*(ms|[smh]|k|[KMGTPE]i?)")
# A flag, or a flag's value by names, that every reader of YAML takes for a string without quotes. In brackets a comma ends it.
_ARGUMENT = re.compile(r"(--[A-Za-z0-9][A-Za-z0-9_.-]*|[A-Za-z][A-Za-z0-9_.-]*(?==))(=[A-Za-z0-9_./:,=@+%*<>-]*[A-Za-z0-9_./=@+%*<>-])?")
# The forms of a map without fields. Blanks record which form it had before daytwo added the first field: `{a: 1 }` was `{}`; each of
# the others has one more blank in front: `{  a: 1}` was `null`, `{   a: 1}` was `~`.
_EMPTY_MAP = "{}"
_NULLS = ("null", "~", "", "Null", "NULL")
# Some readers of YAML 1.1 do not take these for strings.
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})

FieldPath = tuple[str, ...]


class Absent(Enum):
    """The type of ABSENT, which means that a field should be removed."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT


def read(data: bytes) -> dict[str, Any]:
    """The file's fields. Raises FormatError for a file that is not a KubeletConfiguration."""
    return parse(data).content


def parse(data: bytes, kind: str = KIND) -> Document:
    """The document of a file of this kind. Raises FormatError."""
    document = yaml_text.parse(data)
    found = document.content.get("kind")
    if found != kind:
        raise FormatError(f"is not a {kind}", value=str(found)[:60], way_out=f"write kind: {kind}")
    return document


def merge(main: bytes | None, dropins: Sequence[bytes]) -> dict[str, Any]:
    """The effective fields of a --config file and the drop-ins of a --config-dir: maps merge, null deletes, the rest is replaced
    (KEP-3983; cmd/kubelet/app/server.go, mergeKubeletConfigurations: a JSON merge patch, RFC 7386)."""
    merged = read(main) if main is not None else {}
    for dropin in dropins:
        merged = _merge(merged, read(dropin))
    return merged


def _merge(base: Any, over: dict[str, Any]) -> dict[str, Any]:
    result = dict(base) if isinstance(base, dict) else {}
    for key, value in over.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merge(result.get(key), value) if isinstance(value, dict) else value
    return result


def lines(data: bytes) -> dict[FieldPath, int]:
    """The line (1-based) of each field's key, also in nested maps: ("evictionHard", "memory.available"): 7. Raises FormatError."""
    found: dict[FieldPath, int] = {}

    def walk(node: YamlNode, path: FieldPath) -> None:
        for key, value in node.pairs:
            here = (*path, yaml_text.key_name(key))
            found[here] = key.line
            if value.kind == "map":
                walk(value, here)

    walk(parse(data).root, ())
    return found


def gates(data: bytes) -> dict[str, bool]:
    """The gates that a file sets. Raises FormatError for a value that the kubelet would not accept as a boolean."""
    return _gates(parse(data))


def _gates(document: Document) -> dict[str, bool]:
    found = document.content.get(_KEY)
    line = _line(document, (_KEY,))
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise FormatError("featureGates is not a mapping", line=line, way_out="write lines of NAME: true or NAME: false below it")
    for name, value in found.items():
        if not isinstance(value, bool):
            raise FormatError(
                "a feature gate's value is not a boolean",
                value=f"{name}: {value}",
                line=_line(document, (_KEY, name)) or line,
                way_out="write true or false",
            )
    return dict(found)


def edit_gates(data: bytes, changes: GateChanges) -> bytes:
    """The file with the desired featureGates; the same bytes if it has them already.

    Raises FormatError if the file cannot be read or the edit is ambiguous.
    """
    gates(data)
    return edit_fields(data, {(_KEY, name): ABSENT if value is None else value for name, value in changes.items()})


def edit_fields(data: bytes, changes: Mapping[FieldPath, object], kind: str = KIND, changer: type[Changer] | None = None) -> bytes:
    """The file of a `kind`, with fields set, or (ABSENT) removed; the same bytes if nothing changes.

    `changes` is by path, such as ("evictionHard", "memory.available"): "500Mi", ("maxPods",): 200, ("clusterDNS",): ["10.0.0.10"] or
    ("authentication", "anonymous"): ABSENT. Values are str, bool, int, float, None (null, which deletes in a drop-in), lists and maps of
    them; a map or list replaces the whole old one. Maps on the way to a field are created if they are missing or null (encoding/json
    does not create a map from null, or fill one). A map that becomes empty because its last field is removed, is removed with its key.
    But one that was empty or null before daytwo filled it (`{}`, `~`) becomes so again, since the kubelet may distinguish an empty map
    from a missing one. Comments stay, also those on separate lines between removed fields.

    Only the changed fields are rewritten (`changer`: with ItemChanger, of a list only the changed items). The result is read again and
    compared with the desired content. Raises FormatError if the file cannot be read, a field on the way is not a map, or the edit is
    ambiguous: anchors that are used elsewhere, merges (`<<`), something else on a line that must be removed.
    """
    document = parse(data, kind)
    desired = _desired(document, changes)
    return edit_content(document, data, desired, changer or Changer)


def edit_content(document: Document, data: bytes, desired: dict[str, Any], changer: type[Changer]) -> bytes:
    """The text of a document, `data`, with another content; the same bytes if it has it. It is read again and compared. Raises
    FormatError."""
    if yaml_text.same(document.content, desired):
        return data
    made = changer(document)
    made.change_map(document.root, document.content, desired)
    cuts = yaml_text.cut_lines(document.text, made.lines)
    after = yaml_text.splice(document.text, [*made.edits, *_parted(cuts, {start for start, end, _ in made.edits if start == end})])
    if not yaml_text.same(yaml_text.load(after), desired):
        raise FormatError("the edit would not result in the desired configuration", way_out="edit it by hand")
    return after


def _parted(cuts: Sequence[TextEdit], places: set[int]) -> list[TextEdit]:
    """The cuts, split at insertions: one may be between the removed last field of a map and the removed first field of the next map."""
    parts: list[TextEdit] = []
    for start, end, _ in cuts:
        edges = [start, *sorted(place for place in places if start < place < end), end]
        parts += [(one, other, "") for one, other in pairwise(edges)]
    return parts


# ---- the desired content


def _desired(document: Document, changes: Mapping[FieldPath, object]) -> dict[str, Any]:
    """The file's desired content. Raises FormatError for changes that conflict."""
    for path in changes:
        if not path:
            raise FormatError("a change names no field", way_out="name one")
        for length in range(1, len(path)):
            if path[:length] in changes:
                raise FormatError("two changes affect one field", value=".".join(path), way_out="name only one of them")
    content: dict[str, Any] = copy.deepcopy(document.content)
    for path, value in changes.items():
        if value is not ABSENT:
            _set(document, content, path, _plain(value, path))
    for path, value in changes.items():
        if value is ABSENT:
            _remove(document, content, path)
    return content


def _plain(value: object, path: FieldPath) -> Any:
    """A value that YAML and JSON can have. Raises FormatError for any other."""
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _plain(inner, (*path, key)) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner, path) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise FormatError("a number that JSON does not have", value=f"{'.'.join(path)}: {value}", way_out="choose another number")
    if isinstance(value, str) and not words.valid_utf8(value.encode("utf-8", "surrogatepass")):
        raise FormatError("a text that is not Unicode", value=f"{'.'.join(path)}: {value!r}", way_out="choose another text")
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    raise FormatError(
        "a value that a configuration file cannot have",
        value=f"{'.'.join(path)}: {value!r}",
        way_out="choose a text, a number, true or false, a list or a mapping",
    )


def _set(document: Document, content: dict[str, Any], path: FieldPath, value: Any) -> None:
    for length, name in enumerate(path[:-1], 1):
        if content.get(name) is None:
            content[name] = {}
        inner = content[name]
        if not isinstance(inner, dict):
            field, line = ".".join(path[:length]), _line(document, path[:length])
            raise FormatError(f"{field} is not a mapping", value=str(inner)[:60], line=line, way_out="write it as a mapping")
        content = inner
    content[path[-1]] = value


def _remove(document: Document, content: dict[str, Any], path: FieldPath) -> None:
    maps = [content]
    for name in path[:-1]:
        inner = maps[-1].get(name)
        if not isinstance(inner, dict):
            return
        maps.append(inner)
    if path[-1] not in maps[-1]:
        return
    del maps[-1][path[-1]]
    for length in range(len(path) - 1, 0, -1):
        if maps[length]:
            return
        before = _was_empty(document, document.node(path[:length]))
        if before is not None:
            maps[length - 1][path[length - 1]] = {} if before == _EMPTY_MAP else None
            return
        del maps[length - 1][path[length - 1]]


def _line(document: Document, path: FieldPath) -> int | None:
    """The line of a field's key."""
    parent = document.node(path[:-1])
    return next((key.line for key, _ in parent.pairs if yaml_text.key_name(key) == path[-1]), None) if parent else None


# ---- how it is written


def _opened(document: Document, node: YamlNode) -> int:
    return document.text.index("{", node.start) + 1


def _was_empty(document: Document, node: YamlNode | None) -> str | None:
    """The form of a map before `Changer` added its first field, recorded by blanks: `{}`, or a null as it was written; None for any other
    map."""
    if node is None or not node.flow or not node.pairs:
        return None
    first, behind = node.pairs[0][0].start, document.text[end_of(document, *node.pairs[-1])]
    lead = document.text[_opened(document, node) : first]
    if not lead:
        return _EMPTY_MAP if behind == " " else None
    known = lead.strip(" ") == "" and 2 <= len(lead) < 2 + len(_NULLS) and behind == "}"
    return _NULLS[len(lead) - 2] if known else None


def end_of(document: Document, key: YamlNode, value: YamlNode) -> int:
    """Where the text of a field ends. (A block's node ends where the next thing begins, after comments.)"""
    if value.start < key.start:
        # An alias: the node is that of its anchor.
        alias = re.compile(r"\s*:\s*\*[^\s,\[\]{}]+").match(document.text, key.end)
        if alias is None:
            raise FormatError("an alias is written in an unusual form", line=key.line, way_out="write out its value")
        return alias.end()
    if value.kind == "map" and not value.flow:
        return end_of(document, *value.pairs[-1])
    if value.kind == "list" and not value.flow:
        return _item_end(document, value)
    if value.start == value.end and (colon := re.compile(r"\s*:").match(document.text, key.end)):
        # A field without a value. Its node is where the next thing begins.
        return colon.end()
    return value.end


def _item_end(document: Document, sequence: YamlNode) -> int:
    last = sequence.items[-1]
    _check_item(last)
    if last.kind == "map" and not last.flow:
        return end_of(document, *last.pairs[-1])
    return _item_end(document, last) if last.kind == "list" and not last.flow else last.end


def _check_item(item: YamlNode) -> None:
    """Refuse an item of a block list whose place is not known. Raises FormatError."""
    yaml_text.own(item)
    if item.start == item.end:
        raise FormatError("an item of a list has no value", line=item.line, way_out="remove it by hand")


class Changer:
    """Collects the changes that give a text another content: `edits`, and `lines`, parts that are removed with their lines."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.text = document.text
        self.json = document.root.flow
        self.edits: list[TextEdit] = []
        self.lines: list[tuple[int, int]] = []

    def change_map(self, node: YamlNode, old: dict[str, Any], new: dict[str, Any]) -> None:
        yaml_text.own(node)
        if node.merges:
            raise FormatError("a mapping is merged with `<<`", line=node.line, way_out="write out its keys")
        names = [yaml_text.key_name(key) for key, _ in node.pairs]
        if set(names) != set(old):
            raise FormatError("a key is written with escapes that daytwo does not edit", line=node.line, way_out="write it plainly")
        gone = {index for index, name in enumerate(names) if name not in new}
        for index, (key, value) in enumerate(node.pairs):
            if index in gone:
                own_all(key, value)
            elif not yaml_text.same(old[names[index]], new[names[index]]):
                self.change(key, value, old[names[index]], new[names[index]], node.flow)
        added = {name: value for name, value in new.items() if name not in old}
        if node.flow:
            self._change_flow(node, gone, added)
            return
        for index in gone:
            self.cut(*node.pairs[index])
        if added:
            is_root = node is self.document.root
            stop = self.document.end if is_root else self._line_stop(end_of(self.document, *node.pairs[-1]))
            self._add_lines(stop, self._block(added, node.pairs[0][0].column))

    def change(self, key: YamlNode, value: YamlNode, old: Any, new: Any, flow: bool) -> None:
        """One field's value; `flow`: in a map within brackets."""
        before = _was_empty(self.document, value) if value.kind == "map" else None
        if value.kind == "map" and isinstance(new, dict) and (new or before is not None):
            self.change_map(value, old, new)
            return
        own_all(value)
        if new is None and before in _NULLS:
            # If there was nothing, the blank after the colon is removed too.
            colon = self.text.index(":", key.end) + 1
            self.edits.append((value.start, value.end, before) if before else (colon, value.end, ""))
            return
        if value.kind != "scalar" and not value.flow:
            colon = self.text.index(":", key.end) + 1
            stop = self._line_stop(end_of(self.document, key, value))
            self._cut_inside(value)
            if isinstance(new, (dict, list)) and new:
                column = key.column
                self._add_lines(stop, self._block(new, column + 2) if isinstance(new, dict) else self.items(new, column))
            else:
                self.edits.append((colon, colon, " " + self.inline(new)))
            return
        written = self.inline(new)
        if value.null and isinstance(new, dict) and new:
            written = f"{{{' ' * (2 + _NULLS.index(value.text))}{written[1:]}"
        if value.style in ("'", '"') and isinstance(new, str):
            written = quoted_text(new, self.json) if value.style == '"' or "'" in new or not new.isprintable() else f"'{new}'"
        elif value.kind == "scalar" and value.style is None and isinstance(old, str) and isinstance(new, str):
            written = argument_text(new, flow)
        if value.start == value.end:
            end = end_of(self.document, key, value)
            self.edits.append((end, end, " " + written))
            return
        # A block of text ends after the end of its last line.
        line_end = yaml_text.line_end_of(self.text) if self.text[value.end - 1] == "\n" else ""
        self.edits.append((value.start, value.end, written + line_end))

    def cut(self, key: YamlNode, value: YamlNode) -> None:
        """Remove a field with its lines; comments between them stay."""
        if value.kind == "scalar" or value.flow:
            self.lines.append((key.start, end_of(self.document, key, value)))
        else:
            self.lines.append((key.start, self.text.index(":", key.end) + 1))
            self._cut_inside(value)

    def _cut_inside(self, value: YamlNode) -> None:
        for key, inner in value.pairs:
            self.cut(key, inner)
        for item in value.items:
            _check_item(item)
            if item.kind == "scalar" or item.flow:
                self.lines.append((item.start, item.end))
            else:
                self._cut_inside(item)

    def _line_stop(self, position: int) -> int:
        return position if self.text[position - 1] == "\n" else yaml_text.line_stop(self.text, position)

    def _add_lines(self, stop: int, lines: Sequence[str]) -> None:
        """Insert lines at the start of a line, or after a last line without a line end; then the new last line has none either."""
        end = yaml_text.line_end_of(self.text)
        new = "".join(line + end for line in lines) if self.text[stop - 1] == "\n" else "".join(end + line for line in lines)
        self.edits.append((stop, stop, new))

    def _change_flow(self, node: YamlNode, gone: set[int], added: Mapping[str, Any]) -> None:
        spans = [(key.start, end_of(self.document, key, value)) for key, value in node.pairs]
        kept = [index for index in range(len(spans)) if index not in gone]
        opened = _opened(self.document, node)
        quoted = self.json or any(key.style == '"' for key, _ in node.pairs)
        names = {name: quoted_text(name, self.json) if quoted else scalar_text(name) for name in added}
        entries = [f"{names[name]}: {self.inline(value)}" for name, value in added.items()]
        if not spans:
            # The blank records that the empty map existed before its first field.
            self.edits.append((opened, opened, ", ".join(entries) + " "))
        elif not kept:
            if "#" in self.text[opened : node.end]:
                raise FormatError("a comment is next to the part that should be removed", line=node.line, way_out="remove it by hand")
            self.edits.append((spans[0][0], spans[-1][1], ", ".join(entries)) if entries else (opened, spans[-1][1] + 1, ""))
        else:
            if gone:
                self.edits += yaml_text.flow_cut(self.text, spans, gone)
            if entries:
                new = yaml_text.flow_add(self.text, spans, opened, entries)[2]
                self.edits.append((spans[kept[-1]][1],) * 2 + (new,))

    # ---- new text

    def _block(self, fields: Mapping[str, Any], column: int) -> list[str]:
        """The lines of a block map."""
        lines = []
        for name, value in fields.items():
            lead = f"{' ' * column}{scalar_text(name)}:"
            if isinstance(value, dict) and value:
                lines += [lead, *self._block(value, column + 2)]
            elif isinstance(value, list) and value:
                lines += [lead, *self.items(value, column)]
            else:
                lines.append(f"{lead} {self.inline(value)}")
        return lines

    def items(self, items: Sequence[Any], column: int) -> list[str]:
        """The lines of a block list, its dashes below the key as kubeadm writes them."""
        lines = []
        for item in items:
            if isinstance(item, dict) and item:
                first, *rest = self._block(item, column + 2)
                lines += [f"{' ' * column}- {first[column + 2 :]}", *rest]
            else:
                lines.append(f"{' ' * column}- {self.inline(item)}")
        return lines

    def inline(self, value: Any) -> str:
        if isinstance(value, dict):
            names = {name: quoted_text(name, True) if self.json else scalar_text(name) for name in value}
            return "{" + ", ".join(f"{names[name]}: {self.inline(inner)}" for name, inner in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ", ".join(map(self.inline, value)) + "]"
        if isinstance(value, str):
            return quoted_text(value, True) if self.json else scalar_text(value)
        return json.dumps(value)


def own_all(*nodes: YamlNode) -> None:
    for node in nodes:
        for part in yaml_text.walk(node):
            yaml_text.own(part)


def scalar_text(value: str) -> str:
    """A string as YAML, plain if every reader takes it for a string (YAML 1.1 and 1.2)."""
    if _PLAIN.fullmatch(value) and yaml_text.load(f"value: {value}".encode()) == {"value": value} and value.lower() not in _WORDS:
        return value
    return quoted_text(value, False)


def argument_text(value: str, flow: bool) -> str:
    """An argument of a component as YAML; `flow`: within brackets."""
    return value if _ARGUMENT.fullmatch(value) and not (flow and "," in value) else scalar_text(value)


def quoted_text(value: str, as_json: bool) -> str:
    if as_json:
        return json.dumps(value)
    # Beyond 16 bits, YAML's escapes differ from JSON's. YAML also takes more characters for line ends.
    return '"' + "".join(_escaped(character) for character in value) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    return character if character.isprintable() else f"\\U{ord(character):08x}"
