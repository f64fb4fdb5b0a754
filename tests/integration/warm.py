"""Runs pyinfra as an operator does, from a process that has loaded it already: `warm.py serve SOCKET [brief]`; SOCKET is a file's number.

To load pyinfra and daytwo takes more of the processor than the rest of most runs, and tests start hundreds. A run is a process of its own
here too, with its own arguments, environment, folder and files. It begins where the command `pyinfra` begins, and loads config.py, the
inventory and the deploy itself. What it finds done is the import of pyinfra and of roles/, and what Python reads of its environment.

`brief` is for runs that prepare what a test is about, or put back what it has shown: a new process needs to stay healthy for 6 s only,
instead of 12. What a test is about is run as it is shipped.

The other side is `Process`, and for a shell `warm.py run SOCKET WORDS...`, which `command` writes down as a command's script. A request is one
message with four files: input, output, errors, and the socket that hears the process' number, and later its status.
"""

from __future__ import annotations

import gc
import importlib
import importlib.metadata
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

# As they are before gevent puts its own in their place: nothing may wait in gevent's loop when a process is made, and its `close` closes later.
from os import close, fork, pidfd_open, waitpid
from pathlib import Path
from select import select
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# Bytes of a request, at most.
LONGEST = 1 << 17
# More than a proof keeps its connection for (roles/engine/proof/cluster.py: RECENT_SECONDS).
BRIEF_SECONDS = 6


class Process:
    """A run of pyinfra with these words after the command, as subprocess.Popen would have it. `server` is a socket that takes requests, if
    not this process' own; `hold` is a point of tests/integration/held.py."""

    def __init__(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        files: tuple[int, int, int],
        *,
        folder: Path = ROOT,
        hold: str = "",
        brief: bool = False,
        server: socket.socket | None = None,
    ) -> None:
        self.returncode: int | None = None
        self._answers, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request = json.dumps({"words": ["pyinfra", *words], "environment": {**environment}, "folder": str(folder), "hold": hold})
        with theirs:
            socket.send_fds(server or _server(brief), [request.encode()], [*files, theirs.fileno()])
        self.pid = self._hear()

    def _hear(self) -> int:
        told = self._answers.recv(64)
        assert told, "the process that starts pyinfra has ended"
        return int(told)

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._answers.settimeout(timeout)
            try:
                self.returncode = os.waitstatus_to_exitcode(self._hear())
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired("pyinfra", timeout or 0) from None
            self._answers.close()
        return self.returncode

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


_servers: dict[bool, tuple[socket.socket, subprocess.Popen[bytes]]] = {}
_starting = threading.Lock()


def _server(brief: bool) -> socket.socket:
    """The socket that takes requests. The server ends with the process that started it."""
    with _starting:
        if brief not in _servers:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                words = [sys.executable, "-m", "tests.integration.warm", "serve", str(theirs.fileno()), *(["brief"] if brief else [])]
                nothing = subprocess.DEVNULL
                _servers[brief] = ours, subprocess.Popen(words, cwd=ROOT, pass_fds=[theirs.fileno()], stdin=nothing, stdout=nothing)
        return _servers[brief][0]


def command() -> tuple[int, str]:
    """The number of a file that a shell is to inherit, and the text of a script that is then the command pyinfra for it."""
    number = _server(False).fileno()
    # Only the standard library is needed, and nothing beside this file, whose neighbours have names of its modules.
    return number, f'#!/bin/sh\nexec {sys.executable} -S -P {Path(__file__).resolve()} run {number} "$@"\n'


# ---- the server


def load(brief: bool) -> None:
    """What a run loads: pyinfra first, which has gevent replace parts of Python, then its connectors and all of daytwo."""
    importlib.import_module("pyinfra_cli.main")
    for connector in importlib.metadata.entry_points(group="pyinfra.connectors"):
        connector.load()
    if brief:  # before others take it over
        transaction: Any = importlib.import_module("roles.engine.transaction")
        transaction.STABLE_SECONDS = transaction.model.STABLE_SECONDS = BRIEF_SECONDS
    for module in pkgutil.walk_packages(importlib.import_module("roles").__path__, "roles."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    assert len(os.listdir("/proc/self/task")) == 1, "a thread would not go on in a process of its own"
    gc.collect()
    gc.freeze()


def serve(requests: socket.socket) -> Callable[[], object]:
    """Start processes until the other side is gone. Returns only in each of these: what it has to do."""
    # What becomes ready when a process ends -> its number, and who waits for that.
    running: dict[int, tuple[int, socket.socket]] = {}
    while True:
        for ready in select([requests, *running], [], [])[0]:
            if ready is not requests:
                process, answers = running.pop(ready)
                close(ready)
                _tell(answers, waitpid(process, 0)[1])
                answers.close()
                continue
            text, files, _, _ = socket.recv_fds(requests, LONGEST, 4)
            if not text:
                sys.exit()
            answers = socket.socket(fileno=files.pop())
            process = fork()
            if process == 0:
                for other in (requests, answers, *(one for _, one in running.values())):
                    other.close()
                for descriptor in running:
                    close(descriptor)
                return lambda: become(files=files, **json.loads(text))
            for file in files:
                close(file)
            _tell(answers, process)
            running[pidfd_open(process)] = process, answers


def _tell(answers: socket.socket, number: int) -> None:
    with suppress(OSError):  # nobody listens any more
        answers.send(str(number).encode())


def become(words: list[str], environment: dict[str, str], folder: str, hold: str, files: list[int]) -> None:
    for number, file in enumerate(files):
        os.dup2(file, number)
        close(file)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = words
    signal.signal(signal.SIGINT, signal.default_int_handler)
    importlib.import_module("gevent").reinit()
    if hold:
        importlib.import_module("tests.integration.held").at(hold)
    sys.exit(importlib.import_module("pyinfra_cli.main").main())


if __name__ == "__main__":
    what, channel, words = sys.argv[1], socket.socket(fileno=int(sys.argv[2])), sys.argv[3:]
    if what == "run":
        ended = Process(words, os.environ, (0, 1, 2), folder=Path.cwd(), server=channel).wait()
        sys.exit(ended if ended >= 0 else 128 - ended)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    load(brief="brief" in words)
    serve(channel)()
