"""What a node says of a change, in the operator's words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from roles.engine.node_changes.said import _FILES, _STATES, _STEPS, in_words
from roles.engine.transaction import Change, FileEdit

SCRIPT = (Path(__file__).resolve().parents[3] / "templates/change.sh.j2").read_text()
CHANGE = Change(
    "c1", "w1", "kubelet", "kubelet", "kubelet.service", "x",
    files=(FileEdit("/etc/a", None, b"1"), FileEdit("/etc/b", None, b"2")), health_url="http://127.0.0.1:10248/healthz",
    old_argv=None, new_argv=None, checkpoints=("/var/lib/kubelet/cpu_manager_state",),
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("step: arm", ""),
        ("state: applying", "applying; the node itself reverts what is not confirmed within 210 s"),
        ("step: place 2", "writing file 2 of 2: /etc/b"),
        ("step: restore 3", "restoring checkpoint 1 of 1: /var/lib/kubelet/cpu_manager_state"),
        ("step: place 77", "writing checkpoint 75 of 1"),
        ("step: restart", "restarting the kubelet"),
        ("step: wait", "waiting until it is healthy"),
        ("healthy: http://127.0.0.1:10248/healthz", "healthy: http://127.0.0.1:10248/healthz; it must stay healthy for 12 s"),
        (
            "healthy: http://127.0.0.1:10248/healthz again: http://127.0.0.1:10248/healthz does not answer 200",
            "healthy again. In between it was not: http://127.0.0.1:10248/healthz does not answer 200. It must now stay healthy for 12 s",
        ),
        ("settled: 13.1 s after the first file was placed", "stayed healthy; 13.1 s since the first file was written"),
        ("state: reverting (no answer)", "reverting"),
        ("state: revert-failed (no answer)", ""),
        ("failed: no answer", "failed: no answer"),
        ("process: kubelet is PID 7", "process: kubelet is PID 7"),
        ("step: a new one", "step: a new one"),
        ("step: {change}", "step: {change}"),
        ("state: {seconds} (x)", "state: {seconds} (x)"),
        (f"step: place {'9' * 9000}", f"step: place {'9' * 9000}"),
        ("", ""),
    ],
)
def test_a_line_of_the_log(text: str, said: str) -> None:
    assert in_words(text, CHANGE) == said


def test_every_step_and_state_of_the_script_is_known() -> None:
    steps = set(re.findall(r"(?:^|[ ;&])step ([a-z-]+)\b", SCRIPT, re.MULTILINE))
    assert steps == set(_STEPS) and set(re.findall(r'step "([a-z]+) \$n"', SCRIPT)) == set(_FILES)
    assert set(re.findall(r"set_state ([a-z-]+)", SCRIPT)) - {"abandoned"} == set(_STATES)
