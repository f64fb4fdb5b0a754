"""The nodes to check, seen through testinfra's connection by daytwo's own look, and the gates they are expected to have."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import pytest
from testinfra.host import Host

from roles import control_plane, kubelet
from roles.change.refusal import Refusal
from roles.observe import ObservationError
from roles.observe.look import look
from roles.rollout.remote import Answer, Remote

COMPONENTS = ("kubelet", *control_plane.COMPONENTS)


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

    def __str__(self) -> str:
        return f"{self.component}:{self.name}={'absent' if self.value is None else str(self.value).lower()}"


@dataclass(frozen=True, repr=False)
class Node:
    """A node, and how to look at it again."""

    host: Host
    kubelet: kubelet.Kubelet

    @classmethod
    def of(cls, host: Host) -> Node:
        # A look needs a name and a way to run a script, which is all that testinfra's connection has.
        with _told():
            return cls(host, kubelet.find(look(cast(Remote, _Connection(host)), kubelet.wanted)))

    @property
    def components(self) -> dict[str, control_plane.Component]:
        """The control-plane components by name; none on a worker."""
        with _told():
            return control_plane.find(self.kubelet)

    def again(self) -> Node:
        return Node.of(self.host)

    def __repr__(self) -> str:
        # Not what was seen: it holds kubeconfigs, and pytest prints the arguments of a test that fails.
        return f"Node({self.host.backend.hostname})"


@contextmanager
def _told() -> Iterator[None]:
    """Why a node cannot be understood is the whole report: one sentence."""
    why = ""
    try:
        yield
    except (Refusal, ObservationError) as error:
        why = str(error)
    if why:
        pytest.fail(why, pytrace=False)


class _Connection:
    def __init__(self, host: Host) -> None:
        self._host = host
        self.name = str(host.backend.hostname)

    def run(self, script: str, *, timeout: float) -> Answer:
        # timeout(1) on the node: testinfra has none.
        done = self._host.run("timeout %s sh -c %s", str(timeout), script)
        return Answer(done.rc, done.stdout.splitlines(), done.stderr.splitlines())


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("daytwo").addoption(
        "--gate",
        action="append",
        default=[],
        metavar="COMPONENT:NAME=VALUE",
        help="a gate that must be true, false or absent; also DAYTWO_GATES, separated by blanks",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "gate" in metafunc.fixturenames:
        wanted = [*os.environ.get("DAYTWO_GATES", "").split(), *metafunc.config.getoption("gate", [])]
        metafunc.parametrize("gate", [Gate.parse(text) for text in wanted], ids=str)


@pytest.fixture(scope="module")
def node(request: pytest.FixtureRequest, host: Host) -> Node:
    if not request.config.getoption("hosts"):
        pytest.fail("which nodes? Name them: --hosts='ssh://cp1,ssh://w1' (with --ssh-config=FILE where needed)", pytrace=False)
    return Node.of(host)
