"""Tables for a terminal."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from roles.engine import folding
from roles.engine.folding import counted
from roles.engine.harmless import one_line

__all__ = ["CELL", "counted", "folded", "in_common", "render", "short", "wording"]

CELL = 160
# What may differ between hosts that share a row, in columns that vary: what is each host's own (addresses, checksums and IDs, times of a
# clock), and amounts, also with a unit of time. Any other word is an outcome.
_OWN = r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}|(?=\w*[0-9])[0-9a-f]{8,}|[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9:.]+Z?)?"
_VARYING = re.compile(rf"(?<![\w.])({_OWN}|[0-9]+(?:\.[0-9]+)?[smhd]?)(?!\w|\.[0-9])")
# A longer row of digits is an ID.
_LONGEST_AMOUNT = 8
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def render(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns are as wide as their widest cell, up to CELL; the last column is not padded. A cell is one line, and harmless."""
    cells = [[one_line(cell) for cell in row] for row in (headers, *rows)]
    widths = [min(max(len(row[column]) for row in cells), CELL) for column in range(len(headers))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def folded(rows: Sequence[Sequence[str]], vary: Collection[int] = (), node: int = 0) -> list[list[str]]:
    """With many hosts, rows that differ only in the column `node` as one row, in the order of the first of them. Columns of `vary` may
    differ too, but only in amounts (`wording`)."""
    if not folding.folds():
        return [list(row) for row in rows]
    alike: dict[tuple[object, ...], list[Sequence[str]]] = {}
    for row in rows:
        key = tuple(wording(cell) if column in vary else cell for column, cell in enumerate(row) if column != node)
        alike.setdefault(key, []).append(row)
    return [[_cell([row[column] for row in group], column == node) for column in range(len(group[0]))] for group in alike.values()]


def _cell(cells: Sequence[str], is_node: bool) -> str:
    return folding.hosts(cells) if is_node else in_common(cells)


def wording(cell: str) -> tuple[str, ...]:
    """A text without its amounts: what hosts must have in common to share a row."""
    return tuple(_VARYING.split(cell)[::2])


def in_common(cells: Sequence[str]) -> str:
    """One text for texts of the same `wording`: an amount that differs as `LEAST-MOST`, what is each one's own as `...`."""
    parts = zip(*(_VARYING.split(cell) for cell in cells), strict=True)
    return "".join(_part(sorted(set(part))) for part in parts)


def _part(different: list[str]) -> str:
    if len(different) == 1:
        return different[0]
    try:
        least, *_, most = sorted(different, key=_size)
    except ValueError:
        return "..."
    return f"{least}-{most}"


def _size(amount: str) -> float:
    """Raises ValueError for what is no amount."""
    if re.fullmatch(f"[0-9]{{{_LONGEST_AMOUNT},}}", amount):
        raise ValueError(amount)
    return float(amount.rstrip("smhd")) * _SECONDS.get(amount[-1:], 1)


def short(text: str, most: int = CELL) -> str:
    """Shorten a text for a cell; the full text is shown elsewhere."""
    return text if len(text) <= most else text[: most - 3] + "..."
