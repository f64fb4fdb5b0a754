"""The desired fields, checked against one kubelet's version and compared with what it runs with."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest

from roles.engine.editing import ABSENT
from roles.engine.kube.times import parse_duration
from roles.engine.kubelet import KubeletState, find, schema
from roles.engine.kubelet.values import SECRETS, in_effect
from roles.engine.proof.effective import unmet_fields
from roles.engine.transaction import Refusal
from roles.kubelet_config import Settled, model, plan
from roles.kubelet_config.carry_out import after
from tests.unit.kubelet import samples
from tests.unit.node import node
from tests.unit.node.node import parse

RUNNING: dict[str, Any] = {
    "maxPods": 110,
    "systemReserved": {"cpu": "100m", "memory": "1Gi"},
    "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True, "cacheTTL": "2m0s"}},
    "cpuManagerPolicy": "none",
    "containerLogMaxSize": "10Mi",
}


def settle(text: Any, running: dict[str, Any] = RUNNING) -> Settled:
    state = KubeletState("n1", find(parse("n1", node.answer())), running, {}, [], {})
    desired = model.read_fields("n1", {"kubelet_config": text}.get)
    assert desired is not None
    return plan.settle(desired, state)


def test_nested_data_and_dotted_names_are_equivalent() -> None:
    nested = settle({"maxPods": 200, "authentication": {"webhook": {"cacheTTL": "3m"}}})
    dotted = settle("maxPods=200,authentication.webhook.cacheTTL=3m")
    assert nested.fields == dotted.fields == {"maxPods": 200, "authentication.webhook.cacheTTL": "3m"} == nested.expected


def test_a_map_is_set_as_a_whole_or_by_one_key() -> None:
    assert settle({"systemReserved": {"cpu": "200m"}}).fields == {"systemReserved": {"cpu": "200m"}}
    assert settle("systemReserved.cpu=200m").fields == {"systemReserved": {"cpu": "200m", "memory": "1Gi"}}
    assert settle("systemReserved.cpu=absent,systemReserved.pid='100'").fields == {"systemReserved": {"memory": "1Gi", "pid": "100"}}


def test_settings_are_named_by_their_path_in_a_file() -> None:
    made = settle("maxPods=200,authentication.webhook.cacheTTL=3m,systemReserved.cpu=200m,containerLogMaxSize=absent")
    assert made.named == {
        ("maxPods",): 200,
        ("authentication", "webhook", "cacheTTL"): "3m",
        ("systemReserved", "cpu"): "200m",
        ("containerLogMaxSize",): None,
    }
    assert settle({"systemReserved": {"cpu": "200m"}}).named == {("systemReserved",): {"cpu": "200m"}}


def test_a_removed_field_returns_to_its_default_if_that_is_known() -> None:
    made = settle("maxPods=absent")
    assert made.fields == {"maxPods": ABSENT} and made.expected == {"maxPods": 110}
    made = settle("resolvConf=absent,kubeAPIQPS=absent")
    assert all(name in made.expected or any(name in note for note in made.notes) for name in made.fields)


def test_the_configuration_after_the_change() -> None:
    made = after(RUNNING, settle("maxPods=5,authentication.webhook.cacheTTL=3m"))
    assert made["maxPods"] == 5 and made["authentication"]["webhook"] == {"enabled": True, "cacheTTL": "3m"}
    assert RUNNING["maxPods"] == 110 and RUNNING["authentication"]["webhook"]["cacheTTL"] == "2m0s", (
        "the running configuration was changed instead"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("maxPodz=5", "did you mean maxPods"),
        ("maxpods=5", "maxPods"),
        ("maxPods='5'", "maxPods"),
        ("maxPods=1.5", "maxPods"),
        ("systemReserved.cpus=1", "cpu"),
        ("authentication.webhok.enabled=true", "did you mean"),
        ("featureGates.A=true", "featureGates is managed by deploys/feature_gates.py: remove it from kubelet_config"),
        ("evictionHard={memory.available: 1Gi}", "deploys/eviction.py"),
        ("staticPodPath=/srv", "static pod"),
        ("maxPods", "write maxPods=VALUE"),
        ("maxPods=[1", "is not YAML"),
        ("", "is empty"),
        ("maxPods=-5", "maxPods: -5 is negative"),
        ("syncFrequency=0s", "syncFrequency: a kubelet reads 0s as not set, and uses its default, 1m"),
        ("cpuManagerPolicy=''", "cpuManagerPolicy: a kubelet reads an empty text as not set, and uses its default, none"),
        ("maxPods=0", "maxPods: a kubelet reads 0 as not set, and uses its default, 110"),
        ("maxPods=5,maxPods=6", "maxPods is set twice"),
        ({"authentication": {"webhook": {"cacheTTL": "1m"}}, "authentication.webhook.cacheTTL": "2m"}, "is set twice, to 1m and to 2m"),
        ("staticPodURLHeader={X: [abc]}", "staticPodURLHeader holds a secret"),
        (5, "kubelet_config: 5 must be a mapping of fields; write FIELD=VALUE"),
        (["maxPods"], 'kubelet_config: ["maxPods"] must be a mapping of fields'),
        (True, "kubelet_config: true must be a mapping of fields"),
    ],
)
def test_invalid_fields_are_refused(text: Any, words: str) -> None:
    with pytest.raises(Refusal) as refused:
        settle(text)
    assert words in str(refused.value) and str(refused.value).startswith("n1: ")
    assert "abc" not in str(refused.value)


def test_all_errors_are_reported_at_once() -> None:
    with pytest.raises(Refusal) as refused:
        settle("maxPodz=5,podPidsLimit=many")
    assert "maxPodz" in str(refused.value) and "podPidsLimit" in str(refused.value)


def test_a_value_that_is_already_set_needs_no_warning() -> None:
    assert settle("cpuManagerPolicy=none").notes == ()


def test_a_field_that_a_restart_does_not_apply_everywhere_is_reported() -> None:
    assert any("podPidsLimit" in note for note in settle("podPidsLimit=500").notes)


@pytest.mark.parametrize("text", ["cpuCFSQuotaPeriod=0s", "imageMaximumGCAge=0s", "registryPullQPS=0", "readOnlyPort=0", "oomScoreAdj=0"])
def test_a_zero_that_counts_is_accepted(text: str) -> None:
    assert len(settle(text).fields) == 1


def test_a_zero_that_configz_omits_counts_as_set() -> None:
    made = settle("readOnlyPort=0,protectKernelDefaults=false,rotateCertificates=false")
    assert unmet_fields(made.expected, RUNNING) == []


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("systemReserved={cpu: 1, a: {b: 2}},maxPods=5", ["systemReserved={cpu: 1, a: {b: 2}}", "maxPods=5"]),
        (
            "x={a: {b: 1, c: 2}, d: {e: [1, 2], f: 3}},y=[1, 2],z='a,b'",
            ["x={a: {b: 1, c: 2}, d: {e: [1, 2], f: 3}}", "y=[1, 2]", "z='a,b'"],
        ),
        ('a="]",b=1,', ['a="]"', "b=1"]),
    ],
)
def test_commas_in_brackets_and_quotes_do_not_end_a_field(text: str, fields: list[str]) -> None:
    assert model._items(text) == fields


def test_a_removed_map_is_missing_from_the_predicted_configuration() -> None:
    made = settle("systemReserved=absent,clusterDNS=absent")
    assert made.expected == {"systemReserved": None, "clusterDNS": None}
    assert "systemReserved" not in after(RUNNING, made)


def test_a_list_is_shown_as_it_is_written() -> None:
    assert settle("clusterDNS=[10.0.0.10, fd00::a]").summary == "clusterDNS=[10.0.0.10, fd00::a]"


@pytest.mark.parametrize(("only", "names"), [(5, ("5",)), ("w1, w2", ("w1", "w2")), (["w1"], ("w1",)), (None, None)])
def test_names_in_the_forms_that_pyinfra_passes(only: Any, names: tuple[str, ...] | None) -> None:
    desired = model.read_fields("n1", {"kubelet_config": {"maxPods": 5}, "only": only}.get)
    assert desired is not None and desired.chosen_nodes == names


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"only": True}, "only: true is not a list of names"),
        ({"only": {"w1": 1}}, 'only: {"w1": 1} is not a list of names'),
        ({"move_flags": "yes"}, "move_flags: yes is not a boolean; write true or false"),
        ({"allow_evictions": 7}, "allow_evictions: 7 is not a boolean"),
    ],
)
def test_invalid_data(data: dict[str, Any], words: str) -> None:
    with pytest.raises(Refusal) as refused:
        model.read_fields("n1", {"kubelet_config": {"maxPods": 5}, **data}.get)
    assert str(refused.value) == f"n1: {words}" or words in str(refused.value)


LEAVES = {
    name: field for name, field in schema.fields(36).items() if "[]" not in name and field.kind != "object" and name not in schema.OWNED
}


@pytest.mark.parametrize("name", sorted(LEAVES))
def test_each_field_of_the_table_is_planned_as_desired(name: str) -> None:
    """Set, then shown by /configz as JSON; and removed: its default is checked, or a note says that it is not."""
    for value in (samples.good(LEAVES[name]), "absent"):
        try:
            made = settle({name: value})
        except Refusal as refused:
            assert name in SECRETS or name in {one.path for one in schema.NEEDS_MORE}, refused
            continue
        shown = json.loads(json.dumps(after(RUNNING, made)))
        assert unmet_fields(made.expected, shown) == []
        assert name in made.expected or any(note.startswith(f"{name}: ") for note in made.notes)
        assert "{'" not in made.summary and "['" not in made.summary


@pytest.mark.parametrize("text", samples.DURATIONS)
def test_a_duration_is_in_effect_as_go_writes_it(text: str) -> None:
    assert in_effect(text, go_duration(parse_duration(text)))


@pytest.mark.parametrize(("wanted", "shown"), [("1024Mi", "1Gi"), ("1000m", "1"), ("1e3", "1k"), ("0.5", "500m"), (1, "1"), (1.5, "1500m")])
def test_a_quantity_is_in_effect_as_kubernetes_writes_it(wanted: Any, shown: str) -> None:
    reserved = {"numaNode": 0, "limits": {"memory": wanted}}
    assert in_effect([reserved], [{"numaNode": 0, "limits": {"memory": shown}}])
    assert not in_effect([reserved], [{"numaNode": 0, "limits": {"memory": "7Gi"}}])


def go_duration(seconds: Fraction) -> str:
    """In hours, minutes and seconds, with nine decimal places."""
    nanos = round(abs(seconds) * 10**9)
    rest, part = divmod(nanos, 10**9)
    return f"{'-' if seconds < 0 else ''}{rest // 3600}h{rest // 60 % 60}m{rest % 60}.{part:09d}s"


def test_a_field_that_several_kubelets_do_not_know_is_one_line_with_the_right_name_first() -> None:
    with pytest.raises(Refusal) as refused:
        settle("MaxPods=5")
    assert "names are case-sensitive; write maxPods" in str(refused.value)
    assert Refusal.texts([refused.value, refused.value]) == ["maxPods? You wrote MaxPods. Refused by kubelet on n1"]
    with pytest.raises(Refusal) as refused:
        settle("MaxPods=5,podPidsLimit=x")
    assert len(Refusal.texts([refused.value])) == 1 and "podPidsLimit" in Refusal.texts([refused.value])[0]
