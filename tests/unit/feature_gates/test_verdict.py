"""The rules about gates: what each says, about which gate, and what to do."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.feature_gates.catalogue import SPECIAL, GateStage, load
from roles.feature_gates.hazards import HAZARDS, KUBEADM
from roles.feature_gates.model import COMPONENTS
from roles.feature_gates.verdict import GateFinding, Level, Subject, alike, emulated_minor, judge_gate, level

TABLE = load()


def said(wanted: Mapping[str, bool | None], minor: int = 36, component: str = "kube-apiserver", **more: object) -> list[GateFinding]:
    sourced = more.pop("sourced", {})
    consent = more.pop("consent", ())
    return judge_gate(Subject(component, minor, **more), wanted, sourced, consent)  # type: ignore[arg-type]


def only(found: list[GateFinding]) -> GateFinding:
    assert len(found) == 1, [str(finding) for finding in found]
    return found[0]


@pytest.mark.parametrize(
    ("name", "value", "minor", "expected", "rule", "words"),
    [
        ("HPAScaleToZero", True, 36, Level.ACCEPT, None, ""),
        ("HPAScaleToZero", False, 36, Level.ACCEPT, "no effect", "it is the default of kube-apiserver 1.36 (Alpha)"),
        ("NoSuchGate", True, 36, Level.REFUSE, "unknown", "nor did any minor before; take it out of the data"),
        ("HPAScaleToZro", True, 36, Level.REFUSE, "unknown", "did you mean HPAScaleToZero?"),
        ("hpascaletozero", True, 36, Level.REFUSE, "unknown", "did you mean HPAScaleToZero?"),
        ("allalpha", True, 36, Level.REFUSE, "unknown", "did you mean AllAlpha"),
        ("AdmissionWebhookMatchConditions", True, 33, Level.REFUSE, "removed", "removed in 1.33, as GA and true"),
        ("AdmissionWebhookMatchConditions", True, 32, Level.WARN, "no effect", "GA in kube-apiserver 1.32 and so already; 1.33 removes it"),
        ("HPAConfigurableTolerance", True, 32, Level.REFUSE, "not yet there", "came with 1.33; take it out of the data, or upgrade first"),
        ("APIServerWebhookAuthenticationToken", True, 36, Level.REFUSE, "not yet there", "1.37 (expected: that is not released yet)"),
        ("InPlacePodVerticalScaling", False, 36, Level.REFUSE, "locked", "locked to true (GA since 1.35); take it out of the data"),
        ("InPlacePodVerticalScaling", True, 36, Level.WARN, "no effect", "GA"),
        ("MutatingAdmissionPolicy", False, 36, Level.WARN, "GA", "GA in kube-apiserver 1.36 and true by default"),
        ("AllowDNSOnlyNodeCSR", True, 36, Level.WARN, "deprecated", "deprecated in kube-apiserver 1.36, false by default"),
        ("AnyVolumeDataSource", True, 36, Level.WARN, "no effect", "1.37 is to remove it"),
        ("NodeLocalCRISocket", True, 36, Level.REFUSE, "kubeadm's own", "featureGates in its ClusterConfiguration"),
        ("csiMigrationRBD", True, 32, Level.REFUSE, "removed", ""),
    ],
)
def test_one_gate(name: str, value: bool, minor: int, expected: Level, rule: str | None, words: str) -> None:
    found = said({name: value}, minor)
    assert level(found) == expected
    if rule is not None:
        assert only(found).rule == rule and words in str(only(found)), str(only(found))
    else:
        assert found == []


def test_taking_out_is_always_taken() -> None:
    assert said({"NoSuchGate": None}, sourced={"NoSuchGate": True}) == []
    assert said({"AdmissionWebhookMatchConditions": None}) == []


def test_what_the_sources_set_already_counts_where_it_stops_the_component() -> None:
    found = only(said({"HPAScaleToZero": True}, sourced={"AdmissionWebhookMatchConditions": True, "APIResponseCompression": False}))
    assert (found.gate, found.rule) == ("AdmissionWebhookMatchConditions", "removed")
    assert "--data feature_gates=AdmissionWebhookMatchConditions=absent" in found.way_out


def test_a_gate_that_one_component_alone_does_not_know() -> None:
    name = "ControllerManagerReleaseLeaderElectionLockOnExit"
    assert only(said({name: True}, component="kube-scheduler")).rule == "unknown"
    assert level(said({name: True}, component="kube-controller-manager")) == Level.ACCEPT


# ---- dependencies


def test_a_dependency_that_is_off() -> None:
    off = {"APIServerIdentity": False, "UnknownVersionInteroperabilityProxy": False}
    found = only(said({"StorageVersionAPI": True}, sourced=off))
    assert (found.rule, found.level) == ("dependency", Level.REFUSE)
    assert "feature_gates=APIServerIdentity=true,StorageVersionAPI=true" in found.way_out


def test_a_dependency_turned_on_with_it() -> None:
    alone = said({"GangScheduling": True})
    assert only(alone).rule == "dependency" and "GenericWorkload" in only(alone).way_out
    assert said({"GangScheduling": True, "GenericWorkload": True}) == []
    assert said({"GangScheduling": True}, sourced={"GenericWorkload": True}) == []


def test_dependents_left_on() -> None:
    found = said({"GracefulNodeShutdown": False}, component="kubelet")
    assert {finding.rule for finding in found} == {"dependency"} and len(found) == 2
    together = {"GracefulNodeShutdown": False, "GracefulNodeShutdownBasedOnPodPriority": False, "WindowsGracefulNodeShutdown": False}
    assert level(said(together, component="kubelet")) == Level.ACCEPT
    assert said({"GracefulNodeShutdown": False}, minor=34, component="kubelet") == [], "1.34 does not check"


def test_taking_a_dependency_out_leaves_the_dependent_on() -> None:
    found = only(said({"GenericWorkload": None}, sourced={"GenericWorkload": True, "GangScheduling": True}))
    assert found.rule == "dependency" and "GangScheduling is on" in found.message


def test_all_of_a_stage_counts_for_dependencies() -> None:
    assert level(said({"AllAlpha": True, "GangScheduling": True}, consent=("AllAlpha",))) == Level.ACCEPT
    assert level(said({"AllBeta": False}, consent=("AllBeta",))) == Level.ACCEPT
    kept_on = said({"AllBeta": False, "GracefulNodeShutdownBasedOnPodPriority": True}, consent=("AllBeta",))
    assert "dependency" in {finding.rule for finding in kept_on}


def test_a_locked_gate_is_not_said_twice() -> None:
    assert {finding.rule for finding in said({"InPlacePodVerticalScaling": False})} == {"locked"}


# ---- consent


@pytest.mark.parametrize("special", SPECIAL)
def test_all_of_a_stage_says_what_it_changes(special: str) -> None:
    value = special == "AllAlpha"
    found = only(said({special: value}))
    assert (found.level, found.rule) == (Level.REFUSE, "all of a stage") and f"allow_hazards={special}" in found.way_out
    assert ("HPAScaleToZero" if value else "APIResponseCompression") in found.message
    assert only(said({special: value}, consent=(special,))).level == Level.ACCEPT
    if value:
        assert said({special: False}) == [], "it changes nothing"


def test_gates_set_by_name_are_not_counted_among_all() -> None:
    assert "HPAScaleToZero" not in only([one for one in said({"AllAlpha": True, "HPAScaleToZero": True}) if one.gate == "AllAlpha"]).message


@pytest.mark.parametrize("hazard", HAZARDS, ids=lambda hazard: f"{hazard.gate}={hazard.value}")
def test_hazards_need_consent_by_name(hazard: object) -> None:
    for one in HAZARDS:
        gate = TABLE.gate(one.gate)
        assert gate is not None
        minors = [
            minor for minor in TABLE.minors if (stage := gate.at(minor)) and one.here(minor, one.value) and stage.default != one.value
        ]
        assert minors, f"no minor has {one}"
        for minor in minors:
            found = only(said({one.gate: one.value}, minor))
            assert (found.rule, found.level) == ("hazard", Level.REFUSE) and f"allow_hazards={one.gate}" in found.way_out
            assert only(said({one.gate: one.value}, minor, consent=(one.gate,))).level == Level.ACCEPT
            assert said({one.gate: one.value}, minor, sourced={one.gate: one.value}) == [], "it is so already"
            assert level(said({one.gate: one.value}, minor, consent=("Other",))) == Level.REFUSE


@pytest.mark.parametrize("value", [False, None])
def test_going_back_to_the_default_is_a_hazard_as_well(value: bool | None) -> None:
    """SidecarContainers is off by default in 1.28: taken out, it is as off as when it is set so."""
    found = [one for one in said({"SidecarContainers": value}, 28, "kubelet", sourced={"SidecarContainers": True}) if one.rule == "hazard"]
    assert only(found).level == Level.REFUSE and "KEP-753" in only(found).message
    assert said({"SidecarContainers": None}, 28, "kubelet") == []


def test_in_place_resize_is_a_hazard_before_1_33() -> None:
    assert "122028" in only(said({"InPlacePodVerticalScaling": True}, 32)).message
    assert only(said({"InPlacePodVerticalScaling": True}, 33)).rule == "no effect"


# ---- prefix, emulation, live


def test_the_prefix() -> None:
    assert said({"kube:HPAScaleToZero": True}) == []
    assert "the kubelet does not know" in only(said({"kube:HPAScaleToZero": True}, component="kubelet")).message
    assert "came with 1.31" in only(said({"kube:HPAScaleToZero": True}, 30)).message
    assert "side by side" in only(said({"kube:HPAScaleToZero": True, "AllBeta": True}, consent=("AllBeta",))[:1]).message


@pytest.mark.parametrize(
    ("values", "minor"),
    [([], None), (["1.33"], 33), (["kube=1.32"], 32), (["1.30", "kube=1.31"], 31), (["wardle=1.2,kube=1.34"], 34), (["wardle=1.2"], None)],
)
def test_the_emulated_minor(values: list[str], minor: int | None) -> None:
    assert emulated_minor(values) == minor


def test_an_emulated_minor_knows_what_was_there_then() -> None:
    found = only(said({"GangScheduling": True}, emulated=34))
    assert found.rule == "not yet there" and "that behaves as 1.34" in found.message
    assert said({"MutatingAdmissionPolicy": True}, emulated=33) == []


def test_a_component_s_own_word_counts() -> None:
    live: dict[str, GateStage | None] = {"NoSuchGate": GateStage("Alpha", False), "HPAScaleToZero": None}
    assert said({"NoSuchGate": True}, live=live) == []
    assert only(said({"HPAScaleToZero": True}, live=live)).level == Level.REFUSE


def test_a_minor_that_the_catalogue_does_not_cover_has_no_findings() -> None:
    assert said({"NoSuchGate": True}, 22) == [] and said({"NoSuchGate": True, "GangScheduling": True}, 40) == []
    assert only(said({"AllAlpha": True}, 40)).rule == "all of a stage", "but for what needs consent"


def test_alike_names_only_what_is_known_there() -> None:
    subject = Subject("kubelet", 36)
    assert alike("InPlacePodVerticalScalin", subject)[0] == "InPlacePodVerticalScaling"
    assert alike("Zzzzz", subject) == []
    assert "AdmissionWebhookMatchConditions" not in alike("AdmissionWebhookMatchCondition", subject)


@given(
    st.dictionaries(st.sampled_from([*TABLE.gates, *SPECIAL, *KUBEADM, "NoSuchGate"]), st.sampled_from([True, False, None]), max_size=6),
    st.dictionaries(st.sampled_from([*TABLE.gates]), st.booleans(), max_size=4),
    st.sampled_from(TABLE.minors),
    st.sampled_from(COMPONENTS),
)
def test_every_refusal_names_the_gate_and_a_way_out(
    wanted: dict[str, bool | None], sourced: dict[str, bool], minor: int, component: str
) -> None:
    for finding in judge_gate(Subject(component, minor), wanted, sourced):
        assert finding.gate in finding.message
        assert finding.way_out or finding.level == Level.ACCEPT
    absent = judge_gate(Subject(component, minor), dict.fromkeys([*wanted, *sourced]), sourced)
    # It starts with that; that a gate goes back to its default can be a hazard of its own.
    refused = [finding.gate for finding in absent if finding.level != Level.ACCEPT and finding.rule != "hazard"]
    assert not refused, "all gates taken out is what a component starts with"
