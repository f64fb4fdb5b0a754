"""Which nodes can run a pod of metrics-server, and which of them have room for it now. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from roles.engine.api import NoApi
from roles.engine.folding import shortened
from roles.engine.harmless import one_line
from roles.engine.kube import Object, is_ready
from roles.engine.placement import ClusterView, where
from roles.metrics_server.manifests import is_own_pod
from roles.metrics_server.preflight import MOST_NAMED


@dataclass(frozen=True)
class Places:
    """`able`: the nodes that can run it; `full`: those of them that have no room for its requests now, and why."""

    able: list[str]
    full: Mapping[str, str]

    @property
    def roomy(self) -> int:
        return len(self.able) - len(self.full)

    @property
    def replicas(self) -> int:
        """How many to run if nobody says it: each on a node of its own that has room."""
        return min(2, max(1, self.roomy), len(self.able))

    def lacking(self, replicas: int, *, asked: bool) -> list[str]:
        """What an operator should know about full nodes. `asked`: the data name the number of replicas."""
        if self.roomy >= min(2, len(self.able)) and replicas <= self.roomy:
            return []
        names = [f"{one_line(name)}: {one_line(why)}" for name, why in self.full.items()]
        has, why = "has" if self.roomy == 1 else "have", f"({shortened(names, MOST_NAMED, ';')})"
        if replicas > self.roomy:
            number = "1 replica is" if replicas == 1 else f"{replicas} replicas are"
            return [
                f"{number} {'asked for' if asked else 'needed'}, and {self.roomy} of {len(self.able)} nodes that can run"
                f" {'it' if replicas == 1 else 'them'} {has} room {why}: with its priority, system-cluster-critical, it preempts other pods"
                " there, or stays Pending. Make room first"
            ]
        if asked:
            return []
        return [
            f"one replica: of {len(self.able)} nodes that can run it, {self.roomy} {has} room {why}. Make room and run this again, or set"
            " metrics_server.replicas to 2: with its priority, system-cluster-critical, it then preempts other pods"
        ]


def places(nodes: Sequence[Object], pods: Sequence[Object], pod: Object) -> Places:
    """`pods`: all of the cluster; those of metrics-server itself leave their room to their successors. `pod`: as it is to run. Raises
    NoApi."""
    ready = [node for node in nodes if is_ready(node)]
    others = [one for one in pods if not is_own_pod(one)]
    try:
        empty, now = (where(pod, ClusterView(ready, held)).nodes for held in ((), others))
    except ValueError as error:
        raise NoApi(f"what nodes and pods have and request cannot be read: {error}") from None
    able = [name for name, verdict in empty.items() if verdict.state != "no"]
    return Places(able, {name: ", ".join(now[name].why) for name in able if now[name].state == "no"})
