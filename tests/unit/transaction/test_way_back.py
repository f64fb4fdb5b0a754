"""The way back: it never waits for what may never come, it never gives up, and it overwrites nothing that is not kept."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import fcntl
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from roles.engine.transaction import FileEdit, change_script, model
from roles.engine.transaction.change_script import uninstall_script
from tests.unit.transaction.disk import strace_works
from tests.unit.transaction.scratch import (
    AFTER,
    BAD,
    BEFORE,
    LATER,
    MAIN,
    Scratch,
    ends,
    fill,
    in_private_mounts,
    is_over,
    mount,
    needs_time_namespace,
    reason,
    status,
    untouched,
    walled,
    without_fill,
)

FOREIGN = b"1000009\n"
PATIENCE = 60


def until(there: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not there():
        assert time.monotonic() < end, f"in vain waited for {what}"
        time.sleep(0.02)


def apart(body: Callable[[], None]) -> None:
    try:
        in_private_mounts(body)
    except PermissionError as error:
        pytest.skip(f"no mount namespace may be made here: {error}")


def recover(node: Scratch, *words: str) -> int:
    return node.popen("sh", str(node.home / "recover.sh"), *words).wait(timeout=600)


def files(node: Scratch) -> dict[str, tuple[int, bytes] | None]:
    """Without what waits beside them."""
    return {path: found for path, found in node.files().items() if "/.daytwo" not in path}


def comes_back(node: Scratch, why: str = "the node was restarted before the change was confirmed") -> None:
    """After a boot whose recovery has put the files back."""
    node.systemctl("start", node.change.unit)
    ends(node, 0, "reverted", "deadline")
    assert reason(node) == why
    untouched(node)


def test_what_starts_right_after_the_restore_counts_as_started_after_it(node: Scratch) -> None:
    """Both are known in ticks of 10 ms: a process of the same tick would be waited for in vain until the revert's time is over."""
    script = (node.here / "change.sh").read_text()
    head = script[: script.index(MAIN)]
    node.work.mkdir(parents=True)
    tried = 'n=0; while [ $n -lt 20 ]; do rm -f "$work/restored"; mark_restored; clock; started_after_restore "$ticks" || exit 1; n=$((n + 1)); done'
    assert subprocess.run(["sh", "-c", f"{head}\n{tried}"], check=False).returncode == 0


# ---- at boot: later than expected -----------------------------------------------------------------------------------


@contextlib.contextmanager
def elsewhere(folder: Path, url: str, link: bool = False) -> Iterator[tuple[Scratch, Path]]:
    """A node whose etc is mounted from another disk, which is yielded too; with `link` its files are named by way of a link."""
    root, disk = folder / "node", folder / "disk"
    (root / "etc").mkdir(parents=True)
    disk.mkdir()
    mount("-t", "tmpfs", "-o", "size=1m", "other", disk)
    mount("--bind", disk, root / "etc")
    node = Scratch(root, url)
    if link:
        (root / "conf").symlink_to("etc")
        files = [dataclasses.replace(edit, path=edit.path.replace("/etc/", "/conf/")) for edit in node.change.files]
        node.change = dataclasses.replace(node.change, files=tuple(files))
    try:
        node.lay_down()
        yield node, disk
    finally:
        node.end()


@pytest.mark.parametrize("link", [False, True], ids=["plain", "by-a-link"])
def test_a_target_whose_file_system_is_mounted_later(tmp_path: Path, url: str, link: bool) -> None:
    def body() -> None:
        with elsewhere(tmp_path, url, link) as (node, disk):
            assert node.verb("apply") == 0
            node.boot()
            subprocess.run(["umount", node.root / "etc"], check=True)
            for _ in range(2):
                assert recover(node, "once") == 1
                assert node.state == "revert-failed"
                assert f"its file system is not mounted on {node.root}/etc" in reason(node)
            assert list((node.root / "etc").iterdir()) == [], "written to what will be covered"
            assert (disk / "first").read_bytes() == AFTER
            mount("--bind", disk, node.root / "etc")
            assert recover(node, "once") == 0
            assert files(node) == node.before
            comes_back(node)

    apart(body)


