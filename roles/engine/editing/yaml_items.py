"""Changes lists in YAML and JSON item by item: the items that stay keep their bytes, and their comments."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any

from roles.engine.editing import yaml_text
from roles.engine.editing.errors import FormatError
from roles.engine.editing.kubelet_config import Changer, argument_text, end_of, own_all, quoted_text
from roles.engine.editing.yaml_text import YamlNode

_QUOTES = ("'", '"')
_BY_HAND = "edit it by hand"


class ItemChanger(Changer):
    """As Changer, but a list that stays a list is changed item by item: of equal items none is rewritten, and a new item follows the one
    that precedes it, in the style of its neighbours."""

    def change(self, key: YamlNode, value: YamlNode, old: Any, new: Any, flow: bool) -> None:
        if isinstance(old, list) and isinstance(new, list) and old and new and value.kind == "list":
            self._change_list(value, old, new)
        else:
            super().change(key, value, old, new, flow)

    def _change_list(self, node: YamlNode, old: list[Any], new: list[Any]) -> None:
        yaml_text.own(node)
        gone: set[int] = set()
        for tag, start, stop, first, last in SequenceMatcher(None, _keys(old), _keys(new), autojunk=False).get_opcodes():
            if tag == "equal":
                continue
            both = min(stop - start, last - first)
            for number in range(both):
                self._change_item(node, node.items[start + number], old[start + number], new[first + number])
            gone |= set(range(start + both, stop))
            self._insert(node, start + both, new[first + both : last])
        for index in gone:
            own_all(node.items[index])
        if node.flow:
            spans = [(item.start, item.end) for item in node.items]
            self.edits += yaml_text.flow_cut(self.text, spans, gone) if gone else []
            return
        for index in gone:
            self._cut_item(node.items[index])

    def _change_item(self, node: YamlNode, item: YamlNode, old: Any, new: Any) -> None:
        if item.kind == "map" and isinstance(new, dict) and new:
            self.change_map(item, old, new)
            return
        yaml_text.own(item)
        quoted = item.style in _QUOTES
        if item.kind != "scalar" or not isinstance(new, str) or self.text[item.start + quoted : item.end - quoted] != item.text:
            raise FormatError(
                "an item is written with escapes, folds or an anchor, or is not a text",
                value=item.text[:60],
                line=item.line,
                way_out="write it on one line, plain or in single quotes",
            )
        self.edits.append((item.start, item.end, self._word(new, item.style, node.flow)))

    def _cut_item(self, item: YamlNode) -> None:
        if item.start == item.end:
            raise FormatError("an item of a list has no value", line=item.line, way_out="remove it by hand")
        if item.kind == "map" and not item.flow:
            for key, value in item.pairs:
                self.cut(key, value)
        elif item.kind == "list" and not item.flow:
            raise FormatError("an item of a list is a list", line=item.line, way_out=_BY_HAND)
        else:
            self.lines.append((item.start, item.end))

    def _insert(self, node: YamlNode, index: int, values: Sequence[Any]) -> None:
        """Insert before the item `index`."""
        if not values:
            return
        if index == 0 or (node.flow and index < len(node.items)):
            raise FormatError("an item would be inserted at a place that daytwo does not edit", line=node.line, way_out=_BY_HAND)
        before = node.items[index - 1]
        yaml_text.own(before)
        styles = {item.style for item in node.items[max(0, index - 2) : index] if item.kind == "scalar"}
        style = before.style if len(styles) == 1 else None
        if node.flow:
            spans = [(item.start, item.end) for item in node.items]
            entries = [self._word(value, style, True) if isinstance(value, str) else self.inline(value) for value in values]
            self.edits.append(yaml_text.flow_add(self.text, spans, self.text.index("[", node.start) + 1, entries))
            return
        lead = re.search(r"-(\s*)\Z", self.text[: before.start])
        if lead is None:
            raise FormatError("an item does not follow its dash", line=before.line, way_out="write it after the dash")
        column = lead.start() - yaml_text.line_start(self.text, lead.start())
        gap = " " if "\n" in lead[1] else lead[1]
        self.edits.append(yaml_text.add_lines(self.text, self._end(before), self._lines(values, column, gap, style)))

    def _lines(self, values: Sequence[Any], column: int, gap: str, style: str | None) -> Iterator[str]:
        for value in values:
            if isinstance(value, str):
                yield f"{' ' * column}-{gap}{self._word(value, style, False)}"
            else:
                yield from self.items([value], column)

    def _end(self, item: YamlNode) -> int:
        return end_of(self.document, *item.pairs[-1]) if item.kind == "map" and not item.flow else item.end

    def _word(self, value: str, style: str | None, flow: bool) -> str:
        """A text in the style of its neighbours, if that means the same."""
        if self.json or style == '"':
            return quoted_text(value, self.json)
        if style == "'" and "'" not in value and value.isprintable():
            return f"'{value}'"
        return argument_text(value, flow)


def _keys(items: Sequence[Any]) -> list[str]:
    return [json.dumps(item, sort_keys=True, default=str) for item in items]
