"""Output for many hosts: like ones share a line, no host is lost, and what differs stays visible."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.engine import folding, table
from roles.engine.bridge import doing, progress, terminal
from roles.engine.transaction import Refusal


@pytest.fixture(autouse=True)
def _many() -> Iterator[None]:
    folding.set_run(1000, [])
    yield
    folding.set_run(0, [])


def expanded(text: str) -> list[str]:
    """The hosts that a cell means, from its ranges."""
    found = []
    for part in text.partition(": ")[2].split(", ") if ": " in text else [text]:
        ends = re.fullmatch(r"(.*?)(\d+)(\D*?)-\1(\d+)\3", part)
        if ends is None:
            found.append(part)
        else:
            first, last = int(ends[2]), int(ends[4])
            found += [f"{ends[1]}{number:0{len(ends[2])}}{ends[3]}" for number in range(first, last + 1)]
    return found


names = st.builds(
    lambda prefix, number, width: f"{prefix}{number:0{width}}", st.sampled_from("wxn"), st.integers(0, 130), st.integers(1, 3)
)


@given(st.lists(names, min_size=1, max_size=40, unique=True))
def test_a_cell_names_each_host_in_order_or_counts_them(hosts: list[str]) -> None:
    text = folding.hosts(hosts)
    if text.endswith(", ..."):
        assert text.startswith(f"{len(hosts)} hosts: ") and expanded(text.removesuffix(", ...")) == hosts[: len(expanded(text)) - 1]
    else:
        assert expanded(text) == hosts and (len(hosts) == 1 or text.startswith(f"{len(hosts)} hosts: "))


def test_names_that_count_up_are_one_range() -> None:
    assert folding.hosts([f"w{number}" for number in range(1, 998)]) == "997 hosts: w1-w997"
    assert folding.hosts(["a-09.x", "a-10.x", "b"]) == "3 hosts: a-09.x-a-10.x, b"
    assert folding.hosts(["w9", "w10", "w11"]) == "3 hosts: w9-w11" and folding.hosts(["w1", "w1"]) == "w1"
    assert len(folding.hosts([f"host-{'abc'[number % 3]}{number * 2}" for number in range(1000)])) < 90


cells = st.sampled_from(["a", "b"])


@given(st.lists(st.tuples(cells, cells, cells), min_size=1, max_size=30))
def test_each_host_is_in_exactly_one_row_with_its_own_values(values: list[tuple[str, str, str]]) -> None:
    rows = [[f"w{number}", cell[0], cell[1], f"{number % 3} of {cell[2]}"] for number, cell in enumerate(values)]
    found = table.folded(rows, vary=(3,))
    assert len({(*row[1:3], row[3][-1]) for row in found}) == len(found)
    assert sum(int(row[0].partition(" hosts")[0]) if " hosts: " in row[0] else 1 for row in found) == len(rows)
    for row in found:
        own = [one for one in rows if (*one[1:3], one[3][-1]) == (*row[1:3], row[3][-1])]
        assert row[0] == folding.hosts([one[0] for one in own])
        numbers = sorted({one[3][0] for one in own})
        assert row[3] == f"{numbers[0]}{f'-{numbers[-1]}' if len(numbers) > 1 else ''} of {row[3][-1]}"


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        ("PID 12 is new; 9 pods unharmed", "PID 7 is new; 30 pods unharmed", "PID 7-12 is new; 9-30 pods unharmed"),
        ("3d", "45s", "45s-3d"),
        ("at 10.0.0.7 until 2027-01-02T03:04:05Z, 3fa9c1d2", "at 10.0.0.8 until 2027-02-02T03:04:05Z, 4fa9c1d2", "at ... until ..., ..."),
        ("9 pods unharmed", "9 pods unharmed; GONE: shop/web-1", ""),
        ("9 pods unharmed", "9 pods unharmed; gone, as announced: shop/web-1", ""),
        ("gates in /metrics", "NOT PROVEN: /metrics could not be read", ""),
        (
            "lease renewed; drained before it (3 pods moved), uncordoned",
            "lease renewed; drained before it (3 pods moved), ann has cordoned it",
            "",
        ),
        ("v1.36.3", "v1.36.4", ""),
        ("w1", "w2", ""),
        ("# pods", "3 pods", ""),
    ],
)
def test_what_varies_in_one_row_are_amounts_and_no_words(one: str, other: str, together: str) -> None:
    found = [row[1] for row in table.folded([["w1", one], ["w2", other]], vary=(1,))]
    assert found == ([together] if together else [one, other])


@given(st.text(max_size=40), st.text(max_size=40))
def test_texts_of_any_kind_share_a_row_only_if_their_words_are_the_same(one: str, other: str) -> None:
    assert table.in_common([one, one]) == one
    if table.wording(one) == table.wording(other):
        table.in_common([one, other])


def test_a_cell_of_any_length_does_not_widen_the_rows_of_others() -> None:
    text = table.render(["run", "what"], [["r" * 100_000, "x"], *([["r1", "y"]] * 100)])
    assert len(text) < 150_000


@pytest.mark.parametrize(("hosts", "verbose"), [(8, [None]), (1000, [True]), (1000, [None, True])])
def test_few_hosts_or_verbose_output_have_all_rows(hosts: int, verbose: list[bool | None]) -> None:
    folding.set_run(hosts, verbose)
    rows = [[f"w{number}", "same"] for number in range(20)]
    assert table.folded(rows) == rows
    sentences = [f"{row[0]}: x" for row in rows]
    assert folding.merged(sentences) == (sentences if True in verbose else [", ".join(row[0] for row in rows) + ": x"])
    assert folding.listed(["w1", "w2"] * 10) == ", ".join(["w1", "w2"] * 10)


def test_a_thousand_hosts_fit_on_a_screen() -> None:
    rows = [[f"w{number}", "kubelet", "v1.36.3", str(number), "various" if number == 700 else "well"] for number in range(1000)]
    text = table.render(["node", "component", "version", "pid", "state"], table.folded(rows, vary=(3,)))
    assert len(text.splitlines()) == 4 and "999 hosts: w0-w699, w701-w999" in text and "\nw700 " in text


def test_refusals_with_the_same_text_are_one() -> None:
    assert folding.merged([*(f"w{number}: no root" for number in range(1, 500)), "w500: no disk", "the API is away", "w501: no root"]) == [
        "500 hosts: w1-w499, w501: no root",
        "w500: no disk",
        "the API is away",
    ]


def test_notes_with_the_same_text_are_one() -> None:
    notes = [(f"w{number}", "evicts nothing" if number != 7 else "evicts shop/web") for number in range(1, 21)]
    folding.set_run(20, [])
    assert folding.alike(notes) == [("19 hosts: w1-w6, w8-w20", "evicts nothing"), ("w7", "evicts shop/web")]
    folding.set_run(20, [True])
    assert folding.alike(notes) == notes


def test_a_value_that_is_no_boolean_is_refused() -> None:
    with pytest.raises(ValueError, match="verbose='perhaps' is not a boolean"):
        folding.set_run(9, [None, "perhaps"])


@pytest.mark.parametrize(
    ("level", "text", "kept"),
    [
        (logging.INFO, "\x1b[1m[w1]\x1b[0m \x1b[32mConnected\x1b[0m", False),
        (logging.INFO, "[w1] Ready: deploys/status.py", False),
        (logging.INFO, "--> Connecting to hosts...", True),
        (logging.WARNING, "[w1] something", True),
        (logging.ERROR, "[w1] Could not connect", True),
    ],
)
def test_pyinfra_is_quiet_about_hosts_that_are_well(level: int, text: str, kept: bool) -> None:
    def record() -> logging.LogRecord:
        return logging.LogRecord("pyinfra", level, "", 0, text, None, None)

    assert terminal._Log().filter(record()) is kept
    folding.set_run(8, [])
    assert terminal._Log().filter(record())


def test_the_line_of_progress_is_as_wide_as_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = progress._Texts(["0% (0/9)"])
    monkeypatch.setattr(progress.progress, "TERMINAL_WIDTH", 20)
    assert texts[-1] == "0% (0/9)"
    doing("read 340 of 1000 hosts")
    assert texts[-1] == "read 340 of " and len("    - " + texts[-1]) < 20
    monkeypatch.setattr(progress.progress, "TERMINAL_WIDTH", 80)
    now = 100.0
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now))
    doing("w1 (1/3) kubelet: healthy", 12)
    now = 107.4
    assert texts[-1] == "w1 (1/3) kubelet: healthy for 7 of 12 s"
    doing("[1/2] pod a/\x1b[2Jb: evict it", 0)
    now = 109.0
    assert texts[-1] == "[1/2] pod a/\\x1b[2Jb: evict it, 2 s"
    doing("")
    assert texts[-1] == "0% (0/9)"


def test_a_cell_says_each_part_once() -> None:
    away = "NOT PROVEN: cp1: the API gives no answer"
    assert folding.once_each(["PID 7 is new", away, "", away, "soaked"]) == f"PID 7 is new; {away}; soaked"


def test_a_mistake_that_several_refuse_is_one_refusal_with_its_way_out_first() -> None:
    by = (("cp1", "kube-apiserver"), ("cp1", "kube-scheduler"), ("cp1", "kubelet"), ("w1", "kubelet"))
    refusals = [Refusal(host, "refuses it", "write it right", mistake="MemoryQoS? You wrote memoryQoS", by=name) for host, name in by]
    assert Refusal.texts([Refusal("w1", "no room"), *refusals, "w2: text"]) == [
        "MemoryQoS? You wrote memoryQoS. Refused by kube-apiserver, kube-scheduler on cp1; kubelet on cp1, w1",
        "w1: no room",
        "w2: text",
    ]
