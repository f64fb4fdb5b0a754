"""The way back does not give up: what passes is waited for, what hangs is not, and nobody else's work is lost on it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from roles.change import Change, render
from roles.scripts import templates
from tests.unit.change.scratch import AFTER, BAD, BEFORE, Scratch, in_private_mounts, mount
from tests.unit.change.test_change import KUBELET, STATIC_POD
from tests.unit.change.test_script import FOREIGN, after, fill, is_over, reason, status, untouched, walled, without_fill

MINE = b"# mine\n" * 2000  # more than a page, so that a full disk takes a part of it


@pytest.fixture
def scratch(tmp_path: Path, url: str) -> Iterator[Callable[..., Scratch]]:
    """Nodes with other values of the script's variables, their changes laid down."""
    made: list[Scratch] = []

    def make(content: bytes = AFTER, **tuned: int) -> Scratch:
        node = Scratch(tmp_path / f"node{len(made)}", url, content, **tuned)
        made.append(node)
        node.lay_down()
        return node

    yield make
    for node in made:
        node.end()


def recovered(node: Scratch) -> int:
    return node.popen("sh", str(node.home / "recover.sh")).wait(timeout=60)


def is_back(node: Scratch) -> None:
    is_over(node, "reverted")
    untouched(node)


def stuck(scratch: Callable[..., Scratch], revert_timeout: int = 1) -> Scratch:
    """The files are back, and the old process does not start either."""
    node = scratch(BAD, revert_timeout=revert_timeout)
    node.hook("restart", ': >"$S/broken"\n')
    assert node.verb("apply") == 1
    assert (node.state, node.armed) == ("revert-failed", True), node.log
    return node


def heal(node: Scratch) -> None:
    (node.root / "hooks/restart").unlink()
    (node.root / "broken").unlink()


# ---- at boot --------------------------------------------------------------------------------------------------------


def on_a_disk_of_its_own(folder: Path, url: str, body: Callable[[Scratch], None], **tuned: int) -> None:
    """A node whose etc is another file system, which can be taken away and mounted again."""

    def inside() -> None:
        root = folder / "node"
        for name in ("", "disk", "etc"):
            (root / name).mkdir(parents=True)
        mount("-t", "tmpfs", "-o", "size=1m", "late", root / "disk")
        mount("--bind", root / "disk", root / "etc")
        node = Scratch(root, url, **tuned)
        try:
            node.lay_down()
            body(node)
        finally:
            node.end()

    try:
        in_private_mounts(inside)
    except PermissionError as error:
        pytest.skip(f"no mount namespace may be made here: {error}")


def away(node: Scratch) -> None:
    subprocess.run(["umount", node.root / "etc"], check=True)


def there(node: Scratch) -> None:
    mount("--bind", node.root / "disk", node.root / "etc")


def test_the_boot_waits_for_a_file_system_that_is_mounted_late(tmp_path: Path, url: str) -> None:
    """Before the kubelet: it starts with the old file."""

    def body(node: Scratch) -> None:
        assert node.verb("apply") == 0
        node.boot()
        away(node)
        process = node.popen("sh", str(node.home / "recover.sh"))
        while "is not mounted" not in node.log:
            assert process.poll() is None, f"it did not wait\n{node.log}\n{node.output()}"
        there(node)
        assert process.wait(timeout=60) == 0, node.log
        assert (node.root / "etc/first").read_bytes() == BEFORE and node.armed
        node.systemctl("start", node.change.unit)
        assert node.verb("deadline") == 0
        is_back(node)

    on_a_disk_of_its_own(tmp_path, url, body)


