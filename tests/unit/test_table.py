"""Tables fit the terminal: at 80, 100 and 200 columns, with rows of a drain's plan, of a proof and of an audit."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from roles.engine import folding, screen, table
from roles.engine.harmless import one_line
from roles.engine.screen import columns

PODS = (
    ["node", "pod", "what", "replacement", "why"],
    [
        ["w1", "shop/web-7d4b9c6f5-x2x9p", "evict", "w2", "ReplicaSet web-7d4b9c6f5 creates it again; its budget shop/web allows 1 now"],
        ["w1", "db/postgres-0", "evict", "w2", "StatefulSet postgres; NOT NOW, the run waits: its budget db/postgres allows 0 disruptions"],
        ["w1", "kube-system/kube-proxy-8kq2l", "stays", "-", "of a DaemonSet"],
    ],
)
PROOFS = (
    ["node", "component", "gate", "before", "after", "outcome", "s", "proof"],
    [
        ["w1", "kubelet", "NodeSwap", "false", "true", "confirmed", "19", "new process 81234 with the planned arguments, healthy for 7 s"],
        ["w2", "kubelet", "NodeSwap", "false", "true", "reverted", "31", "no answer at http://127.0.0.1:10248/healthz for 40 s; NodeSwap"],
        ["w3", "kubelet", "NodeSwap", "false", "true", "confirmed", "20", "healthy for 7 s; NOT PROVEN: no metric of this gate was found"],
    ],
)
SETTINGS = (
    ["section", "name", "3 nodes: cp1, w1-w2"],
    [
        ["kubelet", "evictionHard.memory.available", "100Mi (file: 500Mi)"],
        ["kube-apiserver", "enable-admission-plugins", "NodeRestriction [m]"],
    ],
)
TABLES = {"pods": PODS, "proofs": PROOFS, "settings": SETTINGS}
SHOWN = {
    ("pods", 80): """\
node  pod                           what   replacement  why
----  ----------------------------  -----  -----------  ------------------------
w1    shop/web-7d4b9c6f5-x2x9p      evict  w2           ReplicaSet web-7d4b9c6f5
                                                        creates it again; its
                                                        budget shop/web allows 1
                                                        now
w1    db/postgres-0                 evict  w2           StatefulSet postgres;
                                                        NOT NOW, the run waits:
                                                        its budget db/postgres
                                                        allows 0 disruptions
w1    kube-system/kube-proxy-8kq2l  stays  -            of a DaemonSet""",
    ("pods", 100): """\
node  pod                           what   replacement  why
----  ----------------------------  -----  -----------  --------------------------------------------
w1    shop/web-7d4b9c6f5-x2x9p      evict  w2           ReplicaSet web-7d4b9c6f5 creates it again;
                                                        its budget shop/web allows 1 now
w1    db/postgres-0                 evict  w2           StatefulSet postgres; NOT NOW, the run
                                                        waits: its budget db/postgres allows 0
                                                        disruptions
w1    kube-system/kube-proxy-8kq2l  stays  -            of a DaemonSet""",
    ("pods", 200): """\
node  pod                           what   replacement  why
----  ----------------------------  -----  -----------  -----------------------------------------------------------------------------------------
w1    shop/web-7d4b9c6f5-x2x9p      evict  w2           ReplicaSet web-7d4b9c6f5 creates it again; its budget shop/web allows 1 now
w1    db/postgres-0                 evict  w2           StatefulSet postgres; NOT NOW, the run waits: its budget db/postgres allows 0 disruptions
w1    kube-system/kube-proxy-8kq2l  stays  -            of a DaemonSet""",
    ("proofs", 80): """\
node  component  gate      before  after  outcome    s
----  ---------  --------  ------  -----  ---------  --
w1    kubelet    NodeSwap  false   true   confirmed  19
      proof: new process 81234 with the planned arguments, healthy for 7 s
w2    kubelet    NodeSwap  false   true   reverted   31
      proof: no answer at http://127.0.0.1:10248/healthz for 40 s; NodeSwap
w3    kubelet    NodeSwap  false   true   confirmed  20
      proof: healthy for 7 s; NOT PROVEN: no metric of this gate was found""",
    ("proofs", 100): """\
node  component  gate      before  after  outcome    s   proof
----  ---------  --------  ------  -----  ---------  --  -------------------------------------------
w1    kubelet    NodeSwap  false   true   confirmed  19  new process 81234 with the planned argum...
w2    kubelet    NodeSwap  false   true   reverted   31  no answer at http://127.0.0.1:10248/healthz
                                                         for 40 s; NodeSwap
w3    kubelet    NodeSwap  false   true   confirmed  20  healthy for 7 s; NOT PROVEN: no metric of
                                                         this gate was found""",
    ("proofs", 200): """\
node  component  gate      before  after  outcome    s   proof
----  ---------  --------  ------  -----  ---------  --  --------------------------------------------------------------
w1    kubelet    NodeSwap  false   true   confirmed  19  new process 81234 with the planned arguments, healthy for 7 s
w2    kubelet    NodeSwap  false   true   reverted   31  no answer at http://127.0.0.1:10248/healthz for 40 s; NodeSwap
w3    kubelet    NodeSwap  false   true   confirmed  20  healthy for 7 s; NOT PROVEN: no metric of this gate was found""",
    ("settings", 80): """\
