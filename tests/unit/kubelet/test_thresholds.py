"""Eviction thresholds in the kubelet's arithmetic: grammar, rounding, and what follows from a configuration."""

from __future__ import annotations

import math
import struct
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from roles.engine.kube import times
from roles.engine.kubelet import thresholds
from roles.engine.kubelet.thresholds import Amount, Threshold, effective

MIB = 2**20

# Checked against k8s.io/apimachinery/pkg/api/resource of Kubernetes 1.36: text, Quantity.Value().
QUANTITIES = [
    ("0", 0), ("1", 1), ("+1", 1), ("-1", -1), ("100Mi", 100 * MIB), ("1.5Gi", 3 * 2**29), ("1Ei", 2**60), ("16Ei", 2**63 - 1), ("2k", 2000),
    ("2E", 2 * 10**18), ("2e3", 2000), ("2E3", 2000), ("2e+3", 2000), ("2E-1", 1), ("100m", 1), ("-100m", -1), ("1500m", 2), ("1n", 1),
    ("0.1n", 1), ("1e-30", 1), (".5", 1), ("5.", 5), ("1.0Ki", 1024), ("0.1Ki", 103), ("1T", 10**12), ("1P", 10**15), ("7u", 1), ("007", 7),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), QUANTITIES)
def test_a_quantity_is_what_the_api_machinery_reads(text: str, value: int) -> None:
    assert thresholds.whole(thresholds.parse_quantity(text)) == value


@pytest.mark.parametrize(
    "text", ["", " 1", "1 ", "1_000", "1ki", "1K", "1mi", "1KiB", "0x10", "1e", "1e3k", "Infinity", "NaN", "one", "1,5", "--1", "1e999"]
)
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="quantity"):
        thresholds.parse_quantity(text)


@given(st.from_regex(r"[+-]?[0-9]{1,400}(\.[0-9]{0,400})?([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,400})?", fullmatch=True))
@example("9" * 400)
@example("1e" + "9" * 5000)
@example("9" * 100 + "e100")
def test_a_quantity_of_any_length_is_a_number_or_none(text: str) -> None:
    """The API server keeps any number of digits of some; nothing that is computed of one may stop a run."""
    try:
        found = thresholds.parse_quantity(text)
    except ValueError as error:
        assert len(str(error)) < 150
    else:
        assert math.isfinite(float(found * 1000)) and math.isfinite(thresholds.whole(found) / 2**20)


@pytest.mark.parametrize(
    ("percent", "capacity", "amount"),
    # 10% as a float32 is 0.100000001490116...: on a large disk more than a tenth. 15% and 5% are likewise not round.
    [
        ("10%", 100, 10),
        ("10%", 10**12, 100000001490),
        ("15%", 10**12, 150000005960),
        ("5%", 2**40, 54975582208),
        ("1%", 99, 0),
        ("50%", 7, 3),
        ("5.5%", 10**9, 54999999),
    ],
)
def test_a_percentage_is_a_single_precision_float(percent: str, capacity: int, amount: int) -> None:
    found = thresholds.parse_threshold(thresholds.NODEFS, percent)
    assert found is not None and found.quantity is None
    single = struct.unpack("f", struct.pack("f", struct.unpack("f", struct.pack("f", float(percent[:-1])))[0] / 100))[0]
    assert found.of(capacity) == amount == int(float(capacity) * single)


@given(st.floats(0, 100, width=32), st.integers(0, 2**62))
def test_a_share_is_never_more_than_all(percent: float, capacity: int) -> None:
    amount = Amount(fraction=thresholds.parse_fraction(f"{percent!r}%"))
    assert 0 <= amount.of(capacity) <= float(capacity)


@given(st.integers(1, 10**7), st.integers(0, 6))
def test_fractions_are_singles(digits: int, places: int) -> None:
    fraction = thresholds.parse_fraction(f"{digits}e-{places}%")
    assert Fraction(struct.unpack("f", struct.pack("f", float(fraction)))[0]) == fraction
    assert abs(fraction - Fraction(digits, 100 * 10**places)) <= fraction / 2**23


