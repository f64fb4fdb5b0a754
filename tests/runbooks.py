"""Runbooks as a test reads them: the commands, and what the reader is told to see. Pure: knows no host.

A runbook (docs/runbooks/*.md) has a title, sections (`## `, and `### ` in them), and fenced blocks of two kinds:

    ```console            commands and what they print, as on a terminal
    $ COMMAND             typed on the operator's machine, in the clone
    w1# COMMAND           typed on the node w1, as root; a backslash at a line's end goes on in the next
    ...                   any lines, also none; within a line: anything
    [exit status 1]       last line of what is printed: the command ends with this status (else with 0)

    ```python             a file of the inventory, named by its first line: # inventories/group_data/workers.py

Lines are compared without regard to the width of gaps and rules in tables. A command with nothing below it prints nothing.
`<n>` is any number; `<run>` (or any name in such brackets) is one word, which is the same one wherever it stands in that runbook
from then on, in commands too; a name that ends with `run` is the name of a run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

SECTIONS = ("When", "Before you start", "Commands", "What you should see", "When to stop", "Way back")
ANY = "..."
_PROMPT = re.compile(r"(?:(?P<node>[a-z][a-z0-9]*)#|\$) (?P<command>.+)")
_STATUS = re.compile(r"\[exit status (\d+)\]")
_NAME = re.compile(r"<([a-z][a-z0-9-]*)>")
_FILE = re.compile(r"# (inventories/\S+)")
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


class RunbookError(ValueError):
    """A runbook that cannot be read, or that tells another story than the cluster: file, line, and what is so instead."""


@dataclass(frozen=True)
class Command:
    """One command; `node` is empty for the operator's own machine, `line` the one in the file where it stands."""

    line: int
    node: str
    text: str
    expected: tuple[str, ...] = ()
    status: int = 0


@dataclass(frozen=True)
class File:
    """A file of the inventory, to be written before what follows."""

    line: int
    path: str
    text: str


@dataclass(frozen=True)
class Runbook:
    """`rooms` are the sections of the first level; `sections` has those below them as well, each by its own name."""

    name: str
    title: str
    rooms: tuple[str, ...]
    sections: dict[str, tuple[Command | File, ...]]

    @property
    def items(self) -> Iterator[Command | File]:
        for items in self.sections.values():
            yield from items


def parse(name: str, text: str) -> Runbook:
    """Raises RunbookError for a block of another kind, and for what is in none of these forms."""
    title, section = "", ""
    rooms: list[str] = []
    sections: dict[str, list[Command | File]] = {}
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        if line.startswith("```"):
            block = list(_block(name, number, lines))
            if not section:
                raise RunbookError(f"{name}:{number}: a block before the first section")
            if line == "```console":
                sections[section].extend(_commands(name, block))
            elif line == "```python":
                sections[section].append(_file(name, number, block))
            else:
                raise RunbookError(f"{name}:{number}: {line} is neither ```console nor ```python, and nobody would run it")
        elif line.startswith(("## ", "### ")):
            marks, _, section = line.partition(" ")
            section = section.strip()
            if section in sections:
                raise RunbookError(f"{name}:{number}: a second section {section!r}")
            sections[section] = []
            if marks == "##":
                rooms.append(section)
        elif line.startswith("# ") and not title:
            title = line[2:].strip()
        elif line.startswith("    ") and _PROMPT.fullmatch(line.strip()):
            raise RunbookError(f"{name}:{number}: a command outside of a ```console block, which nobody would run")
    return Runbook(name, title, tuple(rooms), {section: tuple(items) for section, items in sections.items()})


