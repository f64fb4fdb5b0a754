"""What change.sh has said or done outlasts a power loss, whatever the moment: judged on its system calls.

Each call of a real run is looked at: had the power gone right before it, what would be on the disk?
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.transaction.disk import Call, Disk, strace_works, trace_of
from tests.unit.transaction.scratch import BEFORE, Scratch

pytestmark = pytest.mark.skipif(not strace_works(), reason="strace is not installed, or must not trace here")


# The first line is the policy, to the stand-in.
CHECKPOINT = BEFORE + b"as it was\n"


class Judge:
    """Lets the calls happen one by one and writes down what a power loss would break."""

    def __init__(self, node: Scratch, disk: Disk) -> None:
        self.node, self.disk = node, disk
        self.targets = [edit.path for edit in node.change.files]
        self.checkpoint = next(iter(node.change.checkpoints), "")
        self.marker, self.work = str(node.here / "state"), str(node.work)
        self.touched: list[str] = []  # targets, in the order they were touched in
        self.states: list[str] = []
        self.broken: list[str] = []

    def state(self, durable: bool) -> str:
        inode = self.disk.find(self.marker, durable)
        if durable and inode and not inode.synced:
            return "torn"
        found = re.search(r"^state=(\S+)", inode.text if inode else "", re.MULTILINE)
        return found[1] if found else "none"

    def hear(self, calls: list[Call]) -> Judge:
        for call in calls:
            self.before(call)
            self.disk.apply(call)
            self.after(call)
        return self

    def note(self, what: str, call: Call) -> None:
        self.broken.append(f"{what} (at {call.name} {' '.join(call.paths).replace(self.disk.root, '')}, state {self.state(False)})")

    def before(self, call: Call) -> None:
        if not call.paths or call.name in ("fsync", "fdatasync"):
            return
        path = call.paths[-1]
        if self.checkpoint and self.checkpoint in call.paths and call.name.startswith("rename"):
            self.move(call)
            return
        if path in self.targets and not (call.name.startswith("open") and "O_RDONLY" in call.raw) and not call.name.startswith("link"):
            self.touch(call, path)
        if not call.name.startswith(("unlink", "rmdir", "rename")):
            return
        if call.paths[0].startswith(f"{self.disk.root}/timers/") and self.state(True) not in ("confirmed", "reverted"):
            self.note("the timer goes before the end is durable", call)
        # Not the note that a file was not touched yet: it goes right before that file is.
        # Nor the probe of a checkpoint's place.
        notes = (self.work + "/untouched.", f"{self.work}/{len(self.targets) + 1}.probe")
        staged = call.paths[0].startswith(self.work + "/") and not call.paths[0].startswith(notes)
        away = call.paths[0] == self.work or (staged and path not in self.targets)
        if away and self.state(True) not in ("confirmed", "reverted"):
            self.note("what was staged goes before the end is durable", call)

    def move(self, call: Call) -> None:
        """The checkpoint is moved away or back, or replaced by the kubelet."""
        if self.work in call.paths[0] + call.paths[-1] and self.state(True) not in ("applying", "reverting"):
            self.note(f"the checkpoint is moved while the durable marker is {self.state(True)}", call)
        if call.paths[0] != self.checkpoint and self.work in call.paths[0] and "first" not in map(_name, self.touched[3:]):
            self.note("the checkpoint is back before the files are", call)

    def kept(self, call: Call, where: str) -> None:
        """The original of the checkpoint would outlast a power loss there."""
        found = self.disk.find(where, durable=True)
        if found is None or found.text != CHECKPOINT.decode():
            self.note(f"the checkpoint is not at {where.replace(self.disk.root, '')}", call)

    def touch(self, call: Call, target: str) -> None:
        if self.checkpoint and self.state(False) == "applying":
            self.kept(call, f"{self.work}/{len(self.targets) + 1}.checkpoint")
        if call.name.startswith("rename"):
            source = self.disk.find(call.paths[0])
            if source is None or not source.synced:
                self.note("new content is not synced before its rename", call)
        elif not call.name.startswith("unlink"):
            self.note("a target is written in place", call)
        for earlier in self.touched:
            if earlier != target and not self.disk.lasts(earlier):
                self.note(f"{Path(earlier).name} is not durable before the next one is touched", call)
        if self.state(True) not in ("applying", "reverting"):
            self.note(f"the durable marker is {self.state(True)}", call)
        # All that puts back: what waits in active/, the record's own originals, what starts it at boot.
        node = self.node
        needed = (
            node.work, node.here / "before", node.here / "reason", node.here / "states", node.home / "recover.sh", node.root / "systemd",
        )  # fmt: skip
        for lost in [lost for path in needed for lost in self.disk.lost(str(path))]:
            if self.state(False) == "applying":
                self.note(f"not durable: {lost.replace(self.disk.root, '')}", call)
        for number, edit in enumerate(node.change.files, 1):
            if edit.before is not None and self.state(False) == "applying":
                for original in (f"{self.work}/{number}.before", f"{node.here}/before/{number}"):
                    found = self.disk.find(original, durable=True)
                    if found is None or found.text != edit.before.decode():
                        self.note(f"no original at {original.replace(self.disk.root, '')}", call)
        self.touched.append(target)

    def after(self, call: Call) -> None:
        if not call.name.startswith("rename") or call.paths[-1] != self.marker:
            return
        self.states.append(self.state(False))
        if self.states[-1] in ("applied", "confirmed", "reverted"):
            for target in self.targets:
                if not self.disk.lasts(target):
                    self.note(f"said before {Path(target).name} is durable", call)
            if self.checkpoint and self.states[-1] == "reverted":
                self.kept(call, self.checkpoint)
            for back in self.disk.back(f"{self.disk.root}/etc"):
                self.note(f"said while {Path(back).name} may come back", call)


def _name(path: str) -> str:
    return Path(path).name


def judged(
    folder: Path, url: str, *verbs: str, mutate: Callable[[str], str] | None = None, wants: bool = True, remembers: bool = False
) -> Judge:
    """`wants`: the node has units that are started at boot, as every one has. `remembers`: its process has a checkpoint."""
    node, disk, calls = played(folder, url, *verbs, mutate=mutate, wants=wants, remembers=remembers)
    judge = Judge(node, disk).hear(calls)
    assert judge.state(False) == node.state, "the judge lost its way"
    return judge


def played(
    folder: Path, url: str, *verbs: str, mutate: Callable[[str], str] | None = None, wants: bool = True, remembers: bool = False
) -> tuple[Scratch, Disk, list[Call]]:
    """The node after the verbs, its disk before them, and the calls between."""
    node = Scratch(folder / "node", url)
    if remembers:
        (node.root / "var").mkdir()
        (node.root / "var/cpu_manager_state").write_bytes(CHECKPOINT)
        node.change = dataclasses.replace(node.change, checkpoints=(str(node.root / "var/cpu_manager_state"),))
    if mutate:
        node.mutate = mutate
        node.spare()
    if not wants:
        (node.root / "systemd/multi-user.target.wants").rmdir()
    try:
        node.lay_down()
        return node, *trace_of(node, *verbs, trace=folder / "trace")
    finally:
        node.end()


APPLIED = ["applying", "applied"]
CONFIRMED = (("apply", "confirm"), [*APPLIED, "confirmed"], ["first", "it", "gone"])
REVERTED = (("apply", "revert"), [*APPLIED, "reverting", "reverted"], ["first", "it", "gone", "gone", "it", "first"])


@pytest.mark.parametrize("remembers", [False, True], ids=["files", "checkpoint"])
@pytest.mark.parametrize(("verbs", "states", "touched"), [CONFIRMED, REVERTED], ids=["confirmed", "reverted"])
def test_nothing_is_said_or_begun_before_what_it_rests_on_is_durable(
    tmp_path: Path, url: str, verbs: tuple[str, ...], states: list[str], touched: list[str], remembers: bool
) -> None:
    judge = judged(tmp_path, url, *verbs, remembers=remembers)
    assert judge.states == states
    assert [Path(target).name for target in judge.touched] == touched
    assert judge.broken == []
    assert judge.state(durable=True) == states[-1]


def test_the_unit_at_boot_is_durable_where_it_is_the_first(tmp_path: Path, url: str) -> None:
    assert [text for text in judged(tmp_path, url, "apply", wants=False).broken if "/systemd/" in text] == []


SYNC = re.compile(r"\bsync (?=\")")
# Syncs that this run cannot miss, by what is on their line, and why.
SPARE = {
    'sync "$work" "$here"': "both are synced again before the marker",
    'sync "$(dirname "$2")"': "where the unit is new, both directories are synced again right after",
    'sync "$home/number.new"': "only the order of pruning rests on it",
    'sync "$home/fence.new"': "only where two runs go on at the same time",
    'sync "$place/$n.before"': "only where the waiting original is gone and was copied",
    'sync "$here/places" "$here"': "only where a target is on another file system",
    'sync "$recover_dropins/$id.conf" "$recover_dropins" "$systemd"': "only where a target is on another file system",
    'then sync "$here"; return; fi': "only where somebody else wrote in mid-change",
    'sync "$here" && { [ -L "$fetched" ] || sync "$fetched"; }': "only where somebody else wrote in mid-change",
}


class Syncs:
    """A change that is applied and reverted once, and what the judge says had one of the script's syncs been `true` instead.

    Each sync gets a file of its own as its first argument, and so its calls are known by their process. To leave those calls out is the
    same as to run the script without that sync: it goes on alike, as every sync of this run succeeds.
    """

    def __init__(self, folder: Path, url: str, remembers: bool = False) -> None:
        self.marks = folder / "marks"
        self.marks.mkdir()
        self.node, self.disk, self.calls = played(folder, url, "apply", "revert", mutate=self._marked, remembers=remembers)
        assert self.node.state == "reverted", self.node.log
        self.usual = self.without()

    def _marked(self, script: str) -> str:
        self.script, numbers = script, itertools.count()

        def mark(_: re.Match[str]) -> str:
            path = self.marks / str(next(numbers))
            path.touch()
            return f'sync "{path}" '

        return SYNC.sub(mark, script)

    @property
    def lines(self) -> list[str]:
        """The script's line of each sync, by its number."""
        return [self.script[self.script.rindex("\n", 0, at) + 1 : self.script.index("\n", at)].strip() for at in self._places]

    @property
    def _places(self) -> list[int]:
        return [sync.start() for sync in SYNC.finditer(self.script)]

    def within(self, text: str) -> set[int]:
        """The numbers of the syncs in this text, which the script has once."""
        assert self.script.count(text) == 1, text
        begin = self.script.index(text)
        return {number for number, at in enumerate(self._places) if begin <= at < begin + len(text)}

    def without(self, *numbers: int) -> set[str]:
        left_out = {str(self.marks / str(number)) for number in numbers}
        found, calls = set[str](), []
        for call in self.calls:
            if call.name.startswith("open") and left_out.intersection(call.paths):
                found.add(call.pid)
            if call.name != "fsync" or call.pid not in found:
                calls.append(call)
        return set(Judge(self.node, copy.deepcopy(self.disk)).hear(calls).broken)


def test_the_syncs_of_a_checkpoint_s_directories_are_noticed(tmp_path: Path, url: str) -> None:
    syncs = Syncs(tmp_path, url, remembers=True)
    for text in ('sync "$place" || ! sync "$(dirname', 'brief sync "$(dirname "$target")" || ! brief sync "$place"'):
        assert any("the checkpoint is not at" in what for what in syncs.without(*syncs.within(text)) - syncs.usual), text


def test_every_sync_that_is_left_out_is_noticed(tmp_path: Path, url: str) -> None:
    """Each sync of the script in turn is left out: the judge has more to say."""
    syncs = Syncs(tmp_path, url)
    assert len(syncs.lines) > 10
    unnoticed = [line for number, line in enumerate(syncs.lines) if not syncs.without(number) - syncs.usual]
    assert [line for line in unnoticed if not any(spare in line for spare in SPARE)] == []
    assert [spare for spare in SPARE if not any(spare in line for line in unnoticed)] == [], "no longer spare"
