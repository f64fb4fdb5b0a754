"""The pod that proves that a node can start pods."""

from __future__ import annotations

from typing import Any

import pytest

from roles.engine.starting import probe


def test_the_image_of_a_probe() -> None:
    names = [["registry.local/app:1"], ["registry.k8s.io/pause@sha256:ab", "registry.k8s.io/pause:3.10"]]
    item = {"metadata": {"name": "w1"}, "status": {"images": [{"names": one} for one in names]}}
    assert probe.image_of(item) == "registry.k8s.io/pause:3.10"
    assert probe.image_of({"metadata": {"name": "w1"}, "status": {"images": [{"names": ["registry.local/unpaused:1"]}]}}) == ""


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({}, "waits"),
        ({"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}, "waits"),
        ({"conditions": [{"type": "PodReadyToStartContainers", "status": "True"}]}, "sandbox"),
        ({"phase": "Running", "containerStatuses": [{"state": {"running": {"startedAt": "x"}}}]}, "runs"),
        ({"phase": "Failed", "reason": "OutOfpods", "message": "too many"}, "failed"),
    ],
)
def test_how_far_it_is(status: dict[str, Any], state: str) -> None:
    assert probe.state_of({"status": status}) == state


def test_why_it_does_not_start() -> None:
    events = [
        {"type": "Normal", "message": "pulled"},
        {"type": "Warning", "message": "Failed to create pod sandbox: open /run/x:\x1b no such file"},
    ]
    assert probe.why_not({}, events) == "Failed to create pod sandbox: open /run/x:\\x1b no such file"
    assert probe.why_not({"status": {"reason": "OutOfpods", "message": "too many"}}, []) == "OutOfpods: too many"
    assert probe.why_not({}, []) == "its kubelet says nothing of it"


def test_its_object() -> None:
    made = probe.probe_pod("20261126T2100-abc", "node-1.example", "", 60)
    assert made["spec"]["nodeName"] == "node-1.example" and made["metadata"]["name"] == "daytwo-probe-20261126t2100-abc-node-1.example"
    assert made["spec"]["activeDeadlineSeconds"] == 60 and made["spec"]["containers"][0]["imagePullPolicy"] == "Never"
