"""Each thing that keeps a kubelet from its next start, or its node from new pods."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from roles.engine.certificates import Material, Unread, parse_own
from roles.engine.starting import Cause, Needs, PathFact, StartFacts, Stops, judge, kubelet_needs
from roles.engine.starting.model import ImageNeed, Listener
from tests.unit.api.world import Authority
from tests.unit.node import node
from tests.unit.starting.samples import RUNTIME, certificate, kubelet, obstacles, well

GONE = PathFact("none", makeable=True)
FILE, EMPTY = PathFact("file", True, True), PathFact("file", True, True, empty=True)
PROTECT = "protectKernelDefaults: true\n"
STATIC = "cpuManagerPolicy: static\n"
KUBECONFIG = "/etc/kubernetes/kubelet.conf"
CPUS, MEMORY = "/var/lib/kubelet/cpu_manager_state", "/var/lib/kubelet/memory_manager_state"
NONE = '{"policyName":"none","defaultCpuSet":"","checksum":1353318690}'
OF_FOUR = '{"policyName":"static","defaultCpuSet":"0-2","entries":{"u":{"app":"3"}},"checksum":1}'
CONFIG = (*node.KUBEADM_ARGV,)


def test_a_healthy_node_has_no_obstacle_and_an_unknown_one_neither() -> None:
    assert obstacles() == []
    assert obstacles(PROTECT + "rotateCertificates: true\nresolvConf: /run/systemd/resolve/resolv.conf\n") == []
    plain = kubelet_needs(kubelet(style="plain"))
    assert judge("n1", plain, well(plain)) == []
    for needs in (plain, kubelet_needs(kubelet(PROTECT))):
        assert judge("n1", needs, StartFacts()) == []


ONE, OTHER = Authority("one").issue("a"), Authority("other").issue("b")
SERVES = "tlsCertFile: /k.crt\ntlsPrivateKeyFile: /k.key\n"
CASES: list[tuple[str, tuple[str, ...], dict[str, Any], Cause, Stops, str]] = [
    (PROTECT, (), {"tunables": {"vm.overcommit_memory": (0, True)}}, Cause.tunable, Stops.start,
     "protectKernelDefaults, and vm.overcommit_memory is 0 (needs 1); `sysctl -w vm.overcommit_memory=1`"),
    (PROTECT, (), {"tunables": {"kernel.keys.root_maxkeys": (200, True)}}, Cause.tunable, Stops.start, "kernel.keys.root_maxkeys is 200 (needs 1000000)"),
    ("", ("--protect-kernel-defaults",), {"tunables": {"kernel.panic": (0, True)}}, Cause.tunable, Stops.start, "kernel.panic is 0 (needs 10)"),
    # Without protectKernelDefaults the kubelet writes it, if it can.
    ("", (), {"tunables": {"vm.panic_on_oom": (1, False)}}, Cause.tunable, Stops.start, "the kubelet cannot write it, and vm.panic_on_oom is 1"),
    ("authentication: {x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}}\n", (), {"paths": {"/etc/kubernetes/pki/ca.crt": GONE}}, Cause.file, Stops.start,
     "authentication.x509.clientCAFile names /etc/kubernetes/pki/ca.crt, which does not exist"),
    ("authentication: {x509: {clientCAFile: /ca.crt}}\n", (), {"pems": {"/ca.crt": b""}}, Cause.certificate, Stops.start, "which has no certificate"),
    ("tlsCertFile: /k.crt\ntlsPrivateKeyFile: /k.key\n", (), {"paths": {"/k.key": GONE}}, Cause.file, Stops.start, "tlsPrivateKeyFile names /k.key"),
    ("", ("--tls-cert-file=/k.crt",), {"paths": {"/k.crt": PathFact("directory", True)}}, Cause.file, Stops.start, "which is a directory, not a file with"),
    (SERVES, (), {"pems": {"/k.crt": ONE[0]}, "keys": {"/k.key": parse_own("/k.key", OTHER[1])}}, Cause.key, Stops.start,
     "the key in /k.key (tlsPrivateKeyFile) is not that of the certificate in /k.crt (tlsCertFile)"),
    (SERVES, (), {"pems": {"/k.crt": ONE[0]}, "keys": {"/k.key": Material("/k.key", unread=Unread.no_openssl)}}, Cause.unproven, Stops.note,
     "no sign that /k.key (tlsPrivateKeyFile) is the key of /k.crt (tlsCertFile): the node has no openssl"),
    ("", (), {"paths": {"/etc/resolv.conf": GONE}}, Cause.file, Stops.pods, "resolvConf names /etc/resolv.conf, which does not exist"),
    ("resolvConf: /run/systemd/resolve/resolv.conf\n", (),
     {"paths": {"/run/systemd/resolve/resolv.conf": GONE, "/etc/resolv.conf": PathFact("file", True)}}, Cause.file, Stops.pods,
     "restore it, or set resolvConf to a file that exists (/etc/resolv.conf)"),
    ("resolvConf: /run/systemd/resolve/stub-resolv.conf\n", (), {"nameservers": {"/run/systemd/resolve/stub-resolv.conf": ("127.0.0.53",)}},
     Cause.dns, Stops.note, "systemd-resolved's stub, 127.0.0.53"),
    ("", ("--image-credential-provider-config=/c.yaml", "--image-credential-provider-bin-dir=/b"), {"paths": {"/b": GONE}}, Cause.file, Stops.start,
     "--image-credential-provider-bin-dir names /b"),
    ("", ("--image-credential-provider-config=/c.yaml", "--image-credential-provider-bin-dir=/b"),
     {"providers": "providers:\n- name: ecr\n", "programs": frozenset({"gcr"})}, Cause.file, Stops.start, "the credential provider ecr, which is no program"),
    ("", (), {"paths": {"/etc/kubernetes/kubelet.conf": GONE}}, Cause.identity, Stops.start,
     "/etc/kubernetes/kubelet.conf (--kubeconfig) does not exist, and its bootstrap kubeconfig /etc/kubernetes/bootstrap-kubelet.conf does not exist"),
    ("", (), {"pems": {"/etc/kubernetes/kubelet.conf": certificate(days=-1)}}, Cause.identity, Stops.start, "expired on 2026-05-31, and its bootstrap"),
    ("", (), {"names": {"/etc/kubernetes/kubelet.conf": {"client-certificate": "/current.pem"}}, "paths": {"/current.pem": GONE}},
     Cause.identity, Stops.start, "names the client-certificate /current.pem, which does not exist"),
    ("", (), {"pems": {"/etc/kubernetes/kubelet.conf": certificate("system:node:other")}}, Cause.identity, Stops.start, "--hostname-override=other"),
    ("", (), {"paths": {"/var/lib/kubelet/pki/kubelet.crt": PathFact("file", True)}}, Cause.file, Stops.start, "kubelet.key does not exist, and the other"),
    ("", (), {"paths": {"/run/containerd/containerd.sock": GONE}}, Cause.file, Stops.start, "containerRuntimeEndpoint names /run/containerd/containerd.sock"),
    ("", (), {"runtime": replace(RUNTIME, version="-")}, Cause.runtime, Stops.start, "gives no answer"),
    ("", (), {"runtime": replace(RUNTIME, version="12")}, Cause.runtime, Stops.start, "does not serve the CRI v1"),
    ("cgroupDriver: systemd\n", (), {"runtime": replace(RUNTIME, config="12", drivers=frozenset({"cgroupfs"}))}, Cause.runtime, Stops.pods,
     "cgroupDriver is systemd, and containerd 2.1 has cgroupfs"),
    ("", (), {"runtime": replace(RUNTIME, conditions={"NetworkReady": (False, "NetworkPluginNotReady: cni config uninitialized")})},
     Cause.network, Stops.network, "cni config uninitialized"),
    ("", (), {"runtime": replace(RUNTIME, conditions={"RuntimeReady": (False, "x")})}, Cause.runtime, Stops.pods, "RuntimeReady=false"),
    ("", (), {"runtime": replace(RUNTIME, plugins=frozenset({"bridge"}))}, Cause.network, Stops.network, "names the plugin host-local"),
    ("", (), {"runtime": replace(RUNTIME, sandbox="registry.k8s.io/pause:3.10", has_sandbox=False)}, Cause.sandbox, Stops.note, "is not on the node"),
    ("failSwapOn: true\n", (), {"swap": 1}, Cause.swap, Stops.start, "/proc/swaps lists 1 area(s)"),
    ("memorySwap: {swapBehavior: LimitedSwap}\nfailSwapOn: false\nfailCgroupV1: false\n", (),
     {"cgroup2": False, "controllers": frozenset({"cpu", "cpuacct", "cpuset", "memory"})}, Cause.swap, Stops.start, "the node has cgroup v1"),
    ("", (), {"cgroup2": False, "controllers": frozenset({"cpu", "cpuacct", "cpuset", "memory"})}, Cause.cgroups, Stops.start, "with failCgroupV1"),
    ("", (), {"controllers": frozenset({"cpu"})}, Cause.cgroups, Stops.start, "the cgroup controllers memory are not there"),
    ("enforceNodeAllocatable: [pods, system-reserved]\nsystemReservedCgroup: /system.slice\nsystemReserved: {cpu: 100m}\n", (),
     {"cgroups": {"systemReservedCgroup": False}}, Cause.cgroups, Stops.start, "needs the cgroup /system.slice (systemReservedCgroup)"),
    ("readOnlyPort: 9100\n", (), {"listeners": (Listener(9100, "0.0.0.0", 77, "node_exporter"),)}, Cause.port, Stops.start,
     "readOnlyPort: the process 77 (node_exporter) listens on port 9100 already"),
    ("", ("--node-ip=10.0.0.9",), {}, Cause.address, Stops.start, "--node-ip 10.0.0.9 is on no interface"),
    ("", (), {"space": {"/var/lib/kubelet": (3, 1000)}}, Cause.disk, Stops.start, "has 3 MiB left (needs 16)"),
    ("", (), {"space": {"/var/lib/daytwo": (0.1, 1000)}}, Cause.disk, Stops.start, "has 0.1 MiB left (needs 0.25)"),
    ("", (), {"space": {"/var/lib/daytwo": (3000, 0)}}, Cause.disk, Stops.start, "has 0 inodes left"),
    ("", (), {"paths": {"/var/lib/kubelet": PathFact("directory", True, False, True)}}, Cause.read_only, Stops.start, "its file system is read-only"),
    ("", (), {"paths": {"/dev/kmsg": GONE}}, Cause.file, Stops.start, "/dev/kmsg, which does not exist"),
    ("", (), {"paths": {"/usr/bin/kubelet": PathFact("file", True)}}, Cause.file, Stops.start, "which cannot be executed"),
    ("", (), {"tasks": (32760, 32768)}, Cause.limit, Stops.start, "kernel.pid_max"),
    ("podPidsLimit: 4194305\n", (), {}, Cause.limit, Stops.pods, "the kernel accepts at most 4194304 for a cgroup"),
    ("", ("--pod-max-pids=32768",), {"tasks": (300, 32768)}, Cause.limit, Stops.note, "has at most 32768 processes: one pod may take them all"),
    ("", (), {"paths": {KUBECONFIG: EMPTY}, "pems": {KUBECONFIG: b""}}, Cause.identity, Stops.start, f"{KUBECONFIG} (--kubeconfig) is empty"),
    ("", (), {"names": {KUBECONFIG: {"client-certificate": "/c.pem"}}, "paths": {"/c.pem": FILE}, "pems": {"/c.pem": b""}}, Cause.identity,
     Stops.start, "names the client-certificate /c.pem, which has no certificate, and its bootstrap"),
    (SERVES, (), {"paths": {"/k.key": EMPTY}}, Cause.file, Stops.start, "tlsPrivateKeyFile names /k.key, which is empty"),
    ("", (), {"checkpoints": {CPUS: ""}}, Cause.checkpoint, Stops.start, f"{CPUS}, where it keeps what its pods have, is empty; drain the node, then"),
    ("", (), {"checkpoints": {CPUS: '{"policyName":"none","de'}}, Cause.checkpoint, Stops.start, "is cut off"),
    ("", (), {"checkpoints": {CPUS: "[]"}}, Cause.checkpoint, Stops.start, "is cut off"),
    (STATIC, (), {"checkpoints": {CPUS: NONE}}, Cause.checkpoint, Stops.start, "has the policy none, and its configuration static"),
    ("", ("--memory-manager-policy=Static",), {"checkpoints": {MEMORY: '{"policyName":"None"}'}}, Cause.checkpoint, Stops.start,
     "memory_manager_state has the policy None, and its configuration Static"),
    (STATIC, (), {"checkpoints": {CPUS: OF_FOUR}, "cpus": frozenset(range(6))}, Cause.checkpoint, Stops.start,
     f"{CPUS} is of the CPUs 0-3, and the node has 0-5; bring those CPUs back, or drain the node"),
    ("reservedSystemCPUs: 0-1,4\n", (), {"cpus": frozenset({0, 1, 2, 3})}, Cause.limit, Stops.start, "the node has no CPU 4"),
    ("", (), {"paths": {"/var/lib/kubelet/allocated_pods_state": EMPTY}}, Cause.checkpoint, Stops.start, "allocated_pods_state, where it keeps"),
    ("cgroupRoot: /pods\n", (), {"cgroups": {"cgroupRoot": False}}, Cause.cgroups, Stops.start, "the cgroup /pods (cgroupRoot) does not exist"),
    ("", (), {"requires": {"a.service": "not-found"}}, Cause.unit, Stops.start, "kubelet.service requires a.service, which is not-found; restore"),
    ("", (), {"runs": {"runc": False, "containerd-shim-runc-v2": True}}, Cause.file, Stops.pods, "starts containers with runc, which is no program"),
    ("", (), {"api": (60, "https://a:6443")}, Cause.api, Stops.start,
     f"its kubelet would not reach its API server: {KUBECONFIG} (--kubeconfig) names https://a:6443: its certificate is not valid by the CA there"),
    ("", (), {"inotify": (60, 10)}, Cause.limit, Stops.start, "fs.inotify.max_user_instances is 10"),
    ("", (), {"inotify": (128, 128)}, Cause.limit, Stops.note, "fs.inotify.max_user_instances is 128"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "argv", "facts", "cause", "stops", "text"), CASES)
def test_each_obstacle(config: str, argv: tuple[str, ...], facts: dict[str, Any], cause: Cause, stops: Stops, text: str) -> None:
    found = obstacles(config, (*CONFIG, *argv) if argv else None, **facts)
    assert [(one.cause, one.stops) for one in found] == [(cause, stops)], found
    assert text in str(found[0]) and (found[0].way_out or cause is Cause.unproven)


@pytest.mark.parametrize(
    ("policy", "here", "stops", "text"),
    [
        ("IfNotPresent", True, None, ""),
        ("IfNotPresent", None, None, ""),
        ("Always", True, Stops.note, "imagePullPolicy: Always"),
        ("Always", False, Stops.start, "would be pulled while no kube-apiserver runs; `crictl pull r/a:1` there first"),
        ("Never", False, Stops.start, "its image r/a:1 is not on the node, and is never pulled"),
    ],
)
def test_the_image_of_a_component(policy: str, here: bool | None, stops: Stops | None, text: str) -> None:
    needs = Needs("n1", images=(ImageNeed("kube-apiserver", "r/a:1", policy),))
    found = [one for one in judge("n1", needs, StartFacts(images={} if here is None else {"r/a:1": here})) if one.cause is Cause.image]
    assert [one.stops for one in found] == ([] if stops is None else [stops])
    assert all(text in str(one) for one in found)


@pytest.mark.parametrize("api", [None, (0, "https://a"), (35, "https://a"), (22, "https://a")])
def test_an_api_server_of_which_nothing_is_certain_is_no_obstacle(api: tuple[int, str] | None) -> None:
    assert obstacles(api=api) == []


def test_the_key_of_an_identity() -> None:
    """In files of their own, as a node has them that nobody's tool renews."""
    names = {"/etc/kubernetes/kubelet.conf": {"client-certificate": "/c.crt", "client-key": "/c.key"}}
    paths = dict.fromkeys(("/c.crt", "/c.key"), PathFact("file", True))
    mine = certificate()
    (one,) = obstacles(names=names, paths=paths, pems={"/c.crt": mine}, keys={"/c.key": parse_own("/c.key", OTHER[1])})
    assert (one.cause, one.stops) == (Cause.key, Stops.start)
    assert "the key in /c.key (/etc/kubernetes/kubelet.conf) is not that of the certificate in /c.crt" in one.why


