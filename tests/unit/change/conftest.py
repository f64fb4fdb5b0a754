"""The scratch node that change.sh is tried on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.change.scratch import Scratch, health


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Of something that always answers 200."""
    with health() as found:
        yield found


@pytest.fixture
def node(tmp_path: Path, url: str) -> Iterator[Scratch]:
    """With its change laid down, not yet applied."""
    made = Scratch(tmp_path / "node", url)
    made.lay_down()
    yield made
    made.end()
