"""Masks secrets in files by their structure: units, environment files, YAML and JSON. Pure.

roles/engine/transaction/mask.py says what a secret is, and what replaces it. This module parses files as their programs do
(roles/engine/editing), so the end of each value is known. Comments, and texts within values, have no structure and are masked like
any text. If a file cannot be parsed, each line is masked completely: a diff still shows which lines differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import PurePosixPath

from roles.engine.editing import FormatError, Mapped, YamlNode, envfile, unit, words, yaml_text
from roles.engine.transaction.mask import (
    MASKED,
    PLAIN,
    PRIVATE_KEY,
    behind_scheme,
    is_secret,
    mask,
    mask_command,
    mask_keys,
    mask_text,
    settled,
)

#: A part of the text and its replacement: start, end, replacement.
_Part = tuple[int, int, str]

# Not any word with a dash before it: `--token-x`, `-v`, `-feature-gates=`, but not `-Zq81x`.
_FLAGS = re.compile(r"""["'\s]*(?:--[A-Za-z]|-[A-Za-z](?:[\s=]|\Z)|-[a-z][a-z-]*[=\s])""")
_QUOTED = re.compile(r"""\s*(?:"((?:\\[\s\S]|[^"\\])*)"|'([^']*)')\s*""")
# Also what systemd ignores (`export NAME=value`, a name with dashes), and the lines of a diff.
_ASSIGNMENT = re.compile(r"""(?:\+|-(?=\w\w))?((?:export[ \t]+)?[^\s=:"'#;+-][^\s=:"'#;]*)[ \t]*=[ \t]*""")
_ENV_COMMENT = re.compile(rf"(?:^|(?<=\r))([ \t]*[#;][#; \t]*)((?:{_ASSIGNMENT.pattern})[^\r\n]*)", re.MULTILINE)
_VARIABLE = re.compile(r"""["']?([^\s=:"'-][^\s=:"']*)""")
_ENVIRONMENT = re.compile(r"[+-]?(?:Default|Manager)?Environment")
_UNIT_COMMENT = re.compile(r"^([ \t]*[#;][#; \t]*)((?:Default|Manager)?Environment[ \t]*=[^\n]*)", re.MULTILINE)
_SERVICE = "[Service]\n"
# The value of an environment variable in YAML or JSON text; not `--x=value:y`.
_ENV_VALUE = re.compile(r"""(?:^[ \t#;+?-]*|[{,]\s*)\\*["']?value(?:\\*["']\s*:|[ \t]*:(?=\s|$)|[ \t]+:)""", re.MULTILINE)
_ESCAPED_JSON = re.compile(r"\s*[\[{][^\\]*\\")
# The second form passes over the rest of a line, which is looked at once.
_YAML_COMMENT = re.compile(r"(#[#; \t]*+)(?=[^\n]*value)([^\n]*)|#[^\n]*")
_COMMENT_BEHIND = re.compile(r"[ \t]+#[^\n]*")
_ONLY_COMMENT = re.compile(r"\s*:[ \t]+(#[^\n]*)")
_NAME = re.compile(r"[\w./-]+")
_BLOCK_HEAD = re.compile(r"[|>][^\n]*\n?")
# An anchor, a tag.
_PROPERTIES = re.compile(r"(?:[&!][^\s,\[\]{}]*(?:\s+|\Z))*")
# Lists of maps with a `value` that are not environment variables (Kubernetes: Toleration, Taint, Sysctl, PodDNSConfigOption).
_OPEN_VALUES = frozenset({"tolerations", "registerWithTaints", "taints", "sysctls", "options"})
# kubeadm's arguments of a component (v1beta4) are also maps of name and value; gates are not secret.
_ARGUMENTS = "extraArgs"


def masker(path: str) -> Callable[[str], str]:
    """The function that masks the text of the file at `path`: as a unit, as YAML, or as an environment file."""
    name = PurePosixPath(path)
    if "/systemd/" in path and name.suffix in (".service", ".conf"):
        return mask_unit
    if name.suffix in (".yaml", ".yml", ".json") or "manifests" in name.parts[:-1]:
        return mask_manifest
    return mask_env_file


def mask_env_file(text: str) -> str:
    """Mask an environment file (systemd.exec(5) EnvironmentFile=), or single lines of one: all values, also commented out.

    Empty values stay; in command-line flags only what mask_text finds is masked. Other lines: mask_text.
    """
    return settled(_env_file, text)


def mask_unit(text: str) -> str:
    """Mask a unit file of systemd, or single lines of one: values in `Environment=` as in environment files, other lines by mask_text."""
    return settled(lambda part: _or_lines(_unit, part), text)


