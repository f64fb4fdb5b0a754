"""What goes wrong on real nodes, on the operator's side and by other hands: each time a clear outcome, and nothing lost."""

from __future__ import annotations

import getpass
import json
import re
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration import faulty, operator
from tests.integration.faulty import (
    FLAGS_FILE,
    HOME,
    ON,
    SHORT,
    UNKNOWN_GATE,
    Node,
    bad,
    dropin,
    fill,
    free,
    gate_on_the_command_line,
    gates,
    held,
    put_back,
    row,
    small_disk,
)
from tests.integration.operator import GATE, MANIFESTS, Outcome, Started, data, pyinfra, run_of, wait_for
from tests.lab import Lab

pytestmark = pytest.mark.lab

# A fixture: pytest finds it by this name.
node = faulty.node


@pytest.fixture(scope="module", autouse=True)
def forgotten(lab: Lab) -> Iterator[None]:
    """No record of this module's runs is left on a node. The login shell of a worker prints before each command."""
    with operator.talking(lab, "w1"):
        yield
    operator.forget(lab)


@pytest.fixture
def second(lab: Lab) -> Iterator[Node]:
    """Another worker, of another kind: its gates are on its command line."""
    with put_back(Node(lab, "w2")) as found:
        yield found


def confirmed(told: Outcome, node: Node) -> None:
    assert told.code == 0, told.all
    row(told, node, "confirmed")
    assert node.effective()


def undo(*nodes: Node) -> None:
    """The gate taken out again: the proof that the next run works."""
    only = ",".join(node.name for node in nodes)
    told = pyinfra("feature_gates", "-y", *data(feature_gates=f"{GATE}=absent", only=only), brief=True).ended(0)
    for node in nodes:
        row(told, node, "confirmed")


def next_run_works(node: Node) -> None:
    confirmed(pyinfra("feature_gates", *gates(node)), node)
    undo(node)


# ---- full disks, read-only file systems


WHERE = ("write the change", "the unit that reverts at boot", "could not stage", "could not arm", "no space")


@pytest.mark.slow
def test_a_disk_that_is_full_before(node: Node) -> None:
    """From no room at all on, until there is enough: each time it is refused as a whole."""
    old, files = node.kubelet(), node.files()
    said = set()
    # Room for what the refused changes leave behind, too.
    with small_disk(node, HOME, 4096):
        for room in range(0, 512, 20):
            fill(node, HOME, room)
            told = pyinfra("feature_gates", *gates(node))
            free(node, HOME)
            if told.code == 0:
                break
            refused = row(told, node, "refused")
            assert "nothing was changed" in refused
            said.add(next(word for word in WHERE if word in refused))
            assert node.kubelet() == old and node.files() == files
            assert node.leftovers() == ""
        assert len(said) >= 3, said
        confirmed(told, node)
        undo(node)


@pytest.mark.parametrize("step", ["wait", pytest.param("place 1", marks=pytest.mark.slow), pytest.param("applied", marks=pytest.mark.slow)])
def test_a_disk_that_fills_in_mid_change(node: Node, step: str) -> None:
    """What is needed from the first touch on has its space before it: the change goes on to its end."""
    with small_disk(node, HOME, 512):
        run = held(step, node, *gates(node))
        fill(node, HOME)
        node.go()
        told = run.end()
        confirmed(told, node)
        change = node.change()
        assert node.state(change) == "confirmed" and node.leftovers() == ""
        free(node, HOME)
        undo(node)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["place 1", "revert"])
def test_a_disk_that_fills_before_a_revert(node: Node, step: str) -> None:
    old, files = node.kubelet(), node.files()
    with small_disk(node, HOME, 512):
        run = held(step, node, *bad(node))
        fill(node, HOME)
        node.go()
        told = run.end().ended(1)
        row(told, node, "reverted")
        assert node.files() == files and node.kubelet()[2:] == old[2:]
        assert node.state(node.change()) == "reverted" and node.leftovers() == ""
        free(node, HOME)
        next_run_works(node)


def not_staged(node: Node, why: str) -> None:
    """Refused for this reason, and nothing on the node is another than before."""
    old, files = node.kubelet(), node.files()
    told = pyinfra("feature_gates", *gates(node)).ended(1)
    assert re.search(f"could not stage: {why}.*; nothing was changed", row(told, node, "refused"))
    assert node.kubelet() == old and node.files() == files and node.leftovers() == ""


