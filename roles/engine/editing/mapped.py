"""Decoded bytes that remember their positions in the file, so that an edit can change exactly these positions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from roles.engine.editing.errors import FormatError

Span = tuple[int, int]


@dataclass(frozen=True)
class Mapped:
    """`text` as it is read, and for each of its bytes the span of the file that it was read from.

    `extent` is the span of the whole with its quotes. `source` names the file (an index or path the caller chose).
    """

    text: bytes
    spans: tuple[Span, ...]
    extent: Span
    source: str = ""

    def slice(self, start: int, end: int) -> Mapped:
        spans = self.spans[start:end]
        if spans:
            extent = (spans[0][0], spans[-1][1])
        elif start < len(self.spans):
            extent = (self.spans[start][0],) * 2
        else:
            extent = ((self.spans[-1][1] if self.spans else self.extent[1]),) * 2
        return Mapped(self.text[start:end], spans, extent, self.source)

    @property
    def string(self) -> str:
        return self.text.decode("utf-8", "surrogateescape")

    @staticmethod
    def of(data: bytes, start: int = 0, end: int | None = None, source: str = "") -> Mapped:
        """A part of a file, read literally."""
        stop = len(data) if end is None else end
        return Mapped(data[start:stop], tuple((i, i + 1) for i in range(start, stop)), (start, stop), source)


@dataclass(frozen=True)
class Splice:
    """Replaces the file's bytes start..end with `text`."""

    start: int
    end: int
    text: bytes
    source: str = ""


def apply(data: bytes, splices: Iterable[Splice]) -> bytes:
    """The file with the splices applied; those at one position keep their order. Only removals may overlap (neighbours share a blank, a
    variable can be used twice); FormatError for anything else."""
    result = bytearray()
    position = 0
    for splice in sorted(splices, key=lambda splice: (splice.start, splice.end)):
        if splice.start < position and splice.text:
            raise FormatError("two edits overlap", value=splice.text.decode("utf-8", "replace"), way_out="edit it by hand")
        result += data[position : splice.start] + splice.text
        position = max(position, splice.end)
    return bytes(result + data[position:])


def line_of(data: bytes, position: int) -> int:
    """1-based number of the line of a position."""
    return data.count(b"\n", 0, position) + 1


class Builder:
    """Collects a Mapped byte by byte."""

    def __init__(self, source: str) -> None:
        self.text = bytearray()
        self.spans: list[Span] = []
        self.source = source

    def add(self, byte: int, span: Span) -> None:
        self.text.append(byte)
        self.spans.append(span)

    def add_all(self, values: Sequence[int], span: Span) -> None:
        for value in values:
            self.add(value, span)

    def truncate(self, length: int) -> None:
        del self.text[length:]
        del self.spans[length:]

    def __len__(self) -> int:
        return len(self.text)

    def done(self, extent: Span) -> Mapped:
        return Mapped(bytes(self.text), tuple(self.spans), extent, self.source)
