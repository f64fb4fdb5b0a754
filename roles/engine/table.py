"""Tables for a terminal."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice, zip_longest

from roles.engine import folding, screen
from roles.engine.harmless import one_line
from roles.engine.screen import columns

CELL = 160
# What may differ between hosts that share a row, in columns that vary: what is each host's own (addresses, checksums and IDs, times of a
# clock), and amounts, also with a unit of time. Any other word is an outcome.
_OWN = r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}|(?=\w*[0-9])[0-9a-f]{8,}|[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9:.]+Z?)?"
_VARYING = re.compile(rf"(?<![\w.])({_OWN}|[0-9]+(?:\.[0-9]+)?[smhd]?)(?!\w|\.[0-9])")
# A longer row of digits is an ID.
_LONGEST_AMOUNT = 8
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_GAP, _NARROWEST, _READABLE, _DECIDING, _BELOW = 2, 8, 40, 100, "      "
#: The column that a terminal cuts, unless the data key `verbose` says otherwise, in rows with these outcomes.
PROOF = "proof"
_WELL = {"confirmed", "done", "no change"}
#: How a proof says what it could have shown, and has not: a run with it is not all proven (runs.end_unproven).
NOT_PROVEN = "NOT PROVEN"
#: How a proof says what nothing here can show, although the setting itself is proven.
NO_SIGN = "no sign "


def render(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns are as wide as their widest cell, up to CELL; the last column is not padded. A cell is harmless, and one line, unless a
    terminal is narrower than that: then the last columns wrap at words, or are in lines below their row. A word that is wider than its
    column is whole: it may run over. Of a good proof a terminal has one line."""
    cells = [[one_line(cell) for cell in row] for row in (headers, *rows)]
    widths = [min(max(columns(row[column]) for row in cells), CELL) for column in range(len(headers))]
    most = screen.width()
    lines = [_line(row, widths) for row in cells]
    # A cell that is wider than CELL makes its line longer than the widths say.
    if most is None or max(sum(widths) + _GAP * (len(widths) - 1), *map(columns, lines)) <= most:
        return "\n".join([lines[0], _rule(widths), *lines[1:]])
    layouts = [*_layouts(cells, widths, most)]
    # With many rows, those at their beginning decide.
    widths = min(layouts, key=lambda one: _cost(cells[:_DECIDING], one, most)) if len(layouts) > 1 else layouts[0]
    head, *parts = (_lines(cells[0], row, widths, most) for row in cells)
    return "\n".join([*head, _rule(widths), *(line for part in parts for line in part)])


def _rule(widths: Sequence[int]) -> str:
    return (" " * _GAP).join("-" * width for width in widths)


def _line(cells: Iterable[str], widths: Sequence[int]) -> str:
    padded = (cell + " " * (width - columns(cell)) for cell, width in zip(cells, widths, strict=True))
    return (" " * _GAP).join(padded).rstrip()


def _layouts(cells: Sequence[Sequence[str]], natural: Sequence[int], most: int) -> Iterator[list[int]]:
    """The widths of the columns that can be beside each other, the others are below them. The last ones are narrower than their cells, not
    below _NARROWEST, nor their longest word. From the very last one a word may run over; as a proof it is at least _READABLE."""
    words = [max(columns(word) for row in cells for word in (*screen.words(row[column]), "")) for column in range(len(natural))]
    words[-1] = _READABLE if cells[0][-1] == PROOF else _NARROWEST
    pairs = [*zip(natural, words, strict=True)]
    for beside in range(len(natural), 0, -1):
        room = most - _GAP * (beside - 1)
        for first in reversed(range(beside)):
            levels = range(max(*natural, _NARROWEST), _NARROWEST - 1, -1)
            tried = ([*natural[:first], *(min(cell, max(level, word)) for cell, word in pairs[first:beside])] for level in levels)
            yield from islice((widths for widths in tried if sum(widths) <= room), 1)
    yield [min(natural[0], most)]


def _cost(cells: Sequence[Sequence[str]], widths: Sequence[int], most: int) -> float:
    """Lines; one that runs over counts as four, so that it is the last resort, and columns read better than what is below them."""
    lines = [line for row in cells for line in _lines(cells[0], row, widths, most)]
    return sum(1 + 3 * (columns(line) > most) for line in lines) * (1 if len(widths) == len(cells[0]) else 1.5)


def _lines(headers: Sequence[str], row: Sequence[str], widths: Sequence[int], most: int) -> Iterator[str]:
    """A row: as many of its cells as there are widths are columns, the others are below it."""
    cells, beside = list(row), len(widths)
    if headers[-1] == PROOF and not folding.verbose() and NOT_PROVEN not in row[-1] and _WELL & {*row}:
        cells[-1] = _cut(row[-1], widths[-1] if beside == len(row) else most - len(f"{_BELOW}{PROOF}: "))
    for line in zip_longest(*map(screen.fill, cells[:beside], widths), fillvalue=""):
        yield _line(line, widths)
    below = [f"{header}: {cell}" for header, cell in zip(headers[beside:], cells[beside:], strict=True) if cell not in ("", "-")]
    if below and row is not headers:
        own, *more = (*(f"{one};" for one in below[:-1]), below[-1])
        yield from screen.wrap(_BELOW + own, most, more).split("\n")


def _cut(text: str, most: int) -> str:
    if columns(text) <= most:
        return text
    return next(text[:end] for end in range(most - 3, -1, -1) if columns(text[:end]) <= most - 3).rstrip() + "..."


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


def brief_age(seconds: float) -> str:
    """`90s`, `5m`, `3h`, `2d`."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{max(seconds, 0):.0f}s"


def short(text: str, most: int = CELL) -> str:
    """Shorten a text for a cell, unless the data key `verbose` wants all of it; the record of the run has it in full."""
    return text if len(text) <= most or folding.verbose() else text[: most - 3] + "..."
