"""What has to be well before a change of the control plane: three nodes on loopback, each with its SSH, API server and etcd."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paramiko
import pytest

from roles.engine import control_plane, kubelet
from roles.engine.proof import Cluster
from roles.engine.remote import Answer, ConnectionLost
from tests.unit.api.world import ApiServer, Authority, Etcd, SshServer, certificate_user, kubeconfig
from tests.unit.node import node as answers
from tests.unit.node.node import parse

NOT_READY = b"[+]ping ok\n[+]log ok\n[-]etcd failed: reason withheld\nreadyz check failed\n"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3Dkubernetes"
NAMES = ("cp1", "cp2", "cp3")


class Node:
    """A control-plane node as roles.engine.bridge.hosts.Remote gives it, its commands run on this machine."""

    is_control_plane = True

    def __init__(self, world: World, number: int) -> None:
        self.name = f"cp{number}"
        self.address = f"10.0.0.{number}"
        self.ssh = SshServer()
        self.gone = False
        self.reconnected = 0
        self.etcd_url = world.etcd.servers[number].url
        self.apiserver = ApiServer(world.authority, world.folder)
        self.readyz: Callable[[], tuple[int, bytes]] = lambda: (200, b"ok")
        self.apiserver.answer = lambda path, who: world.answer(self, path, who)
        self.asked: list[str] = []
        self.admin: bytes | None = kubeconfig(world.authority, certificate_user(world.authority))
        self.flags = [
            f"--secure-port={self.apiserver.port}",
            f"--advertise-address={self.address}",
            f"--etcd-servers={self.etcd_url}",
            *(f"--etcd-{name}={path}" for name, path in world.etcd_files.items()),
        ]

    @property
    def transport(self) -> paramiko.Transport:
        return self.ssh.transport

    uses_ssh = True

    def ensure_connected(self, within: float = 0) -> None:
        if self.transport.is_active():
            return
        if self.gone:
            raise ConnectionLost(f"{self.name}: no route to host")
        self.ssh = SshServer()
        self.reconnected += 1

    def run(self, script: str, timeout: float | None = None) -> Answer:
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False, timeout=timeout)
        return Answer(done.returncode, done.stdout.splitlines(), done.stderr.splitlines())


class World:
    """A cluster of three control-plane nodes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority("cluster")
        etcd_authority = Authority("etcd-ca")
        certificate, key = etcd_authority.issue("apiserver-etcd-client")
        self.etcd_files: dict[str, Path] = {}
        for name, data in (("cafile", etcd_authority.pem), ("certfile", certificate), ("keyfile", key)):
            self.etcd_files[name] = folder / f"etcd-{name}"
            self.etcd_files[name].write_bytes(data)
        self.etcd = Etcd(etcd_authority, folder, 1, 2, 3)
        self.nodes = {name: Node(self, number) for number, name in enumerate(NAMES, 1)}
        self.serving: list[tuple[str, int]] = [(node.address, 6443) for node in self.nodes.values()]
        self.node_addresses: list[str] = []

    def answer(self, node: Node, path: str, who: str | None) -> tuple[int, bytes]:
        node.asked.append(path)
        if who != "admin":
            return 401, b""
        if path == "/readyz":
            return node.readyz()
        if path == SLICES:
            items = [
                {"endpoints": [{"addresses": [address]}], "ports": [{"name": "https", "port": port}]} for address, port in self.serving
            ]
            return 200, json.dumps({"items": items}).encode()
        if path == "/api/v1/nodes/node" and self.node_addresses:
            found = [{"type": "InternalIP", "address": address} for address in self.node_addresses]
            return 200, json.dumps({"status": {"addresses": found}}).encode()
        return 404, b""

    def cluster(self, *names: str) -> Cluster:
        made = Cluster()
        for name in names or NAMES:
            node: Any = self.nodes[name]
            argv = ("kube-apiserver", *node.flags)
            manager = ("kube-controller-manager", "--kubeconfig=/etc/kubernetes/controller-manager.conf")
            files = {str(path): path.read_bytes() if path.exists() else None for path in self.etcd_files.values()}
            if node.admin is not None:
                files["/etc/kubernetes/admin.conf"] = node.admin
            lines = answers.answer(
                manifests={"a.yaml": answers.manifest(*argv), "m.yaml": answers.manifest(*manager)},
                components={"kube-apiserver": argv, "kube-controller-manager": manager},
                files=files,
            )
            seen = parse(name, lines)
            made.add(node, seen, control_plane.find(kubelet.find(seen)))
        return made

    def close(self) -> None:
        self.etcd.close()
        for node in self.nodes.values():
            node.apiserver.close()
            node.ssh.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def test_all_is_well(world: World) -> None:
    cluster = world.cluster()
    assert cluster.control_plane_ready("cp1", 0) is None
    assert cluster.etcd_summary() == "etcd: 3 of 3 members healthy, quorum 2"
    assert "/readyz" in world.nodes["cp2"].asked and "/readyz" in world.nodes["cp3"].asked
    assert all(server.posted for server in world.etcd.servers.values())


