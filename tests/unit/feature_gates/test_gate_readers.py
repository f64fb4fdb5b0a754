"""Which components are restarted for a gate, which are not, and how a component's own report overrides the catalogue."""

from __future__ import annotations

import pytest

from roles.engine.api import GateMetric
from roles.feature_gates import COMPONENTS, GateStage, gate_readers, load, reported_gates
from roles.feature_gates.gate_readers import LeftOut


@pytest.mark.parametrize(
    ("wanted", "minor", "expected"),
    [
        ({"PodAndContainerStatsFromCRI": True}, 36, {"kubelet": {"PodAndContainerStatsFromCRI"}}),
        ({"HPAScaleToZero": None}, 36, {"kube-apiserver": {"HPAScaleToZero"}, "kube-controller-manager": {"HPAScaleToZero"}}),
        ({"NoSuchGate": True}, 36, {component: {"NoSuchGate"} for component in COMPONENTS}),
        ({"AllAlpha": True}, 36, {component: {"AllAlpha"} for component in COMPONENTS}),
        ({"HPAScaleToZero": True}, None, {component: {"HPAScaleToZero"} for component in COMPONENTS}),
        ({"HPAScaleToZero": True}, 22, {component: {"HPAScaleToZero"} for component in COMPONENTS}),
        (
            {"HPAScaleToZero": True, "PodAndContainerStatsFromCRI": True},
            36,
            {
                "kube-apiserver": {"HPAScaleToZero"},
                "kube-controller-manager": {"HPAScaleToZero"},
                "kubelet": {"PodAndContainerStatsFromCRI"},
            },
        ),
    ],
)
def test_the_components_that_a_gate_concerns(wanted: dict[str, bool | None], minor: int | None, expected: dict[str, set[str]]) -> None:
    assert {component: names for component in COMPONENTS if (names := gate_readers.needed(component, minor, wanted))} == expected


def test_gates_that_depend_on_each_other_stay_together() -> None:
    """A component that reads one of two gates must get both, since it checks dependencies."""
    table = load()
    wanted = {"GracefulNodeShutdown": False, "GracefulNodeShutdownBasedOnPodPriority": False, "WindowsGracefulNodeShutdown": False}
    assert gate_readers.needed("kubelet", 36, wanted) == {*wanted}
    some = [
        (name, other, component)
        for name, gate in table.gates.items()
        for other in gate.depends_on(36)
        for component in COMPONENTS
        if (mine := gate_readers.readers(name, 36)) is not None
        and (its := gate_readers.readers(other, 36)) is not None
        and component in mine
        and component not in its
    ]
    assert some, "there is no such pair: this test shows nothing"
    for name, other, component in some:
        assert gate_readers.needed(component, 36, {name: True, other: True}) == {name, other}


def test_why_it_is_left_out() -> None:
    assert LeftOut("n", "kubelet", "A", ("kube-apiserver",)).why == "it does not read it (kube-apiserver does)"
    assert "kube-apiserver and kube-scheduler do" in LeftOut("n", "kubelet", "A", ("kube-apiserver", "kube-scheduler")).why
    assert LeftOut("n", "kubelet", "A", ()).why == "none of the four components reads it"


# ---- the component's own report

HELP = """
  --feature-gates ...  kube:HPAScaleToZero=true|false (ALPHA - default=false)
                       APIResponseCompression=true|false (BETA - default=true)
                       Fresh=true|false (BETA - default=true)
"""


def test_the_output_of_help_is_read() -> None:
    assert reported_gates.parse_help(HELP) == {
        "HPAScaleToZero": GateStage("Alpha", False),
        "APIResponseCompression": GateStage("Beta", True),
        "Fresh": GateStage("Beta", True),
    }


def metrics_as_in_the_catalogue(minor: int) -> dict[str, GateMetric]:
    table = load()
    labels = {"Alpha": "ALPHA", "Beta": "BETA", "GA": "", "Deprecated": "DEPRECATED"}
    stages = {name: table.gates[name].at(minor) for name in table.known(minor)}
    return {name: GateMetric(labels[stage.stage], stage.default) for name, stage in stages.items() if stage}


def test_no_difference_if_the_report_equals_the_catalogue() -> None:
    metrics = metrics_as_in_the_catalogue(36)
    assert reported_gates.overlay("kubelet", 36, metrics, {}, {}) == {}
    metrics["HPAScaleToZero"] = GateMetric("ALPHA", True)
    assert reported_gates.overlay("kubelet", 36, metrics, {}, {"HPAScaleToZero": True}) == {}, (
        "a value that is set says nothing about the default"
    )
    assert reported_gates.overlay("kubelet", 36, {}, {}, {}) == {}, "metrics that could not be read miss no gate"


def test_differences() -> None:
    metrics = metrics_as_in_the_catalogue(36)
    metrics["Fresh"] = GateMetric("BETA", True)
    metrics["HPAScaleToZero"] = GateMetric("BETA", True)
    del metrics["APIResponseCompression"]
    live = reported_gates.overlay("kube-apiserver", 36, metrics, {}, {})
    assert live == {"Fresh": GateStage("Beta", True), "HPAScaleToZero": GateStage("Beta", True), "APIResponseCompression": None}
    sentences = reported_gates.differences(
        "kube-apiserver", 36, live, ["Fresh", "HPAScaleToZero", "APIResponseCompression", "StorageVersionAPI"]
    )
    assert sentences == [
        "Fresh: the catalogue of gates says unknown for 1.36, this kube-apiserver reports Beta, on by default: its report counts",
        "HPAScaleToZero: the catalogue of gates says Alpha, off by default for 1.36, this kube-apiserver reports Beta, on by default: its report counts",
        "APIResponseCompression: the catalogue of gates says Beta, on by default for 1.36, this kube-apiserver reports unknown: its report counts",
    ]


def test_help_shows_the_default_of_a_gate_that_is_set() -> None:
    metrics = metrics_as_in_the_catalogue(36)
    metrics["HPAScaleToZero"] = GateMetric("BETA", False)
    live = reported_gates.overlay("kubelet", 36, metrics, {"HPAScaleToZero": GateStage("Beta", True)}, {"HPAScaleToZero": False})
    assert live == {"HPAScaleToZero": GateStage("Beta", True)}