section         name                           3 nodes: cp1, w1-w2
--------------  -----------------------------  -------------------
kubelet         evictionHard.memory.available  100Mi (file: 500Mi)
kube-apiserver  enable-admission-plugins       NodeRestriction [m]""",
}


@pytest.fixture(autouse=True)
def few() -> None:
    folding.set_run(3, [])


def at(monkeypatch: pytest.MonkeyPatch, most: int | None, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    monkeypatch.setattr(screen, "width", lambda stream=None: most)
    return table.render(headers, rows)


@pytest.mark.parametrize(("name", "most"), SHOWN)
def test_tables_fit_the_terminal(monkeypatch: pytest.MonkeyPatch, name: str, most: int) -> None:
    shown = at(monkeypatch, most, *TABLES[name])
    assert shown == SHOWN[name, most] and max(map(columns, shown.splitlines())) <= most


@pytest.mark.parametrize("name", TABLES)
def test_without_a_terminal_a_row_is_one_line(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    headers, rows = TABLES[name]
    assert len(at(monkeypatch, None, headers, [[*row[:-1], row[-1] * 9] for row in rows]).splitlines()) == 2 + len(rows)


def test_verbose_shows_proofs_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    headers, rows = PROOFS
    assert "arguments," not in at(monkeypatch, 100, headers, rows)
    folding.set_run(3, [True])
    shown = at(monkeypatch, 100, headers, rows)
    assert "new process 81234 with the planned\n" in shown and "arguments, healthy for 7 s\n" in shown
    assert table.short("x" * 500) == "x" * 500


def test_what_failed_and_what_is_not_proven_is_never_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    headers, rows = PROOFS
    for most in (40, 60, 80, 100):
        words = at(monkeypatch, most, headers, rows).split()
        assert [word for word in words if word in ("http://127.0.0.1:10248/healthz", "found")] == [
            "http://127.0.0.1:10248/healthz",
            "found",
        ]


def test_a_long_path_is_whole_and_its_row_goes_on_below(monkeypatch: pytest.MonkeyPatch) -> None:
    path, digest = f"/etc/systemd/system/{'x' * 80}.conf", "9f86d081884c7d65" * 3
    shown = at(
        monkeypatch, 80, ["node", "path", "sha256", "why"], [["w1", "/a", "-", "absent"], ["w2", path, digest, "it is not the same"]]
    )
    assert shown.splitlines() == [
        "node", "----",
        "w1", "      path: /a; why: absent",
        "w2", "      path:", f"        {path};", f"        sha256: {digest}; why: it is not", "        the same",
    ]  # fmt: skip


def test_hostile_cells_are_text(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [["[red]w1[/red]", "\x1b[2J\x1b[31m", "a\tb\nw2"], ["東京", "e\u0301", "plain"]]
    assert at(monkeypatch, 80, ["node", "name", "why"], rows).splitlines() == [
        "node           name             why",
        "-------------  ---------------  --------",
        "[red]w1[/red]  \\x1b[2J\\x1b[31m  a\\tb\\nw2",
        "東京           e\u0301                plain",
    ]


CELLS = st.one_of(
    st.text(max_size=60),
    st.lists(
        st.sampled_from(["a", "word", "[red]", "東京", "e\u0301", "\x1b[31m", "\t", "x" * 45, "/etc/y" * 20, "`two words`"]), max_size=12
    ).map(" ".join),
)
TABLE = st.integers(1, 6).flatmap(lambda wide: st.lists(st.lists(CELLS, min_size=wide, max_size=wide), min_size=1, max_size=5))


@given(TABLE, st.sampled_from([40, 80, 100, 200]))
@example([["0" * 17, " ".join(["a"] * 90)]], 200)  # wider than CELL, and narrower than the terminal
@example([["0" * 22, " ".join(["a"] * 90)]], 200)
@example([["0" * 38, "0" * 20, "\x1f`\U00018cd6\U00018d09", "` a"]], 40)  # a quote that begins in one cell, and would end in the next
def test_no_line_is_too_long_and_nothing_of_a_cell_is_lost(rows: list[list[str]], most: int) -> None:
    headers = [f"h{number}" for number in range(len(rows[0]))]
    with pytest.MonkeyPatch.context() as patch:
        shown = at(patch, most, headers, rows).splitlines()
    words = [[word for cell in row if cell != "-" for word in screen.words(one_line(cell))] for row in rows]
    for line in shown:
        # Only a word that is the only one of its line in its column runs over, or the last one in a line of its own.
        last = max((word for row in words for word in row if line.removesuffix(";").endswith(word)), key=len, default="")
        assert columns(line) <= most or columns(line.removesuffix(";").removesuffix(last).rstrip()) <= most - 2
    # All words of the table are there, and no others; those of one row stand together.
    text = "".join(re.sub(r"\bh[0-9]: |;(?= |$)|[ ]", "", line) for line in shown[2:])
    for row in words:
        assert all("".join(re.sub(r"\bh[0-9]: |;(?= |$)|[ ]", "", word)) in text for word in row)
