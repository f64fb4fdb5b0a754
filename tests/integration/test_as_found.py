"""Nodes as they are found: a control-plane node that has more among its manifests than kubeadm put there (cp2), and a worker laid out as
kubespray does it (w5). Every deploy works there, what is odd is named, and the company keeps every byte and every container.

Needs `make lab CONTROL_PLANES=3 WORKERS=5`. The two nodes are changed side by side: each has an inventory of its own, in which the other
one is not, and the cluster's lock lies on another control-plane node.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.integration import operator
from tests.integration.operator import GATE, MANIFESTS, Outcome, data, pyinfra, wait_for
from tests.integration.test_kubelet_settings import hard
from tests.lab import Lab
from tests.lab.rootfs import NO_MANIFESTS, STATIC_PODS

pytestmark = [pytest.mark.lab, pytest.mark.wide]

COMPANION, KUBESPRAY = "cp2", "w5"
STYLES = {COMPANION: "company", KUBESPRAY: "kubespray"}
PODS = [f"{pod}-{node}" for node, style in STYLES.items() for pod in STATIC_PODS[style]]
# kubeadm writes the first one on both; only on cp2 it is read.
UNREAD, CONFIG, ENVIRONMENT = "/var/lib/kubelet/config.yaml", "/etc/kubernetes/kubelet-config.yaml", "/etc/kubernetes/kubelet.env"
# What no run may touch, not even its time of change.
KEPT = {
    COMPANION: [*(f"{MANIFESTS}/{name}" for name in NO_MANIFESTS), *(f"{MANIFESTS}/{pod}.yml" for pod in STATIC_PODS["company"])],
    KUBESPRAY: [f"{MANIFESTS}/nginx-proxy.yml", "/etc/systemd/system/kubelet.service", UNREAD],
}
THRESHOLD, MAX_PODS = "217Mi", 77

Command = tuple[str, Sequence[str]]


@dataclass(frozen=True)
class Seen:
    """How a node was after a command: sums of files, processes, what its kubelet says of the gate and of its configuration."""

    told: Outcome
    files: dict[str, str]
    processes: dict[str, tuple[str, ...]]
    gate: bool
    configz: dict[str, Any]

    def changed(self, before: Seen) -> set[str]:
        return {path for path in {*self.files, *before.files} if self.files.get(path) != before.files.get(path)}

    @property
    def arguments(self) -> dict[str, tuple[str, ...]]:
        return {name: found[2:] for name, found in self.processes.items()}


def look(lab: Lab, node: str, told: Outcome) -> Seen:
    configz = json.loads(lab.kubectl("get", "--raw", f"/api/v1/nodes/{node}/proxy/configz"))["kubeletconfig"]
    return Seen(told, operator.files(lab, node), operator.processes(lab, node), operator.effective(lab, node, GATE), configz)


def walk(lab: Lab, node: str, inventory: Path, commands: Mapping[str, Command]) -> dict[str, Seen]:
    """One command after the other; also after one that failed, so that what was changed is undone."""
    seen = {"before": look(lab, node, Outcome(0, "", ""))}
    for name, (deploy, arguments) in commands.items():
        seen[name] = look(lab, node, pyinfra(deploy, *arguments, inventory=str(inventory)))
    return seen


def gates(node: str, component: str) -> dict[str, Command]:
    return {
        name: ("feature_gates", ["-y", *data(feature_gates=f"{GATE}={value}", components=component, only=node)])
        for name, value in (("on", "true"), ("absent", "absent"))
    }


def thresholds(node: str, how: str) -> Command:
    return ("eviction", [how, *data(eviction_hard=f"memory.available={THRESHOLD}", only=node)])


def settings(node: str, how: str) -> Command:
    return ("kubelet_config", [how, *data(kubelet_config=f"maxPods={MAX_PODS}", only=node)])


# One of the two that change the configuration is carried out, the other planned.
COMMANDS: dict[str, dict[str, Command]] = {
    COMPANION: {
        **gates(COMPANION, "kube-scheduler"),
        "planned": thresholds(COMPANION, "--dry"),
        "configured": settings(COMPANION, "-y"),
        "back": ("rollback", ["-y"]),
    },
    KUBESPRAY: {
        **gates(KUBESPRAY, "kubelet"),
        "planned": settings(KUBESPRAY, "--dry"),
        "configured": thresholds(KUBESPRAY, "-y"),
        "back": ("rollback", ["-y"]),
    },
}
# Group -> its hosts, by the node that is changed.
INVENTORIES = {
    COMPANION: {"control_plane": ["cp1", COMPANION, "cp3"], "workers": ["w1", "w2", "w3", "w4"]},
    KUBESPRAY: {"control_plane": ["cp3", "cp1"], "workers": [KUBESPRAY]},
}


def inventory(folder: Path, groups: Mapping[str, list[str]]) -> Path:
    lines = [f"{group} = [(_name, _all[_name]) for _name in {names}]" for group, names in groups.items()]
    path = folder / "nodes.py"
    path.write_text(operator.inventory_of_the_lab("_all = {**dict(control_plane), **dict(workers)}", *lines))
    return path


def kept(lab: Lab) -> dict[str, str]:
    """Mode, owner, size, times and sum of every file that is to be left alone; a time of change has fractions of a second."""
    return {
        node: lab.run(node, f"stat -c '%n %a %u:%g %s %y %z' {' '.join(paths)} && sha256sum {' '.join(paths)}").stdout
        for node, paths in KEPT.items()
    }


def containers(lab: Lab) -> dict[str, tuple[bool, int, str]]:
    """Of the company's pods: whether it runs, how often it was restarted, and which container it is."""
    items = json.loads(lab.kubectl("get", "pods", "-n", "kube-system", "-o", "json"))["items"]
    states = {item["metadata"]["name"]: (item["status"].get("containerStatuses") or [{}])[0] for item in items}
    return {
        pod: ("running" in state.get("state", {}), state.get("restartCount", 0), state.get("containerID", ""))
        for pod in PODS
        for state in [states.get(pod, {})]
    }


