"""It lasts: what all nodes share is in kubeadm's ConfigMaps too, and comes back from there by kubeadm's own commands."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from roles.engine.editing import ABSENT, cluster_configuration, kubelet_config
from roles.engine.kubeadm_config import CLUSTER, KEYS, KUBELET
from roles.engine.kubeadm_config.plan import edit
from roles.engine.kubelet.thresholds import DEFAULT_HARD
from roles.engine.transaction.change_script import HOME
from tests.integration import kubeadm_pods, operator
from tests.integration.operator import GATE, MANIFESTS, Outcome, Started, data, end_started, pyinfra, run_of, wait_for
from tests.lab import Lab

pytestmark = pytest.mark.lab

SCHEDULER = "kube-scheduler"
ON = data(feature_gates=f"{GATE}=true", components=f"{SCHEDULER},kubelet")
CONFIG = "/var/lib/kubelet/config.yaml"
CONTROL_PLANE_PHASE = kubeadm_pods.PHASE
KUBELET_PHASE = "kubeadm upgrade node phase kubelet-config"


def config_map(lab: Lab, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lab.kubectl("get", "configmap", name, "-n", "kube-system", "-o", "json", "--show-managed-fields"))
    return found


def texts(lab: Lab) -> dict[str, str]:
    return {name: config_map(lab, name)["data"][key] for name, key in KEYS.items()}


def versions(lab: Lab) -> dict[str, str]:
    return {name: config_map(lab, name)["metadata"]["resourceVersion"] for name in KEYS}


def put(lab: Lab, name: str, text: str) -> None:
    """What somebody with an editor does."""
    lab.kubectl("patch", "configmap", name, "-n", "kube-system", "--type=merge", "-p", json.dumps({"data": {KEYS[name]: text}}))


def kept(lab: Lab) -> dict[str, bool | None]:
    """The gate as each of the two ConfigMaps has it."""
    found = {name: text.encode() for name, text in texts(lab).items()}
    return {
        CLUSTER: cluster_configuration.read(found[CLUSTER])[SCHEDULER].gates.get(GATE),
        KUBELET: kubelet_config.gates(found[KUBELET]).get(GATE),
    }


def without(before: dict[str, str]) -> dict[str, str]:
    """The texts with the gate taken out."""
    return {
        CLUSTER: edit(CLUSTER, before[CLUSTER].encode(), {(SCHEDULER, GATE): None}).after.decode(),
        KUBELET: kubelet_config.edit_fields(before[KUBELET].encode(), {("featureGates", GATE): ABSENT}).decode(),
    }


def settings(lab: Lab) -> dict[str, dict[str, str]]:
    """By node the sums of the files that the gate was written to, or may have been. (kubeadm leaves copies of its own beside them.)"""
    places = (MANIFESTS, CONFIG, "/etc/default/", "/etc/systemd/", "/etc/kubernetes-node/")
    return {node: {path: sha for path, sha in operator.files(lab, node).items() if path.startswith(places)} for node in lab.nodes}


def untouched(lab: Lab) -> object:
    """What a run that touches no node leaves as it is. (Scheduler and controller-manager end by themselves when they lose their lease.)"""
    running = {node: operator.processes(lab, node) for node in lab.nodes}
    own = {node: {name: found[name][:2] for name in ("kubelet", "kube-apiserver") if name in found} for node, found in running.items()}
    return own, settings(lab)


def row(out: str, name: str, outcome: str) -> str:
    found = re.search(rf"^cluster +{name} .* {outcome} .*$", out, re.MULTILINE)
    assert found, out
    return found.group(0)


@dataclass
class World:
    """The lab once all nodes have the gate by one run, and what was before."""

    before: dict[str, str]
    files: dict[str, dict[str, str]]
    told: Outcome
    after: dict[str, str] = field(default_factory=dict)
    undone: bool = False


@pytest.fixture(scope="module")
def world(lab: Lab) -> Iterator[World]:
    # Other modules take the gate back from one node after the other, which is no reason to take it from the ConfigMaps.
    for name, text in without(texts(lab)).items():
        put(lab, name, text)
    assert kept(lab) == {CLUSTER: None, KUBELET: None}
    before, files = texts(lab), settings(lab)
    dry = pyinfra("feature_gates", "--dry", *ON).ended(0)
    assert texts(lab) == before and "kubeadm-config" in dry.plan and f"+  {GATE}: true" in dry.plan
    made = World(before, files, pyinfra("feature_gates", "-y", *ON))
    try:
        assert made.told.code == 0, made.told.all
        assert made.told.plan == dry.plan
        made.after = texts(lab)
        yield made
    finally:
        if not made.undone:
            lab.reset()
        else:
            operator.forget(lab)
            # kubeadm's copies of what it has replaced.
            for node in ("cp1", "w1"):
                lab.run(node, "rm -rf /etc/kubernetes/tmp")


@pytest.fixture
def in_both(lab: Lab, world: World) -> Iterator[World]:
    """The ConfigMaps have the gate; and have it again after the test."""
    assert texts(lab) == world.after
    yield world
    end_started(lab)
    for name, text in texts(lab).items():
        if text != world.after[name]:
            put(lab, name, world.after[name])


@pytest.fixture
def in_none(lab: Lab, in_both: World) -> World:
    """The nodes have the gate, and the ConfigMaps do not."""
    for name, text in without(in_both.after).items():
        put(lab, name, text)
    assert kept(lab) == {CLUSTER: None, KUBELET: None}
    return in_both


# ---- written last, for all


def test_it_is_written_last_and_nothing_else_of_it_changes(lab: Lab, in_both: World) -> None:
    assert kept(lab) == {CLUSTER: True, KUBELET: True}
    assert without(in_both.after) == in_both.before, "other bytes changed"
    for name, key in KEYS.items():
        owners = [entry for entry in config_map(lab, name)["metadata"]["managedFields"] if entry["manager"] == "daytwo"]
        assert owners and f"f:{key}" in owners[0]["fieldsV1"]["f:data"]
        assert "read back" in row(in_both.told.out, name, "confirmed")
        last_node = max(in_both.told.out.rindex(f"{node} kubelet: confirmed") for node in lab.nodes)
        assert in_both.told.out.index(f"{name}: confirmed") > last_node, "a ConfigMap was written before a node was confirmed"
    record = re.search(r"Record of the run: (\S+)", in_both.told.out)
    assert record
    events = [json.loads(line) for line in Path(record.group(1)).read_text().splitlines()]
    planned = {event["component"]: event for event in events if event.get("kind") == "configmap"}
    assert planned[KUBELET]["fields"] == [{"path": ["featureGates", GATE], "before": None, "after": True}]
    assert planned[CLUSTER]["fields"] == [{"path": [SCHEDULER, GATE], "before": None, "after": True}]
    changes = pyinfra("changes", "-y")
    assert re.search(rf"^{run_of(in_both.told)} .* kubelet-config +confirmed", changes.out, re.MULTILINE), changes.out


def test_kubeadm_keeps_it(lab: Lab, in_both: World) -> None:
    old = untouched(lab)
    lab.run("cp1", f"cp -a {CONFIG} /root/config.yaml")
    try:
        told = lab.run("cp1", f"{CONTROL_PLANE_PHASE} && {KUBELET_PHASE}").stdout
        assert "kube-scheduler" in told and "kubelet configuration for this node was successfully upgraded" in told
        assert f"--feature-gates={GATE}=true" in lab.run("cp1", f"cat {MANIFESTS}/{SCHEDULER}.yaml").stdout
        assert kubelet_config.gates(lab.run("cp1", f"cat {CONFIG}").stdout.encode())[GATE] is True
    finally:
        lab.run("cp1", f"mv /root/config.yaml {CONFIG}")
    assert untouched(lab) == old


def test_a_node_that_joins_has_it(lab: Lab, in_both: World) -> None:
    lab.run("w1", f"cp -a {CONFIG} /root/config.yaml")
    joining = lab.run("cp1", "kubeadm token create --print-join-command 2>/dev/null").stdout.strip()
    assert joining.startswith("kubeadm join ")
    lab.kubectl("delete", "node", "w1")
    lab.run("w1", "kubeadm reset --force >/root/reset.log 2>&1")
    assert lab.run("w1", f"ls {CONFIG}", check=False).returncode != 0, "reset left the old configuration"
    lab.run("w1", f"{joining} --skip-phases=preflight >/root/kubeadm.log 2>&1 || {{ cat /root/kubeadm.log >&2; exit 1; }}", timeout=900)
    ready = ["wait", "--for=condition=Ready", "node/w1", "--timeout=10s"]
    wait_for(lambda: "condition met" in lab.kubectl(*ready, check=False), "w1 to be a node again", 600)
    assert kubelet_config.gates(lab.run("w1", f"cat {CONFIG}").stdout.encode())[GATE] is True
    assert operator.effective(lab, "w1", GATE)
    told = pyinfra("feature_gates", "-y", *ON)
    assert told.code == 0 and "0 changes on 0 nodes" in told.out, told.all
    # The same settings in the order that the run before left them in, for the way back.
    lab.run("w1", f"mv /root/config.yaml {CONFIG}")


# ---- the ConfigMaps and the nodes do not say the same


def test_split_brain_is_shown_and_fixed(lab: Lab, in_none: World) -> None:
    shown = pyinfra("status", "-y").ended(0)
    for node, component, source in (("cp1", "kubelet", KUBELET), ("w1", "kubelet", KUBELET), ("cp1", SCHEDULER, CLUSTER)):
        assert re.search(rf"^{node} +{component} +{GATE} +{source} +\(not set\) +true +true$", shown.out, re.MULTILINE), shown.out
    told = pyinfra("feature_gates", "--dry", *data(feature_gates=f"{operator.LOCKED}=absent"))
    assert f"DIFFERS w1 kubelet: {GATE} is (not set) in kubelet-config, true in its files" in told.out, told.all

    old = untouched(lab)
    before = versions(lab)
    dry = pyinfra("feature_gates", "--dry", *ON)
    assert dry.code == 0 and f"+  {GATE}: true" in dry.out and versions(lab) == before, dry.all
    fixed = pyinfra("feature_gates", "-y", *ON)
    assert fixed.code == 0 and "0 changes on 0 nodes, and kubeadm-config, kubelet-config" in fixed.out, fixed.all
    assert kept(lab) == {CLUSTER: True, KUBELET: True} and without(texts(lab)) == in_none.before
    assert row(fixed.out, KUBELET, "confirmed") and row(fixed.out, CLUSTER, "confirmed")
    assert untouched(lab) == old, "something was restarted"

    now = versions(lab)
    again = pyinfra("feature_gates", "-y", *ON)
    assert again.code == 0 and row(again.out, KUBELET, "no change") and versions(lab) == now, again.all
    # A run of its own, and undone as one.
    undone = pyinfra("rollback", "-y", *data(run=run_of(fixed)))
    assert undone.code == 0 and kept(lab) == {CLUSTER: None, KUBELET: None}, undone.all
    assert untouched(lab) == old


@pytest.mark.parametrize(
    "tried", [pytest.param(True, id="scheduler tried"), pytest.param(False, id="scheduler too", marks=pytest.mark.slow)]
)
def test_without_persist_kubeadm_drops_it(lab: Lab, in_none: World, tried: bool) -> None:
    """From the kubelet's configuration, and from the scheduler's manifest: as kubeadm would write it (tried), or does."""
    before = versions(lab)
    told = pyinfra("feature_gates", "-y", *ON, *data(persist="false"))
    assert told.code == 0 and versions(lab) == before, told.all
    for name in KEYS:
        assert re.search(rf"persist=false: {name} is not changed, and the next `kubeadm upgrade` .*{GATE}=true", told.out), told.out
    manifest = f"{MANIFESTS}/{SCHEDULER}.yaml"
    lab.run("cp1", f"cp -a {CONFIG} /root/config.yaml; cp -a {manifest} /root/scheduler.yaml")
    try:
        made = lab.run("cp1", f"{CONTROL_PLANE_PHASE}{' --dry-run' if tried else ''} && {KUBELET_PHASE}", timeout=900).stdout
        assert GATE not in kubelet_config.gates(lab.run("cp1", f"cat {CONFIG}").stdout.encode())
        if tried:
            assert f"- {SCHEDULER}\n" in made and GATE not in made, made
        else:
            assert GATE not in lab.run("cp1", f"cat {manifest}").stdout
            assert operator.gates_of(operator.processes(lab, "cp1")[SCHEDULER]) == ""
    finally:
        lab.run("cp1", f"mv /root/config.yaml {CONFIG}; mv /root/scheduler.yaml {manifest}")
        gate = f"{GATE}=true"
        wait_for(lambda: operator.gates_of(operator.processes(lab, "cp1").get(SCHEDULER, ())) == gate, "the scheduler with its gate", 600)


def test_the_shape_of_v1beta3(lab: Lab, in_none: World) -> None:
    """Clusters that an older kubeadm made, whose arguments are a map: kubeadm reads what daytwo wrote there."""
    old = kubeadm_pods.as_v1beta3(texts(lab)[CLUSTER]).replace("scheduler: {}", "scheduler:\n  extraArgs:\n    profiling: 'false' # why")
    put(lab, CLUSTER, old)
    pyinfra("feature_gates", "-y", *ON).ended(0)
    text = texts(lab)[CLUSTER]
    assert text == old.replace("# why\n", f'# why\n    feature-gates: "{GATE}=true"\n')
    made = lab.run("cp1", f"{CONTROL_PLANE_PHASE} --dry-run", timeout=900).stdout
    assert f"--feature-gates={GATE}=true" in made and "--profiling=false" in made, made


# ---- what goes wrong


def test_a_conflict_is_tried_again(lab: Lab, in_none: World, tmp_path: Path) -> None:
    """Somebody writes the ConfigMap right between daytwo's look at it and its write."""
    annotate, go = ["annotate", "--overwrite", "-n", "kube-system", "configmap", KUBELET], tmp_path / "go"
    run = Started("feature_gates", "-y", *ON, hold=f"ConfigMap {KUBELET} {go}")
    try:
        run.wait_for(f"{KUBELET}: held")
        lab.kubectl(*annotate, "test=theirs")
        go.touch()
        told = run.end().ended(0)
        assert told.out.count(f"{KUBELET}: it was changed since it was read; reading it again") == 1, told.out
        assert config_map(lab, KUBELET)["metadata"]["annotations"]["test"] == "theirs", "their write is lost"
    finally:
        go.touch()
        lab.kubectl(*annotate, "test-")
    assert kept(lab) == {CLUSTER: True, KUBELET: True} and without(texts(lab)) == in_none.before