def test_the_node_whose_turn_it_is_need_not_be_ready(world: World) -> None:
    world.nodes["cp1"].apiserver.close()
    assert world.cluster().control_plane_ready("cp1", 0) is None
    assert "cp1" in str(world.cluster().control_plane_ready("cp2", 0))


def test_another_apiserver_that_is_not_ready_is_named_with_its_failed_checks(world: World) -> None:
    world.nodes["cp2"].readyz = lambda: (500, NOT_READY)
    told = world.cluster().control_plane_ready("cp1", 0, allow_unproven=True)
    assert told is not None
    assert told.startswith("the kube-apiserver of cp2 is not ready: HTTP 500")
    assert "[-]etcd failed: reason withheld" in told and "ping" not in told
    assert "allow_unproven" not in told and "cp3" not in told


@pytest.mark.parametrize("unproven", [False, True])
def test_one_that_just_restarts_is_waited_for(world: World, unproven: bool) -> None:
    says = iter([(403, b"RBAC is not read yet"), (500, NOT_READY)])
    world.nodes["cp3"].readyz = lambda: next(says, (200, b"ok"))
    assert world.cluster().control_plane_ready("cp1", 60, allow_unproven=unproven) is None
    assert world.nodes["cp3"].asked.count("/readyz") == 3


def test_each_that_is_not_well_is_told(world: World) -> None:
    world.nodes["cp2"].apiserver.close()
    world.nodes["cp3"].readyz = lambda: (500, NOT_READY)
    world.etcd.health[2] = (503, b'{"health":"false","reason":"RAFT NO LEADER"}')
    told = str(world.cluster().control_plane_ready("cp1", 0))
    assert (
        f"the kube-apiserver of cp2 is not ready: nothing accepts connections at {world.nodes['cp2'].apiserver.url} as seen from cp2"
        in told
    )
    assert "the kube-apiserver of cp3 is not ready" in told
    assert f"etcd member cp2 ({world.etcd.servers[2].url}) is not healthy, as seen from cp1" in told
    assert "RAFT NO LEADER" in told and "(etcd: 2 of 3 members healthy, quorum 2)" in told


def test_without_an_admin_kubeconfig_of_its_own_a_node_is_asked_with_anothers(world: World) -> None:
    world.nodes["cp3"].admin = None
    assert world.cluster().control_plane_ready("cp1", 0) is None
    assert "/readyz" in world.nodes["cp3"].asked
    world.nodes["cp3"].readyz = lambda: (500, NOT_READY)
    assert "the kube-apiserver of cp3 is not ready" in str(world.cluster().control_plane_ready("cp1", 0))


def test_without_any_admin_kubeconfig_nothing_is_known(world: World) -> None:
    for node in world.nodes.values():
        node.admin = None
    told = str(world.cluster().control_plane_ready("cp1", 60))
    assert "no apiserver can be asked: cp1: no usable super-admin.conf or admin.conf" in told
    assert "--data allow_unproven=true" in told
    assert world.cluster().control_plane_ready("cp1", 0, allow_unproven=True) is None


# ---- apiservers that the inventory does not have


