"""Reboots on a real cluster: nodes that need it, nodes that do not come back, operators that die, the single control plane, all nodes."""

from __future__ import annotations

import base64
import http.client
import json
import re
import signal
import ssl
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from ruamel.yaml import YAML

from roles.engine.outage.mark import OUTAGE
from roles.reboot.plan import WITHOUT_EFFECT
from tests.integration import draining, operator
from tests.integration.draining import STUBBORN, get, killed
from tests.integration.operator import Outcome, Started, data, end_started, pyinfra, run_of, wait_for
from tests.integration.serving import wrong_answer
from tests.lab import Lab, images

NAMESPACE = "t-reboot"
# An end that a client does not notice: the pod is not Ready from its deletion on, and serves until the last client knows.
SERVE = "echo ok >/tmp/index.html; httpd -p 8080 -h /tmp; trap 'sleep 4; exit 0' TERM; while :; do sleep 1 & wait $!; done"
PROTECTED = "after the next boot its kubelet would not start (protectKernelDefaults):"
ANYWHERE = [{"operator": "Exists"}]


def reboot(*arguments: str, dry: bool = False, **values: str) -> Outcome:
    return pyinfra("reboot", *data(**values), *arguments, "--dry" if dry else "-y")


def cordon_of(lab: Lab, node: str) -> tuple[bool, set[str]]:
    """Whether the node is cordoned, and daytwo's marks on it."""
    item = get(lab, "node", node)
    marks = {key for key in item["metadata"].get("annotations") or {} if key.startswith("daytwo")}
    return bool(item["spec"].get("unschedulable")), marks


def workload(name: str, kind: str = "Deployment", **more: Any) -> dict[str, Any]:
    labels = {"app": name}
    container = {
        "name": "app", "image": f"{images.REPOSITORY}/app:1", "imagePullPolicy": "Never", "command": ["/bin/sh", "-c", SERVE],
        "ports": [{"containerPort": 8080, "hostPort": 8080}], "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1},
    }  # fmt: skip
    if kind == "DaemonSet":
        container = {key: value for key, value in container.items() if key not in ("ports", "command", "readinessProbe")}
    template = {
        "metadata": {"labels": labels},
        "spec": {"terminationGracePeriodSeconds": 30, "containers": [container], "tolerations": ANYWHERE if kind == "DaemonSet" else []},
    }
    spec = {"selector": {"matchLabels": labels}, "template": template, **more}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


