"""From desired thresholds to fields: only the desired signals change, wherever a kubelet keeps its settings."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roles.engine.kubelet.thresholds import DEFAULT_HARD, SIGNALS, effective, parse_reclaim, parse_threshold
from roles.eviction import DesiredThresholds, read_thresholds, wanted
from roles.eviction.wanted import GRACE, HARD, MAPS, POD_GRACE, RECLAIM, SOFT, TRANSITION

GIB = 2**30
DEFAULTS = {HARD: dict(DEFAULT_HARD), TRANSITION: "5m0s"}


def thresholds(**data: Any) -> DesiredThresholds:
    desired = read_thresholds("w1", data.get)
    assert desired is not None
    return desired


# A kubelet's own loading: cmd/kubelet/app/server.go, loadConfigFile and mergeKubeletConfigurations, then the flags.
class Kubelet:
    def __init__(self, minor: int, main: dict[str, Any] | None, dropins: list[dict[str, Any]], flags: dict[str, Any]) -> None:
        self.minor, self.main, self.dropins, self.flags = minor, main, dropins, flags

    @property
    def defaults(self) -> dict[str, str]:
        return {} if self.main is None else dict(DEFAULT_HARD)

    def configuration(self) -> dict[str, Any]:
        loaded = copy.deepcopy(self.main or {})
        if self.main is not None:
            if loaded.get(HARD) is None:
                loaded[HARD] = dict(DEFAULT_HARD)
            elif loaded.get("mergeDefaultEvictionSettings") and self.minor >= 33:
                loaded[HARD] = DEFAULT_HARD | loaded[HARD]
        for dropin in self.dropins:
            loaded = merged(loaded, dropin)
        loaded |= copy.deepcopy(self.flags)
        loaded.setdefault(TRANSITION, "5m0s")
        return {field: value for field, value in loaded.items() if value or field == TRANSITION}

    def write(self, fields: dict[str, Any], move_flags: bool) -> Kubelet:
        """Writes each field where it takes effect, like the role that writes a kubelet's settings."""
        after = copy.deepcopy(self)
        for field, value in fields.items():
            by_flag = field in after.flags
            after.flags.pop(field, None)
            sources = [*([after.main] if after.main is not None else []), *after.dropins]
            holders = [source for source in sources if source.get(field) is not None]
            if value is None:
                for source in holders:
                    del source[field]
            elif (by_flag and not move_flags) or not sources:
                after.flags[field] = value
            else:
                for source in holders[:-1]:
                    if isinstance(value, dict):
                        source[field] = {signal: text for signal, text in source[field].items() if signal in value}
                (holders or sources)[-1][field] = value
        return after


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in over.items():
        result[key] = merged(result.get(key) or {}, value) if isinstance(value, dict) else value
    return result


signals = st.sampled_from(SIGNALS)
limits = st.sampled_from(["100Mi", "1Gi", "5%", "10%", "12.5%", "1048576", "0%", "100%", "1.5Gi", "104857600"])
times = st.sampled_from(["30s", "1m30s", "90s", "2m"])
reclaims = st.sampled_from(["0", "500Mi", "5%"])
seconds = st.integers(0, 90)
periods = st.sampled_from(["30s", "5m", "5m0s", "300s", "1h", "1500ms"])


@st.composite
def sources(draw: st.DrawFn) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field, values in ((HARD, limits), (SOFT, limits), (RECLAIM, reclaims)):
        if draw(st.booleans()):
            found[field] = draw(st.dictionaries(signals, values, min_size=1, max_size=3))
    if SOFT in found:
        found[GRACE] = draw(st.fixed_dictionaries(dict.fromkeys(found[SOFT], times)))
    if draw(st.booleans()):
        found[POD_GRACE] = draw(seconds)
    if draw(st.booleans()):
        found[TRANSITION] = draw(periods)
    return found


@st.composite
def kubelets(draw: st.DrawFn) -> Kubelet:
    main = draw(st.none() | sources())
    if main is not None and draw(st.booleans()):
        main["mergeDefaultEvictionSettings"] = True
    flags = draw(sources())
    if SOFT not in flags:
        flags.pop(GRACE, None)
    return Kubelet(draw(st.sampled_from([32, 33, 36])), main, draw(st.lists(sources(), max_size=2)), draw(st.sampled_from([{}, flags])))


