"""Prediction equals reality: what roles.eviction.predict says of a saved summary, against what a real kubelet then does.

The predictor sees a summary and pods that were saved before anything happened. Then the node runs short: of memory by a file in
memory outside of all pods, of disk by a file on the small ext4 that the kubelet's folder lies on for these tests, of inodes by many
files there; once by a threshold that is raised above what is available. The kubelet's own line "pods ranked for eviction", and what
it evicts, are compared with the prediction. One worker runs short of memory, another of disk, at the same time; both are pristine
again in the end.
"""

from __future__ import annotations

import itertools
import json
import random
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from roles.engine.kube import full_name
from roles.engine.kubelet.thresholds import MEMORY, NODEFS, NODEFS_INODES, Amount, Threshold
from roles.eviction import predict
from roles.eviction.predict import Prediction
from tests.integration.operator import data, pyinfra, wait_for
from tests.lab import Lab, images

pytestmark = pytest.mark.lab

MI = 2**20
# Beside no class at all, which is 0. The critical one is Kubernetes' own.
PRIORITIES = {"eviction-test-low": -100, "eviction-test-high": 1000}
CRITICAL = "system-cluster-critical"
STATIC_PODS = "/etc/kubernetes/manifests"
EXTRA_ARGUMENTS = "/etc/default/kubelet"
BALLAST = "/run/eviction-ballast"
SMALL = "/srv/small"
# On the file system that containerd has, so that neither the images nor the node's own overlay hold it up.
IMAGE = "/var/lib/containerd/eviction-test.img"
SMALL_SIZE = 512 * MI
SMALL_INODES = 16384
# What is left to the node before the memory threshold, with no pods: what the pods of a scenario and their shims use fits in.
ROOM = 1200 * MI
DISK_LIMIT = 96 * MI
DISK_RECLAIM = 4 * MI
INODES_LIMIT = 2000


# ---- scenarios


@dataclass(frozen=True)
class Scenario:
    """`short_of` memory, disk or inodes until `victims` pods have gone. `critical`, `static`: the pod that uses most cannot go."""

    name: str
    short_of: str
    seed: int
    victims: int
    critical: bool = False
    static: bool = False
    raised: bool = False

    @property
    def signal(self) -> str:
        return {"memory": MEMORY, "disk": NODEFS, "inodes": NODEFS_INODES}[self.short_of]


SCENARIOS = [
    Scenario("memory-1", "memory", 101, 2),
    Scenario("memory-2", "memory", 102, 1),
    Scenario("memory-3", "memory", 103, 3),
    Scenario("memory-critical", "memory", 104, 2, critical=True),
    Scenario("memory-static", "memory", 105, 2, static=True),
    Scenario("memory-6", "memory", 106, 3),
    Scenario("memory-raised", "memory", 107, 2, raised=True),
    Scenario("disk-1", "disk", 201, 2),
    Scenario("disk-2", "disk", 202, 1),
    Scenario("disk-critical", "disk", 203, 2, critical=True),
    Scenario("disk-4", "disk", 204, 3),
    Scenario("disk-5", "disk", 205, 2),
    Scenario("inodes-1", "inodes", 301, 2),
    Scenario("inodes-2", "inodes", 302, 3),
]
QUICK = ("memory-1", "disk-1")


@dataclass(frozen=True)
class Wanted:
    """A pod: `usage` and `request` in MiB; of inodes, files and bytes. `logs` in KiB."""

    name: str
    priority_class: str
    quality: str
    usage: int
    request: int
    logs: int = 0


@dataclass(frozen=True)
class Scale:
    """What pods use, and how far apart two must be that the kubelet cannot see them the other way round. In the units of Wanted."""

    usages: tuple[int, ...]
    requests: tuple[int, ...]
    apart: int


SCALES = {
    "memory": Scale((48, 64, 80, 96, 112), (0, 16, 32, 48, 64, 96, 128, 144), 14),
    "disk": Scale((16, 24, 32, 40, 48), (0, 8, 16, 24, 32, 40, 56, 64), 7),
    "inodes": Scale((200, 300, 400, 500, 600), (0, 0, 100, 250, 400), 60),
}
RAISED = Scale((160, 192, 224), (0, 16, 32), 14)