def test_a_key_that_fits_is_no_obstacle() -> None:
    assert obstacles(SERVES, pems={"/k.crt": ONE[0]}, keys={"/k.key": parse_own("/k.key", ONE[1])}) == []


def test_checkpoints_that_fit() -> None:
    assert obstacles(checkpoints={CPUS: NONE, MEMORY: '{"policyName":"None"}'}, cpus=frozenset(range(8))) == []
    assert obstacles(STATIC, checkpoints={CPUS: OF_FOUR}, cpus=frozenset(range(4))) == []
    # Unknown CPUs, one with strict reservation, whose default set lacks them, one of a form that is not known, and one that is not whole.
    assert obstacles(STATIC, checkpoints={CPUS: OF_FOUR}) == []
    strict = STATIC + "cpuManagerPolicyOptions: {strict-cpu-reservation: 'true'}\nreservedSystemCPUs: '0'\n"
    assert obstacles(strict, checkpoints={CPUS: OF_FOUR}, cpus=frozenset(range(5))) == []
    for text in ('{"policyName":"static","defaultCpuSet":"x"}', '{"policyName":"static","defaultCpuSet":"0","entries":3}', "x" * 65537):
        assert obstacles(STATIC, checkpoints={CPUS: text}, cpus=frozenset({1})) == []


