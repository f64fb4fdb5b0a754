"""kubeadm's ClusterConfiguration (kubeadm.k8s.io): the feature gates that it sets for control-plane components, edited in place.

`extraArgs` of a component is a map in v1beta3 and before, a list of name and value in v1beta4, which may have a name several times
(cmd/kubeadm/app/apis/kubeadm/v1beta3/types.go, v1beta4/types.go).
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from roles.engine.editing import flags, yaml_text
from roles.engine.editing.errors import FormatError
from roles.engine.editing.flags import FEATURE_GATES, GateChanges
from roles.engine.editing.kubelet_config import ABSENT, edit_fields
from roles.engine.editing.mapped import Mapped, Splice, apply
from roles.engine.editing.yaml_text import Document, TextEdit, YamlNode

KIND = "ClusterConfiguration"
#: The section with a component's arguments.
SECTIONS: Final = {"kube-apiserver": "apiServer", "kube-controller-manager": "controllerManager", "kube-scheduler": "scheduler"}
_EXTRA = "extraArgs"
_VERSION = re.compile(r"kubeadm\.k8s\.io/v1beta([1-4])")
_LIST_SINCE = 4
_FLAG = f"--{FEATURE_GATES}="
_QUOTES = ("'", '"')


@dataclass(frozen=True)
class _Argument:
    """One --feature-gates among a component's arguments: its key or the number of its item, and its value."""

    place: str | int
    value: str


def gates(data: bytes) -> dict[str, dict[str, bool]]:
    """The gates that are set for each component, by its name; {} if there are none.

    Raises FormatError for a text that is not a ClusterConfiguration of a known version, and for gates that a component would refuse.
    """
    content = parse(data).content
    return {component: _effective(content, component) for component in SECTIONS}


def edit_gates(data: bytes, changes: Mapping[str, GateChanges]) -> bytes:
    """The text with the desired gates of each component; the same bytes if it has them already. Nothing else changes.

    Raises FormatError if the text cannot be read or the edit is ambiguous: anchors that are used elsewhere, merges (`<<`).
    """
    for component, wanted in changes.items():
        data = _edit(data, component, wanted)
    return data


def parse(data: bytes) -> Document:
    """Raises FormatError for a text that is not a ClusterConfiguration of a known version."""
    document = yaml_text.parse(data)
    content = document.content
    if content.get("kind") != KIND:
        raise FormatError(f"is not a {KIND}", value=str(content.get("kind"))[:60], way_out=f"write kind: {KIND}")
    if not _VERSION.fullmatch(str(content.get("apiVersion"))):
        raise FormatError(
            f"is a {KIND} of an unknown version",
            value=str(content.get("apiVersion"))[:60],
            way_out="convert it: kubeadm config migrate",
        )
    return document


def is_list(content: Mapping[str, Any]) -> bool:
    """Whether this version's extraArgs are a list of name and value."""
    found = _VERSION.fullmatch(str(content.get("apiVersion")))
    return found is not None and int(found[1]) >= _LIST_SINCE


def extra_of(content: Mapping[str, Any], component: str) -> Any:
    """A component's extraArgs; None if it has none."""
    section = SECTIONS[component]
    found = content.get(section)
    if found is None:
        return None
    if not isinstance(found, dict):
        raise FormatError(f"{section} is not a mapping", value=str(found)[:60], way_out="write it as a mapping")
    extra = found.get(_EXTRA)
    kind = list if is_list(content) else dict
    if extra is not None and not isinstance(extra, kind):
        shape = "a list of name and value" if kind is list else "a mapping"
        raise FormatError(
            f"{section}.{_EXTRA} is not {shape}, which this version requires", value=str(extra)[:60], way_out="write it in that form"
        )
    return extra


def _named(name: object) -> bool:
    return str(name).replace("_", "-") == FEATURE_GATES