POLICY = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicy",
    "metadata": {"name": "hands-off"},
    "spec": {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["UPDATE"],
                    "resources": ["configmaps"],
                    "resourceNames": [KUBELET],
                }
            ]
        },
        "validations": [{"expression": "false", "message": "hands off kubelet-config", "reason": "Forbidden"}],
    },
}
BINDING = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicyBinding",
    "metadata": {"name": "hands-off"},
    "spec": {"policyName": "hands-off", "validationActions": ["Deny"]},
}


@contextlib.contextmanager
def forbidden(lab: Lab) -> Iterator[None]:
    """The API server lets nobody write kubelet-config."""

    def refused() -> bool:
        tried = ["annotate", "--dry-run=server", "--overwrite", "-n", "kube-system", "configmap", KUBELET, "test=1"]
        return "annotated" not in lab.kubectl(*tried, check=False)

    lab.kubectl("apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": [POLICY, BINDING]}))
    try:
        wait_for(refused, "the policy to be in force")
        yield
    finally:
        lab.kubectl("delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", "hands-off")
        wait_for(lambda: not refused(), "the policy to be gone")


def test_an_operator_killed_before_the_last_step_and_a_write_that_is_forbidden(lab: Lab, in_both: World) -> None:
    """w1 alone lacks the gate. Its operator is killed once it is on its way to be confirmed: no ConfigMap was touched. The next run
    may not write kubelet-config: the node keeps what it has, and what does not last is said. The third one mends it."""
    off = pyinfra("feature_gates", "-y", *data(feature_gates=f"{GATE}=absent", components="kubelet", only="w1"), brief=True)
    assert off.code == 0 and texts(lab) == in_both.after, off.all
    assert re.search(r"kubelet-config is not changed, since cp1, w2 are not in this run .*does not survive the next", off.out), off.out
    for name, text in without(in_both.after).items():
        put(lab, name, text)
    before = versions(lab)

    lab.run("w1", f"rm -rf {HOME}/held {HOME}/go")
    run = Started("feature_gates", "-y", *ON, hold="confirm")
    wait_for(lambda: lab.run("w1", f"test ! -d {HOME}/held || echo held").stdout == "held\n", f"w1 to be about to confirm:\n{run.out}", 600)
    run.process.kill()
    run.end()
    lab.run("w1", f"touch {HOME}/go")
    change = f"{HOME}/changes/{run_of(run)}-w1-kubelet"
    wait_for(lambda: "state=confirmed" in lab.run("w1", f"cat {change}/state").stdout, "w1 to confirm by itself")
    assert versions(lab) == before, "a ConfigMap was written though its operator was killed before"
    assert not lab.run("cp1", f"ls -d {HOME}/changes/{run_of(run)}-cluster-*", check=False).stdout
    lab.run("w1", f"rm -rf {HOME}/held {HOME}/go")

    old = untouched(lab)
    with forbidden(lab):
        refused = pyinfra("feature_gates", "-y", *ON, *data(take_over=run_of(run)))
    assert refused.code == 1, refused.all
    assert kept(lab) == {CLUSTER: True, KUBELET: None}, "the other ConfigMap has nothing to do with it"
    assert "hands off kubelet-config" in row(refused.out, KUBELET, "failed"), refused.out
    assert row(refused.out, CLUSTER, "confirmed")
    assert re.search(rf"^Not written: kubelet-config: .*{GATE}=true does not survive the next `kubeadm upgrade`", refused.out, re.MULTILINE)
    assert "then repeat this command: it keeps what is done" in refused.out and "Traceback" not in refused.all
    assert operator.effective(lab, "w1", GATE)

    fixed = pyinfra("feature_gates", "-y", *ON)
    assert fixed.code == 0 and kept(lab) == {CLUSTER: True, KUBELET: True}, fixed.all
    assert untouched(lab) == old


