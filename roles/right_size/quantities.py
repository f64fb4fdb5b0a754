"""Amounts for people and for manifests: rounded up to what a person would write. Pure."""

from __future__ import annotations

import math

MI, GI = 2**20, 2**30
# (below this amount, to multiples of this one)
_CPU_STEPS = ((50, 1), (100, 2), (200, 5), (1000, 10), (4000, 50), (10_000, 100))
_MEMORY_STEPS = ((64 * MI, MI), (256 * MI, 4 * MI), (GI, 16 * MI), (4 * GI, 64 * MI))


def round_cpu(millis: float) -> int:
    """Rounded up, by 5 % or one thousandth at most."""
    step = next((step for below, step in _CPU_STEPS if millis < below), 500)
    return math.ceil(millis / step - 1e-9) * step


def round_memory(size: float) -> int:
    """Rounded up to whole MiB, to about 6 %."""
    step = next((step for below, step in _MEMORY_STEPS if size < below), 256 * MI)
    return math.ceil(size / step - 1e-9) * step


def cpu_text(millis: int) -> str:
    """As a Kubernetes quantity: 250m, 2."""
    return str(millis // 1000) if millis and millis % 1000 == 0 else f"{millis}m"


def memory_text(size: int) -> str:
    """For people, and, if it is rounded, a Kubernetes quantity: 96Mi, 2Gi."""
    if size >= GI and size % GI == 0:
        return f"{size // GI}Gi"
    if size >= MI or size == 0:
        return f"{math.ceil(size / MI)}Mi"
    return f"{math.ceil(size / 1024)}Ki"


def text_of(resource: str, amount: int | None) -> str:
    """cpu in thousandths, memory in bytes, others in whole units; `-` for None."""
    return "-" if amount is None else {"cpu": cpu_text, "memory": memory_text}.get(resource, str)(amount)


def pair(resource: str, amounts: tuple[int | None, int | None]) -> str:
    """Request and limit: `100m/-`."""
    return "/".join(text_of(resource, amount) for amount in amounts)


def span_text(seconds: float) -> str:
    """40 s, 12 min, 5 h, 3 d: two digits at most."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def rate_text(rate: float) -> str:
    """Bytes per second, by the unit of time in which it is at least one MiB: 2.5Mi a minute."""
    for unit, size in (("second", 1), ("minute", 60), ("hour", 3600)):
        if rate * size >= MI:
            return f"{rate * size / MI:.1f}Mi a {unit}"
    return f"{rate * 86400 / MI:.1f}Mi a day"
