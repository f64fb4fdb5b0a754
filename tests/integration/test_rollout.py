"""The roll-out on a cluster of three control planes and five workers: order, pace, halt, going on, and undoing.

Needs `make lab CONTROL_PLANES=3 WORKERS=5`.
"""

from __future__ import annotations

import http.client
import itertools
import re
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from roles.engine.editing import cluster_configuration
from tests.integration import kubeadm_pods, operator
from tests.integration.operator import GATE, MANIFESTS, data, pyinfra, wait_for
from tests.lab import Lab

pytestmark = [pytest.mark.lab, pytest.mark.wide, pytest.mark.usefixtures("forgotten")]

CONTROL_PLANES = ("cp1", "cp2", "cp3")
WORKERS = ("w1", "w2", "w3", "w4", "w5")
# The old apiserver's grace period, the new one's tries, and the way back; see roles/engine/transaction/model.py.
LONGEST_OUTAGE = 30 + 240 + 120
# A kubelet that does not start with this gate, whatever the kubelet itself thinks of it.
BAD_WORKER = "[Service]\nExecStartPre=/bin/sh -c '! grep -q HPAScaleToZero /var/lib/kubelet/config.yaml /etc/default/kubelet 2>/dev/null'\n"


@dataclass
class RoundRobin:
    """A client that asks one API server after the other, as one behind a load balancer without health checks would.

    `failed` has the moments at which nobody took its connection. One that is taken and answered late, or with a word on etcd, is no
    outage: a machine with other work is slow.
    """

    addresses: dict[str, str]
    asked: dict[str, int] = field(default_factory=dict)
    failed: dict[str, list[float]] = field(default_factory=dict)
    _over: threading.Event = field(default_factory=threading.Event)

    def _go_round(self) -> None:
        context = ssl._create_unverified_context()
        while not self._over.is_set():
            for name, address in self.addresses.items():
                self.asked[name] = self.asked.get(name, 0) + 1
                try:
                    urllib.request.urlopen(f"https://{address}:6443/readyz", timeout=10, context=context).read()
                except (OSError, http.client.HTTPException) as error:
                    if not isinstance(error, urllib.error.HTTPError | TimeoutError) and not isinstance(
                        getattr(error, "reason", None), TimeoutError
                    ):
                        self.failed.setdefault(name, []).append(time.monotonic())
                self._over.wait(0.1)

    def __enter__(self) -> RoundRobin:
        self._thread = threading.Thread(target=self._go_round)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def outage(self, name: str) -> float:
        times = self.failed.get(name, [])
        return times[-1] - times[0] if times else 0.0


@pytest.fixture
def client(lab: Lab) -> Iterator[RoundRobin]:
    with RoundRobin({name: lab.address(name) for name in CONTROL_PLANES}) as made:
        yield made


def manifests(lab: Lab, node: str) -> str:
    """Name, change and modification time of every manifest."""
    return lab.run(node, f"stat -c '%n %Y %Z' {MANIFESTS}/*").stdout


def rows(out: str) -> dict[tuple[str, str], str]:
    """The final table: outcome by node and component."""
    found = re.findall(
        r"^((?:cp|w)\d) +(\S+) +\S+ +\S+ \(?\w*\)? +\S+ (?:\(\w+\) +)?(confirmed|reverted|refused|not started|no change)\b",
        out,
        re.MULTILINE,
    )
    return {(node, component): outcome for node, component, outcome in found}


def has_gate(lab: Lab, node: str) -> bool:
    return lab.run(node, f"grep -q {GATE} /var/lib/kubelet/config.yaml /etc/default/kubelet", check=False).returncode == 0


def test_an_edit_that_breaks_the_first_apiserver_halts_there(lab: Lab, client: RoundRobin) -> None:
    before = {node: manifests(lab, node) for node in CONTROL_PLANES}
    running = {node: operator.processes(lab, node)["kube-apiserver"] for node in ("cp2", "cp3")}
    files = operator.files(lab, "cp1")
    told = pyinfra(
        "feature_gates", "-y", *data(feature_gates="NoSuchGate=true", allow_unknown_gates="true", components="kube-apiserver")
    ).ended(1)
    assert re.search(r"^cp1 +kube-apiserver +NoSuchGate .* reverted .*unrecognized feature gate: NoSuchGate", told.out, re.MULTILINE), (
        told.out
    )
    assert "Not touched: cp2 kube-apiserver, cp3 kube-apiserver." in told.out
    for node in ("cp2", "cp3"):
        assert manifests(lab, node) == before[node], f"{node}'s manifests were touched"
        assert operator.processes(lab, node)["kube-apiserver"] == running[node], f"{node} has another API server"
    assert operator.files(lab, "cp1") == files
    print(
        f"asked {client.asked}, failed { {name: len(times) for name, times in client.failed.items()} }, cp1 away {client.outage('cp1'):.0f} s"
    )
    assert set(client.failed) == {"cp1"}, "an API server that was not in hand failed"
    assert client.outage("cp1") < LONGEST_OUTAGE
    asked = client.asked["cp1"]
    wait_for(lambda: client.asked["cp1"] > asked + 1, "the client's next question to cp1")
    assert max(client.failed["cp1"]) < time.monotonic() - 0.1


