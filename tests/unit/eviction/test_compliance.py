"""The desired thresholds of a kubelet, compared with those that it uses."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.engine.kubelet import find
from roles.engine.kubelet.thresholds import DEFAULT_HARD, SIGNALS
from roles.eviction import DesiredThresholds, unmet, wanted
from tests.unit.node import node
from tests.unit.node.node import parse

KUBELET = find(parse("n1", node.answer()))
FLAGS_ONLY = find(
    parse(
        "n1",
        node.answer(
            argv=("/usr/bin/kubelet", "--kubeconfig=/k"), unit=b"[Service]\nExecStart=/usr/bin/kubelet --kubeconfig=/k\n", dropins={}
        ),
    )
)
RUNNING: dict[str, Any] = {"evictionHard": dict(DEFAULT_HARD), "evictionPressureTransitionPeriod": "5m0s"}


def differences(data: dict[str, Any], running: dict[str, Any] = RUNNING) -> list[str]:
    return [str(one) for one in unmet(DesiredThresholds(**data), KUBELET, running)]


def test_each_signal_is_compared() -> None:
    assert differences({"eviction_hard": "memory.available=500Mi,nodefs.available=10.0%"}) == [
        "evictionHard: memory.available is 100Mi, wanted 500Mi"
    ]
    assert differences({"eviction_soft": "memory.available=1Gi", "eviction_soft_grace_period": "memory.available=1m"}) == [
        "evictionSoft: memory.available is (not set), wanted 1Gi",
        "evictionSoftGracePeriod: memory.available is (not set), wanted 1m",
    ]


def test_a_signal_that_is_off_is_not_a_difference() -> None:
    off = {"evictionHard": {"memory.available": "100Mi"}}
    assert differences({"eviction_hard": "pid.available=0%"}) == []
    assert differences({"eviction_hard": "memory.available=500Mi"}, off) == ["evictionHard: memory.available is 100Mi, wanted 500Mi"]
    assert differences({"eviction_hard": "nodefs.available=absent"}, off) == ["evictionHard: nodefs.available is (not set), wanted 10%"]


def test_other_fields() -> None:
    assert differences({"eviction_max_pod_grace_period": 60, "eviction_pressure_transition_period": "300s"}) == [
        "kubelet runs with evictionMaxPodGracePeriod=(not set), wanted 60"
    ]


@given(
    st.dictionaries(st.sampled_from(SIGNALS), st.sampled_from(["100Mi", "102400Ki", "5%", "0%", "absent"]), min_size=1),
    st.dictionaries(st.sampled_from(SIGNALS), st.sampled_from(["100Mi", "1Gi", "5%", "0%"])),
)
def test_a_difference_exists_exactly_if_a_field_must_be_written(hard: dict[str, str], running: dict[str, str]) -> None:
    desired = DesiredThresholds(eviction_hard=hard)  # type: ignore[arg-type]
    found = unmet(desired, KUBELET, {"evictionHard": running})
    assert bool(found) == bool(wanted.fields(desired, {"evictionHard": running}))
    assert {one.key for one in found} <= {*hard}


@pytest.mark.parametrize(("kubelet", "missed"), [(KUBELET, True), (FLAGS_ONLY, False)])
def test_without_a_configuration_file_there_are_no_defaults(kubelet: Any, missed: bool) -> None:
    assert bool(unmet(DesiredThresholds(eviction_hard={"memory.available": "absent"}), kubelet, {})) is missed  # type: ignore[dict-item]
