"""Why pods cannot be resized in place."""

from __future__ import annotations

from typing import Any

import pytest

from roles.pod_resize import abilities
from roles.pod_resize.abilities import EXCLUSIVE_CPUS, EXCLUSIVE_MEMORY, GATE
from tests.unit.pod_resize.world import SMALL, ability, container, node, pod

GUARANTEED = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
MORE_CPU = {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}}
MORE_MEMORY = {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"cpu": "1", "memory": "2Gi"}}
SWAP = {"failSwapOn": False, "memorySwap": {"swapBehavior": "LimitedSwap"}}


def test_nothing_is_missing() -> None:
    assert abilities.missing(ability(), ["w1"]) == []
    assert abilities.missing(ability("v1.32.5", {"cp1 kube-apiserver": True}), ["w1"]) == []
    assert abilities.missing(ability(), ["an unknown node"]) == []


def test_the_gate_is_off_and_every_component_is_named() -> None:
    seen = ability(
        "v1.32.5",
        {"cp1 kube-apiserver": False, "cp1 kube-scheduler": True, "cp2 kube-apiserver": None},
        node("w1", "v1.32.5", {GATE: False}),
        node("w2", "v1.32.5", {GATE: True}),
        node("w3", "v1.32.5", {GATE: False}),
    )
    (sentence,) = abilities.missing(seen, ["w1", "w2"])
    assert f"{GATE} is off (alpha and off by default before 1.33) on cp1 kube-apiserver, w1 kubelet;" in sentence
    assert f"deploys/feature_gates.py --data feature_gates={GATE}=true" in sentence and "w3" not in sentence
    assert abilities.unknown_facts(seen, ["w1"]) == [f"cp2 kube-apiserver: it is unknown whether {GATE} is on"]


def test_a_gate_that_was_turned_off_by_hand() -> None:
    (sentence,) = abilities.missing(ability("v1.34.1", {"cp1 kube-apiserver": False}), ["w1"])
    assert "alpha" not in sentence and "cp1 kube-apiserver" in sentence


def test_versions() -> None:
    assert abilities.minor_of("v1.36.3") == 36 and abilities.minor_of("1.27.0-rc.1") == 27 and abilities.minor_of("") == 0
    (sentence,) = abilities.missing(ability("v1.26.4"), ["w1"])
    assert "kube-apiserver is v1.26.4: in-place resize needs 1.27 or later" in sentence
    (sentence,) = abilities.missing(ability("v1.28.0", {}, node("w1", "v1.26.1", {})), ["w1"])
    assert sentence.startswith("w1: its kubelet is v1.26.1")


@pytest.mark.parametrize(
    ("runtime", "well"),
    [
        ("containerd://1.6.8", False),
        ("containerd://1.6.9", True),
        ("containerd://1.6.20~ds1", True),
        ("containerd://2.1.0", True),
        ("containerd://v1.5.2", False),
        ("cri-o://1.20.0", True),
        ("", True),
    ],
)
def test_containerd(runtime: str, well: bool) -> None:
    found = abilities.missing(ability("v1.36.3", {}, node(runtime=runtime)), ["w1"])
    assert (found == []) is well
    assert well or "does not report the resources of its containers; upgrade it to 1.6.9 or later" in found[0]


def test_windows() -> None:
    assert abilities.missing(ability("v1.36.3", {}, node(system="windows")), ["w1"]) == [
        "w1: it runs Windows, which has no in-place resize"
    ]


@pytest.mark.parametrize(
    ("settings", "gates", "after", "words"),
    [
        ({"cpuManagerPolicy": "static"}, {}, MORE_CPU, "static CPU manager"),
        ({"cpuManagerPolicy": "static"}, {}, MORE_MEMORY, ""),
        ({"cpuManagerPolicy": "static"}, {EXCLUSIVE_CPUS: True}, MORE_CPU, ""),
        ({"cpuManagerPolicy": "none"}, {}, MORE_CPU, ""),
        ({"memoryManagerPolicy": "Static"}, {}, MORE_MEMORY, "Static memory manager"),
        ({"memoryManagerPolicy": "Static"}, {}, MORE_CPU, ""),
        ({"memoryManagerPolicy": "Static"}, {EXCLUSIVE_MEMORY: True}, MORE_MEMORY, ""),
        (SWAP, {}, MORE_MEMORY, "gives its pods swap"),
        (SWAP, {}, MORE_CPU, ""),
        ({**SWAP, "failSwapOn": True}, {}, MORE_MEMORY, ""),
    ],
)
def test_what_this_node_cannot_do(settings: Any, gates: Any, after: Any, words: str) -> None:
    made = pod("web-1", container("app", GUARANTEED))
    found = abilities.infeasible(node(gates=gates, configuration=settings), made, {"app": (GUARANTEED, after)})
    assert (len(found) == 1 and words in found[0]) if words else found == []


def test_static_policies_are_for_guaranteed_pods_alone() -> None:
    settings = {"cpuManagerPolicy": "static", "memoryManagerPolicy": "Static"}
    after = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}
    assert abilities.infeasible(node(configuration=settings), pod(), {"app": (SMALL, after)}) == []


def test_with_a_restart_swap_does_not_matter() -> None:
    made = pod("web-1", container("app", GUARANTEED, "RestartContainer"))
    assert abilities.infeasible(node(configuration=SWAP), made, {"app": (GUARANTEED, MORE_MEMORY)}) == []
