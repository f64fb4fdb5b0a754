"""Changes that a look at a node found in flight: by whom, and when the node puts them back by itself. Pure."""

from __future__ import annotations

from collections.abc import Mapping

# "staged" has touched nothing yet, and may never.
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
            return "revert-failed: its node tries again until it is done, or abandoned"
        case "reverting":
            return "being put back"
        case None:
            return "unconfirmed and its record is gone, it is put back at its deadline"
        case state:
            word = "unconfirmed" if state == "applied" else "being applied"
            if change.get("boot") != boot or not change.get("deadline", "").isdigit():
                return f"{word}, reverts now"
            return f"{word}, reverts in {max(0, int(change['deadline']) - int(uptime))} s"
