"""The undo of a change that only a drained node can take."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any, cast

import pytest

from roles import history
from roles.engine.api import NoApi
from roles.engine.kubelet import KubeletState
from roles.engine.node_changes import NodePlan
from roles.engine.transaction import Refusal
from roles.history import Undo
from tests.unit.kubelet.samples import RUNC, UNIMPLEMENTED, VERSION_17
from tests.unit.kubelet.samples import handlers as answered
from tests.unit.kubelet_config.world import Now, drained, plan, state

CONFIG = "cpuManagerPolicy: static\nsystemReserved: {cpu: 500m}\n"
OLD = {"cpuManagerPolicy": "none", "systemReserved": None}


def given() -> KubeletState:
    return state(CONFIG, cpuManagerPolicy="static", systemReserved={"cpu": "500m"})


class Away(Now):
    def usage(self, node_name: str, wait: float = 0) -> Any:
        raise NoApi("no control plane")


def undone(cluster: Now, allow_unproven: bool = False) -> Undo:
    change = plan(state(), {"podPidsLimit": 500}).change
    undo = Undo("kubelet", change, settings=OLD, undoes="r0-n1-kubelet", had_checkpoints=True)
    whole = history._restarted(cluster, NodePlan("n1", cluster.given.kubelet, {}, (undo,)), False, allow_unproven)
    assert not whole.refusals
    (found,) = whole.planned
    return found


def test_a_drained_node_gets_the_undo_with_its_checkpoint() -> None:
    found = undone(Now(drained(given())))
    assert found.change is not None and found.change.checkpoints == ("/var/lib/kubelet/cpu_manager_state",)
    assert found.checkpoints == {"/var/lib/kubelet/cpu_manager_state": "none"} and found.needs_drain


def test_a_node_that_is_not_drained_is_refused() -> None:
    with pytest.raises(Refusal, match="it is not cordoned and 2 pods run there"):
        undone(Now(given()))


def test_without_the_api_it_is_not_undone_blindly() -> None:
    with pytest.raises(Refusal, match="without the API it is not known whether it is drained"):
        undone(Away(drained(given())), allow_unproven=True)


def test_an_undo_of_other_fields_needs_no_drained_node() -> None:
    cluster = Now(given())
    change = plan(state(), {"podPidsLimit": 500}).change
    undo = Undo("kubelet", change, settings={"podPidsLimit": 7}, undoes="r0-n1-kubelet")
    (found,) = history._restarted(cluster, NodePlan("n1", cluster.given.kubelet, {}, (undo,)), False, False).planned
    assert dataclasses.replace(found, may_be_evicted=frozenset(), state=None, pressures=None) == undo


class Runtime:
    """The node of a container runtime that answers with these handlers."""

    def __init__(self, *handlers: str) -> None:
        self.stdout = ["daytwo 1", VERSION_17, UNIMPLEMENTED, answered(*handlers), "end"]

    def run(self, script: str, *, stdin: str, timeout: float) -> Any:
        assert script == "sh -s" and "RuntimeConfig" in stdin and timeout
        return self


def driver_undone(cluster: Now, runtime: Runtime, allow_unproven: bool = False) -> Undo:
    change = plan(state(), {"podPidsLimit": 500}).change
    undo = Undo("kubelet", change, settings={"cgroupDriver": "cgroupfs"}, undoes="r0-n1-kubelet")
    whole = NodePlan("n1", cluster.given.kubelet, {}, (undo,))
    (found,) = history._restarted(cluster, whole, False, allow_unproven, node=cast(Any, SimpleNamespace(remote=runtime))).planned
    return found


def test_the_cgroup_driver_goes_back_only_with_the_runtimes() -> None:
    now = drained(state(cgroupDriver="systemd", containerRuntimeEndpoint="unix:///run/containerd/containerd.sock"))
    found = driver_undone(Now(now), Runtime(RUNC.replace("true", "false")))
    assert found.needs_drain and found.recreates_pods
    with pytest.raises(Refusal, match=r"cgroupDriver cgroupfs: containerd 1\.7\.24\S* runs with another driver \(runc systemd\)"):
        driver_undone(Now(now), Runtime(RUNC))
    with pytest.raises(Refusal, match="without the API it is not known whether it is drained"):
        driver_undone(Away(now), Runtime(RUNC.replace("true", "false")), allow_unproven=True)