def test_the_kubelet_is_kept_waiting_while_it_may_yet_come(tmp_path: Path, url: str) -> None:
    def body() -> None:
        with elsewhere(tmp_path, url) as (node, disk):
            assert node.verb("apply") == 0
            node.boot()
            subprocess.run(["umount", node.root / "etc"], check=True)
            process = node.popen("sh", str(node.home / "recover.sh"))
            until(lambda: "is not mounted on" in node.output(), "the unit at boot to say what it waits for")
            assert process.poll() is None
            mount("--bind", disk, node.root / "etc")
            assert process.wait(timeout=600) == 0
            assert node.output().count("is not mounted on") == 1, "said once"
            comes_back(node)

    apart(body)


def test_the_unit_at_boot_waits_for_the_mount_and_needs_it_not(tmp_path: Path, url: str) -> None:
    def body() -> None:
        with elsewhere(tmp_path, url, link=True) as (node, _):
            assert node.verb("apply") == 0
            dropin = node.root / f"systemd/daytwo-recover.service.d/{node.change.id}.conf"
            name = subprocess.run(
                ["systemd-escape", "--path", "--suffix=mount", f"{node.root}/etc"], capture_output=True, text=True, check=True
            ).stdout.strip()
            lines = dropin.read_text().splitlines()
            wanted = set(lines[1].removeprefix("Wants=").split())
            assert wanted == set(lines[2].removeprefix("After=").split()) and name in wanted
            assert "Requires" not in dropin.read_text()
            ends(node, 0, "reverted", "revert")
            assert not dropin.parent.exists()

    if shutil.which("systemd-escape") is None:
        pytest.skip("systemd-escape is not installed")
    apart(body)


@pytest.mark.parametrize("target", [False, True], ids=["only-the-record", "the-target-too"])
def test_a_disk_that_is_read_only_at_boot(tmp_path: Path, url: str, target: bool) -> None:
    """The files go back as soon as they can, and it is not over before that is on the record."""

    def body(node: Scratch) -> None:
        small = ["home", "etc"] if target else ["home"]
        assert node.verb("apply") == 0
        node.boot()
        for name in small:
            mount("-o", "remount,ro", node.root / name)
        assert recover(node, "once") == 1
        assert "the node retries" in node.output()
        assert (files(node) == node.before) is not target
        for name in small:
            mount("-o", "remount,rw", node.root / name)
        assert recover(node, "once") == 0
        assert files(node) == node.before
        comes_back(node)

    walled(url, tmp_path, body, "home", "etc")


@pytest.mark.skipif(not strace_works(), reason="strace is not installed, or must not trace here")
@pytest.mark.parametrize(
    ("calls", "words"),
    [
        ("stat,lstat,statx,newfstatat", "cannot be checked: Input/output error"),
        ("read", "cannot be read: Input/output error"),
        ("rename,renameat,renameat2", "Input/output error"),
    ],
    ids=["looked-at", "read", "put-back"],
)
def test_a_disk_that_gives_errors_at_boot(node: Scratch, calls: str, words: str) -> None:
    """The kernel answers EIO to all that is done with one target; the others go back, and so does this one when the disk is well again."""
    assert node.verb("apply") == 0
    node.boot()
    first = node.root / "etc/first"
    failing = ("strace", "-f", "-qqq", "-o", "/dev/null", "-P", str(first), "-e", f"inject={calls}:error=EIO")
    assert node.popen(*failing, "sh", str(node.home / "recover.sh"), "once").wait(timeout=PATIENCE) == 1
    assert node.state == "revert-failed" and f"{first}: {words}" in reason(node), reason(node)
    assert first.read_bytes() == AFTER and (node.root / "etc/gone").exists() and not (node.root / "etc/made/for/it").exists()
    assert recover(node, "once") == 0
    comes_back(node)


