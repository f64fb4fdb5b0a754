"""A node whose files are in a folder of the test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.reboot.world import Node


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)
