"""The reader of runbooks, and that all of them have the form that it needs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.runbooks import SECTIONS, Command, File, RunbookError, Words, differs, normal, parse

ROOT = Path(__file__).resolve().parents[3]
BOOKS = sorted(path for path in (ROOT / "docs/runbooks").glob("*.md") if path.name != "README.md")
# What every operator's collection of runbooks for day 2 must have.
ASKED = {
    "gate-on", "gate-off", "control-plane-flag", "roll-out-halted", "node-did-not-come-back", "api-server-down", "roll-back",
    "before-an-upgrade", "budgets-that-block", "drain-a-node", "eviction-thresholds", "priority-classes", "resize", "air-gapped-node",
    "static-cpu-manager", "reboot", "metrics-api", "autoscaler-unknown", "scale-on-cpu", "right-size", "turn-off", "turn-off-for-the-night",
    "reclaimable-machine", "wake-for-a-deployment", "machine-does-not-wake",
}  # fmt: skip


def book(*lines: str) -> str:
    return "\n".join(("# Title", "## Commands", *lines)) + "\n"


def commands(*lines: str) -> list[Command]:
    return [item for item in parse("x", book("```console", *lines, "```")).items if isinstance(item, Command)]


def test_commands_and_what_they_print() -> None:
    first, second = commands("$ ls /tmp", "one", "", "two", "", "w1# cat state", "[exit status 1]")
    assert first == Command(4, "", "ls /tmp", ("one", "", "two"))
    assert second == Command(9, "w1", "cat state", (), 1)


def test_a_command_of_several_lines() -> None:
    (found,) = commands("$ pyinfra a \\", "    --data b=c", "seen")
    assert found.text == "pyinfra a \\\n    --data b=c" and found.expected == ("seen",)


def test_a_file_of_the_inventory() -> None:
    (found,) = parse("x", book("```python", "# inventories/group_data/all.py", "a = 1", "```")).items
    assert found == File(3, "inventories/group_data/all.py", "# inventories/group_data/all.py\na = 1\n")


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (("```", "x", "```"), "x:3: ``` is neither"),
        (("```sh", "ls", "```"), "nobody would run it"),
        (("```console", "$ ls"), "x:3: the block has no end"),
        (("```console", "out", "```"), "x:4: a ```console block begins with a command"),
        (("```python", "a = 1", "```"), "begins with the file's name"),
        (("    $ ls",), "x:3: a command outside"),
        (("## Commands",), "a second section"),
    ],
)
def test_what_nobody_would_run_is_an_error(lines: tuple[str, ...], words: str) -> None:
    with pytest.raises(RunbookError, match=re.escape(words)):
        parse("x", book(*lines))


def seen(expected: str, output: str, **known: str) -> tuple[str, dict[str, str]]:
    words = Words(dict(known))
    return differs(tuple(expected.splitlines()), output, words), words.known


@pytest.mark.parametrize(
    ("expected", "output"),
    [
        ("", ""),
        ("a\nb", "a\nb\n"),
        ("...", ""),
        ("...", "a\nb\n"),
        ("...\nb\n...", "a\nb\nc\n"),
        ("...\nb", "b\n"),
        ("...\nb", "b\na\nb\n"),
        ("a\n...\nc", "a\nc\n"),
        ("a\n...\nb\nc\n...\nd", "a\nb\nx\nb\nc\nd\n"),
        ("w1  ok\n----  --", "w1    ok\n------  -----\n"),
        ("ready in <n> s, <n>", "\x1b[1mready\x1b[0m in 12.5 s, 3\n"),
        ("w1: ... (default)", "w1: NodeSwap (default)\n"),
    ],
)
def test_what_is_as_expected(expected: str, output: str) -> None:
    assert seen(expected, output)[0] == ""


@pytest.mark.parametrize(
    ("expected", "output"),
    [
        ("", "a\n"),
        ("a", ""),
        ("a", "a\nb\n"),
        ("a\nb", "a\n"),
        ("...\na", "a\nb\n"),
        ("...\nb\n...", "a\nc\n"),
        ("...\nb\nc\n...", "b\nx\nc\n"),
        ("...\nb\n...\na\n...", "a\nb\n"),
        ("a\n...\na", "a\n"),
        ("in <n> s", "in x s\n"),
        ("<x> and <x>", "a and b\n"),
        ("a.c", "abc\n"),
    ],
)
def test_what_is_not_as_expected(expected: str, output: str) -> None:
    assert seen(expected, output)[0] != ""


def test_names_are_kept() -> None:
    run = "r20260131-235900-1a2b"
    why, known = seen("Plan of run <run>: <n> changes\n...\nundo <run>", f"Plan of run {run}: 3 changes\nx\nundo {run}\n")
    assert (why, known) == ("", {"run": run})
    assert Words(known).put_in("rollback --data run=<run>") == f"rollback --data run={run}"
    assert seen("run <run>", "run r20260131-235900-1a2c\n", run=run)[0] != ""
    with pytest.raises(KeyError):
        Words().put_in("cat <id>")


def test_a_name_is_not_taken_from_lines_that_do_not_fit() -> None:
    assert seen("...\nw1 <id>\nend", "w1 a\nw1 b\nend\n") == ("", {"id": "b"})


def test_width_and_colour_do_not_count() -> None:
    assert normal("\x1b[32ma   b\x1b[0m  ") == "a b" and normal("-----  --") == normal("--  ---------")


# ---- the runbooks that there are


def test_all_that_were_asked_for_are_there() -> None:
    assert {path.stem for path in BOOKS} == ASKED
    listed = re.findall(r"\]\(([a-z-]+)\.md\)", (ROOT / "docs/runbooks/README.md").read_text())
    assert sorted(listed) == sorted(ASKED), "docs/runbooks/README.md lists each once"


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_each_has_the_same_rooms_and_is_read_by_a_test(path: Path) -> None:
    found = parse(path.stem, path.read_text())
    assert found.title
    assert found.rooms == SECTIONS
    assert any(isinstance(item, Command) for item in found.items), "no commands"
    tests = "".join((ROOT / f"tests/integration/test_{name}.py").read_text() for name in ("runbooks", "power"))
    assert f'"{path.stem}"' in tests, f"no test does what {path.name} says"


@pytest.mark.parametrize("path", [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")], ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[\w-]*)?\)", text):
        if not target.startswith(("http:", "https:", "mailto:")):
            assert (path.parent / target).exists(), f"{path.name}: {target} is not there"
