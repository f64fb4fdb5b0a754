"""A change that only a drained node can take: refused with what is left there, or planned with its checkpoints."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roles.engine import control_plane
from roles.engine.kubelet import KubeletState
from roles.engine.node_changes import node_report
from roles.engine.transaction import Refusal
from roles.eviction import eviction_impact
from roles.kubelet_config import DesiredFields, FieldsRequest, allocatable_impact, carry_out, drained_change
from roles.kubelet_config.plan import settle
from tests.unit.kubelet_config.world import drained, left, owned, plan_fields, pod, state

POLICY = {"cpuManagerPolicy": "static", "systemReserved.cpu": "500m"}
STATE = "/var/lib/kubelet/cpu_manager_state"
RESERVED = [{"numaNode": 0, "limits": {"memory": "200Mi"}}]


def test_a_node_that_is_not_drained_is_refused() -> None:
    with pytest.raises(Refusal) as refused:
        plan_fields(state(), POLICY)
    text = str(refused.value)
    assert "cpuManagerPolicy: the kubelet does not start while cpu_manager_state has another policy" in text
    assert "it is not cordoned and 2 pods run there (default/a, default/bb)" in text
    assert "drain it first with `pyinfra INVENTORY deploys/drain.py --data nodes=n1`" in text


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (drained(state(), cordoned=False), "but it is not cordoned;"),
        (drained(state(), pods=[*left(), owned("web", "ReplicaSet")]), "but 1 pod runs there (default/web);"),
        (drained(state(), pods=[*left(), owned("forged", "DaemonSet", "evil.io/v1")]), "but 1 pod runs there (default/forged);"),
        (drained(state(), pods=[pod(f"p{number}") for number in range(7)]), "default/p4 and 2 more)"),
        (drained(state(), pods=[pod("a\nb")]), "default/a"),
    ],
    ids=["not-cordoned", "a-pod", "of-another-group", "many-pods", "a-hostile-name"],
)
def test_what_is_in_the_way_is_named(given: KubeletState, words: str) -> None:
    with pytest.raises(Refusal) as refused:
        plan_fields(given, POLICY)
    assert words in str(refused.value) and "\n" not in str(refused.value)


def test_a_drained_node_gets_the_change_with_its_checkpoint() -> None:
    whole = plan_fields(drained(state()), POLICY)
    (made,) = whole.planned
    assert made.change is not None and made.change.checkpoints == (STATE,)
    assert made.checkpoints == {STATE: "static"}
    assert any("the node stays cordoned" in warning for warning in whole.warnings)
    lines = "\n".join(node_report._description(made.change, 1))
    assert f"systemctl stop kubelet.service, {STATE} removed (a revert restores it), systemctl start kubelet.service" in lines


def test_a_change_of_other_fields_needs_no_drained_node() -> None:
    (made,) = plan_fields(state(cpuManagerPolicy="static", systemReserved={"cpu": "500m"}), {"maxPods": 50}).planned
    assert made.change is not None and made.change.checkpoints == () and made.checkpoints == {}


def test_it_is_checked_again_when_the_nodes_turn_comes() -> None:
    given = drained(state())
    (made,) = plan_fields(given, POLICY).planned
    assert made.needed is not None
    with pytest.raises(Refusal, match="it is not cordoned"):
        carry_out.drained.check(drained(state(), cordoned=False), made.needed)


def test_the_root_directory_is_that_of_the_process() -> None:
    given = drained(state())
    process = replace(given.kubelet.process, argv=(*given.kubelet.process.argv, "--root-dir=/srv/kubelet/"))
    moved = replace(given, kubelet=replace(given.kubelet, process=process))
    (first,) = plan_fields(given, POLICY).planned
    assert first.change is not None
    change, policies, _ = drained_change(moved, (), {"cpuManagerPolicy": "static", "systemReserved": {"cpu": "500m"}}, first.change)
    assert change.checkpoints == ("/srv/kubelet/cpu_manager_state",) and policies == {"/srv/kubelet/cpu_manager_state": "static"}
    relative = replace(process, argv=(*process.argv, "--root-dir=kubelet"))
    with pytest.raises(Refusal, match="not an absolute path"):
        _ = replace(given.kubelet, process=relative).root_directory


def test_static_without_reserved_cpu_is_refused() -> None:
    with pytest.raises(Refusal, match="cpuManagerPolicy static needs reserved cpu"):
        plan_fields(drained(state()), {"cpuManagerPolicy": "static"})


def test_options_of_the_policy_none_are_refused() -> None:
    given = drained(state(cpuManagerPolicy="static", systemReserved={"cpu": "1"}, cpuManagerPolicyOptions={"full-pcpus-only": "true"}))
    with pytest.raises(Refusal, match="cpuManagerPolicyOptions=absent"):
        plan_fields(given, {"cpuManagerPolicy": "none"})


NUMA = {"memoryManagerPolicy": "Static", "systemReserved": {"memory": "100Mi"}, "reservedMemory": RESERVED}


def test_what_breaks_the_sum_of_the_memory_manager_is_refused_with_the_numbers() -> None:
    given = drained(state(**NUMA))
    for impact, fields in (
        (allocatable_impact, {"systemReserved": {"memory": "150Mi"}}),
        (eviction_impact, {"evictionHard": {"memory.available": "150Mi"}}),
    ):
        with pytest.raises(Refusal) as refused:
            impact(given, {**given.configuration, **fields})
        assert "reservedMemory has 200Mi of memory, but systemReserved" in str(refused.value)
        assert "come to 250Mi; the kubelet would not start" in str(refused.value)
        assert "reservedMemory of 250Mi of memory in total over all NUMA nodes" in str(refused.value)


def test_a_threshold_is_planned_together_with_reserved_memory() -> None:
    more = [{"numaNode": 0, "limits": {"memory": "250Mi"}}]
    given = drained(state(**NUMA))
    given.configuration["evictionHard"] = {"memory.available": "100Mi", "nodefs.available": "10%"}
    (made,) = plan_fields(given, {"reservedMemory": more, "evictionHard.memory.available": "150Mi"}).planned
    assert made.change is not None and made.change.checkpoints == ("/var/lib/kubelet/memory_manager_state",)
    whole = {"memory.available": "150Mi", "nodefs.available": "10%"}
    assert made.settled.expected["evictionHard"] == whole
    assert made.settled.named[("evictionHard",)] == whole, "one key alone in a shared file would remove the defaults of the others"
    with pytest.raises(Refusal, match=r"deploys/eviction\.py"):
        plan_fields(given, {"evictionHard.memory.available": "150Mi"})
    with pytest.raises(Refusal, match=r"deploys/eviction\.py"):
        plan_fields(given, {"reservedMemory": more, "evictionHard.nodefs.available": "5%"})


def test_swap_keeps_a_kubelet_from_starting() -> None:
    given = state()
    on = replace(given, kubelet=replace(given.kubelet, seen=replace(given.kubelet.seen, swap=1)))
    with pytest.raises(Refusal, match="does not start while swap is on"):
        allocatable_impact(on, on.configuration)
    assert allocatable_impact(on, {**on.configuration, "failSwapOn": False})
    assert allocatable_impact(given, given.configuration)


def test_a_node_that_the_run_may_drain_is_not_refused() -> None:
    desired = DesiredFields(kubelet_config=POLICY)
    request = FieldsRequest({}, lambda given: settle(desired, given), allocatable_impact)
    made = carry_out.plan_node("r1", state(), control_plane.look(state().kubelet), request, may_drain=True)
    (item,) = made.planned
    assert item.change is not None and item.change.checkpoints == (STATE,) and "cpuManagerPolicy" in item.needs_drain[0]
    assert not any("stays cordoned" in text for text in made.warnings)
