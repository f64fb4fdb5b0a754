"""The re-admission forecast against real kubelets, and placement against the real scheduler: no pod that "stays" is lost, and none that
"fits" is left over."""

from __future__ import annotations

import contextlib
import json
import posixpath
import re
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest

from roles.engine.kube.resources import View, requests
from roles.engine.placement import ClusterView, Forecast, forecast, place_all
from tests.integration import operator
from tests.integration.draining import STUBBORN
from tests.integration.operator import GATE, data, pyinfra, wait_for
from tests.lab import Lab, images

pytestmark = pytest.mark.lab

WORKERS = ("w1", "w2")
EXTRA = "/etc/default/kubelet"
LABEL = "daytwo.test/disk"
TAINT = "daytwo.test/away"
KEPT = "/root/kubelet-arguments"
# Two scenarios for each worker. Each changes something else: what it changes besides requests, room and labels.
SEEDS = {"w1": {1: "taint", 2: "sysctl"}, "w2": {3: "topology", 4: "pressure"}}
# The other topology policy, and the other conditions.
SLOW_SEEDS = {5: "restricted", 7: "disk", 8: "pids"}
SYSCTL = "net.core.somaxconn"
# The condition of a node, and the signal of it.
PRESSURES = {
    "pressure": ("MemoryPressure", "memory.available"),
    "disk": ("DiskPressure", "nodefs.available"),
    "pids": ("PIDPressure", "pid.available"),
}
ALIGNS = {"topology": "single-numa-node", "restricted": "restricted"}
ENDING = "ending"
CHECKPOINT = "/var/lib/kubelet/cpu_manager_state"


def get(lab: Lab, path: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lab.kubectl("get", "--raw", path))
    return found


def pods_of(lab: Lab, node: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = get(lab, f"/api/v1/pods?fieldSelector=spec.nodeName%3D{node}")["items"]
    return found


def pod(name: str, node: str = "", *, cpu: int = 0, memory: int = 0, port: int = 0, **spec: Any) -> dict[str, Any]:
    """cpu in thousandths, memory in MiB."""
    asked = {key: value for key, value in (("cpu", f"{cpu}m" if cpu else ""), ("memory", f"{memory}Mi" if memory else "")) if value}
    container: dict[str, Any] = {
        "name": "app",
        "image": f"{images.REPOSITORY}/app:1",
        "imagePullPolicy": "Never",
        "resources": {"requests": asked},
    }
    if port:
        container["ports"] = [{"containerPort": port, "hostPort": port}]
    fixed = {"nodeName": node, "tolerations": [{"operator": "Exists"}]} if node else {}
    common = {"terminationGracePeriodSeconds": 1, "restartPolicy": "Always", "automountServiceAccountToken": False}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "readmission"} | spec.pop("labels", {})},
        "spec": common | fixed | {"containers": [container]} | spec,
    }


def create(lab: Lab, *pods: dict[str, Any]) -> None:
    lab.kubectl("create", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(pods)}))


def removed(lab: Lab, which: str) -> None:
    lab.kubectl("delete", "pods", "-l", which, "--now", "--wait=true")


# ---- the forecast


def pressed(more: str) -> str:
    """More than any node has, and a grace period that is not over before the test: a condition, and no eviction."""
    signal = PRESSURES[more][1]
    return f"--eviction-soft={signal}<100Ti --eviction-soft-grace-period={signal}=1h"


@dataclass
class Scenario:
    """The pods of a worker, in groups of the same second, and what becomes of it: fields of its kubelet's configuration, and its label gone
    or not; `more`: a NoExecute taint comes, a sysctl is not allowed any more, the topology manager begins to align, or the node is under
    pressure."""

    node: str
    seed: int
    more: str
    groups: list[list[dict[str, Any]]] = field(default_factory=list)
    flags: dict[str, Any] = field(default_factory=dict)
    label_goes: bool = False
    static: bool = False

    @property
    def arguments(self) -> str:
        words = [f"--{flag}={self.flags[name]}" for name, flag in _FLAGS.items() if name in self.flags]
        if reserved := self.flags.get("systemReserved"):
            words.append(f"--system-reserved={','.join(f'{key}={value}' for key, value in reserved.items())}")
        return " ".join([*words, *([pressed(self.more)] if self.more in PRESSURES else [])])


