"""The nodes to check, read by daytwo through testinfra's connection or pyinfra's, and their desired state."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
import testinfra
from testinfra.host import Host

from roles.checks import Evidence, gather, judge
from roles.checks.judge import CHECKS, CLUSTER_CHECKS
from roles.desired import NodeDesired, of_the_cluster, read_desired
from roles.engine import control_plane
from roles.engine.bridge import Fleet, Remote, pyinfra_keys
from roles.engine.bridge.hosts import open_inventory
from roles.engine.findings import Result
from roles.engine.harmless import harmless
from roles.engine.remote import Answer
from roles.engine.runs.data_keys import refused_keys
from roles.engine.transaction import Refusal

ROOT = Path(__file__).resolve().parents[2]
COMPONENTS = ("kubelet", *control_plane.COMPONENTS)
WHICH = "which nodes? Name them: --inventory=inventories/prod.py, or --hosts='ssh://cp1,ssh://w1' (with --ssh-config=FILE where needed)"


@dataclass(frozen=True)
class Gate:
    """A gate that a component must run with; `value` None: it must not be set."""

    component: str
    name: str
    value: bool | None

    @classmethod
    def parse(cls, text: str) -> Gate:
        """COMPONENT:NAME=VALUE. Raises pytest.UsageError for anything else."""
        component, colon, rest = text.partition(":")
        name, equals, value = rest.partition("=")
        values = {"true": True, "false": False, "absent": None}
        if not (colon and equals and name) or value not in values or component not in COMPONENTS:
            raise pytest.UsageError(
                f"--gate {text}: write COMPONENT:NAME=VALUE with one of {', '.join(COMPONENTS)} and true, false or absent"
            )
        return cls(component, name, values[value])


class _Connection:
    """A host as testinfra reaches it, in place of a roles.engine.bridge.hosts.Remote. It has no tunnel."""

    transport = None
    uses_ssh = False

    def __init__(self, host: Host, is_control_plane: bool) -> None:
        self._host = host
        self.name = str(host.backend.hostname)
        self.is_control_plane = is_control_plane

    def ensure_connected(self, within: float = 0) -> None:
        """testinfra connects for each command."""

    def run(self, script: str, *, timeout: float) -> Answer:
        # timeout(1) on the node: testinfra has none.
        done = self._host.run("timeout %s sh -c %s", str(timeout), script)
        return Answer(done.rc, done.stdout.splitlines(), done.stderr.splitlines())


def _at_once(remotes: Sequence[Remote], work: Callable[[Remote], Any]) -> dict[str, Any]:
    with ThreadPoolExecutor(20) as pool:
        return dict(zip([remote.name for remote in remotes], pool.map(work, remotes), strict=True))


class Nodes:
    """All nodes to check. Their names are known at once; they are read once, at the same time, when the first test asks."""

    def __init__(self, config: pytest.Config) -> None:
        self._gates = [Gate.parse(text) for text in [*os.environ.get("DAYTWO_GATES", "").split(), *config.getoption("gate")]]
        self._inventory: str | None = config.getoption("inventory")
        self._hosts: list[Host] = testinfra.get_hosts(
            config.option.hosts.split(","),
            connection=config.option.connection,
            ssh_config=config.option.ssh_config,
            ssh_identity_file=config.option.ssh_identity_file,
            sudo=config.option.sudo,
            sudo_user=config.option.sudo_user,
            ansible_inventory=config.option.ansible_inventory,
            force_ansible=config.option.force_ansible,
        ) if config.option.hosts else []  # fmt: skip
        # With workers only, the API cannot be asked; checks that need it are skipped.
        self.without_api = False
        self._fleet: Fleet | None = None
        self._results: dict[str, dict[str, Result]] | None = None
        self._failed: BaseException | None = None
        self._control_plane = [name for text in config.getoption("control_plane") for name in text.split(",") if name]
        if self._control_plane and (self._inventory or not self._hosts):
            raise pytest.UsageError("--control-plane belongs to --hosts alone: an inventory has its group control_plane")
        names = [str(host.backend.hostname) for host in self._hosts]
        if other := [name for name in self._control_plane if name not in names]:
            raise pytest.UsageError(f"--control-plane={','.join(other)}: no such host in --hosts, which has {', '.join(names)}")
        if self._inventory:
            self._fleet = open_inventory(self._inventory, str(ROOT), connect=False)
            if problems := refused_keys(self._fleet.inventory, pyinfra_keys()):
                raise pytest.UsageError("\n".join(map(str, problems)))
        # The name that pytest shows -> the name in the results.
        self.targets = {host.backend.get_pytest_id(): str(host.backend.hostname) for host in self._hosts}
        if not self._hosts and self._fleet:
            self.targets = {remote.name: remote.name for remote in self._fleet.inventory}

    def result(self, target: str, check: str) -> Result | None:
        """None if the node could not be read, so this check has no result."""
        if self._failed is not None:
            raise self._failed  # the nodes are not asked again for each test
        if self._results is None:
            try:
                self._results = self._look()
            except BaseException as error:
                self._failed = error
                raise
        return self._results[target].get(check)

    def is_out_of_reach(self, check: str) -> bool:
        """This run cannot check it: testinfra has no tunnel, so it cannot read the /metrics of two components."""
        return check != "looked-at" and (self.without_api or (bool(self._hosts) and check.endswith("-gates")))

    def why_not(self, target: str) -> str:
        assert self._results is not None
        return next(iter(self._results[target].values())).why

    def _look(self) -> dict[str, dict[str, Result]]:
        try:
            results = self._judged()
        except Refusal as refusal:
            raise pytest.UsageError(str(refusal)) from None
        found: dict[str, dict[str, Result]] = {}
        for result in results:
            found.setdefault(result.node, {})[result.check] = result
        return found

    def _judged(self) -> list[Result]:
        data = self._data()
        wanted = {name: self._desired(name, data.get(name)) for name in self.targets.values()}
        desired = of_the_cluster([(name, remote.data) for name, remote in data.items()])
        results = []
        if self._hosts:
            found = gather(connections := self._connections(data), _at_once)
            for one in connections:
                self._refuse_claim(one, found.nodes[one.name])
        else:
            fleet = open_inventory(cast(str, self._inventory), str(ROOT))
            results = [Result(remote.name, "looked-at", "unknown", "unreachable") for remote in fleet.unreachable]
            found = gather(fleet.targets, fleet.each)
        self.without_api = bool(self._hosts) and not found.apiservers
        for name, evidence in found.nodes.items():
            results += judge.node(evidence, wanted[name])
        desired = found.settled(desired)
        return results + judge.cluster(desired, found.live(desired))

    def _connections(self, data: Mapping[str, Remote]) -> list[Remote]:
        """Of --hosts. Who is control plane says the inventory; without one the operator, and never what runs on a host."""
        names = [str(host.backend.hostname) for host in self._hosts]
        known = {name: data[name].is_control_plane if name in data else name in self._control_plane for name in names}
        return [cast(Remote, _Connection(host, known[name])) for host, name in zip(self._hosts, names, strict=True)]

    def _refuse_claim(self, remote: Remote, evidence: Evidence) -> None:
        """Raises pytest.UsageError. With an inventory its check says the same."""
        if evidence.components and not remote.is_control_plane and not self._fleet:
            raise pytest.UsageError(
                f"{remote.name}: it runs {', '.join(evidence.components)} as static pods; if it is a control-plane node, say so with "
                f"--control-plane={remote.name}, and if it is none, find out who runs these there"
            )

    def _data(self) -> dict[str, Remote]:
        """The inventory's hosts, whose data has the desired state. Raises pytest.UsageError if one of --hosts is not among them."""
        known = {remote.name: remote for remote in self._fleet.inventory} if self._fleet else {}
        if known and (unknown := sorted(set(self.targets.values()) - set(known))):
            raise pytest.UsageError(f"{', '.join(unknown)}: no such host in {self._inventory}; it has {', '.join(known)}")
        return known

    def _desired(self, name: str, remote: Remote | None) -> NodeDesired:
        wanted = read_desired(name, remote.data) if remote else NodeDesired()
        more: dict[str, dict[str, bool | None]] = {}
        for gate in self._gates:
            more.setdefault(gate.component, {})[gate.name] = gate.value
        return replace(wanted, more_gates=more)


