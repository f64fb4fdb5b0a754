"""What one run read of a cluster. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from roles.engine.kube import Object
from roles.right_size.samples import Seen
from roles.right_size.workloads import ContainerNow, SizedWorkload


@dataclass
class CollectedUse:
    """`containers` as they were at the end of the reads; `lives`: with those that ended meanwhile; `seen`: what was read of each, by its
    container ID. `pods`: the workloads of all pods that were read, also of those that are in no report, by namespace and pod. `notes`: what
    is known less well, and why; `problems`: what could not be read."""

    cluster: str
    containers: list[ContainerNow]
    lives: list[ContainerNow]
    seen: dict[str, Seen]
    pods: Mapping[tuple[str, str], SizedWorkload] = field(default_factory=dict)
    vpas: list[Object] = field(default_factory=list)
    hpas: list[Object] = field(default_factory=list)
    limit_ranges: list[Object] = field(default_factory=list)
    nodes: list[Object] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
