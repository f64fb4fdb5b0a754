"""Hooks that the lanes call."""

from __future__ import annotations

import pytest

from tests.lanes.labs import LabLike


@pytest.hookspec(firstresult=True)
def pytest_lanes_lab(name: str) -> LabLike:  # type: ignore[empty-body]
    """The lab of the lane `name`. The lanes' own tests give a stand-in here, for there is nothing to test with a real one."""
