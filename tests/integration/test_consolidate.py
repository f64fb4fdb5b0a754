"""A plan of fewer machines carried out on a real cluster: powered off or left cordoned, killed and continued, an administrator's hand in
between, and undone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.draining import ANYWHERE, budget, cleaned, fate, killed, on, only_on, own_namespace, workload
from tests.integration.operator import Outcome, Started, data, inventory_of_the_lab, pyinfra, refused, run_of, says, wait_for
from tests.integration.serving import SERVE, Client, service
from tests.lab import Lab, bmc

pytestmark = pytest.mark.lab

WATTS = {"cp1": 150, "w1": 200, "w2": 100}


def inventory(folder: Path, **power: dict[str, Any]) -> str:
    """The lab's, with what each machine draws; w1 draws the most."""
    more = {name: {"watts": watts, **({"power": power[name]} if name in power else {})} for name, watts in WATTS.items()}
    lines = [f"_more = {more!r}"]
    lines += [f"{group} = [(name, {{**own, **_more[name]}}) for name, own in {group}]" for group in ("control_plane", "workers")]
    path = folder / "inventory.py"
    path.write_text(inventory_of_the_lab(*lines))
    return str(path)


def arguments(**values: str) -> list[str]:
    return data(nodes="w1", spare_nodes="0", **values)


def consolidate(where: str, *more: str, **values: str) -> Outcome:
    return pyinfra("consolidate", *arguments(**values), *(more or ("-y",)), inventory=where)


@pytest.fixture(scope="module", autouse=True)
def namespace(lab: Lab) -> Iterator[None]:
    with own_namespace(lab):
        yield


@pytest.fixture(autouse=True)
def as_found(lab: Lab) -> Iterator[None]:
    yield
    if not lab.powered("w1"):
        lab.powered("w1", "on")
        lab.machine("w1").wait_ssh()
        lab.hang_up("w1")
    cleaned(lab)
    lab.kubectl("wait", "node", "--all", "--for=condition=Ready", "--timeout=280s")


def serving(lab: Lab) -> None:
    """Two replicas, one on each worker, with a budget."""
    serves = {"command": SERVE, "grace": 30, "tolerations": ANYWHERE}
    only_on(lab, "w1", "w2", items=[service("web"), workload("web", replicas=2, ports=8080, **serves), budget("web", maxUnavailable=1)])


def test_a_machine_goes_off_and_comes_back_and_a_client_loses_nothing(lab: Lab, tmp_path: Path) -> None:
    serving(lab)
    where = inventory(tmp_path, w1=bmc.programs("w1"), w2=bmc.programs("w2"))
    client = Client(lab, "web", 8080)
    try:
        wait_for(lambda: client.answers == {"w1", "w2"}, "answers of both replicas")
        told = consolidate(where, off_timeout="150", verify="off")
        asked = client.asked
        wait_for(lambda: client.asked > asked + 20, "more answers")
    finally:
        client.end()
    assert told.code == 0, told.all
    run = run_of(told)
    says(told, "w1: drained, then powered off", "w1: it may go; pods that move: 1",
         "its BMC says off; its Node is NotReady", "DONE: 2 done", "Bring back w1:", f"--data run={run} --data skip_unreachable=true")  # fmt: skip
    assert not lab.powered("w1") and fate(lab, "w1") == (True, "power-off", "consolidation, saves 200 W")
    assert client.lost == [] and client.answers == {"w1", "w2", "cp1"} and on(lab, "w1") == []

    # What it has left on is needed by the pods of what it took out.
    refused(pyinfra("power", *data(power_off="w2"), "-y", inventory=where), f"w2: run {run} left it on when it took w1 out")
    assert lab.powered("w2") and fate(lab, "w2") == (False, "", "")

    undo = pyinfra("rollback", *data(run=run, skip_unreachable="true"), "-y", inventory=where)
    assert undo.code == 0, undo.all
    says(undo, "by SSH and by its kubelet, lease renewed", "as the inventory wants it, versions fit; uncordoned")
    assert fate(lab, "w1") == (False, "", "") and lab.powered("w1")


def test_an_administrators_hand_a_kill_and_the_way_back(lab: Lab, tmp_path: Path) -> None:
    serving(lab)
    where = inventory(tmp_path)
    run = Started("consolidate", *arguments(), "-y", inventory=where)
    run.wait_for("w1: judging again")
    lab.kubectl("uncordon", "w1")
    skipped = run.end()
    assert skipped.code == 1, skipped.all
    says(
        skipped,
        "kube-scheduler agrees: 1 pod placed",
        "w1: skipped: someone has uncordoned it since: it stays in service",
        "NOT ALL DONE:",
        "1 skipped",
    )
    assert fate(lab, "w1") == (False, "", "") and len(on(lab, "w1")) == 1

    run = Started("consolidate", *arguments(), "-y", inventory=where)
    run.wait_for("w1: it may go")
    left = killed(lab, run)
    assert fate(lab, "w1") == (True, "consolidation", "saves 200 W")
    done = consolidate(where, take_over=left)
    assert done.code == 0, done.all
    says(done, f"w1: run {left} began to take it out of service; this run continues", "w1: drained, then left cordoned (no data key power)")
    says(done, "it stays cordoned, with the mark of this run", "Bring back w1:")
    assert fate(lab, "w1") == (True, "consolidation", "saves 200 W") and on(lab, "w1") == []
    again = consolidate(where, "--dry", format="json")
    assert again.code == 0, again.all
    assert {one["node"]: one["state"] for one in json.loads(again.out)["nodes"]} == {"cp1": "stays", "w1": "asleep", "w2": "stays"}
    shown = pyinfra("status", inventory=where)
    says(shown, f"by run {run_of(done)} (consolidation: saves 200 W)")

    undo = pyinfra("rollback", *data(run=run_of(done)), "-y", inventory=where)
    assert undo.code == 0, undo.all
    says(undo, "w1: done: uncordoned")
    assert fate(lab, "w1") == (False, "", "")
