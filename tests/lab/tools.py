"""Small things every part of the lab needs: running commands, telling how far it is, and failing with one sentence."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

STATE = Path(os.environ.get("DAYTWO_LAB_DIR", "/var/tmp/daytwo-lab"))
CACHE = Path(os.environ.get("DAYTWO_CACHE", Path.home() / ".cache" / "daytwo"))

# Seconds that somebody else's apt is waited for.
APT_SECONDS = 300

# Seconds that this process has waited for the lab, by cause.
SPENT: Counter[str] = Counter()

_spending = threading.Lock()


class LabError(Exception):
    """The lab cannot be made or used; one sentence that says why and what to do."""


def say(text: str) -> None:
    print(f"lab: {text}", file=sys.stderr, flush=True)


@contextmanager
def long_step(text: str) -> Iterator[None]:
    """Say that a step has begun, every 15 s that it still goes on, and how long it took."""
    begun = time.monotonic()
    done = threading.Event()

    def tell() -> None:
        while not done.wait(15):
            say(f"{text}: {time.monotonic() - begun:.0f} s so far")

    say(f"{text} ...")
    threading.Thread(target=tell, daemon=True).start()
    try:
        yield
    finally:
        done.set()
    say(f"{text}: done in {time.monotonic() - begun:.1f} s")


@contextmanager
def spent(cause: str) -> Iterator[None]:
    """Count the seconds of what is done here for `cause`. Of causes within each other, and of threads side by side, only the first
    counts: the sum is never more than the time that went by."""
    if not _spending.acquire(blocking=False):
        yield
        return
    begun = time.monotonic()
    try:
        yield
    finally:
        SPENT[cause] += time.monotonic() - begun
        _spending.release()


@contextmanager
def locked(path: Path, waiting: str) -> Iterator[None]:
    """One process at a time; `waiting` is said by those that have to wait. The file may be removed by whoever holds the lock."""
    path.parent.mkdir(parents=True, exist_ok=True)
    said = False
    while True:
        with path.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                if not said:
                    say(waiting)
                    said = True
                fcntl.flock(file, fcntl.LOCK_EX)
            if path.exists() and path.stat().st_ino == os.fstat(file.fileno()).st_ino:
                yield
                return
        path.parent.mkdir(parents=True, exist_ok=True)


def run(
    *command: str | Path,
    input: str | None = None,
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
    check: bool = True,
    timeout: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command; a failure is a LabError that names the command and its last lines."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words, input=input, env=env, cwd=cwd, text=True, errors="replace", capture_output=True, check=False, timeout=timeout
        )
    except FileNotFoundError as error:
        raise LabError(f"the program {words[0]} is missing on this machine") from error
    except subprocess.TimeoutExpired as error:
        raise LabError(f"`{' '.join(words)}` did not end within {timeout:g} s") from error
    if check and done.returncode != 0:
        raise failed(words, done)
    return done


def failed(words: Sequence[str], done: subprocess.CompletedProcess[str]) -> LabError:
    """The error of a command that ended badly: its words, status and last lines."""
    tail = "\n".join((done.stderr or done.stdout).strip().splitlines()[-8:])
    text = " ".join(words)
    shown = text if len(text) <= 400 else f"{text[:100]} ... {text[-300:]}"
    return LabError(f"`{shown}` failed with {done.returncode}:\n{tail}")


def wait_until(what: str, check: Callable[[], T | None], timeout: float) -> T:
    """Ask again and again until `check` gives something true; LabError when it does not within `timeout` seconds."""
    end = time.monotonic() + timeout
    while True:
        found = check()
        if found:
            return found
        if time.monotonic() > end:
            raise LabError(f"waited {timeout:g} s in vain for {what}")
        time.sleep(0.2)


def need_packages(programs: dict[str, str]) -> None:
    """Install the Debian packages (values) of the programs (keys) that are missing."""
    # Several labs are made at once, and apt takes one at a time.
    with locked(STATE / "locks" / "apt", "another process installs packages; waiting for it"):
        missing = sorted({package for program, package in programs.items() if not shutil.which(program)})
        if not missing:
            return
        if not shutil.which("apt-get"):
            raise LabError(f"install these first (there is no apt-get here): {', '.join(programs)}")
        with long_step(f"installing {', '.join(missing)}"):
            _apt_get("update", "-qq")
            _apt_get("install", "-y", "-qq", "--no-install-recommends", *missing)


def _apt_get(*words: str) -> None:
    """apt-get, once nobody else on this machine uses it (a fresh Debian may be at its own upgrades)."""
    command = ["apt-get", *words]
    end = time.monotonic() + APT_SECONDS
    while True:
        done = run(*command, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}, check=False)
        if done.returncode == 0:
            return
        if "Could not get lock" not in done.stderr or time.monotonic() > end:
            raise failed(command, done)
        time.sleep(1)


def parallel(*works: Callable[[], object]) -> None:
    """Do several things at once; the first failure is raised when all have ended."""
    errors: list[BaseException] = []

    def guarded(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def remove_tree(*paths: Path) -> None:
    """Remove folders, never across a mount: what is mounted in them is not ours to delete."""
    present = [path for path in paths if path.exists()]
    if present:
        run("rm", "-rf", "--one-file-system", *present)


def replace_text(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file that others read meanwhile: they see the old text or the new one."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(text)
    new.chmod(mode)
    new.rename(path)
