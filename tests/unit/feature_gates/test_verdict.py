"""The rules about gates: the findings of each, the gate that they name, and the way out."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.feature_gates import COMPONENTS, SPECIAL, GateFinding, GateStage, Level, Subject, emulated_minor, judge_gate, load
from roles.feature_gates.hazards import HAZARDS, KUBEADM
from roles.feature_gates.verdict import alike

TABLE = load()


def findings(wanted: Mapping[str, bool | None], minor: int = 36, component: str = "kube-apiserver", **more: object) -> list[GateFinding]:
    sourced = more.pop("sourced", {})
    consent = more.pop("consent", ())
    return judge_gate(Subject(component, minor, **more), wanted, sourced, consent)  # type: ignore[arg-type]


def level(found: list[GateFinding]) -> Level:
    """What a component does with all of them together."""
    return max((one.level for one in found), default=Level.ACCEPT)


def only(found: list[GateFinding]) -> GateFinding:
    assert len(found) == 1, [str(finding) for finding in found]
    return found[0]


@pytest.mark.parametrize(
    ("name", "value", "minor", "expected", "rule", "words"),
    [
        ("HPAScaleToZero", True, 36, Level.ACCEPT, None, ""),
        ("HPAScaleToZero", False, 36, Level.ACCEPT, "no effect", "it is the default of kube-apiserver 1.36 (Alpha)"),
        ("NoSuchGate", True, 36, Level.REFUSE, "unknown", "and no other minor does; remove it from the data"),
        ("HPAScaleToZro", True, 36, Level.REFUSE, "unknown", "did you mean HPAScaleToZero?"),
        ("hpascaletozero", True, 36, Level.REFUSE, "unknown", "did you mean HPAScaleToZero?"),
        ("allalpha", True, 36, Level.REFUSE, "unknown", "did you mean AllAlpha"),
        ("AdmissionWebhookMatchConditions", True, 33, Level.REFUSE, "removed", "removed in 1.33, as GA and true by default"),
        (
            "AdmissionWebhookMatchConditions",
            True,
            32,
            Level.WARN,
            "no effect",
            "GA in kube-apiserver 1.32, where that is the default; 1.33 removes it, and does not start while it is set",
        ),
        ("HPAConfigurableTolerance", True, 32, Level.REFUSE, "not yet there", "came with 1.33; remove it from the data, or upgrade first"),
        ("APIServerWebhookAuthenticationToken", True, 36, Level.REFUSE, "not yet there", "1.37 (expected: not released yet)"),
        ("InPlacePodVerticalScaling", False, 36, Level.REFUSE, "locked", "locked to true (GA since 1.35); remove it from the data"),
        ("InPlacePodVerticalScaling", True, 36, Level.WARN, "no effect", "GA"),
        ("MutatingAdmissionPolicy", False, 36, Level.WARN, "GA", "GA in kube-apiserver 1.36 and true by default"),
        ("AllowDNSOnlyNodeCSR", True, 36, Level.WARN, "deprecated", "deprecated in kube-apiserver 1.36, false by default"),
        ("AnyVolumeDataSource", True, 36, Level.WARN, "no effect", "1.37 is expected to remove it"),
        ("NodeLocalCRISocket", True, 36, Level.REFUSE, "kubeadm's own", "featureGates in its ClusterConfiguration"),
        ("csiMigrationRBD", True, 32, Level.REFUSE, "removed", ""),
    ],
)
def test_one_gate(name: str, value: bool, minor: int, expected: Level, rule: str | None, words: str) -> None:
    found = findings({name: value}, minor)
    assert level(found) == expected
    if rule is not None:
        assert only(found).rule == rule and words in str(only(found)), str(only(found))
    else:
        assert found == []


def test_removing_a_gate_is_always_accepted() -> None:
    assert findings({"NoSuchGate": None}, sourced={"NoSuchGate": True}) == []
    assert findings({"AdmissionWebhookMatchConditions": None}) == []


def test_gates_already_in_the_sources_count_if_they_stop_the_component() -> None:
    found = only(findings({"HPAScaleToZero": True}, sourced={"AdmissionWebhookMatchConditions": True, "APIResponseCompression": False}))
    assert (found.gate, found.rule) == ("AdmissionWebhookMatchConditions", "removed")
    assert "--data feature_gates=AdmissionWebhookMatchConditions=absent" in found.way_out


def test_a_gate_that_only_one_component_does_not_know() -> None:
    name = "ControllerManagerReleaseLeaderElectionLockOnExit"
    assert only(findings({name: True}, component="kube-scheduler")).rule == "unknown"
    assert level(findings({name: True}, component="kube-controller-manager")) == Level.ACCEPT


# ---- dependencies


def test_a_dependency_that_is_off() -> None:
    off = {"APIServerIdentity": False, "UnknownVersionInteroperabilityProxy": False}
    found = only(findings({"StorageVersionAPI": True}, sourced=off))
    assert (found.rule, found.level) == ("dependency", Level.REFUSE)
    assert "feature_gates=APIServerIdentity=true,StorageVersionAPI=true" in found.way_out


def test_a_dependency_turned_on_with_it() -> None:
    alone = findings({"GangScheduling": True})
    assert only(alone).rule == "dependency" and "GenericWorkload" in only(alone).way_out
    assert findings({"GangScheduling": True, "GenericWorkload": True}) == []
    assert findings({"GangScheduling": True}, sourced={"GenericWorkload": True}) == []


def test_dependents_left_on() -> None:
    found = findings({"GracefulNodeShutdown": False}, component="kubelet")
    assert {finding.rule for finding in found} == {"dependency"} and len(found) == 2
    together = {"GracefulNodeShutdown": False, "GracefulNodeShutdownBasedOnPodPriority": False, "WindowsGracefulNodeShutdown": False}
    assert level(findings(together, component="kubelet")) == Level.ACCEPT
    assert findings({"GracefulNodeShutdown": False}, minor=34, component="kubelet") == [], "1.34 does not check"


def test_removing_a_dependency_leaves_the_dependent_on() -> None:
    found = only(findings({"GenericWorkload": None}, sourced={"GenericWorkload": True, "GangScheduling": True}))
    assert found.rule == "dependency" and "GangScheduling is on" in found.message


def test_all_of_a_stage_counts_for_dependencies() -> None:
    assert level(findings({"AllAlpha": True, "GangScheduling": True}, consent=("AllAlpha",))) == Level.ACCEPT
    assert level(findings({"AllBeta": False}, consent=("AllBeta",))) == Level.ACCEPT
    kept_on = findings({"AllBeta": False, "GracefulNodeShutdownBasedOnPodPriority": True}, consent=("AllBeta",))
    assert "dependency" in {finding.rule for finding in kept_on}


def test_a_locked_gate_is_reported_once() -> None:
    assert {finding.rule for finding in findings({"InPlacePodVerticalScaling": False})} == {"locked"}


# ---- consent


@pytest.mark.parametrize("special", SPECIAL)
def test_all_of_a_stage_lists_the_gates_that_it_changes(special: str) -> None:
    value = special == "AllAlpha"
    found = only(findings({special: value}))
    assert (found.level, found.rule) == (Level.REFUSE, "all of a stage") and f"allow_hazards={special}" in found.way_out
    assert " more" in found.message
    allowed = only(findings({special: value}, consent=(special,)))
    assert allowed.level == Level.ACCEPT and ("HPAScaleToZero" if value else "APIResponseCompression") in allowed.message
    if value:
        assert findings({special: False}) == [], "it changes nothing"


def test_gates_set_by_name_are_not_counted_among_all() -> None:
    assert (
        "HPAScaleToZero"
        not in only(
            [one for one in findings({"AllAlpha": True, "HPAScaleToZero": True}, consent=("AllAlpha",)) if one.gate == "AllAlpha"]
        ).message
    )


@pytest.mark.parametrize("hazard", HAZARDS, ids=lambda hazard: f"{hazard.gate}={hazard.value}")
def test_hazards_need_consent_by_name(hazard: object) -> None:
    for one in HAZARDS:
        gate = TABLE.gate(one.gate)
        assert gate is not None
        minors = [
            minor for minor in TABLE.minors if (stage := gate.at(minor)) and one.applies(minor, one.value) and stage.default != one.value
        ]
        assert minors, f"no minor has {one}"
        for minor in minors:
            found = only(findings({one.gate: one.value}, minor))
            assert (found.rule, found.level) == ("hazard", Level.REFUSE) and f"allow_hazards={one.gate}" in found.way_out
            assert only(findings({one.gate: one.value}, minor, consent=(one.gate,))).level == Level.ACCEPT
            assert findings({one.gate: one.value}, minor, sourced={one.gate: one.value}) == [], "it already has that value"
            assert level(findings({one.gate: one.value}, minor, consent=("Other",))) == Level.REFUSE


@pytest.mark.parametrize("value", [False, None])
def test_returning_to_the_default_is_a_hazard_too(value: bool | None) -> None:
    """SidecarContainers is off by default in 1.28: removing the gate turns it off, as setting it to false does."""
    found = [
        one for one in findings({"SidecarContainers": value}, 28, "kubelet", sourced={"SidecarContainers": True}) if one.rule == "hazard"
    ]
    assert only(found).level == Level.REFUSE and "KEP-753" in only(found).message
    assert findings({"SidecarContainers": None}, 28, "kubelet") == []


def test_in_place_resize_is_a_hazard_before_1_33() -> None:
    assert "122028" in only(findings({"InPlacePodVerticalScaling": True}, 32)).message
    assert only(findings({"InPlacePodVerticalScaling": True}, 33)).rule == "no effect"


# ---- prefix, emulation, live


def test_the_prefix() -> None:
    assert findings({"kube:HPAScaleToZero": True}) == []
    assert "the kubelet does not know" in only(findings({"kube:HPAScaleToZero": True}, component="kubelet")).message
    assert "came with 1.31" in only(findings({"kube:HPAScaleToZero": True}, 30)).message
    assert (
        "names with and without kube: are mixed"
        in only(findings({"kube:HPAScaleToZero": True, "AllBeta": True}, consent=("AllBeta",))[:1]).message
    )


@pytest.mark.parametrize(
    ("values", "minor"),
    [([], None), (["1.33"], 33), (["kube=1.32"], 32), (["1.30", "kube=1.31"], 31), (["wardle=1.2,kube=1.34"], 34), (["wardle=1.2"], None)],
)
def test_the_emulated_minor(values: list[str], minor: int | None) -> None:
    assert emulated_minor(values) == minor


def test_an_emulated_minor_knows_only_the_gates_of_that_minor() -> None:
    found = only(findings({"GangScheduling": True}, emulated=34))
    assert found.rule == "not yet there" and "that emulates 1.34" in found.message
    assert findings({"MutatingAdmissionPolicy": True}, emulated=33) == []


def test_a_components_own_report_counts() -> None:
    live: dict[str, GateStage | None] = {"NoSuchGate": GateStage("Alpha", False), "HPAScaleToZero": None}
    assert findings({"NoSuchGate": True}, live=live) == []
    assert only(findings({"HPAScaleToZero": True}, live=live)).level == Level.REFUSE


def test_a_minor_that_the_catalogue_does_not_cover_has_no_findings() -> None:
    assert findings({"NoSuchGate": True}, 22) == [] and findings({"NoSuchGate": True, "GangScheduling": True}, 40) == []
    assert only(findings({"AllAlpha": True}, 40)).rule == "all of a stage", "except what needs consent"


def test_alike_returns_only_gates_that_the_component_knows() -> None:
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
    # A component starts without any gate; a gate's return to its default can still be a hazard.
    refused = [finding.gate for finding in absent if finding.level != Level.ACCEPT and finding.rule != "hazard"]
    assert not refused, "a component starts without any gate"
