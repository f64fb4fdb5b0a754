"""Which hosts are control plane, and which Node a host is: nothing that a host shows decides it alone."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from roles.drain import chosen_nodes
from roles.engine import control_plane, kubelet
from roles.engine.api import NoApi
from roles.engine.bridge import Fleet, Remote
from roles.engine.node import Observation
from roles.engine.proof import Cluster, ObservedNode, Survey, claimed_names, claims, not_their_node, refuse_claim
from roles.engine.proof.cluster import worst_health
from roles.engine.proof.identity import REPORT_SECONDS, other_machine
from roles.engine.transaction import Refusal
from roles.engine.tunnels.etcd import EtcdError, EtcdHealth, EtcdMember
from tests.unit.node import node
from tests.unit.node.node import file_line, parse

KUBECONFIG = b"""apiVersion: v1
kind: Config
current-context: a
contexts: [{name: a, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: "https://127.0.0.1:6443", certificate-authority-data: WA==}}]
users: [{name: u, user: {client-certificate-data: WA==, client-key-data: WA==}}]
"""
ARGV = ("kube-apiserver", "--etcd-servers=http://127.0.0.1:2379")


def remote(name: str, control: bool) -> Remote:
    return cast(Remote, SimpleNamespace(name=name, is_control_plane=control))


def shown(host: str) -> tuple[Observation, dict[str, Any]]:
    """A host with an API server as a static pod, and with an admin kubeconfig."""
    lines = node.answer(
        manifests={"kube-apiserver.yaml": node.manifest(*ARGV)}, components={"kube-apiserver": ARGV},
        extra=[file_line("/etc/kubernetes/admin.conf", KUBECONFIG)],
    )  # fmt: skip
    seen = parse(host, lines)
    return seen, control_plane.find(kubelet.find(seen))


def test_a_worker_that_shows_an_api_server_is_none() -> None:
    cluster = Cluster()
    for name in ("w1", "cp1"):
        cluster.add(remote(name, name == "cp1"), *shown(name))
    assert cluster.serving() == ["cp1"] and cluster.apiservers == 1
    assert [door.name for door, *_ in cluster.doors()] == ["cp1"]
    assert list(cluster._servers) == ["cp1"], "nor does it say how etcd is"


def test_alone_it_is_no_way_to_the_api_either() -> None:
    cluster = Cluster()
    cluster.add(remote("w1", False), *shown("w1"))
    assert not cluster.apiservers
    with pytest.raises(NoApi, match="w1: it runs a kube-apiserver, but is not in the inventory's group control_plane"):
        cluster.api(wait=0)


def test_a_run_refuses_a_host_that_shows_what_the_inventory_does_not_say() -> None:
    _, components = shown("w1")
    with pytest.raises(Refusal, match="w1: it runs kube-apiserver as static pods, and the inventory does not have it in the group"):
        refuse_claim(remote("w1", False), components)
    refuse_claim(remote("cp1", True), components)
    refuse_claim(remote("w1", False), {})
    assert [len(claims(remote("w1", False), of)) for of in (components, {})] == [1, 0], "what deploys say that only read"


@pytest.mark.parametrize(
    ("by_host", "claimed"),
    [
        ({"cp1": "cp1", "w1": "w1"}, []),
        ({"one": "a", "two": "b"}, []),
        ({"cp1": "cp1", "w1": "cp1", "w2": "w2"}, ["w1"]),
        ({"one": "cp1", "two": "cp1"}, ["one", "two"]),
        ({"w1": "w2"}, ["w1"]),
    ],
)
def test_a_nodes_name_is_one_hosts_alone(by_host: dict[str, str], claimed: list[str]) -> None:
    """That of a host with this name, if there is one: nobody else's claim takes it away."""
    assert [host for host, _ in claimed_names(by_host, ["cp1", "w1", "w2"])] == claimed


def test_a_drain_of_a_host_that_claims_anothers_node_is_refused() -> None:
    by_host = {"cp1": "cp1", "w1": "cp1", "w2": "w2"}
    with pytest.raises(ValueError, match="w1: its node's name is cp1, and so is that of cp1: one of them claims another's"):
        chosen_nodes(("w1",), [], by_host, ["cp1", "w1", "w2"])
    assert chosen_nodes(("w2",), [], by_host, ["cp1", "w1", "w2"]) == ("w2",)


