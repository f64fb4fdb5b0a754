"""Does each node run as it should, and as the inventory wants it? Looked at and told, with an exit status for CI. Changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from roles import priority_classes
from roles.checks import evidence, judge, junit
from roles.checks.evidence import Evidence
from roles.checks.judge import CHECKS, CLUSTER_CHECKS, Result
from roles.checks.model import CheckOptions, NodeDesired, of_the_cluster, wishes
from roles.engine import bridge
from roles.engine.api import ApiError
from roles.engine.bridge import Fleet, Remote, RemoteError, show, show_lines
from roles.engine.files import write_whole
from roles.engine.proof import Cluster, Looked, NoApi, with_versions
from roles.engine.rollout import deploying, same, table
from roles.engine.transaction import Refusal

T = TypeVar("T")
# Exit statuses beside 0: all that could be checked passed.
COULD_NOT_LOOK, FAILED = 1, 2


# What is asked of all, of each node, of the cluster.
_Read = tuple[CheckOptions, dict[str, NodeDesired], priority_classes.DesiredClasses | None]


def _read(fleet: Fleet) -> _Read:
    """Raises DeployError with all that is wrong in the data."""
    reasons: list[object] = []
    wanted: dict[str, NodeDesired] = {}
    for remote in fleet.targets:
        try:
            wanted[remote.name] = wishes(remote.name, remote.data)
        except Refusal as refusal:
            reasons.append(refusal)
    cluster_wanted = None
    try:
        cluster_wanted = of_the_cluster([(remote.name, remote.data) for remote in fleet.inventory])
    except Refusal as refusal:
        reasons.append(refusal)
    asked = CheckOptions()
    try:
        asked = same([remote for remote in fleet.targets if remote.data("junit") is not None], CheckOptions)
    except ValueError as error:
        reasons.append(error)
    bridge.stop(reasons)
    return asked, wanted, cluster_wanted


@deploying("Checks", _read)
def checks(fleet: Fleet, read: _Read) -> int | None:
    """Check all nodes of the run, and the cluster's objects.

    Data keys: junit (roles/checks/model.py), and what the other deploys want of a node. Exit status 0: nothing failed; 2: a check failed;
    1: none did, and something could not be looked at. Raises DeployError (1) where the data cannot be read.
    """
    asked, wanted, cluster_wanted = read
    results = [Result(remote.name, "looked-at", "unknown", "unreachable") for remote in fleet.unreachable]
    # With --limit the control plane is looked at as well: it is who knows.
    helpers = [remote for remote in fleet.others if remote.is_control_plane and (remote.connected or remote.connect())]
    found = gather([*fleet.targets, *helpers], Cluster(), fleet.each)
    for remote in fleet.targets:
        results += judge.node(found.nodes[remote.name], wanted[remote.name])
    results += judge.cluster(cluster_wanted, found.live(cluster_wanted))
    rows = [[one.node, one.check, _shown(one), one.why] for one in results if one.applies]
    show_lines("\n" + table.render(["node", "check", "result", "why"], rows))
    for remote in fleet.targets:
        if (seen := found.nodes[remote.name].seen) is not None:
            for sentence in seen.ignored:
                show(f"\n{remote.name}: {sentence}")
    show(f"\n{judge.summary(results)}")
    if asked.junit is not None:
        try:
            write_whole(asked.junit, junit.xml(results))
        except OSError as error:
            raise bridge.refuse(f"junit={asked.junit}: the report could not be written: {error.strerror or error}") from None
        show(f"report: {asked.junit}")
    return exit_code(results) or None


def exit_code(results: Iterable[Result]) -> int:
    """0: nothing failed; 2: a check failed; 1: none did, and something could not be looked at."""
    outcomes = {result.outcome for result in results}
    return FAILED if "fail" in outcomes else COULD_NOT_LOOK if "unknown" in outcomes else 0


class Gathered:
    """The nodes as they were seen, by host, and the way to the API (`no_api`: why there is none)."""

    def __init__(self, nodes: Mapping[str, Evidence], cluster: Cluster, no_api: str) -> None:
        self.nodes, self.no_api = dict(nodes), no_api
        self._cluster = cluster

    def live(self, wanted: priority_classes.DesiredClasses | None) -> priority_classes.LiveClasses | str:
        """The cluster's objects, where some are wanted; or why they could not be read."""
        if wanted is None or self.no_api:
            return self.no_api or "not asked"
        try:
            return priority_classes.read_live(self._cluster.api())
        except (ApiError, NoApi, RemoteError) as error:
            return str(error)


class OnEach(Protocol):
    """Does something on many nodes at once; an exception becomes that node's result."""

    def __call__(self, remotes: Sequence[Remote], work: Callable[[Remote], T], /) -> Mapping[str, T | Exception]: ...


def gather(remotes: Sequence[Remote], cluster: Cluster, each: OnEach) -> Gathered:
    """Everything that the checks need of these nodes; `each` looks at many at once. What is no fault of a node is raised."""
    seen = _whole(each(remotes, evidence.of_node))
    for remote in remotes:
        if (observed := seen[remote.name].seen) is not None:
            cluster.add(remote, observed, dict(seen[remote.name].components))
    seen = _with_versions(remotes, seen, cluster, each)
    no_api = ""
    try:
        cluster.api()
    except (NoApi, RemoteError) as error:
        no_api = str(error) if cluster.apiservers else "no API server was found on the nodes that could be looked at"
    return Gathered(_whole(each(remotes, lambda remote: evidence.with_api(seen[remote.name], cluster, no_api))), cluster, no_api)


def _with_versions(remotes: Sequence[Remote], seen: Mapping[str, Evidence], cluster: Cluster, each: OnEach) -> dict[str, Evidence]:
    """The same with the versions of the processes."""
    looked = [
        Looked(remote, found.seen, found.kubelet, found.components)
        for remote in remotes
        if (found := seen[remote.name]).seen is not None and found.kubelet is not None
    ]
    known = with_versions(cluster, looked, each)
    return {host: replace(found, **evidence.parts(known[host])) if host in known else found for host, found in seen.items()}


def _whole(answers: Mapping[str, Evidence | Exception]) -> dict[str, Evidence]:
    found = {}
    for host, answer in answers.items():
        if isinstance(answer, Exception):
            raise answer
        found[host] = answer
    return found


def _shown(result: Result) -> str:
    return result.outcome.upper() if result.outcome in ("fail", "unknown") else result.outcome


__all__ = ["CHECKS", "CLUSTER_CHECKS", "Gathered", "NodeDesired", "Result", "checks", "gather", "judge", "of_the_cluster", "wishes"]