def test_an_apiserver_that_only_the_cluster_knows_of_is_asked_through_a_node(world: World, tmp_path: Path) -> None:
    other = ApiServer(world.authority, tmp_path, address="127.0.0.2")
    asked: list[tuple[str, str | None]] = []
    other.answer = lambda path, who: (asked.append((path, who)), (200, b"ok"))[1]
    world.serving.append(("127.0.0.2", other.port))
    assert world.cluster().control_plane_ready("cp1", 0) is None
    assert asked == [("/readyz", "admin")]
    other.close()
    told = str(world.cluster().control_plane_ready("cp1", 0))
    assert f"the kube-apiserver at 127.0.0.2:{other.port}, which is not in the inventory" in told
    assert "as seen from cp2" in told


def test_an_inventory_that_has_one_of_three(world: World) -> None:
    world.serving = [("10.0.0.1", 6443), *(("127.0.0.1", world.nodes[name].apiserver.port) for name in ("cp2", "cp3"))]
    assert world.cluster("cp1").control_plane_ready("cp1", 0) is None
    world.nodes["cp3"].readyz = lambda: (500, NOT_READY)
    told = str(world.cluster("cp1").control_plane_ready("cp1", 0))
    assert told.startswith(f"the kube-apiserver at 127.0.0.1:{world.nodes['cp3'].apiserver.port}, which is not in the inventory")


def test_an_address_that_only_the_node_object_tells_is_the_inventorys(world: World) -> None:
    world.serving.append(("127.0.0.2", 1))
    assert "127.0.0.2:1" in str(world.cluster().control_plane_ready("cp1", 0))
    world.node_addresses = ["127.0.0.2"]
    assert world.cluster().control_plane_ready("cp1", 0) is None


def test_a_single_control_plane(world: World) -> None:
    world.serving = [("10.0.0.1", 6443)]
    del world.etcd.members[1:]
    cluster = world.cluster("cp1")
    assert cluster.control_plane_ready("cp1", 0) is None
    assert cluster.etcd_summary() == "etcd: 1 of 1 members healthy, quorum 1"
    assert world.nodes["cp1"].asked == [SLICES]


@pytest.mark.parametrize(
    ("answer", "unproven"), [((403, b"no"), True), ((200, b'{"items": [{"endpoints": 1, "ports": [{}]}]}'), True), ((503, b""), False)]
)
def test_an_unreadable_list_of_apiservers(world: World, answer: tuple[int, bytes], unproven: bool) -> None:
    for node in world.nodes.values():
        node.apiserver.answer = lambda path, who: answer if path == SLICES else (200, b"ok")
    told = str(world.cluster().control_plane_ready("cp1", 0))
    assert "apiservers that are not in the inventory could not be listed" in told
    assert ("--data allow_unproven=true" in told) == unproven
    assert (world.cluster().control_plane_ready("cp1", 0, allow_unproven=True) is None) == unproven


# ---- etcd


def test_an_unhealthy_member_of_etcd_always_counts(world: World) -> None:
    world.etcd.health[1] = (503, b'{"health":"false","reason":"ALARM NOSPACE"}')
    cluster = world.cluster()
    for unproven in (False, True):
        told = str(cluster.control_plane_ready("cp1", 60, allow_unproven=unproven))
        assert "ALARM NOSPACE" in told and "etcdctl alarm disarm" in told and "allow_unproven" not in told
    assert "2 of 3 members healthy, quorum 2; cp1 (" in cluster.etcd_summary()
    assert "ALARM NOSPACE" in cluster.etcd_summary()


def test_a_member_of_etcd_that_just_restarts_is_waited_for(world: World) -> None:
    says = iter([(503, b'{"health":"false","reason":"RAFT NO LEADER"}'), (0, b"")])
    plain = world.etcd.servers[2].answer
    world.etcd.servers[2].answer = lambda path, who: next(says, plain(path, who)) if path == "/health" else plain(path, who)
    assert world.cluster().control_plane_ready("cp1", 60) is None


def test_the_next_node_is_asked_for_etcd_where_the_first_ones_is_down(world: World) -> None:
    world.etcd.servers[1].close()
    told = str(world.cluster().control_plane_ready("cp3", 0))
    assert f"etcd member cp1 ({world.etcd.servers[1].url}) is not healthy, as seen from cp2" in told


def test_an_etcd_that_is_down_altogether_always_counts(world: World) -> None:
    world.etcd.close()
    cluster = world.cluster()
    told = str(cluster.control_plane_ready("cp1", 0, allow_unproven=True))
    assert "the members of etcd are not known: nothing accepts connections at" in told and "allow_unproven" not in told
    assert cluster.etcd_summary().startswith("etcd: nothing accepts")