def absentable(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(signals, values | st.just("absent"), min_size=1, max_size=3)


settings_data = st.fixed_dictionaries(
    {},
    optional={
        "eviction_hard": absentable(limits),
        "eviction_soft": absentable(limits),
        "eviction_soft_grace_period": absentable(times),
        "eviction_minimum_reclaim": absentable(reclaims),
        "eviction_max_pod_grace_period": seconds | st.just("absent"),
        "eviction_pressure_transition_period": periods | st.just("absent"),
    },
).filter(bool)


def meaning(configuration: dict[str, Any], field: str) -> dict[str, Any]:
    """A map as the kubelet reads it, without the signals that are off."""
    parse = {HARD: parse_threshold, SOFT: parse_threshold, RECLAIM: parse_reclaim}.get(field, lambda _, text: wanted.parse_duration(text))
    found = {signal: parse(signal, text) for signal, text in (configuration.get(field) or {}).items()}
    return {signal: value for signal, value in found.items() if value is not None}


def only_the_desired_settings_change(kubelet: Kubelet, data: dict[str, Any], move_flags: bool) -> None:
    desired, before = thresholds(**data), kubelet.configuration()
    written = wanted.fields(desired, before, kubelet.defaults)
    after = kubelet.write(written, move_flags).configuration()

    assert wanted.shown(after) == wanted.expected(desired, before, kubelet.defaults)
    assert wanted.fields(desired, after, kubelet.defaults) == {}
    named = {
        HARD: desired.eviction_hard,
        SOFT: desired.eviction_soft,
        GRACE: {signal: None for signal, text in desired.eviction_soft.items() if text is None} | desired.eviction_soft_grace_period,
        RECLAIM: desired.eviction_minimum_reclaim,
    }
    for field in MAPS:
        expected = meaning(before, field)
        for signal, text in named[field].items():
            default = kubelet.defaults.get(signal) if field == HARD else None
            expected.pop(signal, None)
            expected |= meaning({field: {signal: text or default} if text or default else {}}, field)
        assert meaning(after, field) == expected


@settings(max_examples=150, deadline=None)
@given(kubelets(), settings_data, st.booleans())
def test_only_the_desired_settings_change(kubelet: Kubelet, data: dict[str, Any], move_flags: bool) -> None:
    only_the_desired_settings_change(kubelet, data, move_flags)


# The same property: the cases of this module name what it has found.
@pytest.mark.slow
@settings(max_examples=2000, deadline=None)
@given(kubelets(), settings_data, st.booleans())
def test_only_the_desired_settings_change_in_many_cases(kubelet: Kubelet, data: dict[str, Any], move_flags: bool) -> None:
    only_the_desired_settings_change(kubelet, data, move_flags)


@given(kubelets(), settings_data)
def test_the_kubelet_starts_with_what_passes_the_rules(kubelet: Kubelet, data: dict[str, Any]) -> None:
    desired, before = thresholds(**data), kubelet.configuration()
    if not wanted.problems("w1", desired, before, {}, kubelet.defaults):
        effective({field: value or {} for field, value in wanted.expected(desired, before, kubelet.defaults).items()})


@given(settings_data, st.sampled_from([32, 36]))
def test_absent_restores_the_configuration_from_before_the_setting(data: dict[str, Any], minor: int) -> None:
    original = Kubelet(minor, {}, [], {})
    changed = original.write(wanted.fields(thresholds(**data), original.configuration()), False)
    absent = thresholds(**{key: dict.fromkeys(value, "absent") if isinstance(value, dict) else "absent" for key, value in data.items()})
    restored = changed.write(wanted.fields(absent, changed.configuration()), False)
    assert restored.configuration() == original.configuration()


def test_the_other_defaults_are_written_too() -> None:
    desired = thresholds(eviction_hard="memory.available<500Mi")
    full = {
        "memory.available": "500Mi",
        "nodefs.available": "10%",
        "nodefs.inodesFree": "5%",
        "imagefs.available": "15%",
        "imagefs.inodesFree": "5%",
    }
    assert wanted.fields(desired, DEFAULTS) == {HARD: full}
    assert wanted.expected(desired, DEFAULTS) == {HARD: full, SOFT: None, GRACE: None, RECLAIM: None, POD_GRACE: None, TRANSITION: "5m0s"}
    assert "to keep nodefs.available, nodefs.inodesFree, imagefs.available, imagefs.inodesFree as they are" in " ".join(
        wanted.notes(desired, DEFAULTS, {})
    )


def test_a_signal_that_is_off_stays_off_in_every_place() -> None:
    now = {HARD: {"memory.available": "200Mi"}}
    written = wanted.fields(thresholds(eviction_hard="pid.available=5%"), now)
    off = dict.fromkeys(["nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree"], "0%")
    assert written == {HARD: {"memory.available": "200Mi", **off, "pid.available": "5%"}}
    assert any("off on this node, and kept off" in note for note in wanted.notes(thresholds(eviction_hard="pid.available=5%"), now, {}))


def test_a_kubelet_without_a_configuration_file_has_no_defaults() -> None:
    written = wanted.fields(thresholds(eviction_hard="memory.available=200Mi"), {}, {})
    assert written == {HARD: {"memory.available": "200Mi"}}
    assert wanted.fields(thresholds(eviction_hard="memory.available=absent"), {HARD: {"memory.available": "200Mi"}}, {}) == {HARD: None}


def test_equal_values_in_other_forms_are_not_a_change() -> None:
    now = DEFAULTS | {POD_GRACE: 30}
    same = thresholds(
        eviction_hard="memory.available=102400Ki,nodefs.available=10.0%,pid.available=100%",
        eviction_max_pod_grace_period=30,
        eviction_pressure_transition_period="300s",
    )
    assert wanted.fields(same, now) == {}
    assert wanted.expected(same, now) == wanted.shown(now)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("90s", "1m30s"),
        ("2h", "2h0m0s"),
        ("1500ms", "1.5s"),
        ("61500ms", "1m1.5s"),
        ("20ms", "20ms"),
        ("1500us", "1.5ms"),
        ("3ns", "3ns"),
        ("1h1s", "1h0m1s"),
    ],
)
def test_durations_as_configz_shows_them(text: str, form: str) -> None:
    assert wanted.expected(thresholds(eviction_pressure_transition_period=text), DEFAULTS)[TRANSITION] == form


