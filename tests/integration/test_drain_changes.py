"""Changes of kubelets on drained nodes, on a real cluster: drained in turn, proven, uncordoned; interrupted, killed, resumed, undone."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from roles.engine.kube import Object
from roles.engine.transaction.change_script import script
from tests.integration import operator
from tests.integration.checkpoints import STATIC, as_it_is, configz, cpus_of, stored
from tests.integration.draining import (
    NAMESPACE,
    STUBBORN,
    apply,
    bare,
    budget,
    cleaned,
    cordon_of,
    killed,
    on,
    only_on,
    own_namespace,
    pods,
    settled,
    workload,
)
from tests.integration.operator import GATE, Outcome, Started, data, pyinfra, run_of, wait_for
from tests.integration.serving import eviction_webhook
from tests.lab import Lab

LABEL = "daytwo.test/here"
FREE = (False, "")


def change(pods: int, *, on: str = "w1", **values: str) -> Outcome:
    return pyinfra("kubelet_config", "-y", *data(kubelet_config=f"maxPods={pods}", only=on, **values))


def max_pods(lab: Lab, node: str) -> int:
    """0 while the kubelet does not answer."""
    return int(configz(lab, node).get("maxPods", 0))


def events(text: str) -> list[dict[str, object]]:
    found = re.search(r"Record of the run: (\S+)", text)
    assert found, text
    return [json.loads(line) for line in Path(found[1]).read_text().splitlines()]


@pytest.fixture(scope="module", autouse=True)
def namespace(lab: Lab) -> Iterator[None]:
    with own_namespace(lab):
        yield


@pytest.fixture(autouse=True)
def as_found(lab: Lab) -> Iterator[None]:
    yield
    cleaned(lab, LABEL)


@pytest.mark.lab
def test_two_nodes_are_drained_in_turn_proven_and_uncordoned(lab: Lab, tmp_path: Path) -> None:
    """Also past a webhook that denies each eviction at first, with 429 and with 403."""
    apply(lab, workload("web", replicas=2), budget("web", maxUnavailable=1))
    settled(lab)
    before = {item["metadata"]["uid"] for item in pods(lab).values()}
    with eviction_webhook(lab, "web-", 3.0, tmp_path):
        told = change(108, on="w1,w2", drain="always")
    assert told.code == 0 and "waits: admission webhook guard.t-evict.example denied the request" in told.out, told.all
    assert "w1 is drained for its change: drain=always" in told.out and f"{NAMESPACE}/web" in told.out
    moments = [told.out.index(f"  {word}") for word in ("w1 kubelet: drained", "w1 kubelet: uncordoned", "w2 kubelet: draining")]
    assert moments == sorted(moments), told.out
    assert [max_pods(lab, node) for node in ("w1", "w2")] == [108, 108]
    assert [cordon_of(lab, node) for node in ("w1", "w2")] == [FREE, FREE]
    assert not before & {item["metadata"]["uid"] for item in pods(lab).values()}, "each pod has left a node"
    assert len(re.findall(r"drained before it \(\d+ pods? moved\), uncordoned", told.out)) == 2
    noted = events(told.out)
    assert [(one["event"], one["node"]) for one in noted if one["event"] in ("drained", "uncordoned")] == [
        ("drained", "w1"), ("uncordoned", "w1"), ("drained", "w2"), ("uncordoned", "w2")
    ]  # fmt: skip
    assert {"cordon", "evict", "prove"} <= {str(one.get("what")) for one in noted}
    # What needs no drain gets none.
    back = pyinfra("rollback", "-y")
    assert back.code == 0 and "drained" not in back.out and max_pods(lab, "w1") == 110, back.all


@pytest.mark.lab
def test_pods_that_a_restart_would_lose_are_drained_before_it(lab: Lab) -> None:
    """Refused where they cannot be; by a run that dies twice in the middle of that: undone, and resumed."""
    lab.kubectl("label", "nodes", "w1", "w2", f"{LABEL}=yes")
    picky = workload("picky", replicas=3, command=STUBBORN, grace=5, nodeSelector={LABEL: "yes"})
    only_on(lab, "w1", items=[picky, budget("picky", maxUnavailable=1)])
    lab.kubectl("label", "nodes", "w1", f"{LABEL}-")
    files = operator.files(lab, "w1")
    wish = data(feature_gates=f"{GATE}=true", components="kubelet", only="w1")
    never = pyinfra("feature_gates", "-y", *wish, "--data", "drain=never")
    assert never.code == 1 and f"{NAMESPACE}/picky" in never.all and "--data drain=auto" in never.all, never.all
    # A drain that cannot be made is refused as well, and names the pod that is in its way.
    apply(lab, bare("alone", "w1"))
    lab.kubectl("wait", "--for=condition=Ready", "pod/alone", "-n", NAMESPACE, "--timeout=100s")
    blocked = pyinfra("feature_gates", "-y", *wish)
    assert blocked.code == 1 and f"pod {NAMESPACE}/alone: it has no controller" in blocked.all and "allow_unmanaged" in blocked.all
    other = pyinfra("kubelet_config", "-y", *data(kubelet_config="podPidsLimit=4321", only="w1"))
    assert other.code == 1 and "or accept the loss with --data allow_evictions=true" in " ".join(other.all.split()), other.all
    assert operator.files(lab, "w1") == files and cordon_of(lab, "w1") == FREE
    lab.kubectl("delete", "pod", "alone", "-n", NAMESPACE, "--now", "--wait")

    def dies(*more: str) -> str:
        """A run whose operator dies in the middle of the drain: one more pod has left."""
        there = len(on(lab, "w1"))
        run = Started("feature_gates", "-y", *wish, *more)
        wait_for(lambda: ends() or run.process.poll() is not None, "an eviction", every=0.1)
        name = killed(lab, run)
        # The node is as the record says: cordoned by this run, and its kubelet untouched.
        assert cordon_of(lab, "w1") == (True, f"{name} (change)") and operator.files(lab, "w1") == files
        wait_for(lambda: len(on(lab, "w1")) == there - 1, "the evicted pod to end")
        return name

    def ends() -> bool:
        return any("deletionTimestamp" in one["metadata"] for one in pods(lab).values() if one["spec"].get("nodeName") == "w1")

    first = dies()
    told = " ".join(pyinfra("status", "-y").out.split())
    assert (
        f"w1: cordoned by run {first} (change), for " in told
        and "that change is not in flight; if the run is over" in told
        and f"rollback.py --data run={first}" in told
    )
    undone = pyinfra("rollback", "-y", *data(run=first, take_over=first))
    assert undone.code == 0 and f"w1: cordoned by run {first} for its change, which is over: this run uncordons it" in undone.out, (
        undone.all
    )
    assert cordon_of(lab, "w1") == FREE and operator.files(lab, "w1") == files
    nothing = pyinfra("rollback", "-y", *data(run=first))
    assert nothing.code == 1 and "no node has a confirmed change of run" in nothing.all, nothing.all

    second = dies()
    told = pyinfra("feature_gates", "-y", *wish, "--data", f"take_over={second}")
    assert told.code == 0 and "NodeAffinity" in told.out and "so the node is drained first" in told.out, told.all
    assert f"cordoned already by run {second}" in told.out and "(1 pod moved), uncordoned" in told.out, told.all
    assert cordon_of(lab, "w1") == FREE and on(lab, "w1") == [] and len(on(lab, "w2")) == 3
    assert pyinfra("rollback", "-y").code == 0


@pytest.mark.lab
def test_a_run_that_ends_while_it_soaks_leaves_what_the_record_says(lab: Lab) -> None:
    """Killed, and resumed by a run that is interrupted: each time its node reverts. (That a run which died is undone, and its node uncordoned,
    is in the test before, and at the node's deadline in the slow one below.)"""
    wish = {"kubelet_config": "maxPods=106", "only": "w1", "drain": "always", "soak": "600"}
    run = Started("kubelet_config", "-y", *data(**wish))
    run.wait_for("soaking for")
    first = killed(lab, run)
    assert cordon_of(lab, "w1") == (True, f"{first} (change)")
    # As it does by itself at its deadline.
    lab.run("w1", f'sh "{script(f"{first}-w1-kubelet")}" revert')
    wait_for(lambda: max_pods(lab, "w1") == 110, "the node to revert")

    run = Started("kubelet_config", "-y", *data(**wish, take_over=first))
    run.wait_for("soaking for")
    assert cordon_of(lab, "w1") == (True, f"{run_of(run)} (change)") and max_pods(lab, "w1") == 106
    run.send(signal.SIGINT)
    told = run.end()
    assert f"cordoned already by run {first}" in told.out, told.all
    assert told.code != 0 and "w1 kubelet: uncordoned" in told.all and "STILL CORDONED" not in told.all, told.all
    assert cordon_of(lab, "w1") == FREE and max_pods(lab, "w1") == 110


def moved_to(lab: Lab, node: str, app: str) -> Object:
    """The one pod of an app, created again on this worker."""
    others = [other for other in lab.nodes if other != node]
    lab.kubectl("cordon", *others)
    lab.kubectl("delete", "pods", "-l", f"app={app}", "-n", NAMESPACE, "--wait")
    settled(lab)
    lab.kubectl("uncordon", *others)
    (found,) = (one for one in pods(lab).values() if one["metadata"]["labels"]["app"] == app)
    assert found["spec"]["nodeName"] == node
    return found


def well(lab: Lab, **apps: int) -> bool:
    """Each app has this many pods, all Ready; none has failed, and none has started twice. A pod that a kubelet does not admit again stays,
    as Failed."""
    found = list(pods(lab).values())
    counts = {app: sum(one["metadata"]["labels"]["app"] == app for one in found) for app in apps}
    states = [state for one in found for state in one["status"].get("containerStatuses", ({},))]
    return counts == apps and all(one.get("ready") and not one["restartCount"] for one in states)


@pytest.mark.lab
@pytest.mark.slow  # the runbook of the static CPU manager has pods on its node too
def test_cpu_manager_there_and_back_with_pods_on_the_node(lab: Lab) -> None:
    """none -> static -> none: drained both times; the second time a pod has a CPU of its own."""
    pinned = workload("pinned", container={"resources": {"limits": {"cpu": "1", "memory": "20Mi"}}})
    only_on(lab, "w1", items=[pinned, workload("web")])
    only_on(lab, "w2", items=[workload("web", replicas=2), budget("web", maxUnavailable=1)])
    assert len(on(lab, "w1")) == 2
    before, files = configz(lab, "w1"), operator.files(lab, "w1")
    told = pyinfra("kubelet_config", "-y", *data(kubelet_config=STATIC, only="w1"))
    assert told.code == 0 and "static in cpu_manager_state" in told.out, told.all
    assert "w1 is drained for its change: cpuManagerPolicy: the kubelet does not start while" in told.out, told.out
    assert "drained before it (2 pods moved), uncordoned" in told.out, told.out
    assert cordon_of(lab, "w1") == FREE and on(lab, "w1") == [] and well(lab, pinned=1, web=2)

    uid = moved_to(lab, "w1", "pinned")["metadata"]["uid"]
    wait_for(lambda: cpus_of(lab, "w1", uid), "the pod's CPU in the checkpoint")
    back = pyinfra("rollback", "-y", *data(run=run_of(told)))
    assert back.code == 0 and "none in cpu_manager_state" in back.out, back.all
    assert "drained before it (1 pod moved), uncordoned" in back.out, back.out
    assert cordon_of(lab, "w1") == FREE and on(lab, "w1") == [] and well(lab, pinned=1, web=2)
    assert stored(lab, "w1")["policyName"] == "none" and not stored(lab, "w1").get("entries")
    assert configz(lab, "w1") == before and operator.files(lab, "w1") == files


@pytest.mark.lab
@pytest.mark.slow
def test_a_drained_node_whose_operator_is_dead_reverts_at_its_deadline(lab: Lab) -> None:
    """By itself, with its checkpoint; then the same command finishes the change, and in the other case a rollback uncordons the node."""
    only_on(lab, "w1", items=[workload("web", replicas=2), budget("web", maxUnavailable=1)])
    before, files, checkpoint = configz(lab, "w1"), operator.files(lab, "w1"), as_it_is(lab, "w1")
    wish = {"kubelet_config": STATIC, "only": "w1", "confirm_timeout": "60"}

    def dies() -> str:
        """A run whose operator dies while its change is applied, and not confirmed."""
        run = Started("kubelet_config", "-y", *data(**wish, soak="20"))
        run.wait_for("soaking for")
        name = killed(lab, run)
        assert stored(lab, "w1")["policyName"] == "static"
        wait_for(lambda: lab.run("w1", "ls -A /var/lib/daytwo/active").stdout == "", "the node to revert")
        wait_for(lambda: configz(lab, "w1") == before, "the old kubelet")
        assert operator.files(lab, "w1") == files and as_it_is(lab, "w1") == checkpoint
        ended = lab.run("w1", f"cd /var/lib/daytwo/changes/{name}-w1-kubelet && cat state reason").stdout
        assert "state=reverted" in ended and "not confirmed within 80 s" in ended, ended
        assert cordon_of(lab, "w1") == (True, f"{name} (change)") and on(lab, "w1") == [] and well(lab, web=2)
        return name

    first = dies()
    undone = pyinfra("rollback", "-y", *data(run=first, take_over=first))
    assert undone.code == 0 and f"w1: cordoned by run {first} for its change, which is over" in undone.out, undone.all
    assert cordon_of(lab, "w1") == FREE and as_it_is(lab, "w1") == checkpoint

    second = dies()
    told = pyinfra("kubelet_config", "-y", *data(**wish, take_over=second))
    assert told.code == 0 and f"cordoned already by run {second}" in told.out and "static in cpu_manager_state" in told.out, told.all
    assert cordon_of(lab, "w1") == FREE and configz(lab, "w1")["cpuManagerPolicy"] == "static" and well(lab, web=2)
    assert pyinfra("rollback", "-y").code == 0
    assert configz(lab, "w1") == before and operator.files(lab, "w1") == files and stored(lab, "w1")["policyName"] == "none"


@pytest.mark.lab
@pytest.mark.slow
def test_thresholds_and_their_undo_drain_if_asked(lab: Lab) -> None:
    only_on(lab, "w1", items=[workload("web")])
    before, files = configz(lab, "w1"), operator.files(lab, "w1")
    told = pyinfra("eviction", "-y", *data(eviction_hard="memory.available=217Mi", only="w1", drain="always"))
    assert told.code == 0 and "drained before it (1 pod moved), uncordoned" in told.out, told.all
    assert cordon_of(lab, "w1") == FREE and on(lab, "w1") == [] and well(lab, web=1)
    assert configz(lab, "w1")["evictionHard"]["memory.available"] == "217Mi"

    moved_to(lab, "w1", "web")
    back = pyinfra("rollback", "-y", *data(drain="always"))
    assert back.code == 0 and "drained before it (1 pod moved), uncordoned" in back.out, back.all
    assert cordon_of(lab, "w1") == FREE and on(lab, "w1") == [] and well(lab, web=1)
    assert configz(lab, "w1") == before and operator.files(lab, "w1") == files


@pytest.mark.wide
@pytest.mark.slow  # with fewer workers than three, the canary is one, and one is left
def test_two_nodes_at_once(lab: Lab) -> None:
    """After the canary, as max_unavailable says; their pods share a budget that allows one at a time."""
    only_on(lab, "w2", "w3", items=[workload("web", replicas=2), budget("web", maxUnavailable=1)])
    before = {name: item["spec"]["nodeName"] for name, item in pods(lab).items()}
    assert set(before.values()) == {"w2", "w3"}
    begun = time.time()
    told = change(108, on="w1,w2,w3", drain="always", max_unavailable="2").ended(0)
    assert "w2, w3 are drained at the same time (max_unavailable): they wait for each other's replacements by t-drain/web" in told.out
    lines = [line.strip() for line in told.out.splitlines()]
    moments = {word: next(number for number, line in enumerate(lines) if line.startswith(word)) for word in (
        "w1 kubelet: uncordoned", "w2 kubelet: draining", "w3 kubelet: draining", "w2 kubelet: uncordoned", "w3 kubelet: uncordoned"
    )}  # fmt: skip
    assert moments["w1 kubelet: uncordoned"] < min(moments["w2 kubelet: draining"], moments["w3 kubelet: draining"])
    assert max(moments["w2 kubelet: draining"], moments["w3 kubelet: draining"]) < min(
        moments["w2 kubelet: uncordoned"], moments["w3 kubelet: uncordoned"]
    ), told.out
    assert [max_pods(lab, node) for node in ("w1", "w2", "w3")] == [108] * 3
    assert [cordon_of(lab, node) for node in ("w1", "w2", "w3")] == [FREE] * 3
    assert not set(before) & set(pods(lab)), "each pod has left its node"
    noted = [one for one in events(told.out) if one["event"] == "drain" and one.get("what") == "evict"]
    assert len(noted) >= 2
    print(f"{time.time() - begun:.0f} s: {[one['object'] for one in noted]}")
    back = pyinfra("rollback", "-y", *data(max_unavailable="2"))
    assert back.code == 0 and max_pods(lab, "w3") == 110, back.all
