"""What a run as a whole refuses, and what it reports about components that it does not change."""

from __future__ import annotations

import re
from typing import Any

import pytest

from roles import feature_gates
from roles.engine import folding
from roles.engine.node_changes import Verdicts
from roles.engine.node_changes.capability import by_warning
from roles.feature_gates import COMPONENTS, DesiredGates, NodeGates, judge_gates, plan_gates
from tests.unit.kubelet_config.world import Now, state
from tests.unit.node import node
from tests.unit.node.node import parse
from tests.unit.node.surveyed import surveyed

CONTROL_PLANE = {name: (name, "--v=2") for name in COMPONENTS[:3]}
MANIFESTS = {f"{name}.yaml": node.manifest(*argv) for name, argv in CONTROL_PLANE.items()}


def made(desired: DesiredGates, host: str = "n1", **changes: Any) -> NodeGates:
    return plan_gates("r1", surveyed(parse(host, node.answer(**changes))), desired)


def control(desired: DesiredGates) -> NodeGates:
    return made(desired, "cp1", manifests=MANIFESTS, components=CONTROL_PLANE)


def test_a_run_whose_gates_no_component_reads_is_refused() -> None:
    gate = DesiredGates(feature_gates={"HPAScaleToZero": True})
    (refusal,) = feature_gates._without_reader([made(gate)])
    assert "HPAScaleToZero: no component of the chosen nodes reads it (read by kube-apiserver, kube-controller-manager)" in refusal
    assert "all_components=true" in refusal
    assert feature_gates._without_reader([made(gate), control(gate)]) == []


def test_left_out_components_are_listed_once_for_all_nodes() -> None:
    gate = DesiredGates(feature_gates={"HPAScaleToZero": True})
    (text,) = feature_gates._left_out([control(gate), made(gate), made(gate, "n2")])
    assert "LEFT OUT cp1, n1, n2: kubelet is not changed for HPAScaleToZero: it does not read it" in text
    assert "LEFT OUT cp1: kube-scheduler" in text and "kube-apiserver is not changed" not in text
    assert feature_gates._left_out([control(DesiredGates(feature_gates={"NoSuchGate": True}))]) == []


def test_of_many_hosts_left_out_components_share_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = DesiredGates(feature_gates={"HPAScaleToZero": True})
    plans = [control(gate), *(made(gate, f"n{number}") for number in range(1, 20))]
    monkeypatch.setattr(folding, "_hosts", 20)
    (text,) = feature_gates._left_out(plans)
    expected = "LEFT OUT 20 hosts: cp1, n1-n19: kube.*, kube.* are not changed for HPAScaleToZero: it does not read it .*; to restart these too: .*"
    assert re.fullmatch(expected, text), text


def test_a_source_that_keeps_the_gate_is_reported() -> None:
    environment = b"KUBELET_EXTRA_ARGS=--feature-gates=HPAScaleToZero=true\n"
    argv = (*node.KUBEADM_ARGV, "--feature-gates=HPAScaleToZero=true")
    desired = DesiredGates(feature_gates={"HPAScaleToZero": "absent"})  # type: ignore[dict-item]
    (text,) = feature_gates._left_out([made(desired, files={"/etc/default/kubelet": environment}, argv=argv)])
    assert "its sources set it to true anyway, and stay as they are" in text


def test_equal_warnings_of_several_nodes_are_shown_once() -> None:
    gate = DesiredGates(feature_gates={"A": True})
    plans = [judge_gates(made(gate, host), Verdicts({"kubelet": ""}), gate, {}) for host in ("n1", "n2")]
    assert [*by_warning(plans).values()] == [["n1", "n2"]]


def test_a_restart_for_a_gate_applies_what_the_files_say_as_with_every_other_deploy() -> None:
    plan = made(
        DesiredGates(feature_gates={"A": True}),
        files={"/var/lib/kubelet/config.yaml": node.CONFIG + b"maxPods: 20\nfeatureGates: {B: true}\n"},
    )
    (one, two) = feature_gates._with_restart_warnings(Now(state()), plan).warnings
    assert {one, two} == {
        "a restart also applies: maxPods is 20 in its files, but the kubelet runs with 110",
        'a restart also applies: featureGates is {"B": true} in its files, but the kubelet runs with (not set)',
    }
    assert feature_gates._with_restart_warnings(Now(state(maxPods=20, featureGates={"B": True})), plan).warnings == ()
    assert "it is unknown whether a restart" in feature_gates._with_restart_warnings(Now(None), plan).warnings[0]


def test_a_node_without_a_change_is_not_restarted_and_applies_nothing() -> None:
    config = node.CONFIG + b"maxPods: 1\nfeatureGates: {A: true}\n"
    plan = made(DesiredGates(feature_gates={"A": True}), files={"/var/lib/kubelet/config.yaml": config})
    assert feature_gates._with_restart_warnings(Now(None), plan).warnings == ()


@pytest.mark.parametrize(
    ("components", "directions", "refused"),
    [
        (COMPONENTS, [{True}, {True}, {True}, {True}], False),
        (COMPONENTS, [{False}] * 4, False),
        (COMPONENTS, [{True}, {False}, set(), set()], True),
        (COMPONENTS, [{True, False}] * 4, True),
        (("kubelet",), [{True, False}], False),
    ],
)
def test_one_run_has_one_direction(components: tuple[str, ...], directions: list[set[bool]], refused: bool) -> None:
    plan = control(DesiredGates(feature_gates={"NoSuchGate": True}))
    changing = [planned for planned in plan.planned if planned.component in components]
    assert bool(feature_gates._both_directions(changing, directions)) is refused
