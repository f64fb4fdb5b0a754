"""Five workers of three sizes, with what they cost: 10, 6, 3 and 10 replicas, as in the workshop of Karpenter, and a machine that its owner
takes back. A client asks all the time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration import operator
from tests.integration.draining import ANYWHERE, NAMESPACE, apply, budget, cleaned, container, get, on, own_namespace, settled, workload
from tests.integration.operator import data, inventory_of_the_lab, pyinfra, wait_for
from tests.integration.serving import SERVE, Client, service
from tests.lab import Lab
from tests.lab.bmc import programs

pytestmark = [pytest.mark.lab, pytest.mark.wide, pytest.mark.slow]

# What is reserved of a worker's two CPUs, and what it costs for an hour: two large ones, two of a medium size, a small one.
RESERVED = {"w3": "500m", "w4": "500m", "w5": "1000m"}
LARGE, MEDIUM, SMALL = 0.40, 0.25, 0.12
COST = {"w1": LARGE, "w2": LARGE, "w3": MEDIUM, "w4": MEDIUM, "w5": SMALL}


def inventory(folder: Path, **more: dict[str, Any]) -> str:
    """The lab's, with the cost of each machine, a power switch for each worker, and `more` data of some."""
    own = {name: {"cost": cost, "power": programs(name), **more.get(name, {})} for name, cost in COST.items()}
    lines = [
        f"_more = {own!r}",
        "control_plane = [(name, {**own, 'cost': 0}) for name, own in control_plane]",
        "workers = [(name, {**own, **_more[name]}) for name, own in workers]",
    ]
    path = folder / "inventory.py"
    path.write_text(inventory_of_the_lab(*lines))
    return str(path)


def inflate(lab: Lab, replicas: int, **pod: Any) -> None:
    """Pods of half a CPU each."""
    asks = {"resources": {"requests": {"cpu": "500m"}}}
    made = workload("inflate", replicas=replicas, **pod)
    made["spec"]["template"]["spec"]["containers"] = [container(**asks)]
    apply(lab, made)


def awake(lab: Lab) -> set[str]:
    """The workers that are on, take pods, and are Ready."""
    return {
        item["metadata"]["name"]
        for item in get(lab, "nodes")["items"]
        if item["metadata"]["name"] in lab.workers
        and not item["spec"].get("unschedulable")
        and {one["type"]: one["status"] for one in item["status"]["conditions"]}["Ready"] == "True"
    }


def fewer(where: str) -> operator.Outcome:
    return pyinfra("consolidate", *data(spare_nodes="0", off_timeout="300"), "-y", inventory=where).ended(0)


@pytest.fixture(scope="module")
def sizes(lab: Lab) -> Iterator[None]:
    """Made by the deploy that changes kubelets, and gone as it undoes them."""
    before = {node: operator.files(lab, node) for node in RESERVED}
    runs = []
    with own_namespace(lab):
        for amount in sorted(set(RESERVED.values())):
            names = ",".join(node for node, reserved in RESERVED.items() if reserved == amount)
            told = pyinfra("kubelet_config", *data(kubelet_config=f"systemReserved.cpu={amount}", only=names, drain="never"), "-y").ended(0)
            runs.append(operator.run_of(told))
        yield
        for run in reversed(runs):
            pyinfra("rollback", *data(run=run), "-y").ended(0)
        assert {node: operator.files(lab, node) for node in RESERVED} == before


@pytest.fixture(autouse=True)
def as_found(lab: Lab, sizes: None) -> Iterator[None]:
    yield
    for node in lab.workers:
        if not lab.powered(node):
            lab.powered(node, "on")
            lab.machine(node).wait_ssh()
            lab.hang_up(node)
    cleaned(lab)
    lab.kubectl("wait", "node", "--all", "--for=condition=Ready", "--timeout=280s")


def work(lab: Lab, replicas: int, **pod: Any) -> None:
    """What a client asks for, two of it, and pods of half a CPU each."""
    serves = {"command": SERVE, "grace": 30, "tolerations": ANYWHERE}
    apply(lab, service("web"), workload("web", replicas=2, ports=8080, **serves), budget("web", maxUnavailable=1))
    inflate(lab, replicas, **pod)
    apply(lab, budget("inflate", maxUnavailable=2))
    settled(lab)


def test_ten_six_three_and_ten_replicas(lab: Lab, tmp_path: Path) -> None:
    where = inventory(tmp_path)
    work(lab, 10)
    client = Client(lab, "web", 8080)
    seen = []
    try:
        for replicas, cheapest in ((10, [MEDIUM, MEDIUM, LARGE]), (6, [MEDIUM, MEDIUM]), (3, [MEDIUM])):
            lab.kubectl("scale", "deployment/inflate", f"--replicas={replicas}", "-n", NAMESPACE)
            settled(lab)
            told = fewer(where)
            left = awake(lab)
            assert sorted(COST[node] for node in left) == cheapest, told.all
            assert {node for node in lab.workers if lab.powered(node)} == left
            settled(lab)
            assert sum(len([name for name in on(lab, node) if name.startswith("inflate-")]) for node in left) == replicas
            seen.append(sum(cheapest))
        lab.kubectl("scale", "deployment/inflate", "--replicas=10", "-n", NAMESPACE)
        wait_for(lambda: len(waiting(lab)) == 7, "seven pods without room")
        told = pyinfra("node_autoscaler", "-y", inventory=where).ended(0)
        assert sorted(COST[node] for node in awake(lab)) == [MEDIUM, MEDIUM, LARGE], told.all
        settled(lab)
    finally:
        client.end()
    print(f"cost {sum(COST.values()):.2f}, then {', '.join(f'{cost:.2f}' for cost in seen)}; asked {client.asked}")
    assert client.lost == [] and client.asked > 1000


def test_a_cheaper_machine_that_is_lent_and_taken_back(lab: Lab, tmp_path: Path) -> None:
    where = inventory(tmp_path, w5={"cost": 0.02, "capacity": "reclaimable", "notice": "15m"})
    labels = {"node_taints": "daytwo.dev/reclaimable=true:NoSchedule", "node_labels": "daytwo.dev/capacity=reclaimable"}
    lent = pyinfra("node_labels", "--limit", "w5", *data(**labels), "-y", inventory=where).ended(0)
    work(lab, 2, tolerations=[{"key": "daytwo.dev/reclaimable", "operator": "Exists"}])
    client = Client(lab, "web", 8080)
    try:
        told = fewer(where)
        assert awake(lab) == {"w5"}, told.all
        told = pyinfra("consolidate", *data(take_back="w5", spare_nodes="0", off_timeout="300"), "-y", inventory=where).ended(0)
        left = awake(lab)
        assert [COST[node] for node in left] == [MEDIUM], told.all
        assert {node for node in lab.workers if lab.powered(node)} == left
        settled(lab)
    finally:
        client.end()
    assert client.lost == [] and client.asked > 1000
    # Four machines are off, and their records are not read.
    undo = pyinfra("rollback", *data(run=operator.run_of(lent), skip_unreachable="true"), "-y", inventory=where).ended(1)
    operator.says(undo, "NOT ALL READ: 1 done")


def waiting(lab: Lab) -> list[str]:
    items = json.loads(lab.kubectl("get", "pods", "-n", NAMESPACE, "-o", "json"))["items"]
    return [
        item["metadata"]["name"]
        for item in items
        if any(one.get("reason") == "Unschedulable" for one in item["status"].get("conditions") or ())
    ]