_FLAGS = {"maxPods": "max-pods", "cpuManagerPolicy": "cpu-manager-policy", "topologyManagerPolicy": "topology-manager-policy"}


def scenario(node: str, seed: int, more: str) -> Scenario:
    """Pods that ask for cpu, memory, a label, a port of the host; one is critical in every second scenario, one static in the others; and
    pods that meet what the scenario changes besides."""
    dice = Random(seed)
    made = Scenario(node, seed, more, label_goes=dice.random() < 0.5 or seed == 1, static=seed % 2 == 0)
    count = 0
    for _ in range(5):
        group = []
        for _ in range(dice.choice([1, 1, 2])):
            more: dict[str, Any] = {"nodeSelector": {LABEL: "ssd"}} if dice.randrange(4) == 0 else {}
            port = 18080 if dice.randrange(4) == 0 and count == 0 else 0
            name = f"re-{node}-{count}"
            group.append(
                pod(name, node, cpu=dice.choice([0, 50, 100]), memory=dice.choice([0, 32, 64]), port=port, labels={"on": node}, **more)
            )
            count += 1
        made.groups.append(group)
    if not made.static:
        critical = pod(f"re-{node}-critical", node, cpu=60, labels={"on": node}, priorityClassName="system-node-critical")
        made.groups.append([critical])
    made.groups += _shapes(node, Random(seed + 50))
    # The oldest: what else is lost does not depend on them.
    made.groups = [*([one] for one in _meeting(node, made.more)), *made.groups]
    return made


def _shapes(node: str, dice: Random) -> list[list[dict[str, Any]]]:
    """Pods whose requests are not the sum of their containers: with a native sidecar, with an init container larger than the app, with
    requests of the pod itself; and one that is deleted when its kubelet is stopped, and does not end by itself. They are small: a node of
    two CPUs has to admit all pods of a scenario first."""
    names = ("sidecar", "init", "level", ENDING)
    sidecar, init, level, ending = (
        pod(f"re-{node}-{name}", node, cpu=dice.choice([0, 10]), memory=16, labels={"on": node}) for name in names
    )
    app = sidecar["spec"]["containers"][0]
    deaf = ["/bin/sh", "-c", STUBBORN]
    asked = {"resources": {"requests": {"cpu": f"{dice.choice([20, 40])}m"}}}
    sidecar["spec"]["initContainers"] = [app | asked | {"name": "side", "restartPolicy": "Always", "command": deaf}]
    init["spec"]["initContainers"] = [app | asked | {"name": "first", "command": ["/bin/sh", "-c", "exit 0"]}]
    level["spec"] |= {"resources": {"requests": {"cpu": "30m", "memory": "48Mi"}}}
    ending["spec"]["terminationGracePeriodSeconds"] = 600
    ending["spec"]["containers"][0]["command"] = deaf
    return [[sidecar, init], [level, ending]]


def _meeting(node: str, more: str) -> list[dict[str, Any]]:
    """Pods that a scenario's own change may lose, each beside one that it must not."""
    labels = {"on": node}
    match more:
        case "taint":
            tolerated = [{"key": TAINT, "operator": "Equal", "value": "yes", "effect": "NoExecute"}]
            return [pod(f"re-{node}-untolerated", node, labels=labels, tolerations=[]),
                    pod(f"re-{node}-tolerates", node, labels=labels, tolerations=tolerated)]  # fmt: skip
        case "sysctl":
            unsafe, safe = ({"sysctls": [{"name": name, "value": "512"}]} for name in (SYSCTL, "net.ipv4.tcp_fin_timeout"))
            return [pod(f"re-{node}-unsafe", node, labels=labels, securityContext=unsafe),
                    pod(f"re-{node}-safe", node, labels=labels, securityContext=safe)]  # fmt: skip
        case "topology" | "restricted":
            aligned, shared = (pod(f"re-{node}-{name}", node, cpu=cpu, memory=16, labels=labels)
                               for name, cpu in (("aligned", 1000), ("shared", 10)))  # fmt: skip
            for one in (aligned, shared):
                resources = one["spec"]["containers"][0]["resources"]
                resources["limits"] = resources["requests"]
            return [aligned, shared]
    return [pod(f"re-{node}-besteffort", node, labels=labels, tolerations=[])]


