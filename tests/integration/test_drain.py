"""Drains on a real cluster: every filter, every answer of the eviction API, waves, surge, halts, operators that die; no request is lost."""

from __future__ import annotations

import http.client
import json
import re
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import paramiko
import pytest

from roles.engine.api import Conflict, EvictionRefused, Forbidden, NotFound, TunnelApi, parse_kubeconfig
from roles.engine.api.kubectl import ADMIN_CONF
from roles.engine.draining import CORDONED_BY, SURGED_BY, DrainConsents, NodeDrain, PodFate, PodWorkload, try_eviction
from roles.engine.draining.evicting import Evictor, eviction
from roles.engine.object_changes import NotDone, Object, Session, uid
from tests.integration import operator
from tests.integration.operator import Outcome, Started, data, pyinfra, wait_for
from tests.lab import Lab, images

pytestmark = pytest.mark.lab

NAMESPACE = "t-drain"
KINDS = "deployments,statefulsets,daemonsets,jobs,poddisruptionbudgets,pods"
# An end that a client does not notice: the pod is not Ready from its deletion on, and serves until the last client knows.
SERVE = "echo ok >/tmp/index.html; httpd -p 8080 -h /tmp; trap 'sleep 4; exit 0' TERM; while :; do sleep 1 & wait $!; done"
# Ignores the order to end until the grace period is over.
STUBBORN = "trap '' TERM; while :; do sleep 1 & wait $!; done"
ANYWHERE = [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"}]
LOCK = "/var/lib/daytwo/cluster"


def drain(*arguments: str, dry: bool = False, **values: str) -> Outcome:
    return pyinfra("drain", *data(**values), *arguments, "--dry" if dry else "-y")


def uncordon(**values: str) -> Outcome:
    return pyinfra("uncordon", *data(**values), "-y")


def get(lab: Lab, *what: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lab.kubectl("get", *what, "-o", "json"))
    return found


def apply(lab: Lab, *items: dict[str, Any]) -> None:
    lab.kubectl("apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)}))


def pods(lab: Lab) -> dict[str, Object]:
    return {item["metadata"]["name"]: item for item in get(lab, "pods", "-n", NAMESPACE)["items"]}


def on(lab: Lab, node: str) -> list[str]:
    return sorted(name for name, item in pods(lab).items() if item["spec"].get("nodeName") == node)


def cordon_of(lab: Lab, node: str) -> tuple[bool, str]:
    """Whether the node is cordoned, and daytwo's mark."""
    item = get(lab, "node", node)
    return bool(item["spec"].get("unschedulable")), (item["metadata"].get("annotations") or {}).get(CORDONED_BY, "")


def run_of(text: str) -> str:
    found = re.search(r"Plan of run (\S+):", text)
    assert found, text
    return found[1]


def refused(told: Outcome, *words: str) -> None:
    flat = " ".join(told.all.split())
    assert told.code != 0 and "refused, nothing was written" in flat, told.all
    for word in words:
        assert word in flat, f"{word!r} is not in:\n{told.all}"


def container(command: str = "", **more: Any) -> dict[str, Any]:
    made = {"name": "app", "image": f"{images.REPOSITORY}/app:1", "imagePullPolicy": "Never", **more}
    return {**made, "command": ["/bin/sh", "-c", command]} if command else made


def workload(
    name: str, kind: str = "Deployment", replicas: int = 1, command: str = "", grace: int = 1, ports: Any = None, **pod: Any
) -> dict[str, Any]:
    labels = {"app": name}
    probe = {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1}
    more = {"ports": [{"containerPort": 8080, "hostPort": ports}], "readinessProbe": probe} if ports else pod.pop("container", {})
    template = {
        "metadata": {"labels": labels},
        "spec": {"terminationGracePeriodSeconds": grace, "containers": [container(command, **more)], **pod},
    }
    spec: dict[str, Any] = {"selector": {"matchLabels": labels}, "template": template}
    if kind != "DaemonSet":
        spec["replicas"] = replicas
    if kind == "StatefulSet":
        spec["serviceName"] = name
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


def budget(name: str, app: str = "", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"selector": {"matchLabels": {"app": app or name}}, **spec},
    }  # fmt: skip


def bare(name: str, node: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": 1, "containers": [container(spec.pop("command", ""))], **spec},
    }  # fmt: skip


def rolled_out(lab: Lab) -> None:
    for item in get(lab, "deployments,statefulsets,daemonsets", "-n", NAMESPACE)["items"]:
        lab.kubectl("rollout", "status", f"{item['kind'].lower()}/{item['metadata']['name']}", "-n", NAMESPACE, "--timeout=280s")


def settled(lab: Lab) -> None:
    """All workloads have their pods Ready, and all budgets are computed. Of the budgets of one app, only one has to be: an event of a pod
    makes kube-controller-manager compute one of them (pkg/controller/disruption/disruption.go, getPdbForPod)."""
    rolled_out(lab)

    def computed() -> bool:
        healthy: dict[str, int] = {}
        for one in get(lab, "poddisruptionbudgets", "-n", NAMESPACE)["items"]:
            app = one["spec"]["selector"]["matchLabels"]["app"]
            healthy[app] = max(healthy.get(app, 0), int((one.get("status") or {}).get("currentHealthy") or 0))
        return all(healthy.values())

    wait_for(computed, "the budgets to be computed", 120)


def only_on(lab: Lab, *nodes: str, items: list[dict[str, Any]]) -> None:
    """Create workloads while all other nodes are cordoned."""
    others = [node for node in lab.nodes if node not in nodes]
    lab.kubectl("cordon", *others)
    apply(lab, *(item for item in items if item["kind"] != "PodDisruptionBudget"))
    rolled_out(lab)
    # Last: the events of a pod with two budgets refresh only one of them.
    if budgets := [item for item in items if item["kind"] == "PodDisruptionBudget"]:
        apply(lab, *budgets)
        settled(lab)
    lab.kubectl("uncordon", *others)


@pytest.fixture(scope="module", autouse=True)
def namespace(lab: Lab) -> Iterator[None]:
    mine = (NAMESPACE, "t-ending")
    wait_for(lambda: not set(mine) & {one["metadata"]["name"] for one in get(lab, "namespaces")["items"]}, "the namespaces to be gone")
    lab.kubectl("create", "namespace", NAMESPACE)
    # A controller creates it; no pod is admitted before.
    wait_for(
        lambda: "serviceaccount/default" in lab.kubectl("get", "serviceaccounts", "-n", NAMESPACE, "-o", "name"), "the service account"
    )
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
    lab.kubectl("delete", KINDS, "--all", "-n", NAMESPACE, "--now", "--wait")


def forget_lock(lab: Lab) -> None:
    lab.run("cp1", f"flock -w 60 {LOCK}.lock rm -f {LOCK}")


@pytest.fixture(scope="module")
def session(lab: Lab) -> Iterator[Session]:
    where = paramiko.SSHConfig.from_path(str(lab.ssh_config)).lookup("cp1")
    client = paramiko.SSHClient()
    client.load_host_keys(where["userknownhostsfile"])
    patient = {"timeout": 60, "banner_timeout": 120, "auth_timeout": 120}
    client.connect(
        where["hostname"], username=where["user"], key_filename=where["identityfile"], look_for_keys=False, allow_agent=False, **patient
    )
    credentials = parse_kubeconfig(lab.run("cp1", f"cat {shlex.quote(ADMIN_CONF)}").stdout.encode())
    transport = client.get_transport()
    assert transport is not None
    yield Session(lambda: TunnelApi(transport, credentials, ("127.0.0.1", 6443), "cp1"))
    client.close()


# ---- the plan, and what each pod becomes


def test_every_pod_has_its_fate_and_deadlocks_are_refused(lab: Lab) -> None:
    local = {"volumes": [{"name": "cache", "emptyDir": {}}]}
    job = {
        "metadata": {"labels": {"app": "work"}},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container()]},
    }
    items = [
        workload("web", replicas=2), budget("web", maxUnavailable=1), workload("cache", **local), workload("db", "StatefulSet"),
        workload("logs", "DaemonSet"), bare("alone", "w1"), bare("finished", "w1", command="exit 0", restartPolicy="Never"),
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "work", "namespace": NAMESPACE}, "spec": {"template": job}},
        workload("frozen"), budget("frozen", maxUnavailable=0),
        workload("twice"), budget("twice", maxUnavailable=1), budget("other", "twice", maxUnavailable=1),
    ]  # fmt: skip
    only_on(lab, "w1", items=items)
    wait_for(lambda: pods(lab)["finished"]["status"]["phase"] == "Succeeded", "the pod to finish")
    before = pods(lab)

    told = drain(nodes="w1")
    refused(
        told, "alone: it has no controller", "allow_unmanaged=true", "emptyDir (cache)", "allow_local_data=true", "maxUnavailable 0 allows none",
        "ignore_budgets=t-drain/frozen", "more than one PodDisruptionBudget", "t-drain/other,t-drain/twice",
    )  # fmt: skip
    assert cordon_of(lab, "w1") == (False, "") and {name: uid(one) for name, one in pods(lab).items()} == {
        name: uid(one) for name, one in before.items()
    }

    consents = {"allow_local_data": "true", "allow_unmanaged": "true", "ignore_budgets": "t-drain/frozen,t-drain/twice,t-drain/other"}
    dry = drain(nodes="w1", dry=True, **consents)
    assert dry.code == 0 and "a static pod" not in dry.out and "would be evicted now" in dry.out and cordon_of(lab, "w1") == (False, ""), (
        dry.all
    )

    told = drain(nodes="w1", **consents)
    assert told.code == 0, told.all
    run = run_of(told.out)
    assert cordon_of(lab, "w1") == (True, run)
    left, now = on(lab, "w1"), pods(lab)
    assert left == sorted(["finished", *(name for name in before if name.startswith("logs-") and before[name]["spec"]["nodeName"] == "w1")])
    assert all(uid(now[name]) == uid(before[name]) for name in left), "what stays is not touched"
    assert "alone" not in now and uid(now["db-0"]) != uid(before["db-0"]) and now["db-0"]["spec"]["nodeName"] == "w2"
    settled(lab)
    assert re.search(r"frozen-\S+ .*deleted past its budget, by consent", told.out) and re.search(
        r"Node w1 drained +prove +done", told.out
    ), told.all

    again = drain(nodes="w1", **consents)
    assert again.code == 0 and f"take over the cordon of run {run}" in again.out and cordon_of(lab, "w1") == (True, run_of(again.out)), (
        again.all
    )
    back = uncordon(nodes="w1")
    assert back.code == 0 and cordon_of(lab, "w1") == (False, ""), back.all
    assert "it is not cordoned" in uncordon(nodes="w1").out


