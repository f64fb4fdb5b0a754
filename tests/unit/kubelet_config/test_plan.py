"""Fields that are wanted, held against one kubelet's version and what it runs with."""

from __future__ import annotations

from typing import Any

import pytest

from roles.change.refusal import Refusal
from roles.formats import ABSENT
from roles.kubelet import find
from roles.kubelet_config import State, model, plan
from roles.kubelet_config.carry_out import Settled, after
from roles.observe import parse
from tests.unit.observe import node

RUNNING: dict[str, Any] = {
    "maxPods": 110,
    "systemReserved": {"cpu": "100m", "memory": "1Gi"},
    "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True, "cacheTTL": "2m0s"}},
    "cpuManagerPolicy": "none",
    "containerLogMaxSize": "10Mi",
}


def settle(text: Any, running: dict[str, Any] = RUNNING) -> Settled:
    state = State("n1", find(parse("n1", node.answer())), running, {}, [], {})
    desired = model.read("n1", {"kubelet_config": text}.get)
    assert desired is not None
    return plan.settle(desired, state)


def test_nested_data_and_dotted_names_come_to_the_same() -> None:
    nested = settle({"maxPods": 200, "authentication": {"webhook": {"cacheTTL": "3m"}}})
    dotted = settle("maxPods=200,authentication.webhook.cacheTTL=3m")
    assert nested.fields == dotted.fields == {"maxPods": 200, "authentication.webhook.cacheTTL": "3m"} == nested.expected


def test_a_map_is_set_whole_and_by_one_of_its_keys() -> None:
    assert settle({"systemReserved": {"cpu": "200m"}}).fields == {"systemReserved": {"cpu": "200m"}}
    assert settle("systemReserved.cpu=200m").fields == {"systemReserved": {"cpu": "200m", "memory": "1Gi"}}
    assert settle("systemReserved.cpu=absent,systemReserved.pid='100'").fields == {"systemReserved": {"memory": "1Gi", "pid": "100"}}


def test_what_is_taken_out_comes_back_to_the_default_where_that_is_known() -> None:
    made = settle("maxPods=absent")
    assert made.fields == {"maxPods": ABSENT} and made.expected == {"maxPods": 110}
    made = settle("resolvConf=absent,kubeAPIQPS=absent")
    assert all(name in made.expected or any(name in note for note in made.notes) for name in made.fields)


def test_what_the_kubelet_will_run_with() -> None:
    made = after(RUNNING, settle("maxPods=5,authentication.webhook.cacheTTL=3m"))
    assert made["maxPods"] == 5 and made["authentication"]["webhook"] == {"enabled": True, "cacheTTL": "3m"}
    assert RUNNING["maxPods"] == 110 and RUNNING["authentication"]["webhook"]["cacheTTL"] == "2m0s", "what runs was changed instead"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("maxPodz=5", "did you mean maxPods"),
        ("maxpods=5", "maxPods"),
        ("maxPods='5'", "maxPods"),
        ("maxPods=1.5", "maxPods"),
        ("systemReserved.cpus=1", "cpu"),
        ("authentication.webhok.enabled=true", "did you mean"),
        ("featureGates.A=true", "deploys/feature_gates.py"),
        ("evictionHard={memory.available: 1Gi}", "deploys/eviction.py"),
        ("cpuManagerPolicy=static", "cpu_manager_state"),
        ("staticPodPath=/srv", "static pod"),
        ("maxPods", "write maxPods=VALUE"),
        ("maxPods=[1", "is not YAML"),
        ("", "is empty"),
    ],
)
def test_what_is_refused(text: str, words: str) -> None:
    with pytest.raises(Refusal) as refused:
        settle(text)
    assert words in str(refused.value) and str(refused.value).startswith("n1: ")


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(Refusal) as refused:
        settle("maxPodz=5,podPidsLimit=many")
    assert "maxPodz" in str(refused.value) and "podPidsLimit" in str(refused.value)


def test_a_value_that_is_there_already_needs_no_more() -> None:
    assert settle("cpuManagerPolicy=none").notes == ()


def test_a_restart_that_does_not_reach_all_is_told() -> None:
    assert any("podPidsLimit" in note for note in settle("podPidsLimit=500").notes)
