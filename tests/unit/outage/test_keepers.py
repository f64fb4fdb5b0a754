"""Who will change what refuses an eviction: what a controller changes, removes or refills is waited for; what only people change is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from roles.engine.disruption import budget_states, lint
from roles.engine.disruption.keepers import Keeps
from roles.engine.kube.field_managers import PEOPLE, is_people
from roles.engine.objects import NotDone
from roles.engine.outage import DrainConsents, NodeOutage, Purpose, evicting, plan_text
from roles.engine.outage.drainer import EVICT
from roles.engine.placement.taints import PASSING, removed_by
from tests.context import context
from tests.unit.clock import Clock
from tests.unit.disruption.world import NOW, budget, deployment, of_status, pod, workload, world
from tests.unit.outage.api import ClusterApi, Write
from tests.unit.outage.driven import Drain
from tests.unit.outage.world import NODES, node, plan, spread, waves

DOCS = Path(__file__).parents[3] / "docs/disruption.md"
CEPH = {"apiVersion": "ceph.rook.io/v1", "kind": "CephCluster", "name": "main", "uid": "u", "controller": True}
BLOCKED = of_status(1, 1, 1, 0)
ENGINE = workload("InstanceManager", "engine", apiVersion="longhorn.io/v1beta2")
ROLLOUT = workload("Rollout", "web", apiVersion="argoproj.io/v1alpha1")


def managed(manager: str, *, field: str = "f:maxUnavailable", operation: str = "Update", **more: Any) -> list[dict[str, Any]]:
    return [{"manager": manager, "operation": operation, "fieldsV1": {"f:spec": {field: {}}}, **more}]


def blocking(**metadata: Any) -> dict[str, Any]:
    """A budget that allows none, whatever its pods are."""
    found = budget(maxUnavailable=0, status=BLOCKED)
    found["metadata"] |= metadata
    return found


def without_end(pods: list[dict[str, Any]], one: dict[str, Any]) -> str:
    """How the plan refuses a drain of these pods; "" if it waits, and says for whom."""
    found = plan(*pods, one)
    if not found.refusals:
        assert all(fate.blocked_now and fate.kept for fate in found.pods if fate.budgets), found
        assert "NOT NOW, the run waits" in plan_text(found)
    return "; ".join(found.refusals)


KEPT: tuple[tuple[str, Callable[[], tuple[list[dict[str, Any]], dict[str, Any]]], str], ...] = (
    ("an owner of a kind that Kubernetes does not have", lambda: (deployment(1, 1), blocking(ownerReferences=[CEPH])), "CephCluster shop/main owns it"),
    (
        "an owner that is no controller",
        lambda: (deployment(1, 1), blocking(ownerReferences=[{**CEPH, "controller": False}])), "kubectl describe cephcluster.ceph.rook.io main -n shop",
    ),
    ("a manager of its rule", lambda: (deployment(1, 1), blocking(managedFields=managed("longhorn-manager"))), "longhorn-manager writes its spec"),
    (
        "a manager that applies it",
        lambda: (deployment(1, 1), blocking(managedFields=managed("virt-controller", operation="Apply"))), "virt-controller",
    ),
    (
        "a manager of its spec, without its fields",
        lambda: (deployment(1, 1), blocking(managedFields=[{"manager": "rook", "operation": "Update", "fieldsV1": {"f:spec": {}}}])), "rook writes",
    ),
    (
        "people created it, a controller fills it",
        lambda: (deployment(1, 1), blocking(managedFields=[*managed("kubectl-create", field="f:selector"), *managed("some-operator")])), "some-operator",
    ),
    ("pods of an unknown kind", lambda: ([pod("engine-0", ENGINE)], budget(minAvailable=1, status=BLOCKED)), "InstanceManager shop/engine creates its pods"),
    (
        "pods of a ReplicaSet of an unknown kind",
        lambda: ([inner := workload("ReplicaSet", "web-1", 1, ROLLOUT), pod("web-1-0", inner)], budget(minAvailable=1, status=BLOCKED)),
        "Rollout shop/web creates its pods",
    ),
    (
        "a number of replicas that an operator sets",
        lambda: (scaled_by("keda-operator"), budget(minAvailable=1, status=BLOCKED)), "keda-operator decides how many of its pods there are",
    ),
    (
        "a Deployment of an operator",
        lambda: (owned(deployment(1, 1), CEPH), budget(minAvailable=1, status=BLOCKED)), "CephCluster shop/main decides how many",
    ),
    (
        "a Job, whose pod ends by itself",
        lambda: ([job := workload("Job", "import"), pod("import-1", job)], blocking()), "ends by itself",
    ),
)  # fmt: skip


def scaled_by(manager: str) -> list[dict[str, Any]]:
    top, *rest = deployment(1, 1)
    top["metadata"]["managedFields"] = managed(manager, field="f:replicas", subresource="scale")
    return [top, *rest]


def owned(items: list[dict[str, Any]], owner: Mapping[str, Any]) -> list[dict[str, Any]]:
    items[0]["metadata"]["ownerReferences"] = [dict(owner)]
    return items


@pytest.mark.parametrize(("made", "keeper"), [(made, keeper) for _, made, keeper in KEPT], ids=[name for name, *_ in KEPT])
def test_what_a_controller_keeps_is_waited_for(made: Callable[[], tuple[list[dict[str, Any]], dict[str, Any]]], keeper: str) -> None:
    pods, one = made()
    assert without_end(pods, one) == ""
    assert any(keeper in fate.blocked_now for fate in plan(*pods, one).pods)


PEOPLES = (
    {},
    {"managedFields": managed("kubectl-client-side-apply")},
    {"managedFields": managed("kubectl-edit")},
    {"managedFields": managed("helm")},
    {"managedFields": managed("argocd-controller", operation="Apply")},
    {"managedFields": managed("kustomize-controller", operation="Apply")},
    {"managedFields": managed("Terraform")},
    {"managedFields": managed("OpenAPI-Generator")},
    {"managedFields": managed("daytwo", operation="Apply")},
    # The rule is theirs; a controller has only labelled it, or set its selector.
    {"managedFields": [*managed("kubectl-edit"), *managed("some-operator", field="f:selector")]},
    {"managedFields": [*managed("kubectl-edit"), {"manager": "some-operator", "operation": "Update", "fieldsV1": {"f:metadata": {}}}]},
    # Its status is the disruption controller's, and says nothing about its spec.
    {
        "managedFields": [
            {"manager": "kube-controller-manager", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {}}}
        ]
    },
    # So that it is deleted with it: no controller of Kubernetes changes a budget.
    {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "uid-Deployment-web"}]},
)


@pytest.mark.parametrize("metadata", PEOPLES)
def test_what_people_wrote_is_refused_before_the_cordon_with_what_passing_it_costs(metadata: dict[str, Any]) -> None:
    why = without_end(deployment(1, 1), blocking(**metadata))
    assert "no eviction of it can ever succeed" in why and "change the budget" in why
    assert re.search(r"give up what it protects: .*ignore_budgets=shop/web.* needs 1 healthy pods and has 1", why)


@pytest.mark.parametrize("manager", ["kubectl-scale", "argocd-controller", "kube-controller-manager", "daytwo"])
def test_a_number_that_people_set_is_theirs(manager: str) -> None:
    assert "no eviction of it can ever succeed" in without_end(scaled_by(manager), budget(minAvailable=1, status=BLOCKED))


@pytest.mark.parametrize(
    "name", ["rook", "longhorn-manager", "virt-controller", "manager", "main", "Go-http-client", "strimzi-cluster-operator", "operator"]
)
def test_a_name_that_is_no_tool_of_people_is_a_controller(name: str) -> None:
    assert not is_people(name)


def test_two_budgets_of_which_a_controller_removes_one_are_waited_for() -> None:
    second = budget("osd", maxUnavailable=0, status=BLOCKED)
    second["metadata"]["ownerReferences"] = [CEPH]
    found = plan(*deployment(1, 1), budget(maxUnavailable=1, status=BLOCKED), second)
    assert not found.refusals and "shop/osd: CephCluster shop/main owns it" in found.pods[0].kept
    assert "keep one of" not in "".join(
        problem.way_out for problem in audit(*deployment(1, 1), budget(maxUnavailable=1), second) if problem.severity == "critical"
    )


def test_a_hostile_owner_writes_no_command_and_no_second_line() -> None:
    owner = {**CEPH, "kind": "Ceph\nCluster", "name": "main; rm -rf / \x1b[2J" + "x" * 9000}
    (one,) = plan(*deployment(1, 1), blocking(ownerReferences=[owner])).pods
    assert "'main; rm -rf /" in one.kept and not {"\n", "\x1b"} & set(one.kept) and len(one.kept) < 1000


# ---- the audit


def audit(*items: dict[str, Any]) -> list[Any]:
    live = world(*NODES, *items)
    return [one for one in lint(live, budget_states(live, NOW), NOW) if one.objects[0].startswith("PodDisruptionBudget")]


@pytest.mark.parametrize(("made", "keeper"), [(made, keeper) for _, made, keeper in KEPT[:-1]], ids=[name for name, *_ in KEPT[:-1]])
def test_the_audit_has_a_note_with_the_keeper_and_no_advice(
    made: Callable[[], tuple[list[dict[str, Any]], dict[str, Any]]], keeper: str
) -> None:
    pods, one = made()
    found = audit(*pods, one)
    assert found and {problem.severity for problem in found} == {"note"}
    for problem in found:
        assert keeper in problem.way_out and "never" not in problem.why
        assert not re.search(r"max_unavailable|min_available|remove|replicas|ignore_budgets", problem.way_out), problem.way_out


def test_advice_about_what_people_wrote_says_what_it_costs() -> None:
    (none,) = audit(*deployment(1, 1), blocking())
    assert none.severity == "critical" and "so that nothing limits" in none.way_out
    (all_of_it,) = audit(*deployment(2, 2), budget(minAvailable=2, status=of_status(2, 2, 2, 0)))
    assert "one pod fewer is protected" in all_of_it.way_out
    # maxUnavailable cannot be computed for a pod whose owner has no scale.
    (bare,) = audit(pod("alone"), budget(minAvailable=1, status=BLOCKED))
    assert "min_available to 0" in bare.way_out and "max_unavailable cannot be computed" in bare.way_out


# ---- the run


def storage(*items: Mapping[str, Any]) -> ClusterApi:
    """An engine on w1 whose budget goes 30 s after the pod of a Deployment has left; its manager then creates the engine on w2."""
    one = budget("engine", minAvailable=1, selector={"matchLabels": {"app": "engine"}}, status=BLOCKED)
    api = ClusterApi(node("w1"), node("w2"), *deployment(1, 1), pod("engine-0", ENGINE, app="engine"), one, *items)
    api.refuse = lambda pod: "The disruption budget engine needs 1" if "engine" in pod["metadata"]["name"] and has_budget(api) else ""

    def after(write: Write) -> None:
        if write[1].endswith("web-1-0/eviction"):
            api.add(pod("web-1-1", deployment(1, 1)[1], node="w2"))

    api.after = after
    return api


def has_budget(api: ClusterApi) -> bool:
    return any("poddisruptionbudgets" in path for path in api.there)


def removed(api: ClusterApi) -> None:
    for path in [path for path in api.there if "poddisruptionbudgets" in path]:
        del api.there[path]


def test_the_pod_that_a_controller_lets_go_leaves_after_those_that_it_waits_for(clock: Clock) -> None:
    claim = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "x"}}]}
    user = spread(deployment(1, 1), "w1")
    user[2]["spec"] |= claim
    found = plan(
        *user, pod("engine-0", ENGINE, app="engine"), budget(minAvailable=1, selector={"matchLabels": {"app": "engine"}}, status=BLOCKED)
    )
    assert waves(found)[-1] == ["engine-0"] and len(found.waves) == 2


def test_of_the_pods_that_controllers_let_go_drivers_of_volumes_leave_last() -> None:
    driver, other = pod("engine-0", ENGINE), pod("engine-1", ENGINE)
    driver["spec"]["priorityClassName"] = "system-node-critical"
    assert waves(plan(driver, other, budget(minAvailable=2, status=of_status(2, 2, 2, 0)))) == [["engine-1"], ["engine-0"]]


def test_a_budget_that_is_removed_after_the_cordon_ends_the_wait(clock: Clock) -> None:
    api = storage()
    begun = clock.now
    plain = api.refuse

    def refuse(one: Mapping[str, Any]) -> str:
        if "web-1-0" in api.evicted() and clock.now - begun > 90:
            removed(api)
        return plain(one)

    api.refuse = refuse
    drain = Drain(api, DrainConsents(drain_timeout=600))
    steps = [step for step in drain.steps if step.action == EVICT]
    assert [step.write(context()) for step in steps][-1].startswith("evicted; gone")
    assert api.evicted() == ["web-1-0", "engine-0"] and clock.now - begun < 120


def test_a_budget_that_stays_halts_with_its_keeper() -> None:
    api = storage()
    drain = Drain(api, DrainConsents(drain_timeout=60))
    with pytest.raises(evicting.NotEvicted, match=r"for 60 s: .*InstanceManager shop/engine creates its pods.*kubectl describe"):
        next(step for step in drain.steps if "engine" in step.name).write(context())


def test_a_budget_that_appears_between_two_nodes_is_waited_for(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    first, second = deployment(1, 1), deployment(1, 1, "db")
    second[2]["spec"]["nodeName"] = "w2"
    api = ClusterApi(node("w1"), node("w2"), node("w3"), *first, *second)
    one = budget("osd", maxUnavailable=0, selector={"matchLabels": {"app": "db"}}, status=BLOCKED)
    one["metadata"]["ownerReferences"] = [CEPH]

    def after(write: Write) -> None:
        if write[1].endswith("web-1-0/eviction"):
            api.add(pod("web-1-1", first[1], node="w3"))
            api.add(one)
            until.append(clock.now + 70)
        if write[1].endswith("db-1-0/eviction"):
            api.add(pod("db-1-1", second[1], app="db", node="w3"))

    def refuse(found: Mapping[str, Any]) -> str:
        if until and clock.now > until[0]:
            removed(api)
        return "The disruption budget osd needs 1" if has_budget(api) and "db" in found["metadata"]["name"] else ""

    until: list[float] = []
    api.after, api.refuse = after, refuse
    for name in ("w1", "w2"):
        drain = NodeOutage(api.session, name, DrainConsents(drain_timeout=600), "r1", Purpose("test", "a test"))
        drain.take(context())
        drain.give_back(context())
    assert api.evicted() == ["web-1-0", "db-1-0"]


# ---- taints

TAINT = {"key": "node.cilium.io/agent-not-ready", "effect": "NoSchedule"}


def tainted(*names: str, **taint: str) -> list[dict[str, Any]]:
    found = [node("w1"), *(node(name) for name in names)]
    for one in found[1:]:
        one["spec"]["taints"] = [{**TAINT, **taint}]
    return found


def test_a_taint_that_a_controller_removes_is_waited_for() -> None:
    found = plan(*deployment(1, 1), nodes=tuple(tainted("w2", "w3")))
    (one,) = found.pods
    assert not found.refusals and one.fate == "evicted"
    assert "taint node.cilium.io/agent-not-ready on w2 (removed by the agent of that name, when it serves the node)" in one.blocked_now


@pytest.mark.parametrize("key", ["team", "node.kubernetes.io/unschedulable", "node.kubernetes.io/out-of-service", "dedicated.example/gpu"])
def test_a_taint_that_people_remove_is_refused(key: str) -> None:
    found = plan(*deployment(1, 1), nodes=tuple(tainted("w2", "w3", key=key)))
    assert any("its replacement would run nowhere else" in why for why in found.refusals)


def test_room_that_is_missing_besides_is_refused() -> None:
    full = tainted("w2")
    full[1]["status"]["allocatable"]["pods"] = "0"
    assert any("nowhere else" in why for why in plan(*deployment(1, 1), nodes=tuple(full)).refusals)


def test_a_pod_is_not_evicted_before_its_replacement_has_a_place(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    api = ClusterApi(*tainted("w2"), *deployment(1, 1))
    drain = Drain(api, DrainConsents(drain_timeout=600))
    begun, seen = clock.now, list[float]()

    def after(write: Write) -> None:
        seen.append(clock.now)
        api.add(pod("web-1-1", deployment(1, 1)[1], node="w2"))

    api.after = after
    read = api.get_json

    def get_json(path: str, *args: Any, **more: Any) -> dict[str, Any]:
        if clock.now - begun >= 60:
            api.one("Node", "w2")["spec"].pop("taints", None)
        return read(path, *args, **more)

    monkeypatch.setattr(api, "get_json", get_json)
    assert "evicted" in drain.step(EVICT)
    assert 60 <= seen[0] - begun <= 75


def test_a_pod_that_waits_for_a_place_leaves_after_those_that_have_one() -> None:
    """Whatever their priority: it keeps no other pod on the node."""
    first = deployment(1, 1, "api")
    first[-1]["spec"] |= {"priority": 1000, "tolerations": [{"key": TAINT["key"], "operator": "Exists"}]}
    assert waves(plan(*deployment(1, 1), *first, nodes=tuple(tainted("w2")))) == [["api-1-0"], ["web-1-0"]]


def test_a_taint_that_stays_halts_and_evicts_nothing() -> None:
    api = ClusterApi(*tainted("w2"), *deployment(1, 1))
    with pytest.raises(NotDone, match=r"not evicted \(for 60 s\): its replacement has no place: .*removed by the agent of that name"):
        Drain(api, DrainConsents(drain_timeout=60)).step(EVICT)
    assert api.evicted() == []


@pytest.mark.parametrize(
    "key",
    [
        "node.kubernetes.io/not-ready", "node.kubernetes.io/disk-pressure", "node.kubernetes.io/network-unavailable",
        "node.cloudprovider.kubernetes.io/uninitialized", "ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted",
        "node.cilium.io/agent-not-ready", "ebs.csi.aws.com/agent-not-ready", "node.cluster.x-k8s.io/uninitialized", "cni.istio.io/not-ready",
        "k8s.ovn.org/network-unavailable", "ignore-taint.cluster-autoscaler.kubernetes.io/csi", "medik8s.io/remediation", "kubevirt.io/drain",
        "cloud.google.com/impending-node-termination", "UpdateInProgress",
    ],
)  # fmt: skip
def test_taints_of_controllers(key: str) -> None:
    assert removed_by({"key": key})


@pytest.mark.parametrize(
    "key", ["dedicated", "nvidia.com/gpu", "node-role.kubernetes.io/control-plane", "kubernetes.azure.com/scalesetpriority"]
)
def test_taints_of_people(key: str) -> None:
    assert not removed_by({"key": key})


# ---- the documentation


def test_the_documentation_has_the_keepers_the_tools_of_people_and_the_taints() -> None:
    rows = [line for line in DOCS.read_text().splitlines() if line.startswith("| ")]
    for text in [*(one.value for one in Keeps), *(what for _, what in PEOPLE), *(who for _, who in PASSING)]:
        assert any(text in row for row in rows), text
