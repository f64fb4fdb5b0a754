"""change.sh, killed at any moment: a fast model of what the lab shows on real nodes.

Every file is as before or as after, in the end all of them are the same, and the process runs with what they say.

The script stops itself at the step that it is to be killed in, so that no moment is missed on a busy machine. Four nodes of five spare
what a kill cannot show: a sync, the question about health, and processes that only read.

Which states are covered, in each run: a kill in every step of apply, confirm, revert and of the unit at boot, as they are played without a
fault (what chance has missed is aimed at); of what follows, up to four more kills of the revert or of the boot. Every other node has a
checkpoint, whose changes have all the steps of the others and their own. Within a step the moment is left to chance: a step is a few
commands, each of which is one rename or one write that is synced, so that most moments of a step leave the same files, and hundreds of
moments find what some tens find. The slow cases play as many as before a release, with checkpoints and without.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import random
import re
import signal
import subprocess
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.unit.transaction.scratch import AFTER, BAD, BEFORE, MAIN, Scratch

# How often something alive is hit by chance, before what was missed is aimed at.
MOMENTS = 40
MANY = {False: 500, True: 300}
# Seconds until a revert tries another way. The stand-in starts no unit again by itself, as systemd does: a revert whose process ended at
# once, since it was started between two kills, waits all of it.
REVERT_TIMEOUT = 60
# The first line is the policy, to the stand-in.
CHECKPOINT = BEFORE + b"as it was\n"
WORKERS = 4
ENDED = ("confirmed", "reverted", "refused")
# A change that is killed in this step of this verb ends as refused, unless its node restarts first.
REFUSED = ("apply", "arm")
STEP = re.compile(r"^\d+ step: (.*)$", re.MULTILINE)
# Before a verb has said its first step.
START = "start"
# The whole group stops: with a subshell the shell that waits for it.
STOPS = """
stop_at() { if [ -f "$aim" ] && read -r wanted <"$aim"; then case $wanted in *"|$*|"*) kill -STOP 0 ;; esac; fi; }
step() { say "step: $*"; stop_at "$@"; }
stop_at start
"""


class Seed:
    """One run: its own chance and node, and the kills that hit something alive, as (verb, step).

    `course` is how long each step of a verb takes, in seconds, `hits` what other seeds have hit. With `aim` the first kill is meant for that
    step of that verb.
    """

    def __init__(
        self,
        number: int,
        folder: Path,
        url: str,
        course: dict[str, dict[str, float]],
        hits: Counter[tuple[str, str]],
        aim: tuple[str, str] | None = None,
        remembers: bool = False,
    ) -> None:
        self.number, self.course, self.hits, self.aim = number, course, hits, aim
        self.chance = random.Random(number)
        self.verb = aim[0] if aim else self.chance.choice(("apply", "apply", "apply", "confirm", "revert"))
        self.bad = not aim and self.verb == "apply" and self.chance.random() < 0.3
        self.node = stopping(folder / str(number), url, self.bad, sparing=number % 5 != 0, remembers=remembers)
        self.kills: list[tuple[str, str]] = []


def stopping(folder: Path, url: str, bad: bool = False, sparing: bool = True, remembers: bool = False) -> Scratch:
    """A node whose change.sh stops at each step that the file `aim` names; its process `remembers` its policy in a checkpoint, or not."""
    node = Scratch(folder, url, BAD if bad else AFTER, revert_timeout=REVERT_TIMEOUT)
    if remembers:
        (node.root / "var").mkdir()
        checkpoint(node).write_bytes(CHECKPOINT)
        node.change = dataclasses.replace(node.change, checkpoints=(str(checkpoint(node)),))
    stops = f"aim={folder}/aim\n{STOPS}"
    if sparing:
        # What was written outlasts its writer, synced or not.
        return node.spare(f"sync() {{ :; }}\n{stops}")
    node.mutate = lambda text: text.replace(MAIN, stops + MAIN)
    return node


def checkpoint(node: Scratch) -> Path:
    return node.root / "var/cpu_manager_state"


def spans(node: Scratch, process: subprocess.Popen[bytes]) -> dict[str, float]:
    """How long each step takes, in seconds, by when it was first seen in the log."""
    times, seen, ended = {START: time.monotonic()}, len(node.log), False
    while not ended:
        ended = process.poll() is not None
        for step in STEP.findall(node.log[seen:]):
            times.setdefault(step, time.monotonic())
        time.sleep(0.001)
    moments = [*times.values(), time.monotonic()]
    return {step: after - before for step, before, after in zip(times, moments, moments[1:], strict=False)}


def calibrated(folder: Path, url: str, remembers: bool = False) -> dict[str, dict[str, float]]:
    """How long each step takes, for each verb as it is played below."""

    def course(name: str) -> dict[str, float]:
        verb, _, after = name.partition(" ")
        node = stopping(folder / name.replace(" ", "-"), url, bool(after), remembers=remembers)
        try:
            node.lay_down()
            if verb != "apply":
                node.verb("apply")
            if verb == "recover":
                node.boot()
                return spans(node, node.popen("sh", str(node.home / "recover.sh")))
            return spans(node, node.start(verb))
        finally:
            node.end()

    names = ("apply", "apply bad", "confirm", "revert", "recover")
    with ThreadPoolExecutor(WORKERS) as pool:
        return dict(zip(names, pool.map(course, names), strict=True))


def interrupted(seed: Seed, verb: str, course: dict[str, float], *words: str) -> None:
    """Kill the verb in the middle of a step. Half of the moments are spread evenly over the whole time, as calibrated, half over
    the steps that nobody has hit yet, since some are short. A verb that has nothing to do in that step is killed in the next one."""
    chance, node = seed.chance, seed.node
    missed = [one for one in course if not seed.hits[verb, one]] or [*course]
    step = chance.choices([*course], [*course.values()])[0] if chance.random() < 0.5 else chance.choice(missed)
    wait = chance.random() * course[step]
    steps = itertools.dropwhile(lambda one: one != step, course)
    aimed = bool(seed.aim) and not seed.kills
    if seed.aim and aimed:
        step, steps = seed.aim[1], iter(seed.aim[1:])
    aim = node.root / "aim"
    if aimed or step != START:
        aim.write_text(f"|{'|'.join(steps)}|\n")
    seen = len(node.log)
    process = node.popen(*words) if words else node.start(verb)
    if aim.exists():
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        aim.unlink()
    if not aimed:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGCONT)
        time.sleep(wait)
    alive = process.poll() is None
    node.kill_group(process)
    if alive:
        seed.kills.append((verb, [START, *STEP.findall(node.log[seen:])][-1]))


def judge(node: Scratch, where: str) -> None:
    """In the middle of anything: each file is whole, either way."""
    for edit in node.change.files:
        path = Path(edit.path)
        found = path.read_bytes() if path.exists() else None
        assert found in (edit.before, edit.after), f"{where}: {edit.path} holds {found!r}"
    if node.change.checkpoints:
        found = checkpoint(node).read_bytes() if checkpoint(node).exists() else None
        waits = (node.work / "4.checkpoint").exists()
        assert found == CHECKPOINT or ((waits or node.state == "confirmed") and found in (None, AFTER)), f"{where}: {found!r}, {waits}"


def play(seed: Seed) -> str:
    """The whole story of one node; how it ended."""
    node, chance, name = seed.node, seed.chance, f"seed {seed.number}"
    node.lay_down()
    if seed.verb != "apply":
        node.verb("apply")
    if seed.verb == "recover":
        restart(seed)
    else:
        interrupted(seed, seed.verb, seed.course["apply bad" if seed.bad else seed.verb])
    judge(node, name)
    confirmed = node.state == "confirmed"
    # Whoever comes next may be killed as well.
    for _ in range(chance.choice((2, 3, 4))):
        if not node.work.exists():
            break
        if chance.random() < 0.5:
            interrupted(seed, "died", seed.course["revert"])
        else:
            restart(seed)
        judge(node, name)
    if chance.random() < 0.4:
        restart(seed, killed=False)
    else:
        node.verb("died")
    # The timer, again and again until there is none.
    for _ in range(5):
        if not node.armed and not node.work.exists():
            break
        node.verb("deadline")
    node.verb("tidy")  # as the next change does
    said = f"{name}, {seed.verb}, killed in {seed.kills}: {node.state}\n{node.log}\n{node.output()}"
    assert not node.armed and not node.work.exists(), f"still in flight: {said}"
    judge(node, said)
    after = [Path(edit.path).read_bytes() if Path(edit.path).exists() else None for edit in node.change.files]
    if node.state == "staged":  # it never came as far as touching anything
        assert node.files() == node.before, said
    else:
        assert node.state in ENDED, said
        assert after == [edit.after if node.state == "confirmed" else edit.before for edit in node.change.files], said
        if node.state != "confirmed":
            assert node.files() == node.before, said
    if node.change.checkpoints:
        assert checkpoint(node).read_bytes() == (AFTER if node.state == "confirmed" else CHECKPOINT), said
    assert not confirmed or node.state == "confirmed", f"what was confirmed was undone: {said}"
    assert node.argv == (node.change.new_argv if node.state == "confirmed" else node.change.old_argv), said
    # One that was ended while the unit at boot was installed leaves its half to the next change.
    assert node.state == "staged" or not list(node.root.rglob("*.daytwo")), said
    assert not list(node.home.glob("ended-*")), said
    return f"{seed.verb} {node.state}"


def restart(seed: Seed, killed: bool = True) -> None:
    """Power off and on: the unit at boot runs, perhaps killed itself and called again, then the kubelet starts."""
    node = seed.node
    node.boot()
    recover = ("sh", str(node.home / "recover.sh"))
    if killed:
        interrupted(seed, "recover", seed.course["recover"], *recover)
    if (node.home / "recover.sh").exists():
        node.popen(*recover).wait(timeout=600)
    node.systemctl("start", node.change.unit)


@pytest.mark.parametrize(
    ("remembers", "moments"),
    [
        pytest.param(None, MOMENTS, id="both"),
        pytest.param(False, MANY[False], id="files-many", marks=pytest.mark.slow),
        pytest.param(True, MANY[True], id="checkpoint-many", marks=pytest.mark.slow),
    ],
)
def test_killed_at_any_moment(tmp_path: Path, url: str, remembers: bool | None, moments: int) -> None:
    """`remembers`: whether the nodes have a checkpoint; None: every other one."""
    course = calibrated(tmp_path, url, remembers is not False)
    numbers = itertools.count()
    hits: Counter[tuple[str, str]] = Counter()
    ends: Counter[str] = Counter()

    def run(aim: tuple[str, str] | None = None) -> None:
        number = next(numbers)
        seed = Seed(number, tmp_path, url, course, hits, aim, number % 2 == 0 or aim is not None if remembers is None else remembers)
        try:
            ends[play(seed)] += 1
        finally:
            seed.node.end()
        hits.update(seed.kills)

    def unseen() -> set[str]:
        return {*ENDED} - {end.split(" ")[1] for end in ends}

    def many(_: int) -> None:
        while hits.total() < moments:
            run()

    def missed(aim: tuple[str, str]) -> None:
        if not hits[aim]:
            run(aim)

    steps = [(verb, step) for verb in ("apply", "confirm", "revert", "recover") for step in course[verb]]
    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(many, range(WORKERS)))
        list(pool.map(missed, steps))
    # Of an end that is rare there may be none yet.
    while unseen() and hits.total() < 4 * moments:
        run(REFUSED if "refused" in unseen() else None)
    for end, count in sorted(ends.items()):
        print(f"{count:4} {end}")
    print(f"killed at {hits.total()} moments, in the step:")
    for (verb, step), count in sorted(hits.items()):
        print(f"{count:4} {verb}: {step}")
    assert [aim for aim in steps if not hits[aim]] == []
    assert not unseen()
