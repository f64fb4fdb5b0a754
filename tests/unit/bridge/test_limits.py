"""A run of many hosts has as many open files."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest

from roles.engine.bridge import limits


@pytest.fixture
def hard() -> Iterator[int]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_low_soft_limit_is_raised_and_a_high_one_stays(hard: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    limits.guard()
    soft, unchanged = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert (soft > 256 or soft == hard) and unchanged == hard
    limits.guard()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (soft, hard)
