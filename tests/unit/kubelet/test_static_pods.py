"""The gate of a kubelet that recreates its static pods: by minor, and by its values before and after."""

from __future__ import annotations

import pytest

from roles.engine.kubelet.static_pods import recreated_by, warning


@pytest.mark.parametrize(
    ("minor", "before", "after", "recreates"),
    [
        (32, None, True, True),
        (27, False, True, True),
        (32, True, None, True),
        (32, True, True, False),
        (32, None, False, False),
        (33, True, False, False),
        (26, None, True, False),
        (None, None, True, False),
    ],
)
def test_it_is_the_change_of_the_default_that_counts(minor: int | None, before: bool | None, after: bool | None, recreates: bool) -> None:
    assert recreated_by(minor, {"InPlacePodVerticalScaling": {"before": before, "after": after}}) is recreates
    assert not recreated_by(minor, {"Other": {"before": before, "after": after}})


def test_the_components_are_named() -> None:
    assert "(kube-apiserver, kube-scheduler, and etcd and others if they run here)" in warning({"kube-scheduler", "kube-apiserver"})
    assert "recreates this node's static pods, if it has any" in warning(()) and "API is down" not in warning(())
