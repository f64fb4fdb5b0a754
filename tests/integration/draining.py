"""What tests of drains share: workloads and budgets in a namespace of their own, on the nodes where a test wants them."""

from __future__ import annotations

import json
import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import paramiko

from roles.engine.api.kubeconfig import parse_kubeconfig
from roles.engine.api.kubectl import ADMIN_CONF
from roles.engine.kube import Object
from roles.engine.objects import Session
from roles.engine.outage import read_mark
from roles.engine.outage.mark import OUTAGE
from roles.engine.tunnels import TunnelApi
from tests.integration import operator
from tests.integration.operator import Started, end_started, run_of, wait_for
from tests.lab import Lab, images

NAMESPACE = "t-drain"
# In it, a pod's finalizer is the last that is left of it.
HOLD = "t.example/hold"
KINDS = "deployments,statefulsets,daemonsets,jobs,poddisruptionbudgets,pods"
# Ignores the order to end until the grace period is over.
STUBBORN = "trap '' TERM; while :; do sleep 1 & wait $!; done"
ANYWHERE = [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"}]


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
    return bool(item["spec"].get("unschedulable")), str(read_mark(item) or "")


def fate(lab: Lab, node: str) -> tuple[bool, str, str]:
    """Whether it is cordoned, and the purpose and reason of daytwo's mark."""
    item = get(lab, "node", node)
    mark = read_mark(item)
    return bool(item["spec"].get("unschedulable")), mark.purpose if mark else "", mark.why if mark else ""


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


@contextmanager
def own_namespace(lab: Lab) -> Iterator[None]:
    """The namespace, for a module; afterwards no record of its runs is left."""
    wait_for(lambda: NAMESPACE not in {one["metadata"]["name"] for one in get(lab, "namespaces")["items"]}, "the namespace to be gone")
    lab.kubectl("create", "namespace", NAMESPACE)
    # A controller creates it; no pod is admitted before.
    wait_for(
        lambda: "serviceaccount/default" in lab.kubectl("get", "serviceaccounts", "-n", NAMESPACE, "-o", "name"), "the service account"
    )
    yield
    lab.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
    operator.forget(lab)


def cleaned(lab: Lab, *labels: str) -> None:
    """After a test: nothing runs, no node is cordoned or has one of these labels, and the namespace has no workload."""
    end_started(lab)
    lab.kubectl("uncordon", *lab.nodes)
    lab.kubectl("annotate", "nodes", "--all", f"{OUTAGE}-")
    for label in labels:
        lab.kubectl("label", "nodes", "--all", f"{label}-")
    lab.kubectl("delete", KINDS, "--all", "-n", NAMESPACE, "--now", "--wait")


@contextmanager
def open_session(lab: Lab) -> Iterator[Session]:
    """The API of the lab's cluster, through its control-plane node, as a deploy reaches it."""
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


def killed(lab: Lab, run: Started) -> str:
    run.send(signal.SIGKILL)
    run.end()
    operator.wait_for_the_lock(lab)
    return run_of(run)
