"""Whom a roll-back believes: a record is a statement of its host, and root on a worker can write any record there."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyinfra.api.exceptions import DeployError

from roles import history
from roles.engine.bridge import Fleet
from roles.engine.inputs import registry
from roles.engine.object_runs import open_session
from roles.engine.transaction import Effective, ObjectsRecord
from roles.engine.transaction.object_record import parse
from roles.engine.transaction.record import CLUSTER_KIND, cluster_record, plan_record
from roles.history import Recorded, RollbackOptions, Speaker, changes_to_undo, newest, objects, of_cluster
from roles.history.facts import HistoryError
from roles.history.facts import parse as parse_answer
from tests.unit.history.world import OBJECTS_LINES, OBJECTS_RUN, Nodes, answer, change, kept, numbered, recorded, undone
from tests.unit.hosts import INFO

GENUINE = plan_record(INFO, 1, change(), Effective())
OF_MAP = cluster_record(
    INFO, 2, f"{INFO.id}-cluster-x", "w1", "kubeadm-config", "", [{"path": ["kube-apiserver", "extraArgs", "authorization-mode"],
    "before": ["AlwaysAllow"], "after": ["Node,RBAC"]}],
)  # fmt: skip


def said(host: str, *lines: dict[str, Any], name: str = "", speaker: Speaker = Speaker.node) -> Recorded:
    """What root on a host writes into one record there."""
    (found,) = parse_answer(host, answer((name or lines[0]["change"], "state=confirmed\n", "", list(lines)), number="2"), speaker)
    return found


PLANTED = {
    "a run on objects": (said("w1", *OBJECTS_LINES), "it speaks of the cluster's objects"),
    "the lines of objects alone": (said("w1", *OBJECTS_LINES[1:], name="x"), "it speaks of the cluster's objects"),
    "objects behind a genuine plan": (said("w1", GENUINE, *OBJECTS_LINES), "it speaks of the cluster's objects"),
    "a ConfigMap of kubeadm": (said("w1", OF_MAP), "it speaks of the cluster's objects"),
    "another node": (said("w1", {**GENUINE, "node": "cp1"}), "it speaks of cp1, and a node's record may speak of that node only"),
    "another node's change": (said("w1", {**GENUINE, "change": "x"}, name="x"), "it is the record of x, and not of"),
    "a change under another name": (said("w1", GENUINE, name=f"{INFO.id}-cp1-kubelet"), "and not of"),
    "another plan behind its own": (said("w1", GENUINE, {**GENUINE, "node": "cp1"}), "it speaks of cp1"),
}


@pytest.mark.parametrize("case", PLANTED)
def test_a_worker_speaks_of_its_own_changes_only(case: str) -> None:
    found, why = PLANTED[case]
    assert found.problem is not None and found.problem.startswith("NOT BELIEVED") and why in found.problem
    assert not found.events and not found.plan and not found.of_cluster and not found.run, "nothing of it is left to be used"
    told = {"cp1": [], "w1": [recorded(), found]}
    assert newest(told) == (INFO.id,) and [one.id for one in changes_to_undo(told, (INFO.id, OBJECTS_RUN))] == [recorded().id]
    assert of_cluster([found]) == {}
    for name in (INFO.id, OBJECTS_RUN):
        assert objects.to_undo(cast(Fleet, None), RollbackOptions(run=name), name, told) is None


def test_the_genuine_change_beside_a_planted_record_is_undone(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = Nodes({"cp1": [], "w1": [recorded(), PLANTED["a run on objects"][0]]}, run=INFO.id)
    assert [one.component for one in undone(nodes).chosen] == ["kubelet"]


def test_only_the_host_of_the_lock_speaks_of_the_cluster_and_only_if_it_is_a_control_plane_node() -> None:
    def host(name: str, control_plane: bool) -> Any:
        return SimpleNamespace(name=name, is_control_plane=control_plane)

    w1, cp1, cp2 = host("w1", False), host("cp1", True), host("cp2", True)
    fleet = Fleet([w1], [cp1, cp2], [], [w1, cp1, cp2])
    assert [history.speaker(fleet, one) for one in (w1, cp1, cp2)] == [Speaker.node, Speaker.keeper, Speaker.node]
    alone = Fleet([w1], [], [], [w1])
    assert history.speaker(alone, w1) is Speaker.node, "it has the lock, for want of a control-plane node"
    found: Any = SimpleNamespace(cluster=SimpleNamespace(apiservers=1, own_scheduler_configurations=dict))
    assert open_session(alone, found, None).recorded("r1") == (), "and it is not asked for the record of a surge"
    assert said("cp1", *OBJECTS_LINES, speaker=Speaker.keeper).of_objects
    assert said("cp1", OF_MAP, speaker=Speaker.keeper).plan["kind"] == CLUSTER_KIND


def test_a_worker_chooses_no_record_of_the_operators_own(own: Any) -> None:
    """It names an old run on objects as its own newest one."""
    begin = {"event": "begin", **{key: OBJECTS_LINES[0][key] for key in ("kind", "component", "about")}}
    kept(own, {"event": "run", "format": 1}, begin, *OBJECTS_LINES[1:])
    told = {"cp1": [], "w1": [recorded(change(run=OBJECTS_RUN))]}
    assert newest(told) == (OBJECTS_RUN,)
    assert objects.to_undo(cast(Fleet, None), RollbackOptions(), OBJECTS_RUN, told) is None
    with pytest.raises(DeployError, match="nobody's"):
        objects.to_undo(cast(Fleet, None), RollbackOptions(run=OBJECTS_RUN), OBJECTS_RUN, told)


def test_a_node_says_nothing_about_the_undo_or_the_order_of_others() -> None:
    genuine = recorded(change(host="w2"))
    undoes = recorded(change(run="r20260109-000000-ffff"), undoes=genuine.id)
    assert newest({"w1": [undoes], "w2": [genuine]}) == (INFO.id,), "w1 does not say that w2's change is undone"
    runs = [f"r2026010{day}-000000-aaaa" for day in (1, 2)]
    old, new = (change(name, "w2", run) for name, run in zip(("kubelet", "kube-apiserver"), runs, strict=True))
    told = [numbered(1, recorded(old), run=1), numbered(2, recorded(new), run=2)]
    lie = numbered(9, recorded(change(run=runs[0])), run=10**9)
    assert newest({"w2": told}) == (runs[1], runs[0])
    assert newest({"w1": [lie], "w2": told})[0] == runs[1], "two numbers of one run are none"
    other = replace(told[0], plan={**told[0].plan, "data": "e" * 64})
    assert newest({"w1": [lie], "w2": [other, told[1]]}) == (runs[1],), "w1 alone says that the older run was the same"


@pytest.mark.parametrize("field", ["order", "format"])
@pytest.mark.parametrize("number", [-1, 10**12, "1e9", None])
def test_numbers_that_no_record_has(field: str, number: object) -> None:
    with pytest.raises(HistoryError, match="w1: the record of its changes cannot be read"):
        said("w1", {**GENUINE, field: number})


# ---- what an undo may write


def recording(capability: str, path: str, field: list[str], before: Any, about: dict[str, Any] | None = None, **more: Any) -> list[str]:
    record = parse(OBJECTS_RUN, [
        {"kind": "objects", "component": capability, "about": about or {}},
        {"event": "plan", "object": "Thing x", "what": "update", "path": path, "fields": [{"path": field, "before": before, "after": None}],
         **more},
    ])  # fmt: skip
    undo = registry.undo_of(capability)
    assert record is not None and undo is not None
    return undo.refusals(cast(ObjectsRecord, record))


NODE, APPS, RBAC = "/api/v1/nodes/w1", "/apis/apps/v1/namespaces/a", "/apis/rbac.authorization.k8s.io/v1"
BINDING = f"{RBAC}/clusterrolebindings/system:metrics-server"
TO = {"kind": "ClusterRoleBinding", "object_name": "system:metrics-server", "version": "rbac.authorization.k8s.io/v1"}
OWN_ROLE = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:metrics-server"}
LAST = ["metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"]
RESTART = ["spec", "template", "metadata", "annotations", "kubectl.kubernetes.io/restartedAt"]
ROOM = ["spec", "containers", "x", "resources"]
FINE: list[tuple[Any, ...]] = [
    ("node_labels", NODE, ["metadata", "labels", "rack"], "a1"),
    ("node_labels", NODE, ["spec", "taints", "dedicated", "NoSchedule"], "gpu"),
    ("drain", NODE, ["spec", "unschedulable"], None),
    ("drain", "/api/v1/namespaces/a/pods/x", ["evict", "a/x"], "uid"),
    ("uncordon", NODE, ["metadata", "annotations", "daytwo.dev/cordoned-by"], OBJECTS_RUN),
    ("reboot", NODE, ["metadata", "annotations", "daytwo.dev/reboot"], None, {"cannot_undo": True}),
    ("consolidate", NODE, ["spec", "unschedulable"], None),
    *(
        (deploy, NODE, ["metadata", "annotations", "daytwo.dev/outage"], None)
        for deploy in ("consolidate", "drain", "uncordon", "reboot", "power")
    ),
    ("disruption_budgets", "/apis/policy/v1/namespaces/a/poddisruptionbudgets/x", ["spec", "minAvailable"], 1, {"proof_timeout": 30}),
    ("autoscalers", "/apis/autoscaling/v2/namespaces/a/horizontalpodautoscalers/x", ["spec", "maxReplicas"], 3, {"proof_timeout": None}),
    ("autoscalers", f"{APPS}/deployments/x", LAST, '{"spec": {"replicas": 3}}'),
    ("priority_classes", "/apis/scheduling.k8s.io/v1/priorityclasses/x", ["value"], 5, {"rollout_timeout": 600}),
    ("priority_classes", f"{APPS}/daemonsets/x", ["spec", "template", "spec", "priorityClassName"], "x"),
    ("restart", f"{APPS}/deployments/x", RESTART, "2026-01-31T10:00:00+01:00", {"rollout_timeout": 60}),
    ("resize", "/api/v1/namespaces/a/pods/x", ROOM, {"requests": {"cpu": "1"}}),
    ("right_size", f"{APPS}/statefulsets/x", ["autoscalers", "x", "metrics"], []),
    ("metrics_server", BINDING, ["manifest"], {"roleRef": OWN_ROLE}, None, TO),
]  # fmt: skip
FORGED: dict[str, tuple[Any, ...]] = {
    "another path": ("node_labels", BINDING, ["metadata", "labels", "rack"], "a1"),
    "a path with dots": ("drain", "/api/v1/nodes/..", ["spec", "unschedulable"], None),
    "a subresource": ("uncordon", f"{NODE}/status", ["spec", "unschedulable"], None),
    "an encoded path": ("reboot", "/api/v1/nodes/x%2f..", ["metadata", "annotations", "daytwo.dev/reboot"], None),
    "another field of a node": ("node_labels", NODE, ["spec", "podCIDR"], "0.0.0.0/0"),
    "a label of the kubelet's": ("node_labels", NODE, ["metadata", "labels", "kubernetes.io/hostname"], "cp1"),
    "a taint of a controller's": ("node_labels", NODE, ["spec", "taints", "node.kubernetes.io/not-ready", "NoExecute"], ""),
    "another annotation": ("uncordon", NODE, ["metadata", "annotations", "x"], "y"),
    "a label in a reboot": ("reboot", NODE, ["metadata", "labels", "x"], "y"),
    "the status of a budget": ("disruption_budgets", "/apis/policy/v1/namespaces/a/poddisruptionbudgets/x", ["status", "x"], 1),
    "a time without an end": ("disruption_budgets", "/apis/policy/v1/namespaces/a/poddisruptionbudgets/x", ["spec", "selector"], {},
                              {"proof_timeout": 10**9}),
    "a time that is none": ("priority_classes", "/apis/scheduling.k8s.io/v1/priorityclasses/x", ["value"], 5, {"rollout_timeout": -1}),
    "a time that is text": ("metrics_server", BINDING, ["manifest"], None, {"proof_timeout": "x"}, TO),
    "the template of a Deployment": ("autoscalers", f"{APPS}/deployments/x", ["spec", "template"], {}),
    "another manifest": ("autoscalers", f"{APPS}/deployments/x", LAST, '{"spec": {"replicas": 3, "template": {}}}'),
    "an image": ("priority_classes", f"{APPS}/daemonsets/x", ["spec", "template", "spec", "containers"], []),
    "no time of a restart": ("restart", f"{APPS}/deployments/x", RESTART, "{{ x }}"),
    "another annotation of pods": ("restart", f"{APPS}/deployments/x", [*RESTART[:-1], "x"], "2026-01-31T10:00:00Z"),
    "a claim": ("resize", "/api/v1/namespaces/a/pods/x", ROOM, {"claims": [{"name": "gpu"}]}),
    "a device": ("resize", "/api/v1/namespaces/a/pods/x", ROOM, {"limits": {"nvidia.com/gpu": "1"}}),
    "a ServiceAccount": ("right_size", f"{APPS}/statefulsets/x", ["spec", "template", "spec", "serviceAccountName"], "x"),
    "another binding": ("metrics_server", f"{RBAC}/clusterrolebindings/nothing-to-see", ["manifest"], {"roleRef": OWN_ROLE}, None, TO),
    "another role": ("metrics_server", BINDING, ["manifest"], {"roleRef": {**OWN_ROLE, "name": "cluster-admin"}}, None, TO),
    "another subject": ("metrics_server", BINDING, ["manifest"], {"subjects": [{"kind": "User", "name": "system:node:w1"}]}, None, TO),
    "the name of another object": ("metrics_server", BINDING, ["manifest"], {}, None, {**TO, "object_name": "nothing-to-see"}),
}  # fmt: skip


@pytest.mark.parametrize("record", FINE)
def test_an_undo_may_write_what_its_deploy_writes(record: tuple[Any, ...]) -> None:
    capability, path, field, before, about, more = (*record, None, None)[:6] if len(record) < 6 else record
    after = '{"spec": {"replicas": 3}}' if field is LAST else None
    fields = [{"path": field, "before": before, "after": after}]
    assert recording(capability, path, field, before, about, **{**(more or {}), "fields": fields}) == []


@pytest.mark.parametrize("case", FORGED)
def test_an_undo_writes_nothing_else(case: str) -> None:
    capability, path, field, before, about, more = (*FORGED[case], None, None)[:6] if len(FORGED[case]) < 6 else FORGED[case]
    fields = [{"path": field, "before": before, "after": '{"spec": {}}' if field is LAST else None}]
    assert recording(capability, path, field, before, about, **{**(more or {}), "fields": fields})


def test_every_capability_with_an_undo_says_what_it_may_write() -> None:
    undos = {one.deploys[0]: one.undo for one in registry.every_model() if one.undo is not None}
    assert {capability for capability, *_ in FINE} == undos.keys(), "a new capability has a row here"
    assert all(undo.writes and all(writable.fields for writable in undo.writes) for undo in undos.values())