@pytest.fixture(scope="module", autouse=True)
def company(lab: Lab) -> Iterator[tuple[dict[str, str], dict[str, tuple[bool, int, str]]]]:
    """Files and containers as they are before anything is done. Both nodes are as before at the end, and no record is left."""
    operator.forget(lab)
    wait_for(lambda: all(running for running, _, _ in containers(lab).values()), f"{', '.join(PODS)} to run")
    files = {node: operator.files(lab, node) for node in STYLES}
    yield kept(lab), containers(lab)
    operator.forget(lab)
    if any(operator.files(lab, node) != before for node, before in files.items()):
        lab.reset()


@pytest.fixture(scope="module")
def looked(lab: Lab) -> dict[str, Outcome]:
    """What the deploys say that only look."""
    with ThreadPoolExecutor() as pool:
        looks = {"status": ["-y"], "audit": data(format="json"), "checks": ["-y"]}
        asked = {deploy: pool.submit(pyinfra, deploy, *arguments) for deploy, arguments in looks.items()}
        return {deploy: one.result() for deploy, one in asked.items()}


@pytest.fixture(scope="module")
def walked(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Seen]]:
    """Both nodes by all that is done to them."""
    with ThreadPoolExecutor() as pool:
        walks = {
            node: pool.submit(partial(walk, lab, node, inventory(tmp_path_factory.mktemp(node), INVENTORIES[node]), commands))
            for node, commands in COMMANDS.items()
        }
        return {node: one.result() for node, one in walks.items()}


def test_the_nodes_are_what_they_are_meant_to_be(lab: Lab) -> None:
    kubelet = operator.processes(lab, KUBESPRAY)["kubelet"][2:]
    assert kubelet[0] == "/usr/local/bin/kubelet" and f"--config={CONFIG}" in kubelet
    environment = lab.run(KUBESPRAY, "systemctl show kubelet --property=EnvironmentFiles --value").stdout.split()
    assert environment[0] == ENVIRONMENT and lab.run(KUBESPRAY, f"cat {UNREAD}").stdout, "kubeadm has left a file that nobody reads"
    names = lab.run(COMPANION, f"ls {MANIFESTS}").stdout.split()
    assert {*NO_MANIFESTS, "kube-vip.yml", "nginx-proxy.yml", "etcd.yaml", "kube-scheduler.yaml"} <= set(names)


def test_status(looked: dict[str, Outcome]) -> None:
    told = looked["status"]
    assert told.code == 0, told.all
    for pattern in (rf"^{KUBESPRAY} +plain +kubelet +v1\.", rf"^{COMPANION} +kubeadm +kube-apiserver", rf"^{KUBESPRAY} +{ENVIRONMENT} "):
        assert re.search(pattern, told.out, re.MULTILINE), told.out
    assert [name for name in NO_MANIFESTS if name not in told.all] == [], told.all


def test_audit(looked: dict[str, Outcome]) -> None:
    told = looked["audit"]
    assert told.code == 2, told.all
    found = json.loads(told.out)
    assert (found["failures"], found["not_known"]) == ([], []), told.all
    odd = {(COMPANION, f"{MANIFESTS}/{name}") for name in NO_MANIFESTS}
    # The two that were made by hand are siblings, each with a CA at a place of its own.
    siblings = {(one["node"], one["name"]) for one in found["findings"] if one["kind"] == "sibling"}
    assert siblings == {(node, "authentication.x509.clientCAFile") for node in ("w2", KUBESPRAY)}, json.dumps(found["findings"], indent=1)
    assert {(one["node"], one["file"]) for one in found["findings"] if one["kind"] != "sibling"} == odd
    kinds = {node["name"]: node["kind"] for node in found["nodes"]}
    assert (kinds[KUBESPRAY], kinds[COMPANION]) == ("plain", "kubeadm")


