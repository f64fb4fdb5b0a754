"""Where daytwo's verdict on a gate is not the binary's, and why that stands. The list may only get shorter: a case that is gone fails."""

from __future__ import annotations

# (minor, component, gate, value): the reason.
EXCEPTIONS: dict[tuple[int, str, str, bool], str] = {}

# (minor, component, gate) whose default is another than in the other components: the reason.
DEFAULTS: dict[tuple[int, str, str], str] = {
    (32, "kube-controller-manager", "WatchListClient"): "a gate of client-go that the controller-manager of 1.32 turns on for itself"
}
