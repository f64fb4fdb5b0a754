"""Which changes need a drained node, and which checkpoint must go."""

from __future__ import annotations

import json
from typing import Any

import pytest

from roles.engine.kubelet import drained, schema
from roles.engine.kubelet.drained import CPU, MEMORY, RULES, needed, stored_policy

STATIC: dict[str, Any] = {"cpuManagerPolicy": "static", "systemReserved": {"cpu": "500m"}}
NUMA: dict[str, Any] = {
    "memoryManagerPolicy": "Static",
    "systemReserved": {"memory": "500Mi"},
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "500Mi"}}],
}


def removed(before: dict[str, Any], after: dict[str, Any]) -> dict[str, str] | None:
    found = needed(before, after)
    return None if found is None else dict(found.checkpoints)


@pytest.mark.parametrize(
    ("before", "after", "checkpoints"),
    [
        ({}, {"maxPods": 5}, None),
        ({}, {"cpuManagerPolicy": "none", "memoryManagerPolicy": "None"}, None),
        ({}, STATIC, {CPU: "static"}),
        (STATIC, {**STATIC, "cpuManagerPolicy": "none"}, {CPU: "none"}),
        (STATIC, {}, {CPU: "none"}),
        ({"memoryManagerPolicy": "None"}, NUMA, {MEMORY: "Static"}),
        (NUMA, {**NUMA, "memoryManagerPolicy": "None"}, {MEMORY: "None"}),
        ({}, {**NUMA, **STATIC}, {CPU: "static", MEMORY: "Static"}),
        # The number of whole CPUs counts, and which, if that is set.
        (STATIC, {**STATIC, "systemReserved": {"cpu": "1"}}, None),
        (STATIC, {**STATIC, "systemReserved": {"cpu": "500m", "memory": "1Gi"}}, None),
        (STATIC, {**STATIC, "kubeReserved": {"cpu": "600m"}}, {CPU: "static"}),
        (STATIC, {**STATIC, "reservedSystemCPUs": "0"}, {CPU: "static"}),
        ({**STATIC, "reservedSystemCPUs": "0,1"}, {**STATIC, "reservedSystemCPUs": "0-1", "systemReserved": {"cpu": "3"}}, None),
        ({**STATIC, "reservedSystemCPUs": "0"}, {**STATIC, "reservedSystemCPUs": "1"}, {CPU: "static"}),
        ({}, {"reservedSystemCPUs": "1", "systemReserved": {"cpu": "3"}}, None),
        (STATIC, {**STATIC, "cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"}}, {CPU: "static"}),
        # What the memory manager adds up is refused elsewhere if it does not fit; here only what it has stored counts.
        (NUMA, {**NUMA, "reservedMemory": [{"numaNode": 0, "limits": {"memory": "600Mi"}}]}, {MEMORY: "Static"}),
        (NUMA, {**NUMA, "reservedMemory": [{"numaNode": 0, "limits": {"memory": "512000Ki"}}]}, None),
        (NUMA, {**NUMA, "kubeReserved": {"memory": "1"}}, None),
        ({}, {"reservedMemory": NUMA["reservedMemory"]}, None),
        # Drained, and nothing is stored.
        ({}, {"topologyManagerPolicy": "restricted"}, {}),
        ({"topologyManagerPolicy": "restricted"}, {"topologyManagerPolicy": "none"}, {}),
        ({"topologyManagerPolicy": "restricted"}, {"topologyManagerPolicy": "restricted", "topologyManagerScope": "pod"}, {}),
        ({}, {"topologyManagerScope": "pod"}, None),
        ({"cgroupDriver": "cgroupfs"}, {"cgroupDriver": "systemd"}, {}),
        ({"cgroupDriver": "systemd"}, {"cgroupDriver": "systemd", "maxPods": 5}, None),
        ({}, {"memorySwap": {"swapBehavior": "LimitedSwap"}}, {}),
        ({"memorySwap": {"swapBehavior": "LimitedSwap"}}, {}, {}),
        ({}, {"memorySwap": {"swapBehavior": "NoSwap"}}, None),
        ({}, {"failSwapOn": False}, None),
    ],
)
def test_what_a_change_needs(before: dict[str, Any], after: dict[str, Any], checkpoints: dict[str, str] | None) -> None:
    assert removed(before, after) == checkpoints


def test_the_reason_names_the_fields_and_the_file() -> None:
    found = needed(STATIC, {**STATIC, "kubeReserved": {"cpu": "600m"}})
    assert found is not None
    (why,) = found.why
    assert why.startswith("kubeReserved: the static CPU manager does not start if cpu_manager_state does not fit the reserved CPUs")


def test_cpus_that_stay_assigned_are_noted() -> None:
    assert needed({}, STATIC).notes == ()  # type: ignore[union-attr]
    assert "keep the CPUs" in needed(STATIC, {}).notes[0]  # type: ignore[union-attr]


def test_only_a_new_driver_creates_the_remaining_pods_again() -> None:
    driver = {"cgroupDriver": "systemd"}
    found = needed({**STATIC, "cgroupDriver": "cgroupfs"}, driver)
    assert found is not None and found.recreates and dict(found.checkpoints) == {CPU: "none"}
    assert not any("keep the CPUs" in note for note in found.notes) and "created again in place" in found.notes[0]
    assert not needed({**STATIC, **driver}, driver).recreates  # type: ignore[union-attr]


def test_without_swap_its_behaviour_needs_no_drain() -> None:
    limited = {"memorySwap": {"swapBehavior": "LimitedSwap"}}
    assert needed({}, limited, swap_on=False) is None and needed(limited, {}, swap_on=False) is None
    assert needed({}, {**limited, **STATIC}, swap_on=False).notes == ()  # type: ignore[union-attr]


def test_options_without_a_policy_keep_the_kubelet_from_starting() -> None:
    options = {"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}}
    assert "cpuManagerPolicyOptions=absent" in drained.problems({"cpuManagerPolicy": "none", **options})[0]
    assert drained.problems({"cpuManagerPolicy": "static", **options}) == [] == drained.problems({})


def test_every_rule_is_about_fields_that_the_table_has_and_that_the_schema_leaves_to_it() -> None:
    known = schema.fields(36)
    for rule in RULES:
        assert set(rule.fields) <= known.keys() and rule.why
        assert not rule.checkpoint or rule.checkpoint in (CPU, MEMORY)
    assert not drained.FIELDS & {one.path for one in schema.NEEDS_MORE}


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"policyName": 1}', b"\xff", b"[" * 100_000, b'"static"'])
def test_what_is_no_checkpoint(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"it is not JSON|it has no policyName"):
        stored_policy(data)


def test_the_policy_in_a_checkpoint() -> None:
    assert stored_policy(json.dumps({"policyName": "static", "defaultCpuSet": "0-1", "checksum": 1}).encode()) == "static"
