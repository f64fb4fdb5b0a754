"""Values of a KubeletConfiguration compared by what they mean."""

from __future__ import annotations

from typing import Any

import pytest

from roles.kubelet import lookup, same_setting


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("5m", "300s", True),
        ("5m0s", "5m", True),
        ("5m", "5s", False),
        ("1Gi", "1024Mi", True),
        ("100m", "0.1", True),
        ("10%", "10%", True),
        ("10%", "11%", False),
        ({}, None, True),
        ("", None, True),
        (0, None, False),
        (True, 1, False),
        (1, True, False),
        ({"cpu": "1"}, {"cpu": "1000m"}, True),
        ({"cpu": "1"}, {"cpu": "1", "pid": "5"}, False),
        (["a", "b"], ["b", "a"], False),
        (["1Gi"], ["1024Mi"], True),
    ],
)
def test_what_a_kubelet_takes_for_the_same(one: Any, other: Any, same: bool) -> None:
    assert same_setting(one, other) is same and same_setting(other, one) is same


def test_a_field_is_found_by_its_dotted_name() -> None:
    configuration = {"authentication": {"webhook": {"enabled": False}}, "maxPods": 5}
    assert lookup(configuration, "authentication.webhook.enabled") is False
    assert lookup(configuration, "maxPods.enabled") is None and lookup(configuration, "authentication.x509.file") is None