def plant(lab: Lab, items: list[dict[str, Any]]) -> None:
    lab.kubectl("create", "namespace", NAMESPACE)
    lab.kubectl("apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    for item in items:
        if item["kind"] in ("Deployment", "DaemonSet"):
            lab.kubectl("rollout", "status", f"{item['kind'].lower()}/{item['metadata']['name']}", "-n", NAMESPACE, "--timeout=280s")


def row(told: Outcome, host: str) -> str:
    """The node's row in the table at the end."""
    rows = [line for line in told.out.splitlines() if re.match(rf"{host}  +(reboot|finish|release|none) ", line)]
    assert rows, told.all
    return rows[-1]


@pytest.fixture(scope="module")
def pods(lab: Lab) -> Iterator[None]:
    """A Deployment of one pod, and a DaemonSet; no record of this module's runs is left."""
    plant(lab, [workload("web", replicas=1), workload("agent", "DaemonSet")])
    yield
    lab.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
    operator.forget(lab)


@pytest.fixture(autouse=True)
def as_found(lab: Lab) -> Iterator[None]:
    yield
    end_started(lab)
    for node in lab.nodes:
        if lab.machine(node).supervisor is None:
            lab.start(node)
    lab.hang_up()
    wait_for(lambda: lab.kubectl("get", "--raw", "/readyz", check=False) == "ok", "the API", 600)
    for node in lab.nodes:
        lab.run(node, "rm -rf /run/reboot-required* /boot/vmlinuz-*-t")
    lab.kubectl("uncordon", *lab.nodes)
    lab.kubectl("annotate", "node", "--all", f"{OUTAGE}-", f"{WITHOUT_EFFECT}-")
    lab.kubectl("wait", "node", "--all", "--for=condition=Ready", "--timeout=280s")


@pytest.mark.lab
@pytest.mark.slow  # docs/runbooks/reboot.md reboots such a worker, with the same plan, rows and second run
def test_a_worker_that_needs_it(lab: Lab, pods: None) -> None:
    lab.run("w1", "echo '*** System restart required ***' >/run/reboot-required; echo linux-image-amd64 >/run/reboot-required.pkgs")
    before = {node: lab.boot_id(node) for node in lab.nodes}
    # Its pod is on the node that reboots.
    lab.kubectl("cordon", "w2")
    lab.kubectl("delete", "pod", "-n", NAMESPACE, "-l", "app=web", "--now")
    lab.kubectl("wait", "pod", "-n", NAMESPACE, "-l", "app=web", "--for=condition=Ready", "--timeout=280s")
    lab.kubectl("uncordon", "w2")

    plan = reboot(dry=True)
    assert plan.code == 0 and "1 node to reboot, of 3" in plan.out, plan.all
    assert "w1: drain, reboot, prove, uncordon (the canary): it has /run/reboot-required (linux-image-amd64)" in plan.out
    assert f"{NAMESPACE}/web-" in plan.out and "w2: no /run/reboot-required" in plan.out
    assert {node: lab.boot_id(node) for node in lab.nodes} == before and not any(cordon_of(lab, "w1"))

    told = reboot().ended(0)
    assert re.search(r"reboot +done .*back after \d+ s; boot \w{8} by SSH and by its kubelet, lease renewed, pods Ready", row(told, "w1"))
    assert "no change" in row(told, "w2")
    lab.hang_up("w1")
    after = {node: lab.boot_id(node) for node in lab.nodes}
    assert [node for node in lab.nodes if after[node] != before[node]] == ["w1"]
    assert get(lab, "node", "w1")["status"]["nodeInfo"]["bootID"] == after["w1"]
    assert cordon_of(lab, "w1") == (False, set())
    assert "0 nodes to reboot" in reboot(dry=True).out

    back = pyinfra("rollback", *data(run=run_of(told)), "-y")
    assert back.code == 1 and "a reboot cannot be undone" in " ".join(back.all.split()), back.all


@pytest.mark.lab
def test_an_administrators_cordon_stays_and_a_kernel_that_was_not_chosen_halts_the_run(lab: Lab, pods: None) -> None:
    running = lab.run("w2", "uname -r").stdout.strip()
    # Of its own flavour, and newer in any order.
    newer = "99." + running
    lab.run("w2", f"mkdir -p /boot; echo x >/boot/vmlinuz-{newer}")
    lab.kubectl("cordon", "w2")
    try:
        told = reboot(only="w2")
        flat = " ".join(told.all.split())
        if f"kernel {newer} is installed" not in told.out:
            # A release without a flavour is not compared; then only force reboots.
            assert f"not compared with the running kernel: {newer}" in flat, told.all
            told = reboot(only="w2", allow_unneeded="true")
            assert told.code == 0 and "it keeps the cordon that it had" in row(told, "w2"), told.all
            marks = set[str]()
        else:
            assert told.code == 1 and "HALTED" in told.out and "the reboot did not do its work" in flat, told.all
            assert "it is well and it keeps the cordon that it had" in flat and "its boot loader chose the old kernel" in flat
            again = reboot(only="w2", dry=True)
            assert again.code == 1 and "rebooted it for this already, and it came back the same" in " ".join(again.all.split()), again.all
            marks = {WITHOUT_EFFECT}
        assert "it was cordoned before, and stays cordoned" in told.out
        assert cordon_of(lab, "w2") == (True, marks)
    finally:
        lab.run("w2", f"rm -f /boot/vmlinuz-{newer}")


@pytest.mark.lab
def test_another_distributions_sign_and_none_at_all(lab: Lab, pods: None) -> None:
    hook = "/etc/kernel/postinst.d/unattended-upgrades"
    lab.run("w2", f"cp -L /etc/os-release /root/os-release; chmod -x {hook}")
    try:
        told = reboot(only="w2", dry=True)
        assert told.code == 1 and "w2: whether libraries need a reboot is not known on this node (debian)" in " ".join(told.all.split()), (
            told.all
        )
        lab.run("w2", "rm /etc/os-release")
        lab.run("w2", 'printf \'ID="opensuse-leap"\nID_LIKE="suse opensuse"\n\' >/etc/os-release; touch /run/reboot-needed')
        told = reboot(only="w2", dry=True)
        assert told.code == 0 and "w2: drain, reboot, prove, uncordon (the canary): it has /run/reboot-needed" in told.out, told.all
        lab.run("w2", "rm /run/reboot-needed")
        told = reboot(only="w2", dry=True)
        flat = " ".join(told.all.split())
        assert told.code == 1 and "w2: whether libraries need a reboot is not known on this node (opensuse-leap)" in flat, told.all
        assert "not known" in row(told, "w2") and "NOT KNOWN: whether w2 needs a reboot" in flat
    finally:
        lab.run("w2", f"rm -f /run/reboot-needed /etc/os-release; mv /root/os-release /etc/os-release; chmod +x {hook}")


@pytest.mark.lab
def test_what_might_not_come_back_is_refused(lab: Lab, pods: None) -> None:
    before = lab.boot_id("w1")
    lab.run(
        "w1",
        "systemctl disable kubelet 2>/dev/null; mkdir -p /run/systemd/shutdown; printf 'USEC=1\\nMODE=reboot\\n' >/run/systemd/shutdown/scheduled;"
        "cp -a /etc/fstab /root/fstab 2>/dev/null; echo '/dev/no-such-disk /srv/data ext4 defaults 0 2' >/etc/fstab;"
        # Its next start needs what no file sets, whatever the running kernel has.
        "cp -a /var/lib/kubelet/config.yaml /root/config.yaml; echo 'protectKernelDefaults: true' >>/var/lib/kubelet/config.yaml;"
        # What runs on with its old configuration.
        "cp -a /etc/ssh/sshd_config /etc/containerd/config.toml /root; echo Nonsense yes >>/etc/ssh/sshd_config; echo 'a = [' >>/etc/containerd/config.toml;"
        "mkdir -p /etc/systemd/system/containerd.service.d; printf '[Unit]\\nRequires=gone.service\\n' >/etc/systemd/system/containerd.service.d/99-gone.conf; systemctl daemon-reload",
    )
    accepted = "refuses its configuration"
    try:
        told = reboot(only="w1", allow_unneeded="true")
        flat = " ".join(told.all.split())
        assert told.code == 1 and "REFUSED, nothing was written" in flat, told.all
        for words in ("the next boot would not start kubelet.service", "a shutdown is scheduled", "/etc/fstab: /srv/data", PROTECTED):
            assert words in flat, told.all
        for words in (
            f"ssh.service: its program {accepted}",
            f"containerd.service: its program {accepted}",
            "it requires gone.service (not-found)",
        ):
            assert words in flat, told.all
    finally:
        lab.run(
            "w1",
            "systemctl enable kubelet; rm /run/systemd/shutdown/scheduled /etc/fstab; [ ! -e /root/fstab ] || mv /root/fstab /etc/fstab;"
            "mv /root/config.yaml /var/lib/kubelet/config.yaml; mv /root/sshd_config /etc/ssh/; mv /root/config.toml /etc/containerd/;"
            "rm /etc/systemd/system/containerd.service.d/99-gone.conf; systemctl daemon-reload",
        )
    assert lab.boot_id("w1") == before and cordon_of(lab, "w1") == (False, set())


@pytest.mark.lab
def test_another_kubelet_is_judged_by_its_version_and_needs_consent(lab: Lab, pods: None) -> None:
    running = get(lab, "node", "w1")["status"]["nodeInfo"]["kubeletVersion"]
    minor = int(running.split(".")[1])
    binary = lab.run("w1", "readlink /proc/$(pidof kubelet)/exe").stdout.strip()

    def replaced(version: str) -> None:
        """As an unattended upgrade does it."""
        escaped = running.replace(".", "\\.")
        lab.run("w1", f"sed 's/{escaped}/{version}/g' {binary}.old >{binary}.new && chmod 755 {binary}.new && mv {binary}.new {binary}")

    def change(**more: str) -> str:
        told = pyinfra("kubelet_config", *data(kubelet_config="maxPods=109", only="w1", **more), "--dry")
        return f"{told.code} {' '.join(told.all.split())}"

    lab.run("w1", f"cp -a {binary} {binary}.old")
    try:
        newer = f"v1.{minor + 1}.{running.split('.')[2]}"
        replaced(newer)
        words = (
            f"w1: would be kubelet 1.{minor + 1} with the kube-apiserver 1.{minor} of cp1: a kubelet must not be newer than an API server"
        )
        for said in (change(), change(allow_new_binary="true")):
            assert said.startswith("1 ") and words in said, said
        told = reboot(dry=True, only="w1", allow_unneeded="true")
        assert told.code == 1 and words in " ".join(told.all.split()), told.all
        same_minor = running[:-1] + ("9" if running[-1] != "9" else "8")
        replaced(same_minor)
        said = change()
        assert said.startswith("1 ") and f"a restart starts another kubelet: {running} -> {same_minor}" in said, said
        assert "--data allow_new_binary=true" in said
        said = change(allow_new_binary="true")
        assert said.startswith("0 ") and f"WARNING w1: a restart starts another kubelet: {running} -> {same_minor}" in said, said
    finally:
        lab.run("w1", f"mv {binary}.old {binary} && systemctl restart kubelet")


@pytest.mark.lab
def test_a_node_that_does_not_come_back_and_an_operator_that_dies(lab: Lab, pods: None) -> None:
    for node in ("w1", "w2"):
        lab.run(node, "echo x >/run/reboot-required")
    before = lab.boot_id("w2")
    run = Started("reboot", "-y", *data(reboot_timeout="20"))
    run.wait_for("; rebooting")
    lab.kill("w1")
    told = run.end()
    flat = " ".join(told.all.split())
    assert told.code == 1 and re.search(r"reboot +failed .*it is not back after \d+ s", row(told, "w1")), told.all
    assert "docs/runbooks/reboot.md" in flat and "Not touched: w2" in flat
    cordoned, marks = cordon_of(lab, "w1")
    assert cordoned and OUTAGE in marks and cordon_of(lab, "w2") == (False, set())
    assert f"{NAMESPACE}/web-" in told.out, "the plan names the pods that are drained"

    # Its power is back: the undo would only uncordon it, the next run proves it, uncordons it, and goes on with the next node.
    lab.start("w1")
    wait_for(lambda: get(lab, "node", "w1")["status"]["nodeInfo"]["bootID"] == lab.boot_id("w1"), "w1's kubelet")
    undo = pyinfra("rollback", *data(run=run_of(told)), "--dry")
    assert undo.code == 0 and "w1: uncordon it, without a proof that it is well" in undo.out, undo.all
    run = Started("reboot", "-y")
    run.wait_for("; rebooting")
    run.send(signal.SIGKILL)
    killed = run.end()
    assert f"w1: prove, uncordon: run {run_of(told)} was to reboot it" in killed.out, killed.out
    assert cordon_of(lab, "w1") == (False, set())
    cordoned, marks = cordon_of(lab, "w2")
    assert cordoned and OUTAGE in marks

    # The next run takes over the dead one's lock by name, and finishes its node.
    # It answers also until it goes down.
    wait_for(lambda: (lab.hang_up("w2"), lab.boot_id("w2"))[1] not in (None, before), "w2 to answer after its boot")
    refused = reboot()
    assert refused.code == 1 and "its operator's side is gone" in " ".join(refused.all.split()), refused.all
    finished = reboot(take_over=run_of(killed))
    assert finished.code == 0 and "done" in row(finished, "w2") and "finish" in row(finished, "w2"), finished.all
    assert cordon_of(lab, "w2") == (False, set())


@pytest.mark.lab
@pytest.mark.slow  # its operator dies twice, and the node reboots
def test_an_operator_that_dies_in_mid_drain(lab: Lab, pods: None) -> None:
    """Undone by its name; and continued by the same command."""
    lab.run("w1", "echo x >/run/reboot-required")
    before = lab.boot_id("w1")
    # Three pods that leave one after the other.
    item = workload("slow", replicas=3)
    spec = item["spec"]["template"]["spec"]
    spec["terminationGracePeriodSeconds"] = 10
    spec["containers"][0] = {"name": "app", "image": spec["containers"][0]["image"], "command": ["/bin/sh", "-c", STUBBORN]}
    lab.kubectl("cordon", "w2")
    lab.kubectl("apply", "-f", "-", input=json.dumps(item))
    lab.kubectl("rollout", "status", "deployment/slow", "-n", NAMESPACE, "--timeout=280s")
    lab.kubectl("uncordon", "w2")

    def there() -> list[dict[str, Any]]:
        return [one for one in get(lab, "pods", "-n", NAMESPACE, "-l", "app=slow")["items"] if one["spec"].get("nodeName") == "w1"]

    def dies() -> str:
        left = len(there())
        run = Started("reboot", "-y", *data(only="w1"))
        ending = "deletionTimestamp"
        wait_for(lambda: any(ending in one["metadata"] for one in there()) or run.process.poll() is not None, "an eviction", every=0.1)
        name = killed(lab, run)
        assert cordon_of(lab, "w1") == (True, {OUTAGE}) and name in get(lab, "node", "w1")["metadata"]["annotations"][OUTAGE]
        wait_for(lambda: len(there()) == left - 1, "the evicted pod to end")
        return name

    first = dies()
    undo = pyinfra("rollback", *data(run=first, take_over=first), "-y")
    assert undo.code == 0 and "w1: uncordon it, without a proof that it is well" in undo.out, undo.all
    assert cordon_of(lab, "w1") == (False, set()) and len(there()) == 2 and lab.boot_id("w1") == before

    second = dies()
    told = reboot(only="w1", take_over=second)
    flat = " ".join(told.all.split())
    assert told.code == 0 and "done" in row(told, "w1") and row(told, "w1").rstrip().endswith("uncordoned"), told.all
    assert (
        f"run {second} was to reboot it, and ended before" in flat and f"cordoned already by run {second}: this run takes it over" in flat
    )
    lab.hang_up("w1")
    assert lab.boot_id("w1") != before and cordon_of(lab, "w1") == (False, set()) and there() == []
    lab.kubectl("delete", "deployment", "slow", "-n", NAMESPACE, "--now")


@pytest.mark.lab
@pytest.mark.slow  # a reboot; that an administrator's cordon stays is shown above
def test_the_cordon_of_an_earlier_drain_stays_with_its_mark(lab: Lab, pods: None) -> None:
    drained = pyinfra("drain", *data(nodes="w1"), "-y").ended(0)
    told = reboot(only="w1", allow_unneeded="true")
    assert told.code == 0 and "it keeps the cordon that it had" in row(told, "w1"), told.all
    assert draining.cordon_of(lab, "w1") == (True, run_of(drained)) and cordon_of(lab, "w1") == (True, {OUTAGE})


@pytest.mark.lab
def test_the_single_control_plane_which_has_the_lock(lab: Lab, pods: None) -> None:
    before = lab.boot_id("cp1")
    told = reboot(only="cp1", allow_unneeded="true")
    assert told.code == 0 and "done" in row(told, "cp1"), told.all
    assert "the API is down while it reboots" in told.out and "API server and etcd well" in told.out
    assert "WARNING: the cluster's lock" not in told.out, told.all
    lab.hang_up("cp1")
    assert lab.boot_id("cp1") != before and cordon_of(lab, "cp1") == (False, set())
    # The record and the lock survived: the next run starts, and knows the last one. No roll-back begins with a reboot.
    listed = pyinfra("changes", "-y")
    assert listed.code == 0 and re.search(rf"{run_of(told)}  .*  reboot +confirmed", listed.out), listed.all
    assert f"to undo {run_of(told)}" not in listed.out, listed.all
    assert "0 nodes to reboot" in reboot().out
    back = pyinfra("rollback", *data(run=run_of(told)), "-y")
    assert back.code == 1 and "a reboot cannot be undone" in " ".join(back.all.split()), back.all


# What a reboot that never begins looks like at its worst: the unit is killed when all is ended, and nobody orders it again.
KILLS = """#!/bin/sh
case "$*" in reboot) kill -KILL $PPID; exit 1 ;; esac
exec /usr/bin/systemctl "$@"
"""


@pytest.mark.lab
def test_a_control_plane_that_ended_for_a_reboot_that_does_not_begin_serves_again(lab: Lab, pods: None) -> None:
    before = lab.boot_id("cp1")
    lab.run("cp1", "cat >/usr/local/sbin/systemctl && chmod +x /usr/local/sbin/systemctl", input=KILLS)
    try:
        told = reboot(only="cp1", allow_unneeded="true")
    finally:
        lab.run("cp1", "rm -f /usr/local/sbin/systemctl; systemctl start kubelet")
    assert told.code == 1 and "reverted" in row(told, "cp1") and "it did not reboot; it serves again: boot" in " ".join(told.all.split()), (
        told.all
    )
    assert lab.boot_id("cp1") == before and cordon_of(lab, "cp1") == (False, set())
    said = lab.run("cp1", "journalctl --boot --unit=daytwo-reboot --output=cat").stdout
    ended = re.findall(r"^(\S+): ended after \d+ s$", said, re.MULTILINE)
    assert sorted(ended[:2]) == ["kube-controller-manager", "kube-scheduler"] and ended[2:] == ["kube-apiserver", "etcd"], said


# ---- all nodes of the wide lab, while a client asks


class Client:
    """Asks the pods of a Deployment every 50 ms, at nodes where one is Ready, by the EndpointSlices that any API server shows."""

    def __init__(self, lab: Lab, service: str) -> None:
        self._lab, self._path = (
            lab,
            f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices?labelSelector=kubernetes.io/service-name={service}",
        )
        self._servers = [lab.address(name) for name in lab.control_planes]
        self._context = admin_context(lab)
        self._ready: list[str] = []
        self._over = threading.Event()
        self.asked, self.lost, self.answers = 0, list[str](), set[str]()
        # No endpoint was Ready: so it is if kubelets are connected to an API server that takes requests and answers none.
        self.unready: list[float] = []
        self._threads = [threading.Thread(target=target, daemon=True) for target in (self._look, self._ask)]
        self._threads[0].start()
        wait_for(lambda: self._ready, f"endpoints of {service}")
        self._threads[1].start()

    def _look(self) -> None:
        while not self._over.wait(0.2):
            server = self._servers[0]
            try:
                connection = http.client.HTTPSConnection(server, 6443, timeout=2, context=self._context)
                connection.request("GET", self._path)
                items = json.loads(connection.getresponse().read())["items"]
                self._ready = [one["nodeName"] for item in items for one in item.get("endpoints") or () if one["conditions"].get("ready")]
                connection.close()
            except (OSError, http.client.HTTPException, ValueError, KeyError):
                self._servers.append(self._servers.pop(0))  # it reboots: another one knows too

    def _ask(self) -> None:
        while not self._over.wait(0.05):
            nodes = list(self._ready)
            self.asked += 1
            if not nodes:
                self.unready.append(time.time())
                continue
            node = nodes[self.asked % len(nodes)]
            if why := wrong_answer(self._lab.address(node), 8080):
                self.lost.append(f"{time.time():.3f}: {node}: {why}")
            else:
                self.answers.add(node)

    def end(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(timeout=60)


def admin_context(lab: Lab) -> ssl.SSLContext:
    """The lab's admin, for any API server."""
    config = YAML(typ="safe").load(lab.kubeconfig.read_text())
    user = config["users"][0]["user"]
    context = ssl.create_default_context(cadata=base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]).decode())
    with tempfile.NamedTemporaryFile() as file:
        file.write(base64.b64decode(user["client-certificate-data"]) + b"\n" + base64.b64decode(user["client-key-data"]))
        file.flush()
        context.load_cert_chain(file.name)
    return context


