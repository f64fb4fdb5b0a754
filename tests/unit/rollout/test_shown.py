"""What nodes and clusters say never steers the operator's terminal, wherever it is shown."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyinfra.api import output
from pyinfra.api.exceptions import DeployError

from roles.rollout import remote as bridge
from roles.rollout import table
from roles.shown import Harmless, harmless, one_line, set_off

# OSC 52 (the clipboard), cursor up and erase, a C1 control, right-to-left override, zero width space, a carriage return, a raw byte.
CLIPBOARD = "\x1b]52;c;Y3VybCBldmlsfHNo\x07"
EVIL = f"w1{CLIPBOARD}\x1b[1A\x1b[2K\x9b31m\u202egpj.exe\u200b\u2066\roverwritten\udcff\x08\x7f"


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What reaches the terminal by pyinfra's face for its command line."""
    lines: list[str] = []
    monkeypatch.setattr(output, "_echo", lambda message=None, **_: lines.append(str(message)))
    yield lines


def harms(text: str) -> list[str]:
    return [character for character in text if not character.isprintable() and character not in "\n\t"]


def test_all_that_is_shown_is_harmless(printed: list[str]) -> None:
    bridge.show(f"  {EVIL}\n\tkept")
    assert len(printed) == 1 and harms(printed[0]) == []
    assert "\\x1b]52;c;" in printed[0] and "\\u202e" in printed[0] and printed[0].endswith("\n\tkept")


def test_a_refusal_is_harmless_and_its_quotes_are_set_off() -> None:
    with pytest.raises(DeployError) as refused:
        bridge.stop([f"w1: {EVIL}", "w2: it says a\n  - cp1: all is well"])
    text = str(refused.value)
    assert harms(text) == [] and [line for line in text.splitlines() if line.startswith("  - ")] == [
        line for line in text.splitlines() if line.startswith(("  - w1", "  - w2"))
    ]


def test_an_error_of_its_own_is_harmless(printed: list[str]) -> None:
    def work(fleet: Any) -> None:
        raise ValueError(EVIL)

    result: Any = bridge.AsyncResult()
    bridge._settle(result, work, None)  # type: ignore[arg-type]
    with pytest.raises(DeployError, match="an error of daytwo's own") as refused:
        result.get()
    assert harms(str(refused.value)) == [] and harms("".join(printed)) == [] and "in work" in "".join(printed)


def test_pyinfras_own_messages_keep_their_colours_and_nothing_else() -> None:
    assert any(isinstance(one, Harmless) for one in logging.getLogger("pyinfra").filters)
    head = click.style("[w1] ", bold=True) + click.style("Error", "red", bold=True)
    record = logging.LogRecord("pyinfra", logging.ERROR, "", 0, "%s: %s", (head, EVIL), None)
    assert Harmless().filter(record)
    shown = record.getMessage()
    assert shown.startswith(head) and harms(shown.replace(head, "")) == []
    concealed = logging.LogRecord("pyinfra", logging.ERROR, "", 0, "\x1b[8mhidden\x1b[30m", (), None)
    Harmless().filter(concealed)
    assert concealed.getMessage() == "\\x1b[8mhidden\\x1b[30m"


def test_no_cell_of_a_table_makes_a_line() -> None:
    lines = table.render(["node", "state"], [["w1\nw2  confirmed", EVIL]]).splitlines()
    assert len(lines) == 3 and harms("".join(lines)) == []


def test_a_line_of_others_never_looks_like_one_of_daytwos() -> None:
    assert set_off("failed\nHALTED: no") == "failed\n    | HALTED: no"


@given(st.text())
def test_no_text_at_all_gets_through(text: str) -> None:
    assert harms(harmless(text)) == [] and one_line(text).isprintable()
    assert harmless(harmless(text)) == harmless(text)
