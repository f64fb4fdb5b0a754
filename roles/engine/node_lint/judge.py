"""All that is wrong on one node. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from roles.engine.api import GateMetric
from roles.engine.control_plane import Component, ManifestFile
from roles.engine.findings import Finding, Place, Severity
from roles.engine.kubelet import Kubelet
from roles.engine.node import Observation
from roles.engine.node_lint import files, processes
from roles.engine.node_lint.rules import NodeRule
from roles.engine.transaction import Refusal, in_flight

ACTIVE = "/var/lib/daytwo/active"


def lint(
    seen: Observation,
    kubelet: Kubelet | None = None,
    components: Mapping[str, Component] | None = None,
    refusals: Mapping[str, Refusal] | None = None,
    manifests: Sequence[ManifestFile] = (),
    configuration: Mapping[str, Any] | None = None,
    gates: Mapping[str, GateMetric] | None = None,
) -> list[Finding]:
    """The findings of one node; without a kubelet only those that need none. `refusals`: by component, why its manifest is not clear
    (control_plane.look); `manifests`: all of their directory; `configuration`, `gates`: what the kubelet runs with, None: not known."""
    found = [*_in_flight(seen), *processes.unread_unit(seen)]
    if kubelet is not None:
        strays = [*files.manifests(kubelet, manifests)]
        found += [*processes.kubelet(kubelet, configuration, gates or {}), *strays, *files.dropins(kubelet)]
        found += [one for each in (components or {}).values() for one in processes.component(each)]
        # Two files for a pod, or one that cannot be read, are the cause.
        if not any(one.rule in (NodeRule.TWIN, NodeRule.BROKEN) for one in strays):
            for name, refusal in (refusals or {}).items():
                where = Place(seen.host, name, file=kubelet.manifests)
                found.append(NodeRule.COMPONENT.found(where, refusal.message, refusal.way_out))
    return found


def _in_flight(seen: Observation) -> Iterator[Finding]:
    for one in in_flight(seen.changes, seen.boot_id, seen.uptime):
        folder = f"/var/lib/daytwo/changes/{one.name}"
        way_out = f"{folder}/log says why; change.sh in the same directory has the verbs status and revert" if one.failed else ""
        where = Place(seen.host, name=one.name, file=posixpath.join(ACTIVE, one.name), value=one.state or "no record")
        yield NodeRule.IN_FLIGHT.found(where, str(one), way_out, Severity.critical if one.failed else None)