def tightened(made: Scenario, node: dict[str, Any], configuration: dict[str, Any], pods: list[dict[str, Any]]) -> None:
    """Choose what no longer fits: some of the requests of the test's own pods, or some of the pods."""
    dice = Random(made.seed + 100)
    own = [one for one in pods if one["metadata"]["name"].startswith("re-")]
    if made.more == "sysctl":
        made.flags["allowedUnsafeSysctls"] = []
    if made.more in ALIGNS:
        made.flags |= {"cpuManagerPolicy": "static", "topologyManagerPolicy": ALIGNS[made.more]}
        # The static policy needs a reservation of CPU.
        reserved = dict(configuration.get("systemReserved") or {})
        made.flags["systemReserved"] = {**reserved, "cpu": f"{_whole(reserved.get('cpu', '0'), 1000) + 100}m"}
    if made.seed % 3 == 0:
        made.flags["maxPods"] = len(pods) - dice.randint(1, max(1, len(own) - 4))
        return
    reserved = {}
    for resource, unit in (("cpu", 1000), ("memory", 1)):
        asked = sum(requests(one, View.ALLOCATED).get(resource, 0) for one in own)
        free = _whole(node["status"]["allocatable"][resource], unit) - int(
            sum(requests(one, View.ALLOCATED).get(resource, 0) for one in pods) * unit
        )
        now = _whole((configuration.get("systemReserved") or {}).get(resource, "0"), unit)
        amount = now + free + int(asked * unit * dice.choice([0, 25, 60]) / 100)
        reserved[resource] = f"{amount}m" if resource == "cpu" else str(amount)
    made.flags["systemReserved"] = reserved


def _whole(text: str, unit: int) -> int:
    (amount,) = requests({"spec": {"containers": [{"name": "c", "resources": {"requests": {"x": text}}}]}}, View.SPEC).values()
    return int(amount * unit)


@dataclass
class Outcome:
    """`under`: pods that come while the node is under pressure, and why the kubelet rejects them ("": it does not)."""

    scenario: Scenario
    found: Forecast
    lost: dict[str, str]
    under: dict[str, str] = field(default_factory=dict)
    # Why pods were rejected before the forecast: a kubelet that starts under pressure may find it before it has admitted all of them.
    before: set[str] = field(default_factory=set)

    def false_stays(self) -> list[str]:
        return [f"{one.pod}: {self.lost[one.pod]}" for one in self.found.pods if one.outcome == "stays" and one.pod in self.lost]

    def counted(self) -> Counter[str]:
        told: Counter[str] = Counter()
        for one in self.found.pods:
            gone = one.pod in self.lost
            right = {"stays": not gone, "lost": gone, "may be lost": True}[one.outcome]
            told[f"{one.outcome}, {'and it was' if gone else 'and it stayed'}{'' if right else ' (WRONG)'}"] += 1
        return told