def test_exactly_these_percentages_disable() -> None:
    assert thresholds.parse_threshold("memory.available", "0%") is None
    assert thresholds.parse_threshold("memory.available", "100%") is None
    assert thresholds.parse_threshold("memory.available", "100.0%") == Amount(fraction=Fraction(1))
    assert thresholds.parse_threshold("memory.available", "0.0%") == Amount(fraction=Fraction(0))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("-1%", "not between 0% and 100%"), ("100.1%", "not between 0% and 100%"), ("1000%", "not between 0% and 100%"), ("%", "not a percentage"),
        ("ten%", "not a percentage"), ("1e%", "not a percentage"), ("NaN%", "not a percentage"), ("1e39%", "not a percentage"), ("10 %", "not a percentage"),
        ("0", "not more than 0"), ("-5Mi", "not more than 0"), ("0Mi", "not more than 0"), ("lots", "not a quantity"), ("", "not a quantity"),
    ],
)  # fmt: skip
def test_thresholds_the_kubelet_does_not_start_with(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        thresholds.parse_threshold("memory.available", text)


def test_a_minimum_reclaim_may_be_nothing_but_no_percentage_of_it() -> None:
    assert thresholds.parse_reclaim("memory.available", "0") == Amount(0)
    assert thresholds.parse_reclaim("memory.available", "100%") == Amount(fraction=Fraction(1))
    with pytest.raises(ValueError, match="not more than 0%"):
        thresholds.parse_reclaim("memory.available", "0%")
    with pytest.raises(ValueError, match="negative"):
        thresholds.parse_reclaim("memory.available", "-1")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("1m30s", 90),
        ("1.5h", 5400),
        ("0", 0),
        ("-5s", -5),
        ("+1ms", Fraction(1, 1000)),
        ("2µs", Fraction(2, 10**6)),
        (".5s", Fraction(1, 2)),
        ("0.1ns", 0),
    ],
)
def test_durations_as_go_reads_them(text: str, seconds: Fraction) -> None:
    assert times.parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "90", "1 m", "1d", "s", "-", "1m30", "5 s", "1h-1m", "3000000h", "9" * 5000 + "h"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        times.parse_duration(text)


def test_the_thresholds_of_a_configuration() -> None:
    configuration = {
        "evictionHard": {"nodefs.available": "10%", "memory.available": "100Mi", "pid.available": "0%"},
        "evictionSoft": {"memory.available": "200Mi"},
        "evictionSoftGracePeriod": {"memory.available": "1m30s", "nodefs.available": "1m"},
        "evictionMinimumReclaim": {"memory.available": "50Mi"},
        "enforceNodeAllocatable": ["pods"],
    }
    memory = Threshold("memory.available", Amount(100 * MIB), 0, Amount(50 * MIB))
    tenth = Amount(fraction=thresholds.parse_fraction("10%"))
    assert effective(configuration) == (
        memory,
        Threshold("nodefs.available", tenth),
        Threshold("memory.available", Amount(200 * MIB), 90, Amount(50 * MIB)),
        Threshold("allocatableMemory.available", memory.amount, 0, memory.min_reclaim),
    )


def test_without_enforcement_there_is_no_threshold_of_its_own() -> None:
    hard = {"evictionHard": {"memory.available": "100Mi"}}
    one = (Threshold("memory.available", Amount(100 * MIB)),)
    assert effective(hard) == effective(hard | {"enforceNodeAllocatable": ["none"]}) == one
    assert len(effective(hard | {"enforceNodeAllocatable": ["pods", "kube-reserved"]})) == 2
    assert effective({"enforceNodeAllocatable": ["pods"]}) == ()


def test_a_soft_threshold_without_time_is_a_hard_one() -> None:
    soft = {
        "evictionSoft": {"memory.available": "1Gi"},
        "evictionSoftGracePeriod": {"memory.available": "0s"},
        "enforceNodeAllocatable": ["pods"],
    }
    assert [(found.signal, found.hard) for found in effective(soft)] == [("memory.available", True), ("allocatableMemory.available", True)]


@pytest.mark.parametrize(
    ("configuration", "message"),
    [
        ({"evictionHard": {"memory.free": "1Gi"}}, "unsupported eviction signal memory.free"),
        ({"evictionSoft": {"memory.available": "1Gi"}}, "no grace period"),
        ({"evictionSoftGracePeriod": {"memory.available": "-1s"}}, "negative"),
        ({"evictionMinimumReclaim": {"memory.available": "x"}}, "not a quantity"),
    ],
)
def test_configurations_the_kubelet_does_not_start_with(configuration: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        effective(configuration)


def test_containerfs_follows_the_filesystem_it_is_on() -> None:
    own = effective({"evictionHard": {"nodefs.available": "10%", "imagefs.inodesFree": "5%", "containerfs.available": "50%"}})
    assert [found.signal for found in own] == ["nodefs.available", "imagefs.inodesFree"]
    nodefs, imagefs = own
    assert thresholds.with_containerfs(own, image_filesystem=False)[2:] == (Threshold("containerfs.available", nodefs.amount),)
    assert thresholds.with_containerfs(own, image_filesystem=True)[2:] == (Threshold("containerfs.inodesFree", imagefs.amount),)
