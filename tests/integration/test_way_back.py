"""Ways back that have to wait, or must not: on real nodes, with a real systemd."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.integration.operator import GATE, Started, pyinfra, wait_for
from tests.integration.test_faults import HOME, SHORT, Node, dropin, gates, next_run_works, put_back, row
from tests.lab import Lab

pytestmark = pytest.mark.lab


@pytest.fixture
def node(lab: Lab) -> Iterator[Node]:
    with put_back(Node(lab, "w1")) as found:
        yield found


def test_what_was_put_back_in_the_soak_is_not_confirmed(node: Node) -> None:
    """As configuration management does: the process has the gate, and would not have it after its next restart."""
    old, files = node.kubelet(), node.files()
    node.run(f"cp -a {node.config} /root/managed")
    run = Started("feature_gates", *gates(node, soak="10", confirm_timeout=SHORT))
    run.wait_for("soaking")
    node.run(f"mv /root/managed {node.config}")
    told = run.end()
    assert told.code == 1, told.all
    assert f"not confirmed: {node.config} is as it was before the change: somebody else put it back" in row(told, node, "reverted")
    assert node.files() == files and node.kubelet()[2:] == old[2:] and not node.effective()


@pytest.mark.slow
def test_a_start_that_hangs_is_over_before_the_soak(node: Node) -> None:
    hang = f"[Service]\nTimeoutStartSec=infinity\nExecStartPre=/bin/sh -c 'if grep -q {GATE} {node.config}; then sleep infinity; fi'\n"
    with dropin(node, hang):
        old, files = node.kubelet(), node.files()
        told = pyinfra("feature_gates", *gates(node, soak="3600", confirm_timeout=SHORT), timeout=600)
        assert told.code == 1, told.all
        assert "not healthy after 35 s" in row(told, node, "reverted")
        assert node.files() == files and node.kubelet()[2:] == old[2:]
        assert node.run("systemctl is-active kubelet").strip() == "active"


@pytest.mark.slow
def test_a_file_that_cannot_be_put_back_at_boot(lab: Lab, node: Node) -> None:
    """The kubelet is held back for a while, then it starts with what is there; the timer goes on, and ends it."""
    old, files = node.kubelet(), node.files()
    run = Started("feature_gates", *gates(node, soak="600", confirm_timeout=SHORT))
    run.wait_for("soaking")
    run.send(signal.SIGKILL)
    change = node.change()
    if node.run(f"chattr +i {node.config} 2>/dev/null && echo done", check=False) != "done\n":
        pytest.skip("no file can be made immutable on this node's file system")
    try:
        lab.kill(node.name)
        lab.start(node.name)
        node.wait_for_state(change, "revert-failed")
        assert f"a file could not be put back: {node.config} cannot be written" in node.reason(change)
        wait_for(node.kubelet, "the kubelet to be let go")
        assert node.run(f"systemctl show -P ActiveState daytwo-{change}-deadline.timer").strip() == "active"
    finally:
        node.run(f"chattr -i {node.config}")
    node.wait_for_state(change, "reverted")
    wait_for(lambda: not node.leftovers(), "the change to be over")
    assert node.reason(change) == "the node was restarted before the change was confirmed"
    assert node.files() == files and node.kubelet()[2:] == old[2:]
    lab.run(lab.control_planes[0], f"flock -w 60 {HOME}/cluster.lock rm -f {HOME}/cluster")
    next_run_works(node)