def play(lab: Lab, made: Scenario) -> Outcome:
    """Create the pods, stop the kubelet, change what the scenario says, forecast, start the kubelet, and see who is gone."""
    node = made.node
    static = f"re-{node}-static"
    path = f"{get(lab, f'/api/v1/nodes/{node}/proxy/configz')['kubeletconfig']['staticPodPath']}/{static}.json"
    folder = posixpath.dirname(path)
    there = lab.run(node, f"[ -d {folder} ]", check=False).returncode == 0
    lab.kubectl("label", "node", node, f"{LABEL}=ssd", "--overwrite")
    if made.static:
        of_node = pod(static, cpu=80, labels={"on": node})
        lab.run(node, f"mkdir -p {folder} && cat >{path}", input=json.dumps(of_node))
    try:
        if made.more == "sysctl":
            _with_arguments(lab, node, f"--allowed-unsafe-sysctls={SYSCTL}")
            wait_for(lambda: (_configuration(lab, node) or {}).get("allowedUnsafeSysctls") == [SYSCTL], "the kubelet to allow a sysctl")
        for group in made.groups:
            create(lab, *group)
            second = int(time.time())
            wait_for(lambda second=second: int(time.time()) > second, "the next second", every=0.1)  # type: ignore[misc]
        if made.static:
            wait_for(lambda: f"{static}-{node}" in {one["metadata"]["name"] for one in pods_of(lab, node)}, "the static pod in the API")
        lab.kubectl("wait", "--for=condition=Ready", "pods", "-l", f"on={node}", "--timeout=280s")
        if made.more in PRESSURES:
            _with_arguments(lab, node, pressed(made.more))
            wait_for(lambda: pressures(lab, node, made.more)[0] == ["True"], f"the kubelet of {node} to say {PRESSURES[made.more][0]}")
        with held_controllers(lab) if made.more == "taint" else contextlib.nullcontext():
            return _restarted(lab, made)
    finally:
        back = f"[ ! -d {KEPT} ] || {{ rm -f {EXTRA}; mv {KEPT}/own {EXTRA} 2>/dev/null; rm -rf {KEPT}; }}; {_forgets(made)}systemctl start kubelet"
        lab.run(node, f"rm -f {path}; {'true' if there else f'rmdir {folder}'}; systemctl stop kubelet; {back}")
        removed(lab, f"on={node}")
        lab.kubectl("label", "node", node, f"{LABEL}-")
        if made.more in PRESSURES:
            wait_for(lambda: pressures(lab, node, made.more) == (["False"], []), f"{node} to be without pressure")


@contextlib.contextmanager
def held_controllers(lab: Lab) -> Iterator[None]:
    """kube-controller-manager stands still. It would delete the pods that do not tolerate a NoExecute taint, before a kubelet judges
    them."""
    with lab.frozen("cp1", "kube-controller-manager"):
        try:
            yield
        finally:
            lab.kubectl("taint", "nodes", "--all", f"{TAINT}-", check=False)


def controllers_lead(lab: Lab, since: datetime) -> bool:
    """One that stood still for too long has lost its lease, and another begins. This machine's clock is the nodes' clock."""
    lease = get(lab, "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager")
    return datetime.fromisoformat(lease["spec"]["renewTime"]) > since


def pressures(lab: Lab, node: str, more: str) -> tuple[list[str], list[str]]:
    """Whether the node is under this pressure by its condition; and its taints of pressure."""
    found = get(lab, f"/api/v1/nodes/{node}")
    taints = [one["key"] for one in found["spec"].get("taints") or () if "pressure" in one["key"]]
    return [one["status"] for one in found["status"]["conditions"] if one["type"] == PRESSURES[more][0]], taints


def _configuration(lab: Lab, node: str) -> dict[str, Any] | None:
    """None while the kubelet does not answer."""
    told = lab.kubectl("get", "--raw", f"/api/v1/nodes/{node}/proxy/configz", check=False)
    found: dict[str, Any] | None = json.loads(told)["kubeletconfig"] if told else None
    return found


def _with_arguments(lab: Lab, node: str, words: str) -> None:
    """Restart the kubelet with these arguments behind its own."""
    lab.run(node, f"systemctl stop kubelet; {_arguments(words)}; systemctl start kubelet")


def _arguments(words: str) -> str:
    keep = (
        f"[ -d {KEPT} ] || {{ mkdir {KEPT}; cp -a {EXTRA} {KEPT}/own 2>/dev/null; }}; rm -f {EXTRA}; cp -a {KEPT}/own {EXTRA} 2>/dev/null"
    )
    return f"{keep}; echo 'KUBELET_EXTRA_ARGS=\"{words}\"' >>{EXTRA}"


def _forgets(made: Scenario) -> str:
    """A kubelet does not start with the checkpoint of another policy."""
    return f"rm -f {CHECKPOINT}; " if made.more in ALIGNS else ""