def wanted(scenario: Scenario) -> list[Wanted]:
    """The scenario's pods; no two of them so alike that chance would decide."""
    chance = random.Random(scenario.seed)
    scale = RAISED if scenario.raised else SCALES[scenario.short_of]
    while True:
        pods = []
        for index in range(4 if scenario.raised else 5):
            quality = "Burstable" if scenario.raised else chance.choice(("BestEffort", "Burstable", "Burstable", "Guaranteed"))
            usage, request = chance.choice(scale.usages), chance.choice(scale.requests)
            if scenario.short_of == "memory":
                # What is in memory counts against the limit, which is the request here.
                request = {"BestEffort": 0, "Guaranteed": usage + 32}.get(quality, request or 16)
            priority_class = chance.choice(("", *PRIORITIES))
            logs = chance.choice((0, 0, 512)) if scenario.short_of == "disk" else 0
            pods.append(Wanted(f"{scenario.name}-{index}", priority_class, quality, usage, request, logs))
        if scenario.critical:
            pods[0] = Wanted(f"{scenario.name}-0", CRITICAL, "Burstable", max(scale.usages), min(filter(None, scale.requests)))
        if _far_enough(scenario, pods, scale.apart):
            return pods


def _far_enough(scenario: Scenario, pods: list[Wanted], apart: int) -> bool:
    groups: dict[tuple[bool, str], list[int]] = {}
    for pod in pods:
        if scenario.short_of != "inodes" and abs(pod.usage - pod.request) < apart:
            return False
        over = scenario.short_of == "inodes" or pod.usage > pod.request
        groups.setdefault((over, pod.priority_class), []).append(pod.usage - pod.request)
    for group in groups.values():
        group.sort()
        if any(after - before < apart for before, after in itertools.pairwise(group)):
            return False
    # A scenario in which one rule decides all would show little.
    return len(groups) >= (1 if scenario.raised else 3) and len({over for over, _ in groups}) >= (
        2 if scenario.short_of != "inodes" and not scenario.raised else 1
    )


def manifest(scenario: Scenario, pod: Wanted, node: str, static: bool = False) -> dict[str, Any]:
    fill = f"dd if=/dev/zero of=/fill/data bs=1M count={pod.usage} 2>/dev/null"
    if scenario.short_of == "inodes":
        fill = f"i=0; while [ $i -lt {pod.usage} ]; do : >/fill/$i; i=$((i+1)); done"
    # A line's end, or containerd would keep the last 16 KiB to itself.
    log = f"head -c {pod.logs * 1024} /dev/zero; echo; " if pod.logs else ""
    requests: dict[str, str] = {} if pod.quality == "BestEffort" else {"cpu": "10m"}
    limits: dict[str, str] = {}
    if scenario.short_of == "memory" and pod.request:
        requests["memory"] = f"{pod.request}Mi"
    if pod.quality == "Guaranteed":
        # With less runc does not always get a throttled process frozen (cgroup v1), and the container does not start.
        requests["cpu"] = "200m"
        requests.setdefault("memory", "64Mi")
        limits = dict(requests)
    if scenario.short_of != "memory" and pod.request:
        requests["ephemeral-storage"] = f"{pod.request}Mi" if scenario.short_of == "disk" else str(pod.request)
    spec: dict[str, Any] = {
        "terminationGracePeriodSeconds": 1,
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "tolerations": [{"operator": "Exists"}],
        "volumes": [{"name": "fill", "emptyDir": {"medium": "Memory"} if scenario.short_of == "memory" else {}}],
        "containers": [
            {
                "name": "app",
                "image": f"{images.REPOSITORY}/app:1",
                "imagePullPolicy": "Never",
                "command": ["/bin/sh", "-c", f"trap 'exit 0' TERM; {fill}; {log}while :; do sleep 3600 & wait $!; done"],
                "resources": {"requests": requests, "limits": limits},
                "volumeMounts": [{"name": "fill", "mountPath": "/fill"}],
            }
        ],
    }
    if not static:
        spec["nodeName"] = node
    if pod.priority_class:
        spec["priorityClassName"] = pod.priority_class
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod.name, "namespace": "default"}, "spec": spec}


# ---- a node under test


@dataclass
class Result:
    """What was predicted of a scenario and what became of it. `ranked`: each of the kubelet's lines; `evicted` as it logged them,
    `was_evicted` as the API has them."""

    prediction: Prediction
    ranked: list[list[str]] = field(default_factory=list)
    evicted: list[str] = field(default_factory=list)
    was_evicted: set[str] = field(default_factory=set)
    log: str = ""