def _block(name: str, begun: int, lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    for number, line in lines:
        if line.startswith("```"):
            return
        yield number, line
    raise RunbookError(f"{name}:{begun}: the block has no end")


def _commands(name: str, block: list[tuple[int, str]]) -> Iterator[Command]:
    found: list[tuple[int, str, list[str], list[str]]] = []
    goes_on = False
    for number, line in block:
        prompt = None if goes_on else _PROMPT.fullmatch(line)
        if goes_on:
            found[-1][2].append(line)
        elif prompt:
            found.append((number, prompt["node"] or "", [prompt["command"]], []))
        elif not found:
            raise RunbookError(f"{name}:{number}: a ```console block begins with a command, `$ ...` or `NODE# ...`")
        else:
            found[-1][3].append(line)
        goes_on = bool(prompt or goes_on) and line.endswith("\\")
    for number, node, words, shown in found:
        while shown and not shown[-1].strip():
            shown.pop()
        status = _STATUS.fullmatch(shown[-1]) if shown else None
        expected = tuple(shown[:-1] if status else shown)
        yield Command(number, node, "\n".join(words), expected, int(status[1]) if status else 0)


def _file(name: str, number: int, block: list[tuple[int, str]]) -> File:
    named = _FILE.fullmatch(block[0][1]) if block else None
    if not named:
        raise RunbookError(f"{name}:{number}: a ```python block begins with the file's name: # inventories/group_data/all.py")
    return File(number, named[1], "".join(f"{line}\n" for _, line in block))


def normal(line: str) -> str:
    """Without colours, with single blanks and short rules: how wide a table is depends on what is in it."""
    return re.sub(r"-{2,}", "--", re.sub(r"\s+", " ", _ANSI.sub("", line))).strip()


@dataclass
class Words:
    """What the names in brackets have turned out to be."""

    known: dict[str, str] = field(default_factory=dict)

    def put_in(self, text: str) -> str:
        """A command with its names as words. Raises KeyError for one that nothing has shown so far."""
        return _NAME.sub(lambda name: self.known[name[1]], text)

    def pattern(self, line: str) -> re.Pattern[str]:
        """What a line of output must look like."""
        made, groups, end = "", set[str](), 0
        line = normal(line)
        for part in re.finditer(r"\.\.\.|<([a-z][a-z0-9-]*)>", line):
            made += re.escape(line[end : part.start()])
            end = part.end()
            name = part[1]
            group = f"_{name.replace('-', '_')}" if name else ""
            if name is None:
                made += ".*"
            elif name == "n":
                made += r"\d+(?:\.\d+)?"
            elif name in self.known:
                made += re.escape(self.known[name])
            elif group in groups:
                made += f"(?P={group})"
            else:
                groups.add(group)
                made += f"(?P<{group}>" + (r"r\d{8}-\d{6}-[0-9a-f]{4}" if name.endswith("run") else r"[^\s,;]+") + ")"
        return re.compile(made + re.escape(line[end:]))

    def see(self, line: str, output: str) -> bool:
        """Whether a line of output is what is expected; its names are known from then on."""
        found = self.pattern(line).fullmatch(normal(output))
        if found:
            self.known.update({group[1:].replace("_", "-"): value for group, value in found.groupdict().items()})
        return bool(found)


def differs(expected: tuple[str, ...], output: str, words: Words) -> str:
    """Why the output is not what is expected; empty where it is, and then the names in it are known."""
    lines = output.rstrip("\n").splitlines() if output.strip() else []
    parts: list[list[str]] = [[]]
    for line in expected:
        if line.strip() == ANY:
            parts.append([])
        else:
            parts[-1].append(line)
    at = 0
    for number, part in enumerate(parts):
        first, last = number == 0, number == len(parts) - 1
        # Where nothing stands between, the place is given: the beginning; the end, for what stands last.
        starts = [0] if first else [len(lines) - len(part)] if last and part else range(at, len(lines) - len(part) + 1)
        for start in starts:
            tried = Words(dict(words.known))
            fits = at <= start <= len(lines) - len(part)
            if fits and all(tried.see(line, shown) for line, shown in zip(part, lines[start:], strict=False)):
                words.known = tried.known
                at = start + len(part)
                break
        else:
            return f"nowhere after line {at}, or not where they belong:\n" + "\n".join(f"    {line}" for line in part)
    if len(parts) == 1 and at < len(lines):
        return f"more is printed than these {at} lines"
    return ""