def test_a_unit_that_systemd_would_not_start() -> None:
    masked = kubelet()
    assert masked.seen.unit is not None
    unit = replace(masked.seen.unit, properties={**masked.seen.unit.properties, "UnitFileState": ["masked-runtime"]})
    needs = kubelet_needs(replace(masked, seen=replace(masked.seen, unit=unit)))
    (one,) = judge("n1", needs, well(needs))
    assert one.commands == ("systemctl unmask --runtime kubelet.service",) and "is masked" in one.why
    dropin = "/etc/systemd/system/kubelet.service.d/50.conf"
    text = (
        b"[Unit]\nConditionPathExists=/gone\nConditionPathExists=\nConditionPathExists=/k\nConditionPathExists=|/a\nAssertPathExists=!/b\n"
    )
    needs = kubelet_needs(kubelet(dropins={dropin: text + b"[Service]\nWorkingDirectory=-/c\nWorkingDirectory=/d\n"}))
    found = judge("n1", needs, well(needs, paths={**well(needs).paths, "/k": GONE, "/d": GONE}))
    assert [one.why for one in found] == [
        f"ConditionPathExists= of {dropin} names /k, which does not exist", f"WorkingDirectory= of {dropin} names /d, which does not exist"
    ]  # fmt: skip


def test_what_is_no_obstacle() -> None:
    # A bootstrap kubeconfig makes a new identity.
    there = {"/etc/kubernetes/bootstrap-kubelet.conf": PathFact("file", True), "/etc/kubernetes/kubelet.conf": GONE}
    assert obstacles(paths=there) == []
    # The kubelet itself holds its ports, and another process another address.
    own = (Listener(10250, "::", 100, "kubelet"), Listener(10248, "10.0.0.1", 5, "other"))
    assert obstacles(listeners=own) == []
    # The kubelet makes them; a file system may not count its inodes.
    assert obstacles(paths={"/var/log/pods": GONE}, space={"/var/lib/kubelet": (5000, None)}) == []
    # A change needs little, and reserves it itself.
    assert obstacles(space={"/var/lib/daytwo": (0.5, 1000)}) == []
    assert obstacles("resolvConf: ''\n", paths={"/etc/resolv.conf": GONE}) == []
    assert obstacles(tunables={"vm.overcommit_memory": (0, True)}) == []
    assert (
        obstacles("featureGates: {KubeletInUserNamespace: true}\n", paths={"/dev/kmsg": GONE}, tunables={"kernel.panic": (0, False)}) == []
    )
    assert obstacles("serverTLSBootstrap: true\n", paths={"/var/lib/kubelet/pki/kubelet.crt": PathFact("file", True)}) == []
