"""What is printed fits the terminal: lines wrap at words, commands stay whole, colours only where they are wanted."""

from __future__ import annotations

import io
import os
import pty
import struct
import termios
from collections.abc import Iterator
from fcntl import ioctl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.engine import screen, voice
from roles.engine.harmless import one_line
from roles.engine.screen import columns, has_colours, painted, wrap

BACK = "pyinfra inventories/prod.py deploys/rollback.py --data run=r20260131-235900-1a2b -y"


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def terminal() -> Iterator[io.TextIOWrapper]:
    """A terminal of 120 columns."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 120, 0, 0))
    with os.fdopen(theirs, "w") as opened:
        yield opened
    os.close(ours)


@pytest.mark.parametrize(("asked", "found"), [("", 120), ("90", 90), ("0", 120), ("wide", 120), ("7", 40), ("9999", 200), ("-80", 120)])
def test_the_width_is_the_terminals_unless_columns_says_another(
    terminal: io.TextIOWrapper, monkeypatch: pytest.MonkeyPatch, asked: str, found: int
) -> None:
    monkeypatch.setenv("COLUMNS", asked)
    assert screen.width(terminal) == found
    assert screen.width(io.StringIO()) is None
    with screen.for_file():
        assert screen.width(terminal) is None


def test_a_terminal_that_does_not_say_its_width_has_the_usual_one(terminal: io.TextIOWrapper) -> None:
    ioctl(terminal.fileno(), termios.TIOCSWINSZ, struct.pack("HHHH", 0, 0, 0, 0))
    assert screen.width(terminal) == screen.USUAL


@pytest.mark.parametrize(
    ("no", "force", "on_terminal", "piped"),
    [("", "", True, False), ("1", "", False, False), ("0", "1", False, False), ("", "1", True, True), ("", "0", True, True)],
)
def test_colours(terminal: io.TextIOWrapper, monkeypatch: pytest.MonkeyPatch, no: str, force: str, on_terminal: bool, piped: bool) -> None:
    monkeypatch.setenv("NO_COLOR", no)
    monkeypatch.setenv("FORCE_COLOR", force)
    assert has_colours(terminal) is on_terminal and has_colours(io.StringIO()) is piped


@pytest.mark.parametrize(
    ("text", "taken"),
    [("plain", 5), ("東京", 4), ("e\u0301", 1), ("\x1b[31mred\x1b[0m", 3), ("カ", 2), ("ｶ", 1), ("😀", 2), ("ü", 1), ("", 0)],
)
def test_columns_of_a_text(text: str, taken: int) -> None:
    assert columns(text) == taken


@pytest.mark.parametrize(
    ("line", "lines"),
    [
        ("a sentence that is longer than its line", ["a sentence that is", "  longer than its line"]),
        ("  w1 kubelet: healthy for seven seconds", ["  w1 kubelet: healthy", "    for seven seconds"]),
        ("    - a note that is longer than a line", ["    - a note that is", "      longer than a", "      line"]),
        ("      -> a way out that does not fit here", ["      -> a way out", "         that does not", "         fit here"]),
        ("    | HALTED: w2 is what a log says of itself", ["    | HALTED: w2 is", "    | what a log says", "    | of itself"]),
        ("short", ["short"]),
        ("of /var/lib/kubelet/config.yaml.before and so on", ["of", "  /var/lib/kubelet/config.yaml.before", "  and so on"]),
        (f"To undo them: {BACK}", ["To undo them:", f"  {BACK}"]),
        ("Undo: daytwo -i x.py rollback run=r1", ["Undo:", "  daytwo -i x.py rollback run=r1"]),
        (f"{BACK} brings them back as they were", [BACK, "  brings them back as", "  they were"]),
        ("and with `systemctl daemon-reload`, then go on", ["and with", "  `systemctl daemon-reload`,", "  then go on"]),
        ("or: kubectl get csr -o yaml; and then look at it", ["or:", "  kubectl get csr -o yaml;", "  and then look at it"]),
        ("leave it out with --data skip_unreachable=true or not", ["leave it out with", "  --data skip_unreachable=true", "  or not"]),
        ("reverts after so long 210 s, and", ["reverts after so long", "  210 s, and"]),
        ("see deploys/drain.py --dry shows each pod", ["see", "  deploys/drain.py --dry", "  shows each pod"]),
        ("東京東京 東京東京 東京東京", ["東京東京 東京東京", "  東京東京"]),
    ],
)
def test_lines_wrap_at_words_with_a_hanging_indent(line: str, lines: list[str]) -> None:
    assert wrap(line, 22).split("\n") == lines
    assert wrap(line, None) == line


TEXTS = st.lists(
    st.one_of(
        st.text(st.characters(exclude_categories=["Cs", "Zs"]), min_size=1, max_size=30),
        st.sampled_from(
            ["- ", "| ", "  ", "[red]", "`one two`", BACK, "--data a=b", "see kubectl get csr -o yaml;", "東京", "\x1b[31m", "\t"]
        ),
    ),
    max_size=30,
).map(" ".join)


@given(TEXTS, st.integers(40, 200))
def test_no_line_is_too_long_and_nothing_is_lost(text: str, most: int) -> None:
    line = one_line(text)
    *lines, last = wrap(line, most).split("\n")
    for one in (*lines, last):
        assert columns(one) <= most or len([*screen.words(screen._MARGIN.sub("", one, count=1))]) == 1
    margin = screen._MARGIN.match(line)[0] if line else ""  # type: ignore[index]
    bar = margin if margin.endswith("| ") else ""
    assert "".join(one.removeprefix(bar) for one in (*lines, last)).replace(" ", "") == line.removeprefix(bar).replace(" ", "")
    # A line that wraps has nothing at the left edge but its own beginning.
    assert all(one.startswith((" ", *([bar] if bar else []))) for one in [*lines, last][1:])


def test_a_sentence_that_is_shown_wraps_and_has_its_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(voice, "_out", said.append)
    monkeypatch.setattr(screen, "width", lambda stream=None: 40)
    monkeypatch.setenv("FORCE_COLOR", "1")
    voice.show("\n\nWARNING: the kubelet of w1\x1b[2J\nHALTED says what it wants, [red]and more[/red]")
    voice.show_diff(["--- a", "+++ b", "@@ -1 +1 @@", "-old\x1b[2J", "+new " + "x " * 40, " same"])
    voice.show_document('{"outcome": "x",\n  "why": "WARNING: it is  confirmed  as ever, and this line is long"}')
    red, green, cyan, end = "\x1b[31m", "\x1b[32m", "\x1b[36m", "\x1b[0m"
    assert said == [
        f"\n\n\x1b[33mWARNING{end}: the kubelet of\n  w1\\x1b[2J\\nHALTED says what it wants,\n  [red]and more[/red]",
        f"    {red}--- a{end}\n    {green}+++ b{end}\n    {cyan}@@ -1 +1 @@{end}\n    {red}-old\\x1b[2J{end}\n"
        f"    {green}+new {'x ' * 40}{end}\n     same",
        '{"outcome": "x",\n  "why": "WARNING: it is  confirmed  as ever, and this line is long"}',
    ]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("  w1 kubelet: confirmed (12 s)", "  w1 kubelet: <32>confirmed<0> (12 s)"),
        ("  pod shop/web-1: failed: it did not end", "  pod shop/web-1: <31>failed<0>: it did not end"),
        ("HALTED: w1, kubelet: reverted: no answer", "<31>HALTED<0>: w1, kubelet: <31>reverted<0>: no answer"),
        ("w1    kubelet  confirmed  12  metric", "w1    kubelet  <32>confirmed<0>  12  metric"),
        ("w1    kubelet-gates  fail", "w1    kubelet-gates  <31>fail<0>"),
        ("w1  unknown  NOT PROVEN: no metric", "w1  <33>unknown<0>  <33>NOT PROVEN<0>: no metric"),
        ("CRITICAL", "<31>CRITICAL<0>"),
        ("NOTE", "<36>NOTE<0>"),
        ("the change is confirmed, and nothing failed", "the change is confirmed, and nothing failed"),
        ("      become healthy: failed", "      become healthy: failed"),
        ("WARNINGS and NOTES of HALTEDNESS", "WARNINGS and NOTES of HALTEDNESS"),
    ],
)
def test_what_has_a_colour(line: str, shown: str) -> None:
    found = painted(line)
    for number in ("0", "31", "32", "33", "36"):
        found = found.replace(f"\x1b[{number}m", f"<{number}>")
    assert found == shown
