"""What a measurement says: ratios of the two tools, straight lines over the number of hosts, and the tables of docs/scale.md. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from statistics import linear_regression
from typing import Any

Medians = Sequence[Mapping[str, Any]]
_FITTED = {"wall": "s", "cpu": "s", "memory": "MiB"}


def text(measures: Mapping[str, str], medians: Medians) -> str:
    """summary.json: one line for each combination, its values as [median, smallest, largest]."""
    parts = {"results": medians, "ratios": ratios(medians), "fits": fits(medians)}
    lists = [f' "{name}": [\n  ' + ",\n  ".join(map(json.dumps, rows)) + "\n ]" for name, rows in parts.items()]
    return "{\n" + ",\n".join([f' "measures": {json.dumps(measures)}', *lists]) + "\n}\n"


def ratios(medians: Medians) -> list[dict[str, Any]]:
    """How many times the time and the CPU of daytwo Ansible needs, where both were measured."""
    found = []
    for one in medians:
        other = [two for two in medians if two["tool"] == "ansible" and all(two[key] == one[key] for key in ("hosts", "latency_ms", "job"))]
        if one["tool"] == "daytwo" and other:
            times = {name: round(other[0][name][0] / one[name][0], 1) for name in ("wall", "cpu")}
            found.append({"hosts": one["hosts"], "latency_ms": one["latency_ms"], "job": one["job"], **times})
    return found


def fits(medians: Medians) -> list[dict[str, Any]]:
    """`base + each * hosts` by least squares, for what was measured with three sizes or more; `off` is the largest distance of a median
    from that line, as a share of the median."""
    found = []
    for tool, job, latency in dict.fromkeys((one["tool"], one["job"], one["latency_ms"]) for one in medians):
        of = [one for one in medians if (one["tool"], one["job"], one["latency_ms"]) == (tool, job, latency)]
        sizes = [float(one["hosts"]) for one in of]
        for name, unit in _FITTED.items() if len(set(sizes)) > 2 else ():
            values = [float(one[name][0]) for one in of]
            each, base = linear_regression(sizes, values)
            off = max(abs(base + each * size - value) / value for size, value in zip(sizes, values, strict=True))
            line = {"base": round(base, 3), "each": round(each, 5), "off": round(off, 3)}
            found.append({"tool": tool, "job": job, "latency_ms": latency, "measure": name, "unit": unit, **line})
    return found


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """The lines of a table in Markdown."""
    return [f"| {' | '.join(map(str, row))} |" for row in (head, ["---"] * len(head), *rows)]


def tables(medians: Medians) -> dict[str, list[str]]:
    """The tables of docs/scale.md, by the name in its comments."""
    by = {(one["tool"], one["hosts"], one["latency_ms"], one["job"]): one for one in medians}

    def pair(one: Mapping[str, Any], name: str) -> str:
        ours, theirs = (by[tool, one["hosts"], one["latency_ms"], one["job"]][name][0] for tool in ("daytwo", "ansible"))
        return f"{ours:.1f} / {theirs:.1f}"

    compared = [
        (one["hosts"], f"{one['latency_ms']:g}", one["job"], pair(one, "wall"), f"{one['wall']:g}x", pair(one, "cpu"), f"{one['cpu']:g}x")
        for one in sorted(ratios(medians), key=lambda one: (one["job"], one["hosts"], one["latency_ms"]))
    ]
    alone = [
        (
            one["job"], one["hosts"], f"{one['wall'][0]:.1f}", f"{one['cpu'][0]:.1f}", f"{one['cpu'][0] / one['hosts'] * 1000:.0f}",
            f"{one['memory'][0]:.0f}", f"{one['ssh_sessions'][0]:.1f}", f"{one['api_requests'][0]:.1f}", f"{one['tls_handshakes'][0]:.2f}",
        )
        for one in sorted(medians, key=lambda one: (one["job"], one["hosts"]))
        if one["tool"] == "daytwo" and one["latency_ms"] == 10
    ]  # fmt: skip
    lines = [
        (one["job"], {"wall": "time", "cpu": "CPU", "memory": "memory"}[one["measure"]], f"{one['base']:.2f} {one['unit']}",
         f"{one['each'] * 1000:.1f} {one['unit']}", f"{one['off']:.1%}")
        for one in fits(medians)
        if one["tool"] == "daytwo" and one["latency_ms"] == 10
    ]  # fmt: skip
    return {
        "compared": table(["hosts", "round trip, ms", "job", "time, s", "less", "CPU, s", "less"], compared),
        "alone": table(
            [
                "job",
                "hosts",
                "time, s",
                "CPU, s",
                "CPU a host, ms",
                "memory, MiB",
                "SSH commands a host",
                "API requests a host",
                "TLS a host",
            ],
            alone,
        ),
        "lines": table(["job", "what", "fixed", "per 1000 hosts", "largest distance"], lines),
    }


def page(old: str, medians: Medians) -> str:
    """docs/scale.md with the tables of these medians, each between `<!-- table: NAME -->` and `<!-- end -->`. That of plans has its own
    measurement."""
    made = tables(medians)

    def filled(found: re.Match[str]) -> str:
        return "\n".join([found[1], *made[found[2]], found[3]]) if found[2] in made else found[0]

    return re.sub(r"(<!-- table: (\w+) -->)\n.*?(<!-- end -->)", filled, old, flags=re.DOTALL)
