"""Settings with checkpoints on a real kubelet: CPU and memory manager policies, on a drained worker; refused, reverted, undone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.integration import operator
from tests.integration.checkpoints import CPU, MEMORY, STATIC, as_it_is, configz, cpus_of, stored
from tests.integration.operator import Started, data, end_started, pyinfra, run_of, wait_for
from tests.lab import Lab, images

pytestmark = pytest.mark.lab

NODE = "w1"
HOME = "/var/lib/daytwo"
# The configuration is file 1 of the change, and the checkpoint is counted on from there.
KILL, POWER = "killed", "power cut"
DROPIN = "/etc/systemd/system/kubelet.service.d/90-ends-it.conf"
ENDS_IT = f"""[Service]
ExecStartPost=/bin/sh -c 'if grep -q "reservedSystemCPUs: .1" /var/lib/kubelet/config.yaml; then until test -s {CPU}; do sleep 0.2; done; exit 1; fi'
"""


def no_rests(lab: Lab) -> None:
    left = lab.run(NODE, f"ls -A {HOME}/active; find /var/lib/kubelet -xdev -name .daytwo").stdout
    assert left == "", f"left behind: {left}"


def serves(lab: Lab) -> bool:
    return lab.run(NODE, "curl -s http://127.0.0.1:10248/healthz", check=False).stdout == "ok" and bool(configz(lab, NODE))


@pytest.fixture(scope="module", autouse=True)
def drained(lab: Lab) -> Iterator[None]:
    """w1, first refused with a pod on it, then cordoned and with nothing but pods of DaemonSets."""
    lab.run_pod("app-w1", NODE)
    files = operator.files(lab, NODE)
    told = pyinfra("kubelet_config", "-y", *data(kubelet_config=STATIC, only=NODE, drain="never"))
    assert told.code == 1 and operator.files(lab, NODE) == files, told.all
    words = " ".join(told.all.split())
    assert "cpuManagerPolicy: the kubelet does not start while cpu_manager_state has another policy" in words
    assert "it is not cordoned and" in words and "default/app-w1" in words
    assert f"deploys/drain.py --data nodes={NODE}" in words
    lab.kubectl("drain", NODE, "--ignore-daemonsets", "--force", "--delete-emptydir-data", "--timeout=120s")
    yield
    lab.kubectl("uncordon", NODE)
    operator.forget(lab)


@pytest.fixture(autouse=True)
def as_found(lab: Lab) -> Iterator[None]:
    """Each test begins and ends without a manager's policy."""
    files = operator.files(lab, NODE)
    yield
    lab.run(NODE, f"rm -rf {HOME}/held {HOME}/go")
    end_started(lab)
    assert operator.files(lab, NODE) == files
    assert stored(lab, NODE)["policyName"] == "none"


def apply(lab: Lab, fields: str, **more: str) -> operator.Outcome:
    done = pyinfra("kubelet_config", "-y", *data(kubelet_config=fields, only=NODE, **more)).ended(0)
    return done