def test_a_target_that_cannot_be_staged(node: Node) -> None:
    """On a bind mount a rename would be a copy; then the disk is full; then it is read-only. Once it has room, the change is made."""
    with gate_on_the_command_line(node):
        node.run("mount --bind /etc/default /etc/default")
        not_staged(node, f"{FLAGS_FILE} cannot be linked .*a bind mount")
        node.run("umount /etc/default")
        with small_disk(node, "/etc/default", 64):
            fill(node, "/etc/default")
            not_staged(node, ".*no space")
            free(node, "/etc/default")
            remount(node, "ro")
            not_staged(node, ".*read-only file system")
            remount(node, "rw")
            confirmed(pyinfra("feature_gates", *gates(node)), node)


@pytest.mark.slow
@pytest.mark.parametrize(("step", "good"), [("place 1", True), ("wait", True), ("applied", True), ("place 1", False), ("revert", False)])
def test_a_target_whose_disk_fills_in_mid_change(node: Node, step: str, good: bool) -> None:
    with gate_on_the_command_line(node), small_disk(node, "/etc/default", 64):
        files = node.files()
        run = held(
            step, node, *(gates(node) if good else gates(node, gate=f"{GATE}=absent,{UNKNOWN_GATE}=true", allow_unknown_gates="true"))
        )
        fill(node, "/etc/default")
        node.go()
        told = run.end()
        free(node, "/etc/default")
        if good:
            confirmed(told, node)
        else:
            assert told.code == 1, told.all
            row(told, node, "reverted")
            assert node.files() == files
            confirmed(pyinfra("feature_gates", *gates(node)), node)
        assert node.leftovers() == ""


def remount(node: Node, how: str) -> None:
    node.run(f"mount -o remount,{how} /etc/default")


@pytest.mark.slow
def test_a_target_that_becomes_read_only_before_it_is_placed(node: Node) -> None:
    with gate_on_the_command_line(node), small_disk(node, "/etc/default", 64):
        old, files = node.kubelet(), node.files()
        run = held("place 1", node, *gates(node))
        remount(node, "ro")
        node.go()
        told = run.end().ended(1)
        assert f"could not put the new {FLAGS_FILE} in place" in row(told, node, "reverted")
        assert node.kubelet() == old and node.files() == files
        remount(node, "rw")
        confirmed(pyinfra("feature_gates", *gates(node)), node)
        assert node.leftovers() == ""


@pytest.mark.slow
def test_a_target_that_becomes_read_only_before_it_is_put_back(node: Node) -> None:
    """Where a node cannot go back yet it says so, takes no further change, and tries again; nobody has to wait for that."""
    with gate_on_the_command_line(node), small_disk(node, "/etc/default", 64):
        old, files = node.kubelet(), node.files()
        wanted = gates(node, gate=f"{GATE}=absent,{UNKNOWN_GATE}=true", allow_unknown_gates="true")
        run = held("wait", node, *wanted)
        remount(node, "ro")
        node.go()
        told = run.end().ended(1)
        assert "a file could not be restored" in row(told, node, "revert-failed")
        assert f"REPAIR BY HAND on {node.name}" in told.out
        change = node.change()
        status = pyinfra("status", "-y")
        assert f"change {change} is revert-failed: its node retries the revert" in status.out
        refused = pyinfra("feature_gates", *wanted)
        assert refused.code == 1 and f"change {change} is revert-failed" in refused.all, refused.all
        # Where no kubelet runs, little else can be told of the node.
        node.run("systemctl stop kubelet")
        status = pyinfra("status", "-y")
        assert status.code == 1 and f"{node.name}: no kubelet runs on this node" in status.all, status.all
        assert f"{node.name}: change {change} is revert-failed: its node retries the revert" in status.all, status.all
        remount(node, "rw")
        node.run(f"sh {HOME}/changes/{change}/change.sh revert")
        assert node.state(change) == "reverted" and node.leftovers() == ""
        assert node.files() == files and node.kubelet()[2:] == old[2:]
        confirmed(pyinfra("feature_gates", *gates(node)), node)


# ---- other hands


def replace_by_link(node: Node) -> None:
    node.run(f"cp -a {node.config} /root/elsewhere && ln -sf /root/elsewhere {node.config}")


def edit(node: Node) -> None:
    node.run(f"echo '# mine' >>{node.config}")


@pytest.fixture
def config(node: Node) -> Iterator[str]:
    """The kubelet's configuration as it was, once the test has seen what became of it."""
    node.run(f"cp -a {node.config} /root/config.kept")
    yield node.config
    node.run(f"rm -f {node.config} /root/elsewhere; mv /root/config.kept {node.config}")


