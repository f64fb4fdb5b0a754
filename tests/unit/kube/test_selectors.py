"""Label selectors, as Kubernetes reads them."""

from __future__ import annotations

from typing import Any

import pytest

from roles.engine.kube.selectors import label_selector, query_of


@pytest.mark.parametrize(
    ("selector", "labels", "matches"),
    [
        (None, {"app": "web"}, False),
        ({}, {"app": "web"}, True),
        ({}, None, True),
        ({"matchLabels": {}, "matchExpressions": []}, None, True),
        ({"matchLabels": {"app": "web"}}, {"app": "web", "x": "y"}, True),
        ({"matchLabels": {"app": "web"}}, {"app": "db"}, False),
        ({"matchLabels": {"app": ""}}, {}, False),
        ({"matchLabels": {"app": "web", "x": "y"}}, {"app": "web"}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]}, {"app": "b"}, True),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]}, {}, False),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]}, {"app": "a"}, False),
        # A label that is not there is not in the list.
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]}, {}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, {"app": ""}, True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, {"app": ""}, False),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, {}, True),
        ({"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "Exists"}]}, {"a": "1"}, False),
        # Kubernetes cannot read these, and then they match nothing.
        ({"matchExpressions": [{"key": "app", "operator": "Gt", "values": ["1"]}]}, {"app": "2"}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": []}]}, {"app": "2"}, False),
        ({"matchExpressions": [{"key": "app", "operator": "Exists", "values": ["x"]}]}, {"app": "2"}, False),
        # Keys and values that no label can have: not even their absence matches.
        ({"matchExpressions": [{"key": "a/b/c", "operator": "DoesNotExist"}]}, {}, False),
        ({"matchExpressions": [{"key": "/c", "operator": "DoesNotExist"}]}, {}, False),
        ({"matchExpressions": [{"key": "", "operator": "DoesNotExist"}]}, {}, False),
        ({"matchExpressions": [{"key": "Upper.example/c", "operator": "DoesNotExist"}]}, {}, False),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b c"]}]}, {}, False),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b" * 64]}]}, {}, False),
        ({"matchLabels": {"a/b/c": "x"}}, {"a/b/c": "x"}, False),
        ({"matchLabels": {"example.org/c": "x"}}, {"example.org/c": "x"}, True),
    ],
)
def test_matches(selector: dict[str, Any] | None, labels: dict[str, str] | None, matches: bool) -> None:
    assert label_selector(selector).matches(labels) is matches


def test_everything_and_nothing_are_told_apart() -> None:
    assert label_selector({}).matches_everything
    assert not label_selector(None).matches_everything
    assert not label_selector({"matchLabels": {"app": "web"}}).matches_everything
    assert not label_selector({"matchExpressions": [{"key": "a", "operator": "Odd"}]}).matches_everything


def test_text() -> None:
    expressions = [
        {"key": "tier", "operator": "NotIn", "values": ["a", "b"]},
        {"key": "x", "operator": "Exists"},
        {"key": "y", "operator": "DoesNotExist"},
    ]
    assert str(label_selector({"matchLabels": {"app": "web"}, "matchExpressions": expressions})) == "app=web, tier notin (a,b), x, !y"
    assert (str(label_selector(None)), str(label_selector({}))) == ("no selector", "{}")


def test_a_selector_as_a_query() -> None:
    expressions = [
        {"key": "tier", "operator": "In", "values": ["b", "a"]},
        {"key": "x", "operator": "NotIn", "values": ["y"]},
        {"key": "z", "operator": "Exists"},
        {"key": "w", "operator": "DoesNotExist"},
    ]
    found = query_of({"matchLabels": {"app": "web"}, "matchExpressions": expressions})
    assert found == "app=web,tier in (a,b),x notin (y),z,!w"
    assert query_of(None) == ""
    with pytest.raises(ValueError, match="not a valid label selector operator"):
        query_of({"matchExpressions": [{"key": "a", "operator": "Near"}]})