@pytest.mark.slow
def test_a_member_of_etcd_that_is_down_halts_before_anything_is_touched(lab: Lab) -> None:
    """It hangs: the worst way to be down, since it takes every connection and answers none."""
    before = {node: manifests(lab, node) for node in ("cp1", "cp2")}
    # Not by its manifest: one whose pod is gone the kubelet brings back after minutes only, since it first wants to delete the mirror
    # pod through its node's API server, which has no etcd. One that the kubelet starts anew meanwhile hangs, too.
    freeze = "while [ ! -e /run/thaw ]; do kill -STOP $(pidof etcd); sleep 0.5; done; kill -CONT $(pidof etcd)"
    lab.run("cp3", f"rm -f /run/thaw; setsid sh -c '{freeze}' >/dev/null 2>&1 </dev/null &")
    try:
        told = pyinfra("feature_gates", "-y", *data(feature_gates=f"{GATE}=true", components="kube-scheduler", only="cp1,cp2")).ended(1)
        assert re.search(r"HALTED: cp1, kube-scheduler: not started: .*cp3", told.out), told.all
        assert {node: manifests(lab, node) for node in ("cp1", "cp2")} == before
    finally:
        lab.run("cp3", "touch /run/thaw")
    wait_for(lambda: operator.ready(lab, "cp3"), "cp3's API server to be ready again", 600)


def test_five_workers_the_third_one_bad(lab: Lab) -> None:
    """Two at a time: the run halts at the third, the table is what is so; run again it finishes; rolled back all is as before."""
    # What other tests have left on record is no matter of this one.
    pyinfra("uninstall", "-y").ended(0)
    before = {node: operator.files(lab, node) for node in WORKERS}
    lab.run(
        "w3",
        "mkdir -p /etc/systemd/system/kubelet.service.d && cat >/etc/systemd/system/kubelet.service.d/99-bad.conf && systemctl daemon-reload",
        input=BAD_WORKER,
    )
    wish = data(feature_gates=f"{GATE}=true", components="kubelet", only=",".join(WORKERS), max_unavailable="2")
    try:
        halted = pyinfra("feature_gates", "-y", *wish)
    finally:
        lab.run("w3", "rm -r /etc/systemd/system/kubelet.service.d; systemctl daemon-reload")
    assert halted.code == 1, halted.all
    outcomes = rows(halted.out)
    print(outcomes)
    assert set(outcomes) == {(node, "kubelet") for node in WORKERS}, halted.all
    assert outcomes[("w1", "kubelet")] == "confirmed" and outcomes[("w3", "kubelet")] == "reverted", halted.out
    assert outcomes[("w5", "kubelet")] == "not started", halted.out
    assert halted.out.index("w1 kubelet: confirmed") < halted.out.rindex("[2/5]"), "the canary was not proven first"
    for node in WORKERS:
        assert has_gate(lab, node) == (outcomes[(node, "kubelet")] == "confirmed"), f"{node} is not what the table says"

    again = pyinfra("feature_gates", "-y", *wish).ended(0)
    assert all(outcome in ("confirmed", "no change") for outcome in rows(again.out).values()), again.out
    assert all(operator.effective(lab, node, GATE) for node in WORKERS)

    dry = pyinfra("rollback", "--dry")
    assert dry.code == 0 and all(has_gate(lab, node) for node in WORKERS), dry.all
    pyinfra("rollback", "-y", *data(max_unavailable="2"), brief=True).ended(0)
    for node in WORKERS:
        assert operator.files(lab, node) == before[node], f"{node} is not as before"
        assert not operator.effective(lab, node, GATE)
    nothing = pyinfra("rollback", "-y")
    assert nothing.code == 1 and "nothing to undo" in nothing.all, nothing.all


POLICY = "/etc/kubernetes/daytwo/audit-policy.yaml"
# The last one spares the way back the wait for watches, of 30 s each.
FLAGS = {
    "kube-apiserver": {
        "event-ttl": "2h",
        "audit-policy-file": POLICY,
        "audit-log-path": "-",
        "shutdown-watch-termination-grace-period": "5s",
    }
}


