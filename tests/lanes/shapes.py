"""Which shape of lab a test needs, by its markers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.lanes.schedule import NONE

# Those of tests.lab.SHAPES; a marker's shape, the first that a test has.
BY_MARKER = {"wide": "wide", "older": "older", "lab": "small"}
SHAPES = tuple(BY_MARKER.values())
_MARKED = re.compile(r"\bmark\.(wide|older|lab)\b")


def of(item: pytest.Item) -> str:
    return next((shape for marker, shape in BY_MARKER.items() if item.get_closest_marker(marker)), NONE)


def may_need_a_lab(module: Path) -> bool:
    """Whether a marker of a lab stands in the text of a module. It saves the lanes with labs the time to load all others."""
    return bool(_MARKED.search(module.read_text(errors="replace")))