def test_a_kubelet_that_could_not_be_kept_waiting_is_restarted(tmp_path: Path, url: str) -> None:
    """It has read what was not confirmed, and is healthy: that it runs is no proof."""

    def body(node: Scratch) -> None:
        assert node.verb("apply") == 0
        node.boot()
        mount("-o", "remount,ro", node.root / "etc")
        assert recover(node, "once") == 1
        node.systemctl("start", node.change.unit)
        assert node.argv == node.change.new_argv
        mount("-o", "remount,rw", node.root / "etc")
        assert recover(node, "once") == 0
        assert node.armed and node.argv == node.change.new_argv
        ends(node, 0, "reverted", "deadline")
        untouched(node)

    walled(url, tmp_path, body, "etc")


def test_the_timer_is_what_the_unit_at_boot_starts_where_it_fails() -> None:
    files = {name: text.decode() for name, text in change_script.boot_files("kubelet.service", "/var/lib/daytwo").items()}
    assert "OnFailure=daytwo-recover.timer\n" in files["daytwo-recover.service"]
    assert "Before=kubelet.service\n" in files["daytwo-recover.service"]
    assert "RequiresMountsFor" not in files["daytwo-recover.service"], "one that cannot be mounted would keep all from being put back"
    assert "OnCalendar" not in files["daytwo-recover.timer"], "systemd would wait for the wall clock to be set"
    limit = re.findall(r"^TimeoutStartSec=(\d+)$", files["daytwo-recover.service"], re.MULTILINE)
    assert len(limit) == 1 and model.BOOT_SECONDS < int(limit[0]) < 600, "the kubelet would wait for ever, or what puts back be ended early"


def test_somebody_says_that_it_is_not_to_be_tried_any_more(tmp_path: Path, url: str) -> None:
    def body() -> None:
        with elsewhere(tmp_path, url) as (node, disk):
            assert node.verb("apply") == 0
            node.boot()
            subprocess.run(["umount", node.root / "etc"], check=True)
            assert recover(node, "once") == 1
            told = status(node)
            assert told["state"] == "revert-failed" and "retries every 30 s, for 0 s now" in told["reverts"].replace("for 1 s", "for 0 s")
            assert "abandon" in told["reverts"]
            mount("--bind", disk, node.root / "etc")
            left = files(node)
            assert node.verb("abandon") == 0
            assert recover(node, "once") == 0 and node.verb("deadline") == 0
            is_over(node, "abandoned")
            assert files(node) == left

    apart(body)


