"""Changes in flight on a node: who began them, and when the node reverts them by itself. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from roles.engine.bounds import digits

# A change that is "staged" has touched nothing yet.
NOT_IN_FLIGHT = ("staged", "confirmed", "reverted", "refused", "abandoned")


@dataclass(frozen=True)
class InFlight:
    """One change, by its id. `state`: as its node recorded it, None: its record is gone; `text`: what becomes of it, and who began it."""

    name: str
    state: str | None
    text: str

    def __str__(self) -> str:
        return f"change {self.name} is {self.text}"


def in_flight(changes: Mapping[str, Mapping[str, str]], boot: str, uptime: float) -> list[InFlight]:
    """The changes in flight. `changes` are the key=value pairs of state and holder by the change's id; `boot` and `uptime` (seconds) are
    the node's own."""
    found = []
    for name, change in sorted(changes.items()):
        if change.get("state") not in NOT_IN_FLIGHT:
            who = f"run {change.get('run', '?')}, by {change.get('who', '?')}, `{change.get('command', '?')}`"
            found.append(InFlight(name, change.get("state"), f"{_how(change, boot, uptime)} ({who})"))
    return found


def _how(change: Mapping[str, str], boot: str, uptime: float) -> str:
    match change.get("state"):
        case "revert-failed":
            return "revert-failed: its node retries the revert until it succeeds or is abandoned"
        case "reverting":
            return "being reverted"
        case None:
            return "unconfirmed and its record is gone; its node reverts it at its deadline"
        case state:
            word = "unconfirmed" if state == "applied" else "being applied"
            if change.get("boot") != boot or (deadline := digits(change.get("deadline", ""))) is None:
                return f"{word}, reverts now"
            return f"{word}, reverts in {max(0, deadline - int(uptime))} s"
