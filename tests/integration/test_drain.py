"""Drains on a real cluster: every filter, every answer of the eviction API, waves, surge, halts, operators that die; no request is lost."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from roles.engine.api import Api, ApiError, Conflict, Denied, NotFound, Speaker
from roles.engine.api.errors import EvictionRefused
from roles.engine.kube import Object, uid
from roles.engine.objects import NotDone, Session
from roles.engine.outage import DrainConsents, NodeOutage, PodFate, Purpose, cluster_time, plan_drain, read_drain
from roles.engine.outage.evicting import Evictor, eviction, try_eviction
from roles.engine.outage.model import PodWorkload
from roles.engine.outage.surge_marks import SURGED_BY
from tests.context import context
from tests.integration.draining import (
    ANYWHERE,
    HOLD,
    NAMESPACE,
    STUBBORN,
    apply,
    bare,
    budget,
    cleaned,
    container,
    cordon_of,
    get,
    killed,
    on,
    only_on,
    open_session,
    own_namespace,
    pods,
    settled,
    workload,
)
from tests.integration.operator import Outcome, Started, data, pyinfra, refused, run_of, wait_for
from tests.integration.serving import SERVE, Client, eviction_webhook, service, webhook
from tests.lab import Lab

pytestmark = pytest.mark.lab


def drain(*arguments: str, dry: bool = False, **values: str) -> Outcome:
    return pyinfra("drain", *data(**values), *arguments, "--dry" if dry else "-y")


def consolidated() -> dict[str, dict[str, Any]]:
    """What the plan of deploys/consolidate.py says of each node."""
    wanted = data(format="json", watts="100", spare_nodes="0")
    done = pyinfra("consolidate", *wanted, "--dry")
    assert done.code == 0, done.all
    found = json.loads(done.out)
    assert found["before"] == 300
    return {one["node"]: one for one in found["nodes"]}


def uncordon(**values: str) -> Outcome:
    return pyinfra("uncordon", *data(**values), "-y")


@pytest.fixture(scope="module", autouse=True)
def namespace(lab: Lab) -> Iterator[None]:
    with own_namespace(lab):
        yield


@pytest.fixture(scope="module", autouse=True)
def stuck(lab: Lab) -> Iterator[datetime]:
    """When a pod should have ended that never does: its node has no kubelet, and it has a finalizer. It is there from the beginning of the
    module, since only a pod that is late by a minute counts as stuck."""
    amounts = {"cpu": "1", "memory": "1Gi", "pods": "10", "ephemeral-storage": "1Gi"}
    # Its own taint keeps DaemonSets away.
    spec = {"unschedulable": True, "taints": [{"key": "t-drain/ghost", "effect": "NoSchedule"}]}
    ghost = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "ghost"}, "spec": spec}
    pod = {**bare("stuck", "ghost"), "metadata": {"name": "stuck", "namespace": "default", "finalizers": [HOLD]}}
    apply(lab, {**ghost, "status": {"capacity": amounts, "allocatable": amounts}}, pod)
    lab.kubectl("delete", "pod", "stuck", "--wait=false")
    yield datetime.fromisoformat(get(lab, "pod", "stuck")["metadata"]["deletionTimestamp"])
    lab.kubectl("patch", "pod", "stuck", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    lab.kubectl("delete", "pod", "stuck", "--force", "--grace-period=0")
    lab.kubectl("delete", "node", "ghost")


@pytest.fixture(autouse=True)
def as_found(lab: Lab) -> Iterator[None]:
    yield
    cleaned(lab)


@pytest.fixture(scope="module")
def session(lab: Lab) -> Iterator[Session]:
    with open_session(lab) as found:
        yield found


# ---- the plan, and what each pod becomes


def test_every_pod_has_its_fate_and_deadlocks_are_refused(lab: Lab, session: Session) -> None:
    local = {"volumes": [{"name": "cache", "emptyDir": {}}]}
    job = {
        "metadata": {"labels": {"app": "work"}},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container()]},
    }
    held = workload("held")
    held["spec"]["template"]["metadata"]["finalizers"] = [HOLD]
    items = [
        workload("web", replicas=2), budget("web", maxUnavailable=1), workload("cache", **local), workload("db", "StatefulSet"),
        workload("logs", "DaemonSet"), bare("alone", "w1"), bare("finished", "w1", command="exit 0", restartPolicy="Never"),
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "work", "namespace": NAMESPACE}, "spec": {"template": job}},
        workload("frozen"), budget("frozen", maxUnavailable=0), held, workload("tied", nodeSelector={"kubernetes.io/hostname": "w1"}),
        workload("twice"), budget("twice", maxUnavailable=1), budget("other", "twice", maxUnavailable=1),
    ]  # fmt: skip
    only_on(lab, "w1", items=items)
    wait_for(lambda: pods(lab)["finished"]["status"]["phase"] == "Succeeded", "the pod to finish")
    before = pods(lab)

    begun = time.monotonic()
    told = drain(nodes="w1")
    whole = time.monotonic() - begun
    refused(
        told, "alone: it has no controller", "allow_unmanaged=true", "emptyDir (cache)", "allow_local_data=true", "maxUnavailable 0 allows none",
        "ignore_budgets=t-drain/frozen", "more than one PodDisruptionBudget", "t-drain/other,t-drain/twice",
        "its replacement would run nowhere else", "allow_pending=true",
    )  # fmt: skip
    assert cordon_of(lab, "w1") == (False, "") and {name: uid(one) for name, one in pods(lab).items()} == {
        name: uid(one) for name, one in before.items()
    }

    nodes = consolidated()
    kept = {one["reason"]: " ".join(one["subjects"]) for one in nodes["w1"]["kept"]}
    assert {"unmanaged", "empty-dir", "budget", "two-budgets"} <= kept.keys()
    assert "t-drain/alone" in kept["unmanaged"] and "t-drain/frozen" in kept["budget"] and "t-drain/other" in kept["two-budgets"]
    assert {one["reason"] for one in nodes["cp1"]["kept"]} >= {"control-plane", "etcd"}
    assert {one["reason"] for one in nodes["ghost"]["kept"]} >= {"not-in-inventory", "not-ready", "cordoned"}

    # The plan's own part: the machine may be busy while pyinfra starts.
    begun = time.monotonic()
    deadlocks = plan_drain(read_drain(session), ["w1"], DrainConsents(), cluster_time(session)).refusals
    seconds = time.monotonic() - begun
    print(f"deadlocks are named after {seconds:.1f} s, in {whole:.1f} s with all of the command")
    assert any("frozen-" in text and "no eviction of it can ever succeed" in text for text in deadlocks) and seconds < 5

    consents = {
        "allow_local_data": "true", "allow_unmanaged": "true", "allow_pending": "true",
        "ignore_budgets": "t-drain/frozen,t-drain/twice,t-drain/other",
    }  # fmt: skip
    told = drain(nodes="w1", **consents)
    refused(
        told, "budget t-drain/frozen (maxUnavailable 0", "would be deleted. It has 1 healthy pod, at worst 0 until the replacements are Ready",
        "ignore_budgets needs a second consent, for exactly these 2 pods: add --data confirm_ignore=pods-",
    )  # fmt: skip
    assert cordon_of(lab, "w1") == (False, "") and pods(lab).keys() == before.keys()
    told = drain(nodes="w1", **consents, confirm_ignore=told.all.partition("--data confirm_ignore=")[2].split()[0])
    assert told.code == 0 and "a static pod" not in told.out and "would be evicted now" in told.out, told.all
    run = run_of(told)
    assert cordon_of(lab, "w1") == (True, run)
    left, now = on(lab, "w1"), pods(lab)
    (ended,) = (name for name in left if name.startswith("held-"))
    logs = [name for name in before if name.startswith("logs-") and before[name]["spec"]["nodeName"] == "w1"]
    assert left == sorted(["finished", ended, *logs])
    assert all(uid(now[name]) == uid(before[name]) for name in left), "what stays is not touched"
    assert "alone" not in now and uid(now["db-0"]) != uid(before["db-0"]) and now["db-0"]["spec"]["nodeName"] == "w2"
    # Its containers have ended; what is left is an entry of the API, until someone removes the finalizer.
    assert now[ended]["status"]["phase"] in ("Succeeded", "Failed") and f"evicted; ended ({HOLD} keeps its object); 1 of" in told.out
    (tied,) = (one for name, one in now.items() if name.startswith("tied-"))
    assert "nodeName" not in tied["spec"] and "by consent: its replacement stays Pending" in told.out, told.all
    assert re.search(r"frozen-\S+ .*deleted past its budget, by consent", told.out) and re.search(
        r"Node w1 drained +prove +done", told.out
    ), told.all
    back = uncordon(nodes="w1,w2")
    assert back.code == 0 and cordon_of(lab, "w1") == (False, "") and "it is not cordoned" in back.out, back.all
    settled(lab)
    assert any(name.startswith("tied-") for name in on(lab, "w1"))
    let_go(lab, "held")


def let_go(lab: Lab, app: str) -> None:
    """Delete a Deployment whose pods have a finalizer."""
    lab.kubectl("delete", "deployment", app, "-n", NAMESPACE, "--wait")

    def gone() -> bool:
        names = [name for name in pods(lab) if name.startswith(f"{app}-")]
        for name in names:
            free = ("patch", "pod", name, "-n", NAMESPACE, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
            lab.kubectl(*free, check=False)
        return not names

    wait_for(gone, f"the pods of {app} to go")


def test_what_cannot_mean_a_node_is_refused(lab: Lab) -> None:
    told = drain(nodes="w9")
    assert told.code != 0 and "'w9' is no host of the inventory and no node" in told.all, told.all


@pytest.mark.slow
def test_a_resized_pod_is_placed_as_its_template_makes_it(lab: Lab) -> None:
    """It runs with 100m by now; the one that takes its place asks for 1500m, and the other node has 1000m."""
    for node, cpu in (("w1", "1500m"), ("w2", "1000m")):
        only_on(lab, node, items=[workload(f"of-{node}", container={"resources": {"requests": {"cpu": cpu}}})])
    (resized,) = on(lab, "w1")
    less = {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "100m"}}}]}}
    lab.kubectl("patch", "pod", "-n", NAMESPACE, resized, "--subresource=resize", "-p", json.dumps(less))
    refused(drain(nodes="w1"), f"{resized}: its replacement would run nowhere else", "cpu: 1500m requested, 1000m left")


@pytest.mark.slow
def test_the_only_node_that_takes_pods(lab: Lab) -> None:
    """As on a cluster of one node: it is drained if no pod leaves, or if those that leave may wait for it."""
    lab.kubectl("cordon", "cp1", "w2")
    try:
        told = drain(nodes="w1")
        assert told.code == 0 and cordon_of(lab, "w1") == (True, run_of(told)), told.all
        assert uncordon(nodes="w1").code == 0
        apply(lab, workload("web", replicas=2))
        settled(lab)
        refused(drain(nodes="w1"), "no other node is Ready and takes pods", "allow it with --data allow_pending=true")
        told = drain(nodes="w1", allow_pending="true")
        assert told.code == 0 and on(lab, "w1") == [], told.all
        assert {one["status"]["phase"] for one in pods(lab).values()} == {"Pending"}
        assert uncordon(nodes="w1").code == 0
        settled(lab)
    finally:
        lab.kubectl("uncordon", "cp1", "w2")


# ---- the answers of the eviction API


def test_each_answer_of_the_eviction_api(lab: Lab, session: Session) -> None:
    held = {**bare("held", "w2"), "metadata": {"name": "held", "namespace": "t-ending", "finalizers": ["t.example/hold"]}}
    only_on(lab, "w1", items=[
        workload("frozen"), budget("frozen", maxUnavailable=0), workload("twice"), budget("twice", maxUnavailable=1),
        budget("other", "twice", maxUnavailable=1), workload("db", "StatefulSet"), workload("free"),
    ])  # fmt: skip
    lab.kubectl("create", "namespace", "t-ending")
    apply(lab, held)
    lab.kubectl("delete", "namespace", "t-ending", "--wait=false")
    there = pods(lab)
    named = {item["metadata"]["labels"]["app"]: item for item in there.values()}
    ending = get(lab, "pod", "held", "-n", "t-ending")

    assert try_eviction(session, named["free"]) == ""  # 201
    assert "The disruption budget frozen needs 1 healthy pods and has 1 currently" in try_eviction(session, named["frozen"])  # 429
    assert "more than one PodDisruptionBudget" in try_eviction(session, named["twice"])  # 500
    assert {name: uid(one) for name, one in pods(lab).items()} == {name: uid(one) for name, one in there.items()}, "dry runs move nothing"

    def answer(pod: Object) -> Exception | None:
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}/eviction"
        try:
            session.asked(lambda api: api.create(path, eviction(pod), dry_run=True))
        except (NotFound, Conflict, Denied, EvictionRefused) as error:
            return error
        return None

    wait_for(lambda: get(lab, "namespace", "t-ending")["status"]["phase"] == "Terminating", "the namespace to end")
    another = "00000000-0000-0000-0000-000000000000"
    gone = {"metadata": {**named["free"]["metadata"], "name": "never-was", "uid": another}}
    other = {"metadata": {**named["db"]["metadata"], "uid": another}}
    assert isinstance(answer(gone), NotFound) and isinstance(answer(other), Conflict)
    forbidden = answer(ending)
    assert isinstance(forbidden, Denied) and forbidden.speaker is Speaker.NAMESPACE, forbidden

    # A StatefulSet's pod that came back under its name is another pod, and is not touched.
    mover = Evictor(session, DrainConsents(drain_timeout=60), ["w1"])
    owner = get(lab, "statefulset", "db", "-n", NAMESPACE)
    database = PodWorkload("StatefulSet", NAMESPACE, "db", uid(owner), 1, owner, 1, True)
    assert "another pod has its name, and is not touched" in mover.move(PodFate(other, "w1", "evicted", "", workload=database), context())
    assert uid(pods(lab)["db-0"]) == uid(named["db"]) and "deletionTimestamp" not in pods(lab)["db-0"]["metadata"]
    assert "gone already" in mover.move(PodFate(gone, "w1", "evicted", ""), context())
    assert "evicted; gone; 1 of StatefulSet t-drain/db are Ready" in mover.move(
        PodFate(named["db"], "w1", "evicted", "", workload=database), context()
    )
    assert uid(pods(lab)["db-0"]) != uid(named["db"])

    # Its namespace is being deleted: the namespace's controller ends the pod, and daytwo waits for that.
    with ThreadPoolExecutor() as pool:
        waits = pool.submit(mover.move, PodFate(ending, "w1", "evicted", ""), context())
        lab.kubectl("patch", "pod", "held", "-n", "t-ending", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        assert "its namespace is being deleted" in waits.result(timeout=120) or "gone already" in waits.result()


def test_who_refuses_a_pod_is_named_by_the_words_of_this_api_server(lab: Lab, session: Session) -> None:
    space = "t-answers"
    admission, hooks = "admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"
    of = {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]}

    def chosen(app: str) -> dict[str, Any]:
        return {"objectSelector": {"matchLabels": {"t-answers": app}}}

    def hook(name: str) -> dict[str, Any]:
        called = {"clientConfig": {"url": "https://127.0.0.1:1/"}, "failurePolicy": "Fail", "admissionReviewVersions": ["v1"]}
        return {"name": f"{name}.t-answers.example", "rules": of["resourceRules"], "sideEffects": "None", **called, **chosen(name)}

    def pod(what: str, **spec: Any) -> dict[str, Any]:
        app = {**container(), "resources": {"requests": {"cpu": spec.pop("cpu", "100m")}, "limits": {"cpu": "1"}}}
        return {"metadata": {"name": what, "labels": {"t-answers": what}}, "spec": {"containers": [app], **spec}}

    def answer(one: dict[str, Any]) -> ApiError:
        def ask(api: Api) -> Any:
            try:
                return api.create(f"/api/v1/namespaces/{space}/pods", one, dry_run=True)
            except ApiError as error:
                return error

        found = session.asked(ask)
        assert isinstance(found, ApiError), found
        return found

    label = {"pod-security.kubernetes.io/enforce": "baseline"}
    policy = {"validations": [{"expression": "false", "message": "not at night"}], "matchConstraints": {**of, **chosen("policy")}}
    lab.kubectl("create", "namespace", space)
    lab.kubectl("label", "namespace", space, *(f"{key}={value}" for key, value in label.items()))
    limits = {"limits": [{"type": "Container", "min": {"cpu": "50m"}}]}
    try:
        apply(
            lab,
            {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "least", "namespace": space}, "spec": limits},
            {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none", "namespace": space}, "spec": {"hard": {"pods": "0"}}},
            {"apiVersion": admission, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "t-answers"}, "spec": policy},
            {
                "apiVersion": admission, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "t-answers"},
                "spec": {"policyName": "t-answers", "validationActions": ["Deny"]},
            },
            {
                "apiVersion": admission, "kind": hooks, "metadata": {"name": "t-answers"},
                "webhooks": [hook("silent")],
            },
        )  # fmt: skip
        wait_for(lambda: answer(pod("policy")).speaker is Speaker.POLICY, "the policy to be asked")
        wait_for(lambda: "exceeded quota" in str(answer(pod("quota"))), "the quota to be computed")
        expected = [
            (pod("policy"), Speaker.POLICY, "t-answers"), (pod("quota"), Speaker.QUOTA, "ResourceQuota none"),
            (pod("limits", cpu="5m"), Speaker.LIMIT_RANGE, "minimum cpu usage"), (pod("host", hostNetwork=True), Speaker.POD_SECURITY, "baseline"),
            (pod("account", serviceAccountName="nobody"), Speaker.SERVICE_ACCOUNT, "t-answers/nobody"),
            (pod("priority", priorityClassName="nothing"), Speaker.PRIORITY, "nothing"),
            (pod("runtime", runtimeClassName="nothing"), Speaker.ADMISSION, "nothing"),
            (pod("silent"), Speaker.WEBHOOK, "silent.t-answers.example does not answer"),
        ]  # fmt: skip
        for one, speaker, words in expected:
            error = answer(one)
            assert isinstance(error, Denied) and error.speaker is speaker and words in str(error), error
            assert error.passing == ("does not answer" in words) and "admin" not in error.way_out, error
    finally:
        lab.kubectl("delete", hooks, "t-answers")
        lab.kubectl("delete", "validatingadmissionpolicy,validatingadmissionpolicybinding", "t-answers")
        lab.kubectl("delete", "namespace", space, "--wait=false")


# ---- waves, and whose cordon it is


def test_two_nodes_whose_budget_allows_one_are_drained_in_waves(lab: Lab) -> None:
    only_on(lab, "w1", "w2", items=[workload("web", replicas=4, tolerations=ANYWHERE), budget("web", maxUnavailable=1)])
    assert on(lab, "w1") and on(lab, "w2")
    lab.kubectl("cordon", "w2")
    told = drain(nodes="w1,w2")
    assert told.code == 0 and "1+1+1+1" in told.out, told.all
    assert on(lab, "w1") == on(lab, "w2") == [] and len(on(lab, "cp1")) == 4
    # One after the other: each is replaced before the next one leaves.
    ends = [line for line in told.out.splitlines() if re.match(r"  pod t-drain/web-\S+: done: ", line)]
    assert len(ends) == 4 and all("4 of Deployment t-drain/web are Ready" in line for line in ends), told.all
    assert cordon_of(lab, "w1") == (True, run_of(told)) and cordon_of(lab, "w2") == (True, "")
    assert re.search(r"Node w2 .*cordoned by kubectl .* before: that cordon stays", told.out), told.all
    refused(uncordon(nodes="w1,w2"), "Node w2: kubectl", "force=true")
    back = pyinfra("rollback", *data(run=run_of(told)), "-y")
    assert back.code == 0 and cordon_of(lab, "w1") == (False, "") and cordon_of(lab, "w2") == (True, ""), back.all
    assert "an eviction is not undone" in back.out and len(on(lab, "cp1")) == 4
    assert uncordon(nodes="w2", force="true").code == 0 and cordon_of(lab, "w2") == (False, "")


def test_one_node_in_the_middle_of_another_run(lab: Lab, session: Session) -> None:
    """As a reboot uses it. Pods with a low priority leave first, those with a volume last."""
    stored = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
    events: list[Any] = []
    with volume(lab, "data"):
        only_on(lab, "w1", items=[
            workload("a-stored", **stored), workload("b-high", priorityClassName="system-cluster-critical"), workload("web", replicas=2),
            budget("web", maxUnavailable=1),
        ])  # fmt: skip
        inside = NodeOutage(session, "w1", DrainConsents(drain_timeout=120), "r20260101-000000-aaaa", Purpose("test", "a test"))
        assert not inside.plan().refusals
        assert "3 workloads serve elsewhere" in inside.take(context(note=events.append))
    assert cordon_of(lab, "w1") == (True, "r20260101-000000-aaaa") and on(lab, "w1") == []
    assert [event["what"] for event in events] == ["cordon", "evict", "evict", "evict", "evict", "prove"]
    left = [str(event["object"]).removeprefix("pod t-drain/") for event in events if event["what"] == "evict"]
    assert [name.rsplit("-", 2)[0] for name in left] == ["web", "web", "b-high", "a-stored"]
    assert "read back" in inside.give_back(context(note=events.append)) and cordon_of(lab, "w1") == (False, "")
    # What it would refuse it refuses before the cordon.
    apply(lab, workload("held", grace=30))
    settled(lab)
    (node,) = {one["spec"]["nodeName"] for name, one in pods(lab).items() if name.startswith("held-")}
    stopped = NodeOutage(session, node, DrainConsents(drain_timeout=5), "r20260101-000000-aaaa", Purpose("test", "a test"))
    assert any("it may take 30 s to end" in text for text in stopped.plan().refusals)
    with pytest.raises(NotDone, match="cannot be drained now"):
        stopped.take(context())
    assert cordon_of(lab, node) == (False, "")


@contextmanager
def volume(lab: Lab, claim: str) -> Iterator[None]:
    """A volume that any node can have, each in a folder of its own, and its claim."""
    amounts = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    local = {"capacity": {"storage": "1Mi"}, "hostPath": {"path": "/tmp/t-drain", "type": "DirectoryOrCreate"}}
    wanted = {"volumeName": "t-drain", "resources": {"requests": {"storage": "1Mi"}}}
    names = {"PersistentVolume": {"name": "t-drain"}, "PersistentVolumeClaim": {"name": claim, "namespace": NAMESPACE}}
    specs = {"PersistentVolume": {**amounts, **local}, "PersistentVolumeClaim": {**amounts, **wanted}}
    apply(lab, *({"apiVersion": "v1", "kind": kind, "metadata": names[kind], "spec": spec} for kind, spec in specs.items()))
    try:
        yield
    finally:  # they go with the pods that use them
        lab.kubectl("delete", "persistentvolumeclaim", claim, "-n", NAMESPACE, "--wait=false")
        lab.kubectl("delete", "persistentvolume", "t-drain", "--wait=false")


def test_a_pod_that_arrives_without_a_controller_halts_the_drain(lab: Lab, session: Session) -> None:
    def arrives(event: Mapping[str, Any]) -> None:
        if event.get("what") == "prove":
            apply(lab, bare("late", "w1"))

    inside = NodeOutage(session, "w1", DrainConsents(drain_timeout=120), "r20260101-000000-aaaa", Purpose("test", "a test"))
    with pytest.raises(
        NotDone, match=r"pods came to w1 in mid-drain, or are stuck there: t-drain/late: it has no controller.*; w1: uncordoned"
    ):
        inside.take(context(note=arrives))
    assert cordon_of(lab, "w1") == (False, "") and on(lab, "w1") == ["late"] and not inside.cordoned


@pytest.mark.slow
def test_pods_that_come_back_halt_the_drain(lab: Lab, session: Session) -> None:
    """They tolerate the cordon. If they have no other place, the plan says so."""
    tolerates = [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}]
    terms = [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["w1"]}]
    likes = {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": {"matchExpressions": terms}}]}
    }
    only_on(lab, "w1", items=[workload("tied", tolerations=tolerates, nodeSelector={"kubernetes.io/hostname": "w1"})])
    refused(drain(nodes="w1"), "pod t-drain/tied-", "it would come back to w1, since it tolerates the cordon")
    assert cordon_of(lab, "w1") == (False, "")
    lab.kubectl("delete", "deployment", "tied", "-n", NAMESPACE, "--wait")
    only_on(lab, "w1", items=[workload("back", tolerations=tolerates, affinity=likes)])
    told = drain(nodes="w1")
    assert told.code == 1 and "it tolerates the cordon, so its replacement may come back to this node" in told.out, told.all
    (there,) = on(lab, "w1")
    assert (
        f"t-drain/{there} came back to w1; it tolerates the cordon" in told.out and told.out.count("came in mid-drain: t-drain/back-") == 3
    ), told.all
    assert cordon_of(lab, "w1") == (False, "") and "uncordoned, since the run halted" in told.out
    assert len(re.search(r"Moved until then, and not coming back: (.*)", told.out)[1].split(", ")) == 4, told.all  # type: ignore[index]


# ---- a client that asks all the time


def test_a_client_loses_no_request(lab: Lab, tmp_path: Path) -> None:
    """Two replicas and a budget; one replica with surge, which is also the only backend of a webhook that all new pods need."""
    serving = {"command": SERVE, "grace": 30, "tolerations": ANYWHERE}
    only_on(
        lab,
        "w1",
        "w2",
        items=[service("web"), service("one"), workload("web", replicas=2, ports=8080, **serving), budget("web", maxUnavailable=1)],
    )
    only_on(lab, "w1", items=[workload("one", ports=8081, **serving), budget("one", minAvailable=1)])
    refused(drain(nodes="w1", dry=True), "one-", "needs 1 healthy pods")
    with webhook(lab, "one", 8081, tmp_path) as hook:
        # Past its budget it would leave first, and then nobody can create the new one.
        refused(
            drain(nodes="w1", dry=True, ignore_budgets="t-drain/one"),
            "webhook all.t-drain.example of ValidatingWebhookConfiguration t-drain (failurePolicy Fail): its only backends leave (t-drain/one-",
            "so the new one can never come: scale it to 2 replicas, or use --data surge=true",
            "the API server refuses requests that this webhook is asked about",
        )
        clients = [Client(lab, "web", 8080), Client(lab, "one", 8081)]
        try:
            wait_for(lambda: clients[0].answers == {"w1", "w2"}, "answers of both replicas")
            told = drain(nodes="w1", surge="t-drain/one")
            asked = [client.asked for client in clients]
            wait_for(lambda: all(client.asked > before + 20 for client, before in zip(clients, asked, strict=True)), "more answers")
        finally:
            for client in clients:
                client.end()
    assert told.code == 0, told.all
    assert [client.lost for client in clients] == [[], []]
    assert min(client.asked for client in clients) > 100 and clients[0].answers == {"w1", "w2", "cp1"} and len(clients[1].answers) == 2
    print(f"requests: {[client.asked for client in clients]}, none lost; answers of {[sorted(client.answers) for client in clients]}")
    deployment = get(lab, "deployment", "one", "-n", NAMESPACE)
    assert deployment["spec"]["replicas"] == 1 and SURGED_BY not in (deployment["metadata"].get("annotations") or {})
    assert on(lab, "w1") == [] and "a second pod was Ready elsewhere before it left" in told.out
    assert "one after the other: a new one must be Ready before the last one goes" in told.out
    assert hook.asked >= 2 and hook.failed == 0, "new pods were created by way of the webhook"


# ---- halts and dead operators


def test_killed_in_a_surge_and_undone(lab: Lab) -> None:
    """The record on the node has what must be undone: the replica more, and the cordon."""
    # The second pod never becomes Ready, as it is not on w1.
    ready = {
        "readinessProbe": {"exec": {"command": ["cat", "/tmp/ready"]}, "periodSeconds": 1},
        "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
    }
    command = "[ $NODE != w1 ] || echo >/tmp/ready; trap 'exit 0' TERM; sleep 600 & wait $!"
    only_on(lab, "w1", items=[workload("one", command=command, container=ready)])
    run = Started("drain", *data(nodes="w1", surge="true"), "-y")
    wait_for(lambda: get(lab, "deployment", "one", "-n", NAMESPACE)["spec"]["replicas"] == 2 or run.process.poll() is not None, "the surge")
    name = killed(lab, run)
    assert get(lab, "deployment", "one", "-n", NAMESPACE)["metadata"]["annotations"][SURGED_BY] == name, run.out
    assert cordon_of(lab, "w1") == (True, name) and len(pods(lab)) == 2
    back = pyinfra("rollback", *data(run=name, take_over=name), "-y")
    assert back.code == 0 and cordon_of(lab, "w1") == (False, ""), back.all
    deployment = get(lab, "deployment", "one", "-n", NAMESPACE)
    assert deployment["spec"]["replicas"] == 1 and SURGED_BY not in deployment["metadata"]["annotations"], back.all
    wait_for(lambda: len(pods(lab)) == 1 and len(on(lab, "w1")) == 1, "the second pod to go")
    (left,) = pods(lab).values()
    assert not [key for key in left["metadata"].get("annotations") or {} if "deletion-cost" in key]


def test_killed_in_mid_drain_resumed_and_a_pod_that_arrives(lab: Lab) -> None:
    items = [workload("web", replicas=2, command=STUBBORN, grace=10), budget("web", maxUnavailable=1), workload("free")]
    only_on(lab, "w1", items=items)
    run = Started("drain", *data(nodes="w1"), "-y")
    run.wait_for("evict it from w1 (Deployment t-drain/web)")
    wait_for(lambda: any("deletionTimestamp" in one["metadata"] for one in pods(lab).values()), "an eviction")
    first = killed(lab, run)
    assert cordon_of(lab, "w1") == (True, first)
    refused_by_lock = drain(nodes="w1")
    assert refused_by_lock.code == 1 and f"take_over={first}" in refused_by_lock.out and cordon_of(lab, "w1") == (True, first)

    # Someone deletes a pod that only ends when its grace period is over: the drain waits for that.
    apply(lab, bare("slow", "w1", command=STUBBORN, terminationGracePeriodSeconds=30))
    lab.kubectl("wait", "--for=condition=Ready", "pod/slow", "-n", NAMESPACE, "--timeout=100s")
    lab.kubectl("delete", "pod", "slow", "-n", NAMESPACE, "--wait=false")
    again = Started("drain", *data(nodes="w1", take_over=first, allow_unmanaged="true"), "-y")
    again.wait_for("evict it from w1 (Deployment t-drain/web)")
    apply(lab, bare("late", "w1"))
    told = again.end()
    assert told.code == 0 and "came in mid-drain: t-drain/late" in told.out, told.all
    assert re.search(r"t-drain/slow +ending +- +it is being deleted already", told.out), told.all
    assert on(lab, "w1") == [] and cordon_of(lab, "w1") == (True, run_of(told))
    assert f"cordoned already by run {first}: this run takes it over and continues" in told.out
    # Undone, it leaves what was there before: the cordon of the first run. That is undone, too, unless an administrator has set it again.
    back = pyinfra("rollback", *data(run=run_of(told)), "-y")
    assert back.code == 0 and cordon_of(lab, "w1") == (True, first), back.all
    lab.kubectl("uncordon", "w1")
    lab.kubectl("cordon", "w1")
    back = pyinfra("rollback", *data(run=first), "-y")
    assert back.code == 0 and re.search(r"kubectl .*has cordoned it since: that cordon stays", back.out), back.all
    assert cordon_of(lab, "w1") == (True, "")


def test_a_budget_that_refuses_for_now_halts_after_the_timeout_and_uncordons(lab: Lab) -> None:
    probe = {"readinessProbe": {"exec": {"command": ["cat", "/tmp/ready"]}, "periodSeconds": 1}}
    command = "echo >/tmp/ready; trap 'exit 0' TERM; sleep 600 & wait $!"
    web = workload("web", replicas=3, command=command, container=probe)
    only_on(lab, "w1", items=[workload("free")])
    (free,) = on(lab, "w1")
    only_on(lab, "w1", "w2", items=[web, budget("web", minAvailable=2)])
    there = [name for name in on(lab, "w1") if name != free]
    assert there and on(lab, "w2")
    # Not Ready, on the other node, and nothing repairs it.
    lab.kubectl("exec", "-n", NAMESPACE, on(lab, "w2")[0], "--", "/bin/busybox", "rm", "/tmp/ready")
    wait_for(lambda: get(lab, "pdb", "web", "-n", NAMESPACE)["status"]["disruptionsAllowed"] == 0, "the budget to be used up")

    # Ctrl-C: what moves meanwhile ends, and what waits does not begin.
    run = Started("drain", *data(nodes="w1"), "-y")
    run.wait_for(": waits: The disruption budget web needs 2 healthy pods and has 2 currently")
    run.wait_for(f"pod t-drain/{free}: done: evicted; gone; 1 of Deployment t-drain/free are Ready")
    assert cordon_of(lab, "w1") == (True, run_of(run))
    run.send(signal.SIGINT)
    told = run.end()
    assert told.code == 1 and "HALTED: interrupted by the operator" in told.out and on(lab, "w1") == there, told.all
    assert f"\nMoved until then, and not coming back: t-drain/{free}\n" in told.out, told.all
    assert cordon_of(lab, "w1") == (False, "") and "Node w1: uncordoned, since the run halted: read back" in told.out, told.all

    run = Started("drain", *data(nodes="w1", keep_cordon="true"), "-y")
    run.wait_for(": waits: The disruption budget web needs 2 healthy pods and has 2 currently")
    run.send(signal.SIGINT)
    told = run.end()
    assert told.code == 1 and "interrupted by the operator" in told.out and "stay cordoned" in told.out, told.all
    kept = (True, run_of(told))
    assert cordon_of(lab, "w1") == kept and on(lab, "w1") == there

    # The cordon of that run is there again after another one.
    told = drain(nodes="w1", drain_timeout="5")
    assert told.code == 1 and "NOT NOW" in told.out and "the API server refused its eviction for" in told.out, told.all
    assert f"Node w1: given back to run {kept[1]}, since the run halted: read back" in told.out, told.all
    assert cordon_of(lab, "w1") == kept and on(lab, "w1") == there


def test_what_a_webhook_and_a_controller_let_go_later_is_waited_for(lab: Lab, session: Session, tmp_path: Path) -> None:
    """A webhook denies with every status code until it has moved the pod; a budget goes when its owner sees the cordon."""
    owned = budget("kept", maxUnavailable=0)
    # Of a kind that the cluster does not have: the garbage collector leaves such a dependent alone.
    owned["metadata"]["ownerReferences"] = [{"apiVersion": "ceph.rook.io/v1", "kind": "CephCluster", "name": "main", "uid": str(uuid4())}]
    only_on(lab, "w1", items=[workload("guarded"), workload("kept"), owned])
    with eviction_webhook(lab, "guarded-", 11.0, tmp_path) as hook:
        guarded = next(one for name, one in pods(lab).items() if name.startswith("guarded"))
        wait_for(lambda: "denied the request" in try_eviction(session, guarded), "the API server to ask the webhook")
        begun = time.monotonic()
        told = drain(nodes="w1", dry=True)
        assert told.code == 0 and time.monotonic() - begun < 50, told.all
        flat = " ".join(told.out.split())
        assert re.search(
            r"guarded-\S+: NOT NOW, the run waits: admission webhook guard.t-evict.example denied the request: \"moving it", flat
        ), flat
        assert "t-drain/kept: CephCluster t-drain/main owns it (kubectl describe cephcluster.ceph.rook.io main -n t-drain)" in flat, flat
        assert cordon_of(lab, "w1") == (False, "") and all(dry for _, dry in hook.asked)

        run = Started("drain", *data(nodes="w1", drain_timeout="200"), "-y")
        run.wait_for("t-drain/kept-")
        run.wait_for(": waits: The disruption budget kept needs 1 healthy pods")
        assert cordon_of(lab, "w1")[0] and not [name for name in on(lab, "w1") if name.startswith("guarded")], "the others have left before"
        lab.kubectl("delete", "pdb", "kept", "-n", NAMESPACE)
        told = run.end()
    assert told.code == 0 and re.search(r"pod t-drain/kept-\S+: done: evicted; gone", told.out), told.all
    assert re.search(
        r'(?m)^ +t-drain/guarded-\S+: waits: admission webhook guard\.t-evict\.example denied the request: "moving', told.out
    ), told.all
    real = [name for name, dry in hook.asked if not dry and name.startswith("guarded")]
    assert 6 <= len(real) <= 12, hook.asked


def test_a_pod_that_never_ends_is_named(lab: Lab, stuck: datetime) -> None:
    wait_for(lambda: datetime.now(UTC) > stuck + timedelta(seconds=61), "the pod to be late")
    refused(
        drain(nodes="ghost", allow_unmanaged="true"), "ghost is not Ready", "pod default/stuck: it is stuck: it should have ended at",
        f"and {HOLD} holds it; the tool that set this finalizer must remove it",
    )  # fmt: skip
    assert cordon_of(lab, "ghost") == (True, "")
