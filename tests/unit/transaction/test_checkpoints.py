"""A change with checkpoints: the stand-in's process refuses to start with one of another policy, as a kubelet does."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from roles.engine.transaction import change_script, report
from tests.unit.transaction.scratch import (
    AFTER,
    BAD,
    BEFORE,
    MAIN,
    Scratch,
    ends,
    full,
    in_private_mounts,
    mount,
    reason,
    untouched,
    walled,
    without_fill,
)
from tests.unit.transaction.scratch import after as is_changed

# The first line is the policy, to the stand-in.
ORIGINAL = BEFORE + b'{"policyName":"none","entries":{"a":{"b":"0-1"}},"checksum":1}\n'


def remembering(folder: Path, url: str, after: bytes = AFTER, original: bytes | None = ORIGINAL) -> Scratch:
    """A node whose process has a checkpoint, or would create one (None)."""
    node = Scratch(folder, url, after)
    (node.root / "var").mkdir(exist_ok=True)
    if original is not None:
        checkpoint(node).write_bytes(original)
        checkpoint(node).chmod(0o600)
    node.change = dataclasses.replace(node.change, checkpoints=(str(checkpoint(node)),))
    node.lay_down()
    return node


def checkpoint(node: Scratch) -> Path:
    return node.root / "var/cpu_manager_state"


@pytest.fixture
def remembers(tmp_path: Path, url: str) -> Iterator[Scratch]:
    made = remembering(tmp_path / "node", url)
    yield made
    made.end()


@pytest.fixture
def fails(tmp_path: Path, url: str) -> Iterator[Scratch]:
    """Its new process does not start."""
    made = remembering(tmp_path / "fails", url, BAD)
    yield made
    made.end()


def as_it_was(node: Scratch, original: bytes = ORIGINAL) -> None:
    untouched(node)
    assert checkpoint(node).read_bytes() == original
    assert [path.name for path in (node.root / "var").iterdir()] == ["cpu_manager_state"]


def test_a_change_without_checkpoints_has_nothing_of_this(node: Scratch) -> None:
    text = change_script.render(node.change)
    assert "checkpoint" not in text and "stop_kubelet" not in text and "give_back" not in text


def test_the_checkpoint_is_removed_and_created_again(remembers: Scratch) -> None:
    assert remembers.verb("apply") == 0, remembers.log
    is_changed(remembers)
    assert checkpoint(remembers).read_bytes() == AFTER
    steps = [line.partition(" step: ")[2] for line in remembers.log.splitlines() if " step: " in line]
    assert steps == [
        *("check", "stage", "arm", "stop", "take 4", "place 1", "place 2", "place 3"),
        *("daemon-reload", "restart", "wait", "checkpoints", "applied"),
    ]
    ends(remembers, 0, "confirmed", "confirm")
    assert checkpoint(remembers).read_bytes() == AFTER
    assert (remembers.here / "before/checkpoint.4").read_bytes() == ORIGINAL


def test_the_status_has_what_the_new_process_has_stored(remembers: Scratch) -> None:
    assert remembers.verb("apply") == 0
    seen = len(remembers.output())
    assert remembers.verb("status") == 0
    assert report.parse(remembers.output()[seen:].splitlines()).checkpoints == (AFTER,)


def test_bytes_that_change_after_the_plan_are_restored_as_they_were_at_the_stop(fails: Scratch) -> None:
    later = BEFORE + b"another pod came meanwhile\n"
    fails.hook("stop", f'printf \'{later.decode()}\' >"$S/var/.x" && mv "$S/var/.x" "$S/var/cpu_manager_state"\n')
    ends(fails, 1, "reverted", "apply")
    as_it_was(fails, later)


def test_a_process_that_does_not_start_leaves_everything_as_it_was(fails: Scratch) -> None:
    mode = checkpoint(fails).stat().st_mode
    ends(fails, 1, "reverted", "apply")
    as_it_was(fails)
    assert checkpoint(fails).stat().st_mode == mode


def test_a_verdict_brings_it_back(remembers: Scratch) -> None:
    assert remembers.verb("apply") == 0
    ends(remembers, 0, "reverted", "revert", "not proven")
    as_it_was(remembers)
    assert "step: stop-new" in remembers.log and "step: restore 4" in remembers.log


def test_a_power_cut_brings_it_back_before_the_kubelet_starts(remembers: Scratch) -> None:
    assert remembers.verb("apply") == 0
    remembers.boot()
    assert remembers.popen("sh", str(remembers.home / "recover.sh")).wait(timeout=600) == 0
    assert checkpoint(remembers).read_bytes() == ORIGINAL
    remembers.systemctl("start", remembers.change.unit)
    ends(remembers, 0, "reverted", "deadline")
    as_it_was(remembers)
    assert "step: stop-new" not in remembers.log


def test_a_power_cut_in_the_middle_of_a_rename_may_leave_both_names(remembers: Scratch) -> None:
    remembers.mutate = lambda text: text.replace(
        'mv -f -T "$target" "$place/$n.checkpoint"', 'ln "$target" "$place/$n.checkpoint" && kill -KILL 0'
    )
    remembers.lay_down()
    remembers.verb("apply")
    assert (remembers.work / "4.checkpoint").samefile(checkpoint(remembers))
    remembers.boot()
    assert remembers.popen("sh", str(remembers.home / "recover.sh")).wait(timeout=600) == 0
    remembers.systemctl("start", remembers.change.unit)
    ends(remembers, 0, "reverted", "deadline")
    as_it_was(remembers)


def test_a_kubelet_that_runs_at_boot_before_the_revert_is_stopped_first(remembers: Scratch) -> None:
    assert remembers.verb("apply") == 0
    remembers.boot()
    remembers.systemctl("start", remembers.change.unit)
    assert remembers.popen("sh", str(remembers.home / "recover.sh")).wait(timeout=600) == 0
    assert checkpoint(remembers).read_bytes() == AFTER, "it was replaced under a running kubelet"
    ends(remembers, 0, "reverted", "deadline")
    as_it_was(remembers)
    assert "step: stop-new" in remembers.log


def test_no_checkpoint_before_is_none_after_the_revert(tmp_path: Path, url: str) -> None:
    """Then the old process creates its own."""
    node = remembering(tmp_path / "none", url, original=None)
    try:
        assert node.verb("apply") == 0
        assert checkpoint(node).read_bytes() == AFTER
        ends(node, 0, "reverted", "revert", "asked")
        as_it_was(node, BEFORE)
    finally:
        node.end()


def test_a_link_is_refused_before_anything_is_stopped(remembers: Scratch) -> None:
    checkpoint(remembers).rename(remembers.root / "elsewhere")
    checkpoint(remembers).symlink_to(remembers.root / "elsewhere")
    ends(remembers, 1, "refused", "apply")
    assert "cpu_manager_state is a symbolic link" in reason(remembers)
    assert "step: stop" not in remembers.log


def test_a_checkpoint_whose_file_system_does_not_answer_is_waited_for(remembers: Scratch) -> None:
    """Meanwhile the kubelet is not stopped, and the change does not count as reverted."""
    dead = (
        f'brief() {{ if [ -e {remembers.root}/dead ]; then case "$*" in *4.checkpoint*) return 124 ;; esac; fi; '
        'timeout --foreground -s KILL "$io_seconds" "$@"; }\n'
    )
    remembers.mutate = lambda text: text.replace(MAIN, dead + MAIN)
    remembers.lay_down()
    assert remembers.verb("apply") == 0
    (remembers.root / "dead").touch()
    assert remembers.verb("revert", "asked") == 1
    assert remembers.state == "revert-failed" and "cpu_manager_state: its file system has not answered" in reason(remembers)
    assert remembers.argv == remembers.change.new_argv and "step: stop-new" not in remembers.log
    (remembers.root / "dead").unlink()
    ends(remembers, 0, "reverted", "revert")
    as_it_was(remembers)


def test_what_would_stop_with_the_kubelet_and_not_start_again_is_named(remembers: Scratch) -> None:
    (remembers.root / "run/also.agent.service").touch()
    (remembers.root / "run/also.multi-user.target").touch()
    ends(remembers, 1, "refused", "apply")
    assert "and not start again: agent.service; nothing was changed" in reason(remembers)
    as_it_was(remembers)


def test_a_kubelet_that_does_not_stop_keeps_its_checkpoint(tmp_path: Path, url: str) -> None:
    node = Scratch(tmp_path / "stays", url, AFTER, stop_seconds=1, io_seconds=1)
    (node.root / "var").mkdir()
    checkpoint(node).write_bytes(ORIGINAL)
    node.change = dataclasses.replace(node.change, checkpoints=(str(checkpoint(node)),))
    # Neither the stop nor the signal has an effect.
    node.mutate = lambda text: text.replace("kill -KILL", ": kill -KILL")
    node.hook("stop", "case $* in *.timer) ;; *) exit 1 ;; esac\n")
    node.lay_down()
    try:
        ends(node, 1, "reverted", "apply")
        assert "does not stop" in reason(node)
        as_it_was(node)
        assert "restart-old" not in node.log, "the old process was not touched, and was restarted"
    finally:
        node.end()


def test_what_hangs_in_the_unit_is_killed(remembers: Scratch) -> None:
    remembers.tuned["stop_seconds"] = 1
    remembers.lay_down()
    remembers.hook("stop", 'case $* in *.timer) ;; *) if [ -s "$S/run/pid" ] && mkdir "$S/once" 2>/dev/null; then exit 1; fi ;; esac\n')
    remembers.hook(
        "show", 'if [ -d "$S/once" ]; then look; [ "$main" != 0 ] || [ "$active" != active ] || echo inactive >"$S/run/active"; fi\n'
    )
    assert remembers.verb("apply") == 0, remembers.log
    assert "hangs in stand-in.service: killed" in remembers.log
    is_changed(remembers)


def test_it_is_brought_back_across_a_file_system_of_its_own(tmp_path: Path, url: str) -> None:
    def body() -> None:
        root = tmp_path / "node"
        (root / "var").mkdir(parents=True)
        mount("-t", "tmpfs", "-o", "size=1m", "var", root / "var")
        node = remembering(root, url, BAD)
        try:
            ends(node, 1, "reverted", "apply")
            as_it_was(node)
        finally:
            node.end()

    try:
        in_private_mounts(body)
    except PermissionError as error:
        pytest.skip(f"no mount namespace may be made here: {error}")


@pytest.mark.parametrize("original", [ORIGINAL, None], ids=["taken", "there-is-none"])
@pytest.mark.parametrize("name", ["home", ""], ids=["home", "all"])
def test_a_disk_that_fills_up_when_the_kubelet_is_stopped(tmp_path: Path, url: str, name: str, original: bytes | None) -> None:
    """The checkpoint is moved by renames, away and back; only its copy for people needs space. A full disk of the kubelet's own keeps the
    new process from writing its checkpoint."""

    def body(first: Scratch) -> None:
        if name == "":
            (first.root / "var").mkdir(exist_ok=True)
        node = first.next("r2", AFTER)
        (node.root / "var").mkdir(exist_ok=True)
        if original is not None:
            checkpoint(node).write_bytes(original)
        node.change = dataclasses.replace(node.change, checkpoints=(str(checkpoint(node)),))
        if name == "" and original is None:
            # The old process may be waited for in vain, as long as a revert may take.
            node.tuned["revert_timeout"] = 10
        node.lay_down()
        node.hook("stop", f'case $* in *.timer) ;; *) if mkdir "$S/once" 2>/dev/null; then {full(name)} fi ;; esac\n')
        applied = node.verb("apply") == 0
        assert "step: take" in node.log
        assert applied == (name == "home"), node.log
        if applied:
            assert checkpoint(node).read_bytes() == AFTER
            assert not list((node.here / "before").glob("checkpoint.*")), "half a copy"
            assert node.verb("revert") == 0
        without_fill(node)
        if original is None and not applied:
            # The old process could not create its own on the full disk: its revert is tried again.
            ends(node, 0, "reverted", "revert")
        (node.root / "var/.new").unlink(missing_ok=True)  # of the stand-in, which had no space for its checkpoint
        as_it_was(node, original if original is not None else BEFORE)

    walled(url, tmp_path, body, name)
