"""Changes of kubelets on drained nodes, on a real cluster: drained in turn, proven, uncordoned; interrupted, killed, resumed, undone."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from roles.engine.draining import CORDONED_BY
from roles.engine.transaction import script
from tests.integration import operator
from tests.integration.operator import GATE, Outcome, Started, data, pyinfra, wait_for
from tests.integration.test_drain import (
    KINDS,
    NAMESPACE,
    apply,
    bare,
    budget,
    cordon_of,
    forget_lock,
    on,
    only_on,
    pods,
    run_of,
    settled,
    workload,
)
from tests.lab import Lab

pytestmark = pytest.mark.lab

LABEL = "daytwo.test/here"
FREE = (False, "")


def change(pods: int, *, on: str = "w1", **values: str) -> Outcome:
    return pyinfra("kubelet_config", "-y", *data(kubelet_config=f"maxPods={pods}", only=on, **values))


def max_pods(lab: Lab, node: str) -> int:
    """0 while the kubelet does not answer."""
    found = lab.kubectl("get", "--raw", f"/api/v1/nodes/{node}/proxy/configz", check=False)
    return int(json.loads(found)["kubeletconfig"]["maxPods"]) if found else 0


def events(text: str) -> list[dict[str, object]]:
    found = re.search(r"Record of the run: (\S+)", text)
    assert found, text
    return [json.loads(line) for line in Path(found[1]).read_text().splitlines()]


@pytest.fixture(scope="module", autouse=True)
def namespace(lab: Lab) -> Iterator[None]:
    lab.kubectl("create", "namespace", NAMESPACE)
    yield
    lab.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
    operator.forget(lab)


@pytest.fixture(autouse=True)
def as_found(lab: Lab) -> Iterator[None]:
    yield
    if Started.end_all():
        forget_lock(lab)
    lab.kubectl("uncordon", *lab.nodes)
    lab.kubectl("annotate", "nodes", "--all", f"{CORDONED_BY}-")
    lab.kubectl("label", "nodes", "--all", f"{LABEL}-")
    lab.kubectl("delete", KINDS, "--all", "-n", NAMESPACE, "--now", "--wait")


def test_two_nodes_are_drained_in_turn_proven_and_uncordoned(lab: Lab) -> None:
    apply(lab, workload("web", replicas=2), budget("web", maxUnavailable=1))
    settled(lab)
    before = {item["metadata"]["uid"] for item in pods(lab).values()}
    told = change(108, on="w1,w2", drain="always")
    assert told.code == 0, told.all
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
    # What needs no drain gets none: neither a run with nothing to do, nor the undo.
    again = change(108, on="w1,w2", drain="always")
    assert again.code == 0 and "0 changes on 0 nodes" in again.out and "drain" not in again.plan, again.all
    back = pyinfra("rollback", "-y")
    assert back.code == 0 and "drained" not in back.out and max_pods(lab, "w1") == 110, back.all


def test_pods_that_a_restart_would_lose_are_drained_before_it(lab: Lab) -> None:
    lab.kubectl("label", "nodes", "w1", "w2", f"{LABEL}=yes")
    only_on(lab, "w1", items=[workload("picky", nodeSelector={LABEL: "yes"}), budget("picky", maxUnavailable=1)])
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
    assert operator.files(lab, "w1") == files and cordon_of(lab, "w1") == FREE
    told = pyinfra("feature_gates", "-y", *wish, "--data", "allow_unmanaged=true")
    assert told.code == 0 and "NodeAffinity" in told.out and "so the node is drained first" in told.out, told.all
    assert cordon_of(lab, "w1") == FREE and on(lab, "w1") == [] and len(on(lab, "w2")) == 1
    assert pyinfra("rollback", "-y").code == 0


def test_a_reverted_change_uncordons(lab: Lab) -> None:
    run = Started("kubelet_config", "-y", *data(kubelet_config="maxPods=107", only="w1", drain="always", soak="600"))
    run.wait_for("soaking for")
    assert cordon_of(lab, "w1")[0]
    run.send(signal.SIGINT)
    told = run.end()
    assert told.code != 0 and "w1 kubelet: uncordoned" in told.all and "STILL CORDONED" not in told.all, told.all
    assert cordon_of(lab, "w1") == FREE and max_pods(lab, "w1") == 110


def test_a_killed_run_is_resumed_or_undone(lab: Lab) -> None:
    def killed() -> str:
        """A run whose operator dies while the canary soaks, drained and changed; its node reverts."""
        wish = data(kubelet_config="maxPods=106", only="w1", drain="always", soak="3", confirm_timeout="45")
        run = Started("kubelet_config", "-y", *wish)
        run.wait_for("soaking for")
        run.send(signal.SIGKILL)
        run.end()
        return run_of(run.out)

    first = killed()
    assert cordon_of(lab, "w1") == (True, f"{first} (change)")
    # It ends as the record says: reverted by the node itself, and cordoned.
    wait_for(lambda: max_pods(lab, "w1") == 110, "the node to revert")
    ended = f"w1: cordoned by run {first} for its change, which has ended on this node"
    wait_for(lambda: ended in " ".join(pyinfra("status", "-y").out.split()), "its end")
    undone = pyinfra("rollback", "-y", *data(run=first, take_over=first))
    assert undone.code == 0 and "this run uncordons it" in undone.out, undone.all
    assert cordon_of(lab, "w1") == FREE and max_pods(lab, "w1") == 110
    nothing = pyinfra("rollback", "-y", *data(run=first))
    assert nothing.code == 1 and "no confirmed change" in nothing.all

    second = killed()
    lab.run("w1", f'sh "{script(f"{second}-w1-kubelet")}" revert')
    wait_for(lambda: max_pods(lab, "w1") == 110, "the node to revert")
    resumed = change(106, drain="always", take_over=second)
    assert resumed.code == 0 and f"cordoned already by run {second}" in resumed.out, resumed.all
    assert cordon_of(lab, "w1") == FREE and max_pods(lab, "w1") == 106
    back = pyinfra("rollback", "-y")
    assert back.code == 0 and max_pods(lab, "w1") == 110, back.all