@pytest.mark.parametrize("empty", [False, True], ids=["a-file-below", "nothing-below"])
def test_a_file_system_that_is_mounted_after_the_kubelet_started(tmp_path: Path, url: str, empty: bool) -> None:
    """The kubelet is not held back for ever; a timer goes on. What stands below the mount point is not the target."""

    def body(node: Scratch) -> None:
        assert node.verb("apply") == 0
        node.boot()
        away(node)
        if not empty:
            (node.root / "etc/first").write_bytes(AFTER)
        assert recovered(node) == 1
        assert (node.state, node.armed) == ("revert-failed", True)
        assert f"{node.root / 'etc'} is not mounted" in reason(node), reason(node)
        assert node.verb("deadline") == 1
        assert node.state == "revert-failed" and node.armed
        if not empty:
            assert (node.root / "etc/first").read_bytes() == AFTER
            (node.root / "etc/first").unlink()
        there(node)
        node.systemctl("start", node.change.unit)
        assert node.argv == node.change.new_argv, "the kubelet should have read the new file"
        assert node.verb("deadline") == 0
        is_back(node)
        assert reason(node) == "the node was restarted before the change was confirmed"

    on_a_disk_of_its_own(tmp_path, url, body, boot_wait=1)


@pytest.mark.parametrize("boots", [1, 2])
def test_a_file_system_that_is_read_only_at_boot(tmp_path: Path, url: str, boots: int) -> None:
    def body(node: Scratch) -> None:
        assert node.verb("apply") == 0
        mount("-o", "remount,ro", node.root / "disk")
        mount("-o", "remount,ro,bind", node.root / "etc")
        for _ in range(boots):
            node.boot()
            assert recovered(node) == 1
            assert (node.state, node.armed) == ("revert-failed", True)
            assert "not back yet: a file could not be put back" in reason(node)
        mount("-o", "remount,rw", node.root / "disk")
        mount("-o", "remount,rw,bind", node.root / "etc")
        node.systemctl("start", node.change.unit)
        assert node.verb("deadline") == 0
        is_back(node)
        assert reason(node) == "the node was restarted before the change was confirmed"

    on_a_disk_of_its_own(tmp_path, url, body, boot_wait=1)


def test_a_part_of_a_file_system_that_looks_like_a_mount_is_not_waited_for(node: Scratch) -> None:
    """As a subvolume of btrfs does: it has a device of its own, and is mounted nowhere."""
    before_its_path(node, "stat", f'case "$*" in "-c %m "*/etc*) echo {node.root}/etc ;; *) exec /usr/bin/stat "$@" ;; esac')
    assert node.verb("apply") == 0
    assert (node.root / "etc/.daytwo").exists()
    node.boot()
    assert recovered(node) == 0
    node.systemctl("start", node.change.unit)
    assert node.verb("deadline") == 0
    is_back(node)


def test_the_timer_is_there_before_the_first_file_is_looked_at(node: Scratch) -> None:
    """A file system that does not answer has the unit at boot ended; what is left then is the timer."""
    assert node.verb("apply") == 0
    node.boot()
    looked = node.root / "looked"
    node.hook("systemd-run", f'sha256sum <"$S/etc/first" >{looked}\n')
    node.hook("daemon-reload", "kill -KILL 0\n")
    assert node.popen("sh", str(node.home / "recover.sh")).wait(timeout=60) == -9
    assert looked.read_text().startswith(node.change.files[0].after_sha256), "the files were put back first"
    assert node.armed


def test_a_revert_that_failed_is_taken_up_by_the_next_boot(scratch: Callable[..., Scratch]) -> None:
    node = stuck(scratch)
    node.boot()
    heal(node)
    assert recovered(node) == 0
    assert node.state == "reverting" and node.armed
    node.systemctl("start", node.change.unit)
    assert node.verb("deadline") == 0
    is_back(node)


# ---- it goes on trying ----------------------------------------------------------------------------------------------


def test_a_process_that_does_not_come_back_at_first(scratch: Callable[..., Scratch]) -> None:
    """The timer looks again; what others have helped is seen, and nothing is restarted under their hands."""
    node = stuck(scratch)
    first, lines = reason(node), node.log
    node.hook("restart", ': >"$S/restarted"\n')
    for _ in range(2):
        assert node.verb("deadline") == 1
    assert (reason(node), node.log) == (first, lines), "a try like the one before has nothing to say"
    assert not (node.root / "restarted").exists()
    heal(node)
    node.systemctl("start", node.change.unit)
    assert node.verb("deadline") == 0
    is_back(node)
    assert reason(node) == "stand-in.service failed"


