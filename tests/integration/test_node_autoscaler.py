"""The loop on a real cluster: pods that wait wake a machine that is off, two loops never act at once, and a killed one is taken over."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from roles.engine.api import Conflict
from roles.engine.lease import ApiLease, Holding, LeaseLost
from roles.engine.outage.mark import OUTAGE
from tests.integration import operator
from tests.integration.draining import apply, get, open_session, own_namespace, pods, workload
from tests.integration.operator import Started, data, inventory_of_the_lab, pyinfra, release_cluster, says, wait_for
from tests.integration.sleeping import sleeps
from tests.lab import Lab, bmc

pytestmark = pytest.mark.lab

LEASE = ("lease", "daytwo-node-autoscaler", "-n", "kube-system")
HOST = "kubernetes.io/hostname"


def inventory(folder: Path, *switched: str) -> str:
    """Every host draws 100 W, and the lab switches the power of some."""
    lines = [
        f"_power = { ({node: bmc.programs(node) for node in switched})!r}",
        "_own = lambda name: {'watts': 100, **({'power': _power[name]} if name in _power else {})}",
        "control_plane = [(name, {**its, **_own(name)}) for name, its in control_plane]",
        "workers = [(name, {**its, **_own(name)}) for name, its in workers]",
    ]
    path = folder / "inventory.py"
    path.write_text(inventory_of_the_lab(*lines))
    return str(path)


def kill(started: Started) -> None:
    """The loop and the run that it has started, as a power cut ends them."""
    loop = started.process.pid
    runs = Path(f"/proc/{loop}/task/{loop}/children").read_text().split()
    assert len(runs) == 1
    for pid in (loop, *map(int, runs)):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture(autouse=True)
def as_found(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield
    operator.end_started(lab)
    for node in lab.workers:
        lab.powered(node, "on")
        lab.machine(node).wait_ssh()
    lab.kubectl("uncordon", *lab.workers)
    lab.kubectl("annotate", "node", "--all", f"{OUTAGE}-")
    lab.kubectl("delete", *LEASE, "--ignore-not-found")
    lab.kubectl("wait", "node", "--all", "--for=condition=Ready", "--timeout=280s")
    operator.forget(lab)


def test_a_killed_loop_is_taken_over_by_the_one_that_waits(lab: Lab, tmp_path: Path) -> None:
    where, prom = inventory(tmp_path, "w2"), tmp_path / "daytwo.prom"
    sleeps(lab, "w2")
    with own_namespace(lab):
        huge = {"resources": {"requests": {"cpu": "999"}}}
        apply(lab, workload("web", nodeSelector={HOST: "w2"}), workload("huge", container=huge))
        wait_for(lambda: sum(bool(one["status"].get("conditions")) for one in pods(lab).values()) == 2, "the scheduler to refuse both")

        loop = [*data(watch="true", pass_interval="5", metrics=str(prom)), "-y"]
        first = Started("node_autoscaler", *loop, inventory=where)
        first.wait_for("wake w2: pod", 120)
        second = Started("node_autoscaler", *loop, inventory=where)
        third = pyinfra("node_autoscaler", "-y", inventory=where)
        assert third.code == 1, third.all
        says(third, "NOT STARTED: the Lease of this loop:", "holds it, last renewed")
        second.wait_for("waiting for the Lease of this loop:", 60)
        first.wait_for("power on, prove, uncordon", 60)
        wait_for(lambda: lab.powered("w2"), "its machine to be on", 60)
        kill(first)
        # What a killed process held ends by itself after a minute (tests/unit/lease); here sooner.
        release_cluster(lab)
        lab.kubectl("patch", *LEASE, "--type=merge", "-p", '{"spec":{"leaseDurationSeconds":1}}')

        second.wait_for("finish w2: a run of this loop was ended before it was done", 60)
        second.wait_for("hold: no pod waits for room that a machine could give", 240)
        wait_for(lambda: [one["spec"].get("nodeName") for name, one in pods(lab).items() if name.startswith("web-")] == ["w2"], "its pod")
        assert "no machine can take 1 waiting pod: t-drain/huge-" in " ".join(second.out.split())
        node = get(lab, "node", "w2")
        assert not node["spec"].get("unschedulable") and OUTAGE not in node["metadata"]["annotations"]
        second.send(signal.SIGTERM)
        ended = second.end(60)
        assert ended.code == 0, ended.all
        says(ended, "STOPPED: by a signal")
    assert not get(lab, *LEASE)["spec"].get("holderIdentity")
    metrics = dict(line.rsplit(" ", 1) for line in prom.read_text().splitlines() if not line.startswith("#"))
    assert metrics['daytwo_node_autoscaler_decisions_total{kind="finish"}'] == "1"
    assert metrics['daytwo_node_autoscaler_nodes{state="asleep"}'] == "0" and metrics["daytwo_node_autoscaler_unplaceable_pods"] == "1"
    (kept,) = (tmp_path / "state/daytwo/node-autoscaler").glob("*.json")
    decisions = json.loads(kept.read_text())["decisions"]
    assert [one["kind"] for one in decisions[:3]] == ["wake", "finish", "hold"] and decisions[1]["state"] == "done"
    assert decisions[0]["term"].endswith("/0") and decisions[1]["term"].endswith("/1")


def test_one_process_holds_a_lease_of_the_real_api(lab: Lab) -> None:
    """A conflict is the API server's own."""
    with open_session(lab) as session:
        lease = ApiLease(session.asked, "default", "t-lease")
        one, other = (Holding(lease, name, 3) for name in ("one", "other"))
        try:
            assert one.take() == "" and "one holds it" in other.take()
            before = lease.read()
            one.renew()
            with pytest.raises(Conflict):
                lease.write(before, {"holderIdentity": "third"})
            wait_for(lambda: other.take() == "", "the Lease to be free", 30, every=0.3)
            with pytest.raises(LeaseLost, match="other holds it now"):
                one.renew()
            assert other.term == "other/1"
            other.release()
            assert one.take() == ""
        finally:
            lab.kubectl("delete", "lease", "t-lease", "-n", "default", "--ignore-not-found")
