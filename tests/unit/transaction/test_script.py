"""What change.sh does when something is in its way: each case has one clear outcome, and nothing is lost."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import re
import shutil
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.unit.transaction.scratch import (
    AFTER,
    BAD,
    BEFORE,
    Scratch,
    after,
    ends,
    fill,
    full,
    is_over,
    mount,
    reason,
    status,
    untouched,
    walled,
    without_fill,
)

FOREIGN = b"1000009\n"


# ---- the target is not what was planned on --------------------------------------------------------------------------


def test_a_file_that_was_edited_since_the_plan_is_left_alone(node: Scratch) -> None:
    (node.root / "etc/gone").write_bytes(FOREIGN)
    node.before = node.files()
    ends(node, 1, "refused", "apply")
    assert "etc/gone was edited since the plan" in reason(node) and "nothing was changed" in reason(node)
    untouched(node)


@pytest.mark.parametrize("how", ["mv other", "cp other"], ids=["replaced", "written-to"])
@pytest.mark.parametrize("name", ["first", "gone"])
def test_a_file_that_was_edited_before_its_turn_is_left_alone(node: Scratch, name: str, how: str) -> None:
    node.hook("systemd-run", f'cd "$S"; printf 1000009\\\\n >other; {how} etc/{name}\n')
    ends(node, 1, "reverted", "apply")
    assert f"etc/{name} was edited in mid-change" in reason(node)
    assert (node.root / "etc" / name).read_bytes() == FOREIGN
    others = set(node.before) - {f"etc/{name}"}
    assert {other: node.files().get(other) for other in others} == {other: node.before[other] for other in others}
    assert set(node.files()) == set(node.before) and node.argv == node.change.old_argv
    number = {"first": "1", "gone": "3"}[name]
    assert (node.here / "before" / number).read_bytes() == node.change.files[int(number) - 1].before


@pytest.mark.parametrize("how", ["mv other", "cp other"], ids=["replaced", "written-to"])
def test_a_file_that_was_edited_after_its_turn_is_put_back_and_theirs_is_kept(node: Scratch, how: str) -> None:
    node.hook("daemon-reload", f'cd "$S"; if mkdir once 2>/dev/null; then printf does-not-start\\\\n >other; {how} etc/first; fi\n')
    ends(node, 1, "reverted", "apply")
    assert "their version is kept as" in reason(node)
    untouched(node)
    assert [path.read_bytes() for path in node.here.glob("foreign.*")] == [BAD]


def test_a_link_is_refused(node: Scratch) -> None:
    (node.root / "etc/gone").rename(node.root / "elsewhere")
    (node.root / "etc/gone").symlink_to(node.root / "elsewhere")
    node.before = node.files()
    ends(node, 1, "refused", "apply")
    assert "etc/gone is a symbolic link" in reason(node)
    untouched(node)
    assert (node.root / "etc/gone").is_symlink()


@pytest.mark.parametrize("content", [b"to be removed\n", FOREIGN], ids=["same", "other"])
def test_a_file_that_became_a_link_in_mid_change(node: Scratch, content: bytes) -> None:
    (node.root / "elsewhere").write_bytes(content)
    node.hook("systemd-run", 'ln -sf "$S/elsewhere" "$S/etc/gone"\n')
    ends(node, 1, "reverted", "apply")
    assert "etc/gone became a symbolic link in mid-change" in reason(node)
    assert (node.root / "etc/gone").is_symlink() and (node.root / "elsewhere").read_bytes() == content
    (node.root / "etc/gone").unlink()
    (node.root / "etc/gone").write_bytes(b"to be removed\n")
    untouched(node)


# ---- another run has held the cluster's lock since


def fenced(node: Scratch, fence: str) -> Scratch:
    (node.here / "holder").write_text(dataclasses.replace(node.holder, fence=fence).lines)
    return node


def test_what_was_planned_before_another_run_took_the_lock_is_refused(node: Scratch) -> None:
    (node.home / "fence").write_text("0a-1 8\n")
    assert fenced(node, "0a-1 7").verb("apply") == 1
    is_over(node, "refused")
    assert "another run has taken the cluster's lock" in reason(node) and "run the same command again" in reason(node)
    untouched(node)


@pytest.mark.parametrize("seen", ["", "0a-1 6\n", "0a-1 7\n", "ff-9 12\n", "nonsense\n"])
def test_the_newest_generation_goes_on_and_is_remembered(node: Scratch, seen: str) -> None:
    if seen:
        (node.home / "fence").write_text(seen)
    assert fenced(node, "0a-1 7").verb("apply") == 0
    assert (node.home / "fence").read_text() == "0a-1 7\n"


# ---- disks that take nothing ----------------------------------------------------------------------------------------


def test_a_directory_that_is_read_only(tmp_path: Path, url: str) -> None:
    def body(node: Scratch) -> None:
        mount("-o", "remount,ro", node.root / "etc")
        ends(node, 1, "refused", "apply")
        assert "could not stage" in reason(node) and "nothing was changed" in reason(node)
        untouched(node)

    walled(url, tmp_path, body, "etc")


def test_a_directory_that_is_mounted_from_the_same_disk(tmp_path: Path, url: str) -> None:
    """No file can be moved into it by a rename."""

    def body(node: Scratch) -> None:
        mount("--bind", node.root / "etc", node.root / "etc")
        ends(node, 1, "refused", "apply")
        assert "could not stage" in reason(node) and "nothing was changed" in reason(node)
        untouched(node)

    walled(url, tmp_path, body)


def test_a_directory_that_becomes_read_only_in_mid_change(tmp_path: Path, url: str) -> None:
    def body(node: Scratch) -> None:
        node.hook("systemd-run", 'mount -o remount,ro "$S/etc"\n')
        assert node.verb("apply") == 1
        assert (node.state, node.armed, node.argv) == ("reverted", False, node.change.old_argv)
        assert "could not put the new" in reason(node)
        mount("-o", "remount,rw", node.root / "etc")
        node.hook("systemd-run", "")
        # What waited there could not be removed: whoever comes next does it.
        second = node.next("r2", AFTER)
        second.lay_down()
        assert second.verb("apply") == 0 and second.verb("revert") == 0
        is_over(node, "reverted")
        untouched(node)

    walled(url, tmp_path, body, "etc")


@pytest.mark.parametrize("verb", ["revert", "deadline"])
def test_a_directory_that_is_read_only_when_it_is_to_be_put_back(tmp_path: Path, url: str, verb: str) -> None:
    """Loud, and not lost: once it can be written to, the timer, or somebody who does not wait for it, goes on."""

    def body(node: Scratch) -> None:
        assert node.verb("apply") == 0
        mount("-o", "remount,ro", node.root / "etc")
        assert node.verb("revert") == 1
        assert node.state == "revert-failed" and "a file could not be restored" in reason(node)
        assert node.armed and node.work.exists()
        mount("-o", "remount,rw", node.root / "etc")
        assert node.verb(verb) == 0
        is_over(node, "reverted")
        untouched(node)

    walled(url, tmp_path, body, "etc")


@pytest.mark.parametrize(
    ("name", "data_only"),
    [(name, data_only) for name in ("etc", "home", "") for data_only in (False, True)],
    ids=[f"{name}-{what}" for name in ("etc", "home", "all") for what in ("no-inodes", "no-bytes")],
)
def test_a_disk_that_is_full_beforehand(tmp_path: Path, url: str, name: str, data_only: bool) -> None:
    def body(node: Scratch) -> None:
        fill(node, name)
        assert node.verb("apply") == 1
        without_fill(node)
        is_over(node, "refused")
        if name == "etc":
            assert "could not stage" in reason(node) and "nothing was changed" in reason(node)
        untouched(node)

    walled(url, tmp_path, body, name, data_only=data_only)


@pytest.mark.parametrize("name", ["home", "etc", ""], ids=["home", "etc", "all"])
def test_a_disk_that_fills_up_in_mid_change(tmp_path: Path, url: str, name: str) -> None:
    """One of the files needs a new directory: there is no place for that."""

    def body(node: Scratch) -> None:
        node.hook("systemd-run", full(name))
        assert node.verb("apply") == 1
        without_fill(node)
        is_over(node, "reverted")
        assert "could not put the new" in reason(node) and "etc/made/for/it" in reason(node)
        untouched(node)

    walled(url, tmp_path, body, name)


@pytest.mark.parametrize("end", ["confirm", "revert", "deadline"])
@pytest.mark.parametrize("name", ["home", "etc", ""], ids=["home", "etc", "all"])
def test_a_change_goes_on_to_its_end_on_a_full_disk(tmp_path: Path, url: str, name: str, end: str) -> None:
    """What it needs was taken beforehand: placing, putting back and every marker are renames."""

    def body(first: Scratch) -> None:
        node = first.next("r2", AFTER)
        node.lay_down()
        node.hook("systemd-run", full(name))
        assert node.verb("apply") == 0
        after(node)
        node.hook("systemd-run", "")
        assert node.verb(end) == 0
        without_fill(node)
        is_over(node, "confirmed" if end == "confirm" else "reverted")
        if end == "confirm":
            after(node)
        else:
            untouched(node)
            assert reason(node) == {"revert": "asked for", "deadline": f"not confirmed within {node.change.confirm_timeout} s"}[end]

    walled(url, tmp_path, body, name)


def test_the_record_keeps_nothing_half_copied_on_a_full_disk(tmp_path: Path, url: str) -> None:
    """There is no byte for a copy of the original: the link to it stays."""

    def body(first: Scratch) -> None:
        node = first.next("r2", AFTER)
        node.lay_down()
        node.hook("stop", full(""))  # the timer, right before what was kept is tidied
        assert [node.verb(verb) for verb in ("apply", "revert")] == [0, 0]
        assert sorted(path.name for path in (node.here / "before").iterdir()) == ["1", "SHA256SUMS"]
        assert (node.here / "before/1").read_bytes() == BEFORE
        without_fill(node)
        is_over(node, "reverted")
        untouched(node)

    walled(url, tmp_path, body, "", data_only=True)


# ---- the record of the change is deleted ----------------------------------------------------------------------------


def test_the_record_is_deleted_in_mid_change(node: Scratch) -> None:
    node.hook("systemd-run", f'rm -rf "$S/home/changes/{node.change.id}"\n')
    assert node.verb("apply") == 1
    node.verb("died")  # as its unit does
    is_over(node, "reverted")
    untouched(node)


@pytest.mark.parametrize("ender", ["deadline", "revert", "died"])
def test_the_record_is_deleted_while_it_waits_to_be_confirmed(node: Scratch, ender: str) -> None:
    assert node.verb("apply") == 0
    shutil.rmtree(node.here)
    assert status(node)["state"] == "lost"
    assert node.verb("confirm") == 1
    assert "is lost: there is nothing to confirm" in node.output()
    assert node.verb(ender) == 0
    is_over(node, "reverted")
    untouched(node)


def test_the_record_is_deleted_and_the_node_restarted(node: Scratch) -> None:
    assert node.verb("apply") == 0
    shutil.rmtree(node.here)
    node.boot()
    assert node.popen("sh", str(node.home / "recover.sh")).wait(timeout=600) == 0
    assert node.files() == node.before
    node.systemctl("start", node.change.unit)
    ends(node, 0, "reverted", "deadline")
    untouched(node)


# ---- one change at a time -------------------------------------------------------------------------------------------


def names(loser: Scratch, winner: Scratch) -> None:
    told = reason(loser)
    assert f"run={winner.holder.run} " in told or f"run {winner.holder.run}," in told, told
    assert winner.holder.who in told and winner.holder.command in told, told
    assert winner.change.id in told and "nothing was changed" in told, told
    left = re.search(r"in (\d+) s", told)
    assert left and 0 < int(left[1]) <= winner.change.confirm_timeout, told


def test_two_at_the_same_moment(node: Scratch) -> None:
    for turn in range(4):
        pair = [node.next(f"{turn}{letter}", AFTER, who=f"{letter}@host", command=f"pyinfra {letter}.py") for letter in "ab"]
        for one in pair:
            one.lay_down()
        started = [(one, one.start("apply")) for one in (pair if turn % 2 else reversed(pair))]
        codes = {process.wait(timeout=600): one for one, process in started}
        assert sorted(codes) == [0, 1]
        winner, loser = codes[0], codes[1]
        assert (winner.state, loser.state) == ("applied", "refused")
        names(loser, winner)
        assert not loser.work.exists()
        after(winner)
        ends(winner, 0, "reverted", "revert")
        untouched(node)


def test_a_second_change_while_one_waits_to_be_confirmed(node: Scratch) -> None:
    second = node.next("r2", b"1000003\n", AFTER, who="b@host", command="pyinfra b.py")
    second.lay_down()
    assert node.verb("apply") == 0
    assert second.verb("apply") == 1
    assert second.state == "refused" and not second.work.exists()
    names(second, node)
    after(node)
    assert node.armed
    ends(node, 0, "confirmed", "confirm")
    third = node.next("r3", b"1000003\n", AFTER)
    third.lay_down()
    assert third.verb("apply") == 0
    after(third)


def test_a_second_change_while_one_is_being_applied(node: Scratch) -> None:
    second = node.next("r2", b"1000003\n")
    second.lay_down()
    node.hook("systemd-run", ': >"$S/there"; until [ -e "$S/go" ]; do sleep 0.05; done\n')
    process = node.start("apply")
    try:
        while not (node.root / "there").exists():
            assert process.poll() is None
        assert second.verb("apply") == 1
        is_refused_by = reason(second)
    finally:
        (node.root / "go").touch()
    assert process.wait(timeout=600) == 0
    assert second.state == "refused", is_refused_by
    names(second, node)
    after(node)
    assert node.armed and node.verb("confirm") == 0
    is_over(node, "confirmed")


def race(number: int, folder: Path, url: str) -> str:
    """confirm and revert at the same moment; the end."""
    node = Scratch(folder / str(number), url)
    if number >= 2:
        node.spare()
    try:
        node.lay_down()
        assert node.verb("apply") == 0
        verbs = ("confirm", "revert") if number % 2 else ("revert", "confirm")
        processes = {verb: node.start(verb) for verb in verbs}
        codes = {verb: process.wait(timeout=600) for verb, process in processes.items()}
        won = "confirm" if node.state == "confirmed" else "revert"
        # 2 is the shell's: what won was done before the other had opened the script, and has put it away.
        assert codes.pop(won) == 0 and set(codes.values()) <= {1, 2}, node.output()
        is_over(node, "confirmed" if won == "confirm" else "reverted")
        if won == "confirm":
            after(node)
        else:
            untouched(node)
        return won
    finally:
        node.end()


def test_confirm_and_revert_at_the_same_moment(tmp_path: Path, url: str) -> None:
    with ThreadPoolExecutor(3) as pool:
        won = list(pool.map(lambda number: race(number, tmp_path, url), range(10)))
    # Whoever starts first mostly wins, and they take turns; on a busy machine chance may have had another mind ten times.
    more = iter(range(10, 40))
    while set(won) != {"confirm", "revert"} and (number := next(more, None)) is not None:
        won.append(race(number, tmp_path, url))
    assert set(won) == {"confirm", "revert"}, won


# ---- confirm --------------------------------------------------------------------------------------------------------


def test_confirmed_twice(node: Scratch) -> None:
    assert [node.verb(verb) for verb in ("apply", "confirm", "confirm")] == [0, 0, 0]
    is_over(node, "confirmed")
    after(node)


def test_a_confirm_whose_answer_is_lost(node: Scratch) -> None:
    assert node.verb("apply") == 0
    # Nobody reads what it prints: the connection is gone.
    node.popen("sh", "-c", f'sh "{node.here}/change.sh" confirm | :').wait(timeout=600)
    assert status(node)["state"] == "confirmed"
    is_over(node, "confirmed")
    after(node)


def test_a_restart_of_the_node_takes_the_chance_to_confirm(node: Scratch) -> None:
    assert node.verb("apply") == 0
    node.boot()
    assert node.verb("confirm") == 1
    assert "was not confirmed in time" in node.output()
    assert node.popen("sh", str(node.home / "recover.sh")).wait(timeout=600) == 0
    assert (node.state, node.files()) == ("reverting", node.before)
    assert node.verb("confirm") == 1
    node.systemctl("start", node.change.unit)
    ends(node, 0, "reverted", "deadline")
    untouched(node)


@pytest.mark.parametrize("ender", ["deadline", "died", "revert"])
def test_why_a_revert_began_stays_the_reason(node: Scratch, ender: str) -> None:
    assert node.verb("apply") == 0
    node.hook("daemon-reload", 'if mkdir "$S/once" 2>/dev/null; then kill -KILL 0; fi\n')
    assert node.verb("revert", "the proof failed") == -9
    assert node.verb(ender) == 0
    is_over(node, "reverted")
    assert reason(node) == "the proof failed"


# ---- revert ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["daemon-reload", "restart", "stop"])
def test_a_revert_is_killed_and_started_again(node: Scratch, moment: str) -> None:
    assert node.verb("apply") == 0
    node.hook(moment, 'if mkdir "$S/once" 2>/dev/null; then kill -KILL 0; fi\n')
    assert node.verb("revert") == -9
    assert node.work.exists() and node.armed
    ends(node, 0, "reverted", "revert")
    untouched(node)


def evidence(node: Scratch) -> str:
    """What `status` tells of it."""
    return base64.b64decode(status(node).get("evidence", "")).decode().strip()


def test_what_is_kept_as_evidence_was_said_by_the_new_process(node: Scratch) -> None:
    """Not by the old one, which speaks last when a change is put back that was applied and not proven."""
    node.hook("job-restart", 'echo "started with $(cat "$S/etc/first")" >>"$S/journal"')
    assert node.verb("apply") == 0
    assert node.verb("revert", "not proven") == 0
    assert node.state == "reverted" and node.argv == node.change.old_argv
    said = [f"started with {text.decode().strip()}" for text in (AFTER, BEFORE)]
    assert (node.root / "journal").read_text().splitlines() == said, "the old process should have said something"
    assert evidence(node) == f"journal: {said[0]}"


def test_after_a_restart_of_the_node_nothing_is_evidence(node: Scratch) -> None:
    """All that the journal has of this boot was said by the old process."""
    assert node.verb("apply") == 0
    node.boot()
    (node.root / "journal").write_text("E0101 the old one complains\n")
    assert node.verb("recover") == 0
    node.systemctl("start", node.change.unit)
    assert node.verb("deadline") == 0
    assert node.state == "reverted"
    assert evidence(node) == "" and not (node.here / "evidence").exists()


def test_what_is_confirmed_is_not_reverted(node: Scratch) -> None:
    assert node.verb("apply") == 0 and node.verb("confirm") == 0
    files = node.files()
    for verb in ("revert", "deadline", "died", "recover"):
        node.verb(verb)
        is_over(node, "confirmed")
        assert node.files() == files
        after(node)
    assert node.verb("revert") == 1
    assert "is confirmed" in node.output() and "rollback" in node.output()


def test_a_revert_that_failed_says_so_and_keeps_everything(stuck: Scratch) -> None:
    assert stuck.files() == stuck.before
    assert "the files are as before, but the old process is not back" in reason(stuck)
    assert stuck.work.exists()
    assert (stuck.here / "before/1").read_bytes() == BEFORE


def test_a_revert_that_failed_blocks_the_next_change(stuck: Scratch) -> None:
    second = stuck.next("r2", AFTER)
    second.lay_down()
    assert second.verb("apply") == 1
    assert second.state == "refused"
    told = reason(second)
    assert stuck.change.id in told and "revert-failed" in told and stuck.holder.who in told, told
    assert "abandon" in told, told


def test_only_what_is_stuck_is_abandoned(node: Scratch) -> None:
    for verb, state in (("status", "staged"), ("apply", "applied"), ("confirm", "confirmed")):
        node.verb(verb)
        assert node.verb("abandon") == 1
        assert node.state == state
        assert f"is {state}: only a change whose revert failed can be abandoned" in node.output()
    after(node)


def test_what_is_abandoned_makes_way(stuck: Scratch) -> None:
    assert stuck.verb("abandon") == 0
    assert status(stuck)["state"] == "abandoned"
    is_over(stuck, "abandoned")
    (stuck.root / "hooks/restart").unlink()
    (stuck.root / "broken").unlink()
    stuck.systemctl("start", stuck.change.unit)
    second = stuck.next("r2", AFTER)
    second.lay_down()
    assert second.verb("apply") == 0 and second.verb("confirm") == 0
    after(second)


def test_a_revert_that_failed_can_be_tried_again(stuck: Scratch) -> None:
    (stuck.root / "hooks/restart").unlink()
    (stuck.root / "broken").unlink()
    ends(stuck, 0, "reverted", "revert")
    untouched(stuck)


# ---- what is kept ---------------------------------------------------------------------------------------------------


def flip(node: Scratch, count: int, end: str = "confirm") -> list[Scratch]:
    """So many changes one after the other, there and back."""
    made, content = [], BEFORE
    for number in range(count):
        wanted = AFTER if content == BEFORE else BEFORE
        one = node.next(f"run{number}", wanted, content)
        one.lay_down()
        assert one.verb("apply") == 0 and one.verb(end) == 0, one.output()
        if end == "confirm":
            content = wanted
        made.append(one)
    return made


def kept(node: Scratch) -> set[str]:
    return {path.name for path in (node.home / "changes").iterdir()}


def test_numbers_are_in_order(node: Scratch) -> None:
    made = flip(node, 3)
    assert [(one.here / "number").read_text() for one in made] == ["1\n", "2\n", "3\n"]
    assert (node.home / "number").read_text() == "3\n"


def test_the_oldest_go(tmp_path: Path, url: str) -> None:
    node = Scratch(tmp_path / "node", url, keep=2).spare()
    try:
        made = flip(node, 4)
        assert kept(node) == {one.change.id for one in made[-2:]}
    finally:
        node.end()


def past(node: Scratch, name: str, number: int | None, state: str, *, active: bool = False) -> None:
    folder = node.home / "changes" / name
    folder.mkdir(parents=True)
    (folder / "state").write_text(f"state={state}\nboot=x\ndeadline=1\n")
    if number is not None:
        (folder / "number").write_text(f"{number}\n")
    if active:
        (node.home / "active" / name).mkdir(parents=True)


def test_only_what_has_ended_goes(tmp_path: Path, url: str) -> None:
    node = Scratch(tmp_path / "node", url, keep=2).spare()
    try:
        flights = ["staged", "applying", "applied", "reverting", "revert-failed"]
        for number, state in enumerate([*flights, "confirmed", "reverted", "abandoned"], 1):
            past(node, f"old-{state}", number, state)
        (node.home / "number").write_text("8\n")
        (last,) = flip(node, 1)
        assert kept(node) == {*(f"old-{state}" for state in flights), "old-abandoned", last.change.id}
    finally:
        node.end()


def test_refused_ones_go_too(tmp_path: Path, url: str) -> None:
    node = Scratch(tmp_path / "node", url, keep=2).spare()
    try:
        for turn in range(4):
            refused = node.next(f"no{turn}", AFTER, b"planned on something else\n")
            refused.lay_down()
            assert refused.verb("apply") == 1 and refused.state == "refused"
        made = flip(node, 2)
        assert {one.change.id for one in made} <= kept(node)
        assert len(kept(node)) <= 4
    finally:
        node.end()


@pytest.mark.parametrize("end", ["confirm", "revert"])
def test_the_originals(node: Scratch, end: str) -> None:
    (node.root / "etc/gone").chmod(0o640)
    node.before = node.files()
    assert node.verb("apply") == 0
    for moment in ("applied", "ended"):
        if moment == "ended":
            assert node.verb(end) == 0
        before = node.here / "before"
        assert sorted(path.name for path in before.iterdir()) == ["1", "3", "SHA256SUMS"]
        for number, name in ((1, "etc/first"), (3, "etc/gone")):
            path, expected = before / str(number), node.before[name]
            assert expected and (path.stat().st_mode, path.read_bytes()) == expected
        sums = dict(line.split("  ")[::-1] for line in (before / "SHA256SUMS").read_text().splitlines())
        assert sums == {number: hashlib.sha256((before / number).read_bytes()).hexdigest() for number in ("1", "3")}
        assert stat.S_IMODE((before / "SHA256SUMS").stat().st_mode) == 0o600
        for folder in (node.home, node.home / "active", node.home / "changes", node.here, before):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder
    if end == "revert":
        for number, name in (("1", "etc/first"), ("3", "etc/gone")):
            assert not (node.here / "before" / number).samefile(node.root / name)
        with (node.root / "etc/first").open("ab") as live:
            live.write(b"# edited in place\n")
        assert (node.here / "before/1").read_bytes() == BEFORE


# ---- any POSIX shell, by hand ---------------------------------------------------------------------------------------

SHELLS = {"dash": ("dash",), "bash": ("bash", "--posix"), "busybox": ("busybox", "sh")}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.skipif(shutil.which(name) is None, reason=f"{name} is not installed"))
        for name in SHELLS
        if name != "dash"
    ],
)
def test_every_shell_does_the_same(tmp_path: Path, url: str, name: str) -> None:
    found = {}
    for shell in ("dash", name):
        node = Scratch(tmp_path / shell, url)
        try:
            rounds = []
            for run, content, verbs in (
                ("a", AFTER, ("apply", "revert")),
                ("b", BAD, ("apply",)),
                ("c", AFTER, ("apply", "confirm", "revert")),
            ):
                one = node.next(run, content)
                one.lay_down()
                codes = [one.verb(verb, shell=SHELLS[shell]) for verb in verbs]
                log = re.sub(r"(?m)^\d+ |PID \d+|(?<=settled: )[\d.]+", "", one.log).replace(str(node.root), "")
                rounds.append((codes, log, one.state, reason(one), node.files(), node.argv))
            found[shell] = rounds
        finally:
            node.end()
    assert found[name] == found["dash"]
    assert [one[2] for one in found[name]] == ["reverted", "reverted", "confirmed"]


def test_without_a_verb_it_tells_how_to_use_it(node: Scratch) -> None:
    assert node.verb() == 2
    for verb in ("apply", "confirm", "revert", "status", "abandon", "detached apply"):
        assert f"change.sh {verb}" in node.output()
    assert node.change.summary in node.output() and "set -u" not in node.output()
    assert node.state == "staged"
    untouched(node)


@pytest.mark.parametrize("verb", ["apply", "revert", "status"])
def test_a_copy_elsewhere_says_where_it_belongs(node: Scratch, verb: str) -> None:
    elsewhere = node.root / "usb/stick/r1"
    shutil.copytree(node.here, elsewhere)
    assert node.popen("sh", str(elsewhere / "change.sh"), verb).wait(timeout=600) == 2
    assert f"this change belongs in {node.here}" in node.output()
    assert node.state == "staged" and not (node.home / "active" / node.change.id).exists()
    untouched(node)


# ---- what systemd tells of the unit ---------------------------------------------------------------------------------


@pytest.fixture
def watched(node: Scratch) -> Scratch:
    """A node whose new process must be well for longer than a moment, and whose unit is looked at meanwhile."""
    node.tuned["stable_seconds"] = 2
    node.lay_down()
    return node


def test_a_process_that_systemd_starts_over_and_over_is_not_waited_for(watched: Scratch) -> None:
    """As NRestarts tells it: the process of each look is well, and of the ends between two looks nothing else is seen."""
    watched.hook("show", 'if [ -e "$S/etc/made" ]; then echo . >>"$S/run/ends"; wc -l <"$S/run/ends" >"$S/run/restarts"; fi\n')
    assert watched.verb("apply") == 1
    # The second where the first answer of its health came too late.
    assert reason(watched) in ("kubelet was healthy and ended again", "kubelet ended 2 times after its start")
    is_over(watched, "reverted")
    untouched(watched)


def test_a_count_that_begins_again_says_why(node: Scratch) -> None:
    node.tuned["stable_seconds"] = 1
    asked = node.root / "asked"
    node.spare(f"http_status() {{ echo x >>{asked}; [ $(wc -l <{asked}) = 3 ] && echo 503 || echo 200; }}\n")
    node.lay_down()
    assert node.verb("apply") == 0, node.output()
    url = node.change.health_url
    assert re.findall("healthy: .*", node.log) == [f"healthy: {url}", f"healthy: {url} again: {url} does not answer 200"]


def test_a_unit_that_failed_is_not_waited_for(watched: Scratch) -> None:
    # In the moment after the start was done.
    dies = 'case $* in *NRestarts*) ;; *) false ;; esac && if [ -e "$S/etc/made" ] && alive; then kill -KILL "$(cat "$S/run/pid")"; : >"$S/run/pid"; echo failed >"$S/run/active"; fi\n'
    watched.hook("show", dies)
    assert watched.verb("apply") == 1
    assert reason(watched) == f"{watched.change.unit} failed"
    is_over(watched, "reverted")
    untouched(watched)


def test_a_timer_that_is_there_means_that_the_change_is_at_work(node: Scratch) -> None:
    """Of the four units that may work on it only the last is: what is shown of the others says nothing."""
    node.hook("show", 'case $* in *deadline.timer) printf "inactive\\n\\nfailed\\n\\ninactive\\n\\nactive\\n"; exit ;; esac\n')
    script = (node.here / "change.sh").read_text()
    head = script[: script.index('[ "$(id -u)" = 0 ]')]
    asked = subprocess.run(["sh", "-c", f"{head}\nat_work"], check=False)
    assert asked.returncode == 0
    node.hook("show", 'case $* in *deadline.timer) printf "inactive\\n\\nfailed\\n\\ninactive\\n\\ninactive\\n"; exit ;; esac\n')
    asked = subprocess.run(["sh", "-c", f"{head}\nat_work"], check=False)
    assert asked.returncode == 1