def test_the_next_try_does_not_wait_for_the_deadline(scratch: Callable[..., Scratch]) -> None:
    """The timer was set for it; its unit is started once, and then it counts from there."""
    node = stuck(scratch)
    assert (node.root / "run/started").read_text() == f"daytwo-{node.change.id}-deadline.service\n"
    assert "--on-unit-inactive=30" in timers(node)[f"daytwo-{node.change.id}-deadline"]


def test_where_the_timer_is_gone_it_is_set_again(node: Scratch) -> None:
    before_its_path(node, "mv", 'case "$*" in *etc/first) [ ! -e "$0.broken" ] || exit 1 ;; esac\nexec /bin/mv "$@"')
    assert node.verb("apply") == 0
    (node.root / "own/mv.broken").touch()
    node.systemctl("stop", f"daytwo-{node.change.id}-deadline.timer")
    assert not node.armed
    assert node.verb("revert", "asked by a person") == 1
    assert node.state == "revert-failed" and node.armed
    (node.root / "own/mv.broken").unlink()
    assert node.verb("deadline") == 0
    is_back(node)
    assert reason(node) == "asked by a person"


def test_at_every_tenth_try_it_is_restarted(scratch: Callable[..., Scratch]) -> None:
    node = stuck(scratch, revert_timeout=3)
    heal(node)
    (node.work / "tries").write_text("9\n")
    assert node.verb("deadline") == 0
    is_back(node)


def test_what_a_person_writes_once_the_files_are_back_is_theirs(scratch: Callable[..., Scratch]) -> None:
    node = stuck(scratch)
    (node.root / "etc/gone").write_bytes(FOREIGN)
    heal(node)
    node.systemctl("start", node.change.unit)
    assert node.verb("deadline") == 0
    is_over(node, "reverted")
    assert (node.root / "etc/gone").read_bytes() == FOREIGN
    assert "etc/gone: it is left as it is" in reason(node)


def test_a_person_says_stop(scratch: Callable[..., Scratch]) -> None:
    node = stuck(scratch)
    assert node.verb("abandon") == 0
    is_over(node, "abandoned")


# ---- what hangs -----------------------------------------------------------------------------------------------------


def test_a_start_that_hangs_is_not_waited_for(scratch: Callable[..., Scratch]) -> None:
    """As an ExecStartPre does that waits for what the new file no longer names."""
    node = scratch(apply_timeout=1)
    node.hook("job-restart", 'stop; while grep -q 1000002 "$S/etc/first"; do sleep 0.05; done\n')
    assert node.verb("apply") == 1
    is_back(node)
    assert "not healthy after 1 s" in reason(node)


@pytest.mark.parametrize("wrong", [KUBELET, STATIC_POD], ids=["kubelet", "static-pod"])
def test_no_job_of_the_kubelet_is_waited_for_without_a_limit(wrong: Change) -> None:
    jobs = [line for line in render(wrong).splitlines() if "systemctl" in line and '"$unit"' in line and "show" not in line]
    blocking = [line for line in jobs if "--no-block" not in line and "timeout" not in line and "reset-failed" not in line]
    assert jobs and blocking == []


def test_the_old_process_is_not_the_one_that_has_yet_to_go(scratch: Callable[..., Scratch]) -> None:
    """The wrong process runs with the old arguments, as a kubelet does whose configuration file was changed, and its end takes long."""
    node = scratch(revert_timeout=3)
    assert node.verb("apply") == 0
    script = node.work / "change.sh"
    script.write_text(
        script.read_text().replace(f"old_arguments={node.change.old_arguments}", f"old_arguments={node.change.new_arguments}")
    )
    seen = node.root / "seen"
    node.hook("job-restart", f'sleep 2; cp "$S/home/changes/{node.change.id}/state" {seen}\n')
    node.verb("revert")
    assert "state=reverting" in seen.read_text(), "it was content with the process of before the restart"


