"""A kubelet's own count of each container's CPU time and memory: /metrics/resource. Pure.

Source: pkg/kubelet/metrics/collectors/resource_metrics.go (container_cpu_usage_seconds_total, container_memory_working_set_bytes: with the
time of the kubelet's own read, in milliseconds). The kubelet reads every 10 to 15 seconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_CPU, _MEMORY = "container_cpu_usage_seconds_total", "container_memory_working_set_bytes"
_LINE = re.compile(rf'^({_CPU}|{_MEMORY})\{{((?:\w+="(?:[^"\\\n]|\\.)*",?)*)\}} (\S+)(?: ([0-9]{{1,15}}))?$', re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\\n]|\\.)*)"')
#: Lines that are read: a node has 2 of them for each container.
MOST = 20_000
# No container has more bytes, or has used more seconds.
_HIGHEST = 2.0**62


@dataclass(frozen=True)
class KubeletUse:
    """One container. `cpu`: CPU time in seconds since its start, at `at` (seconds since the epoch, by the node's clock); `memory`: its
    working set in bytes. None: the kubelet has not read it yet."""

    at: float | None = None
    cpu: float | None = None
    memory: int | None = None


def parse(text: str) -> Mapping[tuple[str, str, str], KubeletUse]:
    """By namespace, pod and container. Lines that are not of this form are ignored, as are values that no container can have."""
    found: dict[tuple[str, str, str], dict[str, float]] = {}
    for count, line in enumerate(_LINE.finditer(text)):
        if count >= MOST:
            break
        labels = dict(_LABEL.findall(line[2]))
        try:
            value = float(line[3])
        except ValueError:
            continue
        if not 0 <= value <= _HIGHEST:
            continue
        one = found.setdefault((labels.get("namespace", ""), labels.get("pod", ""), labels.get("container", "")), {})
        if line[1] == _CPU:
            if line[4]:
                one["at"], one["cpu"] = int(line[4]) / 1000, value
        else:
            one["memory"] = value
    return {
        place: KubeletUse(one.get("at"), one.get("cpu"), int(one["memory"]) if "memory" in one else None) for place, one in found.items()
    }
