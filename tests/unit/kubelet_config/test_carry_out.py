"""One node's plan: what a restart would bring and do; and why it is refused."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, cast

import pytest

from roles.engine.api.errors import NotFound
from roles.engine.api.read import NodeUsage
from roles.engine.bridge.hosts import Fleet
from roles.engine.editing.kubelet_config import ABSENT
from roles.engine.kubelet.facts import find
from roles.engine.node_changes.capability import Basis, DesiredByHost
from roles.engine.node_changes.node_plan import NodePlan, Verdicts
from roles.engine.proof.cluster import Cluster, NoApi
from roles.engine.proof.survey import Survey
from roles.engine.rollout.options import Options
from roles.engine.transaction.refusal import Refusal
from roles.eviction.impact import eviction_impact
from roles.kubelet_config import carry_out
from roles.kubelet_config.carry_out import FieldsPlan, FieldsRequest, KubeletFields, Settled
from roles.kubelet_config.impact import allocatable_outlook, restart_outlook
from roles.kubelet_config.model import DesiredFields
from roles.kubelet_config.plan import settle
from roles.kubelet_config.state import KubeletState
from tests.unit.node import node
from tests.unit.node.node import parse

GIB = 2**30
RUNNING: dict[str, Any] = {
    "maxPods": 110,
    "evictionHard": {"memory.available": "100Mi"},
    "enforceNodeAllocatable": ["pods"],
    "staticPodPath": "/etc/kubernetes/manifests",
}


def pod(name: str, cpu: str = "100m", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "default", "name": name, "uid": name, "creationTimestamp": f"2026-01-01T00:00:{len(name):02d}Z"},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}], **spec},
        "status": {"phase": "Running", "qosClass": "Burstable"},
    }


def state(
    config: str = "", conditions: tuple[tuple[str, str], ...] = (("Ready", "True"),), pods_use: int = GIB, **running: Any
) -> KubeletState:
    """A node of 4 CPUs and 8 GiB whose kubelet's file says `config`, and two pods."""
    found = find(parse("n1", node.answer(files={"/var/lib/kubelet/config.yaml": node.CONFIG + config.encode()})))
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    status = {
        "capacity": amounts,
        "allocatable": amounts,
        "nodeInfo": {"kubeletVersion": "v1.36.3"},
        "conditions": [{"type": kind, "status": value, "reason": "Why", "message": "because"} for kind, value in conditions],
    }
    stats = {"availableBytes": 8 * GIB - pods_use, "workingSetBytes": pods_use}
    summary = {"node": {"memory": stats, "systemContainers": [{"name": "pods", "memory": stats}]}, "pods": []}
    return KubeletState("n1", found, {**RUNNING, **running}, {"metadata": {"name": "n1"}, "status": status}, [pod("a"), pod("bb")], summary)


def node_plan(given: KubeletState, fields: dict[str, Any], *, allow_evictions: bool = False) -> NodePlan[FieldsPlan]:
    expected = {name: None if value is ABSENT else value for name, value in fields.items()}
    wish = FieldsRequest({}, lambda _: Settled(fields, expected, "as wished"), restart_outlook, allow_evictions=allow_evictions)
    return carry_out.plan_node("r1", given, wish)


def plan(given: KubeletState, fields: dict[str, Any], *, allow_evictions: bool = False) -> FieldsPlan:
    (made,) = node_plan(given, fields, allow_evictions=allow_evictions).planned
    return made


def test_a_change_of_its_own() -> None:
    whole = node_plan(state(), {"podPidsLimit": 500})
    (made,) = whole.planned
    assert made.change is not None and made.outlook.evicts == () and whole.warnings == ()


def test_a_restart_that_brings_somebody_s_edit_is_warned_of_and_reckoned_with() -> None:
    made = node_plan(state("maxPods: 20\n"), {"podPidsLimit": 500})
    assert made.planned[0].change is not None
    assert made.warnings == ("a restart also brings: maxPods is 20 in its files, but the kubelet runs with 110",)
    # What the edit would do to pods needs the same consent as the change itself.
    with pytest.raises(Refusal, match="no longer fits: default/bb"):
        plan(state("maxPods: 1\n"), {"podPidsLimit": 500})
    assert plan(state("maxPods: 1\n"), {"podPidsLimit": 500}, allow_evictions=True).outlook.may_go == {"default/bb"}