def timers(node: Scratch) -> dict[str, list[str]]:
    return {path.name: path.read_text().split() for path in (node.root / "timers").iterdir()}


def test_the_soak_is_no_time_to_come_up(scratch: Callable[..., Scratch]) -> None:
    node = scratch(soak=3600, confirm_timeout=3700)
    assert node.verb("apply") == 0
    name = f"daytwo-{node.change.id}"
    assert set(timers(node)) == {f"{name}-deadline", f"{name}-late"}
    assert "--on-active=3700" in timers(node)[f"{name}-deadline"]
    assert "--on-active=100" in timers(node)[f"{name}-late"]
    assert node.verb("late") == 0
    after(node)
    assert node.state == "applied" and int(status(node)["reverts"].split()[1]) > 3600
    assert node.verb("confirm") == 0
    is_over(node, "confirmed")


def test_what_is_not_applied_before_the_soak_is_put_back(scratch: Callable[..., Scratch]) -> None:
    node = scratch(soak=3600, confirm_timeout=3700)
    node.hook("daemon-reload", 'if mkdir "$S/once" 2>/dev/null; then kill -KILL 0; fi\n')
    assert node.verb("apply") == -9 and node.state == "applying"
    assert 0 < int(status(node)["reverts"].split()[1]) <= 100
    assert node.verb("late") == 0
    is_back(node)
    assert reason(node) == "not applied within 100 s"


def test_without_a_soak_one_timer_is_enough(node: Scratch) -> None:
    assert node.verb("apply") == 0
    assert set(timers(node)) == {f"daytwo-{node.change.id}-deadline"}


# ---- the evidence ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ender", ["apply", "died"])
def test_the_files_are_back_before_the_journal_is_asked(scratch: Callable[..., Scratch], ender: str) -> None:
    node = scratch(BAD)
    node.hook("journalctl", '[ -e "$S/then" ] || cp "$S/etc/first" "$S/then"\n')
    if ender == "died":
        node.hook("restart", 'if mkdir "$S/once" 2>/dev/null; then kill -KILL 0; fi\n')
    assert node.verb("apply") == (1 if ender == "apply" else -9)
    if ender == "died":
        assert node.verb("died") == 0
    assert (node.root / "then").read_bytes() == BEFORE
    is_back(node)


def test_a_journal_that_does_not_answer_is_not_waited_for(scratch: Callable[..., Scratch]) -> None:
    node = scratch(BAD, evidence_seconds=1)
    node.hook("journalctl", "exec sleep 1000\n")
    assert node.verb("apply") == 1
    is_back(node)
    assert node.verb("status") == 0


# ---- confirm --------------------------------------------------------------------------------------------------------

SPOILT = {
    "put-back": (
        lambda node: (node.root / "etc/first").write_bytes(BEFORE),
        "etc/first is as it was before the change: somebody else put it back",
    ),
    "edited": (lambda node: (node.root / "etc/made/for/it").write_bytes(FOREIGN), "etc/made/for/it is not what the change wrote"),
    "removed": (lambda node: (node.root / "etc/first").unlink(), "etc/first is not what the change wrote"),
    "made": (lambda node: (node.root / "etc/gone").write_bytes(FOREIGN), "etc/gone is not what the change wrote"),
    "a-link": (
        lambda node: ((node.root / "etc/first").rename(node.root / "x"), (node.root / "etc/first").symlink_to(node.root / "x")),
        "etc/first became a symbolic link",
    ),
}