_NODES = pytest.StashKey[Nodes]()


def nodes(config: pytest.Config) -> Nodes:
    if _NODES not in config.stash:
        config.stash[_NODES] = Nodes(config)
    return config.stash[_NODES]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("daytwo")
    group.addoption("--inventory", metavar="FILE", help="an inventory of pyinfra: which nodes, and what they should run with")
    group.addoption(
        "--control-plane",
        action="append",
        default=[],
        metavar="HOST,...",
        help="with --hosts and no inventory: which of them are control-plane nodes, and may speak for the cluster",
    )
    group.addoption(
        "--gate",
        action="append",
        default=[],
        metavar="COMPONENT:NAME=VALUE",
        help="a gate that must be true, false or absent; also DAYTWO_GATES, separated by blanks",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "node_check" in metafunc.fixturenames:
        targets: Mapping[str, str] = nodes(metafunc.config).targets
        pairs = [(shown, name, check.name) for shown, name in targets.items() for check in CHECKS] or [("nobody", "", "")]
        metafunc.parametrize("node_check", [pair[1:] for pair in pairs], ids=[f"{shown}-{check}" for shown, _, check in pairs])
    if "cluster_check" in metafunc.fixturenames:
        metafunc.parametrize("cluster_check", [(judge.CLUSTER, check) for check in CLUSTER_CHECKS], ids=list(CLUSTER_CHECKS))


def hold(config: pytest.Config, target: str, check: str) -> str:
    """The evidence that a check passed; otherwise the test ends with one sentence that says why."""
    found = nodes(config)
    if not found.targets:
        pytest.fail(WHICH, pytrace=False)
    result = found.result(target, check)
    if result is None:
        pytest.fail(f"{target} could not be read: {harmless(found.why_not(target))}", pytrace=False)
    if result.outcome == "skip" or (result.outcome == "unknown" and found.is_out_of_reach(check)):
        pytest.skip(harmless(result.why))
    if result.outcome != "pass":
        pytest.fail(
            f"{target}: {check}: {'could not be checked: ' if result.outcome == 'unknown' else ''}{harmless(result.why)}", pytrace=False
        )
    return result.why
