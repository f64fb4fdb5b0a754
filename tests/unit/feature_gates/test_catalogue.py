"""The table of gates: its content, its consistency, and that the script writes it."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import pytest

from roles.feature_gates import COMPONENTS, SPECIAL, Gate, GateStage, catalogue, refresh

TEXT = resources.files("roles.feature_gates").joinpath("gates.json").read_text(encoding="utf-8")
TABLE = catalogue.load()


def gate(name: str) -> Gate:
    found = TABLE.gate(name)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "minor", "stage"),
    [
        ("InPlacePodVerticalScaling", 26, None),
        ("InPlacePodVerticalScaling", 27, GateStage("Alpha", False)),
        ("InPlacePodVerticalScaling", 32, GateStage("Alpha", False)),
        ("InPlacePodVerticalScaling", 33, GateStage("Beta", True)),
        ("InPlacePodVerticalScaling", 35, GateStage("GA", True, True)),
        ("HPAScaleToZero", 21, GateStage("Alpha", False)),
        ("HPAScaleToZero", 36, GateStage("Alpha", False)),
        ("AdmissionWebhookMatchConditions", 32, GateStage("GA", True, True)),
        ("AdmissionWebhookMatchConditions", 33, None),
        # Later lists of versions say PreAlpha; the release had it as Alpha.
        ("MutatingAdmissionPolicy", 31, GateStage("Alpha", False)),
        ("MutatingAdmissionPolicy", 29, None),
        # Locked in the versions that 1.36 lists, but not in the earlier releases.
        ("TopologyManagerPolicyOptions", 35, GateStage("GA", True)),
        ("TopologyManagerPolicyOptions", 36, GateStage("GA", True, True)),
        # The stage before the gate existed: no component of that time knows it.
        ("AggregatedDiscoveryRemoveBetaType", 32, None),
        ("AggregatedDiscoveryRemoveBetaType", 33, GateStage("Deprecated", True)),
        # The next minor, which is not released.
        ("HPAScaleToZero", 37, GateStage("Beta", True)),
        ("AnyVolumeDataSource", 37, None),
        ("APIServerWebhookAuthenticationToken", 36, None),
        ("APIServerWebhookAuthenticationToken", 37, GateStage("Alpha", False)),
    ],
)
def test_stages(name: str, minor: int, stage: GateStage | None) -> None:
    assert gate(name).at(minor) == stage


def test_a_gate_is_emulated_as_the_newer_binary_lists_it() -> None:
    mutating = gate("MutatingAdmissionPolicy")
    assert mutating.at(36, 31) is None, "a 1.36 binary does not know it when it emulates 1.31, though 1.31 did"
    assert mutating.at(36, 32) == GateStage("Alpha", False)
    assert gate("AggregatedDiscoveryRemoveBetaType").at(36, 32) == GateStage("GA", False)
    assert gate("AdmissionWebhookMatchConditions").at(36, 32) is None, "a binary cannot emulate a gate that it no longer has"


def test_readers() -> None:
    assert gate("HPAScaleToZero").readers(36) == {"kube-apiserver", "kube-controller-manager"}
    assert gate("HPAScaleToZero").readers(37) == {"kube-apiserver", "kube-controller-manager"}
    assert gate("PodAndContainerStatsFromCRI").readers(36) == {"kubelet"}
    assert gate("ClientsAllowCBOR").readers(36) == {*COMPONENTS}
    assert gate("NativeHistograms").readers(36) is None
    assert gate("KubeProxyIPVS").readers(37) is None
    webhook = gate("AdmissionWebhookMatchConditions")
    assert (webhook.readers(29), webhook.readers(30)) == ({"kube-apiserver"}, frozenset())
    assert gate("WinDSR").readers(32) == frozenset() and gate("WinDSR").other_readers == ("kube-proxy",)


def test_dependencies_by_minor() -> None:
    storage = gate("StorageVersionAPI")
    assert (storage.depends_on(34), storage.depends_on(35)) == ((), ("APIServerIdentity",))
    assert gate("WindowsCPUAndMemoryAffinity").depends_on(35) == ("MemoryManager",)
    assert gate("WindowsCPUAndMemoryAffinity").depends_on(36) == (), "its last entry is in 1.35"
    assert gate("WindowsCPUAndMemoryAffinity").depends_on(37) == () and storage.depends_on(37) == ("APIServerIdentity",)


def test_the_minors_that_the_table_covers() -> None:
    assert TABLE.minors == (21, *range(23, 38)) and (TABLE.newest, TABLE.provisional) == (36, 37)
    assert TABLE.covers(36) and not TABLE.covers(22) and not TABLE.covers(38)
    assert TABLE.gate("NoSuchGate") is None and not {*SPECIAL} & {*TABLE.gates}
    assert len(TABLE.known(36)) == 240


@pytest.mark.parametrize("name", TABLE.gates)
def test_each_gate_is_consistent(name: str) -> None:
    found = gate(name)
    begins = [since for since, _ in found.steps]
    assert begins == sorted(set(begins)) and begins
    assert found.removed_in is None or found.added < found.removed_in <= TABLE.provisional
    assert any(found.at(minor) for minor in TABLE.minors), "no minor knows it"
    known = [minor for minor in TABLE.minors if found.at(minor)]
    assert known == [minor for minor in TABLE.minors if known[0] <= minor <= known[-1]], "it disappears and returns"
    assert all(TABLE.gate(other) for other in found.needs), "it needs a gate that does not exist"
    assert found.unknown_to < {*COMPONENTS} and not found.unknown_to & found.readers_then
    assert found.readers_then | found.kep_components <= {*COMPONENTS}
    for minor in known:
        if minor == TABLE.provisional:
            continue  # it has the dependencies of the previous minor
        for other in found.depends_on(minor):
            assert gate(other).at(minor), f"1.{minor} checks for {other} and does not know it"


# ---- the script that writes it

FACTS: dict[str, Any] = {
    "meta": {
        "kubernetes_minors": ["1.35", "1.36"],
        "newest_stable_minor": "1.36",
        "provisional_minor": "1.37",
        "sources": [{"minor": "1.36", "repo": "some/place", "ref": "r", "commit": "c0ffee", "date": "2026-01-02", "path": "p", "patch": "1.36.3"}],
    },
    "gates": {
        "Beta": {
            "stages": [
                {"version": "1.30", "stage": "Alpha", "default": False, "lockToDefault": False},
                {"version": "1.36", "stage": "GA", "default": True, "lockToDefault": True},
            ],
            "first_seen": "1.30",
            "removed_in": "1.37",
            "as_shipped_differs": {"1.35": "Beta/false"},
            "readers": ["volume-plugins(kubelet,kube-controller-manager)", "kube-proxy"],
            "readers_in": "1.35",
            "kep_components": ["kubelet", "kube-proxy"],
            "depends_on": ["Alpha"],
            "depends_on_in": "1.36",
            "dev_1_37": "removed",
        },
        "Alpha": {"stages": [], "dev_1_37": {"stage": "Alpha", "default": False, "lockToDefault": False}},
    },
}  # fmt: skip


def test_the_script_writes_the_table() -> None:
    table = refresh.table(FACTS)
    assert table["gates"] == {
        "Alpha": {"from": 37, "stages": [[37, "Alpha", False]]},
        "Beta": {
            "from": 30,
            "to": 37,
            "stages": [[30, "Alpha", False], [36, "GA", True, "locked"]],
            "shipped": {"35": ["Beta", False]},
            "readers": {"in": 35, "of": ["kube-controller-manager", "kubelet"]},
            "others": ["kube-proxy"],
            "kep": ["kubelet"],
            "needs": {"in": 36, "of": ["Alpha"]},
        },
    }
    assert table["as_of"] == "2026-01-02" and table["sources"] == {"1.36": ["some/place r p (1.36.3) @c0ffee"]}
    assert json.loads(refresh.text(table)) == json.loads(json.dumps(table))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        ({"stages": [{"version": 1.3, "stage": "Alpha", "default": False, "lockToDefault": False}], "first_seen": 1.30}, "quote it"),
        ({"stages": [], "first_seen": "1.30"}, "no stage"),
    ],
)
def test_invalid_facts_are_refused(spoil: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        refresh.table({**FACTS, "gates": {"A": spoil}})


def test_the_shipped_table_is_as_the_script_writes_it() -> None:
    assert refresh.text(json.loads(TEXT)) == TEXT
    assert [*TABLE.gates] == sorted(TABLE.gates)
