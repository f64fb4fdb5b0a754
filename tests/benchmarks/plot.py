"""The plot of a result: wall time and processor time by the number of hosts, as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

_COLOURS = {"daytwo": "#1f6feb", "ansible": "#c2410c"}
_DASHES = ("", "6 3", "2 3")
_WIDTH, _HEIGHT, _LEFT, _BELOW, _ABOVE = 340, 260, 52, 42, 34


@dataclass(frozen=True)
class Line:
    """The values of one tool at one latency: (hosts, median, smallest, largest)."""

    tool: str
    latency: float
    points: tuple[tuple[int, float, float, float], ...]


def lines(results: Sequence[dict[str, Any]], job: str, measure: str) -> list[Line]:
    """What is drawn of one measure of one job; `results` as in summary.json."""
    found: dict[tuple[str, float], list[tuple[int, float, float, float]]] = {}
    for one in results:
        if one["job"] == job:
            found.setdefault((one["tool"], one["latency_ms"]), []).append((one["hosts"], *one[measure]))
    return [Line(tool, latency, tuple(sorted(points))) for (tool, latency), points in sorted(found.items())]


def ticks(low: float, high: float) -> list[float]:
    """Powers of ten that hold all values between them."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return [10.0**power for power in range(first, max(last, first + 1) + 1)]


def svg(results: Sequence[dict[str, Any]]) -> str:
    """One row per job: wall time, and processor time of the controller. Both axes are logarithmic."""
    jobs = list(dict.fromkeys(one["job"] for one in results))
    parts = []
    for row, job in enumerate(jobs):
        for column, (measure, title) in enumerate((("wall", "wall time, s"), ("cpu", "controller's CPU time, s"))):
            panel = _panel(lines(results, job, measure), f"{job}: {title}")
            parts.append(f'<g transform="translate({column * _WIDTH},{row * _HEIGHT})">{panel}</g>')
    latencies = sorted({one["latency_ms"] for one in results})
    legend = []
    for number, (tool, latency) in enumerate((tool, latency) for tool in _COLOURS for latency in latencies):
        x, y = 20 + (number % 4) * 165, len(jobs) * _HEIGHT + 16 + number // 4 * 18
        legend.append(f'<path d="M{x} {y}h28" {_stroke(tool, latencies.index(latency))}/>')
        legend.append(f'<text x="{x + 34}" y="{y + 4}">{escape(tool)}, {latency:g} ms</text>')
    height = len(jobs) * _HEIGHT + 40 + (2 * len(latencies) - 1) // 4 * 18
    style = "text{font:12px sans-serif;fill:#333}.axis{stroke:#bbb;fill:none}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * _WIDTH} {height}" width="{2 * _WIDTH}" height="{height}">'
        f'<style>{style}</style><rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}{"".join(legend)}</svg>\n'
    )


def _stroke(tool: str, dash: int) -> str:
    colour = _COLOURS.get(tool, "#333")
    return f'stroke="{colour}" stroke-dasharray="{_DASHES[dash % len(_DASHES)]}" fill="none" stroke-width="2"'


def _panel(drawn: Sequence[Line], title: str) -> str:
    points = [point for line in drawn for point in line.points]
    across = ticks(min(point[0] for point in points), max(point[0] for point in points))
    up = ticks(max(min(point[2] for point in points), 1e-3), max(point[3] for point in points))

    def x(value: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - 16) * (math.log10(value) - math.log10(across[0])) / (
            math.log10(across[-1]) - math.log10(across[0])
        )

    def y(value: float) -> float:
        share = (math.log10(max(value, up[0])) - math.log10(up[0])) / (math.log10(up[-1]) - math.log10(up[0]))
        return _HEIGHT - _BELOW - (_HEIGHT - _BELOW - _ABOVE) * share

    parts = [f'<text x="{_LEFT}" y="20" font-weight="bold">{escape(title)}</text>']
    for value in across:
        parts.append(f'<path class="axis" d="M{x(value):.1f} {_ABOVE}V{_HEIGHT - _BELOW}"/>')
        parts.append(f'<text x="{x(value):.1f}" y="{_HEIGHT - _BELOW + 16}" text-anchor="middle">{value:g}</text>')
    for value in up:
        parts.append(f'<path class="axis" d="M{_LEFT} {y(value):.1f}H{_WIDTH - 16}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
    parts.append(f'<text x="{_WIDTH - 16}" y="{_HEIGHT - 8}" text-anchor="end">hosts</text>')
    latencies = sorted({line.latency for line in drawn})
    for line in drawn:
        path = " ".join(f"{'L' if number else 'M'}{x(hosts):.1f} {y(value):.1f}" for number, (hosts, value, _, _) in enumerate(line.points))
        parts.append(f'<path d="{path}" {_stroke(line.tool, latencies.index(line.latency))}/>')
        for hosts, value, low, high in line.points:
            colour = _COLOURS.get(line.tool, "#333")
            parts.append(f'<path d="M{x(hosts):.1f} {y(low):.1f}V{y(high):.1f}" stroke="{colour}"/>')
            parts.append(f'<circle cx="{x(hosts):.1f}" cy="{y(value):.1f}" r="3" fill="{colour}"/>')
    return "".join(parts)
