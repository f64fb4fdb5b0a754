"""Changes in flight on a node: who began them, and when the node reverts them by itself. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from roles.engine.bounds import digits

# A change that is "staged" has touched nothing yet.
NOT_IN_FLIGHT = ("staged", "confirmed", "reverted", "refused", "abandoned")


def in_flight(changes: Mapping[str, Mapping[str, str]], boot: str, uptime: float) -> list[str]:
    """A sentence for each change in flight. `changes` are the key=value pairs of state and holder by the change's id; `boot` and
    `uptime` (seconds) are the node's own."""
    return [
        f"change {name} is {_how(change, boot, uptime)} (run {change.get('run', '?')}, by {change.get('who', '?')}, "
        f"`{change.get('command', '?')}`)"
        for name, change in sorted(changes.items())
        if change.get("state") not in NOT_IN_FLIGHT
    ]


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