@pytest.mark.parametrize(
    ("step", "spoil", "outcome", "words"),
    [
        ("check", edit, "refused", "was edited since the plan"),
        ("check", replace_by_link, "refused", "is a symbolic link"),
        ("place 1", edit, "reverted", "was edited in mid-change"),
    ],
)
def test_a_target_that_others_change(node: Node, config: str, step: str, spoil: Callable[[Node], None], outcome: str, words: str) -> None:
    old = node.kubelet()
    run = held(step, node, *gates(node))
    spoil(node)
    look = f"sha256sum <{config}; readlink {config}"
    theirs = node.run(look, check=False)
    node.go()
    told = run.end().ended(1)
    assert words in row(told, node, outcome)
    assert node.kubelet() == old and node.leftovers() == ""
    assert node.run(look, check=False) == theirs, "what somebody else wrote, before this change had touched the file, is gone"


@pytest.mark.slow  # the same look at the target as for an edit; tests/unit/transaction/test_way_back.py has all that somebody may do to it
def test_a_target_that_becomes_a_link(node: Node, config: str) -> None:
    test_a_target_that_others_change(node, config, "place 1", replace_by_link, "reverted", "became a symbolic link in mid-change")


@pytest.mark.slow
def test_a_target_that_others_change_after_it_was_placed(node: Node, config: str) -> None:
    """It goes back to the original all the same, and theirs is kept."""
    old, files = node.kubelet(), node.files()
    run = held("revert", node, *bad(node))
    edit(node)
    theirs = node.run(f"cat {config}")
    node.go()
    told = run.end().ended(1)
    kept = f"{HOME}/changes/{node.change()}/foreign.1"
    assert f"somebody else wrote {config} in mid-change, their version is kept as {kept}" in row(told, node, "reverted")
    assert node.run(f"cat {kept}") == theirs
    assert node.files() == files and node.kubelet()[2:] == old[2:]


@pytest.mark.parametrize("applied", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["wait", "soak"])
def test_a_change_whose_directory_is_deleted(node: Node, applied: bool) -> None:
    """What it takes to put it back lies elsewhere too."""
    old, files = node.kubelet(), node.files()
    if applied:
        run = Started("feature_gates", *gates(node, soak="15", confirm_timeout=SHORT))
        run.wait_for("soaking")
    else:
        run = held("wait", node, *gates(node))
    change = node.change()
    node.run(f"rm -rf {HOME}/changes/{change}")
    node.go()
    told = run.end().ended(1)
    row(told, node, "reverted")
    wait_for(lambda: not node.leftovers(), "the change to be over")
    assert node.files() == files and node.kubelet()[2:] == old[2:]
    if applied:
        next_run_works(node)  # else the next test's run on this node shows it


# ---- the kubelet's own ways


def test_a_kubelet_with_start_limits(node: Node) -> None:
    """It may be started once in ten minutes, which its failure uses up."""
    with dropin(node, "[Unit]\nStartLimitIntervalSec=600\nStartLimitBurst=1\n[Service]\nRestartSec=1\n"):
        old, files = node.kubelet(), node.files()
        told = pyinfra("feature_gates", *bad(node)).ended(1)
        assert f"unrecognized feature gate: {UNKNOWN_GATE}" in row(told, node, "reverted")
        assert node.files() == files and node.kubelet()[2:] == old[2:]
        assert node.run("systemctl is-active kubelet").strip() == "active"
        journal = node.run("journalctl --unit kubelet --boot --no-pager --output cat")
        assert "Start request repeated too quickly" in journal, "the limit was never reached"


@pytest.mark.slow
def test_a_kubelet_that_dies_after_ten_seconds(node: Node) -> None:
    """It was up and healthy: that alone proves nothing."""
    kill = (
        f"[Service]\nExecStartPost=/bin/sh -c 'if grep -q {GATE} {node.config}; then"
        " systemd-run --collect --on-active=10 --timer-property=AccuracySec=100ms kill -KILL $MAINPID; fi'\n"
    )
    with dropin(node, kill):
        old, files = node.kubelet(), node.files()
        told = pyinfra("feature_gates", *gates(node)).ended(1)
        assert "was healthy and ended again" in row(told, node, "reverted")
        assert "healthy: http" in told.out
        assert node.files() == files and node.kubelet()[2:] == old[2:]


