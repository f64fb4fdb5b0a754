"""Pods resized in place on the older minor, where the gate for it is off: stories of test_pod_resize.py, whose kubelet and API server
say and do other things there."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.integration import test_pod_resize as stories

# Fixtures of the stories: pytest finds them by these names.
from tests.integration.test_pod_resize import as_found, nothing_left  # noqa: F401
from tests.lab import Lab, binaries

pytestmark = [pytest.mark.lab, pytest.mark.older]


@pytest.fixture(scope="module", autouse=True)
def older(lab: Lab) -> Iterator[None]:
    """The lab runs the older minor; the gate that the first story turns on, on all nodes, is off again in the end."""
    if lab.version != binaries.OLDER_VERSION:
        why = f"the lab runs Kubernetes {lab.version}, and this needs {binaries.OLDER_VERSION} (KUBE_VERSION)"
        (pytest.fail if os.environ.get("DAYTWO_LAB") == "1" else pytest.skip)(why)
    yield
    lab.reset()


def test_the_whole_story_where_the_gate_is_off(lab: Lab) -> None:
    stories.test_the_whole_story(lab)


def test_more_than_the_node_has_and_only_the_kubelet_says_so(lab: Lab) -> None:
    stories.test_more_than_the_node_has(lab)


def test_an_infeasible_that_comes_late_while_the_kubelet_is_held(lab: Lab) -> None:
    stories.test_an_infeasible_that_comes_late(lab)