def _restarted(lab: Lab, made: Scenario) -> Outcome:
    node = made.node
    before = get(lab, f"/api/v1/nodes/{node}/proxy/configz")["kubeletconfig"]
    lab.run(node, f"systemctl stop kubelet; {_forgets(made)}true")
    lab.kubectl("delete", "pod", f"re-{node}-{ENDING}", "--wait=false")
    there = get(lab, f"/api/v1/nodes/{node}")
    tightened(made, there, before, pods_of(lab, node))
    if made.label_goes:
        lab.kubectl("label", "node", node, f"{LABEL}-")
    if made.more == "taint":
        lab.kubectl("taint", "node", node, f"{TAINT}=yes:NoExecute")
    pods, there = [*pods_of(lab, node), _marker(lab, node, 1)], get(lab, f"/api/v1/nodes/{node}")
    found = forecast(pods, there, before, {**before, **made.flags})
    lab.run(node, _arguments(made.arguments))
    lost = _lost(lab, node, pods)
    # The first start may have judged by the old values of the Node; now it has the new ones.
    lab.run(node, "systemctl stop kubelet")
    lost = {**_lost(lab, node, [*pods_of(lab, node), _marker(lab, node, 2)]), **lost}
    before_it = {one["status"].get("reason", "") for one in pods if one["status"]["phase"] == "Failed"}
    outcome = Outcome(made, found, lost, _judged_under(lab, made) if made.more in ("disk", "pids") else {}, before_it)
    lines = [f"  {one.outcome}: {one}; in fact: {outcome.lost.get(one.pod, 'stayed')}" for one in found.pods]
    print("\n".join([f"{node}, {made.more}: {made.arguments}{', its label is gone' if made.label_goes else ''}", *lines]))
    return outcome


def _marker(lab: Lab, node: str, number: int) -> dict[str, Any]:
    """The youngest pod of all: when the kubelet has judged it, it has judged all others."""
    name = f"re-{node}-marker-{number}"
    create(lab, pod(name, node, labels={"on": node}))
    return get(lab, f"/api/v1/namespaces/default/pods/{name}")


def _judged_under(lab: Lab, made: Scenario) -> dict[str, str]:
    """What the kubelet does with pods that come to it now that it has the pressure; the forecast must agree."""
    node = made.node
    wait_for(lambda: pressures(lab, node, made.more)[0] == ["True"], f"the kubelet of {node} to say {PRESSURES[made.more][0]} again")
    kinds: dict[str, dict[str, Any]] = {
        "besteffort": {},
        "burstable": {"cpu": 1},
        "critical": {"priorityClassName": "system-node-critical"},
    }
    names = {f"re-{node}-under-{kind}": kind for kind in kinds}
    create(lab, *(pod(name, node, labels={"on": node}, **kinds[kind]) for name, kind in names.items()))

    def judged() -> dict[str, str]:
        there = {one["metadata"]["name"]: one for one in pods_of(lab, node)}
        return {
            kind: there[name]["status"].get("reason", "") for name, kind in names.items() if there[name]["status"]["phase"] != "Pending"
        }

    wait_for(lambda: len(judged()) == len(names), f"the kubelet of {node} to have judged its new pods")
    configuration = get(lab, f"/api/v1/nodes/{node}/proxy/configz")["kubeletconfig"]
    new = [one for one in pods_of(lab, node) if one["metadata"]["name"] in names]
    told = {
        one.pod.removeprefix(f"default/re-{node}-under-"): one.outcome
        for one in forecast(new, get(lab, f"/api/v1/nodes/{node}"), configuration, configuration).pods
    }
    assert all(told.get(kind, "lost") != "stays" for kind, reason in judged().items() if reason), (told, judged())
    return judged()


