"""Tables for a terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from roles.engine import detail
from roles.engine.bridge import end_with, show
from roles.engine.harmless import one_line

CELL = 160
#: How a proof says what it does not show; what follows, to its end, is never hidden.
NOT_PROVEN = "NOT PROVEN"
#: The exit status of a run that is done, and whose operator has accepted that not all of it is proven.
UNPROVEN = 3


def render(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns are as wide as their widest cell; the last column is not padded. A cell is one line, and harmless."""
    cells = [[one_line(cell) for cell in row] for row in (headers, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headers))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def folded(rows: Sequence[Sequence[str]], vary: Collection[int] = (), node: int = 0) -> list[list[str]]:
    """With many hosts, rows that differ only in the column `node` as one row, in the order of the first of them. Columns of `vary` may
    differ too, but not in what is NOT PROVEN; the row then has that, or `various`."""
    if not detail.folds():
        return [list(row) for row in rows]
    alike: dict[tuple[str, ...], list[Sequence[str]]] = {}
    for row in rows:
        key = tuple(_unproven(cell) if column in vary else cell for column, cell in enumerate(row) if column != node)
        alike.setdefault(key, []).append(row)
    return [[_cell(group, column, node) for column in range(len(group[0]))] for group in alike.values()]


def _cell(group: Sequence[Sequence[str]], column: int, node: int) -> str:
    if column == node:
        return detail.hosts([row[node] for row in group])
    first = group[0][column]
    return first if all(row[column] == first for row in group) else _unproven(first) or "various"


def _unproven(cell: str) -> str:
    """From NOT_PROVEN on; "" if the cell does not have it."""
    place = cell.find(NOT_PROVEN)
    return cell[place:] if place >= 0 else ""


def end_by_consent(proofs: Iterable[str], consents: Collection[str]) -> None:
    """If one of the proofs of a run has NOT_PROVEN, and these consents of its operator let it continue: pyinfra ends with UNPROVEN instead
    of 0. Only a run that has not failed."""
    if consents and any(NOT_PROVEN in proof for proof in proofs):
        show(f"\n{NOT_PROVEN}: not all of it, see above; accepted by {' and '.join(consents)}, so the exit status is {UNPROVEN}.")
        end_with(UNPROVEN)


def short(text: str, most: int = CELL) -> str:
    """Shorten a text for a cell; the full text is shown elsewhere."""
    return text if len(text) <= most else text[: most - 3] + "..."


def counted(number: int, thing: str) -> str:
    """`1 change`, `2 changes`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
