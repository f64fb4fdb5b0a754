"""What a node says of a change in progress, in the operator's words. Pure.

Its log keeps the names of the steps (templates/change.sh.j2); whatever is not known here is shown as the node said it.
"""

from __future__ import annotations

import re

from roles.engine.transaction import Change
from roles.engine.transaction.model import STABLE_SECONDS

#: The node says once a process has started, with the reason if it was healthy before and then was not, and again once it has stayed healthy
#: for as long as it must.
HEALTHY, AGAIN = "healthy: ", re.compile(r"healthy: \S+ again: (.*)")
SETTLED = re.compile(r"settled: ([0-9.]+) s after the first file was placed")
# "": the line before or after it says the same.
_STEPS = {
    **dict.fromkeys(("check", "stage", "arm", "applied", "confirm", "revert", "finish", "clean"), ""),
    "stop": "stopping the {component}",
    "stop-new": "stopping the new {component}",
    "checkpoints": "waiting for its new checkpoints",
    "end-pods": "ending all pods of the node",
    "restart-runtime": "restarting the container runtime",
    "restart-runtime-old": "restarting the container runtime as before",
    "daemon-reload": "systemctl daemon-reload",
    "reload-old": "systemctl daemon-reload",
    "restart": "restarting the {component}",
    "restart-old": "restarting the {component} as before",
    "restart-again": "restarting the {component} once more",
    "restart-kubelet": "restarting the kubelet",
    "remove-sandbox": "removing what is left of the new pod",
    "wait": "waiting until it is healthy",
    "wait-old": "waiting until it is healthy as before",
}
_STATES = {
    "applying": "applying; the node itself reverts what is not confirmed within {seconds} s",
    "reverting": "reverting",
    **dict.fromkeys(("applied", "confirmed", "reverted", "revert-failed", "refused"), ""),
}
_FILES = {"place": "writing", "take": "moving away", "restore": "restoring"}


def in_words(text: str, change: Change) -> str:
    """A line of its log; "" if it says nothing more than the lines around it."""
    if found := re.fullmatch("step: (place|take|restore) ([0-9]{1,4})", text):
        return f"{_FILES[found[1]]} {_numbered(int(found[2]), change)}"
    if found := re.fullmatch(r"step: (\S+)|state: (\S+)(?: \(.*\))?", text):
        known = _STEPS.get(found[1]) if found[1] else _STATES.get(found[2])
        return text if known is None else known.format(component=change.component, seconds=change.confirm_timeout)
    if found := AGAIN.fullmatch(text):
        return f"healthy again. In between it was not: {found[1]}. It must now stay healthy for {STABLE_SECONDS} s"
    if text.startswith(HEALTHY):
        return f"{text}; it must stay healthy for {STABLE_SECONDS} s"
    if found := SETTLED.fullmatch(text):
        return f"stayed healthy; {found[1]} s since the first file was written"
    return text


def _numbered(number: int, change: Change) -> str:
    """As the node counts: the files, then the checkpoints."""
    paths = [edit.path for edit in change.files]
    kind = "file"
    if number > len(paths):
        kind, number, paths = "checkpoint", number - len(paths), list(change.checkpoints)
    path = f": {paths[number - 1]}" if 0 < number <= len(paths) else ""
    return f"{kind} {number} of {len(paths)}{path}"