def _lost(lab: Lab, node: str, pods: list[dict[str, Any]]) -> dict[str, str]:
    """Start the kubelet, and see whom it rejects or preempts, and why; the last of `pods` is the youngest. It ends a pod that it rejects as
    one that it does not know (after 1 s), or, if a container's event comes before its first housekeeping, as that pod asks for. So one that
    is being deleted may run until its grace period is over (pkg/kubelet/kubelet.go: syncLoopIteration; pod_workers.go:
    calculateEffectiveGracePeriod), and the API does not call it Failed before that."""
    told = lab.run(node, "journalctl -u kubelet --lines 1 --show-cursor --output cat --no-pager").stdout
    cursor = told.rsplit("-- cursor: ", 1)[1].strip()
    lab.run(node, "systemctl start kubelet")
    marker = pods[-1]["metadata"]["name"]

    def denied() -> dict[str, str]:
        log = lab.run(node, f"journalctl -u kubelet --after-cursor '{cursor}' --output cat --no-pager").stdout
        found: dict[str, str] = dict(re.findall(r'"Pod admission denied".* pod="([^"]+)" reason="([^"]+)"', log))
        return found | dict.fromkeys(re.findall(r'"Pod evicted successfully" pod="([^"]+)"', log), "Preempting")

    def phases() -> dict[str, str]:
        return {f"default/{one['metadata']['name']}": _phase(one) for one in pods_of(lab, node)}

    def judged() -> bool:
        return f"default/{marker}" in denied() or phases().get(f"default/{marker}") == "Running"

    with _seen_on(lab, node):
        wait_for(judged, f"the kubelet of {node} to have judged its pods")
        found = denied()
        wait_for(lambda: not {one for one, phase in phases().items() if one in found and phase in _NOT_OVER}, f"the API to know of {found}")
    over = {one: phase for one, phase in phases().items() if phase in ("Failed", "Succeeded")}
    return {**over, **found}


_NOT_OVER = ("Pending", "Running")


def _phase(pod: dict[str, Any]) -> str:
    phase = str(pod["status"]["phase"])
    return f"{phase}, being deleted" if phase in _NOT_OVER and "deletionTimestamp" in pod["metadata"] else phase


@contextlib.contextmanager
def _seen_on(lab: Lab, node: str) -> Iterator[None]:
    """What waited in vain says what is there: the pods of the node, and the last words of its kubelet."""
    try:
        yield
    except AssertionError as error:
        there = [f"{one['metadata']['name']}: {_phase(one)} {one['status'].get('reason', '')}" for one in pods_of(lab, node)]
        words = lab.run(node, "journalctl -u kubelet --lines 25 --output cat --no-pager | cut -c 1-300", check=False).stdout
        raise AssertionError("\n".join([str(error), *there, words])) from None


def test_no_pod_that_stays_by_the_forecast_is_lost(lab: Lab) -> None:
    def of(node: str) -> list[Outcome]:
        return [play(lab, scenario(node, seed, more)) for seed, more in SEEDS[node].items()]

    with ThreadPoolExecutor() as pool:
        outcomes = [one for found in pool.map(of, WORKERS) for one in found]
    told: Counter[str] = Counter()
    for one in outcomes:
        told += one.counted()
    since = datetime.now(UTC)
    wait_for(lambda: controllers_lead(lab, since), "a kube-controller-manager that leads")
    print(f"the forecast was right or unsure for {sum(told.values())} pods: {dict(told)}")
    assert not [text for one in outcomes for text in one.false_stays()]
    assert not [text for text in told if "WRONG" in text], told
    assert told["lost, and it was"] >= 4 and told["stays, and it stayed"] >= 10, told
    reasons = {reason for outcome in outcomes for reason in (*outcome.before, *(one.reason for one in outcome.found.losers))}
    assert reasons >= {"TaintToleration", "SysctlForbidden", "UnexpectedAdmissionError", "Evicted"}, reasons
    in_fact = {reason for outcome in outcomes for reason in outcome.lost.values()}
    assert in_fact >= {"TaintToleration", "SysctlForbidden"}, in_fact


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "more"), SLOW_SEEDS.items(), ids=SLOW_SEEDS.values())
def test_no_pod_that_stays_is_lost_by_a_rarer_change(lab: Lab, seed: int, more: str) -> None:
    outcome = play(lab, scenario("w1", seed, more))
    told = outcome.counted()
    print(f"{more}: the forecast was right or unsure for {sum(told.values())} pods: {dict(told)}")
    assert not outcome.false_stays() and not [text for text in told if "WRONG" in text], told
    reasons = {one.reason for one in outcome.found.losers}
    assert told["stays, and it stayed"] >= 1 and (reasons & {"Evicted", "UnexpectedAdmissionError", "TopologyAffinityError"}), reasons
    if more in PRESSURES:
        # What the condition means for a pod that the kubelet judges when it has it: all but critical ones are rejected.
        assert outcome.under == {"besteffort": "Evicted", "burstable": "Evicted", "critical": ""}


