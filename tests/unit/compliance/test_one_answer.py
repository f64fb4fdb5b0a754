"""The audit and the checks give one answer to whether a node is as the inventory wants it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from roles.audit import drift
from roles.audit.node_view import view_of
from roles.desired import read_desired
from roles.engine.kubelet.thresholds import DEFAULT_HARD
from tests.unit.audit.fleet import CONFIG, control_plane, metrics, rows
from tests.unit.checks.world import evidence, verdicts
from tests.unit.node import node

ON = ("--feature-gates=HPAScaleToZero=true",)
RUNNING: dict[str, Any] = {"staticPodPath": "/etc/kubernetes/manifests", "maxPods": 110, "evictionHard": dict(DEFAULT_HARD)}


def answers(
    data: Mapping[str, Any],
    *,
    gates: Mapping[str, bool] | None = None,
    running: Mapping[str, Any] | None = None,
    asked: bool = True,
    components: Mapping[str, tuple[str, ...]] | None = None,
    **answer: Any,
) -> tuple[set[str], set[str]]:
    """What each misses on the host w1: the names of the audit's findings of drift, and of the checks that fail. `gates`: those of
    /metrics that are not as by default; `asked` is False where the API is away."""
    configuration = {**RUNNING, **(running or {})}
    seen = evidence(components=components, configuration=configuration, **answer)
    assert seen.seen is not None
    effective = {name: metrics(**(gates or {})) for name in ("kubelet", *seen.components)}
    if asked:
        seen = replace(seen, effective=effective)
    else:
        seen = replace(seen, effective=dict.fromkeys(effective, "the API is away"), configuration="the API is away")
    looked = replace(view_of(seen.seen), **({"running": effective, "configuration": configuration} if asked else {}))
    wanted = read_desired("w1", data.get)
    found = rows(drift.findings(looked, wanted))
    drifted = {str(each.name) for each in found if each.kind == "drift"}
    about = ("-gates", "kubelet-settings", "eviction-thresholds")
    return drifted, {check for check, (outcome, _) in verdicts(seen, wanted).items() if outcome == "fail" and check.endswith(about)}


def test_a_component_that_is_named_is_held_to_a_gate_that_it_does_not_read() -> None:
    expected = ({"HPAScaleToZero"}, {"kubelet-gates"})
    assert answers({"feature_gates": {"HPAScaleToZero": True}}) == (set(), set())
    assert answers({"feature_gates": {"HPAScaleToZero": True}, "components": "kubelet"}) == expected
    assert answers({"feature_gates": {"HPAScaleToZero": True}, "all_components": True}) == expected


def test_a_gate_with_the_prefix_is_the_one_without_it() -> None:
    node_: dict[str, Any] = {**control_plane(*ON), "gates": {"HPAScaleToZero": True}}
    data = {"components": "kube-apiserver"}
    assert answers({"feature_gates": {"kube:HPAScaleToZero": True}, **data}, **node_) == (set(), set())
    assert answers({"feature_gates": {"kube:HPAScaleToZero": False}, **data}, **node_) == ({"HPAScaleToZero"}, {"kube-apiserver-gates"})
    assert answers({"feature_gates": {"kube:HPAScaleToZero": "absent"}, **data}, **node_) == ({"HPAScaleToZero"}, {"kube-apiserver-gates"})


@pytest.mark.parametrize("value", [False, "absent"])
def test_a_gate_is_left_alone_where_the_deploy_leaves_it_alone(value: Any) -> None:
    """The kubelet does not read it; that its file sets it all the same is told by the audit of its files."""
    config = node.CONFIG + b"featureGates:\n  HPAScaleToZero: true\n"
    found = answers(
        {"feature_gates": {"HPAScaleToZero": value}},
        files={CONFIG: config},
        gates={"HPAScaleToZero": True},
        running={"featureGates": {"HPAScaleToZero": True}},
    )
    assert found == (set(), set())


@pytest.mark.parametrize("only", ["w1", "w9"])
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"feature_gates": {"NodeSwap": False}}, ({"NodeSwap"}, {"kubelet-gates"})),
        ({"kubelet_config": {"maxPods": 77}}, ({"maxPods"}, {"kubelet-settings"})),
        ({"eviction_hard": "memory.available=1Gi"}, ({"evictionHard.memory.available"}, {"eviction-thresholds"})),
    ],
)
def test_hosts_that_the_data_leaves_out_are_held_to_nothing(only: str, data: dict[str, Any], expected: tuple[set[str], set[str]]) -> None:
    assert answers({**data, "only": only}) == (expected if only == "w1" else (set(), set()))


@pytest.mark.parametrize(("wanted", "missed"), [(True, True), (False, False), ("absent", True)])
def test_what_a_manifest_says_is_not_what_the_process_has(wanted: Any, missed: bool) -> None:
    """Without /metrics the process's own arguments count: here the kubelet has not applied the manifest. Absent means in both."""
    changes = {**control_plane(), "manifests": {"kube-apiserver.yaml": node.manifest("kube-apiserver", *ON, "--v=2")}}
    data = {"feature_gates": {"HPAScaleToZero": wanted}, "components": "kube-apiserver"}
    found = answers(data, **changes, asked=False)
    assert found == (({"HPAScaleToZero"}, {"kube-apiserver-gates"}) if missed else (set(), set()))