def mask_manifest(text: str) -> str:
    """Mask a file in YAML or JSON, or single lines of one: values with the name of a secret, and the `value` of each environment variable.

    A `value` counts as that of an environment variable unless it belongs to a toleration, a taint, a sysctl, a DNS option, or to one
    of kubeadm's arguments whose flag is no secret. Other texts: mask_text.
    """
    # A secret that is found by its format may span several values and comments.
    return settled(lambda part: mask_text(_or_lines(_manifest, mask_keys(part))), text)


def mask_lines(text: str) -> str:
    """Mask each line completely; a diff still shows which lines differ."""
    return re.sub(r"\S(?:[^\n]*\S)?", lambda found: mask(found[0]), text)


def _or_lines(read: Callable[[str], str], text: str) -> str:
    try:
        return read(text)
    except (FormatError, RecursionError):
        return mask_lines(text)


def _readable(text: str) -> str:
    """The text with letters instead of masks, since a mask has a blank and a colon. All positions stay the same."""
    return MASKED.sub(lambda found: "m" * len(found[0]), text)


def _bytes(text: str) -> bytes:
    """One byte for each character."""
    return _readable(text).replace("\0", "?").encode("ascii", "replace")


def _put_together(text: str, parts: Iterable[_Part], between: Callable[[str], str]) -> str:
    """The text with its parts replaced. If parts overlap, the first and longest one counts, preferably a masked one."""
    shown: list[str] = []
    position = 0
    for start, end, part in sorted(parts, key=lambda part: (part[0], -part[1], part[2] == text[part[0] : part[1]])):
        if start >= position:
            shown += (between(text[position:start]), part)
            position = end
    return "".join(shown) + between(text[position:])


def _commented(comment: re.Pattern[str], read: Callable[[str], str], text: str) -> str:
    """Text between values: a comment that looks like a line of the file is masked like that line. A private key may span several lines."""
    keys = [found.span() for found in PRIVATE_KEY.finditer(text)]
    lines = [line for line in comment.finditer(text) if line[2] is not None and not any(_goes_on(line, *key) for key in keys)]
    return _put_together(text, [(*line.span(2), read(line[2])) for line in lines], mask_text)


def _goes_on(line: re.Match[str], start: int, end: int) -> bool:
    return start < line.start() < end or line.start() <= start < line.end() < end


# ---- environment files, units


def _env_file(text: str) -> str:
    read = envfile.parse(_bytes(text))
    keys = [found.span() for found in PRIVATE_KEY.finditer(text)]
    parts: list[_Part] = []
    for start, end in [*(item.extent for item in read.assignments), *(item.extent for item in read.dropped)]:
        name = _ASSIGNMENT.match(text, start, end)
        if any(begin <= start < stop for begin, stop in keys):
            continue
        if name is None and (line_end := text.find("\n", start, end)) >= 0:
            # systemd does not accept it: its other lines count separately.
            parts.append((line_end, end, _env_file(text[line_end:end])))
        elif name is not None:
            # A private key that begins in the value belongs to it, even if the value ends earlier for systemd.
            end = max([end, *(stop for begin, stop in keys if start < begin < end)])
            parts.append((name.end(), end, _assigned(name[1], text[name.end() : end])))
    return _put_together(text, parts, partial(_commented, _ENV_COMMENT, _env_file))


def _unit(text: str) -> str:
    """Raises FormatError if systemd would stop reading."""
    # Single lines of a unit have no section.
    data = _SERVICE + text
    parts: list[_Part] = []
    for entry in unit.entries(unit.UnitFile("", _bytes(data))):
        if _ENVIRONMENT.fullmatch(_last_word(entry.key)):
            parts += map(partial(_environment_word, data), words.split(entry.value, c_escapes=True, relaxed=True, unknown_escapes=True))
    return _put_together(data, parts, partial(_commented, _UNIT_COMMENT, _unit)).removeprefix(_SERVICE)


def _environment_word(text: str, word: Mapped) -> _Part:
    """One word of an Environment=."""
    start, end = word.extent
    written = text[start:end]
    name = _VARIABLE.match(text, start, end)
    equals = word.text.find(b"=")
    if name is None or equals < 0 or name.end() != word.spans[equals][0]:
        # After a missing quote, this may still be a part of a value.
        return start, end, mask_text(written) if _FLAGS.match(written) or not re.search(r"\w", written) else mask(written)
    start = word.spans[equals][1]
    if written[0] in "\"'" and text[start:end].endswith(written[0]):
        end -= 1
    return start, end, _assigned(name[1], text[start:end])


def _assigned(name: str, value: str) -> str:
    """The value of an environment variable, masked; in flags only what is secret."""
    quoted = _QUOTED.fullmatch(value)
    start, end = quoted.span(quoted.lastindex or 0) if quoted else (len(value) - len(value.lstrip()), len(value.rstrip()))
    inner = value[start:end]
    if not inner.strip("\"' \t"):
        return value
    flags = _FLAGS.match(inner) and not is_secret(name)
    return value[:start] + (mask_text(inner) if flags else mask(inner)) + value[end:]


