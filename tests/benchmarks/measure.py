"""One command, measured: time, processor time and memory of its whole tree of processes."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_SAMPLE_SECONDS = 0.5
_TICK = os.sysconf("SC_CLK_TCK")


class LostError(Exception):
    """A command was measured, and what it took is not known."""


@dataclass(frozen=True)
class Usage:
    """What a command took: seconds, seconds of the processor, and the peak of its memory (PSS) in MiB."""

    status: int
    wall: float
    user: float
    system: float
    memory: float


def measured(words: Sequence[str], cwd: Path, environment: Mapping[str, str], output: Path, limit: float) -> Usage:
    """Run a command, its output in a file. What it leaves behind (such as SSH masters) is ended afterwards, and its processor time counts
    too. A command that takes longer than `limit` seconds is killed. Raises LostError if somebody else kills what measures it."""
    with output.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, __file__, str(limit), *words], cwd=cwd, env=dict(environment), stdin=subprocess.DEVNULL, stdout=out,
            stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        try:
            told = process.communicate()[1]
        except BaseException:
            process.terminate()
            process.wait()
            raise
    try:
        return Usage(**json.loads(told.splitlines()[-1]))
    except (IndexError, ValueError, TypeError) as error:
        raise LostError(f"the measurement was ended from outside, with status {process.returncode}: {told.strip()[-200:]}") from error


def processor_seconds(ancestor: int) -> float:
    """What the processes below one have used so far, those included that have ended and were waited for."""
    parents, used = _processes()
    return sum(used[pid] for pid in used if _descends(pid, ancestor, parents)) / _TICK


def _processes() -> tuple[dict[int, int], dict[int, int]]:
    parents, used = {}, {}
    for folder in os.listdir("/proc"):
        if folder.isdigit():
            with contextlib.suppress(OSError):
                fields = Path("/proc", folder, "stat").read_text().rpartition(")")[2].split()
                parents[int(folder)] = int(fields[1])
                used[int(folder)] = sum(map(int, fields[11:15]))
    return parents, used


def _descends(pid: int, ancestor: int, parents: Mapping[int, int]) -> bool:
    while pid in parents:
        if pid == ancestor:
            return True
        pid = parents[pid]
    return False


def _memory(ancestor: int) -> float:
    parents, _ = _processes()
    total = 0
    for pid in parents:
        if pid != ancestor and _descends(pid, ancestor, parents):
            with contextlib.suppress(OSError, ValueError):
                text = Path(f"/proc/{pid}/smaps_rollup").read_text()
                total += int(text.partition("Pss:")[2].split()[0])
    return total / 1024


def _end_all(own: int) -> None:
    """End all that this process has started, and wait for it."""
    parents, _ = _processes()
    for pid in [pid for pid in parents if pid != own and _descends(pid, own, parents)]:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGTERM)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def _main(limit: float, words: list[str]) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    own, peak, over = os.getpid(), [0.0], threading.Event()

    def sample() -> None:
        while not over.wait(_SAMPLE_SECONDS):
            with contextlib.suppress(IndexError):
                peak[0] = max(peak[0], _memory(own))

    threading.Thread(target=sample, daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    begun = time.monotonic()
    process = subprocess.Popen(words, stderr=subprocess.STDOUT)
    try:
        status = process.wait(limit)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        status = 124
    except SystemExit:
        _end_all(own)
        raise
    wall = time.monotonic() - begun
    over.set()
    _end_all(own)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(json.dumps(asdict(Usage(status, wall, used.ru_utime, used.ru_stime, max(peak[0], used.ru_maxrss / 1024)))), file=sys.stderr)


if __name__ == "__main__":
    _main(float(sys.argv[1]), sys.argv[2:])