def test_a_refused_worker_that_is_left_out_stops_no_run() -> None:
    cp1, w1, w2 = remote("cp1", True), remote("w1", False), remote("w2", False)
    left, all_hosts = Survey(), Survey()
    for one in (cp1, w1):
        left.refuse(one, Refusal(one.name, "bad"), Fleet([w2], [cp1, w1], [], [cp1, w1, w2]))
        all_hosts.refuse(one, Refusal(one.name, "bad"), Fleet([cp1, w1, w2], [], [], [cp1, w1, w2]))
    assert (left.refusals, left.left_out) == (["cp1: bad"], ["w1: bad"])
    assert (all_hosts.refusals, all_hosts.left_out) == (["cp1: bad", "w1: bad"], [])


def test_hosts_that_are_not_the_node_that_they_name_are_no_ground_for_a_word_of_the_api() -> None:
    """Also for deploys that only read: two machines with one host name would both show what one of them is."""
    seen = {name: replace(machine(), host=name) for name in ("w1", "w2", "w3")}
    looked = [
        ObservedNode(remote(name, False), one, replace(kubelet.find(one), node_name="w2" if name == "w1" else name), {})
        for name, one in seen.items()
    ]
    inventory = [one.remote for one in looked]
    assert list(not_their_node(looked, inventory, {})) == ["w1"]
    assert list(not_their_node(looked[2:], inventory, {"w3": reported("m2")})) == ["w3"]
    assert list(not_their_node(looked[:1], inventory, {})) == ["w1"], "also if the other one is not read"
    assert not_their_node(looked[1:], inventory, {"w2": reported(), "w3": reported()}) == {}


def machine(machine_id: str = "m1", boot: str = "b1", age: float = 1000.0) -> Observation:
    seen = parse("w1", node.answer())
    assert seen.kubelet is not None
    started = seen.kubelet.start_ticks / seen.ticks_per_second
    return replace(seen, machine_id=machine_id, boot_id=boot, uptime=started + age)


def reported(machine_id: str = "m1", boot: str = "b1", ready: str = "True") -> dict[str, Any]:
    return {"status": {"nodeInfo": {"machineID": machine_id, "bootID": boot}, "conditions": [{"type": "Ready", "status": ready}]}}


def test_a_node_is_the_machine_that_the_api_knows() -> None:
    assert other_machine(machine(), reported()) == ""
    assert "machine ID m2" in other_machine(machine(), reported("m2"))
    assert "boot ID b2" in other_machine(machine(), reported(boot="b2")), "machines that are copies have one machine ID"
    # Its kubelet has not come up since the boot, or only just.
    assert other_machine(machine(), reported(boot="b2", ready="Unknown")) == ""
    assert other_machine(machine(age=REPORT_SECONDS), reported(boot="b2")) == ""
    for seen, has in ((machine("", ""), reported()), (machine(), {}), (machine(), reported("", ""))):
        assert other_machine(seen, has) == "", "what is not known is no lie"


def test_the_machine_id_is_read() -> None:
    assert parse("w1", [*node.answer()[:-1], f"machine {node.b64('m1')}", "end"]).machine_id == "m1"
    assert parse("w1", node.answer()).machine_id == ""


MEMBERS = tuple(EtcdMember(number, f"m{number}", (f"https://10.0.0.{number}:2379",), False) for number in (1, 2, 3))


def test_the_worst_answer_about_etcd_counts() -> None:
    sick = EtcdError("cp2", "it does not answer", "see its log")
    well, other = EtcdHealth(MEMBERS), EtcdHealth(MEMBERS, ((MEMBERS[2], sick),))
    for seen in ([well, other], [other, well]):
        assert worst_health(seen).unhealthy == ((MEMBERS[2], sick),)
    assert worst_health([well, well]).unhealthy == ()
    with pytest.raises(EtcdError, match="do not name the same members"):
        worst_health([well, EtcdHealth(MEMBERS[:1])])
