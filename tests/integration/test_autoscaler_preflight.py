"""Each problem that the preflight of autoscalers knows, planted on a real cluster: named by the plan, the status and the audit, and gone
after doing exactly what the way out says. The metrics come from APIs of the test's own.

Not planted: minReplicas above maxReplicas, which the API server refuses; and an empty status for longer than a moment, which is in
test_autoscalers.py."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.integration import operator
from tests.integration.metrics_api import CUSTOM, RESOURCE, MetricsApi, register, served_in
from tests.integration.operator import data, pyinfra, wait_for
from tests.integration.scaling import Item, apply, autoscalers, container, document, hpa, kind, problems, status, workload
from tests.lab import Lab

pytestmark = [pytest.mark.lab, pytest.mark.slow]

SPACE, QUOTAS, NAMED, LIMITS = SPACES = ("t-preflight", "t-preflight-quota", "t-preflight-named", "t-preflight-limits")
VERTICAL = "t-preflight-vertical"
# What any young pod has for some seconds.
YOUNG = {"starts-slowly", "no-sample"}
# `slow-late` belongs to no ReplicaSet, and stays.
STAYS = {"foreign-pods"}
MEMORY: Item = {"type": "Resource", "resource": {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 60}}}


def of_container(name: str) -> Item:
    target = {"type": "Utilization", "averageUtilization": 60}
    return {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": name, "target": target}}


def hits(name: str) -> Item:
    return {"type": "Pods", "pods": {"metric": {"name": name}, "target": {"type": "AverageValue", "averageValue": "10"}}}


# In average, of no request.
AMOUNT: Item = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "AverageValue", "averageValue": "60m"}}}
CRD = "scaled.t-preflight.example"
VPAS = "verticalpodautoscalers.autoscaling.k8s.io"


def scaled(**more: str) -> Item:
    """A kind with a scale, whose selector is nowhere unless `more` says where."""
    paths = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", **more}
    return kind("Scaled", "t-preflight.example", "v1", "scaled", subresources={"status": {}, "scale": paths})


ODD = {"apiVersion": "t-preflight.example/v1", "kind": "Scaled", "metadata": {"name": "odd", "namespace": SPACE}, "spec": {"replicas": 1}}


def vpa(mode: str, name: str = "vertical", namespace: str = SPACE) -> Item:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    spec = {"targetRef": target, "updatePolicy": {"updateMode": mode}}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": metadata, "spec": spec}


def app(name: str, cpu: str = "100m", namespace: str = SPACE, **more: Any) -> Item:
    return workload(namespace, name, container("app", cpu), **more)


def late(*, fails: bool) -> Item:
    """A pod more of the workload `slow`, that is not Ready while its probe fails."""
    probe = {"readinessProbe": {"exec": {"command": ["cat", "/not-there"]}, "periodSeconds": 2}} if fails else {}
    spec = {"terminationGracePeriodSeconds": 1, "containers": [container("app", "100m", **probe)]}
    metadata = {"name": "slow-late", "namespace": SPACE, "labels": {"app": "slow"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def make_ready(lab: Lab, _: str) -> None:
    lab.kubectl("delete", "pod", "-n", SPACE, "slow-late")
    apply(lab, late(fails=False))


# One pod a node at most, and there are two nodes for pods.
_APART = {"labelSelector": {"matchLabels": {"app": "crowded"}}, "topologyKey": "kubernetes.io/hostname"}
APART: Item = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_APART]}}}


@dataclass(frozen=True)
class Case:
    """One problem. `items`: what has it, beside the autoscaler `scaler`; `words`: of the reason, and of the way out; `follow`: does what the way
    out says; `entry`: what differs in the data from the usual entry, None if the data cannot say it; `also`: further rules."""

    name: str
    rule: str
    severity: str
    scaler: Item
    items: tuple[Item, ...]
    words: str
    way_out: str
    follow: Callable[[Lab, str], object]
    entry: Item | None = None
    also: tuple[str, ...] = ()


ENTRY: Item = {"max": 4, "cpu": "60%"}


def usual(name: str, namespace: str = SPACE, **more: Any) -> Item:
    return hpa(namespace, name, name, **more)


def again(*items: Item) -> Callable[[Lab, str], object]:
    """Apply these."""
    return lambda lab, _: apply(lab, *items)


def as_said(lab: Lab, way_out: str) -> None:
    """The command in a way out, word by word."""
    found = re.search(r"kubectl ([^;]+?)(?:;|$)", way_out)
    assert found, way_out
    lab.kubectl(*shlex.split(found[1]))


def correct_the_selector(lab: Lab, _: str) -> None:
    apply(lab, scaled(labelSelectorPath=".status.selector"))
    set_status = {"status": {"replicas": 1, "selector": "app=scaled"}}

    def selects() -> bool:
        lab.kubectl(
            "patch", "scaled", "-n", SPACE, "odd", "--subresource=status", "--type=merge", "-p", json.dumps(set_status), check=False
        )
        told = lab.kubectl("get", "--raw", f"/apis/t-preflight.example/v1/namespaces/{SPACE}/scaled/odd/scale", check=False)
        return '"app=scaled"' in told

    wait_for(selects, "the selector in the scale of the custom resource")


def own_the_count(lab: Lab, _: str) -> None:
    """The autoscaler changes the count once; then the manifest goes without replicas."""
    lab.kubectl("patch", "hpa", "-n", SPACE, "owned", "--type=merge", "-p", '{"spec":{"minReplicas":2}}')
    path = ["deployment", "owned", "-n", SPACE, "-o", "jsonpath={.spec.replicas}"]
    wait_for(lambda: lab.kubectl("get", *path) == "2", "the autoscaler's own change of the count", every=2)
    apply(lab, app("owned"))
    assert lab.kubectl("get", *path) == "2"


def quota(namespace: str, **hard: str) -> Item:
    hard = {name.replace("_", "."): value for name, value in hard.items()}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small", "namespace": namespace}, "spec": {"hard": hard}}


# With one replica and its autoscaler at the minimum, no eviction is allowed (section PDB).
BUDGET: Item = {
    "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "guarded", "namespace": SPACE},
    "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}},
}  # fmt: skip
RANGE: Item = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "narrow", "namespace": LIMITS}}


def limit_range(most: str) -> Item:
    return {**RANGE, "spec": {"limits": [{"type": "Container", "max": {"cpu": most}, "default": {"cpu": most}}]}}


# They refuse the pods that come after them.
LATER = (quota(QUOTAS, pods="2"), quota(NAMED, requests_memory="1Gi"), limit_range("50m"))
WITHOUT_MEMORY = {**container("app", None), "resources": {"requests": {"cpu": "100m"}}}
SIDE = workload(SPACE, "sidecar", container("app", "100m"), container("proxy", None))
NATIVE = workload(SPACE, "native", container("app", "100m"), pod={"initContainers": [container("mesh", None, restartPolicy="Always")]})
CASES = [
    Case(
        "bare", "missing-request", "critical", usual("bare"), (workload(SPACE, "bare", container("app", None)),),
        "container app of pod bare-", "set requests.cpu of container app in the template of Deployment t-preflight/bare",
        lambda lab, _: lab.kubectl("set", "resources", "-n", SPACE, "deployment/bare", "--requests=cpu=100m"), {},
    ),
    Case(
        "sidecar", "missing-request", "critical", usual("sidecar"), (SIDE,), "container proxy of pod sidecar-",
        "measure one container only", again(hpa(SPACE, "sidecar", "sidecar", of_container("app"))), {},
    ),
    Case(
        "native", "missing-request", "critical", usual("native"), (NATIVE,), "container mesh of pod native-",
        "use an average value instead of a percentage", again(hpa(SPACE, "native", "native", AMOUNT)), {},
    ),
    Case(
        "wrong", "no-container", "critical", hpa(SPACE, "wrong", "wrong", of_container("web")), (app("wrong"),), "has no container web",
        "name one that it has: app", again(hpa(SPACE, "wrong", "wrong", of_container("app"))), {"cpu": None, "containers": {"web": {"cpu": "60%"}}},
    ),
    Case(
        "first", "two-autoscalers", "critical", hpa(SPACE, "first", "shared"), (app("shared"),), "autoscaler t-preflight/second",
        "keep one", as_said,
    ),
    Case(
        "second", "two-autoscalers", "critical", hpa(SPACE, "second", "shared"), (), "autoscaler t-preflight/first", "keep one",
        lambda lab, _: None,
    ),
    Case(
        "lost", "no-target", "critical", usual("lost"), (), "the scale of Deployment lost", "create Deployment t-preflight/lost",
        again(app("lost")), {},
    ),
    Case(
        "daemon", "no-target", "critical", hpa(SPACE, "daemon", "daemon", kind="DaemonSet"),
        (workload(SPACE, "daemon", container("app", "10m"), kind="DaemonSet"),), "the scale of DaemonSet daemon", "a DaemonSet, Job or CRD without a scale",
        lambda lab, _: lab.kubectl("delete", "hpa", "-n", SPACE, "daemon"),
    ),
    Case(
        "odd", "no-selector", "critical", hpa(SPACE, "odd", "odd", kind="Scaled", api="t-preflight.example/v1"),
        (app("scaled"),),
        "is empty", "of a CRD: labelSelectorPath", correct_the_selector,
    ),
    Case(
        "metric", "no-metric", "critical", hpa(SPACE, "metric", "metric", hits("hist")), (app("metric"),), "hist", "correct the name or the selector",
        again(hpa(SPACE, "metric", "metric", hits("hits"))), {"cpu": None, "pods": {"hist": "10"}},
    ),
    Case(
        "pending", "no-sample", "critical", usual("pending"), (app("pending", pod={"nodeSelector": {"is": "nowhere"}}),), "is Pending",
        "see why: kubectl describe pod -n t-preflight pending-",
        again(app("pending")), {}, ("no-room", "no-node"),
    ),
    Case(
        "zero", "disabled-at-zero", "warning", usual("zero"), (app("zero"),), "has 0 replicas", "kubectl scale -n t-preflight deployment/zero",
        as_said, {},
    ),
    Case(
        "fixed", "fixed", "warning", usual("fixed", minReplicas=1, maxReplicas=1), (app("fixed"),), "are both 1", "raise maxReplicas",
        again(usual("fixed", minReplicas=1)), {"min": 1, "max": 1},
    ),
    Case(
        "owned", "replicas-owner", "warning", usual("owned"), (app("owned", replicas=1),), "kubectl applies replicas",
        "let the autoscaler change the count once", own_the_count, {},
    ),
    Case(
        "large", "no-room", "warning", usual("large", maxReplicas=50), (app("large", "200m"),), "maxReplicas 50 needs 49 more pods",
        "lower maxReplicas", again(usual("large", maxReplicas=3)), {"max": 50},
    ),
    Case(
        "crowded", "no-room", "warning", usual("crowded"), (app("crowded", pod=APART),),
        "maxReplicas 4 needs 2 more pods on nodes (2 of them exist, without one), and the nodes have room for 0", "lower maxReplicas",
        again(usual("crowded", maxReplicas=2)), None, ("no-node", "at-maximum"),
    ),
    Case(
        "slow", "starts-slowly", "note", usual("slow"), (app("slow"), late(fails=True)), "slow-late does not count yet",
        "see why: kubectl describe pod -n t-preflight slow-late", make_ready, None, ("foreign-pods",),
    ),
    Case(
        "leaky", "memory", "note", hpa(SPACE, "leaky", "leaky", MEMORY), (app("leaky"),), "most programs never give memory back",
        "use it only for programs whose memory follows their load", again(usual("leaky")), {"cpu": None, "memory": "60%"},
    ),
    Case(
        "busy", "at-maximum", "note", usual("busy", maxReplicas=1), (app("busy"),), "ask for 2 pods, and maxReplicas is 1", "raise maxReplicas",
        again(usual("busy", maxReplicas=3)), None, ("fixed",),
    ),
    Case(
        "vertical", "vertical-autoscaler", "warning", usual("vertical"), (app("vertical"), vpa("Recreate")), "changes the cpu request",
        "set its updateMode to Off", again(vpa("Off")), {},
    ),
    Case(
        "quota", "quota", "warning", usual("quota", QUOTAS), (app("quota", namespace=QUOTAS),),
        "ResourceQuota t-preflight-quota/small allows 2 pods", "raise the quota", again(quota(QUOTAS, pods="4")), {},
    ),
    Case(
        "named", "quota", "warning", usual("named", NAMED), (workload(NAMED, "named", WITHOUT_MEMORY),),
        "it limits requests.memory, and container app has none", "set it in the template of Deployment t-preflight-named/named",
        lambda lab, _: lab.kubectl("set", "resources", "-n", NAMED, "deployment/named", "--requests=cpu=100m,memory=8Mi"), {},
    ),
    Case(
        "limits", "limit-range", "warning", usual("limits", LIMITS), (app("limits", namespace=LIMITS),),
        "LimitRange t-preflight-limits/narrow refuses new pods: container app has 100m cpu, and at most 50m cpu are allowed",
        "correct the template's resources, or the LimitRange", again(limit_range("200m")), {},
    ),
]  # fmt: skip
USED = {"busy": "80m", "crowded": "200m"}
# Vertical ones, by the name of their workload: no recommender looks at them, and a resize restarts one.
VERTICALS = {"advised": "Off", "restarts": "InPlaceOrRecreate"}


def resized(policy: str) -> Item:
    rules = [{"resourceName": name, "restartPolicy": policy} for name in ("cpu", "memory")]
    return workload(VERTICAL, "restarts", container("app", "100m", resizePolicy=rules))


def recommend(lab: Lab, namespace: str, name: str) -> None:
    """In the place of a recommender: what pods have is recommended."""
    has = {"cpu": "100m", "memory": "8Mi"}
    advice = {"containerName": "app", "target": has, "lowerBound": has, "upperBound": has}
    provided = [{"type": "RecommendationProvided", "status": "True"}]
    status = {"status": {"conditions": provided, "recommendation": {"containerRecommendations": [advice]}}}
    lab.kubectl("patch", VPAS, "-n", namespace, name, "--type=merge", "-p", json.dumps(status))


def entries() -> Item:
    """The cases as data."""
    found: Item = {f"{SPACE}/deployment/guarded": ENTRY}
    for case in CASES:
        if case.entry is not None:
            fields = {**ENTRY, **case.entry}
            target = case.scaler["spec"]["scaleTargetRef"]
            key = f"{case.scaler['metadata']['namespace']}/{target['kind'].lower()}/{target['name']}"
            found[key] = {name: value for name, value in fields.items() if value is not None}
    return found


@pytest.fixture(scope="module")
def metrics(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MetricsApi]:
    """All that has a problem, but no autoscaler yet, and no metrics API."""
    for name in (*SPACES, VERTICAL):
        lab.kubectl("create", "namespace", name)
    for name in (*SPACES, VERTICAL):
        wait_for(lambda name=name: lab.kubectl("get", "serviceaccount", "default", "-n", name, check=False), "the service account")  # type: ignore[misc]
    try:
        apply(lab, scaled(), kind("VerticalPodAutoscaler", "autoscaling.k8s.io", "v1", "verticalpodautoscalers"))
        lab.kubectl("wait", "--for=condition=Established", f"crd/{CRD}", f"crd/{VPAS}")
        apply(lab, app("guarded"), BUDGET, *(item for case in CASES for item in case.items))
        apply(lab, app("advised", namespace=VERTICAL), resized("RestartContainer"))
        apply(lab, *(vpa(mode, name, VERTICAL) for name, mode in VERTICALS.items()))
        with served_in(lab, tmp_path_factory.mktemp("metrics")) as api:
            api.cpu |= (
                {case.items[0]["metadata"]["name"]: "30m" for case in CASES if case.items}
                | dict.fromkeys(("lost", "scaled", "guarded"), "30m")
                | USED
            )
            api.memory |= {"leaky": "3Mi"}
            api.custom |= {"hits": "5"}
            for name in SPACES:
                for item in json.loads(lab.kubectl("get", "deployments", "-n", name, "-o", "json"))["items"]:
                    if item["metadata"]["name"] != "pending":
                        lab.kubectl("rollout", "status", "-n", name, f"deployment/{item['metadata']['name']}", "--timeout=280s")
            # Nobody applies these counts.
            lab.kubectl("scale", "-n", SPACE, "deployment/zero", "--replicas=0")
            lab.kubectl("create", "-f", "-", input=json.dumps(ODD))
            apply(lab, *LATER)
            for name in (NAMED, LIMITS):
                refused_by_the_cluster(lab, name)
            yield api
    finally:
        lab.kubectl("delete", "crd", CRD, VPAS, "--ignore-not-found")
        lab.kubectl("delete", "namespace", *SPACES, VERTICAL, "--wait=false")
        operator.forget(lab)


def refused_by_the_cluster(lab: Lab, namespace: str) -> None:
    """A second pod of the namespace's one is refused by the cluster too, once the quota or the limit range is known to it."""
    (found,) = json.loads(lab.kubectl("get", "deployments", "-n", namespace, "-o", "json"))["items"]
    template = found["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "second", "namespace": namespace}, "spec": template["spec"]}
    words = ["create", "--dry-run=server", "-o", "name", "-f", "-"]
    wait_for(lambda: not lab.kubectl(*words, input=json.dumps(pod), check=False), f"the refusal of a pod in {namespace}")


def test_the_plan_names_them_before_anything_is_written(lab: Lab, metrics: MetricsApi) -> None:
    wanted = entries()
    refused = autoscalers(wanted, "--dry")
    assert refused.code == 1 and "metrics.k8s.io does not serve" in refused.all and "install metrics-server" in refused.all, refused.all
    assert "custom.metrics.k8s.io does not serve" in refused.all and "install an adapter for custom metrics" in refused.all
    register(metrics, lab, RESOURCE, CUSTOM)
    refused = autoscalers(wanted, "--dry")
    assert refused.code == 1 and "metrics-api" not in refused.all, refused.all
    planned = autoscalers(wanted, *data(allow_problems="true"), "--dry").ended(0)
    flat, flat_plan = (" ".join(text.split()) for text in (refused.all, planned.out))
    for case in CASES:
        if case.entry is not None:
            name = f"{case.rule}: "
            text = flat if case.severity == "critical" else flat_plan
            assert name in text and case.words in text and case.way_out in text, (case.name, text)
    assert "WARNING: PodDisruptionBudget t-preflight/guarded: needs-autoscaler-minimum" in flat_plan, flat_plan
    backwards = autoscalers({f"{SPACE}/deployment/fixed": {**ENTRY, "min": 5}}, "--dry")
    assert backwards.code == 1 and "min 5 is more than max 4" in backwards.all, backwards.all
    assert json.loads(lab.kubectl("get", "hpa", "-A", "-o", "json"))["items"] == []


def test_each_is_named_and_gone_after_its_way_out(lab: Lab, metrics: MetricsApi) -> None:
    register(metrics, lab, RESOURCE, CUSTOM)
    apply(lab, usual("guarded", minReplicas=1), *(case.scaler for case in CASES))
    wait_for(lambda: all(handled(lab).values()), "the controller's conditions", every=2)
    # It sees the second one only at its next look.
    wait_for(lambda: all(AMBIGUOUS in handled(lab)[one].values() for one in ("first", "second")), "its conditions of two at once", every=2)
    wait_for(lambda: waiting(lab) == 2, "pods that no node takes", every=2)
    code, found = status(*SPACES)
    assert code == 2
    ways = {}
    wrong = []
    for case in CASES:
        listed = problems(found[case.name])
        one = listed.get(case.rule)
        if (
            one is None
            or not {case.rule, *case.also} <= set(listed)
            or set(listed) - YOUNG - {case.rule, *case.also}
            or case.words not in one["why"]
            or case.way_out not in one["way_out"]
        ):
            wrong.append((case.name, listed))
            continue
        assert one["severity"] == case.severity
        assert found[case.name]["works"] is (case.severity != "critical"), found[case.name]
        ways[case.name] = one["way_out"]
        # What the controller says itself, if it says anything.
        ours = {one["type"]: one["reason"] for one in found[case.name]["conditions"]}
        theirs = handled(lab)[case.name]
        if case.severity == "critical" and not ours.items() <= theirs.items():
            wrong.append((case.name, ours, theirs))
    assert not wrong, wrong
    listed = audited()
    for case in CASES:
        one = (f"HorizontalPodAutoscaler {case.scaler['metadata']['namespace']}/{case.name}", case.rule, case.severity)
        assert one in listed, (one, listed)
    assert BUDGETED in listed
    apply(lab, usual("guarded", minReplicas=2))
    for case in CASES:
        case.follow(lab, ways[case.name])
    recommend(lab, SPACE, "vertical")
    # With fewer pods than it asks for, it is at its maximum; until the load falls.
    metrics.cpu["crowded"] = "30m"
    seen: dict[str, Any] = {}

    def gone() -> bool:
        code, now = status(*SPACES)
        seen.clear()
        left = {case.name: set(problems(now[case.name])) - (YOUNG - {case.rule}) - STAYS for case in CASES if case.name in now}
        seen.update({name: rules for name, rules in left.items() if rules})
        seen.update({name: one["why"] for name, one in now.items() if not one["works"]})
        return code == 0 and not seen

    try:
        wait_for(gone, "autoscalers without a problem", 120, every=2)
    except AssertionError:
        raise AssertionError(seen) from None
    verticals = {f"VerticalPodAutoscaler {VERTICAL}/{name}" for name in VERTICALS}
    assert {one for one in audited() if one[1] not in YOUNG | STAYS and one[0] not in verticals} == set()


def waiting(lab: Lab) -> int:
    """How many pods of the workload `crowded` the scheduler has found no node for."""
    items = json.loads(lab.kubectl("get", "pods", "-n", SPACE, "-l", "app=crowded", "-o", "json"))["items"]
    return sum(one.get("reason") == "Unschedulable" for item in items for one in item["status"].get("conditions") or ())


def test_vertical_ones_are_named_and_gone(lab: Lab, metrics: MetricsApi) -> None:
    """No recommender has looked at one for five minutes; a resize restarts the container of the other."""

    def found() -> tuple[int, dict[str, dict[str, str]]]:
        code, seen = document(VERTICAL)
        ones = seen["vertical_autoscalers"]
        return code, {one["name"]: {rule: problem["severity"] for rule, problem in problems(one).items()} for one in ones}

    wait_for(lambda: found()[1]["advised"] == {"no-recommendation": "critical"}, "five minutes without a recommendation", 360, every=5)
    assert found() == (
        2,
        {"advised": {"no-recommendation": "critical"}, "restarts": {"no-recommendation": "critical", "no-in-place": "note"}},
    )
    listed = audited()
    expected = {
        ("advised", "no-recommendation", "critical"),
        ("restarts", "no-recommendation", "critical"),
        ("restarts", "no-in-place", "note"),
    }
    assert {(f"VerticalPodAutoscaler {VERTICAL}/{name}", rule, severity) for name, rule, severity in expected} <= listed, listed
    wanted = {f"{VERTICAL}/deployment/{name}": {"mode": mode, "min_replicas": 1} for name, mode in VERTICALS.items()}
    plan = pyinfra("autoscalers", *data(vertical_autoscalers=json.dumps(wanted)), "--dry", "-y")
    flat = " ".join(plan.out.split())
    assert plan.code == 0 and "no-recommendation: no recommender has looked at it; a recommender needs a minute" in flat, plan.all
    assert "no-in-place: a resize restarts app (resizePolicy RestartContainer); resizePolicy NotRequired" in flat, plan.all
    for name in VERTICALS:
        recommend(lab, VERTICAL, name)
    apply(lab, resized("NotRequired"))
    lab.kubectl("rollout", "status", "-n", VERTICAL, "deployment/restarts", "--timeout=280s")
    assert found() == (0, {"advised": {}, "restarts": {}})
    assert not [one for one in audited() if VERTICAL in one[0]]


AMBIGUOUS = "AmbiguousSelector"
BUDGETED = (f"PodDisruptionBudget {SPACE}/guarded", "needs-autoscaler-minimum", "warning")


def audited() -> set[tuple[str, str, str]]:
    """Name, rule and severity of the audit's findings about autoscalers, and about the planted budget."""
    found = json.loads(pyinfra("audit", *data(format="json")).out)["findings"]
    return {
        (one["name"], one["value"].partition(":")[0], one["severity"])
        for one in found
        if one["kind"] == "autoscaler" or (one["kind"] == "disruption" and one["name"] == BUDGETED[0])
    }


def handled(lab: Lab) -> dict[str, dict[str, str]]:
    """The reasons of the conditions that the controller has set, by autoscaler."""
    return {
        item["metadata"]["name"]: {one["type"]: one["reason"] for one in (item.get("status") or {}).get("conditions") or ()}
        for item in json.loads(lab.kubectl("get", "hpa", "-A", "-o", "json"))["items"]
    }
