"""One observation of a node over its connection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from roles.engine.node.logind import MOST_LOCKS
from roles.engine.node.model import Observation
from roles.engine.node.parse import ObservationError, parse
from roles.engine.scripts import filled
from roles.engine.timeouts import patient
from roles.engine.transaction.change_script import HOME

# Files and directories that the first observation showed to be needed, but did not read.
FilesWanted = Callable[[Observation], tuple[list[str], list[str]]]
LOOK_SECONDS = 60
#: The first kernels and packages of a node, and seconds for each program of a distribution that is asked whether a reboot is needed.
MOST_SIGNS, SIGN_SECONDS = 100, 5
# How many processes that only have a component's name are reported: any user may start thousands.
MOST_OTHERS = 20


class ShellAnswer(Protocol):
    """What a command printed, as lines, and its exit status."""

    @property
    def code(self) -> int: ...
    @property
    def stdout(self) -> list[str]: ...
    @property
    def complaint(self) -> str: ...


class Shell(Protocol):
    """A host of the inventory: it runs a POSIX sh script, and raises its own error if it does not answer."""

    @property
    def name(self) -> str: ...
    def run(self, script: str, *, timeout: float | None = None) -> ShellAnswer: ...


def look(remote: Shell, wanted: FilesWanted, *, glance: bool = False) -> Observation:
    """Observe a node: one command, and a second one only if the first guessed a path wrong. `glance`: also what templates/glance.sh.j2
    asks.

    Raises ObservationError if the node's answer is incomplete, and the remote's own error if it does not answer.
    """
    seen = _ask(remote, [], [], glance)
    files, directories = wanted(seen)
    if files or directories:
        seen = _ask(remote, files, directories, glance)
    return seen


def _ask(remote: Shell, files: list[str], directories: list[str], glance: bool) -> Observation:
    return parse(remote.name, answered(remote, rendered(files, directories, glance=glance), "observe the node"))


def answered(remote: Shell, script: str, what: str) -> list[str]:
    """The lines that a script prints on a node, `what` it does there. Raises ObservationError if it fails or prints nothing, and the
    remote's own error."""
    answer = remote.run(script, timeout=patient(LOOK_SECONDS))
    if answer.code != 0 or not answer.stdout:
        raise ObservationError(f"{remote.name}: could not {what}: {answer.complaint}")
    return answer.stdout


def rendered(files: Sequence[str] = (), directories: Sequence[str] = (), *, glance: bool = False) -> str:
    """The script of one observation, which also reads these files and directories. It runs nothing that it finds."""
    return filled(
        "observe.sh.j2",
        more_files=files,
        more_directories=directories,
        most_others=MOST_OTHERS,
        most_locks=MOST_LOCKS,
        glance=glance,
        home=HOME,
        most=MOST_SIGNS,
        seconds=SIGN_SECONDS,
    )
