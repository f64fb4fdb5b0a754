"""A worker on which things go wrong, and what an operator sees of it."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration import operator
from tests.integration.operator import GATE, Outcome, Started, data, end_started, wait_for
from tests.lab import Lab

HOME = "/var/lib/daytwo"
UNKNOWN_GATE = "NoSuchGate"
ON = f"{GATE}=true"
# The shortest one: a test that waits for a node's own decision does not wait longer than it must.
SHORT = "45"


@dataclass(frozen=True)
class Node:
    """A worker, and what an operator sees of it."""

    lab: Lab
    name: str

    @property
    def config(self) -> str:
        """The kubelet's configuration file: w2 is made by hand."""
        return "/etc/kubernetes-node/kubelet.yaml" if self.name == "w2" else "/var/lib/kubelet/config.yaml"

    def run(self, command: str, check: bool = True, input: str = "") -> str:
        return self.lab.run(self.name, command, check=check, input=input).stdout

    def files(self) -> dict[str, str]:
        """Without daytwo's own: its unit comes with the first change and stays; what is staged `leftovers` tells."""
        found = operator.files(self.lab, self.name).items()
        return {path: digest for path, digest in found if "/daytwo-recover." not in path and "/.daytwo/" not in path}

    def kubelet(self) -> tuple[str, ...]:
        """PID, start time and arguments; empty where none runs."""
        return operator.processes(self.lab, self.name).get("kubelet", ())

    def effective(self) -> bool:
        return operator.effective(self.lab, self.name, GATE)

    def go(self) -> None:
        """Let a held change go on. The file takes no space."""
        self.run(f"touch {HOME}/go")

    def hold_anew(self) -> None:
        self.run(f"rm -rf {HOME}/held {HOME}/go")

    def change(self) -> str:
        """Name of the newest change."""
        return self.run(f"ls -t {HOME}/changes | head -n 1").strip()

    def log(self, change: str) -> str:
        return self.run(f"cat {HOME}/changes/{change}/log", check=False)

    def state(self, change: str) -> str:
        """What the change's own script says of it."""
        told = self.run(
            f"sh $(ls {HOME}/active/{change}/change.sh {HOME}/changes/{change}/change.sh 2>/dev/null | head -n 1) status", check=False
        )
        return next((line.partition("=")[2] for line in told.splitlines() if line.startswith("state=")), "")

    def reason(self, change: str) -> str:
        return self.run(f"cat {HOME}/changes/{change}/reason").strip()

    def wait_for_state(self, change: str, state: str) -> None:
        wait_for(lambda: self.state(change) == state, f"{change} on {self.name} to be {state}")

    def leftovers(self) -> str:
        """What a change that is over must not leave: units, timers, what it staged, the sign that it is in flight. A unit that just
        ends has its time for it, which is shorter than until any deadline."""
        end = time.monotonic() + 20
        while True:
            told = self.run(
                f"systemctl list-units --all --plain --no-legend 'daytwo-r[0-9]*'; ls -d {HOME}/active/* {HOME}/ended-* {HOME}/changes/.[!.]* 2>/dev/null;"
                " find / -xdev -name .daytwo 2>/dev/null; ls -d /*/.daytwo /var/lib/*/.daytwo /etc/*/.daytwo 2>/dev/null",
                check=False,
            )
            if not told or time.monotonic() > end:
                return told

    def restart_kubelet(self, before: str = ":") -> None:
        """Returns when the new one serves."""
        self.run(f"{before}; systemctl restart kubelet")
        healthy = "curl -s http://127.0.0.1:10248/healthz"
        wait_for(lambda: self.run(healthy, check=False) == "ok", f"the kubelet of {self.name} to be healthy")


@pytest.fixture
def node(lab: Lab) -> Iterator[Node]:
    with put_back(Node(lab, "w1")) as found:
        yield found