def test_an_etcd_that_cannot_be_read_halts_and_tells_the_way_out(world: World) -> None:
    world.etcd_files["keyfile"].unlink()
    cluster = world.cluster()
    told = str(cluster.control_plane_ready("cp1", 60))
    assert "etcd-keyfile, which the kube-apiserver's flags name, cannot be read" in told
    assert told.endswith("or continue without this check: --data allow_unproven=true")
    assert cluster.etcd_summary().startswith("etcd: NOT PROVEN: ")
    assert cluster.control_plane_ready("cp1", 0, allow_unproven=True) is None
    world.nodes["cp2"].readyz = lambda: (500, NOT_READY)
    assert "cp2 is not ready" in str(cluster.control_plane_ready("cp1", 0, allow_unproven=True))


def test_no_control_plane_at_all() -> None:
    assert "no node of the inventory runs a kube-apiserver" in str(Cluster().control_plane_ready("w1", 0))
    assert "NOT PROVEN" in Cluster().etcd_summary()


# ---- connections


def test_a_connection_that_was_lost_meanwhile_is_made_anew(world: World) -> None:
    cluster = world.cluster()
    for name in ("cp1", "cp2"):
        world.nodes[name].ssh.close()
    assert cluster.control_plane_ready("cp3", 0) is None
    assert [node.reconnected for node in world.nodes.values()] == [1, 1, 0]


def test_the_api_is_asked_over_a_new_connection_where_the_one_before_was_lost(world: World) -> None:
    cluster = world.cluster("cp1")
    cluster.ready("cp1")
    world.nodes["cp1"].ssh.close()
    cluster.ready("cp1")
    world.nodes["cp1"].ssh.close()
    assert cluster.api().host == "cp1" and world.nodes["cp1"].reconnected == 2


def test_an_api_whose_connection_is_lost_under_a_question_is_asked_again(world: World) -> None:
    cluster, node = world.cluster("cp1"), world.nodes["cp1"]
    cluster.ready("cp1")
    cuts = iter([True])

    def cut() -> tuple[int, bytes]:
        if next(cuts, False):
            node.ssh.close()
        return 200, b"ok"

    node.readyz = cut
    cluster.ready("cp1")
    assert node.reconnected == 1


def test_a_node_that_is_gone_always_counts(world: World) -> None:
    cluster = world.cluster()
    world.nodes["cp2"].ssh.close()
    world.nodes["cp2"].gone = True
    told = str(cluster.control_plane_ready("cp1", 60, allow_unproven=True))
    assert "the kube-apiserver of cp2 cannot be asked: cp2: no route to host" in told


def test_to_look_for_the_api_and_to_read_takes_one_connection_and_the_next_time_another(world: World) -> None:
    cluster, node = world.cluster("cp1"), world.nodes["cp1"]
    node.apiserver.answer = lambda path, who: (200, b'{"items": [{"metadata": {"name": "cp1"}}]}')
    for made in (1, 2):
        assert set(cluster.nodes()) == {"cp1"}
        assert len(node.ssh.connections) == made


def test_where_forwarding_is_forbidden_kubectl_on_the_node_reads(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = world.nodes["cp1"]
    node.ssh.forbidden_ports = {node.apiserver.port}
    kubectl = tmp_path / "bin/kubectl"
    kubectl.parent.mkdir()
    kubectl.write_text("""#!/bin/sh\nprintf '{"items": [{"metadata": {"name": "%s"}}]}' "$1"\n""")
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{kubectl.parent}:{os.environ['PATH']}")
    assert set(world.cluster("cp1").nodes()) == {"--kubeconfig=/etc/kubernetes/admin.conf"}
    assert not node.asked


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_where_only_the_apiservers_port_may_be_forwarded_to_etcd_is_asked_on_the_node(world: World) -> None:
    for node in world.nodes.values():
        node.ssh.forbidden_ports = {server.port for server in world.etcd.servers.values()}
    assert world.cluster().etcd_summary() == "etcd: 3 of 3 members healthy, quorum 2"
    world.etcd.health[3] = (503, b'{"health":"false","reason":"RAFT NO LEADER"}\n')
    assert "cp3" in str(world.cluster().control_plane_ready("cp1", 0))
