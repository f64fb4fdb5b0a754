"""What the loop does as metrics, in Prometheus' text form: for node_exporter's textfile collector, so without times of their own. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from roles.node_autoscaler.decide import Situation
from roles.node_autoscaler.decision import KINDS, Decision
from roles.node_autoscaler.history import History

PREFIX = "daytwo_node_autoscaler"
_TEXTS = {
    "last_pass_timestamp_seconds": ("gauge", "When the last pass began that could read the cluster, by the API server's clock."),
    "decisions_total": ("counter", "Decisions, by their kind; each pass makes one."),
    "failures_total": ("counter", "Decisions that were begun and failed."),
    "nodes": ("gauge", "Nodes by state."),
    "pending_pods": ("gauge", "Pods for which the scheduler has found no node."),
    "unplaceable_pods": ("gauge", "Those of them that no machine can take."),
    "not_needed_nodes": ("gauge", "Nodes that are on and could go."),
}


def text(now: Situation, decision: Decision, history: History) -> str:
    """All metrics, with the same labels in each pass."""
    asleep, unready = len(now.asleep), len(now.unready)
    values: dict[str, Mapping[str, float]] = {
        "last_pass_timestamp_seconds": {"": now.now},
        "decisions_total": {f'kind="{kind}"': history.counts.get(kind, 0) for kind in KINDS},
        "failures_total": {"": history.failures},
        "nodes": {
            'state="on"': len(now.nodes) - asleep - unready,
            'state="asleep"': asleep,
            'state="not_ready"': unready,
        },
        "pending_pods": {"": len(now.pending)},
        "unplaceable_pods": {"": len(decision.nowhere)},
        "not_needed_nodes": {"": len(decision.not_needed)},
    }
    return "".join(f"{line}\n" for name, found in values.items() for line in _lines(name, found))


def _lines(name: str, values: Mapping[str, float]) -> Iterator[str]:
    kind, about = _TEXTS[name]
    yield f"# HELP {PREFIX}_{name} {about}"
    yield f"# TYPE {PREFIX}_{name} {kind}"
    for labels, value in values.items():
        yield f"{PREFIX}_{name}{f'{{{labels}}}' if labels else ''} {value:.17g}"
