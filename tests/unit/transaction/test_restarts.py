"""How often a changed static pod's container was started again, by the logs that the kubelet keeps of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from roles.engine.transaction import Change, FileEdit
from roles.engine.transaction.change_script import render

CHANGE = Change(
    id="r1-cp1-x",
    node="cp1",
    component="kube-apiserver",
    kind="static-pod",
    unit="kubelet.service",
    summary="A=true",
    files=(FileEdit("/etc/x", b"a", b"b"),),
    health_url="https://127.0.0.1:6443/readyz",
    old_argv=("kube-apiserver",),
    new_argv=("kube-apiserver",),
    pod="kube-system_kube-apiserver-cp1",
    container="kube-apiserver",
)
OLD, NEW = "0" * 32, "1" * 32


def logs(root: Path, uid: str, count: int) -> None:
    folder = root / f"{CHANGE.pod}_{uid}" / CHANGE.container
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        (folder / f"{number}.log").touch()


def functions(root: Path) -> str:
    script = render(CHANGE)
    return script[script.index("newest_log() {") : script.index("# PID and start time")].replace("/var/log/pods", str(root))


@pytest.mark.parametrize(("tried_before", "starts", "restarts"), [(0, 0, 0), (0, 1, 0), (0, 3, 2), (4, 0, 0), (4, 1, 0), (4, 3, 2)])
def test_only_what_came_since_counts(tmp_path: Path, tried_before: int, starts: int, restarts: int) -> None:
    """Also where the same manifest was tried before, and the directory of its pod is there already; never the pod of before."""
    logs(tmp_path, OLD, 2)
    if tried_before:
        logs(tmp_path, NEW, tried_before)
    (tmp_path / "old.uid").write_text(f"{OLD}\n")
    begun = next(line for line in render(CHANGE).splitlines() if "pods.before" in line and "newest_log" in line)
    note = begun.strip().removesuffix("|| return 1").replace("/var/log/pods", str(tmp_path))
    head = f"pod={CHANGE.pod} container={CHANGE.container} work={tmp_path}\n{functions(tmp_path)}\n"

    def sh(line: str) -> str:
        return subprocess.run(["sh", "-c", head + line], capture_output=True, text=True, check=True).stdout.strip()

    sh(note)
    logs(tmp_path, OLD, 9)
    if starts:
        logs(tmp_path, NEW, tried_before + starts)
    assert sh('restarts; echo "$most"') == str(restarts)
