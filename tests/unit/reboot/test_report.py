"""The plan as an operator reads it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from roles.engine.harmless import one_line
from roles.engine.runs import Pace
from roles.reboot import order, report
from roles.reboot.plan import Mark
from tests.unit.reboot.world import ASKS, NEW, RUN, candidate, plan


def shown(patch: pytest.MonkeyPatch, *plans: Any) -> str:
    lines: list[str] = []
    patch.setattr(report, "show", lambda text: lines.append(one_line(text.lstrip("\n"))))
    patch.setattr(report, "show_lines", lines.append)
    run: Any = SimpleNamespace(info=SimpleNamespace(id="r2"), steps=plans)
    report.show_plan(run, order(plans, Pace("2"), "cp1"), plans, ["etcd: well"], ["Drain of w1: web"])
    return "\n".join(lines)


def test_each_node_with_what_becomes_of_it_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [candidate("w1", signs=ASKS, took=31.4), candidate("w2", signs=ASKS, packages=("a\x1b[31m\nb",)), candidate("w3", signs=ASKS)]
    text = shown(
        monkeypatch,
        *(plan(one) for one in nodes),
        plan(candidate("w4", signs={"reboot-required": False})),
        plan(candidate("w5", mark=Mark(RUN, "reboot", NEW).text())),
        plan(candidate("cp1", control_plane=True, signs=ASKS)),
    )
    assert "Plan of run r2: 4 nodes to reboot, of 6" in text
    assert f"[1] w5: prove, uncordon: run {RUN}" in text
    assert "[2] w1: drain, reboot, prove, uncordon (the canary): it has /run/reboot-required" in text and "its last boot took 31 s" in text
    assert "[4] w3: drain, reboot, prove, uncordon (at most 2 at a time)" in text
    assert "[5] cp1: drain, reboot, prove, uncordon: it has" in text and "w4: no /run/reboot-required" in text
    assert "- etcd: well" in text and "\x1b" not in text and "\nb" not in text


def test_the_only_api_server_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    one = candidate("cp1", control_plane=True, signs=ASKS)
    assert "the API is down" not in shown(monkeypatch, plan(one))
    server = type(one)(**{**one.__dict__, "static": {"kube-apiserver": "kube-system_kube-apiserver-cp1"}})
    text = shown(monkeypatch, plan(server))
    assert "the API is down while it reboots" in text and "the API server while its etcd still runs" in text
    text = shown(monkeypatch, plan(replace(server, facts=replace(server.facts, ends_pods=True))))
    assert "its kubelet ends the pods itself" in text and "etcd still runs" not in text