@pytest.mark.slow
def test_a_revert_that_is_killed_twice(node: Node) -> None:
    old, files = node.kubelet(), node.files()
    run = held("restore 1", node, *bad(node, confirm_timeout="60"))
    change = node.change()
    unit = f"daytwo-{change}.service"
    node.run(f"systemctl kill --signal=KILL {unit}")
    wait_for(lambda: "step: wait-old" in node.log(change), "the revert to be taken up")
    assert "the process that worked on the change is gone" in node.log(change)
    node.run(f"systemctl kill --signal=KILL {unit}")
    told = run.end().ended(1)
    row(told, node, "reverted")
    assert node.files() == files and node.kubelet()[2:] == old[2:] and node.leftovers() == ""
    assert node.log(change).count("step: wait-old") == 2
    next_run_works(node)


@pytest.mark.wide
@pytest.mark.slow
def test_a_kubelet_that_would_not_take_a_manifest_up(lab: Lab) -> None:
    node = Node(lab, lab.control_planes[-1])
    look = f"stat -c '%n %Y %Z %i' {MANIFESTS}/*"
    before = node.run(look)
    with lab.frozen(node.name, "kubelet"):
        told = pyinfra("feature_gates", *gates(node, components="kube-scheduler"))
    assert told.code == 1, told.all
    assert "has not renewed its lease" in row(told, node, "not started", "kube-scheduler")
    assert node.run(look) == before


@pytest.mark.wide
@pytest.mark.slow
def test_an_apiserver_that_is_slow_by_a_minute(lab: Lab) -> None:
    """The new one is stopped for a minute as soon as it runs; it is not put back."""
    node = Node(lab, lab.control_planes[-1])
    before = node.files()
    watch = (
        "while :; do for d in /proc/[0-9]*; do"
        f" if [ \"$(cat $d/comm 2>/dev/null)\" = kube-apiserver ] && tr '\\000' ' ' <$d/cmdline 2>/dev/null | grep -q {ON};"
        " then kill -STOP ${d#/proc/}; sleep 60; kill -CONT ${d#/proc/}; echo done >/run/slow; exit; fi; done; sleep 0.1; done"
    )
    node.run("rm -f /run/slow; cat >/run/slow.sh; systemd-run --collect --unit=slow-apiserver sh /run/slow.sh", input=watch)
    try:
        told = pyinfra("feature_gates", *gates(node, components="kube-apiserver")).ended(0)
        assert node.run("cat /run/slow").strip() == "done"
        row(told, node, "confirmed", "kube-apiserver")
    finally:
        node.run("systemctl stop slow-apiserver; rm -f /run/slow.sh", check=False)
    undone = pyinfra("feature_gates", *gates(node, gate=f"{GATE}=absent", components="kube-apiserver"))
    assert undone.code == 0 and node.files() == before, undone.all


# ---- operators


def listed(told: Outcome) -> list[str]:
    """The rows of deploys/changes.py."""
    assert told.code == 0, told.all
    return [line for line in told.out.splitlines() if re.match(r"r\d{8}-\d{6}-[0-9a-f]{4} ", line)]


def holder(started: Started, text: str) -> None:
    """`text` names the run, its user and its command."""
    assert f"run {run_of(started)}" in text, text
    assert re.search(rf"(of|by) {re.escape(me())}[ ,]", text), text
    assert "inventories/lab.py deploys/feature_gates.py -y" in text, text


def me() -> str:
    return f"{getpass.getuser()}@{socket.gethostname()}"


@pytest.mark.slow
def test_two_operators_at_the_same_moment(node: Node, second: Node) -> None:
    one, other = (Started("feature_gates", *gates(which)) for which in (node, second))
    told = {one.end().code: one, other.end().code: other}
    assert set(told) == {0, 1}, one.out + other.out
    holder(told[0], told[1].out)
    assert re.search(r"holds this cluster .*it is alive; its heartbeat is valid for \d+ s: wait until it ends", told[1].out), told[1].out
    changed, other_node = (node, second) if told[0] is one else (second, node)
    assert changed.effective() and not other_node.effective()
    assert other_node.run(f"ls {HOME}/active 2>/dev/null", check=False) == ""
    confirmed(pyinfra("feature_gates", *gates(other_node)), other_node)
    undo(node, second)


