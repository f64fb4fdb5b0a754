"""The desired gates of a component, compared with the gates that it runs with."""

from __future__ import annotations

from typing import Any

import pytest

from roles.engine import control_plane, kubelet
from roles.engine.api import GateMetric
from roles.engine.control_plane import Component
from roles.engine.kubelet import Kubelet
from roles.feature_gates import DesiredGates, unmet, wanted_of
from tests.unit.node import node
from tests.unit.node.node import parse

CONFIG = "/var/lib/kubelet/config.yaml"
APISERVER = "kube-apiserver"


def kubelet_with(lines: bytes = b"") -> Kubelet:
    return kubelet.find(parse("w1", node.answer(files={CONFIG: node.CONFIG + lines})))


def apiserver(manifest: str = "", process: str = "") -> Component:
    seen = parse(
        "cp1",
        node.answer(
            manifests={f"{APISERVER}.yaml": node.manifest(APISERVER, *manifest.split())},
            components={APISERVER: (APISERVER, *process.split())},
        ),
    )
    return control_plane.look(kubelet.find(seen)).components[APISERVER]


def metrics(**gates: bool) -> dict[str, GateMetric]:
    return {name: GateMetric("ALPHA", enabled) for name, enabled in gates.items()}


def test_metrics_are_the_best_evidence() -> None:
    wanted = {"A": True, "B": False, "C": True}
    found = unmet(apiserver("--feature-gates=A=true", "--feature-gates=A=true"), wanted, metrics(A=False, B=False))
    assert [(one.gate, one.wanted, one.found, one.by, one.known) for one in found] == [
        ("A", True, False, "metrics", True),
        ("C", True, None, "metrics", True),
    ]
    assert [str(one) for one in found] == [
        "kube-apiserver runs with A=false, wanted true",
        "kube-apiserver does not publish C (kubernetes_feature_enabled, 1.26 and later)",
    ]


@pytest.mark.parametrize(
    ("manifest", "process", "wanted", "expected"),
    [
        ("A=true", "A=true", True, None),
        ("A=true", "", True, "kube-apiserver: A is absent in its flags and files, wanted true"),
        ("A=false", "A=true", False, "kube-apiserver: A is true in its flags and files, wanted false"),
        ("", "A=true", None, "kube-apiserver: A=true is set, wanted absent"),
        ("A=false", "", None, "kube-apiserver: A=false is set, wanted absent"),
        ("", "", None, None),
    ],
)
def test_without_metrics_the_process_itself_counts(manifest: str, process: str, wanted: bool | None, expected: str | None) -> None:
    found = unmet(apiserver(*(f"--feature-gates={gates}" if gates else "" for gates in (manifest, process))), {"A": wanted}, None)
    assert [str(one) for one in found] == ([expected] if expected else []) and all(one.known for one in found)


def test_a_kubelets_files_count() -> None:
    found = kubelet_with(b"featureGates:\n  A: true\n")
    assert control_plane.sourced_gates(found) == {"A": True}
    assert unmet(found, {"A": True}, None) == []
    assert [str(one) for one in unmet(found, {"A": False}, None)] == ["kubelet: A is true in its flags and files, wanted false"]
    assert [str(one) for one in unmet(found, {"A": None}, metrics(A=False))] == ["kubelet: A=true is set, wanted absent"]


def test_only_metrics_show_whether_a_gate_is_off_by_default() -> None:
    (found,) = unmet(kubelet_with(), {"A": False}, None)
    assert (found.gate, found.known) == ("A", False)
    assert unmet(kubelet_with(), {"A": False}, metrics(A=False)) == []


def test_an_unreadable_manifest_sets_nothing() -> None:
    odd = apiserver("--feature-gates=A", "--feature-gates=A")
    assert control_plane.sourced_gates(odd) == {} and [one.found for one in unmet(odd, {"A": True}, None)] == [None]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({}, {"NodeSwap": True}),
        ({"components": "kubelet"}, {"NodeSwap": True, "HPAScaleToZero": None}),
        ({"all_components": True}, {"NodeSwap": True, "HPAScaleToZero": None}),
        ({"components": APISERVER}, {}),
        ({"only": "w1"}, {"NodeSwap": True}),
        ({"only": "w2"}, {}),
    ],
)
def test_the_desired_gates_of_a_kubelet(data: dict[str, Any], expected: dict[str, bool | None]) -> None:
    desired = DesiredGates(feature_gates={"kube:NodeSwap": True, "HPAScaleToZero": "absent"}, **data)  # type: ignore[dict-item]
    assert wanted_of("w1", "kubelet", kubelet_with().process, desired) == expected
