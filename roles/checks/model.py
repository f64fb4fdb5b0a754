"""The options of the checks, and the desired state that they compare the nodes with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from roles import autoscalers, control_plane_flags, disruption_budgets, eviction, feature_gates, kubelet_config, priority_classes
from roles.engine.inputs import TEXT, Frozen, file_path


class CheckOptions(Frozen):
    """The data keys of deploys/checks.py only; it also reads the data keys of the other deploys."""

    junit: Annotated[
        Path | None,
        file_path("junit", "checks.xml"),
        TEXT,
        Field(description="a path on the operator's machine for the results as JUnit XML", examples=["checks.xml"]),
    ] = None


@dataclass(frozen=True)
class NodeDesired:
    """The desired state of one node: gates, fields and thresholds of the kubelet, flags of the control plane. `more_gates`: gates by
    component (None: absent) in addition to those of the inventory."""

    gates: feature_gates.DesiredGates | None = None
    more_gates: Mapping[str, Mapping[str, bool | None]] = field(default_factory=dict)
    fields: kubelet_config.DesiredFields | None = None
    eviction: eviction.DesiredThresholds | None = None
    flags: control_plane_flags.DesiredFlags | None = None

    @property
    def only(self) -> set[str]:
        """The hosts that its data keys `only` name."""
        parts = (self.gates, self.fields, self.eviction, self.flags)
        return {name for part in parts if part is not None for name in part.only or ()}


#: The models that say what is wanted.
DESIRED = (
    feature_gates.DesiredGates,
    kubelet_config.DesiredFields,
    eviction.DesiredThresholds,
    control_plane_flags.DesiredFlags,
    priority_classes.DesiredClasses,
    disruption_budgets.DesiredBudgets,
    autoscalers.DesiredAutoscalers,
)


def read_desired(host: str, data: Callable[[str], Any]) -> NodeDesired:
    """The desired state from one host's data, as the deploys read it. Raises Refusal."""
    return NodeDesired(
        feature_gates.read_gates(host, data),
        fields=kubelet_config.read_fields(host, data),
        eviction=eviction.read_thresholds(host, data),
        flags=control_plane_flags.read_flags(host, data),
    )


@dataclass(frozen=True)
class ClusterDesired:
    """The objects that the inventory wants, None: it says nothing about them."""

    classes: priority_classes.DesiredClasses | None = None
    budgets: disruption_budgets.DesiredBudgets | None = None
    scaled: autoscalers.DesiredAutoscalers | None = None


def of_the_cluster(hosts: Iterable[tuple[str, Callable[[str], Any]]]) -> ClusterDesired:
    """The objects that the inventory wants. Raises Refusal."""
    hosts = list(hosts)
    return ClusterDesired(priority_classes.read_classes(hosts), disruption_budgets.read_budgets(hosts), autoscalers.read_desired(hosts))