@pytest.mark.parametrize("name", SPOILT)
def test_what_is_not_on_the_disk_is_not_confirmed(node: Scratch, name: str) -> None:
    """Configuration management wrote a file during the soak: the process runs with what the next restart would not bring."""
    spoil, words = SPOILT[name]
    assert node.verb("apply") == 0
    spoil(node)
    assert node.verb("confirm", "e30=") == 1
    is_over(node, "reverted")
    assert words in reason(node), reason(node)
    assert {name: found and found[1] for name, found in node.files().items()} == {
        name: found and found[1] for name, found in node.before.items()
    }
    assert node.argv == node.change.old_argv
    assert not (node.here / "record.jsonl").read_text().endswith("{}\n{}\n")


def test_a_session_puts_back_what_is_not_on_the_disk(node: Scratch) -> None:
    words = ["sh", str(node.here / "change.sh"), "session"]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdin and process.stdout
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line == "verdict?\n":
            (node.root / "etc/first").write_bytes(BEFORE)
            process.stdin.write("confirm e30=\n")
            process.stdin.close()
    assert process.wait(timeout=60) == 1, "".join(lines)
    assert "state=reverted\n" in lines
    is_back(node)


def test_the_same_bytes_in_another_file_are_confirmed(node: Scratch) -> None:
    assert node.verb("apply") == 0
    (node.root / "other").write_bytes(AFTER)
    (node.root / "other").rename(node.root / "etc/first")
    assert node.verb("confirm") == 0
    is_over(node, "confirmed")
    after(node)


# ---- what somebody else wrote ---------------------------------------------------------------------------------------


def theirs(node: Scratch) -> list[bytes]:
    return [path.read_bytes() for path in sorted(node.root.rglob("foreign.*"))]


@pytest.mark.parametrize("name", ["home", ""], ids=["home", "all"])
def test_theirs_is_kept_whole_on_a_full_disk(tmp_path: Path, url: str, name: str) -> None:
    def body(first: Scratch) -> None:
        node = first.next("r2", AFTER)
        node.lay_down()
        assert node.verb("apply") == 0
        (node.root / "etc/first").write_bytes(MINE)
        fill(node, name)
        assert node.verb("revert") == 0
        assert theirs(node) == [MINE]
        kept = next(node.root.rglob("foreign.*"))
        assert f"theirs is kept as {kept}" in reason(node), reason(node)
        assert (node.root / "etc/first").read_bytes() == BEFORE
        without_fill(node)
        node.verb("tidy")  # as the next change does
        assert theirs(node) == [MINE]
        assert f"theirs is kept as {node.here / 'foreign.1'}" in reason(node), reason(node)
        is_back(node)

    walled(url, tmp_path, body, name, data_only=True)


def before_its_path(node: Scratch, name: str, text: str) -> None:
    """A program of the test's own in the place of one that the script calls."""
    folder = node.root / "own"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)
    script = node.here / "change.sh"
    script.write_text(script.read_text().replace(f"PATH={node.root}/bin", f"PATH={folder}:{node.root}/bin"))


def test_theirs_that_cannot_be_kept_is_not_overwritten(node: Scratch) -> None:
    """No other name can be given to it, as where the file system has no room for one: it stays, until there is."""
    before_its_path(node, "ln", f'case "$*" in *foreign*) [ -e {node.root}/room ] || exit 1 ;; esac\nexec /bin/ln "$@"')
    assert node.verb("apply") == 0
    (node.root / "etc/first").write_bytes(MINE)
    assert node.verb("revert") == 1
    assert (node.root / "etc/first").read_bytes() == MINE
    assert node.state == "revert-failed" and "cannot be kept" in reason(node) and node.armed
    (node.root / "room").touch()
    assert node.verb("deadline") == 0
    is_back(node)
    assert theirs(node) == [MINE] and "theirs is kept as" in reason(node)


def test_at_boot_too_the_reason_tells_of_theirs(node: Scratch) -> None:
    assert node.verb("apply") == 0
    (node.root / "etc/first").write_bytes(FOREIGN)
    node.boot()
    assert recovered(node) == 0
    node.systemctl("start", node.change.unit)
    assert node.verb("deadline") == 0
    is_back(node)
    assert theirs(node) == [FOREIGN]
    assert reason(node).startswith("the node was restarted before the change was confirmed; somebody else wrote ")
    assert f"theirs is kept as {node.here / 'foreign.1'}" in reason(node)


