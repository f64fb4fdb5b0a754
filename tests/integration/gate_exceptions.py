"""Where daytwo's verdict on a gate is not the binary's, and why that stands. The list may only get shorter: a case that is gone fails."""

from __future__ import annotations

# (minor, component, gate, value): the reason.
EXCEPTIONS: dict[tuple[int, str, str, bool], str] = {}