class Dead:
    """A file system over `folder` that never answers: whoever looks at it waits until it is killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            self.device = os.open("/dev/fuse", os.O_RDWR)
        except OSError as error:
            pytest.skip(f"/dev/fuse cannot be opened: {error}")
        words = f"fd={self.device},rootmode=40000,user_id=0,group_id=0".encode()
        if ctypes.CDLL(None, use_errno=True).mount(b"dead", os.fsencode(folder), b"fuse", 0, words) != 0:
            os.close(self.device)
            pytest.skip(f"FUSE cannot be mounted: {os.strerror(ctypes.get_errno())}")

    def end(self) -> None:
        subprocess.run(["umount", "--lazy", self.folder], check=True)
        os.close(self.device)


def test_a_file_system_that_does_not_answer_keeps_back_no_other_file(tmp_path: Path, url: str) -> None:
    def body() -> None:
        node = Scratch(tmp_path / "node", url, io_seconds=1)
        try:
            node.lay_down()
            assert node.verb("apply") == 0
            node.boot()
            dead = Dead(node.root / "etc/made")
            try:
                assert node.popen("sh", str(node.home / "recover.sh"), "once").wait(timeout=PATIENCE) == 1
                assert node.state == "revert-failed"
                assert f"{node.root}/etc/made/for/it: its file system has not answered for 1 s" in reason(node)
                assert (node.root / "etc/first").read_bytes() == BEFORE and (node.root / "etc/gone").exists()
            finally:
                dead.end()
            assert recover(node, "once") == 0
            comes_back(node)
        finally:
            node.end()

    apart(body)


# ---- what hangs -----------------------------------------------------------------------------------------------------


def test_a_restart_that_hangs_is_not_waited_for(tmp_path: Path, url: str) -> None:
    """systemd does not come to it: the old process goes on."""
    node = Scratch(tmp_path / "node", url, apply_timeout=2)
    try:
        node.lay_down()
        node.hook("job-restart", 'until [ -e "$S/go" ]; do sleep 0.05; done\n')
        process = node.start("apply")
        try:
            assert process.wait(timeout=PATIENCE) == 1
            is_over(node, "reverted")
            assert reason(node).startswith("not healthy after 2 s")
            untouched(node)
        finally:
            (node.root / "go").touch()
            node.kill_group(process)
    finally:
        node.end()


def test_what_hangs_in_the_unit_is_ended_on_the_way_back(tmp_path: Path, url: str) -> None:
    """An ExecStartPre that does not like the new file, and obeys nobody."""
    node = Scratch(tmp_path / "node", url, apply_timeout=2, stop_seconds=1)
    hang = (
        'if grep -q 1000002 "$S/etc/first"; then stop; (trap "" TERM; exec sleep 100000) & echo $! >"$S/run/control"; wait $!; '
        'echo failed >"$S/run/active"; exit 1; fi\n'
    )
    try:
        node.lay_down()
        node.hook("job-restart", hang)
        process = node.start("apply")
        try:
            assert process.wait(timeout=PATIENCE) == 1
            is_over(node, "reverted")
            untouched(node)
            assert f"PID {(node.root / 'run/control').read_text().strip()} hangs in {node.change.unit}: killed" in node.log
        finally:
            node.kill_group(process)
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                os.kill(int((node.root / "run/control").read_text()), signal.SIGKILL)
    finally:
        node.end()


def soaking(node: Scratch, seconds: int) -> None:
    node.change = dataclasses.replace(node.change, soak=seconds)
    node.hook("systemd-run", 'cp "$S"/home/changes/*/state "$S/coming-up"; echo "$@" >"$S/timer"\n')
    node.lay_down()


def test_a_soak_is_no_time_to_come_up(node: Scratch) -> None:
    soaking(node, 1000)
    assert node.verb("apply") == 0
    deadlines = [
        int(re.findall(r"^deadline=(\d+)$", path.read_text(), re.MULTILINE)[0]) for path in (node.root / "coming-up", node.here / "state")
    ]
    assert deadlines[1] - deadlines[0] == 1000
    words = (node.root / "timer").read_text().split()
    timeout = node.change.confirm_timeout
    assert f"--on-active={timeout - 1000}" in words and f"--timer-property=OnActiveSec={timeout}" in words


@needs_time_namespace
def test_the_timer_leaves_a_soak_alone_until_it_is_over(node: Scratch) -> None:
    soaking(node, 80000)
    assert node.verb("apply") == 0
    assert node.verb("deadline") == 0
    assert node.state == "applied" and node.armed
    assert node.verb("deadline", wrapper=LATER) == 0
    is_over(node, "reverted")
    untouched(node)


# ---- evidence -------------------------------------------------------------------------------------------------------


def test_the_files_do_not_wait_for_the_journal(tmp_path: Path, url: str) -> None:
    node = Scratch(tmp_path / "node", url, BAD, evidence_seconds=600)
    try:
        node.lay_down()
        node.hook("journalctl", ': >"$S/asked"; until [ -e "$S/go" ]; do sleep 0.05; done\n')
        process = node.start("apply")
        try:
            until((node.root / "asked").exists, "the journal to be read")
            until(lambda: node.files() == node.before, "the files to be put back while the journal is read")
            assert not (node.root / "go").exists() and process.poll() is None
        finally:
            (node.root / "go").touch()
        assert process.wait(timeout=600) == 1
        is_over(node, "reverted")
    finally:
        node.end()


def test_a_journal_without_an_end_is_not_waited_for(tmp_path: Path, url: str) -> None:
    node = Scratch(tmp_path / "node", url, BAD, evidence_seconds=1)
    try:
        node.lay_down()
        node.hook("journalctl", "exec cat /dev/zero\n")
        process = node.start("apply")
        try:
            assert process.wait(timeout=PATIENCE) == 1
        finally:
            node.kill_group(process)
        is_over(node, "reverted")
        assert (node.here / "evidence").stat().st_size < 100_000
        untouched(node)
    finally:
        node.end()


# ---- confirm looks at the files -------------------------------------------------------------------------------------


def chown(path: Path) -> None:
    os.chown(path, 12345, -1)


def to_a_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


SPOILT: list[tuple[str, str, Callable[[Path], object]]] = [
    ("the-old-bytes", "etc/first", lambda path: path.write_bytes(BEFORE)),
    ("other-bytes", "etc/first", lambda path: path.write_bytes(FOREIGN)),
    ("mode", "etc/first", lambda path: path.chmod(0o600)),
    ("owner", "etc/first", chown),
    ("link", "etc/first", to_a_link),
    ("deleted", "etc/made/for/it", lambda path: path.unlink()),
    ("there-again", "etc/gone", lambda path: path.write_bytes(b"to be removed\n")),
]


@pytest.mark.parametrize(("name", "spoil"), [one[1:] for one in SPOILT], ids=[one[0] for one in SPOILT])
def test_what_somebody_else_wrote_is_not_confirmed(node: Scratch, name: str, spoil: Callable[[Path], object]) -> None:
    revert = f'case $* in *-revert*) sh "$S/home/active/{node.change.id}/change.sh" revert 9>&- ;; esac\n'
    node.hook("systemd-run", revert)
    node.hook("show", "case $* in --property=ActiveState*) echo inactive; exit ;; esac\n")
    assert node.verb("apply") == 0
    spoil(node.root / name)
    assert node.verb("confirm") == 1
    assert node.state == "reverted", node.output()
    assert reason(node).startswith(f"foreign: {node.root}/{name} "), reason(node)
    with contextlib.suppress(FileNotFoundError):
        (node.root / "etc/elsewhere").unlink()
    is_over(node, "reverted")
    assert {path: found and found[1] for path, found in node.files().items()} == {
        path: found and found[1] for path, found in node.before.items()
    }
    assert node.argv == node.change.old_argv
    assert status(node)["state"] == "reverted"


# ---- what somebody else wrote is kept -------------------------------------------------------------------------------

LONG = b"1000009\n" + b"# theirs\n" * 1400


def foreign_edit(node: Scratch) -> None:
    """In mid-change, as config management writes: beside it, then by a rename."""
    assert node.verb("apply") == 0
    (node.root / "etc/other").write_bytes(LONG)
    (node.root / "etc/other").rename(node.root / "etc/first")


def test_theirs_is_kept_whole_where_the_record_has_no_room(tmp_path: Path, url: str) -> None:
    def body(node: Scratch) -> None:
        foreign_edit(node)
        fill(node, "home")
        assert node.verb("revert") == 0
        assert node.state == "reverted" and files(node) == node.before
        kept = node.root / f"etc/.daytwo/{node.change.id}/1.theirs"
        if kept.exists():
            assert kept.read_bytes() == LONG and f"their version is kept as {kept}" in reason(node)
        without_fill(node)
        node.verb("tidy")
        assert (node.here / "foreign.1").read_bytes() == LONG
        assert f"their version is kept as {node.here}/foreign.1" in reason(node)
        is_over(node, "reverted")

    walled(url, tmp_path, body, "home", "etc", data_only=True)


def test_what_cannot_be_kept_is_not_overwritten(tmp_path: Path, url: str) -> None:
    def body(node: Scratch) -> None:
        # As if the file had as many names as its file system allows.
        node.mutate = lambda text: text.replace("brief ln -P", "brief false")
        node.lay_down()
        foreign_edit(node)
        fill(node, "home")
        assert node.verb("revert") == 1
        assert node.state == "revert-failed" and "their version cannot be kept" in reason(node)
        assert (node.root / "etc/first").read_bytes() == LONG
        assert (node.root / "etc/gone").exists(), "the others go back all the same"
        without_fill(node)
        assert node.verb("deadline") == 0
        assert (node.here / "foreign.1").read_bytes() == LONG
        is_over(node, "reverted")
        untouched(node)

    walled(url, tmp_path, body, "home", "etc", data_only=True)


def test_the_reason_tells_of_it_after_a_boot_too(node: Scratch) -> None:
    foreign_edit(node)
    node.boot()
    assert recover(node, "once") == 0
    began = "the node was restarted before the change was confirmed"
    comes_back(node, f"{began}; somebody else wrote {node.root}/etc/first in mid-change, their version is kept as {node.here}/foreign.1")
    assert (node.here / "foreign.1").read_bytes() == LONG


def test_a_second_edit_of_theirs_is_kept_beside_the_first(tmp_path: Path, url: str) -> None:
    def body(node: Scratch) -> None:
        foreign_edit(node)
        node.hook("daemon-reload", "kill -KILL 0\n")
        assert node.verb("revert") == -9
        node.hook("daemon-reload", "")
        (node.root / "etc/first").write_bytes(FOREIGN)
        ends(node, 0, "reverted", "deadline")
        assert sorted(path.read_bytes() for path in node.here.glob("foreign.*")) == sorted([LONG, FOREIGN])
        untouched(node)

    walled(url, tmp_path, body, "etc")


def test_the_same_edit_is_kept_once_however_often_the_way_back_is_tried(tmp_path: Path, url: str) -> None:
    def body(node: Scratch) -> None:
        # As on a file system where nothing can be renamed; the first try copies theirs, the others find it kept.
        stuck = node.root / "stuck"
        node.mutate = lambda text: text.replace('brief mv -f -T "$place', f'[ ! -e {stuck} ] && brief mv -f -T "$place')
        node.lay_down()
        stuck.touch()
        foreign_edit(node)
        assert node.verb("revert") == 1
        for _ in range(3):
            assert node.verb("deadline") == 1
        assert (node.root / "etc/first").read_bytes() == LONG
        assert [(path.name, path.read_bytes()) for path in node.here.glob("foreign.*")] == [("foreign.1", LONG)]
        stuck.unlink()
        (node.root / "etc/first").write_bytes(FOREIGN)
        assert node.verb("deadline") == 0
        assert sorted(path.read_bytes() for path in node.here.glob("foreign.*")) == sorted([LONG, FOREIGN])
        is_over(node, "reverted")

    walled(url, tmp_path, body, "etc", data_only=True)


# ---- uninstall ------------------------------------------------------------------------------------------------------


def uninstall(node: Scratch) -> str:
    script = uninstall_script(1, str(node.home), str(node.root / "systemd"))
    assert script.count("PATH=/usr/local/sbin") == 1
    script = script.replace("PATH=/usr/local/sbin", f"PATH={node.root}/bin:/usr/local/sbin")
    done = subprocess.run(["sh", "-s"], input=script, text=True, capture_output=True, check=False, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_uninstall_takes_only_what_is_on_the_record(tmp_path: Path, url: str) -> None:
    def body() -> None:
        with elsewhere(tmp_path, url) as (node, disk):
            (node.root / "tenant").mkdir()
            mount("-t", "tmpfs", "-o", "size=1m", "tenant", node.root / "tenant")
            theirs = [node.root / "tenant/.daytwo/precious", disk / ".daytwo/precious"]
            assert node.verb("apply") == 0 and node.verb("revert") == 0
            for folder in theirs:
                folder.mkdir(parents=True)
            # Of a change that could not be cleared.
            place = node.root / f"etc/.daytwo/{node.change.id}"
            place.mkdir()
            (node.here / "places").write_text(f"{place}\n{node.root}/tenant/.daytwo/precious\n{node.root}/tenant\n")
            assert uninstall(node) == "removed"
            assert all(folder.is_dir() for folder in theirs) and not place.exists()
            assert not node.home.exists()
            assert list((node.root / "systemd").rglob("daytwo*")) == []

    apart(body)


def test_uninstall_is_not_held_up_by_a_dead_mount(tmp_path: Path, url: str) -> None:
    def body() -> None:
        node = Scratch(tmp_path / "node", url)
        try:
            node.lay_down()
            assert node.verb("apply") == 0 and node.verb("revert") == 0
            (node.root / "away").mkdir()
            dead = Dead(node.root / "away")
            try:
                place = node.root / f"away/.daytwo/{node.change.id}"
                (node.here / "places").write_text(f"{place}\n")
                assert uninstall(node) == f"removed, but left: {place} (its file system has not answered for 1 s)"
                assert not node.home.exists()
            finally:
                dead.end()
        finally:
            node.end()

    apart(body)


def test_where_a_change_waited_is_on_the_record_while_something_waits_there(tmp_path: Path, url: str) -> None:
    def body() -> None:
        with elsewhere(tmp_path, url) as (node, _):
            assert node.verb("apply") == 0
            assert (node.here / "places").read_text() == f"{node.root}/etc/.daytwo/{node.change.id}\n"
            assert node.verb("confirm") == 0
            assert not (node.here / "places").exists()

    apart(body)


def test_a_place_that_is_another_ones_is_refused(tmp_path: Path, url: str) -> None:
    def body() -> None:
        with elsewhere(tmp_path, url) as (node, disk):
            (node.root / "trap").mkdir()
            (disk / ".daytwo").symlink_to(node.root / "trap")
            assert node.verb("apply") == 1
            assert node.state == "refused" and "is not a directory of root" in reason(node)
            assert list((node.root / "trap").iterdir()) == []

    apart(body)


def test_a_new_file_among_old_ones_is_compared_as_well(node: Scratch) -> None:
    """With nothing of theirs in the way it is confirmed: a mode of the plan's own is what is there."""
    node.change = dataclasses.replace(
        node.change, files=(*node.change.files, FileEdit(str(node.root / "etc/mode"), None, b"x\n", mode=0o600))
    )
    node.lay_down()
    assert node.verb("apply") == 0 and node.verb("confirm") == 0
    is_over(node, "confirmed")


