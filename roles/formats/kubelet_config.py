"""KubeletConfiguration files (kubelet.config.k8s.io/v1beta1): what they set, and featureGates edited in place."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from ruamel.yaml.nodes import MappingNode, ScalarNode

from roles.formats import yaml_text
from roles.formats.errors import FormatError
from roles.formats.flags import GateChanges
from roles.formats.yaml_text import Document

_KEY = "featureGates"


def read(data: bytes) -> dict[str, Any]:
    """The file's fields. Raises FormatError for what is no KubeletConfiguration."""
    content = yaml_text.load(data)
    if not isinstance(content, dict) or content.get("kind") != "KubeletConfiguration":
        kind = content.get("kind") if isinstance(content, dict) else content
        raise FormatError("is not a KubeletConfiguration", value=str(kind)[:60])
    return content


def merge(main: bytes | None, dropins: Sequence[bytes]) -> dict[str, Any]:
    """The fields that count where a --config-dir is read over the --config file: maps merge, null deletes, the rest is replaced
    (KEP-3983; pkg/kubelet/kubeletconfig, mergeKubeletConfigurations)."""
    merged = read(main) if main is not None else {}
    for dropin in dropins:
        merged = _merge(merged, read(dropin))
    return merged


def _merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in over.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = _merge(result[key], value)
        else:
            result[key] = value
    return result


def gates(data: bytes) -> dict[str, bool]:
    """The gates a file sets. Raises FormatError for a value that the kubelet would not take as a boolean."""
    return _gates(yaml_text.parse(data), read(data))


def _gates(document: Document, content: dict[str, Any]) -> dict[str, bool]:
    node = document.child(document.root, _KEY)
    if node is None or _is_null(node):
        return {}
    if not isinstance(node, MappingNode):
        raise FormatError("featureGates is not a map", line=document.line(node))
    found: dict[str, bool] = {}
    for key, value in node.value:
        boolean = yaml_text.plain_boolean(value)
        # A tag such as !!str is seen in the loaded value only.
        if boolean is None or content[_KEY][key.value] is not boolean:
            shown = f"{key.value}: {getattr(value, 'value', '')}"
            raise FormatError(
                "a feature gate's value is not a boolean", value=shown, line=document.line(key), way_out="write true or false"
            )
        found[str(key.value)] = boolean
    return found


def _is_null(node: Any) -> bool:
    return isinstance(node, ScalarNode) and node.style is None and node.value in ("", "~", "null", "Null", "NULL")


def edit_gates(data: bytes, changes: GateChanges) -> bytes:
    """The file with featureGates as wanted; the same bytes where they are so already.

    Raises FormatError where the file cannot be read or the edit needs guessing.
    """
    before = read(data)
    document = yaml_text.parse(data)
    present = _gates(document, before)
    node = document.child(document.root, _KEY)
    new = {name: value for name, value in changes.items() if value is not None and name not in present}
    gone = [name for name, value in changes.items() if value is None and name in present]
    changed = {name: value for name, value in changes.items() if value is not None and name in present and present[name] != value}
    if not new and not gone and not changed:
        return data
    if node is not None and _is_null(node):
        raise FormatError(
            "featureGates is there without a value", line=document.line(node), way_out="take the key out, daytwo writes it anew"
        )
    edits: list[tuple[int, int, str]] = []
    if node is None:
        edits.append(_add_key(document, new))
    else:
        assert isinstance(node, MappingNode)  # _gates took it as one
        document.own(node)
        edits += _edit_map(document, node, changed, gone, new)
    after = yaml_text.splice(document.text, edits)
    _verify(before, after, {**present, **changed, **new}, gone)
    return after


def _written(value: bool) -> str:
    return "true" if value else "false"