@pytest.mark.slow
def test_two_operators_with_other_lock_hosts(node: Node, tmp_path: Path) -> None:
    """An inventory without the control plane has its lock on another host: then the node's own lock counts."""
    inventory = tmp_path / "workers.py"
    inventory.write_text(operator.inventory_of_the_lab("del control_plane"))
    run = held("check", node, *gates(node))
    other = Started("feature_gates", *gates(node, allow_unproven="true"), inventory=str(inventory))
    wait_for(lambda: len(node.run(f"ls {HOME}/active").split()) == 2, f"the second change:\n{other.out}")
    node.go()
    refused = other.end().ended(1)
    told = row(refused, node, "refused")
    assert re.search(
        r"another change is in flight on this node: \S+ is appl\w+: .*; the node reverts it in \d+ s; nothing was changed", told
    ), told
    holder(run, told)
    confirmed(run.end(), node)
    undo(node)
    # Without an API not all of a change is proven, which is accepted here. The worker's record of itself is enough for its undo.
    for deploy, words in (("feature_gates", gates(node, allow_unproven="true")), ("rollback", ["-y", *data(allow_unproven="true")])):
        told = pyinfra(deploy, *words, inventory=str(inventory))
        assert told.code == 3 and re.search(rf"^{node.name} +kubelet .* confirmed .*NOT PROVEN", told.out, re.MULTILINE), told.all
        assert node.effective() == (deploy == "feature_gates")


@pytest.mark.slow
def test_a_dead_holder(lab: Lab, node: Node, second: Node) -> None:
    old, files = node.kubelet(), node.files()
    run = Started("feature_gates", *gates(node, soak="30", confirm_timeout=SHORT))
    run.wait_for("soaking")
    run.send(signal.SIGKILL)
    dead, change = run_of(run), node.change()
    operator.wait_for_the_lock(lab)
    for more in ({}, {"take_over": "r20260101-000000-0000"}):
        refused = pyinfra("feature_gates", *gates(second, **more)).ended(1)
        assert re.search(
            r"its operator's side is gone: pyinfra \S+ deploys/changes.py shows what it left; "
            f"then take its lock over by name: --data take_over={dead}",
            refused.out,
        )
        holder(run, refused.out)
        row(refused, second, "not started")
    told = pyinfra("feature_gates", *gates(second, take_over=dead))
    confirmed(told, second)
    assert f"the cluster's lock was taken over from run {dead} of {me()}" in told.out
    undo(second)
    node.wait_for_state(change, "reverted")
    assert node.files() == files and node.kubelet()[2:] == old[2:]


def held_on_the_first(node: Node, second: Node, gate: str = ON, **more: str) -> Started:
    """A run on two workers, at work on the first."""
    second.run(f"mkdir -p {HOME}")
    second.go()
    return held("wait", node, "-y", *data(feature_gates=gate, only=f"{node.name},{second.name}", **more))


def lose_the_lock(node: Node) -> None:
    """The run's connection to the node of the cluster's lock is cut, and the lock let go."""
    operator.cut_ssh(node.lab, node.lab.control_planes[0])
    operator.wait_for_the_lock(node.lab)


def test_a_lost_connection_to_the_node_of_the_lock_and_of_the_api(node: Node, second: Node) -> None:
    """A run is interrupted on the first of two nodes, and taken up again by the same command. In the run that undoes both the connection is
    lost and made again: for the proof of the change that is in hand, for the next change, and to give the lock back."""
    files = second.files()
    both = ["-y", *data(feature_gates=ON, only=f"{node.name},{second.name}")]
    run = Started("feature_gates", *both)
    run.wait_for("waiting until it is healthy\n")
    run.send(signal.SIGINT)
    told = run.end()
    assert told.code == 1, told.out
    row(told, node, "confirmed")
    row(told, second, "not started")
    assert "HALTED: interrupted by the operator" in told.out
    assert node.effective() and second.files() == files and second.run(f"ls {HOME}/active 2>/dev/null", check=False) == ""
    again = pyinfra("feature_gates", *both)
    row(again, node, "no change")
    confirmed(again, second)

    run = held_on_the_first(node, second, f"{GATE}=absent")
    lose_the_lock(node)
    node.go()
    told = run.end().ended(0)
    for which in (node, second):
        row(told, which, "confirmed")
        assert not which.effective()
    assert operator.holder_of_cluster(node.lab) == ""