def test_a_change_that_would_lose_a_pod_is_refused_and_names_it(lab: Lab) -> None:
    """A label was removed since: any restart of the kubelet loses the pod, also for a gate."""
    lab.kubectl("label", "node", "w1", f"{LABEL}=ssd")
    create(lab, pod("re-needs-label", "w1", nodeSelector={LABEL: "ssd"}, labels={"on": "w1"}))
    try:
        lab.kubectl("wait", "--for=condition=Ready", "pod/re-needs-label", "--timeout=280s")
        wish = data(feature_gates=f"{GATE}=true", components="kubelet", only="w1", drain="never")
        stays = pyinfra("feature_gates", "--dry", *wish)
        assert stays.code == 0 and "After the restart the kubelet takes all its pods back" in stays.out, stays.all
        lab.kubectl("label", "node", "w1", f"{LABEL}-")
        told = pyinfra("feature_gates", "-y", *wish)
        assert told.code == 1 and f"default/re-needs-label (NodeAffinity: nodeSelector {LABEL}=ssd does not match)" in told.all, told.all
        assert "deploys/drain.py --data nodes=w1" in told.all
        consent = data(kubelet_config="podPidsLimit=4321", only="w1", allow_evictions="true")
        accepted = pyinfra("kubelet_config", "-y", *consent)
        assert accepted.code == 0 and "LOSES: default/re-needs-label (NodeAffinity" in accepted.out, accepted.all
        assert "gone, as announced: " in accepted.out and "default/re-needs-label" in accepted.out.partition("gone, as announced: ")[2]
        # Failed; or Succeeded and without a reason, if its containers have ended with 0 before the API had the kubelet's first status. The
        # kubelet's log has the reason.
        assert get(lab, "/api/v1/namespaces/default/pods/re-needs-label")["status"]["phase"] in ("Failed", "Succeeded")
        log = lab.run("w1", "journalctl -u kubelet --output cat --no-pager").stdout
        assert re.search(r'"Pod admission denied".* pod="default/re-needs-label" reason="NodeAffinity"', log)
        back = pyinfra("rollback", "-y")
        assert back.code == 0 and "After the restart the kubelet takes all its pods back" in back.out, back.all
    finally:
        removed(lab, "on=w1")
        lab.kubectl("label", "node", "w1", f"{LABEL}-")
        operator.forget(lab)


# ---- placement


@contextlib.contextmanager
def arranged(lab: Lab, dice: Random) -> Iterator[list[str]]:
    """The nodes of the lab with labels, taints and a cordon; and what they can allocate of a resource of the test's own."""
    nodes = list(lab.nodes)
    for name in nodes:
        lab.kubectl("label", "node", name, f"{LABEL}={dice.choice(['ssd', 'hdd'])}", f"daytwo.test/zone={dice.choice('ab')}", "--overwrite")
        slots = json.dumps({"status": {"capacity": {"daytwo.test/slot": str(dice.randint(1, 4))}}})
        lab.kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", slots)
    tainted, cordoned = dice.choice(nodes), dice.choice([*nodes, ""])
    lab.kubectl("taint", "node", tainted, f"{TAINT}=yes:NoSchedule", "--overwrite")
    if cordoned:
        lab.kubectl("cordon", cordoned)

    def has_slots() -> bool:
        return all("daytwo.test/slot" in one["status"]["allocatable"] for one in get(lab, "/api/v1/nodes")["items"])

    try:
        wait_for(has_slots, "the kubelets to have taken over the resource")
        yield nodes
    finally:
        lab.kubectl("taint", "node", tainted, f"{TAINT}-")
        for name in nodes:
            lab.kubectl("uncordon", name)
            lab.kubectl("label", "node", name, f"{LABEL}-", "daytwo.test/zone-")
            gone = json.dumps({"status": {"capacity": {"daytwo.test/slot": None}, "allocatable": {"daytwo.test/slot": None}}})
            lab.kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", gone)


