"""The scripts that nodes run, rendered from templates/."""

from __future__ import annotations

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


@cache
def pages() -> jinja2.Environment:
    """The same for HTML: values are escaped, also characters that could deceive a reader (roles/engine/harmless.py)."""
    return templates().overlay(autoescape=True, finalize=_shown)


def _shown(value: object) -> object:
    # Markup comes from a macro, whose values have already been escaped here.
    return harmless(value) if type(value) is str else value
