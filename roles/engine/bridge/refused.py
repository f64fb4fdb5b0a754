"""The refusal of a run."""

from __future__ import annotations

from pyinfra.api.exceptions import DeployError


class RunRefused(DeployError):  # type: ignore[misc]  # pyinfra ships no types
    """A refusal, without a traceback: pyinfra would print the file and line that raised it, which is in gevent."""

    @property
    def __traceback__(self) -> None:
        return None

    @__traceback__.setter
    def __traceback__(self, traceback: object) -> None:
        """Ignored; Python still keeps the traceback for sys.exc_info()."""