def test_checks(looked: dict[str, Outcome]) -> None:
    told = looked["checks"]
    assert told.code == 2, told.all
    rows = {
        (node, check): (outcome, why) for node, check, outcome, why in re.findall(r"^(\w+) +([\w-]+) +(\w+) +(.*)$", told.out, re.MULTILINE)
    }
    failed = {place: why for place, (outcome, why) in rows.items() if outcome == "FAIL"}
    # What is no manifest by its name, and the file that is one by its name alone.
    assert set(failed) == {(COMPANION, "manifests-clean"), (COMPANION, "manifests-pods")}, told.out
    assert [name for name in NO_MANIFESTS if name not in "".join(failed.values())] == [], told.out
    for check in ("kubelet-unit", "kubelet-files", "kubelet-arguments", "kubelet-configuration", "manifests-clean", "manifests-pods"):
        assert rows[KUBESPRAY, check][0] == "pass", told.out


@pytest.mark.parametrize(
    ("node", "component", "file"),
    [(COMPANION, "kube-scheduler", f"{MANIFESTS}/kube-scheduler.yaml"), (KUBESPRAY, "kubelet", ENVIRONMENT)],
)
def test_a_gate_on_and_out_of_the_files_again(walked: dict[str, dict[str, Seen]], node: str, component: str, file: str) -> None:
    before, on, absent = (walked[node][name] for name in ("before", "on", "absent"))
    assert on.told.code == 0, on.told.all
    row = re.search(rf"^{node} +{component} +{GATE} +false \(default\) +true \(set\) +confirmed ", on.told.out, re.MULTILINE)
    assert row, on.told.out
    assert on.changed(before) == {file}
    assert on.processes[component][:2] != before.processes[component][:2]
    assert operator.gates_of(on.processes[component]) == f"{GATE}=true" and on.gate == (component == "kubelet")
    assert absent.told.code == 0, absent.told.all
    assert absent.changed(before) == set() and absent.arguments == before.arguments and not absent.gate


def test_a_plan_names_what_is_odd_there_and_only_there(walked: dict[str, dict[str, Seen]]) -> None:
    told, other = (walked[node]["on"].told.all for node in (COMPANION, KUBESPRAY))
    assert [name for name in NO_MANIFESTS if name not in told] == [], told
    assert [name for name in NO_MANIFESTS if name in other] == [], other


def test_the_configuration_of_kubespray(walked: dict[str, dict[str, Seen]]) -> None:
    """Thresholds are set and taken back, a field is planned: in the file that the kubelet reads, not in kubeadm's."""
    seen = walked[KUBESPRAY]
    before, planned, configured, back = (seen[name] for name in ("absent", "planned", "configured", "back"))
    assert planned.told.code == 0 and planned.processes == before.processes and planned.changed(before) == set(), planned.told.all
    assert CONFIG in planned.told.plan and str(MAX_PODS) in planned.told.plan and UNREAD not in planned.told.plan, planned.told.all
    assert configured.told.code == 0, configured.told.all
    assert configured.changed(before) == {CONFIG}
    assert hard(configured.configz) == {**hard(before.configz), "memory.available": THRESHOLD}
    assert {**configured.configz, "evictionHard": None} == {**before.configz, "evictionHard": None}
    assert back.told.code == 0, back.told.all
    assert back.changed(before) == set() and back.configz == before.configz and back.arguments == before.arguments


def test_the_configuration_of_a_control_plane_node_in_company(walked: dict[str, dict[str, Seen]]) -> None:
    seen = walked[COMPANION]
    before, planned, configured, back = (seen[name] for name in ("absent", "planned", "configured", "back"))
    assert planned.told.code == 0 and planned.processes == before.processes and planned.changed(before) == set(), planned.told.all
    assert "evicts below" in planned.told.out and THRESHOLD in planned.told.plan, planned.told.all
    assert configured.told.code == 0, configured.told.all
    assert configured.changed(before) == {UNREAD}
    assert configured.configz == {**before.configz, "maxPods": MAX_PODS}
    assert back.told.code == 0, back.told.all
    assert back.changed(before) == set() and back.configz == before.configz
    assert back.arguments == before.arguments


@pytest.mark.usefixtures("looked", "walked")
def test_the_company_keeps_every_byte_and_every_container(
    lab: Lab, company: tuple[dict[str, str], dict[str, tuple[bool, int, str]]]
) -> None:
    files, pods = company
    assert kept(lab) == files
    assert containers(lab) == pods
