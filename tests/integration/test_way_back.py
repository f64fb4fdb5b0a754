"""The way back on a real node where something hangs, or comes later than it should."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.integration import operator
from tests.integration.operator import pyinfra, wait_for
from tests.integration.test_faults import FLAGS_FILE, GATE, HOME, Node, bad, dropin, gate_on_the_command_line, gates, held, put_back, row
from tests.lab import Lab

pytestmark = pytest.mark.lab

# On another file system of the node, which is there from the beginning and stays over a restart.
STORE = "/var/lib/containerd/late"
LATE = "late-mount.service"


@pytest.fixture(scope="module", autouse=True)
def forgotten(lab: Lab) -> Iterator[None]:
    """No record of this module's runs is left on a node."""
    yield
    operator.forget(lab)


@pytest.fixture
def node(lab: Lab) -> Iterator[Node]:
    with put_back(Node(lab, "w1")) as found:
        yield found


@contextlib.contextmanager
def mounted_late(node: Node) -> Iterator[None]:
    """The directory of the kubelet's flags is on another file system, which at boot is mounted when /run/go is there."""
    unit = (
        "[Unit]\nDescription=a disk that takes its time\n[Service]\nType=oneshot\nRemainAfterExit=yes\nTimeoutStartSec=infinity\n"
        f"ExecStart=/bin/sh -c 'until [ -e /run/go ]; do sleep 0.1; done; mount --bind {STORE} /etc/default'\n"
        "[Install]\nWantedBy=multi-user.target\n"
    )
    node.run(f"mv /etc/default {STORE} && mkdir -m 755 /etc/default && mount --bind {STORE} /etc/default")
    node.run(f"cat >/etc/systemd/system/{LATE} && systemctl daemon-reload && systemctl enable --quiet {LATE}", input=unit)
    try:
        yield
    finally:
        node.run(f"touch /run/go; systemctl disable --quiet --now {LATE}; rm /etc/systemd/system/{LATE}; systemctl daemon-reload")
        node.run(f"umount /etc/default; rmdir /etc/default && mv {STORE} /etc/default")


def test_a_target_that_is_mounted_late_at_boot(node: Node) -> None:
    """The kubelet is kept waiting, and starts with the old bytes."""
    with gate_on_the_command_line(node), mounted_late(node):
        old, files = node.kubelet(), node.files()
        run = held("wait", node, *gates(node))
        assert node.run(f"cat {FLAGS_FILE}").count(f"{GATE}=true") == 1
        change = node.change()
        node.lab.kill(node.name)
        node.lab.start(node.name)
        journal = "journalctl --boot --no-pager --output cat --unit daytwo-recover.service"
        waits = f"{FLAGS_FILE}: its file system is not mounted on /etc/default; tried again"
        wait_for(lambda: waits in node.run(journal, check=False), "the unit at boot to say what it waits for", 60)
        assert node.kubelet() == (), "the kubelet did not wait"
        assert node.run("ls -A /etc/default") == "", "written to what will be covered"
        assert node.state(change) == "revert-failed"
        node.run("touch /run/go")
        told = run.end()
        assert told.code == 1, told.all
        assert "the node was restarted before the change was confirmed" in row(told, node, "reverted")
        wait_for(lambda: not node.leftovers(), "the change to be over")
        assert node.files() == files and node.kubelet()[2:] == old[2:]
        assert not node.effective()
        assert node.run(f"ls {HOME}/active") == ""


def test_a_start_that_hangs_is_put_back_in_time(node: Node) -> None:
    """An ExecStartPre without a time limit, that obeys no signal, in front of a soak of an hour."""
    hangs = (
        "[Service]\nTimeoutStartSec=infinity\n"
        f"ExecStartPre=/bin/sh -c 'if grep -q NoSuchGate {node.config}; then trap \"\" TERM; while true; do sleep 1; done; fi'\n"
    )
    with dropin(node, hangs):
        old, files = node.kubelet(), node.files()
        told = pyinfra("feature_gates", *bad(node, confirm_timeout="45", soak="3600"))
        assert told.code == 1, told.all
        assert "not healthy after 35 s" in row(told, node, "reverted")
        assert "hangs in kubelet.service: ended" in node.log(node.change())
        assert node.files() == files and node.kubelet()[2:] == old[2:]
        assert node.run("systemctl is-active kubelet").strip() == "active"