def test_none_to_static_to_none(lab: Lab) -> None:
    """Both managers in one change: two checkpoints, and for memory what its manager adds up."""
    before = configz(lab, NODE)
    assert stored(lab, NODE)["policyName"] == "none"
    threshold = quantity(before["evictionHard"]["memory.available"])
    reserved = quantity(before.get("systemReserved", {}).get("memory", "0")) + quantity(before.get("kubeReserved", {}).get("memory", "0"))

    def fields(amount: int, more: str = "") -> str:
        return f"{STATIC},memoryManagerPolicy=Static,reservedMemory=[{{numaNode: 0, limits: {{memory: '{amount}'}}}}]{more}"

    told = pyinfra("kubelet_config", "-y", *data(kubelet_config=fields(threshold + reserved + 2**20), only=NODE))
    assert told.code == 1 and "memoryManagerPolicy Static: reservedMemory has" in told.all, told.all
    # A threshold together with reservedMemory, which must have its part of the sum.
    wish = f"{(threshold >> 20) + 10}Mi"
    wanted = fields(threshold + reserved + 10 * 2**20, f",evictionHard.memory.available={wish}")
    on = apply(lab, wanted)
    assert f"systemctl stop kubelet.service, {CPU} and {MEMORY} removed (a revert restores" in on.out, on.out
    proof = "static in cpu_manager_state, Static in memory_manager_state; "
    assert re.search(rf"^{NODE} +cpuManagerPolicy +none +static +confirmed .*; {proof}", on.out, re.MULTILINE), on.out
    now = configz(lab, NODE)
    assert (now["cpuManagerPolicy"], now["systemReserved"]["cpu"]) == ("static", "500m")
    assert (now["memoryManagerPolicy"], now["evictionHard"]) == ("Static", {**before["evictionHard"], "memory.available": wish})
    assert (stored(lab, NODE)["policyName"], stored(lab, NODE, MEMORY)["policyName"]) == ("static", "Static")
    no_rests(lab)
    again = apply(lab, wanted)
    assert "0 changes on 0 nodes" in again.out, again.all

    # Alone the threshold is refused by the deploy that owns it, with the numbers.
    other = f"{(threshold >> 20) + 20}Mi"
    told = pyinfra("eviction", "-y", *data(eviction_hard=f"memory.available={other}", only=NODE))
    assert told.code == 1 and f"evictionHard memory.available {other}" in told.all and "deploys/kubelet_config.py" in told.all, told.all

    # A pod with a CPU of its own: the policy works, and its entry is in the checkpoint that a failed change must bring back.
    cpus = pod_with_a_cpu(lab)
    assert cpus in ("0", "1"), cpus
    told = pyinfra("kubelet_config", "-y", *data(kubelet_config="cpuManagerPolicy=none", only=NODE, drain="never"))
    assert told.code == 1 and "but 1 pod runs there (default/pinned)" in told.all, told.all
    lab.kubectl("delete", "pod", "pinned", "--now")
    wait_for(lambda: not stored(lab, NODE).get("entries"), "the kubelet to take the pod's CPU back")

    # It passes the kubelet's validation, and its CPU manager then does not start: this machine has no CPU 63.
    checkpoint, process = as_it_is(lab, NODE), configz(lab, NODE)
    refused = pyinfra("kubelet_config", "-y", *data(kubelet_config="reservedSystemCPUs='63'", only=NODE))
    assert refused.code == 1 and "correct reservedSystemCPUs" in refused.all and "[1/1]" not in refused.out, refused.all
    # A kubelet that makes its new checkpoint, and is then ended by its unit.
    lab.run(NODE, f"mkdir -p $(dirname {DROPIN}) && cat >{DROPIN} && systemctl daemon-reload", input=ENDS_IT)
    try:
        failed = pyinfra("kubelet_config", "-y", *data(kubelet_config="reservedSystemCPUs='1'", only=NODE))
    finally:
        lab.run(NODE, f"rm {DROPIN} && systemctl daemon-reload")
    assert failed.code == 1 and re.search(rf"HALTED: {NODE}, kubelet: reverted", failed.out), failed.all
    assert as_it_is(lab, NODE) == checkpoint, f"the checkpoint is not what it was:\n{failed.all}"
    assert configz(lab, NODE) == process
    no_rests(lab)

    # Undone by its record: the policies none, and checkpoints of none.
    undone = pyinfra("rollback", "-y", *data(run=run_of(on)))
    assert undone.code == 0 and "none in cpu_manager_state, None in memory_manager_state" in undone.out, undone.all
    assert configz(lab, NODE) == before and (stored(lab, NODE)["policyName"], stored(lab, NODE, MEMORY)["policyName"]) == ("none", "None")


def pod_with_a_cpu(lab: Lab) -> str:
    """The CPUs of a Guaranteed pod on the node, as the checkpoint has them."""
    amounts = {"cpu": "1", "memory": "20Mi"}
    container = {"name": "app", "image": f"{images.REPOSITORY}/app:1", "imagePullPolicy": "Never", "resources": {"limits": amounts}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pinned"},
        "spec": {"nodeName": NODE, "terminationGracePeriodSeconds": 1, "tolerations": [{"operator": "Exists"}], "containers": [container]},
    }
    lab.kubectl("apply", "-f", "-", input=json.dumps(pod))
    lab.kubectl("wait", "--for=condition=Ready", "pod/pinned", "--timeout=280s")
    uid = lab.kubectl("get", "pod", "pinned", "-o", "jsonpath={.metadata.uid}")

    wait_for(lambda: cpus_of(lab, NODE, uid), "the pod's CPU in the checkpoint")
    return cpus_of(lab, NODE, uid)