def _add_key(document: Document, new: dict[str, bool]) -> tuple[int, int, str]:
    text, root = document.text, document.root
    if root.flow_style:
        if not root.value:
            raise FormatError("is an empty map")
        end = root.value[-1][1].end_mark.index
        spans = [(key.start_mark.index, value.end_mark.index) for key, value in root.value]
        return end, end, yaml_text.flow_add(text, spans, [f'"{_KEY}": {json.dumps(new)}'])
    if re.search(r"^\.\.\.", text[root.value[-1][1].end_mark.index :], re.MULTILINE):
        raise FormatError("a document marker stands behind the configuration", way_out="take it out")
    indent = " " * root.value[0][0].start_mark.column
    lines = [f"{indent}{_KEY}:", *(f"{indent}  {name}: {_written(value)}" for name, value in new.items())]
    return yaml_text.add_line(text, len(text) - text.endswith("\n"), yaml_text.eol(text).join(lines))


def _edit_map(
    document: Document, node: MappingNode, changed: dict[str, bool], gone: list[str], new: dict[str, bool]
) -> list[tuple[int, int, str]]:
    text = document.text
    edits: list[tuple[int, int, str]] = []
    for key, value in node.value:
        if key.value in changed:
            document.own(value)
            edits.append((value.start_mark.index, value.end_mark.index, _written(changed[key.value])))
    kept = [(key, value) for key, value in node.value if key.value not in gone]
    if node.flow_style:
        return edits + _edit_flow(document, node, gone, new)
    owner = next(key for key, value in document.root.value if value is node)
    lines: list[tuple[int, int]] = []
    for key, value in node.value:
        if key.value in gone:
            rule = "a gate shares its line with something else"
            lines.append(yaml_text.whole_lines(text, key.start_mark.index, value.end_mark.index, rule))
    if not kept and not new:
        colon = text.index(":", owner.end_mark.index) + 1
        lines.append(yaml_text.whole_lines(text, owner.start_mark.index, colon, "featureGates shares its line with something else"))
    edits += yaml_text.remove_lines(text, lines)
    if new:
        first = node.value[0][0].start_mark.index
        indent = text[yaml_text.line_start(text, first) : first]
        added = yaml_text.eol(text).join(f"{indent}{name}: {_written(value)}" for name, value in new.items())
        edits.append(yaml_text.add_line(text, kept[-1][1].end_mark.index if kept else owner.end_mark.index, added))
    return edits


def _edit_flow(document: Document, node: MappingNode, gone: list[str], new: dict[str, bool]) -> list[tuple[int, int, str]]:
    spans = [(key.start_mark.index, value.end_mark.index) for key, value in node.value]
    names = [key.value for key, _ in node.value]
    quote = '"' if any(key.style == '"' for key, _ in node.value) or document.root.flow_style else ""
    kept = [index for index, name in enumerate(names) if name not in gone]
    items = [f"{quote}{name}{quote}: {_written(value)}" for name, value in new.items()]
    if not kept and not items and document.root.flow_style:
        # In JSON the emptied map takes its key along, as a block map does; `{}` stays only where it stood in block style.
        entries = [(key.start_mark.index, value.end_mark.index) for key, value in document.root.value]
        index = next(number for number, (_, value) in enumerate(document.root.value) if value is node)
        return yaml_text.flow_remove(document.text, entries, {index})
    if items and not kept:
        start, end = (spans[0][0], spans[-1][1]) if spans else (node.end_mark.index - 1,) * 2
        return [(start, end, ", ".join(items))]
    edits = yaml_text.flow_remove(document.text, spans, {*range(len(names))} - {*kept})
    if items:
        edits.append((spans[kept[-1]][1], spans[kept[-1]][1], yaml_text.flow_add(document.text, spans, items)))
    return edits


def _verify(before: dict[str, Any], after: bytes, wanted: dict[str, bool], gone: list[str]) -> None:
    """Read the outcome again: the gates are as wanted, and no other field has changed."""
    content = read(after)
    expected = {name: value for name, value in wanted.items() if name not in gone}
    rest_before = {key: value for key, value in before.items() if key != _KEY}
    rest_after = {key: value for key, value in content.items() if key != _KEY}
    if gates(after) != expected or not yaml_text.same(rest_before, rest_after):
        raise FormatError("the edit would not give the configuration that is wanted", way_out="edit it by hand")
