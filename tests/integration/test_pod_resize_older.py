"""Pods resized in place on the older minor, where the gate for it is off and a kubelet says later than the API what cannot be."""

from __future__ import annotations

import pytest

from tests.integration import test_pod_resize as resizing
from tests.integration.test_pod_resize import as_found
from tests.lab import Lab

pytestmark = [pytest.mark.lab, pytest.mark.older]

__all__ = ["as_found"]  # an autouse fixture; it works here, too


def test_the_whole_story(lab: Lab) -> None:
    resizing.test_the_whole_story(lab)


def test_more_than_the_node_has(lab: Lab) -> None:
    resizing.test_more_than_the_node_has(lab)


def test_an_infeasible_that_comes_late(lab: Lab) -> None:
    assert resizing.minor(lab) < 33, "elsewhere it has nothing to show"
    resizing.test_an_infeasible_that_comes_late(lab)