SOFT_NOW = DEFAULTS | {SOFT: {"memory.available": "300Mi"}, GRACE: {"memory.available": "1m"}, POD_GRACE: 30}


@pytest.mark.parametrize(
    ("data", "now", "message"),
    [
        ({"eviction_soft": "nodefs.available=20%", "eviction_max_pod_grace_period": 9}, DEFAULTS, "eviction_soft: nodefs.available=20% has no grace period, and the kubelet would not start; set one: eviction_soft_grace_period nodefs.available=1m30s"),
        ({"eviction_soft": "nodefs.available=20%", "eviction_soft_grace_period": "nodefs.available=1m"}, DEFAULTS, "evictionMaxPodGracePeriod is 0 on this node, so pods would be killed after 1 s"),
        ({"eviction_soft_grace_period": "nodefs.available=1m"}, DEFAULTS, "there is no soft threshold of nodefs.available, and the kubelet would ignore it; set eviction_soft nodefs.available"),
        ({"eviction_soft": "memory.available=absent", "eviction_soft_grace_period": "memory.available=1m"}, SOFT_NOW, "there is no soft threshold of memory.available"),
        ({"eviction_soft_grace_period": "memory.available=absent"}, SOFT_NOW, "the soft threshold memory.available=300Mi needs one, and the kubelet would not start; remove the threshold too"),
        ({"eviction_minimum_reclaim": "pid.available=100"}, DEFAULTS, "pid.available has no threshold on this node, and nothing would be reclaimed"),
        ({"eviction_soft": "memory.available=100Mi"}, SOFT_NOW, "the soft threshold 100Mi is not above the hard one 100Mi, so it would never have an effect; raise the soft"),
        ({"eviction_hard": "memory.available=1Gi"}, SOFT_NOW, "the soft threshold 300Mi is not above the hard one 1Gi"),
        ({"eviction_hard": "memory.available=50%"}, SOFT_NOW, "the soft threshold 300Mi is not above the hard one 50% (300.0Mi and 2048.0Mi on this node)"),
        ({"eviction_hard": "memory.available=4Gi"}, DEFAULTS, "eviction_hard: memory.available=4Gi is not below the 4096.0Mi that the node has, so this threshold of evictionHard would always be met; lower it"),
        ({"eviction_minimum_reclaim": "memory.available=4000Mi"}, DEFAULTS, "with the threshold 100Mi of evictionHard, pressure would end only when 4100.0Mi is free, and the node has 4096.0Mi"),
    ],
)  # fmt: skip
def test_settings_that_are_invalid_on_this_node(data: dict[str, Any], now: dict[str, Any], message: str) -> None:
    found = wanted.problems("w1", thresholds(**data), now, {"memory.available": 4 * GIB})
    assert any(message in str(refusal) for refusal in found), [str(refusal) for refusal in found]
    assert all(refusal.host == "w1" and refusal.way_out for refusal in found)


@pytest.mark.parametrize(
    ("data", "now"),
    [
        ({"eviction_soft": "memory.available=1Gi"}, SOFT_NOW),
        ({"eviction_soft": "memory.available=50%"}, SOFT_NOW),
        ({"eviction_soft": "memory.available=absent"}, SOFT_NOW),
        ({"eviction_soft": "nodefs.available=0%"}, DEFAULTS),
        (
            {
                "eviction_soft": "nodefs.available=20%",
                "eviction_soft_grace_period": "nodefs.available=1m",
                "eviction_max_pod_grace_period": 0,
            },
            DEFAULTS,
        ),
        ({"eviction_minimum_reclaim": "memory.available=100Mi,nodefs.available=5%"}, DEFAULTS),
        ({"eviction_hard": "nodefs.available=1Ti"}, SOFT_NOW),
    ],
)
def test_settings_that_are_valid_on_this_node(data: dict[str, Any], now: dict[str, Any]) -> None:
    assert wanted.problems("w1", thresholds(**data), now, {"memory.available": 4 * GIB}) == []


