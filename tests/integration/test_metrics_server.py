"""From no metrics API to an autoscaler that follows a real load and comes back, with the deploys as the docs have them: certificates of
kubelets, metrics-server that verifies them, autoscalers. And what daytwo does where it cannot work, or is somebody else's."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from roles.metrics_server import objects
from roles.metrics_server.model import MetricsServer
from tests.integration import operator
from tests.integration.draining import get
from tests.integration.metrics_server import API, IMAGE, listed, prepare, serve, undo
from tests.integration.operator import Outcome, data, pyinfra, wait_for
from tests.lab import Lab, loadserver
from tests.unit.api.world import Authority

# Slow: about ten minutes of the lab, and once the build of metrics-server.
pytestmark = [pytest.mark.lab, pytest.mark.slow]

NAMESPACE = "t-load"
TARGET = f"{NAMESPACE}/deployment/web"
REQUEST = 50
ENTRY = {"min": 1, "max": 4, "cpu": "60%", "behavior": {"scaleDown": {"stabilizationWindowSeconds": 15}}}


@pytest.fixture(scope="module", autouse=True)
def as_found(lab: Lab) -> Iterator[None]:
    """By hand there is what a network plugin and kube-proxy do elsewhere, and the image, which nodes here cannot pull."""
    lab.connect_pods()
    assert lab.load_extra("metrics-server") == IMAGE
    yield
    lab.kubectl("delete", "apiservice", API)
    lab.reset()


@pytest.fixture(scope="module")
def ready(lab: Lab) -> Outcome:
    """What the first plan asks for, done as it says: the flag, and the certificates. Returns that plan."""
    plan = serve("--dry")
    prepare()
    return plan


def test_what_is_missing_is_named_with_the_way_out(ready: Outcome) -> None:
    assert ready.code == 1
    assert re.search(r"cp1: .*let it: pyinfra .*--data control_plane_flags=kube-apiserver:enable-aggregator-routing=true", ready.err), (
        ready.all
    )
    named = r"the kubelets of cp1, w1, w2 serve certificates that the cluster's CA does not prove .*deploys/kubelet_certificates.py"
    assert re.search(named, ready.err), ready.all


def test_planted_problems_are_named_and_gone_after_the_advice(lab: Lab, ready: Outcome) -> None:
    pki, kubelet = "/etc/kubernetes/pki", "/etc/kubernetes-node/kubelet.yaml"
    lab.run("cp1", f"cat >{pki}/front-proxy-client.crt", input=Authority("front-proxy-ca").issue("front-proxy-client")[0].decode())
    webhook(lab, kubelet, "true", "false")
    found = serve("--dry")
    assert found.code == 1 and f"cp1: {pki}/front-proxy-client.crt is not signed by a CA of --requestheader-client-ca-file" in found.err
    assert re.search(r"the kubelets of w2 have no webhook authentication .*set it by hand", found.err), found.all

    webhook(lab, kubelet, "false", "true")
    (recreate,) = set(re.findall("move it and its key away, recreate them .`(kubeadm init phase certs [a-z-]+)`", found.err))
    lab.run("cp1", f"cd {pki} && rm front-proxy-client.crt front-proxy-client.key && {recreate}")

    sign = "openssl x509 -req -days 0 -copy_extensions copyall -CA front-proxy-ca.crt -CAkey front-proxy-ca.key -set_serial 7"
    ask = "openssl x509 -x509toreq -copy_extensions copyall -in front-proxy-client.crt -signkey front-proxy-client.key -out /root/ended"
    lab.run("cp1", f"cd {pki} && {{ {ask} && {sign} -in /root/ended -out front-proxy-client.crt; }} 2>/dev/null && rm /root/ended")
    found = serve("--dry")
    assert found.code == 1 and f"cp1: {pki}/front-proxy-client.crt expired on" in found.err and "webhook" not in found.err, found.all
    (renew,) = set(re.findall("`(kubeadm certs renew [a-z-]+)`", found.err))
    lab.run("cp1", renew)

    policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "deny", "namespace": "kube-system"}}
    lab.kubectl("apply", "-f", "-", input=json.dumps({**policy, "spec": {"podSelector": {}}}))
    found = serve("--dry")
    assert found.code == 0 and "aggregation: 1 of 1 API servers have its flags and a valid certificate" in found.out, found.all
    assert "WARNING NetworkPolicies of kube-system apply to all of its pods (deny): allow port 10250" in found.out, found.out
    lab.kubectl("delete", "networkpolicy", "-n", "kube-system", "deny")
    found = serve("--dry")
    assert found.code == 0 and "WARNING" not in found.out, found.all


def webhook(lab: Lab, path: str, was: str, now: str) -> None:
    lab.run("w2", f"sed -i '/^  webhook:/,/enabled/ s/enabled: {was}/enabled: {now}/' {path} && systemctl restart kubelet")
    shown = f'"webhook":{{"enabled":{now}'
    wait_for(lambda: shown in lab.kubectl("get", "--raw", "/api/v1/nodes/w2/proxy/configz", check=False), "the kubelet of w2")


def test_one_that_does_not_come_up_leaves_no_dead_api(lab: Lab, ready: Outcome) -> None:
    found = serve("-y", image="registry.local/metrics-server:v0.9.99", proof_timeout="10")
    assert found.code == 1 and "reverted" in found.out, found.all
    assert not lab.kubectl("get", "apiservice", API, "--ignore-not-found")
    undo(found)
    assert not lab.kubectl(
        "get", "deployment,service,poddisruptionbudget", "-n", "kube-system", "-l", "k8s-app=metrics-server", "-o", "name"
    )


def test_somebody_elses_is_only_checked(lab: Lab, ready: Outcome) -> None:
    made = [dict(one.manifest) for one in objects(MetricsServer(image=IMAGE), 1, 3)]
    spec = next(one for one in made if one["kind"] == "Deployment")["spec"]["template"]["spec"]
    spec["containers"][0]["args"].append("--kubelet-insecure-tls")
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": made})
    lab.kubectl("apply", "--server-side", "--field-manager=helm", "-f", "-", input=listed)
    try:
        before = get(lab, "deployment", "-n", "kube-system", "metrics-server")["metadata"]["uid"]
        early = serve("-y")
        assert early.code == 2 and "does not work" in early.out and "set up by helm" in early.out, early.all
        lab.kubectl("rollout", "status", "-n", "kube-system", "deployment/metrics-server", "--timeout=280s")
        wait_for(lambda: "3 of 3 Ready nodes" in serve("-y").out, "metrics of all nodes", every=3)
        found = serve("-y")
        assert found.code == 0 and "daytwo only checks it, and changes nothing" in found.out, found.all
        assert "remove it with the tool that made it" in found.out, found.out
        assert "--kubelet-insecure-tls: it trusts whatever answers" in found.out and "it has one replica" in found.out, found.out
        assert get(lab, "deployment", "-n", "kube-system", "metrics-server")["metadata"]["uid"] == before
    finally:
        lab.kubectl("delete", "-f", "-", input=listed)


@pytest.fixture(scope="module")
def served(lab: Lab, ready: Outcome) -> Outcome:
    return serve("-y")


def test_it_is_applied_and_verifies_the_kubelets(lab: Lab, served: Outcome) -> None:
    assert served.code == 0, served.all
    assert re.search(r"APIService v1beta1.metrics.k8s.io\s+create\s+done .*3 of 3 Ready nodes", served.out), served.out
    deployment = get(lab, "deployment", "-n", "kube-system", "metrics-server")
    assert deployment["status"]["availableReplicas"] == 2
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert not [word for word in container["args"] if "insecure" in word]
    assert get(lab, "pdb", "-n", "kube-system", "metrics-server")["status"]["disruptionsAllowed"] == 1
    pods = get(lab, "pods", "-n", "kube-system", "-l", "k8s-app=metrics-server")["items"]
    assert {pod["spec"]["nodeName"] for pod in pods} == {"w1", "w2"}
    assert listed(lab) == {"cp1", "w1", "w2"}
    again = serve("-y")
    assert again.code == 0 and re.search(r"metrics API\s+works", again.out), again.all


# ---- the load


def deployment(image: str) -> dict[str, Any]:
    resources = {"requests": {"cpu": f"{REQUEST}m", "memory": "16Mi"}}
    labels = {"app": "web"}
    pod = {"terminationGracePeriodSeconds": 1, "containers": [loadserver.container(image, resources)]}
    spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": NAMESPACE}, "spec": spec}


@pytest.fixture
def web(lab: Lab) -> Iterator[None]:
    image = loadserver.load(lab)
    lab.kubectl("create", "namespace", NAMESPACE)
    wait_for(lambda: lab.kubectl("get", "serviceaccount", "default", "-n", NAMESPACE, check=False), "the namespace's service account")
    lab.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(deployment(image)))
    lab.kubectl("rollout", "status", "-n", NAMESPACE, "deployment/web", "--timeout=280s")
    yield
    lab.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def running(lab: Lab) -> list[str]:
    """The addresses of the pods that run."""
    items = get(lab, "pods", "-n", NAMESPACE, "-l", "app=web", "--field-selector=status.phase=Running")["items"]
    return [one["status"]["podIP"] for one in items if "deletionTimestamp" not in one["metadata"]]


def burn(lab: Lab, cpu: int) -> None:
    """A load of so many thousandths of a core, shared by the pods as a Service would."""
    addresses = running(lab)
    each = cpu / len(addresses)
    lab.run("cp1", "; ".join(f"curl -sS --max-time 5 -X POST 'http://{one}:{loadserver.PORT}/set?cpu={each:g}'" for one in addresses))


def status() -> dict[str, Any]:
    done = pyinfra("autoscaler_status", *data(format="json", namespaces=NAMESPACE), "-y")
    found = json.loads(done.out[done.out.index("{") : done.out.rindex("}") + 1])
    (one,) = found["autoscalers"]
    return {**one, "exit": done.code}


Sample = tuple[int, int, int, int]
# Seconds: how often the controller looks.
SYNC = 15


def agrees(sample: Sample) -> bool:
    return sample[2] <= sample[1] <= sample[3]


def one_look(lab: Lab) -> Sample | None:
    """Replicas, what the controller wants, and what daytwo computes (lowest, highest); None if the controller looked meanwhile."""
    before = get(lab, "hpa", "-n", NAMESPACE, "web")
    computed = status()
    after = get(lab, "hpa", "-n", NAMESPACE, "web")
    wanted = before["status"]["desiredReplicas"]
    if wanted != after["status"]["desiredReplicas"] or before["status"].get("currentMetrics") != after["status"].get("currentMetrics"):
        return None
    return (after["status"]["currentReplicas"], wanted, computed["lowest"], computed["highest"])


def followed(lab: Lab, sample: Sample) -> str:
    """What explains a sample that differs: the controller sets a count in daytwo's range at its next look; or what it measures has changed
    since, and daytwo says the same as it then. "" if neither comes in time."""
    until = time.monotonic() + SYNC + 5
    wanted = sample[1]
    while time.monotonic() < until:
        wanted = int(get(lab, "hpa", "-n", NAMESPACE, "web")["status"]["desiredReplicas"])
        if sample[2] <= wanted <= sample[3]:
            return f"the controller then set {wanted}"
        time.sleep(0.5)
    again = one_look(lab)
    return f"the metrics changed: {again}" if again is not None and again[2:] != sample[2:] and agrees(again) else ""


def follow(lab: Lab, load: int, until: Callable[[list[Sample]], bool], what: str) -> list[Sample]:
    """Keep the load up, and look every few seconds. A sample that differs is explained by what the controller does next."""
    samples: list[Sample] = []
    unexplained: list[Sample] = []

    def look() -> bool:
        burn(lab, load)
        sample = one_look(lab)
        if sample is not None:
            samples.append(sample)
            why = "" if agrees(sample) else followed(lab, sample)
            print(f"{time.strftime('%X')} load {load}m: {sample} {why}")
            if not agrees(sample) and not why:
                unexplained.append(sample)
        return until(samples)

    wait_for(look, what, 420, every=4)
    assert not unexplained, unexplained
    return samples


def test_from_one_to_four_under_load_and_back(lab: Lab, served: Outcome, web: None) -> None:
    wait_for(lambda: "asks for 1" in scale("--dry").out, "samples that count", every=3)
    applied = scale("-y")
    assert applied.code == 0 and re.search(r"desiredReplicas 1, and daytwo computes 1", applied.out), applied.all

    def settled(count: int) -> Callable[[list[Sample]], bool]:
        return lambda samples: samples[-3:] == [(count, count, count, count)] * 3

    # 120m at 60 % of 50m are exactly four pods.
    up = follow(lab, 120, settled(4), "four pods, and agreement")
    lab.kubectl("rollout", "status", "-n", NAMESPACE, "deployment/web", "--timeout=280s")
    assert get(lab, "deployment", "-n", NAMESPACE, "web")["spec"]["replicas"] == 4
    down = follow(lab, 0, settled(1), "one pod, and agreement")
    assert max(one[0] for one in up) == 4
    # The controller looks every 15 s: between two looks it has not yet seen what daytwo sees.
    differing = [one for one in up + down if not agrees(one)]
    print(f"{len(up) + len(down)} samples, {len(differing)} before the controller's next look: {differing}")
    assert len(differing) * 2 < len(up) + len(down), differing
    undo(applied)
    assert get(lab, "hpa", "-n", NAMESPACE)["items"] == []


def scale(*arguments: str) -> Outcome:
    return pyinfra("autoscalers", *data(autoscalers=json.dumps({TARGET: ENTRY})), *arguments)


def test_a_kubelet_without_its_certificate_has_no_metrics(lab: Lab, served: Outcome) -> None:
    """metrics-server verifies kubelets: it does not believe one that serves its self-signed certificate again."""
    lab.run("w2", "sed -i '/serverTLSBootstrap/d' /etc/kubernetes-node/kubelet.yaml && systemctl restart kubelet")
    wait_for(lambda: listed(lab) == {"cp1", "w1"}, "w2 to be missed", every=3)
    found = serve("-y")
    assert found.code == 1 and "the kubelets of w2 serve certificates that the cluster's CA does not prove" in found.err, found.all
    pyinfra("kubelet_certificates", "-y").ended(0)
    wait_for(lambda: serve("-y").code == 0, "metrics of all nodes", every=5)


def test_the_undo(lab: Lab, served: Outcome) -> None:
    undo(served)
    assert not lab.kubectl("get", "apiservice", API, "--ignore-not-found")
    assert (
        "Metrics API not available" in lab.run("cp1", "kubectl --kubeconfig=/etc/kubernetes/admin.conf top nodes 2>&1", check=False).stdout
    )
    operator.forget(lab)
