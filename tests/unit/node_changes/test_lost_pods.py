"""The re-admission forecast in the plan of every change that restarts a kubelet."""

from __future__ import annotations

from typing import Any

from roles.engine.api import NoApi
from roles.engine.kubelet import KubeletState, find, kubelet_plan
from roles.engine.node_changes import KUBELET, ComponentPlan, NodePlan, lost_pods
from roles.engine.proof import Cluster
from tests.unit.node import node
from tests.unit.node.node import parse as parse_look

AMOUNTS = {"cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "100Gi"}
Plan = NodePlan[ComponentPlan]


def pod(name: str, born: int, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "default", "name": name, "uid": name, "creationTimestamp": f"2026-01-01T00:00:{born:02d}Z"},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]} | spec,
        "status": {"phase": "Running", "qosClass": "Burstable"},
    }


class Api(Cluster):
    """One node with two pods; or an API that does not answer. `read`: what was read."""

    def __init__(self, running: dict[str, Any] | None, **labels: str) -> None:
        super().__init__()
        self.running, self.labels, self.read = running, labels, list[str]()
        self.amounts: dict[str, str] = AMOUNTS

    def configuration(self, node_name: str) -> dict[str, Any]:
        self.read.append("configuration")
        if self.running is None:
            raise NoApi("gone")
        return {"staticPodPath": "/etc/kubernetes/manifests", **self.running}

    def node_with_pods(self, node_name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        self.read.append("pods")
        found = {"metadata": {"name": node_name, "labels": self.labels}, "status": {"capacity": self.amounts, "allocatable": self.amounts}}
        return found, [pod("a", 1), pod("b", 2, nodeSelector={"disk": "ssd"} if self.labels else {})]


def plan(
    files: bytes = b"", *, component: str = KUBELET, settings: dict[str, Any] | None = None, gates: dict[str, bool] | None = None
) -> Plan:
    found = find(parse_look("n1", node.answer(files={"/var/lib/kubelet/config.yaml": node.CONFIG + files})))
    change = kubelet_plan.KubeletEdit(found, {"/etc/default/kubelet": b"x\n"}).change("r1", "a change")
    planned = ComponentPlan(component, change, settings=settings or {}, gates=gates or {})
    return NodePlan("n1", found, {}, (planned,), outlook="    before")


def test_all_pods_stay() -> None:
    made = lost_pods.with_forecast(Api({"maxPods": 110}), plan(), None)
    assert made.refusals == () and made.outlook == "    before\n    After the restart the kubelet takes all its pods back"


def test_a_pod_that_is_lost_refuses_the_plan_and_names_the_way_out() -> None:
    (why,) = lost_pods.with_forecast(Api({"maxPods": 110}), plan(settings={"maxPods": 1}), None).refusals
    assert str(why) == (
        "n1: a restart of its kubelet would not admit these pods again: default/b (OutOfpods: pods: 1 requested, 0 left);"
        " drain the node first: --data drain=auto, or pyinfra INVENTORY deploys/drain.py --data nodes=n1"
    )
    (why,) = lost_pods.with_forecast(Api({"maxPods": 110}), plan(settings={"maxPods": 1}), False).refusals
    assert str(why).endswith(", or accept the loss with --data allow_evictions=true")


def test_with_consent_it_is_announced_and_may_be_lost() -> None:
    made = lost_pods.with_forecast(Api({"maxPods": 110}), plan(settings={"maxPods": 1}), True)
    assert made.refusals == () and made.planned[0].may_be_evicted == {"default/b"}
    assert made.outlook.splitlines()[1:] == ["    LOSES: default/b (OutOfpods: pods: 1 requested, 0 left)"]


def test_what_the_files_hold_already_counts_too() -> None:
    made = lost_pods.with_forecast(Api({"maxPods": 110}), plan(b"maxPods: 1\n", gates={"A": True}), None)
    assert "default/b (OutOfpods" in str(made.refusals[0])


def test_labels_that_were_changed_since_count() -> None:
    made = lost_pods.with_forecast(Api({"maxPods": 110}, disk="hdd"), plan(), None)
    assert "default/b (NodeAffinity: nodeSelector disk=ssd does not match)" in str(made.refusals[0])


def test_without_an_answer_the_forecast_is_said_to_be_missing() -> None:
    made = lost_pods.with_forecast(Api(None), plan(), None)
    assert made.warnings == ("it is not known which pods a restart of its kubelet would lose: gone",) and made.refusals == ()
    new = Api({"maxPods": 110})
    new.amounts = {}
    assert "its Node object has no capacity of cpu, memory, pods" in lost_pods.with_forecast(new, plan(), None).warnings[0]


def test_only_what_restarts_a_kubelet_is_read_and_once() -> None:
    api = Api({"maxPods": 110})
    assert lost_pods.with_forecast(api, plan(component="kube-apiserver"), None) == plan(component="kube-apiserver")
    still = NodePlan("n1", plan().kubelet, {}, (ComponentPlan(KUBELET, None),))
    assert lost_pods.with_forecast(api, still, None) is still and api.read == []
    made = lost_pods.with_forecast(api, plan(), None)
    assert api.read == ["configuration", "pods"]
    assert isinstance(made.planned[0].state, KubeletState)
    assert lost_pods.with_forecast(api, made, None).refusals == () and api.read == ["configuration", "pods"]


def test_the_forecast_is_repeated_when_the_nodes_turn_comes() -> None:
    made = lost_pods.with_forecast(Api({"maxPods": 110}), plan(), None)
    assert lost_pods.recheck(Api({"maxPods": 110}), made, made.planned[0], None) is None
    later = Api({"maxPods": 110}, disk="hdd")
    assert "default/b (NodeAffinity" in (lost_pods.recheck(later, made, made.planned[0], None) or "")
    assert lost_pods.recheck(later, made, made.planned[0], True) is None
    again = lost_pods.recheck(later, made, made.planned[0], None, may_drain=True)
    assert "run this again: then the node is drained first" in (again or "")


def test_a_node_is_drained_instead_of_refused_if_that_helps() -> None:
    made = lost_pods.with_forecast(Api({"maxPods": 110}), plan(settings={"maxPods": 1}), None, may_drain=True)
    assert made.refusals == () and made.planned[0].may_be_evicted == frozenset()
    assert made.planned[0].needs_drain == (
        "a restart of its kubelet would not admit these pods again: default/b (OutOfpods: pods: 1 requested, 0 left)",
    )
    assert made.outlook.endswith("default/b (OutOfpods: pods: 1 requested, 0 left): so the node is drained first")
    assert made.planned[0].instead == "", "this deploy has no such consent"
    made = lost_pods.with_forecast(Api({"maxPods": 110}), plan(settings={"maxPods": 1}), False, may_drain=True)
    assert made.planned[0].needs_drain and made.planned[0].instead == "accept the loss with --data allow_evictions=true"
    # Nothing is drained for nothing, and not if the loss is accepted.
    assert lost_pods.with_forecast(Api({"maxPods": 110}), plan(), None, may_drain=True).planned[0].needs_drain == ()
    consented = lost_pods.with_forecast(Api({"maxPods": 110}), plan(settings={"maxPods": 1}), True, may_drain=True)
    assert consented.planned[0].needs_drain == () and consented.planned[0].may_be_evicted == {"default/b"}


def test_pods_that_a_drain_leaves_still_refuse() -> None:
    class Daemons(Api):
        def node_with_pods(self, node_name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
            found, (first, second) = super().node_with_pods(node_name)
            for one in (first, second):
                one["metadata"]["ownerReferences"] = [
                    {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "logs", "uid": "u", "controller": True}
                ]
            return found, [first, second]

    (why,) = lost_pods.with_forecast(Daemons({"maxPods": 110}), plan(settings={"maxPods": 1}), False, may_drain=True).refusals
    assert "default/b (OutOfpods" in str(why) and "a drain does not help" in str(why) and "allow_evictions=true" in str(why)
