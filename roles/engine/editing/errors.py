"""The one error of the editors."""

from __future__ import annotations


class FormatError(ValueError):
    """A file is invalid, or an edit of it is ambiguous.

    `rule` is what is wrong, `value` the offending text, `line` (1-based) its line, `way_out` what an operator can do.
    The caller, which knows the host and the file, adds them (`in_file`).
    """

    def __init__(
        self, rule: str, *, value: str | None = None, line: int | None = None, way_out: str | None = None, file: str | None = None
    ) -> None:
        self.rule, self.value, self.line, self.way_out, self.file = rule, value, line, way_out, file
        super().__init__(rule)

    def in_file(self, path: str, line: int | None = None) -> FormatError:
        """The same error with the file (and the line, if it has none itself)."""
        where = self.line or (line if self.file is None else None)
        return FormatError(self.rule, value=self.value, line=where, way_out=self.way_out, file=self.file or path)

    def __str__(self) -> str:
        place = ", ".join(part for part in (self.file, f"line {self.line}" if self.line else None) if part)
        shown = f": {self.value!r}" if self.value is not None else ""
        return f"{place + ': ' if place else ''}{self.rule}{shown}{'; ' + self.way_out if self.way_out else ''}"
