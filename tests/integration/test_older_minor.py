"""Pods resized in place on the older minor, where the gate for it is off: stories of test_pod_resize.py, whose kubelet and API server
say and do other things there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration import resizing
from tests.lab import Lab

pytestmark = [pytest.mark.lab, pytest.mark.older]

# Fixtures: pytest finds them by these names.
as_found, nothing_left = resizing.as_found, resizing.nothing_left


@pytest.fixture(scope="module", autouse=True)
def off_again(lab: Lab, older: None) -> Iterator[None]:
    """The gate that the first story turns on, on all nodes, is off again in the end."""
    yield
    lab.reset()


def test_the_whole_story_where_the_gate_is_off(lab: Lab) -> None:
    resizing.the_whole_story(lab)


def test_more_than_the_node_has_and_only_the_kubelet_says_so(lab: Lab) -> None:
    resizing.more_than_the_node_has(lab)


def test_an_infeasible_that_comes_late_while_the_kubelet_is_held(lab: Lab) -> None:
    resizing.an_infeasible_that_comes_late(lab)
