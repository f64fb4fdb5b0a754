"""Facts from a Kubernetes component's /metrics. Pure; the text may be megabytes.

Format: Prometheus text exposition 0.0.4. Metrics: k8s.io/component-base/metrics/prometheus/feature/metrics.go (from 1.26)
and .../version/metrics.go; process_start_time_seconds is the Go client's own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

_LABEL = re.compile(rb'(\w+)="((?:[^"\\\n]|\\.)*)"')
_LABELS = rb'\{((?:\w+="(?:[^"\\\n]|\\.)*",?)*)\} +(\S+)'
# The patterns begin with a line feed so that the search can jump from one literal prefix to the next.
_FEATURE = re.compile(rb"\nkubernetes_feature_enabled" + _LABELS)
_GATE_LINES = re.compile(rb"\nkubernetes_feature_enabled[^\n]*")
_BUILD = re.compile(rb"\nkubernetes_build_info" + _LABELS)
_START = re.compile(rb"\nprocess_start_time_seconds(?:\{\})? +(\S+)")
_ESCAPES = {b"\\\\": b"\\", b'\\"': b'"', b"\\n": b"\n"}


class MetricsError(ValueError):
    """The text has something that a component does not write: what it should prove counts as not proven."""


@dataclass(frozen=True)
class GateMetric:
    """One gate as the running process has it. `stage` is ALPHA, BETA, DEPRECATED, or "" for GA."""

    stage: str
    enabled: bool


def parse_feature_gates(metrics_text: bytes) -> Mapping[str, GateMetric]:
    """Every gate by its name, read-only; empty if the component does not have this metric (before 1.26).

    Raises MetricsError on a value that is not 0 or 1, and on a gate with two different values.
    """
    return _gates(b"".join(_GATE_LINES.findall(b"\n" + metrics_text)))


@lru_cache(maxsize=64)
def _gates(lines: bytes) -> Mapping[str, GateMetric]:
    # The nodes of a cluster have the same lines but for a few kinds of nodes.
    gates: dict[str, GateMetric] = {}
    for found in _FEATURE.finditer(lines):
        labels = _labels(found.group(1))
        name = labels.get("name", "")
        value = _number(found.group(2), f"kubernetes_feature_enabled of {name}")
        if not name or value not in (0.0, 1.0):
            raise MetricsError(f"kubernetes_feature_enabled: {found.group(0)[1:200]!r} is not a gate with a value of 0 or 1")
        gate = GateMetric(labels.get("stage", ""), value == 1.0)
        if gates.setdefault(name, gate).enabled != gate.enabled:
            raise MetricsError(f"kubernetes_feature_enabled: {name} occurs twice, once on and once off")
    return MappingProxyType(gates)


def parse_start_time(metrics_text: bytes) -> float | None:
    """Start of the process, in seconds since the epoch by the node's clock; None if it is missing."""
    found = _START.search(b"\n" + metrics_text)
    return _number(found.group(1), "process_start_time_seconds") if found else None


def parse_version(metrics_text: bytes) -> str | None:
    """The running binary's version, as `v1.36.2`; None if it is missing."""
    found = _BUILD.search(b"\n" + metrics_text)
    return _labels(found.group(1)).get("git_version") if found else None


def _labels(text: bytes) -> dict[str, str]:
    return {
        name.decode(): re.sub(rb'\\[\\"n]', lambda m: _ESCAPES[m.group()], value).decode("utf-8", "replace")
        for name, value in _LABEL.findall(text)
    }


def _number(text: bytes, what: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise MetricsError(f"{what}: {text[:50]!r} is not a number") from None
