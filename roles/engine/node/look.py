"""One look at a node over its connection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from roles.engine.node.model import Observation
from roles.engine.node.parse import ObservationError, parse
from roles.engine.scripts import templates
from roles.engine.timeouts import patient

# Files and directories that a first look showed to be needed and did not read.
FilesWanted = Callable[[Observation], tuple[list[str], list[str]]]
LOOK_SECONDS = 60
# Of processes that only have a component's name so many are told: anybody may start thousands.
MOST_STRANGERS = 20


class ShellAnswer(Protocol):
    """What a command printed, as lines, and its exit status."""

    @property
    def code(self) -> int: ...
    @property
    def stdout(self) -> list[str]: ...
    @property
    def stderr(self) -> list[str]: ...


class Shell(Protocol):
    """A host of the inventory: it runs a POSIX sh script, and raises an error of its own where it does not answer."""

    @property
    def name(self) -> str: ...
    def run(self, script: str, *, timeout: float | None = None) -> ShellAnswer: ...


def look(remote: Shell, wanted: FilesWanted) -> Observation:
    """Observe a node: one command, and a second one only where the first guessed a path wrong.

    Raises ObservationError where the node gives no whole answer, and the remote's own error where it does not answer.
    """
    seen = _ask(remote, [], [])
    files, directories = wanted(seen)
    if files or directories:
        seen = _ask(remote, files, directories)
    return seen


def _ask(remote: Shell, files: list[str], directories: list[str]) -> Observation:
    script = rendered(files, directories)
    answer = remote.run(script, timeout=patient(LOOK_SECONDS))
    if answer.code != 0 or not answer.stdout:
        said = " ".join(answer.stderr[-3:]) or f"exit status {answer.code}"
        raise ObservationError(f"{remote.name}: could not look at the node: {said}")
    return parse(remote.name, answer.stdout)


def rendered(files: Sequence[str] = (), directories: Sequence[str] = ()) -> str:
    """The script of one look, which reads these files and directories as well. It runs nothing of what it finds."""
    return templates().get_template("observe.sh.j2").render(more_files=files, more_directories=directories, most_strangers=MOST_STRANGERS)
