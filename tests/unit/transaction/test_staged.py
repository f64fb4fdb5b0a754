"""A change that waits on its node: it begins by one word, and without that nothing of it stays. The real script, in a folder."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from roles.engine.transaction import change_script
from roles.engine.transaction.change_script import resume_script, stage_script
from tests.unit.transaction.samples import KUBELET
from tests.unit.transaction.scratch import HOLDER, Scratch

# In place of change.sh: says what it was called with, and obeys one line.
PROBE = 'echo "began $*"\nIFS= read -r word\necho "heard $word"\n'


class Session:
    """A login on the node that runs the script from its standard input, as sshd would start it."""

    def __init__(self, home: Path, shell: str) -> None:
        self.process = subprocess.Popen([shell, "-s"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.say(stage_script(KUBELET, HOLDER, {"event": "plan"}, str(home), str(home / "systemd")))

    def say(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def hang_up(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def rest(self) -> list[str]:
        """Until it ends, which it must do by itself: its input stays open."""
        assert self.process.stdout is not None
        watchdog = threading.Timer(60, self.process.kill)
        watchdog.start()
        told = self.process.stdout.read().splitlines()
        watchdog.cancel()
        assert self.process.wait() == 0
        return told


@pytest.fixture(params=["dash", "bash"])
def shell(request: pytest.FixtureRequest) -> str:
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    return str(request.param)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(change_script, "render", lambda *_: PROBE)
    yield tmp_path / "home"


def left(home: Path) -> list[str]:
    return sorted(path.name for path in (home / "changes").iterdir())


def test_it_waits_out_of_sight_and_begins_by_one_word(home: Path, shell: str) -> None:
    session = Session(home, shell)
    assert session.line() == "staged"
    (name,) = left(home)
    assert name.startswith(f".{KUBELET.id}.") and not list(home.glob("changes/[!.]*")), "what lists the changes would see it"
    session.say("go\n")
    assert session.line() == "began session"
    assert left(home) == [KUBELET.id]
    session.say("confirm 1\n")
    assert session.rest() == ["heard confirm 1"]
    assert (home / "changes" / KUBELET.id / "state").read_text() == "state=staged\n"


@pytest.mark.parametrize("word", ["", "no\n", "g", "confirm\n"])
def test_without_that_word_nothing_is_left(home: Path, shell: str, word: str) -> None:
    session = Session(home, shell)
    assert session.line() == "staged"
    session.say(word)
    if not word.endswith("\n"):
        session.hang_up()
    assert session.rest() == [] and left(home) == []


def test_a_connection_that_ends_amid_the_script_leaves_nothing_begun(home: Path, shell: str) -> None:
    process = subprocess.Popen([shell, "-s"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    whole = stage_script(KUBELET, HOLDER, {}, str(home), str(home / "systemd"))
    assert "staged" not in process.communicate(whole[: len(whole) * 2 // 3], timeout=60)[0]
    assert not home.exists()


def test_a_connection_that_ends_while_it_is_written_leaves_nothing(home: Path, shell: str) -> None:
    """Nobody hears the word `staged` then, and sh would end by SIGPIPE."""
    process = subprocess.Popen([shell, "-s"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None and process.stdin is not None
    process.stdout.close()
    process.stdin.write(stage_script(KUBELET, HOLDER, {}, str(home), str(home / "systemd")))
    process.stdin.close()
    assert process.wait(timeout=60) == 0 and left(home) == []


def test_what_cannot_be_written_is_refused_and_leaves_nothing(home: Path, shell: str) -> None:
    home.mkdir()
    (home / "changes").write_text("in the way")
    told = Session(home, shell).rest()
    assert told[0] == "state=refused" and told[1].startswith("reason=could not write the change: ") and "nothing was changed" in told[1]
    assert (home / "changes").read_text() == "in the way"


def test_a_change_of_this_name_is_not_overwritten(home: Path, shell: str) -> None:
    session = Session(home, shell)
    assert session.line() == "staged"
    other = home / "changes" / KUBELET.id / "state"
    other.parent.mkdir()
    other.write_text("state=confirmed\n")
    session.say("go\n")
    assert session.rest()[0] == "state=refused"
    assert left(home) == [KUBELET.id] and other.read_text() == "state=confirmed\n"


def resumed(home: Path) -> list[str]:
    done = subprocess.run(["sh", "-c", resume_script(KUBELET.id, str(home))], input="", capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_after_a_lost_connection_what_had_not_begun_cannot_begin(home: Path, shell: str) -> None:
    sessions = [Session(home, shell), Session(home, shell)]
    assert [session.line() for session in sessions] == ["staged", "staged"]
    assert resumed(home) == ["state=staged"] and left(home) == []
    for late in sessions:
        late.say("go\n")
        assert late.rest()[0] == "state=refused"
    assert left(home) == []


def test_after_a_lost_connection_what_had_begun_is_watched(home: Path, shell: str) -> None:
    session = Session(home, shell)
    assert session.line() == "staged"
    session.say("go\n")
    assert session.line() == "began session"
    assert resumed(home) == ["began watch", "heard "]
    session.hang_up()
    assert session.rest() == ["heard "]


def test_a_node_clears_what_a_killed_session_left(node: Scratch) -> None:
    """By its next change, or when it boots."""
    orphan = node.home / "changes/.r0-w1-kubelet.17"
    for clear in (lambda: node.verb("apply"), lambda: node.popen("sh", str(node.here / "recover.sh"), "once").wait()):
        orphan.mkdir()
        (orphan / "state").write_text("state=staged\n")
        clear()
        assert not orphan.exists() and node.here.exists()