def _arguments(content: Mapping[str, Any], component: str) -> list[_Argument]:
    extra = extra_of(content, component)
    found: list[tuple[str | int, Any]] = []
    if isinstance(extra, dict):
        found = [(key, value) for key, value in extra.items() if _named(key)]
    for number, item in enumerate(extra if isinstance(extra, list) else ()):
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            raise FormatError(f"an item of {SECTIONS[component]}.{_EXTRA} has no name", value=str(item)[:60], way_out="name it")
        if _named(item["name"]):
            found.append((number, item.get("value", "")))
    for _, value in found:
        if not isinstance(value, str):
            raise FormatError(
                f"{SECTIONS[component]}.{_EXTRA}: {FEATURE_GATES} is not a text", value=str(value)[:60], way_out="put it in quotes"
            )
    return [_Argument(place, value) for place, value in found]


def _effective(content: Mapping[str, Any], component: str) -> dict[str, bool]:
    return flags.effective_gates([_FLAG + argument.value for argument in _arguments(content, component)])


def _edit(data: bytes, component: str, changes: GateChanges) -> bytes:
    document = parse(data)
    arguments = _arguments(document.content, component)
    words = [Mapped.of((_FLAG + argument.value).encode(), source=str(number)) for number, argument in enumerate(arguments)]
    gone: list[_Argument] = []
    new: list[str] = []

    def remove(taken: tuple[Mapped, ...]) -> list[Splice]:
        gone.extend(arguments[int(word.source)] for word in taken)
        return []

    def insert(flag: str) -> list[Splice]:
        new.append(flag.removeprefix(_FLAG))
        return []

    by_word: dict[int, list[Splice]] = {}
    for splice in flags.edit(words, changes, remove, insert):
        by_word.setdefault(int(splice.source), []).append(splice)
    if not (by_word or gone or new):
        return data
    edits = [
        _rewrite(*_value(document, component, arguments[number]), apply(words[number].text, splices).decode().removeprefix(_FLAG))
        for number, splices in by_word.items()
    ]
    if is_list(document.content):
        after = _edit_list(document, component, edits, gone, new)
    else:
        # A value is spliced and keeps its quotes; edit_fields would write it as a new one.
        after = yaml_text.splice(document.text, edits)
        path = (SECTIONS[component], _EXTRA)
        whole = {(*path, str(argument.place)): ABSENT for argument in gone}
        after = edit_fields(after, whole | {(*path, FEATURE_GATES): value for value in new}, KIND)
    _verify(document.content, after, component, changes)
    return after


def _sequence(document: Document, component: str) -> YamlNode | None:
    """The extraArgs, for an edit."""
    section = document.child(document.root, SECTIONS[component])
    extra = document.child(section, _EXTRA) if section is not None and section.kind == "map" else None
    if extra is not None:
        yaml_text.own(extra)
    return extra


def _value(document: Document, component: str, argument: _Argument) -> tuple[YamlNode, bool]:
    """An argument's value, for an edit, and whether it is within brackets."""
    extra = _sequence(document, component)
    assert extra is not None  # the argument was found there
    holder = extra.items[argument.place] if isinstance(argument.place, int) else extra
    value = document.child(holder, "value" if isinstance(argument.place, int) else argument.place)
    if value is None:
        raise FormatError(f"{FEATURE_GATES} is written in a form that daytwo does not edit", line=extra.line, way_out="write it plainly")
    yaml_text.own(value)
    return value, holder.flow


def _rewrite(value: YamlNode, flow: bool, text: str) -> TextEdit:
    if value.style not in (None, *_QUOTES):
        raise FormatError(f"{FEATURE_GATES} is written as a block of text", line=value.line, way_out="write it on one line")
    # In a flow map a comma would split a plain text.
    quote = value.style or ('"' if flow and "," in text else "")
    return value.start, value.end, f"{quote}{text}{quote}"


# ---- the list of v1beta4