def wanted(dice: Random, name: str) -> dict[str, Any]:
    more: dict[str, Any] = {"labels": {"app": dice.choice(["web", "db"]), "test": "placement"}}
    keys = ("kubernetes.io/hostname", "daytwo.test/zone")
    selector = {"matchLabels": {"app": dice.choice(["web", "db"])}}
    match dice.randrange(8):
        case 0:
            more["nodeSelector"] = {LABEL: "ssd"}
        case 1 | 2:
            kind = dice.choice(["podAffinity", "podAntiAffinity"])
            term = {"topologyKey": dice.choice(keys), "labelSelector": selector}
            more["affinity"] = {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        case 3 | 4:
            constraint = {
                "topologyKey": dice.choice(keys),
                "maxSkew": dice.randint(1, 2),
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": selector,
            }
            more["topologySpreadConstraints"] = [constraint | {"nodeTaintsPolicy": dice.choice(["Honor", "Ignore"])}]
        case 5:
            expression = {"key": LABEL, "operator": dice.choice(["In", "NotIn"]), "values": ["hdd"]}
            required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
            more["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    tolerations = [{"key": TAINT, "operator": "Exists"}] if dice.randrange(3) == 0 else []
    if dice.randrange(4) == 0:
        tolerations.append({"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"})
    made = pod(name, cpu=dice.choice([0, 10]), port=dice.choice([0, 0, 0, 18090]), tolerations=tolerations, **more)
    made["metadata"]["labels"]["app"] = more.get("labels", {}).get("app", made["metadata"]["labels"]["app"])
    if dice.randrange(2):
        slots = {"daytwo.test/slot": "1"}
        made["spec"]["containers"][0]["resources"] = {
            "requests": made["spec"]["containers"][0]["resources"]["requests"] | slots,
            "limits": slots,
        }
    return made


def scheduled(lab: Lab, name: str) -> str | None:
    """The node of a pod; "" if the scheduler has found none; None if it has not said so yet."""
    found = json.loads(lab.kubectl("get", "pod", name, "-o", "json"))
    said = [one for one in found["status"].get("conditions") or () if one["type"] == "PodScheduled"]
    return str(found["spec"].get("nodeName") or "") if said else None


@pytest.mark.parametrize("seed", [11, pytest.param(12, marks=pytest.mark.slow)])
def test_every_pod_that_fits_by_placement_is_scheduled(lab: Lab, seed: int) -> None:
    dice = Random(seed)
    told: Counter[str] = Counter()
    wrong = []
    with arranged(lab, dice):
        pods = [wanted(dice, f"place-{number}") for number in range(12)]
        nodes, there = get(lab, "/api/v1/nodes")["items"], get(lab, "/api/v1/pods")["items"]
        spaces = get(lab, "/api/v1/namespaces")["items"]
        found = place_all(pods, ClusterView(nodes, there, namespaces=spaces))
        try:
            for one, placement in zip(pods, found, strict=True):
                name = one["metadata"]["name"]
                create(lab, one)
                wait_for(lambda name=name: scheduled(lab, name) is not None, f"the scheduler to have judged {name}")  # type: ignore[misc]
                on = scheduled(lab, name)
                told[f"{placement.outcome}: {'scheduled' if on else 'left over'}"] += 1
                print(f"{placement}; in fact: {on or 'left over'}")
                if (placement.fits and not placement.after_others and not on) or (on and placement.nodes[on].state == "no"):
                    wrong.append(f"{placement}; in fact: {on or 'left over'}")
        finally:
            removed(lab, "test=placement")
    print(f"placement and the scheduler, seed {seed}: {dict(told)}")
    assert not wrong, wrong
    assert told["fits: scheduled"] >= 3, told
