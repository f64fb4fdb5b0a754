"""Plans of the deploys that write objects and labels, and of the checks, for tests/unit/fuzz/test_plans.py."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cache
from random import Random
from typing import Any

from roles.checks import evidence, judge
from roles.desired import NodeDesired, of_the_cluster, read_desired
from roles.engine.api import ApiError, NoApi
from roles.engine.api.nodes import kubelet_config
from roles.engine.findings.render import junit, summary
from roles.engine.node import ObservationError
from roles.engine.objects import undo_plan
from roles.engine.transaction import ObjectsRecord, Refusal
from roles.engine.transaction.object_record import parse as parse_objects
from roles.metrics_server import facts, health, objects, own_pod, places, plan_objects
from roles.metrics_server import judge as judge_needs
from roles.metrics_server import plan_undo as server_back
from roles.metrics_server.manifests import WantedServer
from roles.metrics_server.preflight import KubeletFacts
from roles.node_labels import NODE, plan_labels, read_labels
from roles.node_labels import plan_undo as labels_back
from roles.node_labels.plan import label_requests
from roles.priority_classes import ObservedClasses, plan_classes, plan_undo
from tests.unit import labelled_nodes as labelled
from tests.unit.checks import world as checked
from tests.unit.disruption.world import budget, deployment
from tests.unit.disruption.world import world as disrupted_world
from tests.unit.eviction.pods import node as used_node
from tests.unit.fuzz.mutation import TEXTS, anything, mutated, mutated_line
from tests.unit.metrics_server import world as served
from tests.unit.node import node
from tests.unit.priority_classes import world as classed


class Kubelet:
    """An API that passes on what a kubelet says, by the end of the path that asks for it."""

    host = "cp1"

    def __init__(self, answers: Mapping[str, Any], pods: list[Any]) -> None:
        self.answers, self.pods = answers, pods

    def get_json(self, path: str, timeout: float = 0, *, wait: float = 0.0) -> dict[str, Any]:
        said = next((answer for end, answer in self.answers.items() if path.endswith(end)), None)
        if said is not None:
            return said if isinstance(said, dict) else {}
        return {"items": self.pods} if "/pods" in path else used_node(memory="8Gi")


class Objects:
    """A session whose API has these objects, by the end of their path."""

    def __init__(self, one: Mapping[str, Any], several: Mapping[str, list[Any]]) -> None:
        self.one, self.several = one, several

    def fetch(self, path: str) -> Any:
        return next((found for end, found in self.one.items() if path.endswith(end)), None)

    def fetch_all(self, path: str) -> Any:
        return next((found for end, found in self.several.items() if path.endswith(end)), [])


def recorded(random: Random, actions: list[tuple[str, str, str, str, list[dict[str, Any]], dict[str, Any]]]) -> ObjectsRecord | None:
    """The record of a run with these objects (name, what, path, uid, fields, about), as a node may show it: any value of any type."""
    lines = [
        {**about, "event": "plan", "object": name, "what": what, "path": path, "uid": uid, "fields": fields}
        for name, what, path, uid, fields, about in actions
    ]
    first = {"kind": "objects", "component": "x", "about": {}, "change": "c"}
    events = anything(random, json.loads(json.dumps([first, *lines])))
    try:
        return parse_objects("r1", [one for one in events if isinstance(one, dict)]) if isinstance(events, list) else None
    except ValueError:
        return None


# ---- the metrics server


@cache
def _server() -> Any:
    return served.server()


SERVED = {"kubeletconfig": {"authentication": {"webhook": {"enabled": True}, "anonymous": {"enabled": False}}, "authorization": {"mode": "Webhook"}}}  # fmt: skip
POLICY = {"metadata": {"name": "all", "namespace": "kube-system"}, "spec": {"podSelector": {"matchLabels": {"a": "b"}}}}
SERVICE = {"metadata": {"name": "m", "namespace": "shop"}, "spec": {"selector": {"app": "m"}}}
API_SERVICE = {
    "metadata": {
        "name": "v1beta1.metrics.k8s.io",
        "managedFields": [{"manager": "helm", "operation": "Update", "fieldsV1": {"f:spec": {"f:service": {}}}}],
    },
    "spec": {"service": {"namespace": "shop", "name": "m"}},
    "status": {"conditions": [{"type": "Available", "status": "False", "reason": "Failed", "message": "no answer"}]},
}
OTHERS = {
    "metadata": {"name": "m", "namespace": "shop"},
    "spec": {
        "replicas": 1,
        "template": {
            "metadata": {"labels": {"app": "m"}},
            "spec": {
                "containers": [
                    {"name": "m", "command": ["/m"], "args": ["--metric-resolution=15s"], "resources": {"requests": {"cpu": "1"}}}
                ]
            },
        },
    },
}


def metrics_server(random: Random) -> None:
    nodes = [mutated(random, served.node(name)) for name in ("w1", "w2")]
    pods = [mutated(random, served.pod("a", "w1", "1", app="web"))]
    kubelets = [served.kubelet()]
    with contextlib.suppress(ApiError):
        said = kubelet_config(Kubelet({"configz": anything(random, SERVED)}, []), "w1")  # type: ignore[arg-type]
        kubelets.append(KubeletFacts("w1", said, None, random.choice(TEXTS)))
    published = mutated(random, {"metadata": {"name": "x"}, "data": {"requestheader-client-ca-file": "pem", "a": "b"}})
    flags = {name: random.choice((*TEXTS, None)) if random.random() < 0.2 else value for name, value in served.FLAGS.items()}
    server = replace(_server(), flags=flags)
    needs = served.needs(servers=[server], nodes=nodes, kubelets=kubelets, published=published, policies=[mutated(random, POLICY)])
    wanted = served.desired()
    judge_needs(needs, wanted, served.NOW)
    with contextlib.suppress(NoApi):
        places(nodes, pods, own_pod(wanted.metrics_server, 2))
    _applied(random, objects(wanted.metrics_server, 2, 2))
    _metrics(random, nodes)
    _of_others(random)


def _applied(random: Random, wanted: list[WantedServer]) -> None:
    """The plan, and the undo of a run."""
    there = {one.path: mutated(random, served.live(one)) for one in wanted}
    plan_objects(wanted, there, force=random.random() < 0.5)
    lines = [asdict(served.recorded(one, "update", {}, {"metadata": {"labels": {}}})) for one in wanted]
    record = recorded(random, [(one["name"], one["action"], one["about"]["path"], "", one["fields"], one["about"]) for one in lines])
    if record is not None:
        server_back(record, there, force=random.random() < 0.5)


def _metrics(random: Random, nodes: list[Any]) -> None:
    answers = [anything(random, [served.metrics("w1"), served.metrics("w2")]), anything(random, [{"metadata": {"name": "a"}}])]
    health.judge(nodes, *answers, served.NOW, 15)
    health.unavailable(mutated(random, API_SERVICE))


def _of_others(random: Random) -> None:
    session: Any = Objects(
        {"metrics.k8s.io": mutated(random, API_SERVICE), "/services/m": mutated(random, SERVICE)},
        {"deployments": [mutated(random, OTHERS)], "poddisruptionbudgets": [mutated(random, budget(minAvailable=1))]},
    )
    found = facts.read_installed(session)
    if found is not None:
        health.remarks(found, 2, has_budget=False)
        health.resolution(found.deployment)
        if found.deployment is not None:
            facts.pod_of(found.deployment)
            facts.has_budget(session, found.deployment)


# ---- labels and taints


def node_labels(random: Random) -> None:
    own = {"manager": "daytwo", "operation": "Apply", "fieldsV1": labelled.labels_of("rack")}
    there = labelled.node({"rack": "a1", "zone": "b"}, [{"key": "old", "value": "x", "effect": "NoSchedule"}])
    there["metadata"]["managedFields"].append(own)
    found = mutated(random, there)
    tolerated = {"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoExecute", "tolerationSeconds": 30}
    pods = {labelled.PATH: [mutated(random, labelled.pod("web-0", tolerated))]}
    data = {"node_labels": "rack=b2,zone=absent", "node_taints": "dedicated=gpu:NoExecute,old=absent", "force": random.random() < 0.5}
    plan = plan_labels(read_labels([("w1", data.get)]), {"w1": "w1"}, {labelled.PATH: found}, pods)
    for change in plan.actions:
        label_requests(change.before, change.after)
    fields = [{"path": ["metadata", "labels", "rack"], "before": "a0", "after": "a1"}]
    fields.append({"path": ["spec", "taints", "old", "NoSchedule"], "before": None, "after": "x"})
    record = recorded(random, [("Node w1", "update", labelled.PATH, "uid-w1", fields, {})])
    if record is not None:
        back = undo_plan(record, [NODE], {labelled.PATH: found}, force=False)
        for change in labels_back(back, pods, force=False, allow_evictions=True).actions:
            label_requests(change.before, change.after)


# ---- priority classes


CLASSES = {"low": 1, "high": {"value": 9, "globalDefault": True, "description": "x"}}
WORKLOADS = {"default/deployment/web": "high", "default/daemonset/agent": "low"}


def _live(random: Random) -> ObservedClasses:
    web, agent = classed.workload("Deployment", "web", "low"), classed.workload("DaemonSet", "agent", "old")
    replica_set = classed.owned(classed.workload("ReplicaSet", "web-1", "low"), web)
    items = {
        "Deployment": [web], "DaemonSet": [agent], "ReplicaSet": [replica_set], "StatefulSet": [classed.workload("StatefulSet", "db", "old")],
        "Pod": [classed.pod("web-1-a", "low", replica_set), classed.ending(classed.pod("agent-a", "old", agent))],
    }  # fmt: skip
    classes = [classed.priority_class("low", 1), classed.priority_class("high", 8, "helm"), classed.priority_class("old", 3)]
    classes.append(classed.priority_class("first", 4, globalDefault=True, labels={"a": "b"}))
    return classed.cluster(
        *(mutated(random, one) for one in classes), **{kind: [mutated(random, one) for one in found] for kind, found in items.items()}
    )


def priority_classes(random: Random) -> None:
    consents = {key: random.random() < 0.5 for key in ("replace", "prune", "force")}
    live = _live(random)
    plan = plan_classes(classed.wanted(priority_classes=CLASSES, workloads=WORKLOADS, **consents), live)
    done = [
        (
            one.name,
            one.what,
            one.path,
            "",
            [{"path": list(field.path), "before": field.before, "after": field.after} for field in one.fields],
            dict(one.about),
        )
        for one in plan.actions
    ]
    if (record := recorded(random, done)) is not None:
        plan_undo(record, _live(random), force=random.random() < 0.5, rollout_seconds=60)


# ---- the checks


@cache
def _desired() -> NodeDesired:
    data: dict[str, Any] = {
        "feature_gates": "A=true", "kubelet_config": {"maxPods": 100, "evictionHard": {"memory.available": "1Gi"}},
        "eviction_hard": "memory.available=200Mi", "control_plane_flags": {"kube-apiserver": {"v": "2"}},
    }  # fmt: skip
    return read_desired("w1", data.get)


UNIT = node.b64("ActiveState=active\nMainPID=100\nNRestarts=0\nUnitFileState=enabled\n")
MOMENTS = (
    f"moment 10.5 5000 {UNIT}", f"health kubelet 200 {node.b64('ok')}", f"health kube-apiserver 500 {node.b64('[-]etcd failed')}", "end",
)  # fmt: skip


HEAD = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
CONFIGURATION = {**checked.CONFIGURATION, **SERVED["kubeletconfig"], "systemReserved": {"cpu": "100m"}, "shutdownGracePeriod": "30s"}


def checks(random: Random) -> None:
    components = {"kube-apiserver": checked.APISERVER} if random.random() < 0.5 else {}
    manifests = {f"{name}.yaml": node.manifest(name, *argv[1:]) for name, argv in components.items()}
    file = json.dumps({**HEAD, **anything(random, CONFIGURATION)}).encode()
    lines = node.answer(components=components, manifests=manifests, files={"/var/lib/kubelet/config.yaml": file})
    answer = list(MOMENTS)
    for said in (lines, answer):
        if random.random() < 0.3:
            place = random.randrange(len(said))
            said[place] = mutated_line(random, said[place])
    with contextlib.suppress(Refusal, ObservationError, ApiError):
        found = evidence.of_observation(node.parse("w1", lines))
        if found.seen is not None:
            evidence._watch(found.seen)
        moments, well = evidence.parse("w1", answer)
        shown = kubelet_config(Kubelet({"configz": anything(random, {"kubeletconfig": CONFIGURATION})}, []), "w1")  # type: ignore[arg-type]
        whole = replace(found, moments=moments, health=well, configuration=shown, node=mutated(random, checked.READY), obstacles=())
        results = judge.node(whole, _desired())
        junit([*results, *_objects(random)])
        summary(results)


def _objects(random: Random) -> list[judge.Result]:
    data: dict[str, Any] = {
        "priority_classes": CLASSES, "workloads": WORKLOADS,
        "disruption_budgets": {"shop/web": {"workload": "deployment/web", "max_unavailable": 1}, "shop/old": "absent"},
    }  # fmt: skip
    there = [mutated(random, one) for one in (*deployment(2, 2), budget(minAvailable=1))]
    found = judge.ClusterFound(_live(random), disrupted_world(*there))
    return judge.cluster(of_the_cluster([("cp1", data.get)]), found)


PLANS = (metrics_server, node_labels, priority_classes, checks)