@pytest.mark.wide
@pytest.mark.slow  # an API server has 30 s to end here, three times; eight nodes
def test_all_nodes_while_a_client_asks(lab: Lab) -> None:
    service = {
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": NAMESPACE},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
    }  # fmt: skip
    budget = {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web", "namespace": NAMESPACE},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "maxUnavailable": 1},
    }  # fmt: skip
    plant(lab, [service, workload("web", replicas=2), workload("agent", "DaemonSet"), budget])
    before = {node: lab.boot_id(node) for node in lab.nodes}
    client = Client(lab, "web")
    try:
        told = reboot(allow_unneeded="true", max_unavailable="2")
    finally:
        client.end()
    print(told.all, client.asked, client.lost, client.answers, len(client.unready))
    assert told.code == 0, told.all
    lab.hang_up()
    after = {node: lab.boot_id(node) for node in lab.nodes}
    assert not [node for node in lab.nodes if after[node] in (None, before[node])]
    assert all("done" in row(told, node) for node in lab.nodes)
    assert {node: cordon_of(lab, node) for node in lab.nodes} == {node: (False, set()) for node in lab.nodes}
    order = re.findall(r"^  (\w+): .*; rebooting$", told.out, re.MULTILINE)
    assert order[-3:] == ["cp2", "cp3", "cp1"] and order[0] == "w1"
    assert client.asked > 1000 and len(client.answers) > 1 and not client.lost, client.lost
    assert not client.unready, client.unready