def test_mistakes_in_the_nodes_other_settings_are_reported_but_not_refused() -> None:
    poor = DEFAULTS | {SOFT: {"memory.available": "50Mi"}, GRACE: {"memory.available": "1m"}}
    desired = thresholds(eviction_hard="pid.available=5%")
    assert wanted.problems("w1", desired, poor, {}) == []
    notes = wanted.notes(desired, poor, {})
    assert "memory.available: its soft threshold is not above its hard one, and never has an effect" in notes
    assert "evictionMaxPodGracePeriod is 0: pods that a soft threshold evicts are killed after 1 s, as by a hard one" in notes


def test_the_plan_shows_the_effect_of_absent_and_of_disabling() -> None:
    now = SOFT_NOW | {HARD: DEFAULT_HARD | {"memory.available": "1Mi"}}
    notes = wanted.notes(
        thresholds(
            eviction_hard="memory.available=absent,pid.available=absent",
            eviction_soft="memory.available=absent",
            eviction_max_pod_grace_period="absent",
            eviction_pressure_transition_period="absent",
        ),
        now,
        {},
    )
    assert notes == [
        "evictionHard: memory.available goes back to the kubelet's default, 100Mi",
        "evictionHard: pid.available becomes unset",
        "evictionSoft: memory.available becomes unset",
        "evictionSoftGracePeriod: memory.available is removed with its threshold",
        "evictionMaxPodGracePeriod goes back to the kubelet's default, 0",
        "evictionPressureTransitionPeriod goes back to the kubelet's default, 5m0s",
        "evictionHard is removed: only the kubelet's defaults remain",
    ]
    assert "evictionHard: nodefs.available=0% disables the signal" in wanted.notes(thresholds(eviction_hard="nodefs.available=0%"), now, {})


def test_a_comparison_that_is_not_possible_is_reported() -> None:
    notes = wanted.notes(thresholds(eviction_soft="memory.available=50%"), SOFT_NOW, {})
    assert "memory.available: the node's capacity is unknown; daytwo did not check that the soft threshold is above the hard one" in notes


def test_fields_are_those_of_configz() -> None:
    assert set(wanted.shown({})) == {*MAPS, POD_GRACE, TRANSITION}


def test_settings_are_named_by_their_path_in_a_file() -> None:
    desired = thresholds(
        eviction_hard="memory.available=absent,nodefs.available=5%",
        eviction_soft_grace_period="memory.available=1m30s",
        eviction_max_pod_grace_period="absent",
        eviction_pressure_transition_period="90s",
    )
    assert wanted.named(desired) == {
        (HARD, "memory.available"): None,
        (HARD, "nodefs.available"): "5%",
        (GRACE, "memory.available"): "1m30s",
        (POD_GRACE,): None,
        (TRANSITION,): "90s",
    }


@given(
    st.none() | st.dictionaries(st.sampled_from(list(DEFAULT_HARD)), st.sampled_from(["1%", "0%", "20%"])),
    st.booleans(),
    st.dictionaries(st.sampled_from(list(DEFAULT_HARD)), st.none() | st.sampled_from(["1%", "0%", "30%"]), min_size=1),
)
def test_a_shared_file_changes_only_in_the_desired_signals(
    hard: dict[str, str] | None, merges: bool, signals: dict[str, str | None]
) -> None:
    """As a kubelet of 1.33 or later reads it, before and after."""
    file: dict[str, Any] = {} if hard is None else {HARD: hard}
    if merges:
        file["mergeDefaultEvictionSettings"] = True

    def read_by_kubelet(content: dict[str, Any]) -> dict[str, Any]:
        own = content.get(HARD)
        return effective({HARD: {**(DEFAULT_HARD if merges or own is None else {}), **(own or {})}})

    after = {**file}
    for (field,), value in wanted.lasting(file, {(HARD, signal): text for signal, text in signals.items()}).items():
        after.pop(field, None)
        if value is not None:
            after[field] = value
    expected = effective(
        {
            HARD: {
                **(DEFAULT_HARD if merges or hard is None else {}),
                **(hard or {}),
                **{s: t or DEFAULT_HARD[s] for s, t in signals.items()},
            }
        }
    )
    assert read_by_kubelet(after) == expected
    assert wanted.lasting(after, {(HARD, signal): text for signal, text in signals.items()}) == {}, "the second time changes nothing"