def test_a_run_whose_lock_was_taken_over_writes_nothing_more(node: Node, second: Node) -> None:
    """Before that another run sees in its plan already, and before anything is laid down, in whose hands the node is. Both nodes have the gate
    then, by two runs. The operator of the run that undoes them dies while its next change waits on its node: the
    first node is put back at its deadline, the second one was not touched, and the same command finishes it."""
    run = held_on_the_first(node, second)
    refused = pyinfra("feature_gates", *gates(node)).ended(1)
    assert re.search(rf"{node.name}: change \S+ is being applied, reverts in \d+ s", refused.all), refused.all
    holder(run, refused.all)
    lose_the_lock(node)
    other = pyinfra("feature_gates", *gates(second, take_over=run_of(run)))
    confirmed(other, second)
    files = second.files()
    node.go()
    told = run.end()
    assert told.code == 1, told.out
    row(told, node, "confirmed")
    assert "another run has held this cluster's lock" in row(told, second, "not started") + told.out
    assert second.files() == files

    node.hold_anew()
    old, before, kubelet = node.kubelet()[2:], node.files(), second.kubelet()
    run = held_on_the_first(node, second, f"{GATE}=absent", confirm_timeout=SHORT)
    change, waiting = node.change(), f"ls -d {HOME}/changes/.{run_of(run)}-* 2>/dev/null"
    wait_for(lambda: second.run(waiting, check=False), "the next change to wait on its node")
    run.send(signal.SIGKILL)
    wait_for(lambda: not second.run(waiting, check=False), "its node to remove it")
    node.wait_for_state(change, "reverted")
    assert (node.kubelet()[2:], node.files()) == (old, before) and (second.kubelet(), second.files()) == (kubelet, files)
    rows = [row for row in listed(pyinfra("changes", "-y")) if row.startswith(run_of(run))]
    assert len(rows) == 1 and "reverted: " in rows[0], rows
    both = ["-y", *data(feature_gates=f"{GATE}=absent", only=f"{node.name},{second.name}", take_over=run_of(run))]
    finished = pyinfra("feature_gates", *both).ended(0)
    row(finished, node, "confirmed")
    row(finished, second, "confirmed")


@pytest.mark.slow
def test_an_operator_that_dies_before_it_confirms(node: Node) -> None:
    old, files = node.kubelet(), node.files()
    run = Started("feature_gates", *gates(node, soak="20", confirm_timeout=SHORT))
    run.wait_for("soaking")
    run.send(signal.SIGKILL)
    change = node.change()
    left = []
    for _ in range(2):
        status = pyinfra("status", "-y")
        found = re.search(
            rf"^{node.name} .*change {change} is unconfirmed, reverts in (\d+) s \(run {run_of(run)}, by {re.escape(me())}",
            status.out,
            re.MULTILINE,
        )
        assert found, status.out
        left.append(int(found.group(1)))
    assert 0 < left[1] < left[0] < 65
    refused = pyinfra("feature_gates", *gates(node))
    assert refused.code == 1 and re.search(rf"change {change} is unconfirmed, reverts in \d+ s", refused.all), refused.all
    assert node.effective() and "state: reverting" not in node.log(change), "it was put back before its time"
    node.wait_for_state(change, "reverted")
    assert node.reason(change) == "not confirmed within 65 s"
    assert node.files() == files and node.kubelet()[2:] == old[2:] and not node.effective()
    rows = listed(pyinfra("changes", "-y"))
    assert any(change_row.startswith(run_of(run)) and "reverted: not confirmed within 65 s" in change_row for change_row in rows), rows
    confirmed(pyinfra("feature_gates", *gates(node, take_over=run_of(run))), node)
    undo(node)


@pytest.mark.parametrize("value", ["44", "86401", "soon"])
def test_a_confirm_timeout_that_cannot_be_meant(node: Node, value: str) -> None:
    told = pyinfra("feature_gates", *gates(node, confirm_timeout=value))
    assert told.code == 1 and "REFUSED, nothing was written on any node" in told.all, told.all
    assert re.search(rf"confirm_timeout: .*{value}", told.all), told.all
    assert "Plan of run" not in told.out


@pytest.mark.slow
def test_interrupted_in_a_soak(node: Node) -> None:
    old, files = node.kubelet(), node.files()
    run = Started("feature_gates", *gates(node, soak="600"))
    run.wait_for("soaking")
    run.send(signal.SIGINT)
    told = run.end()
    assert told.code == 1, told.out
    assert "the soak was cut short" in row(told, node, "reverted")
    assert node.files() == files and node.kubelet()[2:] == old[2:]


@pytest.mark.slow
def test_interrupted_twice(node: Node) -> None:
    old, files = node.kubelet(), node.files()
    run = held("wait", node, *gates(node, confirm_timeout=SHORT))
    change = node.change()
    run.send(signal.SIGINT)
    run.wait_for("halting: ")
    run.send(signal.SIGINT)
    told = run.end(100)
    assert told.code == 130, told.out
    assert "quitting now" in told.out
    node.go()
    node.wait_for_state(change, "reverted")
    assert node.files() == files and node.kubelet()[2:] == old[2:]
    confirmed(pyinfra("feature_gates", *gates(node, take_over=run_of(run))), node)
    undo(node)


