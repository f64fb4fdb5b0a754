"""Conditions of an object."""

from __future__ import annotations

from roles.engine.kube import condition, holds, is_ready


def test_a_condition_is_found_by_its_type() -> None:
    pod = {"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "False", "reason": "x"}]}}
    assert condition(pod, "PodScheduled")["reason"] == "x" and condition(pod, "Other") == condition({}, "Ready") == {}
    assert is_ready(pod) and not holds(pod, "PodScheduled") and not holds({"status": None}, "Ready")
