"""Nodes for the checks, from the answers of tests/unit/node/node.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from roles.checks import Evidence, judge
from roles.checks.evidence import KUBELET, Health, Moment, of_observation
from roles.desired import NodeDesired
from tests.unit.node import node
from tests.unit.node.node import parse

APISERVER = ("kube-apiserver", "--secure-port=6443")
CONFIGURATION = {
    "staticPodPath": "/etc/kubernetes/manifests",
    "maxPods": 110,
    "evictionHard": {
        "memory.available": "100Mi",
        "nodefs.available": "10%",
        "nodefs.inodesFree": "5%",
        "imagefs.available": "15%",
        "imagefs.inodesFree": "5%",
    },
}
READY = {"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]}}
UNIT = {"ActiveState": "active", "SubState": "running", "UnitFileState": "enabled", "NRestarts": "0", "MainPID": "100", "Result": "success"}


def moments(*changes: Mapping[str, str], start: int = 5000) -> tuple[Moment, ...]:
    return tuple(Moment(1000.5 + number, start, {**UNIT, **change}) for number, change in enumerate(changes or ({}, {}, {})))


def evidence(
    *,
    components: Mapping[str, Sequence[str]] | None = None,
    manifests: Mapping[str, bytes] | None = None,
    configuration: Any = None,
    **answer: Any,
) -> Evidence:
    """A healthy node, changed by the arguments; with `components` a control-plane node."""
    components = dict(components or {})
    files = {f"{name}.yaml": node.manifest(name, *argv[1:]) for name, argv in components.items()}
    found = of_observation(parse("w1", node.answer(components=components, manifests={**files, **(manifests or {})}, **answer)))
    return replace(
        found,
        moments=moments(),
        health=dict.fromkeys([KUBELET, *components], Health("200", "ok")),
        effective={name: {} for name in (KUBELET, *components)},
        configuration=CONFIGURATION if configuration is None else configuration,
        node=READY,
        obstacles=(),
    )


def verdicts(found: Evidence, desired: NodeDesired | None = None) -> dict[str, tuple[str, str]]:
    return {result.check: (result.outcome, result.why) for result in judge.node(found, desired or NodeDesired())}


def failed(found: Evidence, desired: NodeDesired | None = None) -> dict[str, str]:
    """The reason of each check that fails."""
    return {check: why for check, (outcome, why) in verdicts(found, desired).items() if outcome == "fail"}
