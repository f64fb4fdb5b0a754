"""Tables for a terminal."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from roles.engine import detail
from roles.engine.harmless import one_line

CELL = 160


def render(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns are as wide as their widest cell; the last column is not padded. A cell is one line, and harmless."""
    cells = [[one_line(cell) for cell in row] for row in (headers, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headers))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def folded(rows: Sequence[Sequence[str]], vary: Collection[int] = (), node: int = 0) -> list[list[str]]:
    """With many hosts, rows that differ only in the column `node` as one row, in the order of the first of them. Columns of `vary` may
    differ too; the row then has `various`."""
    if not detail.folds():
        return [list(row) for row in rows]
    alike: dict[tuple[str, ...], list[Sequence[str]]] = {}
    for row in rows:
        alike.setdefault(tuple(cell for column, cell in enumerate(row) if column != node and column not in vary), []).append(row)
    return [[_cell(group, column, node) for column in range(len(group[0]))] for group in alike.values()]


def _cell(group: Sequence[Sequence[str]], column: int, node: int) -> str:
    if column == node:
        return detail.hosts([row[node] for row in group])
    return group[0][column] if all(row[column] == group[0][column] for row in group) else "various"


def short(text: str, most: int = CELL) -> str:
    """Shorten a text for a cell; the full text is shown elsewhere."""
    return text if len(text) <= most else text[: most - 3] + "..."


def counted(number: int, thing: str) -> str:
    """`1 change`, `2 changes`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
