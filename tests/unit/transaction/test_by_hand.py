"""REPAIR BY HAND: each state of a revert that failed is reached for real, its printed commands are run letter for letter, and all is well."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from roles.engine.transaction import Status, report
from roles.engine.transaction.by_hand import Repair, bring_resolver, repair
from tests.unit.transaction.scratch import BAD, Scratch, is_over, mount, status, untouched, walled

# A stand-in for a program of the node that makes it well.
WELL = '#!/bin/sh\necho "$0 $*" >>"{root}/typed"\n: >"{root}/well"\nrm -f "{root}/broken"\n'


def printed(node: Scratch) -> Repair:
    """What the operator is shown."""
    assert node.state == "revert-failed", node.log
    lines = [f"{key}={value}" for key, value in status(node).items()]
    return repair(node.change, report.parse(lines), str(node.home))


def type_in(node: Scratch, found: Repair) -> None:
    tools = node.root / "tools"
    tools.mkdir(exist_ok=True)
    for name in ("sysctl", "swapoff"):
        (tools / name).write_text(WELL.format(root=node.root))
        (tools / name).chmod(0o755)
    path = f"{tools}:{node.root}/bin:{os.environ['PATH']}"
    for command in found.commands:
        done = subprocess.run(["sh", "-c", command], env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (command, done.stderr, node.log)
    is_over(node, "reverted")


@dataclass(frozen=True)
class Case:
    """`breaks` comes once the files are restored and the old process does not start; `says` is in the explanation."""

    says: str
    journal: str = ""
    breaks: Callable[[Scratch], None] = lambda node: None


def masked(node: Scratch) -> None:
    node.hook("show", 'case $* in *LoadState*) [ -e "$S/well" ] || echo LoadState=masked ;; esac\n')
    node.hook("unmask", ': >"$S/well"; rm -f "$S/broken"\n')


def runtime(node: Scratch) -> None:
    # The runtime's unit is another one.
    node.hook(
        "restart", 'case $* in containerd.service) : >"$S/well"; rm -f "$S/broken"; exit ;; esac; [ -e "$S/well" ] || : >"$S/broken"\n'
    )


def dns(node: Scratch) -> None:
    node.hook("job-start", f'[ -e "{node.root}/dns/resolv.conf" ] && rm -f "$S/broken"\n')
    node.hook("job-restart", f'[ -e "{node.root}/dns/resolv.conf" ] && rm -f "$S/broken"\n')
    node.hook("restart", "")


STARTS = {
    "a kernel tunable": Case(
        "protectKernelDefaults", '"command failed" err="invalid kernel flag: vm/overcommit_memory, expected value: 1, actual value: 0"'
    ),
    "swap": Case("failSwapOn", '"command failed" err="running with swap on is not supported"'),
    "the runtime": Case(
        "runtime does not answer",
        '"command failed" err="failed to dial \\"unix:///run/containerd/containerd.sock\\": connect: connection refused"',
        runtime,
    ),
    "no DNS file": Case("no pod starts without it", '"command failed" err="open {root}/dns/resolv.conf: no such file or directory"', dns),
    "a unit that is masked": Case("stand-in.service is masked", "", masked),
}


@pytest.fixture
def failing(tmp_path: Path, url: str) -> Scratch:
    """A node whose old process does not start either, until it is well."""
    made = Scratch(tmp_path / "node", url, BAD, revert_timeout=1)
    made.lay_down()
    made.hook("restart", '[ -e "$S/well" ] || : >"$S/broken"\n')
    return made


@pytest.mark.parametrize("name", STARTS)
def test_the_files_are_back_and_the_process_does_not_start(failing: Scratch, name: str) -> None:
    case = STARTS[name]
    (failing.root / "journal").write_text(
        f"E1126 10:00:01.431126     780 run.go:72] {case.journal.format(root=failing.root)}\n" if case.journal else ""
    )
    case.breaks(failing)
    if name == "no DNS file":
        (failing.root / "broken").touch()
    try:
        assert failing.verb("apply") == 1
        found = printed(failing)
        assert case.says in found.why and "the old files are in place" in found.why
        assert len(found.commands) >= 2 and "before/" not in "".join(found.commands)
        type_in(failing, found)
        untouched(failing)
    finally:
        failing.end()


def test_somebody_has_written_a_file_since(failing: Scratch) -> None:
    try:
        assert failing.verb("apply") == 1
        (failing.root / "etc/first").write_text("1000009\n")
        (failing.root / "etc/made/for").mkdir(parents=True)
        (failing.root / "etc/made/for/it").write_text("theirs\n")
        (failing.root / "well").touch()
        (failing.root / "broken").unlink()
        found = printed(failing)
        assert f"{failing.root}/etc/first, {failing.root}/etc/made/for/it: somebody" in found.why and len(found.commands) == 3
        type_in(failing, found)
        assert (failing.root / "etc/first").read_bytes() == b"1000001\n" and not (failing.root / "etc/made/for/it").exists()
    finally:
        failing.end()


def test_a_directory_stands_in_its_place(node: Scratch) -> None:
    assert node.verb("apply") == 0
    target = node.root / "etc/first"
    target.unlink()
    target.mkdir()
    assert node.verb("revert") == 1
    found = printed(node)
    assert f"{target} is not restored" in found.why
    type_in(node, found)
    untouched(node)


def test_a_file_system_is_read_only(tmp_path: Path, url: str) -> None:
    def body(node: Scratch) -> None:
        assert node.verb("apply") == 0
        mount("-o", "remount,ro", node.root / "etc")
        assert node.verb("revert") == 1
        found = printed(node)
        assert "its file system is read-only" in found.why
        type_in(node, found)
        untouched(node)

    walled(url, tmp_path, body, "etc")


def test_a_file_is_immutable(node: Scratch) -> None:
    assert node.verb("apply") == 0
    if subprocess.run(["chattr", "+i", node.root / "etc/first"], capture_output=True, check=False).returncode:
        pytest.skip("this file system has no such attribute")
    try:
        assert node.verb("revert") == 1
        found = printed(node)
        assert "immutable" in found.why
        type_in(node, found)
        untouched(node)
    finally:
        subprocess.run(["chattr", "-i", node.root / "etc/first"], capture_output=True, check=False)


@pytest.mark.parametrize(
    ("said", "command"),
    [
        ("its file system is not mounted on /srv/x y", "mount '/srv/x y'"),
        ("its file system has not answered for 20 s", None),
        ("somebody else wrote it in mid-change, and their version cannot be kept (no space?): left as it is", "mv /etc/a"),
        ("the original is neither beside it nor undamaged in /x", None),
        ("Structure needs cleaning", None),
    ],
)
def test_what_keeps_a_file_from_being_restored(node: Scratch, said: str, command: str | None) -> None:
    reason = f"kubelet ended 2 times after its start; and a file could not be restored: /etc/a: {said}"
    found = repair(node.change, Status("revert-failed", reason))
    assert f"/etc/a is not restored ({said})" in found.why
    assert found.commands[-1] == f"sh /var/lib/daytwo/changes/{node.change.id}/change.sh revert"
    assert len(found.commands) == (2 if command else 1) and (command or "").replace("'", "") in found.commands[0].replace("'", "")


def test_what_its_node_says_is_more_exact_than_the_words_of_a_process(node: Scratch) -> None:
    said = 'E1126 10:00:01.431126     780 run.go:72] "command failed" err="stat /etc/boot.conf: no such file or directory"'
    status = Status("revert-failed", "x", files=tuple(edit.before_sha256 for edit in node.change.files), blocking=(f"journal: {said}",))
    expired = Repair("its certificate expired (`kubeadm join` again)", ())
    port = Repair("the process 7 (nc) listens on port 10250 already", ("kill 7",))
    found = repair(node.change, status, blockers=[expired, port])
    assert (
        "does not start: its certificate expired (`kubeadm join` again); the process 7 (nc)" in found.why and "/etc/boot.conf" in found.why
    )
    assert found.commands == ("kill 7", f"sh /var/lib/daytwo/changes/{node.change.id}/change.sh revert")
    assert "a file that the old configuration names is gone" in repair(node.change, status).why


@pytest.mark.parametrize(
    ("gone", "other"), [("/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"), ("/srv/resolv.conf", "/etc/resolv.conf")]
)
def test_a_file_with_dns_servers_is_not_copied_onto_itself(node: Scratch, gone: str, other: str) -> None:
    said = f'E1126 10:00:01.431126     780 pod_workers.go:1] "Failed" err="open {gone}: no such file or directory"'
    status = Status("revert-failed", "x", files=tuple(edit.before_sha256 for edit in node.change.files), blocking=(f"journal: {said}",))
    brought = repair(node.change, status).commands[1]
    assert f"cat {other}" in brought and f"cat {gone}" not in brought and f">{gone})" in brought


def test_a_file_with_dns_servers_overwrites_nothing(tmp_path: Path) -> None:
    theirs, link, new = tmp_path / "theirs", tmp_path / "link", tmp_path / "made/resolv.conf"
    theirs.write_text("theirs\n")
    link.symlink_to(tmp_path / "target")
    for path in (theirs, link, new):
        for command in bring_resolver(str(path)):
            subprocess.run(["sh", "-c", command], capture_output=True, check=False)
    assert theirs.read_text() == "theirs\n" and not (tmp_path / "target").exists() and new.is_file()
