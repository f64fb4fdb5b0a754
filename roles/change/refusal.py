"""Why a plan is refused. Refusals are collected over all nodes, shown together, and stop the run before any write."""

from __future__ import annotations


class Refusal(Exception):
    """One reason not to go on: which host, what was found, the rule, the way out; one sentence or two."""

    def __init__(self, host: str, message: str, way_out: str = "") -> None:
        self.host, self.message, self.way_out = host, message, way_out
        super().__init__(f"{host}: {message}" + (f"; {way_out}" if way_out else ""))
