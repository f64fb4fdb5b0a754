"""Other binaries that the restarts of a run would start: consent for each, and the version skew policy for all. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from roles.engine.control_plane import Component, control_plane_plan
from roles.engine.kubelet import Kubelet, kubelet_plan
from roles.engine.node import DELETED, Process, minor_of
from roles.engine.node_changes.node_plan import KUBELET
from roles.engine.proof import SurveyedNode
from roles.engine.proof.skew import Restarts, judge_skew, outside, running_of
from roles.engine.remote import RemoteError, Shell
from roles.engine.runs import Options
from roles.engine.timeouts import patient
from roles.engine.transaction import Refusal

LOOK_SECONDS = 30


@dataclass(frozen=True)
class JudgedVersions:
    """`notes` are for the plan."""

    refusals: tuple[object, ...] = ()
    notes: tuple[str, ...] = ()


def judge_versions(
    observed: Mapping[str, SurveyedNode],
    nodes: Mapping[str, Mapping[str, Any]],
    restarting: Collection[tuple[str, str]],
    options: Options,
    *,
    undoes: bool = False,
    all_of_it: bool = False,
) -> JudgedVersions:
    """The version skew policy, and the consent to each other binary. `observed`: all nodes of the inventory that could be read, by host;
    `nodes` as the API has them, by name ({}: not known); `restarting`: what restarts, by host and component; the others as in Restarts."""
    sources = {host: _sources(node) for host, node in observed.items()}
    running = [one for host, its in sources.items() for one in running_of(host, {name: source.process for name, source in its.items()})]
    restarts = {(host, name): _next_minor(sources[host][name]) for host, name in restarting}
    others = outside(nodes, {node.kubelet.node_name for node in observed.values()})
    found = judge_skew([*running, *others.running], Restarts(restarts, undoes, all_of_it), options.allow_skew_of or ())
    refused = [
        _without_consent(sources[host][name], options.allow_new_binary) for host, name in restarting if (host, name) not in found.forbidden
    ]
    return JudgedVersions((*found.refused, *filter(None, refused)), (*others.notes, *(f"WARNING {one}" for one in found.known)))


def recheck(remote: Shell, component: str, process: Process) -> str | None:
    """The file of a kubelet once more, right before its change; a text if it was replaced since the plan. `process`: as in the plan."""
    if component != KUBELET or process.binary_replaced:
        return None
    try:
        said = remote.run(f"readlink /proc/{process.pid}/exe", timeout=patient(LOOK_SECONDS)).stdout
    except RemoteError:
        return None  # the change itself needs the connection
    if not any(line.endswith(DELETED) for line in said):
        return None
    return f"{process.binary} was replaced after the plan was made: a restart would start another kubelet; run this again"


def _sources(node: SurveyedNode) -> dict[str, Kubelet | Component]:
    return {KUBELET: node.kubelet, **node.components}


def _next_minor(source: Kubelet | Component) -> int | None:
    if isinstance(source, Component):
        return minor_of(control_plane_plan.image_version(source) or "") or source.process.minor
    return minor_of(source.process.next_version or "")


def _without_consent(source: Kubelet | Component, consent: bool) -> Refusal | None:
    if isinstance(source, Component):
        return control_plane_plan.refuse_another_image(source, consent=consent)
    return kubelet_plan.refuse_another_binary(source, consent=consent)
