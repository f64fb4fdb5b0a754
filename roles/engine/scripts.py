"""The scripts that nodes run, rendered from templates/, and the fields of their answers."""

from __future__ import annotations

import base64
import shlex
from functools import cache
from pathlib import Path

import jinja2

from roles.engine.harmless import harmless

_TEMPLATES = Path(__file__).resolve().parents[2] / "templates"


def _quote(value: str) -> str:
    """A value as one POSIX sh word. Raises ValueError if it does not fit on one line."""
    if any(character in value for character in "\n\r\0"):
        raise ValueError(f"{value!r} contains a line end or a NUL byte, which a line of a script cannot contain")
    return shlex.quote(value) if value else "''"


def _quote_lines(value: str) -> str:
    """A value with line ends as one POSIX sh word. Raises ValueError for a NUL byte."""
    if "\0" in value:
        raise ValueError(f"{value!r} contains a NUL byte, which a script cannot contain")
    return shlex.quote(value) if value else "''"


@cache
def templates() -> jinja2.Environment:
    """The templates of daytwo; `| sh` quotes for POSIX sh, and an undefined name is an error."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - shell scripts, not HTML; every value goes through `| sh`
    )
    environment.filters["sh"] = _quote
    environment.filters["quoted"] = _quote_lines
    return environment


def filled(template: str, /, **values: object) -> str:
    """A template with these values."""
    return templates().get_template(template).render(values)


def decoded(field: str, *, strict: bool = False) -> bytes:
    """A field of a node's answer: a plain word behind a dot, or base64. Scripts add a `=` to a field that may be empty, so that it does not
    disappear between two blanks. Raises binascii.Error; with `strict` also for characters that base64 does not have."""
    body = field.rstrip("=")
    if body.startswith("."):
        return body[1:].encode("ascii")
    return base64.b64decode(body + "=" * (-len(body) % 4), validate=strict)


def decoded_text(field: str, *, strict: bool = False) -> str:
    """The text of such a field, for people."""
    return decoded(field, strict=strict).decode("utf-8", "replace")


def words(command_line: bytes) -> tuple[str, ...]:
    """The words of a command line as proc(5) has it."""
    return tuple(word.decode("utf-8", "surrogateescape") for word in command_line.removesuffix(b"\0").split(b"\0")) if command_line else ()


def properties(text: str) -> dict[str, str]:
    """Lines of NAME=VALUE; others are passed over."""
    return dict(line.partition("=")[::2] for line in text.splitlines() if "=" in line)


def decoded_list(field: str) -> list[str]:
    """The texts of such fields with commas between them."""
    return [decoded_text(one) for one in field.split(",") if one]


@cache
def pages() -> jinja2.Environment:
    """The same for HTML: values are escaped, also characters that could deceive a reader (roles/engine/harmless.py)."""
    return templates().overlay(autoescape=True, finalize=_shown)


def page(template: str, /, **values: object) -> str:
    """An HTML page from a template with these values."""
    return pages().get_template(template).render(values)


def percent(part: int, whole: int) -> float:
    """Of a bar on a page: 0 to 100."""
    return round(100 * min(max(part, 0), whole) / whole, 2) if whole > 0 else 0.0


def _shown(value: object) -> object:
    # Markup comes from a macro, whose values have already been escaped here.
    return harmless(value) if type(value) is str else value
