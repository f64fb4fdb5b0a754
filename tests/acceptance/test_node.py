"""What must hold on a node and in the cluster before and after a change: each check of roles/checks is a test."""

from __future__ import annotations

import pytest

from tests.acceptance.conftest import hold


def test_node(request: pytest.FixtureRequest, node_check: tuple[str, str]) -> None:
    """One check of one node; roles/checks/judge.py says what holds if it passes."""
    assert hold(request.config, *node_check)


def test_cluster(request: pytest.FixtureRequest, cluster_check: tuple[str, str]) -> None:
    """One check of the cluster's objects."""
    assert hold(request.config, *cluster_check)
