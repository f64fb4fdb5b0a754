"""The checks by testinfra's connection: --hosts, with an inventory or without one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from roles.engine import control_plane, kubelet
from roles.engine.proof import Cluster
from tests.acceptance.conftest import Nodes
from tests.unit.node import node

ARGV = ("kube-apiserver", "--etcd-servers=https://127.0.0.1:2379")
SEEN = node.parse("cp1", node.answer(manifests={"kube-apiserver.yaml": node.manifest(*ARGV)}, components={"kube-apiserver": ARGV}))
COMPONENTS = control_plane.find(kubelet.find(SEEN))


def nodes(*control_plane: str, inventory: str | None = None) -> Nodes:
    options = dict.fromkeys(("connection", "ssh_config", "ssh_identity_file", "sudo", "sudo_user", "ansible_inventory", "force_ansible"))
    given: dict[str, Any] = {"gate": [], "inventory": inventory, "control_plane": list(control_plane)}
    found: Any = SimpleNamespace(getoption=given.__getitem__, option=SimpleNamespace(hosts="ssh://cp1,ssh://w1", **options))
    return Nodes(found)


@pytest.mark.parametrize("named", [True, False])
def test_only_a_named_host_speaks_for_the_cluster(named: bool) -> None:
    of = nodes("cp1") if named else nodes()
    one, other = of._connections({})
    assert (one.name, one.is_control_plane, other.is_control_plane) == ("cp1", named, False)
    cluster, evidence = Cluster(), SimpleNamespace(components=COMPONENTS)
    cluster.add(one, SEEN, COMPONENTS)
    assert cluster.apiservers == named
    of._refuse_claim(other, SimpleNamespace(components={}))  # type: ignore[arg-type]
    if named:
        of._refuse_claim(one, evidence)  # type: ignore[arg-type]
    else:
        with pytest.raises(
            pytest.UsageError, match=r"cp1: it runs kube-apiserver as static pods; .*--control-plane=cp1, and if it is none"
        ):
            of._refuse_claim(one, evidence)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("named", "inventory", "why"),
    [(("cp2",), None, "cp2: no such host in --hosts, which has cp1, w1"), (("cp1",), "inventories/lab.py", "an inventory has its group")],
)
def test_a_name_that_matches_nothing_stops_the_run(named: tuple[str, ...], inventory: str | None, why: str) -> None:
    with pytest.raises(pytest.UsageError, match=why):
        nodes(*named, inventory=inventory)


def test_nodes_that_cannot_be_asked_are_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    of, asked = nodes(), []

    def fail(self: Nodes) -> Any:
        asked.append(1)
        raise pytest.UsageError("broken")

    monkeypatch.setattr(Nodes, "_look", fail)
    for _ in range(3):
        with pytest.raises(pytest.UsageError, match="broken"):
            of.result("cp1", "kubelet-running")
    assert asked == [1]
