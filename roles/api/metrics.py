"""What a component says of itself on /metrics (component-base/metrics, kubernetes_feature_enabled since 1.26)."""

from __future__ import annotations

import re
from dataclasses import dataclass

_GATE = re.compile(rb'^kubernetes_feature_enabled\{name="([^"]+)",stage="([^"]*)"\} (\S+)$', re.MULTILINE)


@dataclass(frozen=True)
class Gate:
    """A gate as the running process has it; stage is "" for GA, else ALPHA, BETA or DEPRECATED."""

    enabled: bool
    stage: str


def gates(text: bytes) -> dict[str, Gate]:
    """The effective gates; empty where the component does not publish them (before 1.26)."""
    return {name.decode(): Gate(float(value) == 1, stage.decode()) for name, stage, value in _GATE.findall(text)}