def test_an_edit_that_the_change_names_itself_is_no_news() -> None:
    made = node_plan(state("maxPods: 20\n"), {"maxPods": 30})
    assert made.planned[0].change is not None and made.warnings == ()


def test_an_edit_that_a_restart_alone_does_not_rightly_bring_is_refused() -> None:
    for edit, why in (
        ("cpuManagerPolicy: static\n", "cpuManagerPolicy: "),
        # Not to be blamed on the wish either.
        ("systemReserved: {memory: 900Gi}\n", "over-reserved|900Gi"),
    ):
        with pytest.raises(Refusal, match=rf"n1: the restart would bring what its files say since .*, and .*({why}).*put the file back"):
            plan(state(edit), {"podPidsLimit": 500})
    # Where nothing is to be changed, nothing is restarted.
    assert plan(state("cpuManagerPolicy: static\npodPidsLimit: 500\n", podPidsLimit=500), {"podPidsLimit": 500}).change is None


def test_the_rest_of_a_map_stays_as_the_files_have_it() -> None:
    """A map is written whole: what somebody has edited in it, and what does not run yet, is not put back on the quiet."""
    given = state("systemReserved: {cpu: 500m, memory: 1Gi}\n", systemReserved={"cpu": "100m", "memory": "1Gi"})
    desired = DesiredFields(kubelet_config={"systemReserved.memory": "2Gi"})
    whole = carry_out.plan_node("r1", given, FieldsRequest({}, partial(settle, desired), restart_outlook))
    (made,) = whole.planned
    assert made.settled.expected == {"systemReserved": {"cpu": "500m", "memory": "2Gi"}}
    (told,) = whole.warnings
    assert told.startswith("a restart also brings: systemReserved is")
    assert made.change is not None and b"cpu: 500m" in (made.change.files[0].after or b"")


def test_what_is_written_and_not_in_effect_is_no_success() -> None:
    with pytest.raises(Refusal, match="files are as wanted and the process is not: kubelet runs with maxPods=110, wanted 20"):
        plan(state("maxPods: 20\n"), {"maxPods": 20})


def test_a_node_that_is_not_ready_is_told() -> None:
    made = node_plan(state(conditions=(("Ready", "Unknown"),)), {"podPidsLimit": 500})
    assert made.warnings == ("the node is not Ready (Why: because); look at that first",)


def test_a_restart_under_pressure_needs_consent() -> None:
    short = state(conditions=(("Ready", "True"), ("DiskPressure", "True"), ("MemoryPressure", "False")))
    with pytest.raises(Refusal, match=r"the node has DiskPressure now: a kubelet that starts anew.*allow_evictions=true"):
        plan(short, {"podPidsLimit": 500})
    made = plan(short, {"podPidsLimit": 500}, allow_evictions=True)
    assert made.outlook.may_go == {"default/a", "default/bb"}


def test_pods_that_no_longer_fit_are_those_that_may_go() -> None:
    with pytest.raises(Refusal, match="no longer fits: default/bb"):
        plan(state(), {"maxPods": 1})
    assert plan(state(), {"maxPods": 1}, allow_evictions=True).outlook.may_go == {"default/bb"}


@pytest.mark.parametrize(("reserved", "evicts"), [("1Gi", False), ("3Gi", True)])
def test_pods_that_use_more_than_they_may_then_are_told(reserved: str, evicts: bool) -> None:
    """They fit by what they request; but the kernel limits what all of them use to capacity without what is reserved."""
    given = state(pods_use=6 * GIB)
    made = allocatable_outlook(given, {**given.configuration, "systemReserved": {"memory": reserved}})
    assert bool(made.evicts) is evicts and made.may_go == ({"default/a", "default/bb"} if evicts else frozenset())
    assert not evicts or "pods use 6144.0Mi of memory, and all of them together may then use 5120.0Mi" in made.evicts[0]
    free = {**given.configuration, "systemReserved": {"memory": reserved}, "enforceNodeAllocatable": ["none"]}
    assert allocatable_outlook(given, free).evicts == ()


def test_a_node_that_has_not_told_what_it_has_is_refused() -> None:
    given = state()
    bare = replace(given, node={"metadata": {"name": "n1"}, "status": {}})
    for outlook in (allocatable_outlook, eviction_impact):
        with pytest.raises(Refusal, match=r"no capacity of cpu, memory, pods.*kubectl describe node n1"):
            outlook(bare, given.configuration)


