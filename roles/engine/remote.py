"""Commands on hosts, for those who know no connection: what they answer, and how they fail. roles/engine/bridge runs them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from roles.engine.context import OutOfReach


class RemoteError(OutOfReach):
    """A command on a host did not complete. Names the host."""


class ConnectionLost(RemoteError):
    """The SSH connection was lost while a command ran; what the command started may still run on the node."""


@dataclass(frozen=True)
class Answer:
    """The output of a command; `code` is its exit status. Secrets in `stderr`, which is for people, are masked."""

    code: int
    stdout: list[str]
    stderr: list[str]

    @property
    def complaint(self) -> str:
        """The last lines of `stderr`; without any, the exit status."""
        return " ".join(self.stderr[-3:]) or f"exit status {self.code}"


class Shell(Protocol):
    """Where scripts run: a host of the inventory."""

    @property
    def name(self) -> str:
        """Of the host, in the inventory."""

    def run(self, script: str, *, stdin: str | None = None, timeout: float | None = None) -> Answer:
        """Run a POSIX sh script as root; `timeout` in seconds. Raises RemoteError, and ConnectionLost if nobody knows whether it still
        runs."""
