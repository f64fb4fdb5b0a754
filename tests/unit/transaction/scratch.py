"""A node in a folder: change.sh runs for real, on real files and a real process, with a stand-in for systemd.

The process is a `sleep` whose argument is read from the first file of the change; `systemctl restart` starts it anew. A
restart is a new boot id. What systemd would call by itself (ExecStopPost, the timer, the unit at boot) the test calls.
As with systemd, what was asked for is done to its end, even where the one who asked is killed meanwhile.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import dataclasses
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TypeVar

import pytest

from roles.engine.transaction import Change, FileEdit, change_script
from roles.engine.transaction.change_script import Holder

BEFORE, AFTER, BAD = b"1000001\n", b"1000002\n", b"does-not-start\n"
UNIT = "stand-in.service"
HOLDER = Holder("r1", "somebody@somewhere", "pyinfra inventory deploy")

STAND_IN = Path(__file__).parent / "stand_in"

# The first line of change.sh after its functions.
MAIN = '[ "$(id -u)" = 0 ] ||'
# What does not touch the disk, without a process of its own. What is called in another way than change.sh does runs as ever.
SPARING = r"""
http_status() { echo 200; }
timeout() { while [ "$1" != KILL ]; do shift; done; shift 2; "$@"; }
mkdir() { [ "$#$1" = 2-p ] && [ -d "$2" ] || command mkdir "$@"; }
dirname() { case $#$1 in 1/*/*[!/]) echo "${1%/*}" ;; *) command dirname "$@" ;; esac; }
cut() { if [ "$*" = '-d   -f 1' ]; then while read -r field _; do echo "$field"; done; else command cut "$@"; fi; }
cat() {
    [ $# = 1 ] && [ -r "$1" ] || { command cat "$@"; return; }
    while IFS= read -r line; do printf '%s\n' "$line"; done <"$1"
}
"""


class Scratch:
    """One node in the folder `root`. `tuned` are other values of the script's variables, by name."""

    def __init__(self, root: Path, health_url: str, after: bytes = AFTER, **tuned: int) -> None:
        self.root = root
        self.tuned = {"stable_seconds": 0, "revert_timeout": 300, **tuned}
        self.mutate: Callable[[str], str] = lambda text: text
        for name in ("etc", "home", "systemd/multi-user.target.wants", "run", "timers", "hooks"):
            (root / name).mkdir(parents=True, exist_ok=True)
        # Not written anew: a program that another thread has open for writing cannot be started.
        (root / "bin").symlink_to(STAND_IN)
        (root / "run/active").write_text("inactive\n")
        (root / "output").touch()
        self.new_boot()
        (root / "etc/first").write_bytes(BEFORE)
        (root / "etc/gone").write_bytes(b"to be removed\n")
        self.change = Change(
            id="r1-w1-kubelet",
            node="w1",
            component="kubelet",
            kind="kubelet",
            unit=UNIT,
            summary="A=true",
            files=(
                FileEdit(str(root / "etc/first"), BEFORE, after),
                FileEdit(str(root / "etc/made/for/it"), None, b"new\n"),
                FileEdit(str(root / "etc/gone"), b"to be removed\n", None),
            ),
            health_url=health_url,
            old_argv=("sleep", BEFORE.decode().strip()),
            new_argv=("sleep", after.decode().strip()),
            daemon_reload=True,
        )
        self.holder = HOLDER
        self.before = self.files()
        self.systemctl("start", UNIT)

    def next(self, run: str, after: bytes, before: bytes = BEFORE, **holder: str) -> Scratch:
        """Another change of the first file, on the same node."""
        other = copy.copy(self)
        other.change = dataclasses.replace(
            self.change,
            id=f"{run}-w1-kubelet",
            files=(FileEdit(str(self.root / "etc/first"), before, after),),
            old_argv=("sleep", before.decode().strip()),
            new_argv=("sleep", after.decode().strip()),
        )
        other.holder = dataclasses.replace(HOLDER, run=run, **holder)
        other.before = self.files()
        return other

    def hook(self, name: str, text: str) -> None:
        """Shell that runs at the head of the stand-in systemd-run, or of a verb of the stand-in systemctl; $S is the node's folder."""
        (self.root / "hooks" / name).write_text(text)

    def spare(self, more: str = "") -> Scratch:
        """With fewer processes, for tests that start the script very often; `more` is shell that stands before its first command."""
        mutate = self.mutate

        def spared(text: str) -> str:
            assert text.count(MAIN) == 1
            return mutate(text).replace(MAIN, SPARING + more + MAIN)

        self.mutate = spared
        return self

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def here(self) -> Path:
        return self.home / "changes" / self.change.id

    @property
    def work(self) -> Path:
        return self.home / "active" / self.change.id

    def lay_down(self) -> None:
        """The change's directory, as the stage script would."""
        for folder in (self.home, self.home / "active", self.here.parent, self.here, self.here / "after"):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o700)
        for name, data in change_script.contents(self.change, self.holder, {}, str(self.home), str(self.root / "systemd")).items():
            path = self.here / name
            path.write_bytes(self._stand_in(data) if name == "change.sh" else data)
            path.chmod(0o600)

    def _stand_in(self, script: bytes) -> bytes:
        text = script.decode()
        for old, new in (
            ("PATH=/usr/local/sbin", f"PATH={self.root}/bin:/usr/local/sbin"),
            ("/proc/sys/kernel/random/boot_id", f"{self.root}/boot"),
        ):
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        for name, value in self.tuned.items():
            text, count = re.subn(rf"^{name}=\d+", f"{name}={value}", text, flags=re.MULTILINE)
            assert count == 1, name
        return self.mutate(text).encode()

    def new_boot(self) -> None:
        (self.root / "boot").write_text(os.urandom(8).hex() + "\n")

    def systemctl(self, *words: str) -> None:
        subprocess.run([self.root / "bin/systemctl", *words], check=False)

    def start(self, *words: str, shell: tuple[str, ...] = ("sh",), wrapper: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
        """A verb of change.sh in a process group of its own."""
        script = self.work / "change.sh"
        if not script.exists():
            script = self.here / "change.sh"
        return self.popen(*wrapper, *shell, str(script), *words)

    def popen(self, *words: str) -> subprocess.Popen[bytes]:
        with (self.root / "output").open("ab") as output:
            return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)

    def verb(self, *words: str, shell: tuple[str, ...] = ("sh",), wrapper: tuple[str, ...] = ()) -> int:
        return self.start(*words, shell=shell, wrapper=wrapper).wait(timeout=600)

    def kill_group(self, process: subprocess.Popen[bytes]) -> None:
        """SIGKILL to all of it at once, as systemd does with what is left of a unit."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def boot(self) -> None:
        """The power goes: no process, no timer, another boot id. Nothing has run yet."""
        self.systemctl("stop", UNIT)
        for timer in (self.root / "timers").iterdir():
            timer.unlink()
        self.new_boot()

    @property
    def armed(self) -> bool:
        return any((self.root / "timers").iterdir())

    @property
    def state(self) -> str:
        with contextlib.suppress(FileNotFoundError):
            for line in (self.here / "state").read_text().splitlines():
                if line.startswith("state="):
                    return line.removeprefix("state=")
        return "unknown"

    def files(self) -> dict[str, tuple[int, bytes] | None]:
        """Everything below etc: mode and content."""
        found: dict[str, tuple[int, bytes] | None] = {}
        for path in sorted((self.root / "etc").rglob("*")):
            found[str(path.relative_to(self.root))] = (path.stat().st_mode, path.read_bytes()) if path.is_file() else None
        return found

    @property
    def argv(self) -> tuple[str, ...]:
        """Arguments of the stand-in's process; empty when there is none."""
        pid = (self.root / "run/pid").read_text().strip() if (self.root / "run/pid").exists() else ""
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1] if pid else []
            return tuple(word.decode() for word in words)
        return ()

    @property
    def log(self) -> str:
        path = self.here / "log"
        return path.read_text() if path.exists() else ""

    def output(self) -> str:
        return (self.root / "output").read_text()

    def end(self) -> None:
        self.systemctl("stop", UNIT)


