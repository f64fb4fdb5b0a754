"""What the inventory wants of a node and of the cluster, by the data keys of all deploys. Whoever only compares reads it here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from roles import autoscalers, control_plane_flags, disruption_budgets, eviction, feature_gates, kubelet_config, priority_classes
from roles.engine.control_plane import Component
from roles.engine.kubelet import Kubelet
from roles.engine.transaction import Refusal

Data = Callable[[str], Any]
#: The parts of a node's desired state, and who reads one from a host's data.
_PARTS: dict[str, Callable[[str, Data], Any]] = {
    "gates": feature_gates.read_gates,
    "fields": kubelet_config.read_fields,
    "eviction": eviction.read_thresholds,
    "flags": control_plane_flags.read_flags,
}
#: The models that say what is wanted: of a kubelet and of gates, and all.
OF_KUBELETS = (feature_gates.DesiredGates, kubelet_config.DesiredFields, eviction.DesiredThresholds)
DESIRED = (
    *OF_KUBELETS,
    control_plane_flags.DesiredFlags,
    priority_classes.DesiredClasses,
    disruption_budgets.DesiredBudgets,
    autoscalers.DesiredAutoscalers,
)


@dataclass(frozen=True)
class NodeDesired:
    """The desired state of one node; None: the inventory does not set it, or leaves the node out. `more_gates`: gates by component (None:
    absent) in addition to those of the inventory; `named`: the hosts that data keys `nodes` name; `problems`: why parts of the data are
    invalid."""

    gates: feature_gates.DesiredGates | None = None
    more_gates: Mapping[str, Mapping[str, bool | None]] = field(default_factory=dict)
    fields: kubelet_config.DesiredFields | None = None
    eviction: eviction.DesiredThresholds | None = None
    flags: control_plane_flags.DesiredFlags | None = None
    named: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()

    def gates_of(self, found: Kubelet | Component) -> dict[str, bool | None]:
        """What a component of the node must run with; {} if that is nothing."""
        host, component = (found.seen.host, "kubelet") if isinstance(found, Kubelet) else (found.host, found.name)
        wanted = feature_gates.wanted_of(host, component, found.process, self.gates) if self.gates else {}
        return {**wanted, **self.more_gates.get(component, {})}


def read_desired(host: str, data: Data) -> NodeDesired:
    """The desired state from one host's data, as the deploys read it. Raises Refusal."""
    made = NodeDesired()
    for part, read in _PARTS.items():
        if (found := read(host, data)) is not None:
            made = replace(made, named=made.named | {*(found.chosen_nodes or ())}, **{part: _of_host(found, host)})
    return made


def read_valid(host: str, data: Data) -> NodeDesired:
    """What can be read of the models OF_KUBELETS; `problems` says why not all."""
    made, problems = NodeDesired(), dict[str, None]()
    for part in ("gates", "fields", "eviction"):
        try:
            made = replace(made, **{part: _of_host(_PARTS[part](host, data), host)})
        except Refusal as refusal:
            problems[refusal.text] = None
    return replace(made, problems=tuple(problems))


def _of_host(found: Any, host: str) -> Any:
    return found if found is None or found.includes(host) else None


@dataclass(frozen=True)
class ClusterDesired:
    """The objects that the inventory wants, None: it says nothing about them."""

    classes: priority_classes.DesiredClasses | None = None
    budgets: disruption_budgets.DesiredBudgets | None = None
    scaled: autoscalers.DesiredAutoscalers | None = None

    def settled(self, exists: Callable[[str, str, str], bool]) -> ClusterDesired:
        """With the kinds of all workloads that it names. Raises ValueError."""
        return replace(self, classes=self.classes and self.classes.settled(exists), scaled=self.scaled and self.scaled.settled(exists))


def of_the_cluster(hosts: Iterable[tuple[str, Data]]) -> ClusterDesired:
    """The objects that the inventory wants. Raises Refusal."""
    hosts = list(hosts)
    return ClusterDesired(priority_classes.read_classes(hosts), disruption_budgets.read_budgets(hosts), autoscalers.read_desired(hosts))
