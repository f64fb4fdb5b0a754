"""The way back on a real node where something hangs, or comes later than it should."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

import pytest

from tests.integration import faulty
from tests.integration.faulty import (
    FLAGS_FILE,
    HOME,
    SHORT,
    Node,
    bad,
    dropin,
    fill,
    free,
    gate_on_the_command_line,
    gates,
    held,
    row,
    small_disk,
)
from tests.integration.operator import GATE, Started, pyinfra, wait_for

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("forgotten")]

# A fixture: pytest finds it by this name.
node = faulty.node

# On another file system of the node, which is there from the beginning and stays over a restart.
STORE = "/var/lib/containerd/late"
LATE = "late-mount.service"


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
        waits = f"{FLAGS_FILE}: its file system is not mounted on /etc/default; the node retries"
        wait_for(lambda: waits in node.run(journal, check=False), "the unit at boot to say what it waits for", 60)
        assert node.kubelet() == (), "the kubelet did not wait"
        assert node.run("ls -A /etc/default") == "", "written to what will be covered"
        assert node.state(change) == "revert-failed"
        node.run("touch /run/go")
        told = run.end().ended(1)
        assert "the node was restarted before the change was confirmed" in row(told, node, "reverted")
        wait_for(lambda: not node.leftovers(), "the change to be over")
        assert node.files() == files and node.kubelet()[2:] == old[2:]
        assert not node.effective()
        assert node.run(f"ls {HOME}/active") == ""


MOUNT, DISK = "etc-default.mount", "late-disk.service"
# As an operator would limit the unit; beside it the change lays its own drop-in, which goes with the change.
BRIEF = "/etc/systemd/system/daytwo-recover.service.d/90-brief.conf"


@contextlib.contextmanager
def mounted_by_a_unit(node: Node) -> Iterator[None]:
    """The directory of the kubelet's flags is a mount unit of its own, whose disk is there when /run/go is: it waits 3 s for it, and
    fails. The unit at boot, which follows it, has 3 s as well."""
    units = {
        DISK: "[Service]\nType=oneshot\nTimeoutStartSec=3\nExecStart=/bin/sh -c 'until [ -e /run/go ]; do sleep 0.1; done'\n",
        MOUNT: f"[Unit]\nRequires={DISK}\nAfter={DISK}\nDefaultDependencies=no\n[Mount]\nWhat={STORE}\nWhere=/etc/default\nOptions=bind\n",
    }
    for name, text in units.items():
        node.run(f"cat >/etc/systemd/system/{name}", input=text)
    node.run(f"mkdir -p {BRIEF.rpartition('/')[0]} && printf '[Service]\\nTimeoutStartSec=3\\n' >{BRIEF}")
    node.run(f"touch /run/go; mv /etc/default {STORE} && mkdir -m 755 /etc/default; systemctl daemon-reload && systemctl start {MOUNT}")
    try:
        yield
    finally:
        node.run(f"touch /run/go; systemctl stop {MOUNT}; rmdir /etc/default && mv {STORE} /etc/default; rm /run/go")
        node.run(f"cd /etc/systemd/system && rm {MOUNT} {DISK} {BRIEF}; rmdir {BRIEF.rpartition('/')[0]}; systemctl daemon-reload")


def test_a_target_that_is_mounted_after_the_unit_at_boot_gave_up(node: Node) -> None:
    """The timer goes on, each time asks for the mount again, and stops when all is as before. No operator's side is there any more."""
    with gate_on_the_command_line(node), mounted_by_a_unit(node):
        old, files = node.kubelet(), node.files()
        run = held("wait", node, *gates(node))
        change = node.change()
        run.send(signal.SIGKILL)
        node.lab.kill(node.name)
        node.lab.start(node.name)

        def journal() -> str:
            units = f"--unit daytwo-recover.service --unit daytwo-recover.timer --unit {DISK}"
            return node.run(f"journalctl --boot --no-pager --output cat {units}", check=False)

        starting = "Starting daytwo-recover.service"
        wait_for(lambda: journal().count(starting) >= 2, "the timer to try again", 60)
        told = journal()
        assert told.index(f"Failed to start {DISK}") < told.index(starting), "the unit at boot did not wait for the mount"
        gave_up, began = "daytwo-recover.service: Triggering OnFailure= dependencies", "Started daytwo-recover.timer"
        assert told.index(starting) < told.index(gave_up) < told.index(began) < told.rindex(starting)
        assert f"{FLAGS_FILE}: its file system is not mounted on /etc/default; the node retries" in told
        assert node.run("ls -A /etc/default") == "", "written to what will be covered"
        assert node.state(change) == "revert-failed"
        node.run("touch /run/go")
        node.wait_for_state(change, "reverted")
        assert node.reason(change) == "the node was restarted before the change was confirmed"
        assert "step: restore 1" in node.log(change)
        wait_for(lambda: not node.leftovers(), "the change to be over")
        assert node.files() == files and node.kubelet()[2:] == old[2:]
        assert node.run("systemctl is-active daytwo-recover.timer", check=False).strip() == "inactive"


