"""One node's plan: what a restart would apply, its effect, and the refusals."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from roles.engine import control_plane
from roles.engine.api import NoApi, NotFound
from roles.engine.api.errors import Unreachable
from roles.engine.api.nodes import NodeUsage
from roles.engine.bridge import Fleet
from roles.engine.kubelet import KubeletState
from roles.engine.node_changes import Basis, DesiredByHost, NodePlan, Verdicts
from roles.engine.proof import Cluster, Survey
from roles.engine.runs import Options
from roles.engine.starting import node_needs
from roles.engine.starting.model import Holds
from roles.engine.transaction import Refusal
from roles.eviction import eviction_impact
from roles.kubelet_config import DesiredFields, FieldsRequest, KubeletFields, Settled, allocatable_impact, carry_out
from roles.kubelet_config.carry_out import FieldsPlan
from roles.kubelet_config.plan import settle
from tests.unit.kubelet_config.world import GIB, Now, node_plan, plan, state


def test_a_change_without_other_effects() -> None:
    whole = node_plan(state(), {"podPidsLimit": 500})
    (made,) = whole.planned
    assert made.change is not None and "EVICTS" not in whole.outlook and whole.warnings == ()


def test_a_restart_that_applies_an_earlier_edit_is_warned_of_and_predicted() -> None:
    made = node_plan(state("maxPods: 20\n"), {"podPidsLimit": 500})
    assert made.planned[0].change is not None
    assert made.warnings == ("a restart also applies: maxPods is 20 in its files, but the kubelet runs with 110",)


def test_an_edit_of_a_field_that_the_change_names_needs_no_warning() -> None:
    made = node_plan(state("maxPods: 20\n"), {"maxPods": 30})
    assert made.planned[0].change is not None and made.warnings == ()


def test_an_edit_that_needs_more_than_a_restart_is_refused() -> None:
    for edit, why in (
        ("cpuManagerPolicy: static\n", "cpuManagerPolicy: .*remove /var/lib/kubelet/cpu_manager_state, start it"),
        # The refusal must not blame the change for this either.
        ("systemReserved: {memory: 900Gi}\n", "over-reserved|900Gi"),
    ):
        with pytest.raises(
            Refusal, match=rf"n1: the restart would also apply changes to its files since .*, and .*({why}).*revert the file"
        ):
            plan(state(edit), {"podPidsLimit": 500})
    # Without a change there is no restart.
    assert plan(state("cpuManagerPolicy: static\npodPidsLimit: 500\n", podPidsLimit=500), {"podPidsLimit": 500}).change is None


def test_an_edit_that_leaves_the_reserved_cpus_needs_only_a_restart() -> None:
    """The checkpoint of the static policy has CPUs, and no memory."""
    reserved = {"cpu": "500m", "memory": "1Gi"}
    given = state(
        "cpuManagerPolicy: static\nsystemReserved: {cpu: 500m, memory: 2Gi}\n", cpuManagerPolicy="static", systemReserved=reserved
    )
    (warning,) = node_plan(given, {"podPidsLimit": 500}).warnings
    assert warning.startswith("a restart also applies: systemReserved is")


def test_the_other_keys_of_a_map_stay_as_in_the_files() -> None:
    """A map is written in full: that must not silently revert somebody's edit which is not in effect yet."""
    given = state("systemReserved: {cpu: 500m, memory: 1Gi}\n", systemReserved={"cpu": "100m", "memory": "1Gi"})
    desired = DesiredFields(kubelet_config={"systemReserved.memory": "2Gi"})
    whole = carry_out.plan_node(
        "r1", given, control_plane.look(given.kubelet), FieldsRequest({}, partial(settle, desired), allocatable_impact)
    )
    (made,) = whole.planned
    assert made.settled.expected == {"systemReserved": {"cpu": "500m", "memory": "2Gi"}}
    (warning,) = whole.warnings
    assert warning.startswith("a restart also applies: systemReserved is")
    assert made.change is not None and b"cpu: 500m" in (made.change.files[0].after or b"")


RESERVED_CPU = "systemReserved: {cpu: 500m, memory: 1Gi}\nkubeReserved: {cpu: 300m, memory: 1Gi}\nreservedSystemCPUs: '0'\n"
SHOWN = {"systemReserved": {"cpu": "1", "memory": "1Gi"}, "kubeReserved": {"memory": "1Gi"}, "reservedSystemCPUs": "0"}


def surveyed(config: str, **running: Any) -> KubeletState:
    given = state(config, **running)
    return carry_out.state_of(cast(Cluster, Now(given)), "n1", given.kubelet)


def wish(given: KubeletState, fields: dict[str, Any]) -> NodePlan[FieldsPlan]:
    return carry_out.plan_node(
        "r1",
        given,
        control_plane.look(given.kubelet),
        FieldsRequest({}, partial(settle, DesiredFields(kubelet_config=fields)), allocatable_impact),
    )