def test_a_gate_that_only_the_process_still_has() -> None:
    changes = {**control_plane(*ON), "manifests": {"kube-apiserver.yaml": node.manifest("kube-apiserver", "--v=2")}}
    data = {"feature_gates": {"HPAScaleToZero": "absent"}, "components": "kube-apiserver"}
    found = answers(data, **changes)
    assert found == ({"HPAScaleToZero"}, {"kube-apiserver-gates"})


def test_a_gate_that_is_wanted_off_and_of_which_nobody_tells() -> None:
    data = {"feature_gates": {"HPAScaleToZero": False}, "components": "kubelet"}
    assert answers(data, asked=False) == (set(), set())
    assert answers(data) == (set(), set())


def test_one_field_that_no_kubelet_takes_hides_no_threshold() -> None:
    drifted, failed = answers({"kubelet_config": {"maxPodz": 1}, "eviction_hard": "memory.available=1Gi"})
    assert (drifted, failed) == ({"evictionHard.memory.available"}, {"kubelet-settings", "eviction-thresholds"})


@pytest.mark.parametrize(
    ("data", "running", "missed"),
    [
        # Signals that are off are written as 0%, and are no difference.
        ({"eviction_hard": "memory.available=1Gi"}, {"evictionHard": {"memory.available": "100Mi"}}, {"evictionHard.memory.available"}),
        ({"eviction_hard": "pid.available=0%"}, {}, set()),
        ({"eviction_soft": "memory.available=absent"}, {}, set()),
        (
            {"eviction_soft": "memory.available=absent"},
            {"evictionSoft": {"memory.available": "1Gi"}, "evictionSoftGracePeriod": {"memory.available": "1m0s"}},
            {"evictionSoft.memory.available", "evictionSoftGracePeriod.memory.available"},
        ),
        # The same in other words, beside one that differs.
        ({"eviction_hard": "memory.available=1Gi,nodefs.available=10.0%"}, {}, {"evictionHard.memory.available"}),
        ({"eviction_pressure_transition_period": "300s"}, {"evictionPressureTransitionPeriod": "5m0s"}, set()),
        ({"eviction_max_pod_grace_period": 60}, {}, {"evictionMaxPodGracePeriod"}),
    ],
)
def test_thresholds(data: dict[str, Any], running: dict[str, Any], missed: set[str]) -> None:
    assert answers(data, running=running) == (missed, {"eviction-thresholds"} if missed else set())


def test_without_the_api_what_a_file_leaves_out_is_as_by_default() -> None:
    data = {"kubelet_config": {"maxPods": 110, "containerLogMaxSize": "10Mi"}, "eviction_hard": "memory.available=100Mi"}
    assert answers(data, asked=False) == (set(), set())
    drifted, _ = answers({"kubelet_config": {"maxPods": 77}}, asked=False)
    assert drifted == {"maxPods"}
