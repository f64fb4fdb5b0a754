"""Checks that each node is healthy and matches the inventory, with an exit status for CI. Changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, Protocol, TypeVar

from pydantic import Field

from roles import autoscalers, control_plane_flags, disruption_budgets, priority_classes, sleeping
from roles.checks import evidence, judge
from roles.checks.evidence import Evidence
from roles.checks.judge import ClusterFound
from roles.desired import DESIRED, ClusterDesired, NodeDesired, of_the_cluster, read_desired
from roles.engine import bridge, kubelet
from roles.engine.api import Api, ApiFailure, NoApi, list_objects, workload_exists
from roles.engine.bridge import Fleet, Remote
from roles.engine.disruption import cluster_time
from roles.engine.findings import CheckOutcome, Finding, Result
from roles.engine.findings.render import as_table, exit_code, junit, summary
from roles.engine.harmless import one_line
from roles.engine.inputs import TEXT, Declared, Frozen
from roles.engine.inputs.registry import desired_state
from roles.engine.inputs.values import TableOrJson, file_path
from roles.engine.node import FilesWanted
from roles.engine.proof import Cluster, ObservedNode, known_nodes
from roles.engine.remote import RemoteError
from roles.engine.runs import Document, Ended, deploying, document, no_such_host, same, show_report, write_report
from roles.engine.screen import wrapped
from roles.engine.transaction import Refusal
from roles.engine.voice import show

T = TypeVar("T")


class CheckOptions(Frozen):
    """The data keys of deploys/checks.py only; it also reads the data keys of the other deploys."""

    format: TableOrJson = "table"
    junit: Annotated[
        Path | None,
        file_path("junit", "checks.xml"),
        TEXT,
        Field(description="a path on the operator's machine for the results as JUnit XML", examples=["checks.xml"]),
    ] = None


class ResultReport(Document):
    """What a check says of a node."""

    node: str = Field(description="a host of the inventory, or `cluster`")
    check: str
    outcome: CheckOutcome
    why: str = Field(description="the evidence if it passed, the fault if it failed")
    causes: tuple[str, ...] = Field(description="the rules of the findings that failed it")


class ChecksReport(Document):
    """The JSON document of deploys/checks.py."""

    form: Literal[1] = 1
    results: tuple[ResultReport, ...]
    ignored: tuple[str, ...] = Field(description="processes with a component's name that are not the node's own")


# The options, the desired state of each node, and of the cluster.
_Read = tuple[CheckOptions, dict[str, NodeDesired], ClusterDesired]


def _read(fleet: Fleet) -> _Read:
    """Raises DeployError with all errors in the data."""
    reasons: list[object] = []

    def tried(read: Callable[[], T], otherwise: T) -> T:
        try:
            return read()
        except Refusal as refusal:
            reasons.append(refusal)
            return otherwise

    wanted = {one.name: tried(partial(read_desired, one.name, one.data), NodeDesired()) for one in fleet.targets}
    cluster_wanted = tried(lambda: of_the_cluster([(one.name, one.data) for one in fleet.inventory]), ClusterDesired())
    options = tried(lambda: same(fleet.targets, CheckOptions), CheckOptions())
    named = sorted({name for one in wanted.values() for name in one.named})
    bridge.stop([*reasons, *no_such_host(fleet.inventory, named)])
    return options, wanted, cluster_wanted


@deploying("Checks", _read)
def checks(fleet: Fleet, read: _Read) -> Ended:
    """Check all nodes of the run, and the cluster's objects.

    Data keys: format (table, or json: one document on standard output), junit, and those of the other deploys. Exit status 0: nothing
    failed; 2: a check failed; 1: no check failed, and something could not be checked. Raises DeployError (1) if the data is invalid.
    """
    options, wanted, cluster_wanted = read
    results = [
        Result(remote.name, "looked-at", "unknown", remote.unreachable.removeprefix(f"{remote.name}: ")) for remote in fleet.unreachable
    ]
    wanted_files = control_plane_flags.wanted_files({host: one.flags for host, one in wanted.items()})
    found = gather([*fleet.targets, *fleet.helpers()], fleet.each, wanted_files)
    for remote in fleet.targets:
        results += judge.node(found.nodes[remote.name], wanted[remote.name])
    cluster_wanted = found.settled(cluster_wanted)
    results += judge.cluster(cluster_wanted, found.live(cluster_wanted))
    observed = [(remote.name, found.nodes[remote.name].seen) for remote in fleet.targets]
    made = report(results, [f"{host}: {sentence}" for host, seen in observed if seen is not None for sentence in seen.ignored])
    forms = {
        "table": lambda: "\n".join([f"\n{as_table(results)}", *(f"\n{wrapped(one_line(text))}" for text in made.ignored)]),
        "json": lambda: document(made),
    }
    show_report(forms, options.format)
    for_people = options.format == "table"
    if options.junit is not None:
        write_report("junit", options.junit, junit(results))
        if for_people:
            show(f"\nreport: {options.junit}")
    return Ended(summary(results) if for_people else "", exit_code(results))


def report(results: Sequence[Result], ignored: Sequence[str]) -> ChecksReport:
    """Without the checks that have nothing to check."""
    shown = (
        ResultReport(node=one.node, check=one.check, outcome=one.outcome, why=one.why, causes=tuple(map(str, one.causes)))
        for one in results
        if one.applies
    )
    return ChecksReport(results=tuple(shown), ignored=tuple(ignored))


class Gathered:
    """The evidence of the nodes, by host, and the connection to the API (`no_api`: why there is none). `apiservers`: how many nodes have
    one."""

    def __init__(self, nodes: Mapping[str, Evidence], cluster: Cluster, no_api: str) -> None:
        self.nodes, self.no_api, self.apiservers = dict(nodes), no_api, cluster.apiservers
        self._cluster = cluster

    def settled(self, wanted: ClusterDesired) -> ClusterDesired:
        """With the kinds of the workloads that it names, if the API answers. Raises DeployError for a name of none, or of several."""
        if self.no_api:
            return wanted
        try:
            with bridge.refusing(ValueError):
                return wanted.settled(workload_exists(self._cluster.api()))
        except ApiFailure:
            return wanted

    def live(self, wanted: ClusterDesired) -> ClusterFound:
        """The cluster's objects that the inventory has something about."""
        scaled = wanted.scaled
        namespaces = {one.namespace for one in (wanted.budgets and wanted.budgets.disruption_budgets) or ()}
        return ClusterFound(
            self._read(priority_classes.read_live, asked=wanted.classes is not None),
            self._read(partial(disruption_budgets.read_live, namespaces=namespaces), asked=wanted.budgets is not None),
            self._read(lambda api: autoscalers.read_live(api, scaled.every) if scaled is not None else {}, asked=scaled is not None),
            self._read(_asleep, asked=True),
        )

    def _read(self, read: Callable[[Api], T], *, asked: bool) -> T | str:
        """Objects of the cluster; or why they were not read."""
        if not asked or self.no_api:
            return self.no_api or "not asked"
        try:
            return read(self._cluster.api())
        except ApiFailure as error:
            return str(error)


