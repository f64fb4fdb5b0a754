"""docs/scale.json, docs/scale.svg and the tables of docs/scale.md, from results of `make bench`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.benchmarks import plot, summary
from tests.benchmarks.world import ROOT, BenchError

DOCS = ROOT / "docs"


def publish(results: Iterable[Path], docs: Path = DOCS) -> None:
    """Write the three files; of a combination in several results the last one counts. Raises BenchError."""
    measures: Mapping[str, str] = {}
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for path in results:
        try:
            read = json.loads(path.read_text())
            measures = read["measures"]
            for one in read["results"]:
                medians = one.get("summary", one)
                found[medians["job"], medians["hosts"], medians["latency_ms"], medians["tool"]] = medians
        except (OSError, ValueError, LookupError) as error:
            raise BenchError(f"{path}: not a result of make bench: {error!r}; use .bench/results/DATE-TIME.json") from error
    medians = [found[key] for key in sorted(found)]
    for name, content in files(measures, medians, (docs / "scale.md").read_text()).items():
        (docs / name).write_text(content)


def files(measures: Mapping[str, str], medians: summary.Medians, page: str) -> dict[str, str]:
    """The three files by name; `page` is docs/scale.md as it is."""
    drawn = [one for one in medians if one["job"] in ("status", "plan")]
    return {
        "scale.json": summary.text(measures, medians),
        "scale.svg": plot.svg([dict(one) for one in drawn]),
        "scale.md": summary.page(page, medians),
    }