@contextlib.contextmanager
def health() -> Iterator[str]:
    """The URL of something that always answers 200."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/healthz"
    server.shutdown()
    thread.join()


_CLONE_NEWNS = 0x00020000
T = TypeVar("T")


def in_private_mounts(body: Callable[[], T]) -> T:
    """Run `body` in a thread with a mount namespace of its own: what it mounts, only it and what it starts can see.

    Raises PermissionError where that is not allowed.
    """

    def apart() -> T:
        if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS) != 0:
            raise PermissionError(os.strerror(ctypes.get_errno()))
        mount("--make-rprivate", "/")
        return body()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(apart).result()


def mount(*words: object) -> None:
    subprocess.run(["mount", *map(str, words)], check=True, capture_output=True)


def reason(node: Scratch) -> str:
    path = node.here / "reason"
    return path.read_text().strip() if path.exists() else ""


def status(node: Scratch) -> dict[str, str]:
    """What `status` prints."""
    before = len(node.output())
    assert node.verb("status") == 0
    return dict(line.partition("=")[::2] for line in node.output()[before:].splitlines())


def ends(node: Scratch, code: int, state: str, *verb: str) -> None:
    """The script exits with this code, and its change with this end."""
    assert node.verb(*verb) == code, node.log
    is_over(node, state)


def is_over(node: Scratch, state: str) -> None:
    """The change has this end, nothing of it is in flight, and nothing waits beside a target."""
    said = f"{node.state}: {reason(node)}\n{node.log}\n{node.output()}"
    assert node.state == state, said
    assert not node.armed and not node.work.exists(), said
    assert not list(node.root.rglob("*.daytwo")) and not list(node.home.glob("ended-*")) and not list(node.root.rglob("*/.daytwo")), said
    assert not list(node.home.rglob(".copy")), said


def untouched(node: Scratch) -> None:
    assert node.files() == node.before
    assert node.argv == node.change.old_argv


def after(node: Scratch) -> None:
    for edit in node.change.files:
        path = Path(edit.path)
        assert (path.read_bytes() if path.exists() else None) == edit.after, edit.path
    assert node.argv == node.change.new_argv


def walled(url: str, folder: Path, body: Callable[[Scratch], None], *small: str, data_only: bool = False) -> None:
    """A node whose folders `small` are small filesystems of their own ("" is the whole node, but for what the stand-ins keep);
    only the test sees them."""

    def inside() -> None:
        root = folder / "node"
        root.mkdir()
        sizes = {"": "16m", "run": "1m", "timers": "1m"} | dict.fromkeys(small, "1m" if data_only else "1m,nr_inodes=150")
        for name, size in sizes.items():
            (root / name).mkdir(exist_ok=True)
            mount("-t", "tmpfs", "-o", f"size={size}", "small", root / name)
        node = Scratch(root, url)
        try:
            node.lay_down()
            body(node)
        finally:
            node.end()

    try:
        in_private_mounts(inside)
    except PermissionError as error:
        pytest.skip(f"no mount namespace may be made here: {error}")


def full(name: str) -> str:
    """Shell that leaves no byte and no inode; `true` and not `:`, so that the shell outlives the failure."""
    return (
        f'dd if=/dev/zero of="$S/{name}/fill" bs=4k 2>/dev/null; n=0\n'
        f'while [ $n -lt 200 ] && true 2>/dev/null >"$S/{name}/fill.$n"; do n=$((n + 1)); done\n'
    )


def fill(node: Scratch, name: str) -> None:
    subprocess.run(["sh", "-c", full(name)], env={"S": str(node.root), "PATH": "/usr/bin:/bin"}, check=False)
    with pytest.raises(OSError, match="No space left"):
        (node.root / name / "one-more").write_bytes(b"x" * 5000)


def without_fill(node: Scratch) -> None:
    for name in ("", "etc", "home"):
        for path in [*(node.root / name).glob("fill*"), node.root / name / "one-more"]:
            path.unlink(missing_ok=True)


def works(*words: str) -> bool:
    try:
        return subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


# /proc/uptime as it will be so many seconds from now.
LATER = ("unshare", "--time", "--boottime", "86400", "--fork")
needs_time_namespace = pytest.mark.skipif(not works(*LATER), reason="no time namespace may be made here")