def _asleep(api: Api) -> list[Finding]:
    """Raises ApiFailure."""
    nodes = list_objects(api, "/api/v1/nodes")
    off = [node for node in nodes if sleeping.asleep(node) is not None]
    return sleeping.findings(off, cluster_time(api), sleeping.newest_minor(api), {}) if off else []


class OnEach(Protocol):
    """Calls `work` for many nodes at the same time; an exception becomes the node's result."""

    def __call__(self, remotes: Sequence[Remote], work: Callable[[Remote], T], /) -> Mapping[str, T | Exception]: ...


def gather(remotes: Sequence[Remote], each: OnEach, wanted: FilesWanted = kubelet.wanted) -> Gathered:
    """All evidence that the checks need of these nodes; `each` reads many at the same time, and of each the files `wanted`. Raises an
    exception that no node caused."""
    seen = bridge.whole(each(remotes, lambda remote: evidence.of_node(remote, wanted)))
    own = [(remote, seen[remote.name]) for remote in remotes]
    looked = [ObservedNode(remote, one.seen, one.kubelet, one.components) for remote, one in own if one.seen and one.kubelet]
    known = known_nodes(looked, each, remotes)
    seen = {host: evidence.with_versions(found, known.seen[host]) if host in known.seen else found for host, found in seen.items()}
    no_api = ""
    try:
        known.cluster.api()
    except (NoApi, RemoteError) as error:
        no_api = str(error)
    not_theirs = {host: refusal.text for host, refusal in known.not_theirs.items()}
    names = [remote.name for remote in remotes]
    asked = bridge.at_once([partial(evidence.with_api, seen[name], known.cluster, no_api or not_theirs.get(name, "")) for name in names])
    return Gathered(bridge.whole(dict(zip(names, asked, strict=True))), known.cluster, no_api)


DOCUMENTS = {"checks": ChecksReport}
DATA_KEYS = (Declared(CheckOptions, ("checks",), also=desired_state(*DESIRED)),)

__all__ = [
    "DATA_KEYS",
    "DOCUMENTS",
    "checks",
    "gather",
    "judge",
]
