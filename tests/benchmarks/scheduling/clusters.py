"""Generated clusters for comparing with the real scheduler: the same seed makes the same cluster, as the API's JSON.

3 to 8 nodes and 5 to 30 pods, with everything that a filter of kube-scheduler looks at. Evenly random, so that pods compete often. What the
API server adds when a pod is created is there: merged matchLabelKeys and mismatchLabelKeys, the taint of a cordon.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
GPU, DRIVER = "example.com/gpu", "csi.example.com"
CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
Json = dict[str, Any]

_TAINTS = tuple(
    {"key": key, "effect": effect, **({"value": value} if value else {})}
    for key, value, effect in (
        ("gpu", "", "NoSchedule"),
        ("team", "a", "NoSchedule"),
        ("team", "b", "NoExecute"),
        ("spot", "", "PreferNoSchedule"),
    )
)
_NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}
_TOLERATIONS: tuple[Json, ...] = (
    {"key": "gpu", "operator": "Exists"},
    {"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"},
    {"key": "team", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
    {"key": "team", "value": "b"},
    {"operator": "Exists", "effect": "NoExecute"},
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists"},
)
_EVERYTHING = {"operator": "Exists"}
_NAMESPACES = {"x": {"team": "a"}, "y": {"team": "b"}, "z": {}}


@dataclass(frozen=True)
class Cluster:
    """`objects`: by kind. `without`: the nodes that go. `moving`: their pods, as their controllers create them again, in this order."""

    seed: int
    objects: dict[str, list[Json]]
    without: tuple[str, ...]
    moving: tuple[Json, ...] = field(default=())


def cluster_of(seed: int) -> Cluster:
    return _Draw(seed).cluster()


class _Draw:
    def __init__(self, seed: int) -> None:
        self._seed, self._dice = seed, Random(seed)
        self._nodes: list[Json] = []
        self._pods: list[Json] = []
        self._claims: list[Json] = []
        self._volumes: list[Json] = []
        self._apps: list[str] = []
        #: One node stays, and pods want to be near others: some find a place only after these.
        self._tight = self._one_in(8)
        #: What is about free on each node: millicores, MiB, pods.
        self._free: dict[str, list[int]] = {}

    def _one_in(self, number: int) -> bool:
        return self._dice.randrange(number) == 0

    def cluster(self) -> Cluster:
        dice = self._dice
        self._nodes = [self._node(number) for number in range(3 if self._tight else dice.randint(3, 8))]
        if self._one_in(3):
            self._daemons()
        wanted, workload = dice.randint(5, min(30, 5 * len(self._nodes))), 0
        while len(self._pods) < wanted:
            self._workload(workload, min(dice.choice((1, 1, 2, 3, 5)), wanted - len(self._pods)))
            workload += 1
        without = self._going()
        return Cluster(self._seed, self._objects(), without, tuple(self._moving(without)))

    def _objects(self) -> dict[str, list[Json]]:
        names = [one["metadata"]["name"] for one in self._nodes]
        drivers = [{"name": DRIVER, "nodeID": "n", "topologyKeys": [], "allocatable": {"count": self._dice.choice((1, 3, 20))}}]
        return {
            "Namespace": [{"metadata": {"name": name, "labels": labels}} for name, labels in _NAMESPACES.items()],
            "Node": self._nodes,
            "Pod": self._pods,
            "PersistentVolumeClaim": self._claims,
            "PersistentVolume": self._volumes,
            "CSINode": [{"metadata": {"name": name}, "spec": {"drivers": drivers}} for name in names],
            "VolumeAttachment": [],
        }

    # ---- nodes

    def _node(self, number: int) -> Json:
        dice, name = self._dice, f"s{self._seed}-w{number}"
        cpu, memory, most = dice.choice((2, 4, 4, 8)), dice.choice((2, 4, 8, 8)), dice.choice((5, 8, 110, 110))
        self._free[name] = [cpu * 1000, memory * 1024, most]
        labels = {HOST: name, "disk": dice.choice(("ssd", "hdd")), "size": str(dice.randint(1, 5))}
        if not self._one_in(8):
            labels[ZONE] = dice.choice("abc")
        room = {"cpu": str(cpu), "memory": f"{memory}Gi", "pods": str(most), "ephemeral-storage": dice.choice(("2Gi", "20Gi"))}
        if self._one_in(3):
            room[GPU] = dice.choice("124")
        taints = [dict(dice.choice(_TAINTS))] if self._one_in(4) else []
        ready, cordoned = not self._one_in(20), self._one_in(16)
        if self._tight and not number:
            self._free[name], taints, ready, cordoned = [0, 0, 0], [], True, False
            room |= {"cpu": "8", "memory": "8Gi", "pods": "110"}
        if not ready and self._one_in(2):
            taints.append(_NOT_READY)
        return {
            "metadata": {"name": name, "uid": name, "labels": labels},
            "spec": {"unschedulable": True, "taints": [*taints, CORDON]} if cordoned else {"taints": taints},
            "status": {
                "allocatable": room,
                "capacity": room,
                "conditions": [{"type": "Ready", "status": "True" if ready else "Unknown"}],
            },
        }

    def _going(self) -> tuple[str, ...]:
        names = [one["metadata"]["name"] for one in self._nodes]
        if self._tight:
            return tuple(names[1:])
        return tuple(self._dice.sample(names, min(self._dice.choice((1, 1, 2, 3)), len(names) - 2)))

    # ---- pods

    def _daemons(self) -> None:
        for node in self._nodes:
            name = node["metadata"]["name"]
            terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}]
            wants = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
            spec = {"containers": [_container({"cpu": "50m"}, 9100)], "affinity": wants, "tolerations": [_EVERYTHING], "priority": 0}
            self._add(self._pod(f"agent-{name}", "z", {"app": "agent"}, spec, "DaemonSet"), name, (50, 0))

    def _workload(self, number: int, replicas: int) -> None:
        dice = self._dice
        namespace = "x" if self._tight else dice.choice(("x", "x", "x", "y", "z"))
        labels = {"app": dice.choice(("web", "db", f"w{number}")), "tier": dice.choice("ab"), "rev": dice.choice("12")}
        spec, size = self._containers()
        self._wants_of_nodes(spec)
        self._wants_of_pods(spec, labels)
        self._apps.append(labels["app"])
        self._rank(spec)
        shared = self._claim(f"w{number}", namespace) if self._one_in(10) else ""
        own_claims = not shared and self._one_in(8)
        other = self._one_in(25)
        for replica in range(replicas):
            claim = self._claim(f"w{number}-{replica}", namespace) if own_claims else shared
            own = dict(spec)
            if claim:
                own["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]
            if other:
                own["schedulerName"] = "other"
            node = "" if self._one_in(40) else self._home(own, size)
            self._add(self._pod(f"w{number}-{replica}", namespace, labels, own, "ReplicaSet"), node, size)

    def _pod(self, name: str, namespace: str, labels: Json, spec: Json, owner: str) -> Json:
        controller = {"apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": f"{name.rpartition('-')[0]}-o", "controller": True}
        meta = {"name": f"s{self._seed}-{name}", "namespace": namespace, "labels": labels, "ownerReferences": [controller]}
        return {"metadata": meta | {"uid": f"s{self._seed}-{name}"}, "spec": spec}

    def _add(self, pod: Json, node: str, size: Sequence[int]) -> None:
        """On a node, some being deleted and a few over; or waiting for one."""
        if node:
            pod = {**pod, "spec": {**pod["spec"], "nodeName": node}, "status": {"phase": "Running"}}
            for index, amount in enumerate((*size, 1)):
                self._free[node][index] -= amount
            if self._one_in(25):
                pod["metadata"] = {**pod["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30}
            elif self._one_in(40):
                pod["status"] = {"phase": "Succeeded"}
        else:
            pod = {**pod, "status": {"phase": "Pending"}}
        self._pods.append(pod)

    def _home(self, spec: Json, size: Sequence[int]) -> str:
        """Mostly a node with room that its selector names; sometimes any: what is true when a pod is placed need not be later."""
        names = [one["metadata"]["name"] for one in self._nodes]
        wanted = (spec.get("nodeSelector") or {}).items()
        suits = [
            one["metadata"]["name"]
            for one in self._nodes
            if wanted <= one["metadata"]["labels"].items()
            and all(have >= amount for have, amount in zip(self._free[one["metadata"]["name"]], (*size, 1), strict=True))
        ]
        return self._dice.choice(names if not suits or self._one_in(20) else suits)

    def _containers(self) -> tuple[Json, tuple[int, int]]:
        """The spec, and about what it asks for: millicores, MiB."""
        dice = self._dice
        cpu, memory = dice.choice((0, 100, 250, 250, 500, 1000, 1500)), dice.choice((0, 64, 128, 128, 256, 512, 1024))
        requests = {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}
        if self._one_in(12):
            requests[GPU] = dice.choice("12")
        if self._one_in(6):
            requests["ephemeral-storage"] = dice.choice(("500Mi", "1500Mi"))
        if not (cpu or memory) and self._one_in(2):
            requests = {}
        port = dice.choice((80, 8080)) if self._one_in(10) else 0
        spec: Json = {"containers": [_container(requests, port, dice.choice(("", "", "10.0.0.1")), dice.choice(("TCP", "TCP", "UDP")))]}
        if self._one_in(8):
            spec["initContainers"] = [
                {"name": "first", "resources": {"requests": {"cpu": dice.choice(("100m", "2"))}}},
                {"name": "sidecar", "restartPolicy": "Always", "resources": {"requests": {"cpu": "200m", "memory": "100Mi"}}},
                {"name": "last", "resources": {"requests": {"memory": dice.choice(("100Mi", "1Gi"))}}},
            ]
        if self._one_in(12):
            spec["overhead"] = {"cpu": "150m", "memory": "64Mi"}
        if self._one_in(15):
            spec["resources"] = {"requests": {"cpu": dice.choice(("600m", "1100m"))}}
        return spec, (cpu, memory)

    def _rank(self, spec: Json) -> None:
        spec["priority"] = self._dice.choice((0, 0, 0, 0, 0, 0, 0, 0, 10, 100))
        spec["preemptionPolicy"] = "Never" if self._one_in(4) else "PreemptLowerPriority"

    def _wants_of_nodes(self, spec: Json) -> None:
        dice = self._dice
        if self._one_in(3):
            spec["tolerations"] = dice.sample(_TOLERATIONS, dice.randint(1, 2))
        elif self._one_in(30):
            spec["tolerations"] = [_EVERYTHING]
        if self._one_in(8):
            key = dice.choice(("disk", ZONE))
            spec["nodeSelector"] = {key: dice.choice(("ssd", "hdd") if key == "disk" else "ab")}
        if self._one_in(6):
            terms = [{"matchExpressions": [self._node_expression() for _ in range(dice.randint(1, 2))]} for _ in range(dice.randint(1, 2))]
            found: Json = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
            if self._one_in(3):
                preference = {"matchExpressions": [self._node_expression()]}
                found = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 50, "preference": preference}]}
            spec["affinity"] = {"nodeAffinity": found}

    def _node_expression(self) -> Json:
        dice = self._dice
        return dice.choice(
            (
                {"key": ZONE, "operator": "In", "values": dice.sample("abc", 2)},
                {"key": ZONE, "operator": "NotIn", "values": [dice.choice("abc")]},
                {"key": ZONE, "operator": "Exists"},
                {"key": "disk", "operator": "NotIn", "values": ["hdd"]},
                {"key": GPU, "operator": "DoesNotExist"},
                {"key": "size", "operator": "Gt", "values": ["2"]},
                {"key": "size", "operator": "Lt", "values": ["4"]},
            )
        )

    def _wants_of_pods(self, spec: Json, labels: Json) -> None:
        dice = self._dice
        kinds = [kind for kind, number in (("podAffinity", 3 if self._tight else 12), ("podAntiAffinity", 10)) if self._one_in(number)]
        if kinds:
            wants = {}
            for kind in kinds:
                term = self._term(labels)
                if kind == "podAffinity" and self._apps and self._one_in(2):
                    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": dice.choice(self._apps)}}}
                if self._one_in(4):
                    wants[kind] = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 10, "podAffinityTerm": term}]}
                else:
                    more = [self._term(labels)] if self._one_in(6) else []
                    wants[kind] = {"requiredDuringSchedulingIgnoredDuringExecution": [term, *more]}
            spec["affinity"] = spec.get("affinity", {}) | wants
        if self._one_in(7):
            rules = [self._spread(key, labels) for key in dice.sample((HOST, ZONE), dice.choice((1, 1, 2)))]
            spec["topologySpreadConstraints"] = rules

    def _selector(self, labels: Json) -> Json:
        dice = self._dice
        if not self._one_in(4):
            return {"matchLabels": {"app": labels["app"]}}
        return dice.choice(
            (
                {"matchLabels": {"app": dice.choice(("web", "db"))}},
                {"matchLabels": {"tier": dice.choice("ab")}},
                {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db"]}]},
                {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [labels["app"]]}]},
                {"matchExpressions": [{"key": "none", "operator": "DoesNotExist"}]},
                {},
            )
        )

    def _term(self, labels: Json) -> Json:
        dice, found = self._dice, {"topologyKey": self._dice.choice((HOST, HOST, ZONE)), "labelSelector": self._selector(labels)}
        if self._one_in(5):
            found["namespaces"] = dice.sample(("x", "y"), dice.randint(1, 2))
        if self._one_in(5):
            found["namespaceSelector"] = dice.choice(({}, {"matchLabels": {"team": "a"}}, {"matchLabels": {"team": "b"}}))
        if self._one_in(5):
            how, operator = dice.choice((("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")))
            found[how] = ["rev"]
            found["labelSelector"] = _merged(found["labelSelector"], operator, labels)
        if self._one_in(30):
            del found["labelSelector"]
            found = {key: value for key, value in found.items() if not key.endswith("LabelKeys")}
        return found

    def _spread(self, key: str, labels: Json) -> Json:
        dice = self._dice
        found: Json = {"topologyKey": key, "maxSkew": dice.choice((1, 1, 2, 3)), "labelSelector": self._selector(labels)}
        found["whenUnsatisfiable"] = "ScheduleAnyway" if self._one_in(5) else "DoNotSchedule"
        if found["whenUnsatisfiable"] == "DoNotSchedule" and self._one_in(4):
            found["minDomains"] = dice.randint(1, 4)
        if self._one_in(3):
            found["nodeTaintsPolicy"] = dice.choice(("Honor", "Ignore"))
        if self._one_in(4):
            found["nodeAffinityPolicy"] = dice.choice(("Honor", "Ignore"))
        if self._one_in(5):
            found |= {"matchLabelKeys": ["rev"], "labelSelector": _merged(found["labelSelector"], "In", labels)}
        return found

    # ---- volumes

    def _claim(self, name: str, namespace: str) -> str:
        """A bound one: of a local disk, of a zone, by the labels of zones, or of a CSI driver."""
        dice, name = self._dice, f"s{self._seed}-{name}"
        mode = dice.choice(("ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"))
        spec: Json = {"accessModes": [mode], "capacity": {"storage": "1Gi"}, "storageClassName": "none"}
        spec["claimRef"] = {"kind": "PersistentVolumeClaim", "namespace": namespace, "name": name, "uid": name}
        labels: Json = {}
        match dice.choice(("local", "zone", "label", "csi")):
            case "local":
                spec |= {"nodeAffinity": _of_nodes(HOST, [dice.choice(self._nodes)["metadata"]["name"]])}
            case "zone":
                spec |= {"nodeAffinity": _of_nodes(ZONE, dice.sample("abc", dice.randint(1, 2)))}
            case "label":
                labels = {ZONE: dice.choice(("a", "b", "a__b"))}
            case "csi":
                spec |= {"csi": {"driver": DRIVER, "volumeHandle": name}}
        bound = {"pv.kubernetes.io/bind-completed": "yes"}
        self._volumes.append({"metadata": {"name": name, "uid": f"{name}-v", "labels": labels}, "spec": spec, "status": {"phase": "Bound"}})
        asked = {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "none", "volumeName": name}
        self._claims.append(
            {
                "metadata": {"name": name, "namespace": namespace, "uid": name, "annotations": bound},
                "spec": asked,
                "status": {"phase": "Bound", "accessModes": [mode], "capacity": {"storage": "1Gi"}},
            }
        )
        return name

    # ---- what moves

    def _moving(self, without: Sequence[str]) -> list[Json]:
        there = [
            one
            for one in self._pods
            if one["spec"].get("nodeName") in without
            and "deletionTimestamp" not in one["metadata"]
            and one["status"]["phase"] == "Running"
            and one["metadata"]["ownerReferences"][0]["kind"] != "DaemonSet"
        ]
        self._dice.shuffle(there)
        gates = [{"schedulingGates": [{"name": "example.com/gate"}]} if self._one_in(40) else {} for _ in there]
        return [{**one, "spec": one["spec"] | gate} for one, gate in zip(there, gates, strict=True)]


def _container(requests: Json, port: int = 0, address: str = "", protocol: str = "TCP") -> Json:
    found: Json = {"name": "c", "resources": {"requests": requests}}
    if port:
        found["ports"] = [{"containerPort": port, "hostPort": port, "protocol": protocol} | ({"hostIP": address} if address else {})]
    return found


def _merged(selector: Json, operator: str, labels: Json) -> Json:
    """As the API server writes it (pkg/registry/core/pod/strategy.go: applyMatchLabelKeysAndMismatchLabelKeys)."""
    more = {"key": "rev", "operator": operator, "values": [labels["rev"]]}
    return {**selector, "matchExpressions": [*selector.get("matchExpressions", ()), more]}


def _of_nodes(key: str, values: Sequence[str]) -> Json:
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}]
    return {"required": {"nodeSelectorTerms": terms}}