# ---- YAML and JSON


def _manifest(text: str) -> str:
    """Raises FormatError if the text is not YAML."""
    seen = _Manifest(text)
    for top in yaml_text.tops(_readable(text)):
        seen.look(top, "")
    return _put_together(text, seen.parts, partial(_commented, _YAML_COMMENT, _within))


def _within(text: str) -> str:
    """A comment or a value, which may be YAML or JSON itself; masked completely if it has `value:` and cannot be parsed."""
    has_values = _ENV_VALUE.search(text) is not None
    # In JSON with escapes the lines of a text are not lines, so only its structure shows where they end.
    if not has_values and not _ESCAPED_JSON.match(text):
        return mask_text(text)
    try:
        if all(top.kind != "scalar" for top in yaml_text.tops(_readable(text))):
            return _manifest(text)
    except FormatError:
        pass
    return _whole(text) if has_values else mask_text(text)


def _last_word(name: str) -> str:
    """`value` also of `+  value`, a line of a diff."""
    return re.split(r"""[\s,+\\"']""", name)[-1]


def _whole(text: str) -> str:
    return re.sub(r"\S(?:[\s\S]*\S)?", lambda found: mask(found[0]), text)


class _Manifest:
    """Collects the replacement of each text in a document."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.parts: list[_Part] = []

    def look(self, node: YamlNode, parent: str) -> None:
        """`parent`: the key whose value, or item of its value, the node is."""
        if node.kind == "scalar":
            self._text(node)
        for key, value in node.pairs:
            self.look(key, "")
            variable = _last_word(key.text) == "value" and parent not in _OPEN_VALUES and not _is_plain_flag(node, parent)
            if not (variable or is_secret(key.text)) or not self._hide(key, value, variable):
                self.look(value, key.text)
        scalars = [(item, *self._inner(item)) for item in node.items if item.kind == "scalar"]
        words = mask_command([self.text[start:end] for _, start, end in scalars])
        for (item, start, end), word in zip(scalars, words, strict=True):
            if word == mask_text(self.text[start:end]):
                self._text(item)
            else:
                self.parts.append((start, end, word))
        for item in node.items:
            if item.kind != "scalar":
                self.look(item, parent)

    def _text(self, node: YamlNode) -> None:
        start, end = self._inner(node)
        if node.style == '"' and "\\" in self.text[start:end]:
            # Text with escapes differs from the text that it means, so it cannot be masked in part.
            self._put(start, end, _whole if _within(node.text) != node.text else str)
        else:
            self._put(start, end, _within)

    def _put(self, start: int, end: int, show: Callable[[str], str]) -> None:
        self.parts.append((start, end, show(self.text[start:end])))

    def _hide(self, key: YamlNode, node: YamlNode, variable: bool) -> bool:
        """Mask a value completely; False if there is nothing to hide, or if it has the name of a secret and is a map or a list of maps."""
        if node.kind == "scalar":
            start, end = self._inner(node)
            start = behind_scheme(key.text, self.text, start)
            if not variable and PLAIN.fullmatch(self.text, start, end):
                return False
            # A comment after it may be meant as a part of it: `value: #x`.
            if variable and start == end and (comment := _ONLY_COMMENT.match(self.text, key.end)):
                start, end = comment.span(1)
            elif "\n" in self.text[start:end] and (comment := _COMMENT_BEHIND.match(self.text, end)):
                end = comment.end()
        elif variable:
            start, end = node.start, node.end
        elif not all(item.pairs and all(_NAME.fullmatch(name.text) for name, _ in item.pairs) for item in node.items):
            start, end = node.items[0].start, node.items[-1].end
        else:
            return False
        self._put(start, end, _whole)
        return True

    def _inner(self, node: YamlNode) -> tuple[int, int]:
        """The extent of a scalar's text, without anchor, tag and quotes, and without the head of a block."""
        found = _PROPERTIES.match(self.text, node.start, node.end)
        start, end = found.end() if found else node.start, node.end
        if node.style in ("'", '"'):
            return start + 1, end - 1
        head = _BLOCK_HEAD.match(self.text, start, end) if node.style else None
        return (head.end() if head else start), end


def _is_plain_flag(item: YamlNode, parent: str) -> bool:
    """One of kubeadm's arguments, whose flag is no secret: `{name: v, value: "4"}` is shown as `--v=4` is elsewhere."""
    names = [value.text for key, value in item.pairs if key.text == "name"]
    return parent == _ARGUMENTS and len(names) == 1 and not is_secret(names[0])