def _edit_list(document: Document, component: str, edits: list[TextEdit], gone: list[_Argument], new: list[str]) -> bytes:
    path = (SECTIONS[component], _EXTRA)
    sequence = _sequence(document, component)
    if new and (sequence is None or sequence.kind != "list"):
        items = [{"name": FEATURE_GATES, "value": value} for value in new]
        return edit_fields(yaml_text.splice(document.text, edits), {path: items}, KIND)
    assert sequence is not None
    if new:
        edits += [_add(document, sequence, value) for value in new]
    indexes = {int(argument.place) for argument in gone}
    for index in indexes:
        for part in yaml_text.walk(sequence.items[index]):
            yaml_text.own(part)
    if indexes and len(indexes) == len(sequence.items):
        if sequence.flow and document.text[sequence.items[-1].end : sequence.end] == " ]":
            # The blank records that the list was empty before its first item.
            opened = document.text.index("[", sequence.start) + 1
            return yaml_text.splice(document.text, [*edits, (opened, sequence.end - 1, "")])
        return edit_fields(yaml_text.splice(document.text, edits), {path: ABSENT}, KIND)
    spans = [(item.start, item.end) for item in sequence.items]
    if sequence.flow:
        edits += yaml_text.flow_cut(document.text, spans, indexes) if indexes else []
    else:
        edits += yaml_text.cut_lines(document.text, _lines(sequence, indexes))
    return yaml_text.splice(document.text, edits)


def _lines(sequence: YamlNode, indexes: set[int]) -> list[tuple[int, int]]:
    """The parts of block items that are removed with their lines: each field, or a flow map as a whole."""
    parts: list[tuple[int, int]] = []
    for index in indexes:
        item = sequence.items[index]
        parts += [(item.start, item.end)] if item.flow else [(key.start, value.end) for key, value in item.pairs]
    return parts


def _add(document: Document, sequence: YamlNode, value: str) -> TextEdit:
    text = document.text
    entry = f'{{"name": "{FEATURE_GATES}", "value": "{value}"}}' if document.is_json else f'{{name: {FEATURE_GATES}, value: "{value}"}}'
    if sequence.flow:
        opened = text.index("[", sequence.start) + 1
        if not sequence.items:
            return opened, opened, f"{entry} "
        return yaml_text.flow_add(text, [(item.start, item.end) for item in sequence.items], opened, [entry])
    last = sequence.items[-1]
    yaml_text.own(last)
    lead = re.search(r"-( *)\Z", text[: last.start])
    if lead is None:
        raise FormatError("the last argument does not follow its dash", line=last.line, way_out="write it after the dash")
    indent = " " * (lead.start() - yaml_text.line_start(text, lead.start()))
    end = last.end if last.flow else last.pairs[-1][1].end
    lines = [f"{indent}-{lead[1]}name: {FEATURE_GATES}", f"{indent} {' ' * len(lead[1])}value: {value}"]
    return yaml_text.add_lines(text, end, lines)


# ---- reading it again


def _verify(before: dict[str, Any], after: bytes, component: str, changes: GateChanges) -> None:
    """Read the result again: it must have the desired gates, and nothing else may have changed."""
    content = parse(after).content
    wanted = {name: value for name, value in _effective(before, component).items() if changes.get(name, value) is not None}
    wanted |= {name: value for name, value in changes.items() if value is not None}
    if _effective(content, component) != wanted or not yaml_text.same(_rest(before, component), _rest(content, component)):
        raise FormatError("the edit would not result in the desired configuration", value=component, way_out="edit it by hand")


def _rest(content: dict[str, Any], component: str) -> dict[str, Any]:
    """Everything except the component's gates. An empty map or list counts as missing."""
    rest = copy.deepcopy(content)
    section = rest.get(SECTIONS[component]) or {}
    extra = section.get(_EXTRA) or {}
    kept: Any
    if isinstance(extra, list):
        kept = [item for item in extra if not _named(item["name"])]
    else:
        kept = {key: value for key, value in extra.items() if not _named(key)}
    rest[SECTIONS[component]] = {**section, _EXTRA: kept or None}
    return rest
