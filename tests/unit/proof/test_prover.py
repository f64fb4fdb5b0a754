"""What is shown of a change: effective settings as /configz has them, and that nobody had to go."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from roles.engine import bridge, control_plane, kubelet
from roles.engine.api.nodes import ContainerStatus, PodStatus
from roles.engine.control_plane import COMPONENTS
from roles.engine.proof import ChangedProcess, Proof, Prover, RequiredProof
from roles.engine.proof import prover as prover_module
from roles.engine.proof.cluster import evictions, flag_values
from roles.engine.proof.effective import changed_fields, unmet_fields
from tests.unit.node import node
from tests.unit.proof.world import APP, APPLIED, Node

OTHER = replace(APP, name="other", uid="u2")
METRICS = """# TYPE kubelet_evictions counter
kubelet_evictions{eviction_signal="memory.available"} 2
kubelet_evictions{eviction_signal="nodefs.available"} 0
kubelet_eviction_stats_age_seconds_bucket{eviction_signal="memory.available",le="0.005"} 9
kubelet_preemptions{preemption_signal="cpu"} 1
kubelet_evictions_other{x="y"} 4
"""


def problems(cluster: Node, may_be_evicted: frozenset[str] = frozenset(), **settings: Any) -> tuple[str, ...]:
    prover = Prover(
        cluster, ChangedProcess("w1", "w1", "kubelet"), RequiredProof(settings=settings or {"maxPods": 5}, may_be_evicted=may_be_evicted)
    )
    assert prover.ready() is None
    return prover.prove(APPLIED).problems


def test_a_change_that_hurt_nobody() -> None:
    assert problems(Node({"maxPods": 5}, [APP], [APP])) == ()


def test_a_pod_that_vanished_is_told_and_not_counted_as_unharmed() -> None:
    """Nobody is hurt by it, so the change is confirmed; but it was not seen unharmed."""
    prover = Prover(
        Node({"maxPods": 5}, [APP, OTHER], [OTHER]), ChangedProcess("w1", "w1", "kubelet"), RequiredProof(settings={"maxPods": 5})
    )
    assert prover.ready() is None
    found = prover.prove(APPLIED)
    assert found.problems == ()
    assert "1 pod unharmed; GONE: default/app (nothing replaces it)" in found.how


def test_a_value_that_is_not_in_effect() -> None:
    assert problems(Node({"maxPods": 6}, [APP], [APP])) == ("kubelet runs with maxPods=6, wanted 5",)


def test_a_pod_that_was_evicted_and_deleted_since_is_seen_by_the_kubelet_s_own_count() -> None:
    cluster = Node({"maxPods": 5}, [APP], [], went={"memory.available": 1})
    assert problems(cluster) == ("the new kubelet has evicted or preempted pods: 1 for memory.available",)
    assert problems(Node({"maxPods": 5}, [APP], [], went={"memory.available": 1}), frozenset({"default/app"})) == ()


def test_with_consent_only_who_was_announced_may_go() -> None:
    failed = replace(APP, phase="Failed", reason="Evicted")
    assert problems(Node({"maxPods": 5}, [APP], [failed]), frozenset({"default/app"})) == ()
    assert problems(Node({"maxPods": 5}, [APP], [failed]), frozenset({"default/b"})) == ("pod default/app failed (Evicted)",)


def test_what_a_kubelet_counts_of_those_it_put_out() -> None:
    assert evictions(METRICS) == {"memory.available": 2, "cpu": 1}
    assert evictions("") == {}


@pytest.mark.parametrize(
    ("settings", "running", "told"),
    [
        ({"readOnlyPort": 0}, {}, []),
        ({"protectKernelDefaults": False}, {}, []),
        ({"evictionSoft": None}, {}, []),
        ({"shutdownGracePeriod": "0s"}, {}, []),
        (
            {"reservedMemory": [{"numaNode": 0, "limits": {"memory": 1073741824}}]},
            {"reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}]},
            [],
        ),
        ({"readOnlyPort": 0}, {"readOnlyPort": 10255}, ["kubelet runs with readOnlyPort=10255, wanted 0"]),
        ({"clusterDNS": ["a"]}, {}, ['kubelet runs with clusterDNS=(not set), wanted ["a"]']),
    ],
)
def test_settings_are_compared_as_configz_writes_them(settings: dict[str, Any], running: dict[str, Any], told: list[str]) -> None:
    assert [str(one) for one in unmet_fields(settings, running)] == told


def test_a_kubelet_with_reserved_cpus_shows_other_reservations_of_cpu_than_its_files_have() -> None:
    """cmd/kubelet/app/server.go, run: their number in systemReserved, nothing in kubeReserved."""
    running = {"reservedSystemCPUs": "0", "systemReserved": {"cpu": "1", "memory": "1Gi"}, "kubeReserved": {"memory": "2Gi"}}
    wanted = {"systemReserved": {"memory": "1Gi"}, "kubeReserved": {"cpu": "300m", "memory": "2Gi"}}
    assert unmet_fields(wanted, running) == []
    assert [one.name for one in unmet_fields({**wanted, "systemReserved": {"memory": "3Gi"}}, running)] == ["systemReserved"]
    assert [one.name for one in unmet_fields(wanted, {**running, "reservedSystemCPUs": ""})] == ["systemReserved", "kubeReserved"]


@pytest.mark.parametrize(
    ("stored", "told"),
    [
        ((b'{"policyName":"static"}', b'{"policyName":"Static"}'), ()),
        ((b'{"policyName":"none"}', b'{"policyName":"Static"}'), ("/k/cpu has the policy none, not static",)),
        ((b'{"policyName":"static"}',), ("the kubelet has not created /k/memory",)),
        ((b"", b"{"), ("the kubelet has not created /k/cpu", "/k/memory cannot be read: it is not JSON")),
        ((), ("the kubelet has not created /k/cpu", "the kubelet has not created /k/memory")),
    ],
)
def test_the_kubelet_s_own_files_have_the_wanted_policies(stored: tuple[bytes, ...], told: tuple[str, ...]) -> None:
    wanted = {"/k/cpu": "static", "/k/memory": "Static"}
    prover = Prover(
        Node({"maxPods": 5}, [APP], [APP]),
        ChangedProcess("w1", "w1", "kubelet"),
        RequiredProof(settings={"maxPods": 5}, checkpoints=wanted),
    )
    assert prover.ready() is None
    found = prover.prove(replace(APPLIED, checkpoints=stored))
    assert found.problems == told
    assert ("static in cpu, Static in memory" in found.how) is (not told)


PATH, DIGEST = "/etc/kubernetes/s.yaml", "a" * 64
FLAGS: dict[str, tuple[str, ...] | None] = {"config": (PATH,), "old": None}
ARGV = ("kube-scheduler", f"--config={PATH}")


class Scheduler(Node):
    """A scheduler that tells what it runs with: /configz before and after, /flagz."""

    def __init__(self, *configurations: dict[str, Any], flagz: dict[str, str] | None = None) -> None:
        super().__init__({}, [APP], [APP])
        self.configurations, self.flags = list(configurations), flagz or {}

    def component_configuration(self, host: str, component: str) -> dict[str, Any] | None:
        return self.configurations.pop(0) if self.configurations else None

    def flagz(self, host: str, component: str) -> dict[str, str]:
        return self.flags

    def control_plane_ready(self, host: str, wait: float, *, allow_unproven: bool = False) -> str | None:
        return None


def prove_flags(cluster: Scheduler, flags: Any = FLAGS, running: str = "/new", **status: Any) -> Any:
    owed = ChangedProcess("cp1", "cp1", "kube-scheduler", files={PATH: DIGEST, "/m.yaml": "b"}), RequiredProof(flags=flags)
    prover = Prover(cluster, *owed)
    prover._component_runs = lambda cgroup="": not cgroup or cgroup in running  # type: ignore[method-assign]
    assert prover.ready() is None
    return prover.prove(replace(APPLIED, **{"argv": ARGV, "inside": (DIGEST, "absent"), "cgroup": "/new", **status}))


def test_flags_are_proven_in_the_arguments_and_files_in_the_container() -> None:
    before = {"c": {"profiles": [{"name": "b"}, {"name": "a", "score": 1}], "list": [1, 2]}}
    after = {"c": {"profiles": [{"name": "a", "score": 2}, {"name": "b"}], "list": [1, 2]}}
    found = prove_flags(Scheduler(before, after, flagz={"config": PATH, "v": "2"}))
    assert found.problems == ()
    assert f"--config={PATH}, no --old in /proc/PID/cmdline, and {PATH} in its container" in found.how
    assert f"in its /flagz config is {PATH}; in its /configz c.profiles.a.score: 1 -> 2" in found.how
    assert "gates in /metrics" not in found.how
    assert "it tells no more" in prove_flags(Scheduler()).how


class Ways(Scheduler):
    """An API server whose way to kubelets changes. `answers`: by the name of the node, why its kubelet does not answer, before and after."""

    def __init__(self, *answers: dict[str, str]) -> None:
        super().__init__()
        self.answers, self.asked = list(answers), list[Any]()
        self.looks = [[APP], [APP]]

    def serving(self) -> list[str]:
        return ["cp1", "cp2"]

    def ready_nodes(self) -> list[str]:
        return ["w1", "w2", "w3"]

    def answering(self, node_names: Any, at: Any = ("", ""), wait: float = 0.0) -> dict[str, str]:
        self.asked.append(at)
        return {name: why for name, why in self.answers.pop(0).items() if name in node_names}

    def ready(self, host: str) -> None:
        pass


def prove_way(cluster: Ways, flag: str) -> Any:
    owed = ChangedProcess("cp1", "cp1", "kube-apiserver"), RequiredProof(flags={flag: ("/pki/ca.crt",)})
    prover = Prover(cluster, *owed)
    prover._component_runs = lambda cgroup="": True  # type: ignore[method-assign]
    assert prover.ready() is None
    return prover.prove(replace(APPLIED, argv=("kube-apiserver", f"--{flag}=/pki/ca.crt")))


def test_kubelets_that_answered_through_the_api_server_still_do() -> None:
    away = "HTTP 503: it does not trust the certificate of this kubelet; deploys/kubelet_certificates.py"
    cluster = Ways({"w1": "", "w2": "", "w3": "no route"}, {"w1": "", "w2": away, "w3": away})
    found = prove_way(cluster, "kubelet-certificate-authority")
    assert found.problems == (f"kubelets no longer answer through the API server of cp1, as before: w2: {away}",)
    assert cluster.asked == [("cp1", "kube-apiserver")] * 2
    well = prove_way(Ways({"w1": "", "w2": "", "w3": "no route"}, {"w1": "", "w2": "", "w3": "no route"}), "authorization-mode")
    assert well.problems == () and "2 of 3 kubelets answer through the API server of cp1" in well.how
    # Another flag asks nobody.
    other = Ways()
    assert prove_way(other, "event-ttl").problems == () and other.asked == []


def test_a_kubelet_answers_through_all_api_servers_as_before() -> None:
    cluster = Ways({"w1": ""}, {"w1": ""}, {"w1": ""}, {"w1": "401"})
    cluster.running = {"authorization": {"mode": "AlwaysAllow"}}
    prover = Prover(cluster, ChangedProcess("w1", "w1", "kubelet"), RequiredProof(settings={"authorization.mode": "AlwaysAllow"}))
    assert prover.ready() is None
    assert prover.prove(APPLIED).problems == ("kubelets no longer answer through the API server of cp2, as before: w1: 401",)


def test_fields_of_an_older_scheduler_have_their_names_in_go() -> None:
    before = {"PluginConfig": [{"Name": "a", "Args": {"Type": "LeastAllocated"}}, {"Name": "b", "Args": {}}]}
    after = {"PluginConfig": [{"Name": "b", "Args": {}}, {"Name": "a", "Args": {"Type": "MostAllocated"}}]}
    assert changed_fields(before, after) == ["PluginConfig.a.Args.Type: LeastAllocated -> MostAllocated"]


def test_another_argument_or_file_is_not_proven() -> None:
    assert prove_flags(Scheduler(), argv=(*ARGV, "--old=x")).problems == ("its arguments have --old=x, planned no --old",)
    assert prove_flags(Scheduler(), inside=("c" * 64, "absent")).problems == (
        f"the container of kube-scheduler does not have the planned {PATH}",
    )
    assert prove_flags(Scheduler(), inside=()).problems == (f"the container of kube-scheduler does not have the planned {PATH}",)


def test_a_file_without_a_flag_is_proven_too() -> None:
    found = prove_flags(Scheduler({"c": 1}, {"c": 2}), {})
    assert found.problems == () and f"; {PATH} in its container; in its /configz c: 1 -> 2; its kubelet's probes pass;" in found.how
    assert prove_flags(Scheduler(), {}, inside=("c" * 64, "absent")).problems == (
        f"the container of kube-scheduler does not have the planned {PATH}",
    )


def test_a_pod_whose_probes_do_not_pass_is_not_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    """Health asked with credentials, or a 401, is not what its kubelet asks for. The pod that was ready before is another container."""
    monkeypatch.setattr(prover_module, "PROBES_SECONDS", 0.05)
    (problem,) = prove_flags(Scheduler(), running="/old").problems
    assert "its kubelet's probes do not pass" in problem


@pytest.mark.parametrize(
    ("cgroup", "container", "ready", "runs"),
    [
        ("0::/kubepods.slice/kubepods-podab.slice/cri-containerd-c1.scope", "containerd://c1", True, True),
        ("4:memory:/kubepods/burstable/podab/c1", "cri-o://c1", True, True),
        ("0::/x/cri-containerd-c1.scope", "containerd://c1", False, False),
        ("0::/x/cri-containerd-c1.scope", "containerd://c2", True, False),
        ("0::/x/cri-containerd-c1.scope", "", True, False),
    ],
)
def test_the_ready_container_is_that_of_the_process(cgroup: str, container: str, ready: bool, runs: bool) -> None:
    words = {name: (name,) for name in COMPONENTS}
    manifests = {f"{name}.yaml": node.manifest(name) for name in COMPONENTS}
    seen = node.parse("cp1", node.answer(manifests=manifests, components=words))
    component = control_plane.find(kubelet.find(seen))["kube-scheduler"]
    pod = PodStatus("kube-system", f"{component.pod.name}-{component.node_name}", "u", "Running", "", False, True, "h", ())
    pod = replace(pod, containers=(ContainerStatus("kube-scheduler", container, ready, 0, None),))
    owed = ChangedProcess("cp1", "cp1", "kube-scheduler", components={"kube-scheduler": component}), RequiredProof()
    assert Prover(Node({}, [pod]), *owed)._component_runs(cgroup) is runs


def test_flagz_whatever_its_separator_is() -> None:
    for separator in (":", ": ", "=", " "):
        text = f"\nkube-scheduler flagz\nWarning: This endpoint is not meant to be machine parseable, for debugging.\nv{separator}2\na-b{separator}x=y:z\n"
        assert {name: flag_values(text)[name] for name in ("v", "a-b")} == {"v": "2", "a-b": "x=y:z"}


def recreated(monkeypatch: pytest.MonkeyPatch, *after: list[PodStatus], before: PodStatus = APP) -> Proof:
    monkeypatch.setattr(prover_module, "patient", lambda _: 0.2)
    monkeypatch.setattr(prover_module, "sleep", lambda _: bridge.tasks.sleep(0.01))
    cluster = Looks({"cgroupDriver": "systemd"}, [before], *after)
    made = Prover(cluster, ChangedProcess("w1", "w1", "kubelet"), RequiredProof(settings={"cgroupDriver": "systemd"}, recreates_pods=True))
    assert made.ready() is None
    return made.prove(APPLIED)


class Looks(Node):
    """The last look stays."""

    def pods(self, node_name: str) -> list[PodStatus]:
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]


def test_pods_that_the_new_kubelet_creates_again_are_no_harm_and_must_run(monkeypatch: pytest.MonkeyPatch) -> None:
    new = replace(APP, containers=(ContainerStatus("c", "id2", True, 1, datetime(2026, 1, 1, tzinfo=UTC)),))
    found = recreated(monkeypatch, [APP], [replace(APP, containers=())], [new])
    assert found.problems == () and "1 pod created again; 0 pods unharmed" in found.how
    assert recreated(monkeypatch, [APP]).problems == ("pod default/app does not run again after 0.2 s",)
    # One that fails is harm: it does not run again.
    assert recreated(monkeypatch, [replace(APP, phase="Failed", reason="OutOfcpu", containers=())]).problems
    assert recreated(monkeypatch, []).problems == ()


def test_static_pods_that_a_gate_recreates_are_no_harm_and_must_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prover_module, "patient", lambda _: 0.2)
    monkeypatch.setattr(prover_module, "sleep", lambda _: bridge.tasks.sleep(0.01))
    since = datetime(2026, 1, 1, tzinfo=UTC)
    etcd = replace(APP, name="etcd-cp1", mirror=True, config_hash="h1", containers=(ContainerStatus("etcd", "id1", True, 0, since),))
    # The old mirror pod may have the status of the new static pod for a moment: the hash is the old one, the container is not.
    between = replace(etcd, containers=(ContainerStatus("etcd", "id2", True, 1, since),))
    new = replace(between, uid="u9", config_hash="h2")

    def proven(*after: list[PodStatus], recreates: bool = True) -> Proof:
        owed = ChangedProcess("cp1", "cp1", "kubelet"), RequiredProof(settings={"maxPods": 5}, recreates_static_pods=recreates)
        made = Prover(Looks({"maxPods": 5}, [etcd, APP], *after), *owed)
        assert made.ready() is None
        return made.prove(APPLIED)

    found = proven([replace(etcd, containers=()), APP], [APP], [replace(new, deleted=True), APP], [between, APP])
    assert found.problems == () and "1 static pod runs; 1 pod unharmed" in found.how
    assert proven([new, APP]).problems == proven([etcd, APP]).problems == ()
    assert (
        proven([APP]).problems
        == proven([replace(new, containers=()), APP]).problems
        == ("static pod default/etcd-cp1 does not run after 0.2 s",)
    )
    # Only static pods are announced, and only if the plan announces them.
    restarted = replace(APP, containers=(ContainerStatus("c", "id2", True, 1, None),))
    assert proven([new, restarted]).problems == ("pod default/app: container c was restarted",)
    assert proven([between, APP], recreates=False).problems == ("pod default/etcd-cp1: container etcd was restarted",)
