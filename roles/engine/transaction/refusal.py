"""Why a plan is refused. Refusals are collected over all nodes, shown together, and stop the run before any write."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from roles.engine.transaction.mask import mask_text


class Refusal(Exception):
    """One reason to refuse: the host, what was found, the rule, the way out; one or two sentences. Secrets are masked. `file`: of the host,
    if one file is the reason."""

    def __init__(self, host: str, message: str, way_out: str = "", file: str | None = None) -> None:
        # The refused value may be a secret.
        self.host, self.message, self.way_out, self.file = host, mask_text(message), mask_text(way_out), file
        super().__init__(f"{host}: {self.text}")

    @classmethod
    def of(cls, host: str, problems: Iterable[object]) -> Self:
        """For what was found already, with the host or without."""
        return cls(host, "; ".join(str(one).removeprefix(f"{host}: ") for one in problems))

    @property
    def text(self) -> str:
        """The refusal without its host."""
        return f"{self.message}; {self.way_out}" if self.way_out else self.message
