"""A value of another type than a kubelet reads is refused, with its place, where the configuration is read: in a file, and at /configz."""

from __future__ import annotations

import json
from typing import Any

import pytest

from roles.engine.bounds import misshaped
from roles.engine.kubelet import SHAPE, find
from roles.engine.transaction import Refusal
from tests.unit.node import node

HEAD = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}


def test_what_a_kubelet_shows_fits() -> None:
    shown = {
        "evictionHard": {"memory.available": "1Gi", "nodefs.available": "10%", "pid.available": "0%"}, "systemReserved": {"cpu": "100m"},
        "maxPods": 5, "authentication": {"webhook": None, "anonymous": {"enabled": False}}, "reservedMemory": [{"limits": {"memory": 1}}],
    }  # fmt: skip
    assert misshaped(shown, SHAPE) == ""


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ({"evictionHard": {"memory.available": "much"}}, "evictionHard.memory.available: 'much' is not a quantity"),
        ({"evictionHard": {"memory.available": None}}, "evictionHard has a null"),
        ({"evictionSoftGracePeriod": {"memory.available": "soon"}}, "'soon' is not a duration"),
        ({"systemReserved": {"cpu": 1}}, "systemReserved.cpu is no text"),
        ({"authentication": {"webhook": 5}}, "authentication.webhook is no map"),
        ({"authorization": {"mode": []}}, "authorization.mode is no text"),
        ({"staticPodPath": ["/x"]}, "staticPodPath is no text"),
        ({"maxPods": "110"}, "maxPods is no number"),
        ({"authentication": {"webhook": {"enabled": "yes"}}}, "authentication.webhook.enabled is neither true nor false"),
        ({"shutdownGracePeriodByPodPriority": [{"shutdownGracePeriodSeconds": "x"}]}, "shutdownGracePeriodSeconds is no number"),
    ],
)
def test_what_no_kubelet_starts_with_is_refused(found: dict[str, Any], why: str) -> None:
    assert why in misshaped(found, SHAPE)
    lines = node.answer(files={"/var/lib/kubelet/config.yaml": json.dumps({**HEAD, **found}).encode()})
    with pytest.raises(Refusal, match="would not start again") as refused:
        find(node.parse("w1", lines))
    assert f"/var/lib/kubelet/config.yaml: {misshaped(found, SHAPE)}" in refused.value.text
