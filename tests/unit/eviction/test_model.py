"""Eviction data: its two forms, and the refusals, each with its message and way out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.engine.kubelet.thresholds import SIGNALS, parse_reclaim, parse_threshold
from roles.engine.transaction import Refusal
from roles.eviction import DesiredThresholds, model


def read(**data: Any) -> DesiredThresholds | None:
    return model.read_thresholds("w1", data.get)


def refused(**data: Any) -> str:
    with pytest.raises(Refusal) as caught:
        read(**data)
    return str(caught.value)


def test_data_and_text_are_the_same() -> None:
    as_text = read(
        eviction_hard="memory.available<500Mi, nodefs.available=10% ,pid.available=absent",
        eviction_soft="memory.available < 1Gi",
        eviction_soft_grace_period="memory.available=1m30s",
        eviction_minimum_reclaim="nodefs.inodesFree=1000",
        eviction_max_pod_grace_period="30",
        eviction_pressure_transition_period="2m",
        only="w1, w2",
        allow_evictions="true",
        move_flags="1",
    )
    as_data = read(
        eviction_hard={"memory.available": "500Mi", "nodefs.available": "10%", "pid.available": "absent"},
        eviction_soft={"memory.available": "1Gi"},
        eviction_soft_grace_period={"memory.available": "1m30s"},
        eviction_minimum_reclaim={"nodefs.inodesFree": 1000},
        eviction_max_pod_grace_period=30,
        eviction_pressure_transition_period="2m",
        only=["w1", "w2"],
        allow_evictions=True,
        move_flags=True,
    )
    assert as_text == as_data
    assert as_data is not None
    assert as_data.eviction_hard == {"memory.available": "500Mi", "nodefs.available": "10%", "pid.available": None}
    assert (as_data.eviction_minimum_reclaim, as_data.eviction_max_pod_grace_period) == ({"nodefs.inodesFree": "1000"}, 30)
    assert (as_data.chosen_nodes, as_data.allow_evictions, as_data.move_flags) == (("w1", "w2"), True, True)


def test_a_host_without_eviction_data_has_no_desired_state() -> None:
    assert read(only="w1", allow_evictions=True, kubelet_config={"maxPods": 1}) is None


def test_absent_is_the_kubelets_default() -> None:
    desired = read(
        eviction_max_pod_grace_period="absent", eviction_pressure_transition_period="absent", eviction_hard="containerfs.available=absent"
    )
    assert desired is not None
    assert (desired.eviction_max_pod_grace_period, desired.eviction_pressure_transition_period) == ("absent", "absent")
    assert desired.eviction_hard == {"containerfs.available": None}


@pytest.mark.parametrize("text", ["0%", "100%"])
def test_percentages_that_disable_are_accepted(text: str) -> None:
    desired = read(eviction_hard={"pid.available": text})
    assert desired is not None and desired.eviction_hard == {"pid.available": text}


HARD = [
    ("memory.free=1Gi", "'memory.free' is not an eviction signal; did you mean memory.available?"),
    ("nodefs.inodesfree=5%", "did you mean nodefs.inodesFree?"),
    ("NodeFS.Available=5%", "did you mean nodefs.available?"),
    ("cpu=1", "the signals are memory.available, nodefs.available"),
    ("allocatableMemory.available=1Gi", "the kubelet derives this threshold from the hard one of memory.available; set memory.available"),
    ("containerfs.available=10%", "the kubelet overrides it with the threshold of nodefs.available or imagefs.available"),
    ("containerfs.inodesFree=10%", "the kubelet overrides it with the threshold of nodefs.inodesFree or imagefs.inodesFree"),
    ("memory.available=101%", "memory.available: 101% is not between 0% and 100%"),
    ("memory.available=-1%", "memory.available: -1% is not between 0% and 100%"),
    ("memory.available=ten%", "'ten%' is not a percentage; write a number and a percent sign: 10%"),
    ("memory.available=10%%", "'10%%' is not a percentage; write one percent sign"),
    ("memory.available=%", "'%' is not a percentage"),
    ("memory.available=100.0%", "the kubelet reads 100.0% as a threshold (every pod is evicted at once); to switch the signal off write 0%"),
    ("memory.available=0.0%", "the kubelet reads 0.0% as a threshold (it is never reached); to switch the signal off write 0%"),
    ("memory.available=0", "memory.available: 0 is not more than 0; write 0% to disable the threshold"),
    ("memory.available=-1Gi", "memory.available: -1Gi is not more than 0"),
    ("memory.available=500mb", "'500mb' is not a quantity; write a number with or without a suffix: 500Mi, 1.5Gi, 2G, 1000, or a percentage such as 10%"),
    ("memory.available=500m", "500m is 0.5, not a whole number of bytes, inodes or processes; did you mean 500Mi?"),
    ("memory.available=0.5", "0.5 is 0.5, not a whole number of bytes, inodes or processes; write a whole number, with a suffix such as Mi"),
    ("memory.available=8E+18", None),
    ("memory.available=100E", "100E is more than a node can have (2^63); write a smaller quantity, or a percentage"),
    ("memory.available=", "memory.available has an empty value; write memory.available=absent to go back to the kubelet's default"),
    ("memory.available", "'memory.available' has no value; write memory.available=VALUE, or memory.available=absent"),
    ("memory.available>500Mi", "has the operator >; a signal's only operator is <: write memory.available=500Mi"),
    ("memory.available<=500Mi", "has the operator <=; a signal's only operator is <"),
    ("memory.available==500Mi", "has the operator =="),
    ("memory.available<1Gi,memory.available=2Gi", "memory.available is set twice, to 1Gi and to 2Gi; keep one of them"),
    ("", "'' names no signal; write SIGNAL=VALUE, or leave eviction_hard out"),
    (" , ", "names no signal"),
    ({}, "names no signal"),
    (["memory.available=1Gi"], "names no signal"),
    ({"memory.available": True}, "True is not text; write it in quotes as the kubelet accepts it"),
    ({"memory.available": 0.5}, "0.5 is not text; write it in quotes"),
    ({"memory.available": None}, "None is not text"),
    ({7: "1Gi"}, "'7' is not an eviction signal"),
]  # fmt: skip


@pytest.mark.parametrize("key", ["eviction_hard", "eviction_soft"])
@pytest.mark.parametrize(("value", "message"), HARD)
def test_the_grammar_of_thresholds(key: str, value: Any, message: str | None) -> None:
    if message is None:
        assert read(**{key: value}) is not None
    else:
        said = refused(**{key: value})
        assert said.startswith(f"w1: {key}: ")
        assert message.replace("eviction_hard", key) in said


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("memory.available=0s", "a grace period of 0s makes it a hard threshold; set it in eviction_hard, or write a longer time"),
        ("memory.available=-1m", "a grace period of -1m is negative; the kubelet would not start"),
        ("memory.available=90", "'90' is not a duration; write numbers with units: 90s, 1m30s, 2h; did you mean 90s?"),
        ({"memory.available": 90}, "did you mean 90s?"),
        ("memory.available=1d", "'1d' is not a duration"),
        ("memory.available<90s", "has the operator <; a value follows =: write memory.available=90s"),
        ("pods=90s", "'pods' is not an eviction signal"),
        ("containerfs.available=90s", "the kubelet overrides it"),
    ],
)
def test_the_grammar_of_grace_periods(value: Any, message: str) -> None:
    assert message in refused(eviction_soft_grace_period=value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("memory.available=-1", "a minimum reclaim of -1 is negative; write 0 or more"),
        ("memory.available=0%", "a minimum reclaim of 0% is not more than 0%; write the quantity 0 for none"),
        ("memory.available=-5%", "not more than 0%"),
        ("memory.available=150%", "150% is more than 100%; write a percentage above 0% and up to 100%, or a quantity"),
        ("memory.available=500m", "did you mean 500Mi?"),
        ("memory.available<1Gi", "has the operator <; a value follows ="),
    ],
)
def test_the_grammar_of_minimum_reclaims(value: Any, message: str) -> None:
    assert message in refused(eviction_minimum_reclaim=value)


def test_a_minimum_reclaim_of_zero_is_accepted() -> None:
    desired = read(eviction_minimum_reclaim="memory.available=0,nodefs.available=100%")
    assert desired is not None and desired.eviction_minimum_reclaim == {"memory.available": "0", "nodefs.available": "100%"}


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("eviction_max_pod_grace_period", "30s", "'30s' is not a whole number of seconds; write a number without a unit: 30"),
        ("eviction_max_pod_grace_period", 1.5, "1.5 is not a whole number of seconds"),
        ("eviction_max_pod_grace_period", True, "True is not a whole number of seconds"),
        ("eviction_max_pod_grace_period", "+5", "'+5' is not a whole number of seconds"),
        ("eviction_max_pod_grace_period", -1, "-1 is negative, and pods would be killed after 1 s; write how many seconds they may have"),
        ("eviction_max_pod_grace_period", 2**31, "does not fit in 32 bits"),
        ("eviction_pressure_transition_period", "-5m", "-5m is negative"),
        ("eviction_pressure_transition_period", "0s", "a kubelet reads 0s as not set, and uses 5m"),
        ("eviction_pressure_transition_period", 0, "a kubelet reads 0 as not set"),
        (
            "eviction_pressure_transition_period",
            300,
            "'300' is not a duration; write numbers with units: 90s, 1m30s, 2h; did you mean 300s?",
        ),
        ("eviction_pressure_transition_period", True, "True is not a duration"),
        ("eviction_pressure_transition_period", ["5m"], "is not a duration"),
    ],
)
def test_the_grammar_of_the_other_keys(key: str, value: Any, message: str) -> None:
    said = refused(**{key: value})
    assert said.startswith(f"w1: {key}: ") and message in said


@pytest.mark.parametrize("key", ["allow_evictions", "move_flags"])
@pytest.mark.parametrize("value", ["yes", "on", "", 2])
def test_consent_is_a_boolean_as_kubernetes_reads_it(key: str, value: Any) -> None:
    shown = value or '""'
    assert f"{key}: {shown} is not a boolean; write true or false" in refused(eviction_hard="pid.available=5%", **{key: value})


def test_keys_of_other_deploys_are_ignored() -> None:
    assert read(eviction_order_format="svg", feature_gates="A=true", evictions="x") is None


def test_all_errors_are_reported_at_once() -> None:
    said = refused(
        eviction_hard="memory.free=1,pid.available=0", eviction_soft_grace_period="memory.available=0s", eviction_max_pod_grace_period=-1
    )
    for part in ("memory.free", "pid.available: 0 is not", "makes it a hard", "-1 is negative"):
        assert part in said


@given(st.sampled_from(SIGNALS), st.text("0123456789.%eEKMGTPikmun+- ", max_size=8))
def test_the_kubelet_accepts_what_is_accepted(signal: str, text: str) -> None:
    for key, parse in (("eviction_hard", parse_threshold), ("eviction_minimum_reclaim", parse_reclaim)):
        try:
            desired = read(**{key: {signal: text}})
        except Refusal as refusal:
            assert key in str(refusal)
        else:
            assert desired is not None
            parse(signal, text)  # raises ValueError if the kubelet would not start
