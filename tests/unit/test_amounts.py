"""Amounts for people: one of a thing has no plural, and no number of bytes is shown as it is."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from roles.audit import text
from roles.audit.model import Severity
from roles.engine import bridge
from roles.engine.bridge import Remote
from roles.engine.object_runs import ObjectRun
from roles.engine.object_runs import run as object_run
from roles.engine.runs.deploying import UNPROVEN
from roles.right_size.quantities import memory_text

ROLES = Path(__file__).resolve().parents[2] / "roles"
# A number of a computed length before a plural; `of 3 pods` is right for one, too, and so is a line that knows the number.
_PLURAL = re.compile(r"(?<!of )(?<!all )(?<!all its )(?<!only )\{(?:len|sum)\([^{}]*\)\} (?:static )?(?:pods|changes|records)\b")


def test_one_of_a_thing_has_no_plural() -> None:
    found = [
        f"{path.relative_to(ROLES)}: {line.strip()}"
        for path in sorted(ROLES.rglob("*.py"))
        for line in path.read_text().splitlines()
        if _PLURAL.search(line) and "== 1" not in line and "!= 1" not in line
    ]
    assert found == [], "use roles.engine.folding.counted"


@pytest.mark.parametrize(
    ("size", "shown"), [(0, "0Mi"), (1, "1Ki"), (421888, "412Ki"), (2**20, "1Mi"), (25276063744, "24106Mi"), (2**31, "2Gi")]
)
def test_an_amount_of_memory_has_a_unit(size: int, shown: str) -> None:
    assert memory_text(size) == shown


@pytest.mark.parametrize(
    ("nodes", "words"), [((None,), "1 critical; of the cluster itself, none on 3 nodes"), (("w1", None), "2 critical; on 1 of 3 nodes")]
)
def test_a_verdict_without_a_node_counts_none(nodes: tuple[str | None, ...], words: str) -> None:
    found = [SimpleNamespace(node=name, severity=Severity.critical) for name in nodes]
    report: Any = SimpleNamespace(nodes=[1, 2, 3], target_version=None, findings=found)
    assert text.verdict(report) == words


@pytest.mark.parametrize(("group", "why"), [("control_plane", "to read the control plane"), ("workers", "to read all nodes")])
def test_why_a_host_is_connected_to_is_true_of_it(group: str, why: str) -> None:
    said: list[str] = []
    host: Any = SimpleNamespace(connected=True, groups=[group], data={}, name="w2", connect=lambda reason: said.extend([reason]))
    assert Remote(host).connect() and said == [why]


def test_a_full_disk_is_named_with_its_path() -> None:
    lines = (ROLES.parent / "templates/change.sh.j2").read_text().splitlines()
    said = [line.strip() for line in lines if re.search(r"no space, or|read-only file system", line) and not line.lstrip().startswith("#")]
    assert len(said) > 5 and [line for line in said if not re.search(r"\$(?:home|target|place|systemd|folder|path)", line)] == []


def test_a_doubt_about_an_object_is_no_exit_status_0(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(bridge, "end_with", ended.append)
    monkeypatch.setattr(object_run, "show_lines", lambda lines: None)
    step = SimpleNamespace(name="x", action="create", outcome="done", seconds=1.0, how="read back; NOT PROVEN that it works: y", why="")
    for consents in ([], ["allow_problems=true"]):
        run: Any = SimpleNamespace(steps=[step], consents=consents)
        ObjectRun.show_objects(run, [])
    assert ended == [UNPROVEN, UNPROVEN]