# ---- per node


def test_what_is_per_node_comes_with_its_patch(lab: Lab, in_both: World, tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.py"
    with_fields = "{0} = [(_name, {{**_data, 'kubelet_config': {{'maxPods': {1}}}}}) for _name, _data in {0}]"
    inventory.write_text(operator.inventory_of_the_lab(with_fields.format("workers", 77), with_fields.format("control_plane", 78)))
    told = pyinfra("kubelet_config", "--dry", inventory=str(inventory)).ended(0)
    found = re.search(r"w1 kubelet: maxPods=77 does not survive .*kubeletconfiguration\+merge\.yaml:\n((?:    .*\n)+)", told.out)
    assert found, told.out
    lab.run(
        "w1", "mkdir -p /root/patches && cat >/root/patches/kubeletconfiguration+merge.yaml", input=re.sub("(?m)^    ", "", found.group(1))
    )
    phase = (
        f"KUBEADM_UPGRADE_DRYRUN_DIR=/root/dry {KUBELET_PHASE} --kubeconfig /etc/kubernetes/kubelet.conf --dry-run --patches /root/patches"
    )
    given = lab.run("w1", f"mkdir -p /root/dry; {phase}").stdout
    assert "maxPods: 77" in given, given


@pytest.mark.slow
def test_thresholds_last_too(lab: Lab, in_both: World) -> None:
    """w2, made by hand, is in the run and has no part in kubelet-config."""
    told = pyinfra("eviction", "-y", *data(eviction_hard="memory.available=61Mi"))
    try:
        assert told.code == 0, told.all
        now = texts(lab)
        old, new = (kubelet_config.read(text.encode())["evictionHard"] for text in (in_both.after[KUBELET], now[KUBELET]))
        # A field is written whole: the defaults that it does not have are named as switched off (docs/eviction.md).
        assert new == {**dict.fromkeys(DEFAULT_HARD, "0%"), **old, "memory.available": "61Mi"}
        gone = [line for line in in_both.after[KUBELET].splitlines() if line not in now[KUBELET].splitlines()]
        assert gone == ["  memory.available: 50Mi"] and now[CLUSTER] == in_both.after[CLUSTER]
        assert re.search(r"^kubelet-config +evictionHard\.memory\.available +50Mi +61Mi +confirmed", told.out, re.MULTILINE), told.out
        assert "memory.available: 61Mi" in lab.run("cp1", f"cp -a {CONFIG} /root/config.yaml && {KUBELET_PHASE} && cat {CONFIG}").stdout
    finally:
        lab.run("cp1", f"[ ! -e /root/config.yaml ] || mv /root/config.yaml {CONFIG}")
        back = pyinfra("rollback", "-y", *data(run=run_of(told)))
    assert back.code == 0 and texts(lab) == in_both.after, back.all


# ---- the way back


def test_the_way_back_begins_with_the_configmaps(lab: Lab, in_both: World) -> None:
    """The last one of this module: it undoes what the others build on."""
    name = run_of(in_both.told)
    put(lab, KUBELET, in_both.after[KUBELET].replace(f"{GATE}: true", f"{GATE}: false"))
    old = untouched(lab)
    now = versions(lab)
    refused = pyinfra("rollback", "-y", *data(run=name))
    assert refused.code == 1 and f"featureGates.{GATE} is false, and daytwo set it to true" in refused.all, refused.all
    assert "force=true" in refused.all and versions(lab) == now
    assert untouched(lab) == old, "a node was touched"
    put(lab, KUBELET, in_both.after[KUBELET])

    with forbidden(lab):
        halted = pyinfra("rollback", "-y", *data(run=name))
    assert halted.code == 1 and "hands off kubelet-config" in halted.out, halted.all
    assert untouched(lab) == old, "a node was touched before what is to be first"

    back = pyinfra("rollback", "-y", *data(run=name)).ended(0)
    assert back.out.index("kubelet-config: confirmed") < back.out.index(": applying"), "a node was changed first"
    assert texts(lab) == in_both.before
    assert settings(lab) == in_both.files
    # What is put back after the test is what was before.
    in_both.after, in_both.undone = in_both.before, True