def test_what_cannot_mean_a_node_is_refused(lab: Lab) -> None:
    for told, words in ((drain(), "no nodes are named"), (drain(nodes="w9"), "'w9' is no host of the inventory and no node")):
        assert told.code != 0 and words in told.all, told.all


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
        except (NotFound, Conflict, Forbidden, EvictionRefused) as error:
            return error
        return None

    wait_for(lambda: get(lab, "namespace", "t-ending")["status"]["phase"] == "Terminating", "the namespace to end")
    another = "00000000-0000-0000-0000-000000000000"
    gone = {"metadata": {**named["free"]["metadata"], "name": "never-was", "uid": another}}
    other = {"metadata": {**named["db"]["metadata"], "uid": another}}
    assert isinstance(answer(gone), NotFound) and isinstance(answer(other), Conflict)
    forbidden = answer(ending)
    assert isinstance(forbidden, Forbidden) and forbidden.ending_namespace, forbidden

    # A StatefulSet's pod that came back under its name is another pod, and is not touched.
    mover = Evictor(session, DrainConsents(seconds=60), ["w1"], lambda: "")
    owner = get(lab, "statefulset", "db", "-n", NAMESPACE)
    database = PodWorkload("StatefulSet", NAMESPACE, "db", uid(owner), 1, 1, True, owner)
    assert "another pod has its name, and is not touched" in mover.move(PodFate(other, "w1", "evicted", "", workload=database))
    assert uid(pods(lab)["db-0"]) == uid(named["db"]) and "deletionTimestamp" not in pods(lab)["db-0"]["metadata"]
    assert "gone already" in mover.move(PodFate(gone, "w1", "evicted", ""))
    assert "evicted; gone; 1 of StatefulSet t-drain/db are Ready" in mover.move(
        PodFate(named["db"], "w1", "evicted", "", workload=database)
    )
    assert uid(pods(lab)["db-0"]) != uid(named["db"])

    # Its namespace is being deleted: the namespace's controller ends the pod, and daytwo waits for that.
    with ThreadPoolExecutor() as pool:
        waits = pool.submit(mover.move, PodFate(ending, "w1", "evicted", ""))
        lab.kubectl("patch", "pod", "held", "-n", "t-ending", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        assert "its namespace is being deleted" in waits.result(timeout=120) or "gone already" in waits.result()


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
    assert cordon_of(lab, "w1") == (True, run_of(told.out)) and cordon_of(lab, "w2") == (True, "")
    assert re.search(r"Node w2 .*cordoned by kubectl .* before: that cordon stays", told.out), told.all
    refused(uncordon(nodes="w1,w2"), "Node w2: kubectl", "force=true")
    back = pyinfra("rollback", *data(run=run_of(told.out)), "-y")
    assert back.code == 0 and cordon_of(lab, "w1") == (False, "") and cordon_of(lab, "w2") == (True, ""), back.all
    assert "an eviction is not undone" in back.out and len(on(lab, "cp1")) == 4
    assert uncordon(nodes="w2", force="true").code == 0 and cordon_of(lab, "w2") == (False, "")


def test_one_node_in_the_middle_of_another_run(lab: Lab, session: Session) -> None:
    """As a reboot uses it."""
    only_on(lab, "w1", items=[workload("web", replicas=2), budget("web", maxUnavailable=1)])
    events: list[Any] = []
    inside = NodeDrain(session, "w1", DrainConsents(seconds=120), "r20260101-000000-aaaa", events.append)
    assert not inside.plan().refusals
    assert "1 workload serves elsewhere" in inside.begin()
    assert cordon_of(lab, "w1") == (True, "r20260101-000000-aaaa") and on(lab, "w1") == []
    assert [event["what"] for event in events] == ["cordon", "evict", "evict", "prove"]
    assert "read back" in inside.end() and cordon_of(lab, "w1") == (False, "")
    # What it would refuse it refuses before the cordon.
    apply(lab, workload("held", command=STUBBORN, grace=30))
    settled(lab)
    (node,) = {one["spec"]["nodeName"] for name, one in pods(lab).items() if name.startswith("held-")}
    stopped = NodeDrain(session, node, DrainConsents(seconds=5), "r20260101-000000-aaaa", events.append)
    assert any("it may take 30 s to end" in text for text in stopped.plan().refusals)
    with pytest.raises(NotDone, match="cannot be drained now"):
        stopped.begin()
    assert cordon_of(lab, node) == (False, "")


# ---- a client that asks all the time


class Client:
    """Asks a Service every 50 ms, as a proxy of it would: at an endpoint that is ready, by the EndpointSlices that it watches."""

    def __init__(self, lab: Lab, service: str, port: int) -> None:
        self.lost: list[str] = []
        self.answers: set[str] = set()
        self.asked = 0
        self._lab, self._port = lab, port
        self._slices: dict[str, list[str]] = {}
        self._over = threading.Event()
        watch = f"kubectl --kubeconfig={ADMIN_CONF} get endpointslices -n {NAMESPACE} -l kubernetes.io/service-name={service} -o json --watch --output-watch-events"
        command = [
            "ssh",
            "-F",
            str(lab.ssh_config),
            "-o",
            "LogLevel=ERROR",
            "-o",
            "ControlMaster=no",
            "-o",
            "ControlPath=none",
            "cp1",
            watch,
        ]
        self._watch = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        self._threads = [threading.Thread(target=target, daemon=True) for target in (self._read, self._ask)]
        self._threads[0].start()
        wait_for(lambda: any(self._slices.values()), f"endpoints of {service}")
        self._threads[1].start()

    def _read(self) -> None:
        assert self._watch.stdout is not None
        for line in self._watch.stdout:
            event = json.loads(line)
            item = event["object"]
            ready = [one["nodeName"] for one in item.get("endpoints") or () if (one.get("conditions") or {}).get("ready")]
            self._slices[item["metadata"]["name"]] = [] if event["type"] == "DELETED" else ready

    def _ask(self) -> None:
        while not self._over.wait(0.05):
            nodes = [node for found in list(self._slices.values()) for node in found]
            self.asked += 1
            if not nodes:
                self.lost.append(f"{time.time():.3f}: no endpoint is ready")
                continue
            node = nodes[self.asked % len(nodes)]
            connection = http.client.HTTPConnection(self._lab.address(node), self._port, timeout=20)
            try:
                connection.request("GET", "/")
                answer = connection.getresponse()
                if answer.status != 200 or answer.read().strip() != b"ok":
                    self.lost.append(f"{time.time():.3f}: {node}: {answer.status}")
                self.answers.add(node)
            except OSError as error:
                self.lost.append(f"{time.time():.3f}: {node}: {error!r}")
            finally:
                connection.close()

    def end(self) -> None:
        self._over.set()
        self._threads[1].join(timeout=60)
        self._watch.terminate()
        self._watch.wait()


def service(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": 8080}]},
    }  # fmt: skip


def test_a_client_loses_no_request(lab: Lab) -> None:
    """Two replicas and a budget; one replica with surge."""
    serving = {"command": SERVE, "grace": 30, "tolerations": ANYWHERE}
    only_on(
        lab,
        "w1",
        "w2",
        items=[service("web"), service("one"), workload("web", replicas=2, ports=8080, **serving), budget("web", maxUnavailable=1)],
    )
    only_on(lab, "w1", items=[workload("one", ports=8081, **serving), budget("one", minAvailable=1)])
    refused(drain(nodes="w1", dry=True), "one-", "needs 1 healthy pods")
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
    assert uncordon(nodes="w1").code == 0


# ---- halts and dead operators


def killed(lab: Lab, run: Started) -> str:
    run.send(signal.SIGKILL)
    run.end()
    wait_for(lambda: lab.run("cp1", f"flock -n {LOCK}.lock true", check=False).returncode == 0, "the lock to be let go")
    return run_of(run.out)


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

    again = Started("drain", *data(nodes="w1", take_over=first, allow_unmanaged="true"), "-y")
    again.wait_for("evict it from w1 (Deployment t-drain/web)")
    apply(lab, bare("late", "w1"))
    told = again.end()
    assert told.code == 0 and "came in mid-drain: t-drain/late" in told.out, told.all
    assert on(lab, "w1") == [] and cordon_of(lab, "w1") == (True, run_of(told.out))
    assert f"cordoned already by run {first}: this run takes it over and continues" in told.out
    other = pyinfra("rollback", *data(run=first), "-y")
    assert other.code == 0 and "has taken its cordon over" in other.out and cordon_of(lab, "w1")[0], other.all
    back = pyinfra("rollback", *data(run=run_of(told.out)), "-y")
    assert back.code == 0 and cordon_of(lab, "w1") == (False, ""), back.all


def test_a_budget_that_refuses_for_now_halts_after_the_timeout_and_uncordons(lab: Lab) -> None:
    probe = {"readinessProbe": {"exec": {"command": ["cat", "/tmp/ready"]}, "periodSeconds": 1}}
    command = "echo >/tmp/ready; trap 'exit 0' TERM; sleep 600 & wait $!"
    web = workload("web", replicas=3, command=command, container=probe)
    only_on(lab, "w1", "w2", items=[web, budget("web", minAvailable=2)])
    assert on(lab, "w1") and on(lab, "w2")
    # Not Ready, on the other node, and nothing repairs it.
    lab.kubectl("exec", "-n", NAMESPACE, on(lab, "w2")[0], "--", "/bin/busybox", "rm", "/tmp/ready")
    wait_for(lambda: get(lab, "pdb", "web", "-n", NAMESPACE)["status"]["disruptionsAllowed"] == 0, "the budget to be used up")
    there = on(lab, "w1")

    told = drain(nodes="w1", drain_timeout="5")
    assert told.code == 1 and "NOT NOW" in told.out and "the API server refused its eviction for" in told.out, told.all
    assert cordon_of(lab, "w1") == (False, "") and "uncordoned, since the run halted" in told.out, told.all
    run = Started("drain", *data(nodes="w1", keep_cordon="true"), "-y")
    run.wait_for(": waits: The disruption budget web needs 2 healthy pods and has 2 currently")
    run.send(signal.SIGINT)
    told = run.end()
    assert told.code == 1 and "interrupted by the operator" in told.out and "stay cordoned" in told.out, told.all
    assert cordon_of(lab, "w1") == (True, run_of(told.out)) and on(lab, "w1") == there
    assert uncordon(nodes="w1").code == 0 and cordon_of(lab, "w1") == (False, "")
