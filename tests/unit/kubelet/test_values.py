"""Values of a KubeletConfiguration compared by what they mean."""

from __future__ import annotations

from typing import Any

import pytest

from roles.engine.kubelet import schema
from roles.engine.kubelet.values import in_effect, lookup, same_setting, shown


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
        (1073741824, "1Gi", True),
        (0.5, "500m", True),
        ({"memory": 1}, {"memory": "2"}, False),
        (1, [1], False),
    ],
)
def test_what_a_kubelet_takes_for_the_same(one: Any, other: Any, same: bool) -> None:
    assert same_setting(one, other) is same and same_setting(other, one) is same


def test_a_field_is_found_by_its_dotted_name() -> None:
    configuration = {"authentication": {"webhook": {"enabled": False}}, "maxPods": 5}
    assert lookup(configuration, "authentication.webhook.enabled") is False
    assert lookup(configuration, "maxPods.enabled") is None and lookup(configuration, "authentication.x509.file") is None


@pytest.mark.parametrize(
    ("wanted", "running", "same"),
    [
        (0, None, True),
        (False, None, True),
        (None, False, True),
        ("0s", None, True),
        (None, "0s", True),
        ([], None, True),
        (5, None, False),
        (True, None, False),
        (None, True, False),
        (0, False, False),
        (0, 5, False),
        ("", "x", False),
    ],
)
def test_what_configz_leaves_out_is_nothing(wanted: Any, running: Any, same: bool) -> None:
    assert in_effect(wanted, running) is same


@pytest.mark.parametrize("minor", [24, 32, 36])
def test_each_default_is_in_effect_as_configz_writes_it(minor: int) -> None:
    """Go writes 1m as 1m0s and 2m as 2m0s; numbers and texts as they are."""
    for name, field in schema.fields(minor).items():
        if isinstance(field.default, str) and field.kind == "duration":
            assert in_effect(field.default, field.default + ("0s" if field.default.endswith("m") else "")), name
        if field.default is not None:
            assert in_effect(field.default, field.default) and not in_effect(field.default, object()), name


def test_a_value_is_shown_as_it_is_written() -> None:
    assert [shown(value) for value in (None, True, "a", ["a"], {"b": 1}, "")] == ["(not set)", "true", "a", '["a"]', '{"b": 1}', '""']
    assert "abc" not in shown({"X": ["abc"]}, "staticPodURLHeader")