@contextlib.contextmanager
def put_back(node: Node) -> Iterator[Node]:
    """The node as it was, whatever the test did to it; what a test itself did not put back is a failure."""
    node.hold_anew()
    before, arguments = node.files(), node.kubelet()[2:]
    whole = False
    try:
        try:
            yield node
        finally:
            end_started(node.lab)
        node.hold_anew()
        assert node.leftovers() == ""
        assert node.files() == before
        assert node.kubelet()[2:] == arguments
        whole = True
    finally:
        if not whole:
            node.lab.reset(node.name)


def gates(node: Node, *, gate: str = ON, **more: str) -> list[str]:
    return ["-y", *data(feature_gates=gate, only=node.name, **more)]


def bad(node: Node, **more: str) -> list[str]:
    """A gate that the kubelet does not know: it does not start with it."""
    return gates(node, gate=f"{UNKNOWN_GATE}=true", allow_unknown_gates="true", **more)


def row(told: Outcome, node: Node, outcome: str, component: str = "kubelet") -> str:
    """The table's row of a node, which says `outcome`."""
    found = re.search(rf"^{node.name} +{component} +\w+ .* {outcome} .*$", told.out, re.MULTILINE)
    assert found, told.out
    return found.group(0)


def held(step: str, node: Node, *arguments: str, inventory: str = "inventories/lab.py") -> Started:
    """A run whose change holds its breath at a step."""
    run = Started("feature_gates", *arguments, hold=step, inventory=inventory)
    run.wait_for(f"{node.name} kubelet: held\n")
    return run


FLAGS_FILE = "/etc/default/kubelet"


@contextlib.contextmanager
def gate_on_the_command_line(node: Node, more: str = "") -> Iterator[None]:
    """The gate stands, off, in the environment file of the kubelet, which is then the file to be changed."""
    kept = node.run(f"cat {FLAGS_FILE}", check=False)
    there = node.run(f"test ! -e {FLAGS_FILE} || echo there")
    node.run(f"cat >{FLAGS_FILE}", input=f"{more}KUBELET_EXTRA_ARGS=--feature-gates={GATE}=false\n")
    node.restart_kubelet()
    try:
        yield
    finally:
        if there:
            node.run(f"cat >{FLAGS_FILE}", input=kept)
        else:
            node.run(f"rm {FLAGS_FILE}")
        node.restart_kubelet()


@contextlib.contextmanager
def small_disk(node: Node, path: str, kib: int) -> Iterator[None]:
    """A small file system over a directory, with its content. The change's own directory begins empty."""
    copy = "" if path == HOME else f"cp -a {path}/kubelet /run/kept && "
    back = "" if path == HOME else f" && cp -a /run/kept {path}/kubelet && rm /run/kept"
    node.run(f"{copy}mkdir -p {path} && mount -t tmpfs -o size={kib}k,mode=0755 small {path}{back}")
    try:
        yield
    finally:
        node.run(f"umount {path}")


def fill(node: Node, path: str, room: int = 0) -> None:
    """Fill a file system but for `room` KiB."""
    node.run(
        f"cat /dev/zero >{path}/fill 2>/dev/null; size=$(stat -c %s {path}/fill); truncate -s $((size - {room} * 1024)) {path}/fill; "
        f"[ $(df -k --output=avail {path} | tail -n 1) = {room} ]"
    )


def free(node: Node, path: str) -> None:
    node.run(f"rm -f {path}/fill")


DROPIN = "/etc/systemd/system/kubelet.service.d/50-test.conf"


@contextlib.contextmanager
def dropin(node: Node, text: str) -> Iterator[None]:
    node.run(f"mkdir -p {Path(DROPIN).parent} && cat >{DROPIN} && systemctl daemon-reload", input=text)
    node.restart_kubelet()
    try:
        yield
    finally:
        node.restart_kubelet(
            f"rm {DROPIN}; rmdir {Path(DROPIN).parent} 2>/dev/null; systemctl daemon-reload; systemctl reset-failed kubelet"
        )