def test_two_of_theirs_are_both_kept(node: Scratch) -> None:
    assert node.verb("apply") == 0
    (node.root / "etc/first").write_bytes(FOREIGN)
    node.hook(
        "daemon-reload", 'if mkdir "$S/once" 2>/dev/null; then printf other >"$S/new"; mv "$S/new" "$S/etc/first"; kill -KILL 0; fi\n'
    )
    assert node.verb("revert") == -9
    assert node.verb("revert") == 0
    is_back(node)
    assert theirs(node) == [FOREIGN, b"other"]


def test_a_staging_place_that_was_removed_does_not_end_the_way_back(tmp_path: Path, url: str) -> None:
    def body(node: Scratch) -> None:
        assert node.verb("apply") == 0
        shutil.rmtree(node.root / "etc/.daytwo")
        assert node.verb("revert") == 0
        is_back(node)

    walled(url, tmp_path, body, "etc")


# ---- what is left beside a target -----------------------------------------------------------------------------------


def uninstall(node: Scratch) -> str:
    text = templates().get_template("uninstall.sh.j2").render(home=str(node.home), systemd=str(node.root / "systemd"))
    assert text.count("PATH=/usr/local/sbin") == 1
    script = node.root / "uninstall.sh"
    script.write_text(text.replace("PATH=/usr/local/sbin", f"PATH={node.root}/bin:/usr/local/sbin"))
    return subprocess.run(["sh", script], capture_output=True, text=True, check=True, timeout=60).stdout.strip()


def test_uninstall_leaves_what_is_not_its_own(tmp_path: Path, url: str) -> None:
    """A tenant's volume may have a directory of any name."""

    def body(node: Scratch) -> None:
        tenant = node.root / "tenant"
        tenant.mkdir()
        mount("-t", "tmpfs", "-o", "size=1m", "tenant", tenant)
        (tenant / ".daytwo").mkdir()
        (tenant / ".daytwo/theirs").touch()
        assert [node.verb(verb) for verb in ("apply", "confirm")] == [0, 0]
        assert uninstall(node) == "removed"
        assert (tenant / ".daytwo/theirs").exists()
        assert not node.home.exists() and not (node.root / "etc/.daytwo").exists()

    walled(url, tmp_path, body, "etc")


def test_uninstall_removes_what_was_staged(tmp_path: Path, url: str) -> None:
    """The end of the change could not: its file system was read-only then."""

    def body(node: Scratch) -> None:
        assert node.verb("apply") == 0
        node.hook("stop", 'mount -o remount,ro "$S/etc"\n')
        assert node.verb("confirm") == 0
        assert node.work.exists() and (node.root / "etc/.daytwo").exists()
        assert uninstall(node).startswith(f"busy what change {node.change.id} staged at {node.root}/etc/.daytwo/{node.change.id}")
        assert (node.home / "recover.sh").exists()
        node.hook("stop", "")
        mount("-o", "remount,rw", node.root / "etc")
        assert uninstall(node) == "removed"
        assert not (node.root / "etc/.daytwo").exists()
        after(node)

    walled(url, tmp_path, body, "etc")


def test_a_mount_that_does_not_answer_holds_nobody(tmp_path: Path, url: str) -> None:
    """What is staged there is left, and named; the end is said all the same."""

    def body(node: Scratch) -> None:
        before_its_path(node, "rm", 'case "$*" in *.daytwo/*) exec sleep 1000 ;; esac\nexec /bin/rm "$@"')
        script = node.here / "change.sh"
        script.write_text(script.read_text().replace("tidy_seconds=20", "tidy_seconds=1"))
        assert node.verb("apply") == 0
        assert node.verb("confirm") == 0
        assert node.state == "confirmed"
        assert uninstall(node).startswith("busy what change ")

    walled(url, tmp_path, body, "etc")
