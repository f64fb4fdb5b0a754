"""The scratch node that change.sh is tried on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.transaction.scratch import BAD, Scratch, health


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


@pytest.fixture
def stuck(tmp_path: Path, url: str) -> Iterator[Scratch]:
    """A change whose revert has failed: the old process does not start either."""
    made = Scratch(tmp_path / "stuck", url, BAD, revert_timeout=1)
    made.lay_down()
    made.hook("restart", ': >"$S/broken"\n')
    assert made.verb("apply") == 1
    assert made.state == "revert-failed", made.log
    yield made
    made.end()