# ---- history


def run_name(told: Outcome) -> str:
    found = re.search(r"^Plan of run (\S+):", told.out, re.MULTILINE)
    assert found and told.code == 0, told.all
    return found.group(1)


@pytest.mark.slow
def test_what_was_done_is_listed_and_undone(node: Node, second: Node) -> None:
    files = {which: which.files() for which in (node, second)}
    both = data(feature_gates=ON, only=f"{node.name},{second.name}")
    first = run_name(pyinfra("feature_gates", "-y", *both))
    rows = [line for line in listed(pyinfra("changes", "-y")) if line.startswith(first)]
    for which, line in zip((node, second), rows, strict=True):
        assert re.search(rf"^{first}  \d+s +{which.name} +kubelet +confirmed +{re.escape(me())} +{ON}$", line), rows
    newest = pyinfra("rollback", "-y").ended(0)
    order = re.findall(r"^\[\d/2\] (\w+): kubelet: undo", newest.out, re.MULTILINE)
    assert order[:2] == [second.name, node.name], newest.out
    for which in (node, second):
        assert which.files() == files[which] and not which.effective()
    again = pyinfra("rollback", "-y", *data(run=first))
    assert again.code == 0 and f"kubelet is already as it was before {first}" in again.out, again.all


@pytest.mark.slow
def test_a_run_is_undone_by_its_name_but_not_over_another_hand(node: Node, config: str) -> None:
    files = node.files()
    named = run_name(pyinfra("feature_gates", *gates(node)))
    edit(node)
    node.restart_kubelet()
    edited = node.files()
    refused = pyinfra("rollback", "-y", *data(run=named)).ended(1)
    assert f"{config} was changed since" in refused.all and all(f"-{line}" in refused.all for line in ("# mine", f"  {GATE}: true")), (
        refused.all
    )
    assert node.files() == edited
    forced = pyinfra("rollback", "-y", *data(run=named, force="true")).ended(0)
    assert f"WARNING {node.name}: {config} was changed since" in forced.out
    assert node.files() == files and not node.effective()


@pytest.mark.slow
def test_uninstall_leaves_nothing(node: Node) -> None:
    run = held("wait", node, *gates(node))
    busy = pyinfra("uninstall", "-y", "--limit", node.name)
    node.go()
    assert busy.code == 1 and f"{node.name}: busy" in busy.all, busy.all
    confirmed(run.end(), node)
    undo(node)
    gone = pyinfra("uninstall", "-y", "--limit", node.name)
    assert gone.code == 0 and f"{node.name}: removed" in gone.out, gone.all
    # The salt of a password of the lab has the word in it.
    told = node.run(
        "find / -xdev -name '*daytwo*'; find /var/lib/kubelet /run -name '*daytwo*'; find / -xdev -name .daytwo;"
        " grep -rl --exclude=shadow daytwo /etc /var/lib/systemd;"
        " systemctl list-units --all --plain --no-legend '*daytwo*'; systemctl list-unit-files --no-legend '*daytwo*'",
        check=False,
    )
    assert told == ""
    again = pyinfra("uninstall", "-y", "--limit", node.name)
    assert again.code == 0 and f"{node.name}: clean" in again.out, again.all
    next_run_works(node)


# ---- what is told


@pytest.mark.wide
@pytest.mark.slow
def test_the_error_shows_why_with_the_api_down_too(lab: Lab) -> None:
    node = Node(lab, lab.control_planes[-1])
    files = node.files()
    told = pyinfra("feature_gates", *bad(node, components="kube-apiserver")).ended(1)
    row(told, node, "reverted", "kube-apiserver")
    evidence = told.out.partition(f"Evidence from {node.name} ")[2]
    assert re.search(rf"\| kube-apiserver\[\d+\]: .*unrecognized feature gate: {UNKNOWN_GATE}", evidence), told.out
    assert re.search(r"\| journal: .*kube-apiserver", evidence), told.out
    assert node.files() == files


