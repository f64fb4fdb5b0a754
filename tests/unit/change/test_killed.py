"""change.sh, killed at any moment: a fast model of what the lab shows on real nodes.

Every file is as before or as after, in the end all of them are the same, and the process runs with what they say.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.unit.change.scratch import AFTER, BAD, Scratch, health

MOMENTS = 500
# A verb of the script is over well within this; most moments hit it alive.
LONGEST = 0.2
ENDED = ("confirmed", "reverted", "refused")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with health() as found:
        yield found


def interrupted(node: Scratch, chance: random.Random, *words: str) -> bool:
    """A verb, killed at a moment by chance; True when it was hit alive."""
    process = node.start(*words)
    time.sleep(chance.uniform(0, LONGEST))
    alive = process.poll() is None
    node.kill_group(process)
    return alive


def judge(node: Scratch, where: str) -> None:
    """In the middle of anything: each file is whole, either way."""
    for edit in node.change.files:
        path = Path(edit.path)
        found = path.read_bytes() if path.exists() else None
        assert found in (edit.before, edit.after), f"{where}: {edit.path} holds {found!r}"


def one(seed: int, folder: Path, url: str) -> str:
    chance = random.Random(seed)
    node = Scratch(folder, url, chance.choice((AFTER, AFTER, AFTER, BAD)))
    try:
        return play(node, chance, f"seed {seed}")
    finally:
        node.end()


def play(node: Scratch, chance: random.Random, name: str) -> str:
    node.lay_down()
    verb = chance.choice(("apply", "apply", "apply", "confirm", "revert"))
    if verb != "apply":
        node.verb("apply")
    hit = interrupted(node, chance, verb)
    judge(node, name)
    confirmed = node.state == "confirmed"
    # Whoever comes next may be killed as well.
    for _ in range(chance.choice((0, 0, 1, 2))):
        if chance.random() < 0.5:
            interrupted(node, chance, "died" if (node.here / "state").exists() else "status")
        else:
            restart(node, chance)
        judge(node, name)
    if chance.random() < 0.4:
        restart(node, chance, killed=False)
    else:
        node.verb("died")
    # The timer, again and again until there is none.
    for _ in range(5):
        if not node.armed and not node.work.exists():
            break
        node.verb("deadline")
    node.verb("tidy")  # as the next change does
    said = f"{name}, {verb}: {node.state}\n{node.log}\n{node.output()}"
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
    assert not confirmed or node.state == "confirmed", f"what was confirmed was undone: {said}"
    assert node.argv == (node.change.new_argv if node.state == "confirmed" else node.change.old_argv), said
    assert not list(node.root.rglob("*.daytwo")) and not list(node.home.glob("ended-*")), said
    return f"{verb} {'hit' if hit else 'over'} {node.state}"


def restart(node: Scratch, chance: random.Random, killed: bool = True) -> None:
    """Power off and on: the unit at boot runs, perhaps killed itself and called again, then the kubelet starts."""
    node.boot()
    if killed:
        process = node.popen("sh", str(node.home / "recover.sh"))
        time.sleep(chance.uniform(0, LONGEST))
        node.kill_group(process)
    if (node.home / "recover.sh").exists():
        node.popen("sh", str(node.home / "recover.sh")).wait(timeout=60)
    node.systemctl("start", node.change.unit)


@pytest.mark.parametrize("part", range(5))
def test_killed_at_any_moment(url: str, part: int) -> None:
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(4) as pool:
        seeds = range(part * MOMENTS // 5, (part + 1) * MOMENTS // 5)
        outcomes = list(pool.map(lambda seed: one(seed, Path(folder) / str(seed), url), seeds))
    for outcome in sorted(set(outcomes)):
        print(f"{outcomes.count(outcome):4} {outcome}")
    # The moments must hit something alive, and end both ways, or nothing is shown.
    assert sum(" hit " in outcome for outcome in outcomes) > len(outcomes) / 2
    assert {outcome.rsplit(" ", 1)[1] for outcome in outcomes} >= {"confirmed", "reverted"}
