"""Tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from roles.engine.harmless import one_line

CELL = 160


def render(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns are as wide as their widest cell; the last column is not padded. A cell is one line, and harmless."""
    cells = [[one_line(cell) for cell in row] for row in (headers, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headers))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def short(text: str, most: int = CELL) -> str:
    """Shorten a text for a cell; the full text is shown elsewhere."""
    return text if len(text) <= most else text[: most - 3] + "..."


def counted(number: int, thing: str) -> str:
    """`1 change`, `2 changes`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
