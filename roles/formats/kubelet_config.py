"""KubeletConfiguration files (kubelet.config.k8s.io/v1beta1): what they set, and featureGates edited in place."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from roles.formats import yaml_text
from roles.formats.errors import FormatError
from roles.formats.flags import GateChanges
from roles.formats.yaml_text import Document, Edit, Node

_KEY = "featureGates"


def read(data: bytes) -> dict[str, Any]:
    """The file's fields. Raises FormatError for what is no KubeletConfiguration."""
    return _parse(data).content


def _parse(data: bytes) -> Document:
    document = yaml_text.parse(data)
    kind = document.content.get("kind")
    if kind != "KubeletConfiguration":
        raise FormatError("is not a KubeletConfiguration", value=str(kind)[:60])
    return document


def merge(main: bytes | None, dropins: Sequence[bytes]) -> dict[str, Any]:
    """The fields that count where a --config-dir is read over the --config file: maps merge, null deletes, the rest is replaced
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


def gates(data: bytes) -> dict[str, bool]:
    """The gates a file sets. Raises FormatError for a value that the kubelet would not take as a boolean."""
    return _gates(_parse(data))


def _gates(document: Document) -> dict[str, bool]:
    found = document.content.get(_KEY)
    line = next((key.line for key, _ in document.root.pairs if key.text == _KEY), None)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise FormatError("featureGates is not a map", line=line)
    for name, value in found.items():
        if not isinstance(value, bool):
            raise FormatError(
                "a feature gate's value is not a boolean",
                value=f"{name}: {value}",
                line=_line(document, name) or line,
                way_out="write true or false",
            )
    return dict(found)


def _line(document: Document, name: str) -> int | None:
    listed = next((value for key, value in document.root.pairs if key.text == _KEY), None)
    return next((key.line for key, _ in listed.pairs if key.text == name), None) if listed else None


def edit_gates(data: bytes, changes: GateChanges) -> bytes:
    """The file with featureGates as wanted; the same bytes where they are so already.

    Raises FormatError where the file cannot be read or the edit needs guessing.
    """
    document = _parse(data)
    present = _gates(document)
    wanted = {name: value for name, value in present.items() if changes.get(name, value) is not None}
    wanted |= {name: value for name, value in changes.items() if value is not None}
    if wanted == present:
        return data
    node = document.child(document.root, _KEY)
    new = [f"{name}: {_written(value)}" for name, value in wanted.items() if name not in present]
    if node is None:
        edits = [_add_key(document, new)]
    elif node.kind == "map":
        edits = _edit_map(document, node, wanted, new)
    else:
        raise FormatError("featureGates is there without a value", line=node.line, way_out="take the key out, daytwo writes it anew")
    after = yaml_text.splice(document.text, edits)
    _verify(document.content, after, wanted)
    return after


def _written(value: bool) -> str:
    return "true" if value else "false"


def _quoted(entries: Sequence[str]) -> list[str]:
    return [re.sub(r"^([^:]*)", r'"\1"', entry) for entry in entries]


def _spans(node: Node) -> list[tuple[int, int]]:
    return [(key.start, value.end) for key, value in node.pairs]


def _opened(document: Document, node: Node) -> int:
    return document.text.index("{", node.start) + 1


def _add_key(document: Document, new: Sequence[str]) -> Edit:
    text, root = document.text, document.root
    if root.flow:
        entry = f'"{_KEY}": {{{", ".join(_quoted(new))}}}'
        return yaml_text.flow_add(text, _spans(root), _opened(document, root), [entry])
    if re.search(r"^\.\.\.", text[root.pairs[-1][1].end :], re.MULTILINE):
        raise FormatError("a document marker stands behind the configuration", way_out="take it out")
    indent = " " * root.pairs[0][0].column
    return yaml_text.add_lines(text, len(text), [f"{indent}{_KEY}:", *(f"{indent}  {entry}" for entry in new)])


def _edit_map(document: Document, node: Node, wanted: Mapping[str, bool], new: Sequence[str]) -> list[Edit]:
    yaml_text.own(node)
    if node.merges:
        raise FormatError("a map is put together with `<<`", value=_KEY, line=node.line, way_out="write its keys out")
    edits: list[Edit] = []
    gone: set[int] = set()
    for index, (key, value) in enumerate(node.pairs):
        name = yaml_text.key_name(key)
        if name not in wanted:
            gone.add(index)
        elif document.content[_KEY][name] != wanted[name]:
            yaml_text.own(value)
            if document.raw(value) != value.text:
                raise FormatError("a feature gate's value is written with an anchor or a tag", line=value.line, way_out="write it plainly")
            edits.append((value.start, value.end, _written(wanted[name])))
    if node.flow:
        return edits + _edit_flow(document, node, gone, new)
    return edits + _edit_block(document, node, gone, new)


def _edit_block(document: Document, node: Node, gone: set[int], new: Sequence[str]) -> list[Edit]:
    text, spans = document.text, _spans(node)
    owner = next(key for key, value in document.root.pairs if value is node)
    lines = [spans[index] for index in gone]
    kept = [index for index in range(len(spans)) if index not in gone]
    if not kept and not new:
        lines.append((owner.start, text.index(":", owner.end) + 1))
    edits = yaml_text.cut_lines(text, lines)
    if new:
        indent = " " * node.pairs[0][0].column
        place = spans[kept[-1]][1] if kept else text.index(":", owner.end)
        edits.append(yaml_text.add_lines(text, place, [indent + entry for entry in new]))
    return edits


def _edit_flow(document: Document, node: Node, gone: set[int], new: Sequence[str]) -> list[Edit]:
    text, spans = document.text, _spans(node)
    kept = [index for index in range(len(spans)) if index not in gone]
    opened, closed = _opened(document, node), node.end - 1
    if document.root.flow or any(key.style == '"' for key, _ in node.pairs):
        new = _quoted(new)
    if not spans:
        # In JSON the blank tells later that the empty map was there before its first gate.
        return [(closed, closed, ", ".join(new) + " " * document.root.flow)]
    if not kept and new:
        return [(spans[0][0], spans[-1][1], ", ".join(new))]
    if not kept and document.root.flow:
        # As a block map does, the emptied map takes its key along.
        if spans[0][0] == opened and text[spans[-1][1] : closed].isspace() and "\n" not in text[opened:closed]:
            return [(opened, spans[-1][1] + 1, "")]
        index = next(number for number, (_, value) in enumerate(document.root.pairs) if value is node)
        return yaml_text.flow_cut(text, _spans(document.root), {index})
    edits = yaml_text.flow_cut(text, spans, gone) if gone else []
    if new:
        place, _, added = yaml_text.flow_add(text, spans, opened, new)
        edits.append((spans[kept[-1]][1] if gone else place,) * 2 + (added,))
    return edits


def _verify(before: dict[str, Any], after: bytes, wanted: Mapping[str, bool]) -> None:
    """Read the outcome again: the gates are as wanted, and no other field has changed."""
    content = read(after)
    rest_before, rest_after = ({key: value for key, value in fields.items() if key != _KEY} for fields in (before, content))
    if gates(after) != wanted or not yaml_text.same(rest_before, rest_after):
        raise FormatError("the edit would not give the configuration that is wanted", way_out="edit it by hand")
