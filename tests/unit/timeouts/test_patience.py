"""Slow nodes: one factor for every wait, and what stays as it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyinfra.api.exceptions import DeployError

from roles.engine import timeouts
from roles.engine.runs import options
from roles.engine.timeouts import patient
from roles.engine.transaction import Change, FileEdit
from roles.engine.transaction.change_script import render


@pytest.fixture(autouse=True)
def as_usual() -> Iterator[None]:
    yield
    timeouts.set_factor([])


class Host:
    """As much of a Remote as the options are read from."""

    def __init__(self, name: str, **data: Any) -> None:
        self.name, self._data = name, data

    def data(self, key: str) -> Any:
        return self._data.get(key)


def change(kind: Any = "kubelet", **more: Any) -> Change:
    edit = FileEdit("/var/lib/kubelet/config.yaml", b"a: 1\n", b"a: 2\n")
    pod = {"pod": "kube-system_kube-apiserver-cp1", "container": "kube-apiserver"} if kind == "static-pod" else {}
    component = "kubelet" if kind == "kubelet" else "kube-apiserver"
    return Change(
        "r1-cp1-x", "cp1", component, kind, "kubelet.service", "", (edit,), "http://127.0.0.1/healthz", ("x",), ("y",), **{**pod, **more}
    )


@pytest.mark.parametrize(("given", "factor"), [(1, 1.0), (8, 8.0), ("2.5", 2.5), (100, 100.0)])
def test_a_number_from_1_to_100(given: object, factor: float) -> None:
    assert timeouts.parse(given) == factor


@pytest.mark.parametrize(
    "given", [0, 0.9, -3, 101, "a lot", "", True, None, [8], float("nan"), "nan", "inf", "٣", "1_0", " 2.5", "1e1", "+5"]
)
def test_anything_else_is_refused_with_the_rule(given: object) -> None:
    with pytest.raises(ValueError, match="is not a number from 1 to 100"):
        timeouts.parse(given)


def test_the_most_patient_host_counts_and_the_next_run_begins_anew() -> None:
    assert patient(30) == 30
    timeouts.set_factor([None, 2, "8"])
    assert patient(30) == 240
    timeouts.set_factor([None])
    assert patient(30) == 30


def test_a_run_has_one_patience() -> None:
    assert options.read_options([Host("a", patience="4"), Host("b", patience=4)]).patience == 4  # type: ignore[list-item]
    with pytest.raises(DeployError, match="b: patience is not the same as on a"):
        options.read_options([Host("a", patience=4), Host("b")])  # type: ignore[list-item]
    with pytest.raises(DeployError, match="a: patience='slow' is not a number from 1 to 100"):
        options.read_options([Host("a", patience="slow")])  # type: ignore[list-item]


@pytest.mark.parametrize(("kind", "start", "confirm"), [("kubelet", 90, 210), ("static-pod", 240, 360)])
@given(factor=st.floats(1, 100))
def test_a_change_has_so_many_times_the_time_and_room_for_the_proof(kind: str, start: int, confirm: int, factor: float) -> None:
    usual, slow = change(kind), change(kind, patience=factor, soak=30)
    assert (usual.apply_timeout, usual.confirm_timeout, usual.revert_timeout, usual.settle_seconds) == (start, confirm, 120, 40)
    assert slow.apply_timeout >= start * factor
    assert slow.confirm_timeout - slow.soak - slow.apply_timeout >= 120 * factor
    assert slow.revert_timeout >= 120 * factor
    # A pod's grace period is not longer on a slow node: only the moment after it is.
    assert 30 + 10 * factor <= slow.settle_seconds <= 31 + 10 * factor


def test_a_confirm_timeout_that_is_asked_for_is_meant_as_it_stands() -> None:
    slow = replace(change(), patience=8.0, wanted_confirm_timeout=600)
    assert slow.confirm_timeout == 600
    assert slow.apply_timeout == 590


def test_the_script_on_the_node_has_the_same_times() -> None:
    text = render(change("static-pod", patience=8.0))
    found = dict(re.findall(r"^(\w+_(?:timeout|seconds))=(\d+)", text, re.MULTILINE))
    assert found == {
        "apply_timeout": "1920",
        "confirm_timeout": "2880",
        "revert_timeout": "960",
        "retry_seconds": "30",
        "stable_seconds": "12",
        "settle_seconds": "110",
        "io_seconds": "120",
        "evidence_seconds": "10",
    }