def test_what_reserved_cpus_replace_stays_in_the_files() -> None:
    """The kubelet shows their number in systemReserved and no cpu in kubeReserved, whatever the files have."""
    given = surveyed(RESERVED_CPU, **SHOWN)
    whole = wish(given, {"systemReserved.memory": "2Gi", "kubeReserved.memory": "2Gi"})
    (made,) = whole.planned
    assert made.change is not None and whole.warnings == ()
    written = made.change.files[0].after or b""
    assert b"systemReserved: {cpu: 500m, memory: 2Gi}" in written and b"kubeReserved: {cpu: 300m, memory: 2Gi}" in written


def test_without_reserved_cpus_the_reservations_of_the_files_count_again() -> None:
    given = surveyed(RESERVED_CPU, **SHOWN)
    whole = wish(given, {"reservedSystemCPUs": "absent"})
    assert whole.outlook.strip() == "Allocatable: cpu 3000m -> 3200m"


def test_reserved_cpus_that_are_no_longer_named_need_a_drained_node_too() -> None:
    config = "cpuManagerPolicy: static\nsystemReserved: {cpu: 500m}\nreservedSystemCPUs: '1'\n"
    given = surveyed(config, cpuManagerPolicy="static", systemReserved={"cpu": "1"}, reservedSystemCPUs="1")
    with pytest.raises(Refusal, match="reservedSystemCPUs: the static CPU manager does not start if cpu_manager_state does not fit"):
        wish(given, {"reservedSystemCPUs": "absent"})


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"reservedSystemCPUs": "0", "systemReserved.cpu": "500m"}, "systemReserved.cpu"),
        ({"reservedSystemCPUs": "0-1", "systemReserved": {"cpu": "1", "memory": "1Gi"}}, "systemReserved.cpu"),
        ({"reservedSystemCPUs": "0", "kubeReserved.cpu": "1"}, "kubeReserved.cpu"),
    ],
)
def test_cpu_is_not_reserved_in_two_ways(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(Refusal, match=rf"{named} is .* but reservedSystemCPUs \(0.*\) replaces it: .*; remove {named} from kubelet_config"):
        wish(state(), fields)


def test_the_number_of_reserved_cpus_may_be_named() -> None:
    for fields in (
        {"systemReserved.cpu": "1"},
        {"systemReserved": {"cpu": "1000m"}},
        {"kubeReserved.cpu": "absent", "systemReserved.memory": "1Gi"},
    ):
        assert wish(state(), {"reservedSystemCPUs": "0", **fields}).planned[0].change is not None


def test_a_value_that_is_written_but_not_in_effect_is_refused() -> None:
    with pytest.raises(Refusal, match="files have the desired values, but its process does not: kubelet runs with maxPods=110, wanted 20"):
        plan(state("maxPods: 20\n"), {"maxPods": 20})


def test_a_node_that_is_not_ready_is_reported() -> None:
    made = node_plan(state(conditions=(("Ready", "Unknown"),)), {"podPidsLimit": 500})
    assert made.warnings == ("the node is not Ready (Why: because); check that first",)


@pytest.mark.parametrize(("reserved", "evicts"), [("1Gi", False), ("3Gi", True)])
def test_pods_that_would_use_more_than_allowed_are_reported(reserved: str, evicts: bool) -> None:
    """Their requests fit; but the kernel limits the usage of all of them to the capacity minus reservations."""
    given = state(pods_use=6 * GIB)
    made = allocatable_impact(given, {**given.configuration, "systemReserved": {"memory": reserved}})
    assert bool(made.evicts) is evicts and made.may_be_evicted == ({"default/a", "default/bb"} if evicts else frozenset())
    assert not evicts or "pods use 6144.0Mi of memory; after the change they may use 5120.0Mi" in made.evicts[0]
    free = {**given.configuration, "systemReserved": {"memory": reserved}, "enforceNodeAllocatable": ["none"]}
    assert allocatable_impact(given, free).evicts == ()


def test_a_node_that_has_not_reported_its_capacity_is_refused() -> None:
    given = state()
    bare = replace(given, node={"metadata": {"name": "n1"}, "status": {}})
    for outlook in (allocatable_impact, eviction_impact):
        with pytest.raises(Refusal, match=r"no capacity of cpu, memory, pods.*kubectl describe node n1"):
            outlook(bare, given.configuration)


def test_thresholds_that_evict_name_the_pods() -> None:
    given = state(pods_use=7 * GIB)
    outlook = eviction_impact(given, {**given.configuration, "evictionHard": {"memory.available": "2Gi"}})
    assert outlook.evicts and outlook.may_be_evicted == {"default/a", "default/bb"}
    # Under an existing pressure, the restarted kubelet may not re-admit pods.
    pressed = replace(given, configuration={**given.configuration, "evictionHard": {"memory.available": "2Gi"}})
    best_effort = [
        {**one, "spec": {"containers": [{"name": "c"}]}, "status": {"phase": "Running", "qosClass": "BestEffort"}} for one in given.pods
    ]
    again = eviction_impact(replace(pressed, pods=best_effort), pressed.configuration)
    assert any("may refuse to re-admit: default/a, default/bb" in why for why in again.evicts)
    # The re-admission forecast is made with this pressure.
    assert outlook.pressures == ("MemoryPressure",)
    assert eviction_impact(given, given.configuration).evicts == () and eviction_impact(given, given.configuration).pressures == ()


def test_a_node_that_the_api_does_not_know_is_reported_by_its_name() -> None:
    error = NotFound("cp1", "/api/v1/nodes/n1/proxy/configz", '404 Not Found (nodes "n1" not found)', "check the name")
    text = str(carry_out.unreadable_node("host", "n1", error))
    assert text.startswith("host: ") and "the API has no node n1" in text and "--hostname-override" in text and "kubectl get nodes" in text
    assert "without the API no change can be proven" in str(carry_out.unreadable_node("host", "n1", NoApi("no control plane")))


def test_present_files_that_are_refused_are_named_and_the_change_is_not_blamed() -> None:
    made = node_plan(state("containerLogMaxSize: 1 Mi\n"), {"podPidsLimit": 500})
    words = "failed to load kubelet config file, path: /run/daytwo-ask.x1/config, error: ContainerLogMaxSize: quantities must match"

    def judged(*verdicts: dict[str, str]) -> str:
        fields = KubeletFields(DesiredByHost({}, {}))
        return "; ".join(map(str, fields.judge(cast(Basis, None), made, Verdicts(*verdicts)).refusals))

    text = judged({"kubelet": words}, {"kubelet": words})
    assert text.startswith("n1: kubelet v1.36.3 rejects its current files, without this change: failed to load")
    assert "path: /var/lib/kubelet/config.yaml, error" in text and "(/var/lib/kubelet/config.yaml, line 4)" in text
    assert "as desired" not in text and "without this change" in text
    assert "refuses as desired: failed to load" in judged({"kubelet": words}, {"kubelet": ""})
    assert "gave no answer" in judged() and judged({"kubelet": ""}) == ""
    (item,) = made.planned
    assert "maxPods" not in item.question_present or "podPidsLimit" not in item.question_present


@pytest.mark.parametrize(("kind", "waits"), [("none", 0), ("socket", 1)])
def test_a_kubelet_without_its_runtime_is_not_waited_for(kind: str, waits: int) -> None:
    """It gives no usage then. Its node says so at once."""
    given = state(containerRuntimeEndpoint="unix:///run/containerd/containerd.sock")
    needs = node_needs(given.kubelet)
    assert needs is not None
    (number,) = (place for place, one in enumerate(needs.paths) if one.holds is Holds.socket)
    remote = SimpleNamespace(name="n1", run=lambda command, stdin, timeout: SimpleNamespace(stdout=[f"start: path {number} {kind} -"]))
    node = SimpleNamespace(remote=remote, kubelet=given.kubelet, components={})
    asked: list[float] = []

    class Silent(Now):
        def usage(self, node_name: str, wait: float = 60) -> NodeUsage:
            asked.append(wait)
            raise Unreachable("cp1", "/stats/summary", "the kubelet does not answer", "")

    with pytest.raises(Unreachable):
        carry_out.state_of(Silent(given), "n1", given.kubelet, node=cast(Any, node))
    assert asked == [0, *[60] * waits]


def test_the_prediction_is_repeated_when_the_nodes_turn_comes() -> None:
    fields = {"evictionHard": {"memory.available": "1Gi"}}
    request = FieldsRequest({}, lambda _: Settled(fields, fields, "as desired"), eviction_impact)
    made = carry_out.plan_node("r1", state(), control_plane.look(state().kubelet), request)

    def why(given: KubeletState, desired: FieldsRequest = request) -> str | None:
        basis = Basis("r1", cast(Fleet, None), Options(), Survey(cluster=Now(given)))
        return KubeletFields(DesiredByHost({"n1": desired}, {})).recheck(basis, made, made.planned[0])

    assert why(state()) is None
    fuller = state(pods_use=8 * GIB - GIB // 2)
    text = why(fuller) or ""
    assert text.startswith("now this would evict: memory.available has 512Mi left") and "allow_evictions=true" in text
    assert why(fuller, replace(request, allow_evictions=True)) is None
    limited = state("podPidsLimit: 7\n", podPidsLimit=7)
    made = carry_out.plan_node("r1", limited, control_plane.look(limited.kubelet), request)
    assert why(limited) is None
    assert "restarted with other settings: podPidsLimit is 7 in its files" in (why(state("podPidsLimit: 7\n", podPidsLimit=9)) or "")
