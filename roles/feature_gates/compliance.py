"""Pure: compares the desired gates of one component with the gates that it runs with."""

from __future__ import annotations

from collections.abc import Mapping

from roles.engine.api import GateMetric
from roles.engine.control_plane import Component, sourced_gates
from roles.engine.editing import FormatError
from roles.engine.kubelet import Kubelet
from roles.engine.node import Process
from roles.engine.proof.effective import UnmetGate, unmet_gates
from roles.feature_gates.gate_readers import needed
from roles.feature_gates.model import DesiredGates


def wanted_of(host: str, component: str, process: Process, desired: DesiredGates) -> dict[str, bool | None]:
    """The desired gates that concern a component, by their bare names and in the operator's order; {} if there are none."""
    if component not in desired.components or not desired.includes(host):
        return {}
    named = desired.gates if desired.everywhere else needed(component, process.minor, desired.gates)
    return {name: value for name, value in desired.gates.items() if name in named}


def unmet(found: Kubelet | Component, wanted: Mapping[str, bool | None], effective: Mapping[str, GateMetric] | None) -> list[UnmetGate]:
    """The gates whose value on a component differs from the desired one.

    `effective` are the gates in its /metrics, the best evidence; None if they could not be read: then its command line counts, or, for
    a kubelet, its files. A gate that should be absent (None) must not be set anywhere; its default does not matter.
    """
    component = "kubelet" if isinstance(found, Kubelet) else found.name
    sources = sourced_gates(found)
    running = sources if isinstance(found, Kubelet) else _running_gates(found)
    problems = []
    for name, value in wanted.items():
        if value is not None and effective is not None:
            problems += unmet_gates(component, {name: value}, effective)
        elif (has := running.get(name, sources.get(name) if value is None else None)) is not value:
            problems.append(UnmetGate(component, name, value, has, "sources"))
    return problems


def _running_gates(found: Component) -> dict[str, bool]:
    try:
        return found.running_gates
    except FormatError:
        return {}