@dataclass
class Node:
    """A worker whose kubelet has thresholds of the test's own."""

    lab: Lab
    name: str
    limits: dict[str, int] = field(default_factory=dict)
    touched: bool = False

    def run(self, command: str, check: bool = True, input: str = "") -> str:
        return self.lab.run(self.name, command, check=check, input=input).stdout

    def get(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.lab.kubectl("get", "--raw", path))
        return found

    def summary(self) -> dict[str, Any]:
        return self.get(f"/api/v1/nodes/{self.name}/proxy/stats/summary")

    def pods(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get(f"/api/v1/pods?fieldSelector=spec.nodeName%3D{self.name}")["items"]
        return found

    def available(self, signal: str) -> int:
        return predict.readings(self.summary())[signal].available

    def cursor(self) -> str:
        told = self.run("journalctl -u kubelet --lines 1 --show-cursor --output cat --no-pager")
        return told.rsplit("-- cursor: ", 1)[1].strip()

    def log(self, cursor: str) -> str:
        return self.run(f"journalctl -u kubelet --after-cursor '{cursor}' --output cat --no-pager")

    def configure(self, **limits: int) -> None:
        """Restart the kubelet with hard thresholds in whole units; returns when it says that it has them."""
        self.limits |= {key.replace("_", "."): value for key, value in limits.items()}
        hard = {MEMORY: f"{50 * MI}", NODEFS: "1%", "imagefs.available": "1%", **{key: str(value) for key, value in self.limits.items()}}
        words = [
            "--v=3",  # tells of every look of the eviction manager
            f"--eviction-hard={','.join(f'{signal}<{value}' for signal, value in hard.items())}",
            # Zero would be taken for "not set", and be 5 minutes.
            "--eviction-pressure-transition-period=1ms",
            "--volume-stats-agg-period=5s",
            f"--eviction-minimum-reclaim={NODEFS}={DISK_RECLAIM}",
        ]
        self.run(f"cat >{EXTRA_ARGUMENTS}", input=f"KUBELET_EXTRA_ARGS={' '.join(words)}\n")
        self.run("systemctl restart kubelet")

        def has_them() -> bool:
            told = self.lab.kubectl("get", "--raw", f"/api/v1/nodes/{self.name}/proxy/configz", check=False)
            return bool(told) and json.loads(told)["kubeletconfig"].get("evictionHard") == hard

        wait_for(has_them, f"the kubelet of {self.name} to have {hard}")

    def thresholds(self, signal: str, more: int) -> list[Threshold]:
        """Those of this kubelet, with the one of `signal` raised by `more`."""
        reclaim = Amount(DISK_RECLAIM)
        return [
            Threshold(one, Amount(limit + (more if one == signal else 0)), 0, reclaim if one == NODEFS else None)
            for one, limit in self.limits.items()
        ]


def small_disk(node: Node) -> None:
    """The kubelet's folder and the pods' logs on an ext4 of their own."""
    node.run("systemctl stop kubelet")
    # A node has no loop devices in its /dev; their numbers are the kernel's (Documentation/admin-guide/devices.txt).
    node.run(
        "[ -e /dev/loop-control ] || mknod -m 660 /dev/loop-control c 10 237; "
        "for number in $(seq 0 31); do [ -b /dev/loop$number ] || mknod -m 660 /dev/loop$number b 7 $number; done"
    )
    made = node.run(
        f"mkdir -p {SMALL} && truncate -s {SMALL_SIZE} {IMAGE} && mkfs.ext4 -q -F -m 0 -N {SMALL_INODES} {IMAGE} "
        # Detached at once: whoever unmounts it then frees the device, which is the whole machine's, also when the node is killed.
        f"&& device=$(losetup --find --show {IMAGE}) && {{ mount $device {SMALL} && echo ext4; losetup --detach $device; }}",
        check=False,
    )
    if made.strip() != "ext4":
        print(f"{node.name}: no loop device can be had; the small file system is in memory")
        node.run(f"mount -t tmpfs -o size={SMALL_SIZE},nr_inodes={SMALL_INODES} small {SMALL}")
    node.run(
        f"mkdir {SMALL}/kubelet {SMALL}/pods {SMALL}/ballast && chmod 750 {SMALL}/kubelet && "
        f"tar -C /var/lib/kubelet --exclude=./pods --one-file-system -cf - . | tar -C {SMALL}/kubelet -xpf - && "
        f"mount --bind {SMALL}/kubelet /var/lib/kubelet && mkdir -p /var/log/pods && mount --bind {SMALL}/pods /var/log/pods"
    )


def ballast(node: Node, scenario: Scenario, size: int) -> None:
    """Take `size` bytes or inodes of the node, outside of all pods."""
    assert size > 0, f"{scenario.name}: there is less left than its pods need; nothing is to be taken away ({size})"
    if scenario.short_of == "memory":
        node.run(
            f"mkdir -p {BALLAST} && mount -t tmpfs -o size=4g ballast {BALLAST} && "
            # A unit of its own, so that the memory is charged to something that stays.
            f"systemd-run --quiet --collect --unit=eviction-ballast sh -c 'head -c {size} /dev/zero >{BALLAST}/data && touch {BALLAST}/done; exec sleep infinity'"
        )
        wait_for(lambda: node.run(f"ls {BALLAST}/done", check=False), f"the ballast on {node.name}")
    elif scenario.short_of == "disk":
        node.run(f"fallocate -l {size} {SMALL}/ballast/data")
    else:
        node.run(f"cd {SMALL}/ballast && seq {size} | xargs touch")


def no_ballast(node: Node) -> None:
    node.run(
        f"systemctl stop eviction-ballast 2>/dev/null; mountpoint -q {BALLAST} && umount {BALLAST}; "
        f"[ ! -d {SMALL}/ballast ] || find {SMALL}/ballast -type f -delete",
        check=False,
    )


def full(scenario: Scenario, pods: list[Wanted], summary: dict[str, Any], suffixes: tuple[str, ...]) -> bool:
    """Every pod is in the summary with all that it was told to use."""
    told = {entry["podRef"]["name"]: entry for entry in summary["pods"]}
    for pod in pods:
        entry = next((told[pod.name + suffix] for suffix in suffixes if pod.name + suffix in told), None)
        if entry is None:
            return False
        volume: dict[str, Any] = next((one for one in entry.get("volume", ()) if one["name"] == "fill"), {})
        logs = sum((one.get("logs") or {}).get("usedBytes") or 0 for one in entry["containers"])
        if scenario.short_of == "memory" and (entry.get("memory") or {}).get("workingSetBytes", 0) < pod.usage * MI:
            return False
        if scenario.short_of == "disk" and ((volume.get("usedBytes") or 0) < pod.usage * MI or logs < pod.logs * 1024):
            return False
        if scenario.short_of == "inodes" and (volume.get("inodesUsed") or 0) < pod.usage:
            return False
    return True


# ---- what the kubelet says


RANKED = re.compile(r'"Eviction manager: pods ranked for eviction" pods=\[(.*?)\]')
EVICTED = re.compile(r'"Eviction manager: pod is evicted successfully" pod="([^"]+)"')
LOOK = '"Eviction manager: synchronize housekeeping"'
STARVED = re.compile(r'log="thresholds - reclaim not satisfied" signal="?([\w.]+)')


def settled(log: str) -> bool:
    """Pods were evicted, and at the last whole look after that no threshold was met any more."""
    head, _, last = log.rpartition(LOOK)
    return bool(EVICTED.search(head)) and '"Eviction manager: no resources are starved"' in last and not STARVED.search(last)


def filled(node: Node, scenario: Scenario, own: list[Wanted], static: Wanted | None = None) -> dict[str, Any]:
    """Make the pods; the node's summary, pods and Node once they use what they should."""
    items = [manifest(scenario, pod, node.name) for pod in own]
    node.lab.kubectl("apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    saved: dict[str, Any] = {}

    def all_there() -> bool:
        summary = saved["summary"] = node.summary()
        if "full" not in saved and full(scenario, [*own, *([static] if static else [])], summary, ("", f"-{node.name}")):
            saved["full"] = summary["node"]["cpu"]["time"]
        # The node's figures are older than its pods': they must have these in them.
        part = summary["node"]["memory" if scenario.short_of == "memory" else "fs"]
        return "full" in saved and bool(part["time"] > saved["full"])

    wait_for(all_there, f"the pods of {scenario.name} to use what they should", 400)
    saved["pods"] = node.pods()
    saved["node"] = node.get(f"/api/v1/nodes/{node.name}")
    return saved


def removed(node: Node, scenario: Scenario, own: list[Wanted]) -> None:
    names = [pod.name for pod in own]
    node.lab.kubectl("delete", "pod", "-n", "default", "--wait=true", "--timeout=280s", *names, check=False)
    wait_for(lambda: not node.pods(), f"the pods of {scenario.name} to be gone from {node.name}")


def play(node: Node, scenario: Scenario) -> Result:
    pods = wanted(scenario)
    static = pods[0] if scenario.static else None
    own = [pod for pod in pods if pod is not static]
    try:
        if static:
            # The one that would have to go first, were it not static.
            static = Wanted(static.name, "", "BestEffort", max(SCALES[scenario.short_of].usages) + 32, 0)
            node.run(
                f"mkdir -p {STATIC_PODS} && cat >{STATIC_PODS}/{static.name}.yaml",
                input=json.dumps(manifest(scenario, static, node.name, static=True)),
            )
        saved = filled(node, scenario, own, static)
        # From here on the predictor knows what there is to know.
        more = enough_for(node, scenario, saved)
        prediction = predict.predict(saved["summary"], saved["pods"], saved["node"], node.thresholds(scenario.signal, more))
        found = Result(prediction)
        cursor = node.cursor()
        if scenario.raised:
            node.configure(**{MEMORY.replace(".", "_"): node.limits[MEMORY] + more})
        else:
            ballast(node, scenario, more)
        wait_for(lambda: settled(node.log(cursor)), f"evictions on {node.name} for {scenario.name} to be over", 400)
        found.log = node.log(cursor)
        found.ranked = [re.findall(r'"([^"]+)"', line) for line in RANKED.findall(found.log)]
        found.evicted = EVICTED.findall(found.log)
        wait_for(lambda: len(_put_out(node)) >= len(found.evicted), f"the API to know of the evictions of {scenario.name}")
        found.was_evicted = _put_out(node)
        return found
    finally:
        no_ballast(node)
        if static:
            node.run(f"rm -f {STATIC_PODS}/{static.name}.yaml")
        removed(node, scenario, own)


def _put_out(node: Node) -> set[str]:
    """By the condition: these pods end with 0, and are then Succeeded."""

    def was_evicted(pod: dict[str, Any]) -> bool:
        return any(
            (one["type"], one.get("reason")) == ("DisruptionTarget", "TerminationByKubelet") for one in pod["status"].get("conditions", ())
        )

    return {full_name(pod) for pod in node.pods() if was_evicted(pod)}


def enough_for(node: Node, scenario: Scenario, saved: dict[str, Any]) -> int:
    """How much must be taken away (or the threshold be raised) so that the scenario's number of pods has to go.

    By the pods' own sizes and the order of the prediction: what is under test is whether the kubelet agrees.
    """
    layout = predict.layout_of(saved["summary"])
    order = predict.rank(scenario.signal, saved["summary"], predict.active(saved["pods"]), layout, predict.minor_of(saved["node"]))
    frees = predict.freed(scenario.signal, saved["summary"], saved["pods"], layout)
    sizes = [frees(entry.uid) for entry in order if not entry.protected][: scenario.victims]
    assert len(sizes) == scenario.victims, f"{scenario.name}: {len(sizes)} pods can go"
    reclaim = DISK_RECLAIM if scenario.short_of == "disk" else 0
    # In the midst between one victim fewer and one more, so that what the node itself uses meanwhile changes nothing.
    short = sum(sizes[:-1]) + sizes[-1] * 6 // 10 - reclaim
    left = predict.readings(saved["summary"])[scenario.signal].available - node.limits[scenario.signal]
    assert left > 0 and short > 0, f"{scenario.name}: {left} left, {short} short"
    return left + short


# ---- the tests


def _chosen(request: pytest.FixtureRequest) -> list[Scenario]:
    """Those whose tests are to run: each takes half a minute."""
    names = {
        item.callspec.params.get("name")
        for item in request.session.items
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
    }
    return [scenario for scenario in SCENARIOS if scenario.name in names]


@pytest.fixture(scope="module")
def classes(lab: Lab) -> Iterator[None]:
    for name, value in PRIORITIES.items():
        made = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}
        lab.kubectl("apply", "-f", "-", input=json.dumps(made))
    yield
    lab.kubectl("delete", "priorityclass", *PRIORITIES, check=False)


@pytest.fixture(scope="module")
def results(lab: Lab, classes: None, request: pytest.FixtureRequest) -> Iterator[dict[str, Result | Exception]]:
    """All chosen scenarios, played on two workers at once. A scenario that failed has its exception here."""
    chosen = _chosen(request)
    first, second = (Node(lab, name) for name in lab.workers[:2])
    found: dict[str, Result | Exception] = {}

    def play_all(node: Node, short_of: tuple[str, ...]) -> None:
        scenarios = [scenario for scenario in chosen if scenario.short_of in short_of]
        try:
            if scenarios:
                node.touched = True
                prepare(node)
        except Exception as error:
            found.update({scenario.name: error for scenario in scenarios})
            return
        # The one that changes the kubelet's own threshold comes last.
        for scenario in sorted(scenarios, key=lambda one: one.raised):
            try:
                found[scenario.name] = play(node, scenario)
            except Exception as error:
                found[scenario.name] = error

    def prepare(node: Node) -> None:
        wait_for(lambda: not node.pods(), f"{node.name} to have no pods of other tests")
        if node is first:
            node.configure(memory_available=node.available(MEMORY) - ROOM)
        else:
            small_disk(node)
            node.configure(nodefs_available=DISK_LIMIT, nodefs_inodesFree=INODES_LIMIT)

    try:
        works = [
            threading.Thread(target=play_all, args=(first, ("memory",))),
            threading.Thread(target=play_all, args=(second, ("disk", "inodes"))),
        ]
        for work in works:
            work.start()
        for work in works:
            work.join()
        yield found
    finally:
        if touched := [node.name for node in (first, second) if node.touched]:
            lab.reset(*touched)


@pytest.mark.parametrize("name", [pytest.param(one.name, marks=[] if one.name in QUICK else [pytest.mark.slow]) for one in SCENARIOS])
def test_prediction_equals_reality(results: dict[str, Result | Exception], name: str) -> None:
    scenario = next(one for one in SCENARIOS if one.name == name)
    result = results[name]
    if isinstance(result, Exception):
        raise result
    pressure = next(one for one in result.prediction.pressures if one.signal == scenario.signal)
    ranks = {entry.pod: entry.rank for entry in pressure.order}
    predicted = [entry.pod for entry in pressure.order]
    assert scenario.short_of == "memory" or result.prediction.layout == "images and containers apart"
    protected = {entry.pod for entry in pressure.order if entry.protected}
    print(f"\n{name}: predicted {', '.join(predicted)}; to go: {', '.join(result.prediction.victims)}")
    print(f"{name}: the kubelet {'; '.join(', '.join(line) for line in result.ranked)}; gone: {', '.join(result.evicted)}")
    # The whole order, before the first goes, and then of those that are left.
    assert result.ranked, result.log
    for number, line in enumerate(result.ranked):
        assert set(line) == set(predicted) - set(result.evicted[:number])
        assert [ranks[pod] for pod in line] == sorted(ranks[pod] for pod in line), line
    assert result.evicted == list(result.prediction.victims)
    assert result.was_evicted == set(result.evicted)
    assert len(result.evicted) == scenario.victims and pressure.enough and pressure.victims[0].certain
    assert not protected & set(result.evicted) and bool(protected) == (scenario.critical or scenario.static)


@pytest.mark.slow
@pytest.mark.usefixtures("classes")
def test_nobody_goes_without_consent_and_with_it_only_who_was_named(lab: Lab) -> None:
    """The deploy itself raises the threshold above what is left. The kubelet that starts under this pressure may as well not take
    back any pod of the node, which the plan says: who goes was named either way."""
    scenario = Scenario("consent", "disk", 501, 2)
    node = Node(lab, lab.workers[1])
    wait_for(lambda: not node.pods(), f"{node.name} to have no pods of other tests")
    own = wanted(scenario)
    try:
        small_disk(node)
        node.configure(nodefs_available=DISK_LIMIT, nodefs_inodesFree=INODES_LIMIT)
        saved = filled(node, scenario, own)
        more = enough_for(node, scenario, saved)
        victims = predict.predict(saved["summary"], saved["pods"], saved["node"], node.thresholds(NODEFS, more)).victims
        wish = {"eviction_hard": f"{NODEFS}={node.limits[NODEFS] + more}", "only": node.name}
        pods, cursor = {pod["metadata"]["uid"] for pod in node.pods()}, node.cursor()

        refusal = pyinfra("eviction", "-y", *data(**wish))
        assert refusal.code == 1 and "allow_evictions=true" in refusal.all, refusal.all
        assert f"in this order: {', '.join(victims)}" in refusal.all and "may refuse to re-admit" in refusal.all, refusal.all
        assert {pod["metadata"]["uid"] for pod in node.pods()} == pods and not EVICTED.search(node.log(cursor))

        told = pyinfra("eviction", "-y", *data(**wish, allow_evictions="true")).ended(0)
        named = set(re.findall(r"default/consent-\d", told.out.partition("[1/1] ")[2].rpartition("[1/1] ")[0]))
        wait_for(lambda: _ended(node) >= set(victims), "those to have gone that must")
        assert _ended(node) <= named, told.all
        [row] = [line for line in told.out.splitlines() if re.match(rf"{node.name} +evictionHard.{NODEFS} ", line)]
        assert "gone, as announced: default/consent-" in row, told.all
    finally:
        removed(node, scenario, own)
        lab.reset(node.name)


def _ended(node: Node) -> set[str]:
    return {full_name(pod) for pod in node.pods() if pod["status"]["phase"] in ("Failed", "Succeeded")}


def test_the_order_of_a_real_node(lab: Lab, tmp_path: Path) -> None:
    """What deploys/eviction_order.py tells of a node: a program reads it, the page has it, and /proc says the same."""
    scenario = Scenario("shown", "memory", 401, 1)
    node = Node(lab, lab.workers[0])
    pods = [
        Wanted("shown-best", "", "BestEffort", 16, 0),
        Wanted("shown-burst", "", "Burstable", 16, 64),
        Wanted("shown-full", "", "Guaranteed", 16, 48),
    ]
    items = [manifest(scenario, pod, node.name) for pod in pods]
    lab.kubectl("apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    try:
        wait_for(lambda: full(scenario, pods, node.summary(), ("",)), "the pods to use what they should")
        page = tmp_path / "order.html"
        told = pyinfra("eviction_order", "-y", *data(format="json", picture=str(page))).ended(0)
        found = json.loads(told.out[told.out.index("{") : told.out.rindex("}") + 1])
        assert found["problems"] == [] and sorted(one["node"] for one in found["nodes"]) == sorted(lab.nodes)
        mine = next(one for one in found["nodes"] if one["node"] == node.name)
        rows = {row["pod"].removeprefix("default/"): row for row in mine["pods"]}
        assert set(rows) >= {pod.name for pod in pods}
        assert next(row["pod"] for row in mine["pods"] if row["pod"].startswith("default/shown-")) == "default/shown-best"
        capacity = mine["memory"]
        expected = {"shown-best": 1000, "shown-burst": 1000 - 1000 * 64 * MI // capacity, "shown-full": -997}
        for pod in pods:
            [container] = rows[pod.name]["containers"]
            assert container["expected"] == expected[pod.name]
            assert container["seen"] == int(node.run(f"cat /proc/{container['pid']}/oom_score_adj"))
            # The lab's runtime may raise the score, and not lower it (restrict_oom_score_adj).
            assert container["seen"] >= container["expected"] and (container["expected"] < 0 or container["seen"] == container["expected"])
        planes = next(one for one in found["nodes"] if one["node"] == lab.control_planes[0])
        assert any(row["pod"].startswith("kube-system/kube-apiserver-") and row["protected"] == "static pod" for row in planes["pods"])
        text = page.read_text()
        assert all(pod.name in text for pod in pods) and "kube-apiserver" in text
        table = pyinfra("eviction_order", "-y")
        assert table.code == 0 and re.search(r"^\S+ +\S+ +\S+ +default/shown-best ", table.out, re.MULTILINE), table.all
    finally:
        lab.kubectl("delete", "pod", "-n", "default", "--timeout=280s", *(pod.name for pod in pods), check=False)
        wait_for(lambda: not any(pod["metadata"]["name"].startswith("shown-") for pod in node.pods()), "the pods to be gone")