@pytest.mark.parametrize("good", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["confirmed", "reverted"])
def test_secrets_are_told_nowhere(node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, good: bool) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    secrets = ("hunter2", "Zx9sesameZx9", "letmein77")
    more = f"HTTPS_PROXY=http://u:{secrets[0]}@127.0.0.1:9\nNO_PROXY=*\nFOO_TOKEN={secrets[1]}\n"
    with gate_on_the_command_line(node, more):
        wanted = gates(node) if good else gates(node, gate=f"{GATE}=absent,{UNKNOWN_GATE}=true", allow_unknown_gates="true")
        told = pyinfra("feature_gates", *wanted, *data(x_registry_token=secrets[2]))
        assert told.code == (0 if good else 1), told.all
        change = node.change()
        texts = {
            "output": told.all,
            "changes": pyinfra("changes", "-y").all,
            "record": "".join(path.read_text() for path in (tmp_path / "daytwo/runs").iterdir()),
            "node": node.run(
                f"cd {HOME}/changes/{change} && cat record.jsonl log holder reason; cat evidence 2>/dev/null; cat state", check=False
            ),
        }
        assert change in texts["record"] and f'"{change}"' in texts["node"]
        if good:
            assert "<masked sha256:" in texts["output"], "the diff should show that there is something"
        assert [(name, secret) for name, text in texts.items() for secret in secrets if secret in text] == []
        events = [json.loads(line) for line in texts["record"].splitlines()]
        assert [event["event"] for event in events] == ["run", "begin", "plan", "end", "end-of-run"]
        assert events[0]["who"] == me() and events[3]["outcome"] == ("confirmed" if good else "reverted")


def test_the_reason_is_of_the_process_that_ended(second: Node) -> None:
    """A unit without RestartSec: while the change is given up, a third process starts, and says what each start says. The file is there
    for the plan, and gone for the new process."""
    soon, cert = "/etc/systemd/system/kubelet.service.d/30-soon.conf", "/run/serving"
    second.run(f"mkdir -p {cert} $(dirname {soon}) && cp /var/lib/kubelet/pki/kubelet.crt /var/lib/kubelet/pki/kubelet.key {cert}/")
    second.run(f"cat >{soon}; systemctl daemon-reload", input="[Service]\nRestart=always\nRestartSec=100ms\n")
    try:
        fields = f"tlsCertFile={cert}/kubelet.crt,tlsPrivateKeyFile={cert}/kubelet.key"
        run = Started("kubelet_config", "-y", *data(kubelet_config=fields, only=second.name), hold="place 1")
        run.wait_for(f"{second.name} kubelet: held\n")
        second.run(f"rm -r {cert}")
        second.go()
        told = run.end().ended(1)
        assert re.search(
            rf'^HALTED: {second.name}, kubelet: reverted: .* \["command failed" err=.*{cert}/kubelet.*no such file', told.out, re.M
        ), told.all
        evidence = told.out.partition(f"Evidence from {second.name} ")[2].splitlines()
        # systemd's own words about the third process may come after the evidence was read.
        assert any('"command failed"' in line for line in evidence[:9]), told.out
    finally:
        second.run(
            f"rm -rf {soon} {cert}; rmdir --ignore-fail-on-non-empty $(dirname {soon}); systemctl daemon-reload; systemctl reset-failed kubelet",
            check=False,
        )


# ---- by hand


@pytest.mark.slow
def test_by_hand_without_pyinfra(node: Node) -> None:
    """A change that was undone is staged again, applied, confirmed or put back, all by its own script under dash."""
    old, files = node.kubelet(), node.files()
    run = run_name(pyinfra("feature_gates", *gates(node)))
    change = node.change()
    here = f"{HOME}/changes/{change}"
    # Its undo is a later run of this cluster, and a node refuses a change of an earlier one: this node forgets that it saw any.
    stage = f"cd {here} && rm -rf before log reason && echo state=staged >state && rm -f {HOME}/fence"
    undone = pyinfra("rollback", "-y", *data(run=run)).ended(0)

    def by_hand(verb: str) -> str:
        return node.run(f"cd {here} && dash change.sh {verb}")

    node.run(stage)
    by_hand("apply")
    told = by_hand("status")
    assert "state=applied\n" in told and re.search(r"^reverts=in \d+ s$", told, re.MULTILINE) and "health=200\n" in told, told
    assert node.effective()
    by_hand("revert")
    assert "state=reverted\n" in by_hand("status") and node.files() == files and node.kubelet()[2:] == old[2:]

    node.run(stage)
    by_hand("apply")
    assert "state=confirmed\n" in by_hand("confirm") and node.effective() and node.leftovers() == ""
    undone = pyinfra("rollback", "-y", *data(run=run))
    assert undone.code == 0 and node.files() == files, undone.all