def test_thresholds_that_evict_say_who_may_go() -> None:
    given = state(pods_use=7 * GIB)
    outlook = eviction_impact(given, {**given.configuration, "evictionHard": {"memory.available": "2Gi"}})
    assert outlook.evicts and outlook.may_go == {"default/a", "default/bb"}
    # Under a pressure that is there already pods may not be taken back by the restart itself.
    pressed = replace(given, configuration={**given.configuration, "evictionHard": {"memory.available": "2Gi"}})
    best_effort = [
        {**one, "spec": {"containers": [{"name": "c"}]}, "status": {"phase": "Running", "qosClass": "BestEffort"}} for one in given.pods
    ]
    again = eviction_impact(replace(pressed, pods=best_effort), pressed.configuration)
    assert any("may refuse to take back: default/a, default/bb" in why for why in again.evicts)
    assert eviction_impact(given, given.configuration).evicts == ()


def test_a_node_that_the_api_does_not_know_is_told_by_its_name() -> None:
    error = NotFound("cp1", "/api/v1/nodes/n1/proxy/configz", '404 Not Found (nodes "n1" not found)', "check the name")
    told = str(carry_out.unreadable("host", "n1", error))
    assert (
        told.startswith("host: ") and "the API knows no node n1" in told and "--hostname-override" in told and "kubectl get nodes" in told
    )
    assert "no change could be proven without the API" in str(carry_out.unreadable("host", "n1", NoApi("no control plane")))


def test_files_that_are_refused_as_they_are_are_named_and_the_wish_is_not_blamed() -> None:
    made = node_plan(state("containerLogMaxSize: 1 Mi\n"), {"podPidsLimit": 500})
    words = "failed to load kubelet config file, path: /run/daytwo-ask.x1/config, error: ContainerLogMaxSize: quantities must match"

    def judged(*verdicts: dict[str, str]) -> str:
        fields = KubeletFields(DesiredByHost({}, {}))
        return "; ".join(map(str, fields.judge(cast(Basis, None), made, Verdicts(*verdicts)).refusals))

    told = judged({"kubelet": words}, {"kubelet": words})
    assert told.startswith("n1: kubelet v1.36.3 rejects its current files, without this change: failed to load")
    assert "path: /var/lib/kubelet/config.yaml, error" in told and "(/var/lib/kubelet/config.yaml, line 4)" in told
    assert "as wished" not in told and "without this change" in told
    assert "refuses as wished: failed to load" in judged({"kubelet": words}, {"kubelet": ""})
    assert "gave no answer" in judged() and judged({"kubelet": ""}) == ""
    (item,) = made.planned
    assert "maxPods" not in item.question_present or "podPidsLimit" not in item.question_present


class Now(Cluster):
    """The node as it is when its turn comes."""

    def __init__(self, given: KubeletState) -> None:
        super().__init__()
        self.given = given

    def configuration(self, node_name: str) -> dict[str, Any]:
        return self.given.configuration

    def usage(self, node_name: str) -> NodeUsage:
        return NodeUsage(self.given.summary, self.given.pods, self.given.node)


def test_the_look_is_taken_again_when_the_node_s_turn_comes() -> None:
    fields = {"evictionHard": {"memory.available": "1Gi"}}
    wish = FieldsRequest({}, lambda _: Settled(fields, fields, "as wished"), eviction_impact)
    made = carry_out.plan_node("r1", state(), wish)

    def why(given: KubeletState, wish: FieldsRequest = wish) -> str | None:
        basis = Basis("r1", cast(Fleet, None), Options(), Survey(cluster=Now(given)))
        return KubeletFields(DesiredByHost({"n1": wish}, {})).still(basis, made, made.planned[0])

    assert why(state()) is None
    fuller = state(pods_use=8 * GIB - GIB // 2)
    told = why(fuller) or ""
    assert told.startswith("by now this would evict: memory.available has 512Mi left") and "allow_evictions=true" in told
    assert why(fuller, replace(wish, allow_evictions=True)) is None
    limited = state("podPidsLimit: 7\n", podPidsLimit=7)
    made = carry_out.plan_node("r1", limited, wish)
    assert why(limited) is None
    assert "restarted with other settings: podPidsLimit is 7 in its files" in (why(state("podPidsLimit: 7\n", podPidsLimit=9)) or "")