def test_whoever_watches_does_not_wait_for_what_is_tried_again_and_again(stuck: Scratch) -> None:
    words = "for word; do case $word in *.timer) echo active ;; *.service) echo inactive ;; esac; done"
    stuck.hook("show", f"case $* in --property=ActiveState*) {words}; exit ;; esac\n")
    assert stuck.armed
    assert stuck.start("watch", "end").wait(timeout=PATIENCE) == 0
    assert "state=revert-failed" in stuck.output()
    assert re.search(r"^reverts=as soon as possible: the node retries every 30 s, for \d+ s now", stuck.output(), re.MULTILINE)


# ---- what others do meanwhile on the same node -----------------------------------------------------------------------


def test_one_that_was_started_and_ended_at_once_is_judged_by_its_end(tmp_path: Path, url: str) -> None:
    """The start is done: systemd has begun the process, which is not there any more at the first look."""
    node = Scratch(tmp_path / "node", url, BAD)
    try:
        node.lay_down()
        node.hook("job-restart", 'echo 12345 >"$S/run/began"\n')
        ends(node, 1, "reverted", "apply")
        assert "systemctl restart" not in reason(node) and "failed" in reason(node)
        untouched(node)
    finally:
        node.end()


def test_a_second_apply_takes_nothing_from_the_first(node: Scratch) -> None:
    assert node.verb("apply") == 0
    with (node.home / "lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert node.verb("apply") == 1
    assert node.state == "applied" and node.armed and node.work.exists()
    assert node.verb("confirm") == 0
    assert node.state == "confirmed"


def test_the_unit_at_boot_leaves_a_change_of_this_boot_alone(node: Scratch) -> None:
    assert node.verb("apply") == 0
    assert recover(node) == 0
    assert node.state == "applied" and node.armed
    assert node.verb("confirm") == 0
    assert node.state == "confirmed"


def test_what_started_before_the_files_were_back_again_is_restarted(tmp_path: Path, url: str) -> None:
    """Files are back, the process is not; somebody writes the target and starts the kubelet; then the node tries again."""
    node = Scratch(tmp_path / "node", url, revert_timeout=2)
    try:
        node.lay_down()
        assert node.verb("apply") == 0
        (node.root / "broken").touch()
        node.hook("job-restart", "stop\n")
        assert node.verb("revert", "asked for") == 1
        assert node.state == "revert-failed"
        (node.root / "hooks/job-restart").unlink()
        (node.root / "broken").unlink()
        (node.root / "etc/first").write_bytes(AFTER)
        node.systemctl("restart", node.change.unit)
        assert node.argv == node.change.new_argv
        ends(node, 0, "reverted", "deadline")
        untouched(node)
    finally:
        node.end()