def with_policies(path: Path, **levels: str) -> str:
    """An inventory whose control planes have an audit policy of this level each; its path."""
    contents = {name: f"apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: {level}\n" for name, level in levels.items()}
    files = {name: {POLICY: {"content": content, "mode": "0600"}} for name, content in contents.items()}
    made = "{**_data, 'control_plane_flags': " + repr(FLAGS) + ", 'control_plane_files': " + repr(files) + "[_name]}"
    path.write_text(operator.inventory_of_the_lab(f"control_plane = [(_name, {made}) for _name, _data in control_plane]"))
    return str(path)


@pytest.mark.slow
def test_flags_and_files_of_three_api_servers(lab: Lab, tmp_path: Path) -> None:
    """One at a time. It halts at the second, whose policy only a start can refuse; with a right one it goes on from there; both are undone."""
    addresses = {name: lab.address(name) for name in CONTROL_PLANES}
    before = {node: operator.files(lab, node) for node in CONTROL_PLANES}
    running = {node: operator.processes(lab, node)["kube-apiserver"] for node in CONTROL_PLANES}
    kept = kubeadm_pods.stored(lab)
    bad = with_policies(tmp_path / "bad.py", cp1="None", cp2="Nothing", cp3="None")
    with RoundRobin(addresses) as client:
        halted = pyinfra("control_plane_flags", "-y", inventory=bad)
    assert halted.code == 1, halted.all
    assert re.search(r"^cp1 +kube-apiserver +--event-ttl +absent +2h +confirmed ", halted.out, re.MULTILINE), halted.out
    assert "HALTED: cp2, kube-apiserver: reverted: " in halted.out and "Nothing" in halted.out.partition("HALTED: ")[2], halted.out
    assert "Not touched: cp3 kube-apiserver." in halted.out and "Not started: kubeadm-config" in halted.out, halted.out
    assert operator.files(lab, "cp2") == before["cp2"] and operator.files(lab, "cp3") == before["cp3"]
    assert operator.processes(lab, "cp3")["kube-apiserver"] == running["cp3"] and kubeadm_pods.stored(lab) == kept
    assert set(client.failed) == {"cp1", "cp2"} and max(client.failed["cp1"]) < min(client.failed["cp2"]), client.failed

    wait_for(lambda: operator.ready(lab, "cp2"), "cp2's API server", 600)
    first = operator.processes(lab, "cp1")["kube-apiserver"]
    good = with_policies(tmp_path / "good.py", cp1="None", cp2="None", cp3="None")
    with RoundRobin(addresses) as client:
        told = pyinfra("control_plane_flags", "-y", inventory=good)
    assert told.code == 0 and operator.processes(lab, "cp1")["kube-apiserver"] == first, told.all
    assert set(client.failed) == {"cp2", "cp3"} and max(client.failed["cp2"]) < min(client.failed["cp3"]), client.failed
    print({name: f"{client.outage(name):.0f} s" for name in client.failed})
    for node in CONTROL_PLANES:
        assert {"--event-ttl=2h", f"--audit-policy-file={POLICY}"} <= set(operator.processes(lab, node)["kube-apiserver"])
        assert kubeadm_pods.rendered(lab, node) == kubeadm_pods.written(lab, node)
    assert cluster_configuration.read(kubeadm_pods.stored(lab).encode())["kube-apiserver"].files == {POLICY}

    for _ in range(2):
        pyinfra("rollback", "-y").ended(0)
    assert {node: operator.files(lab, node) for node in CONTROL_PLANES} == before and kubeadm_pods.stored(lab) == kept
    assert not any("audit" in word for node in CONTROL_PLANES for word in operator.processes(lab, node)["kube-apiserver"])


@pytest.mark.slow
def test_all_of_the_control_plane_one_at_a_time_and_back(lab: Lab, client: RoundRobin) -> None:
    """Every component of three nodes: never two API servers away at once, and after rolling back all files are as before."""
    before = {node: operator.files(lab, node) for node in CONTROL_PLANES}
    on = pyinfra("feature_gates", "-y", *data(feature_gates=f"{GATE}=true", components="apiserver,scheduler"), timeout=3000).ended(0)
    told = re.findall(r"^\[\d+/6\] (cp\d): (\S+):", on.out, re.MULTILINE)
    order = [(node, component) for component in ("kube-apiserver", "kube-scheduler") for node in CONTROL_PLANES]
    assert told == order * 2, f"it is to be planned and done in this order, and was in {told}"
    outages = sorted((times[0], times[-1]) for times in client.failed.values())
    assert all(first[1] < second[0] for first, second in itertools.pairwise(outages)), f"two were away at once: {outages}"
    pyinfra("rollback", "-y", timeout=3000).ended(0)
    assert {node: operator.files(lab, node) for node in CONTROL_PLANES} == before