def test_a_start_that_hangs_is_put_back_in_time(node: Node) -> None:
    """An ExecStartPre without a time limit, that obeys no signal, in front of a soak of an hour."""
    hangs = (
        "[Service]\nTimeoutStartSec=infinity\n"
        f"ExecStartPre=/bin/sh -c 'if grep -q NoSuchGate {node.config}; then trap \"\" TERM; while true; do sleep 1; done; fi'\n"
    )
    with dropin(node, hangs):
        old, files = node.kubelet(), node.files()
        told = pyinfra("feature_gates", *bad(node, confirm_timeout="45", soak="3600")).ended(1)
        assert "not healthy after 35 s" in row(told, node, "reverted")
        assert "hangs in kubelet.service: killed" in node.log(node.change())
        assert node.files() == files and node.kubelet()[2:] == old[2:]
        assert node.run("systemctl is-active kubelet").strip() == "active"


@contextlib.contextmanager
def hanging_journalctl(node: Node) -> Iterator[None]:
    """A journalctl without an end: it notes in /run/back when it sees that the kubelet's configuration is as before. The first that is
    asked for alone: where it was ended, the change's status asks again."""
    script = f"#!/bin/sh\nmkdir /run/asked 2>/dev/null || exec sleep 600\nuntil cmp -s {node.config} /run/config.before; do sleep 0.1; done\n: >/run/back\nexec sleep 600\n"
    node.run(
        f"cp {node.config} /run/config.before && cat >/usr/local/sbin/journalctl && chmod 755 /usr/local/sbin/journalctl", input=script
    )
    try:
        yield
    finally:
        node.run("rm -f /usr/local/sbin/journalctl /run/config.before /run/back; rmdir /run/asked")


# A process that hangs on the way back of a real node is the start above; that the files do not wait for the journal, nor the script for one
# without an end, is shown with the same script in tests/unit/transaction/test_way_back.py.
@pytest.mark.slow
def test_a_journal_that_hangs_comes_after_the_files(node: Node) -> None:
    with hanging_journalctl(node):
        old, files = node.kubelet(), node.files()
        told = pyinfra("feature_gates", *bad(node)).ended(1)
        row(told, node, "reverted")
        assert node.run("ls /run/back") == "/run/back\n", "the files waited for the journal"
        assert node.files() == files and node.kubelet()[2:] == old[2:]


def test_the_old_file_in_the_soak_is_not_confirmed(node: Node) -> None:
    """Config management writes as it always does: the whole file, under its name at once."""
    old, files = node.kubelet(), node.files()
    node.run(f"cp -a {node.config} {node.config}.new")
    run = Started("feature_gates", *gates(node, soak="10", confirm_timeout=SHORT))
    run.wait_for("soaking")
    node.run(f"mv {node.config}.new {node.config}")
    told = run.end().ended(1)
    assert f"foreign: {node.config} is " in row(told, node, "reverted")
    change = node.change()
    assert "state: confirmed" not in node.log(change) and "not confirmed: " in node.log(change)
    assert node.files() == files and node.kubelet()[2:] == old[2:] and not node.effective()


def test_an_edit_in_mid_change_is_kept_whole_on_a_full_disk(node: Node) -> None:
    """Where the record has no room for a copy, theirs gets a second name beside it."""
    old, files = node.kubelet(), node.files()
    with small_disk(node, HOME, 512):
        run = held("revert", node, *bad(node))
        node.run(f"yes '# theirs' | head -c 262144 >>{node.config}")
        look = "stat -c %i {0} && sha256sum <{0}"
        theirs = node.run(look.format(node.config))
        fill(node, HOME)
        node.go()
        told = run.end().ended(1)
        change = node.change()
        kept = f"/var/lib/kubelet/.daytwo/{change}/1.theirs"
        assert f"somebody else wrote {node.config} in mid-change, their version is kept as {kept}" in row(told, node, "reverted")
        assert node.run(look.format(kept)) == theirs
        assert node.files() == files and node.kubelet()[2:] == old[2:]
        free(node, HOME)
        node.run(f"sh {HOME}/changes/{change}/change.sh tidy")
        kept = f"{HOME}/changes/{change}/foreign.1"
        assert node.run(f"sha256sum <{kept}") == theirs.partition("\n")[2] and f"their version is kept as {kept}" in node.reason(change)
        assert node.leftovers() == ""
