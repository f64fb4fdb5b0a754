"""What is shown on the machines: the deploys an operator runs, each by evidence that daytwo had no hand in; a plug pulled in mid-change."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.lab.tools import LabError, say, wait_until
from tests.vagrant import machines
from tests.vagrant.machines import NAMES, ROOT, kubectl, ssh, waits

PYINFRA = Path(sys.executable).with_name("pyinfra")
# Alpha, off, harmless when on: one that the control plane reads, and one that the kubelet reads.
GATE = "HPAScaleToZero"
KUBELET_GATE = "ReduceDefaultCrashLoopBackOffDecay"
KUBELET_CONFIG = "/var/lib/kubelet/config.yaml"
THRESHOLD = "120Mi"
# The plug is pulled as soon as it begins; the command notices at its end.
SOAK_SECONDS = 60


class Failed(Exception):
    """A step did not show what it was to show."""


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str

    @property
    def run(self) -> str:
        """The name of the run that the command carried out; "" where it planned none."""
        found = re.search(r"^Plan of run (\S+):", self.out, re.MULTILINE)
        return found.group(1) if found else ""


def deploy(name: str, *arguments: str, watch: Callable[[str], None] = lambda line: None) -> Outcome:
    """An operator's command; its output is shown as it comes, each line also to `watch`."""
    words = [str(PYINFRA), "inventories/vagrant.py", f"deploys/{name}.py", *arguments]
    print(f"$ pyinfra {shlex.join(words[1:])}", flush=True)
    begun = time.monotonic()
    environment = {**machines.environment(), "PYINFRA_PROGRESS": "off"}
    lines = []
    with subprocess.Popen(
        words, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
            watch(line)
    print(f"[exit status {process.returncode}, {time.monotonic() - begun:.0f} s]", flush=True)
    return Outcome(process.returncode, "".join(lines))


def expect(true: object, what: str) -> None:
    if not true:
        raise Failed(what)
    say(f"shown: {what}")


def succeeded(outcome: Outcome) -> Outcome:
    if outcome.code != 0:
        raise Failed(f"the command ended with {outcome.code}")
    return outcome


# ---- evidence


def gate(metrics: str, name: str) -> bool:
    """A gate in a component's /metrics (kubernetes_feature_enabled). Raises Failed where it is not there."""
    found = re.search(rf'^kubernetes_feature_enabled\{{name="{name}",[^}}]*\}} ([01])$', metrics, re.MULTILINE)
    if not found:
        raise Failed(f"{name} is not in /metrics")
    return found.group(1) == "1"


def apiserver_gate(name: str) -> bool:
    return gate(kubectl("get", "--raw", "/metrics"), name)


def kubelet_gate(node: str, name: str) -> bool:
    return gate(kubectl("get", "--raw", f"/api/v1/nodes/{node}/proxy/metrics"), name)


def threshold(node: str) -> str | None:
    """evictionHard's memory.available as the node's running kubelet has it."""
    found = json.loads(kubectl("get", "--raw", f"/api/v1/nodes/{node}/proxy/configz"))
    value: str | None = found["kubeletconfig"]["evictionHard"].get("memory.available")
    return value


def files(node: str) -> dict[str, str]:
    """sha256 by path of what the kubelet and the control plane of a node are configured by."""
    paths = f"{KUBELET_CONFIG} /var/lib/kubelet/kubeadm-flags.env /etc/default/kubelet /etc/kubernetes/manifests/*"
    told = ssh(node, f"sha256sum {paths} 2>/dev/null", check=False).stdout
    return {path: digest for digest, path in (line.split(maxsplit=1) for line in told.splitlines())}


def kubelet_process(node: str) -> str:
    """PID and start time of the running kubelet."""
    return ssh(node, "pid=$(pidof kubelet) && echo $pid $(cut -d ' ' -f 22 /proc/$pid/stat)").stdout.strip()


# ---- the steps


def real_machines() -> None:
    """Kernels of their own, cgroup v2, two Ready nodes; and daytwo sees them."""
    own = os.uname().release
    for name in NAMES:
        kernel, cgroups, init = ssh(name, "uname -r; stat -f -c %T /sys/fs/cgroup; cat /proc/1/comm").stdout.split()
        expect(
            kernel != own and (cgroups, init) == ("cgroup2fs", "systemd"),
            f"{name}: Linux {kernel} (this machine: {own}), {cgroups}, {init}",
        )
    expect(not machines.not_ready(), "both nodes are Ready")
    outcome = succeeded(deploy("status", "-y"))
    expect(all(name in outcome.out for name in NAMES), "deploys/status.py tells of both")


def feature_gates() -> None:
    """A gate on in the components that read it: proven while the only API server is away for its restart."""
    expect(not apiserver_gate(GATE), f"{GATE} is off")
    components = "components=kube-apiserver,kube-controller-manager"
    succeeded(deploy("feature_gates", "--data", f"feature_gates={GATE}=true", "--data", components, "-y"))
    expect(apiserver_gate(GATE), f"the running API server has {GATE}=true in /metrics")
    arguments = ssh("cp1", "tr '\\0' ' ' </proc/$(pidof kube-apiserver)/cmdline").stdout
    expect(f"{GATE}=true" in arguments, f"the running API server was started with {GATE}=true")
    expect(not machines.not_ready(), "both nodes are Ready")


def eviction() -> None:
    """A threshold on every kubelet, and roll-back of that run."""
    before = {name: (files(name), threshold(name)) for name in NAMES}
    outcome = succeeded(deploy("eviction", "--data", f"eviction_hard=memory.available={THRESHOLD}", "-y"))
    for name in NAMES:
        expect(threshold(name) == THRESHOLD, f"the running kubelet of {name} evicts below {THRESHOLD} (/configz)")
    expect(outcome.run, f"the run has a name: {outcome.run}")
    succeeded(deploy("rollback", "--data", f"run={outcome.run}", "-y"))
    for name in NAMES:
        expect((files(name), threshold(name)) == before[name], f"{name}: files byte for byte, and the kubelet's threshold, as before")


def reboot() -> None:
    """The plug is pulled on w1 while its change waits for its confirmation: it comes back with what was before."""
    node = "w1"
    boot, before, process = machines.boot_id(node), files(node), kubelet_process(node)
    expect(not kubelet_gate(node, KUBELET_GATE), f"{KUBELET_GATE} is off on {node}")
    pulled: list[str] = []

    def watch(line: str) -> None:
        # Proven, in effect, and not confirmed: the worst moment.
        if not pulled and f"{node} kubelet: proven; soaking" in line:
            pulled.append(kubelet_process(node))
            say(f"{node}: pulling the plug")
            machines.pull_plug(node)

    options = ("--data", f"feature_gates={KUBELET_GATE}=true", "--data", f"only={node}", "--data", "components=kubelet")
    outcome = deploy("feature_gates", *options, "--data", f"soak={SOAK_SECONDS}", "-y", watch=watch)
    expect(pulled and pulled[0] != process, "the new kubelet ran when the plug was pulled")
    expect(outcome.code == 1, "the command tells of the failure by its exit status")
    expect("reverted: the node was restarted before the change was confirmed" in outcome.out, "and says how the node ended it")
    wait_until(f"{node} to be Ready again", lambda: node not in machines.not_ready(), waits(300))
    expect(machines.boot_id(node) not in ("", boot), f"{node} is in another boot")
    expect(files(node) == before, f"{node}: every file is byte for byte as before")
    expect(not kubelet_gate(node, KUBELET_GATE), f"the running kubelet of {node} has {KUBELET_GATE}=false in /metrics")
    succeeded(deploy("feature_gates", *options, "-y"))
    expect(kubelet_gate(node, KUBELET_GATE), f"the same command again: the running kubelet of {node} has {KUBELET_GATE}=true")
    succeeded(deploy("rollback", "-y"))
    expect(files(node) == before and not kubelet_gate(node, KUBELET_GATE), f"rolled back: {node} is as before")


def swap() -> None:
    """Swap is on, and pods get their share of it: in the kubelet, and by the kernel's own limits for two pods; then back."""
    node = "w1"
    before = files(node)
    ssh(node, "fallocate -l 256M /swapfile && chmod 600 /swapfile && mkswap /swapfile >/dev/null && swapon /swapfile")
    fields = "failSwapOn=false,memorySwap.swapBehavior=LimitedSwap"
    outcome = succeeded(deploy("kubelet_config", "--data", f"kubelet_config={fields}", "--data", f"only={node}", "-y"))
    found = json.loads(kubectl("get", "--raw", f"/api/v1/nodes/{node}/proxy/configz"))["kubeletconfig"]
    is_set = found["failSwapOn"] is False and found["memorySwap"] == {"swapBehavior": "LimitedSwap"}
    expect(is_set, f"the running kubelet of {node} has LimitedSwap in /configz, and runs while swap is on")
    share, none = swap_limit(node, "32Mi", "64Mi"), swap_limit(node, "32Mi", "32Mi")
    expect(share not in ("0", "max") and none == "0", f"a Burstable pod may use {share} bytes of swap, a Guaranteed one {none}")
    succeeded(deploy("rollback", "--data", f"run={outcome.run}", "-y"))
    expect(files(node) == before, f"{node}: every file is byte for byte as before")
    ssh(node, "swapoff /swapfile && rm /swapfile")


def swap_limit(node: str, request: str, limit: str) -> str:
    """memory.swap.max of the container of a pod with these amounts of memory, in bytes, or "max"."""
    name = "swap-probe"
    images = json.loads(kubectl("get", "node", node, "-o", "json"))["status"]["images"]
    image = next(one for found in images for one in found["names"] if "pause" in one)
    amounts = {"requests": {"cpu": "10m", "memory": request}, "limits": {"cpu": "10m", "memory": limit}}
    container = {"name": "probe", "image": image, "imagePullPolicy": "Never", "resources": amounts}
    spec = {"nodeName": node, "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": False, "containers": [container]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}
    ssh("cp1", f"echo {shlex.quote(json.dumps(pod))} | kubectl --kubeconfig={machines.ADMIN} create -f -")
    try:
        kubectl("wait", "--for=condition=Ready", f"pod/{name}", f"--timeout={waits(50):.0f}s")
        told = kubectl("get", "pod", name, "-o", "jsonpath={.status.containerStatuses[0].containerID}")
        container_id = told.rpartition("/")[2]
        return ssh(node, f"cat $(find /sys/fs/cgroup -type d -name '*{container_id}*')/memory.swap.max").stdout.strip()
    finally:
        kubectl("delete", "pod", name, "--now", "--wait")


def history() -> None:
    """What was done is told by the nodes."""
    outcome = succeeded(deploy("changes", "-y"))
    expect("reverted" in outcome.out and "confirmed" in outcome.out, "deploys/changes.py tells of changes confirmed and reverted")


def audit() -> None:
    """Read-only: 0 clean, 2 findings; anything else is a failure. Nothing is written."""
    before = {name: files(name) for name in NAMES}
    outcome = deploy("audit", "-y")
    expect(outcome.code in (0, 2), f"deploys/audit.py could look (exit status {outcome.code})")
    expect({name: files(name) for name in NAMES} == before, "and changed no file")


def pod_resize_check() -> None:
    """A probe pod grows and shrinks without a restart, by its own cgroup v2 files; nothing of it stays."""
    succeeded(deploy("pod_resize_check", "-y"))
    left = kubectl("get", "namespaces", "-o", "name")
    expect("daytwo" not in left, "no namespace of the probe is left")


STEPS: dict[str, Callable[[], None]] = {
    "machines": real_machines,
    "reboot": reboot,
    "eviction": eviction,
    "feature_gates": feature_gates,
    "swap": swap,
    "history": history,
    "audit": audit,
    "pod_resize_check": pod_resize_check,
}
# Run where this tree has the deploy of that name.
OPTIONAL = ("audit", "pod_resize_check")


def chosen(only: tuple[str, ...]) -> list[str]:
    """The steps to run, in their order. Raises LabError for a name that is none."""
    if strange := [name for name in only if name not in STEPS]:
        raise LabError(f"there is no step {', '.join(strange)}; steps are {', '.join(STEPS)}")
    there = [name for name in STEPS if name not in OPTIONAL or (ROOT / "deploys" / f"{name}.py").exists()]
    return [name for name in there if not only or name in only]


def main(keep: bool, only: tuple[str, ...]) -> int:
    """Up, the steps, down; 0 where every step showed what it was to show."""
    steps = chosen(only)
    begun = time.monotonic()
    results: list[tuple[str, str, float]] = []
    try:
        machines.up()
        results.append(("up", "ok", time.monotonic() - begun))
        for name in steps:
            say(f"== {name}: {' '.join((STEPS[name].__doc__ or '').split())}")
            since = time.monotonic()
            try:
                STEPS[name]()
            except (Failed, LabError) as error:
                results.append((name, f"FAILED: {error}", time.monotonic() - since))
                say(f"{name}: FAILED: {error}")
                evidence()
                break
            results.append((name, "ok", time.monotonic() - since))
    finally:
        if not keep:
            since = time.monotonic()
            machines.down()
            results.append(("down", "ok", time.monotonic() - since))
        for name, result, seconds in results:
            print(f"{name:18} {seconds:6.0f} s  {result}", flush=True)
    return 0 if all(result == "ok" for _, result, _ in results) else 1


def evidence() -> None:
    """What a person would look at first, while the machines are still there."""
    for name in NAMES:
        for command in ("journalctl --no-pager -n 40 -u kubelet", "tail -n 5 /var/lib/daytwo/changes/*/log", "df -h /; free -m; uptime"):
            try:
                told = ssh(name, command, check=False).stdout
            except LabError as error:
                told = f"{error}\n"
            print(f"---- {name}: {command}\n{told}", end="", flush=True)