@pytest.mark.slow
def test_topology_manager_and_reserved_cpus(lab: Lab) -> None:
    """Which CPU stays for the system, and whose pods are aligned: set, seen in what a pod gets, moved to the other CPU, undone."""
    before = configz(lab, NODE)
    topology = "topologyManagerPolicy=restricted,topologyManagerScope=pod"
    # The kubelet adds to systemReserved how many CPUs these are.
    on = apply(lab, f"cpuManagerPolicy=static,reservedSystemCPUs='0',systemReserved.memory=100Mi,{topology}")
    assert "topologyManagerPolicy, topologyManagerScope: the kubelet admits running pods again" in on.out, on.out
    now = configz(lab, NODE)
    assert (now["cpuManagerPolicy"], now["reservedSystemCPUs"]) == ("static", "0")
    assert now["systemReserved"] == {"cpu": "1", "memory": "100Mi"}
    assert (now["topologyManagerPolicy"], now["topologyManagerScope"]) == ("restricted", "pod")
    assert pod_with_a_cpu(lab) == "1"
    lab.kubectl("delete", "pod", "pinned", "--now")

    told = pyinfra("kubelet_config", "-y", *data(kubelet_config="systemReserved.cpu=500m", only=NODE))
    assert told.code == 1 and "systemReserved.cpu is 500m, but reservedSystemCPUs (0) replaces it" in told.all, told.all

    # A pod may have had this CPU in the old checkpoint, and a kubelet does not start so: it gets a new one.
    moved = apply(lab, "reservedSystemCPUs='1'")
    assert f"{CPU} removed (a revert restores it)" in moved.out and "static in cpu_manager_state" in moved.out, moved.out
    assert configz(lab, NODE)["reservedSystemCPUs"] == "1" and pod_with_a_cpu(lab) == "0"
    lab.kubectl("delete", "pod", "pinned", "--now")
    no_rests(lab)

    for run in (moved, on):
        pyinfra("rollback", "-y", *data(run=run_of(run))).ended(0)
    assert configz(lab, NODE) == before and stored(lab, NODE)["policyName"] == "none"


# The power cut is the harder fault: the checkpoint comes back at boot, before the kubelet starts.
CASES = [
    ("wait", POWER),
    *(
        pytest.param(step, fault, marks=pytest.mark.slow)
        for step in ("stop", "take 2", "place 1", "restart", "wait", "checkpoints", "applied")
        for fault in (KILL, POWER)
        if (step, fault) != ("wait", POWER)
    ),
]


@pytest.mark.parametrize(("step", "fault"), CASES)
def test_a_change_that_is_struck_leaves_the_checkpoint_as_it_was(lab: Lab, step: str, fault: str) -> None:
    checkpoint, before = as_it_is(lab, NODE), configz(lab, NODE)
    run = Started("kubelet_config", "-y", *data(kubelet_config=STATIC, only=NODE, confirm_timeout="60"), hold=step)
    try:
        run.wait_for("held\n")
        name = run_of(run)
        if fault == KILL:
            lab.run(NODE, f"systemctl kill --kill-whom=main --signal=KILL daytwo-{name}-{NODE}-kubelet.service")
        else:
            lab.kill(NODE)
            lab.start(NODE)
        ended = run.end()
    finally:
        run.process.kill()
    assert ended.code == 1, ended.all
    wait_for(lambda: lab.run(NODE, f"ls -A {HOME}/active").stdout == "" and serves(lab), "the node to come to rest")
    assert as_it_is(lab, NODE) == checkpoint, f"{step}, {fault}: the checkpoint is not what it was:\n{ended.out}"
    assert configz(lab, NODE) == before
    state = lab.run(NODE, f"cat {HOME}/changes/{name}-{NODE}-kubelet/state").stdout
    assert "state=reverted" in state, f"{state}\n{ended.out}"
    no_rests(lab)


def quantity(text: str) -> int:
    number, unit = re.fullmatch(r"(\d+)(Ki|Mi|Gi|)", text).groups()  # type: ignore[union-attr]
    return int(number) * {"": 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}[unit]
