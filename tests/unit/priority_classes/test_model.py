"""The data of PriorityClasses and workloads: valid values, and the message of each rule."""

from __future__ import annotations

from typing import Any

import pytest

from roles.engine.transaction import Refusal
from roles.priority_classes import DesiredClasses, read_classes
from tests.unit.priority_classes.world import wanted


def refused(**data: Any) -> str:
    with pytest.raises(Refusal) as caught:
        read_classes([("cp1", data.get)])
    return str(caught.value)


def test_all_ways_to_write_a_class_are_equal() -> None:
    ways: list[Any] = [
        {"high": {"value": 1000}, "low": {"value": -10}},
        {"high": 1000, "low": -10},
        [{"name": "high", "value": 1000}, {"name": "low", "value": -10}],
        "high=1000,low=-10",
        " high=1000 , low=-10,",
    ]
    found = [wanted(priority_classes=way).priority_classes for way in ways]
    assert found[0] and [(item.name, item.value) for item in found[0]] == [("high", 1000), ("low", -10)]
    assert all(other == found[0] for other in found)


def test_kubernetes_and_python_spellings_are_accepted() -> None:
    one = wanted(priority_classes={"a": {"value": 1, "globalDefault": True, "preemptionPolicy": "Never"}})
    assert one == wanted(priority_classes={"a": {"value": 1, "global_default": True, "preemption_policy": "Never"}})
    assert one.classes[0].manifest() == {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "a"},
        "value": 1,
        "globalDefault": True,
        "preemptionPolicy": "Never",
    }
    assert "are the same field" in refused(priority_classes={"a": {"value": 1, "globalDefault": True, "global_default": True}})


def test_what_the_data_leaves_out_is_not_applied() -> None:
    manifest = wanted(priority_classes={"a": {"value": 0, "globalDefault": False, "labels": {"team": "x"}}}).classes[0].manifest()
    assert manifest["value"] == 0 and manifest["globalDefault"] is False and manifest["metadata"]["labels"] == {"team": "x"}
    assert not {"description", "preemptionPolicy"} & set(manifest)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"value": 1_000_000_001}, "value 1000000001 is above 1000000000; higher values are reserved for Kubernetes"),
        ({"value": 2**31}, "value 2147483648 is not a 32-bit number"),
        ({"value": -(2**31) - 1}, "value -2147483649 is not a 32-bit number"),
        ({"value": "5"}, "value is '5', but must be a whole number, without quotes"),
        ({"value": True}, "value is True, but must be a whole number"),
        ({"value": 1.0}, "value is 1.0, but must be a whole number"),
        ({}, "value is missing"),
        ({"value": 1, "globalDefault": "true"}, "globalDefault is 'true', but must be true or false, without quotes"),
        ({"value": 1, "globalDefault": 1}, "globalDefault is 1, but must be true or false"),
        (
            {"value": 1, "preemptionPolicy": "never"},
            "preemptionPolicy is 'never', but must be PreemptLowerPriority or Never, did you mean 'Never'?",
        ),
        ({"value": 1, "preemption_policy": "Sometimes"}, "must be PreemptLowerPriority or Never"),
        ({"value": 1, "vaule": 2}, "unknown field 'vaule', did you mean 'value'?"),
        ({"value": 1, "zzz": 2}, "unknown field 'zzz', fields are name, value, description, globalDefault"),
        ({"value": 1, "description": 5}, "description is 5, but must be text; put it in quotes"),
        ({"value": 1, "labels": {"a b": "x"}}, "labels: 'a b' is not a valid key"),
        ({"value": 1, "labels": {"UP/a": "x"}}, "'UP' before the '/' is not a DNS subdomain"),
        ({"value": 1, "labels": {"a": "-"}}, "a: '-' is not a valid value of a label"),
        ({"value": 1, "labels": {"a": "x" * 64}}, "is not a valid value of a label"),
        ({"value": 1, "labels": {"a": 1}}, "labels.a is 1, but must be text"),
        ({"value": 1, "annotations": {"a b": "x"}}, "annotations: 'a b' is not a valid key"),
        ({"value": 1, "annotations": {"a": "x" * 2**18}}, "bytes, and at most 262144 are allowed"),
        ({"value": 1, "name": "other"}, "its field name is 'other'; use one name"),
    ],
)
def test_each_rule_of_a_class_has_its_message(fields: dict[str, Any], words: str) -> None:
    text = refused(priority_classes={"mine": fields})
    assert words in text and "mine" in text and text.startswith("cp1: ")


@pytest.mark.parametrize("name", ["Upper", "a_b", "-a", "a-", "a..b", "a" * 254, "", "ä"])
def test_a_name_is_a_dns_subdomain(name: str) -> None:
    assert "is not a valid object name" in refused(priority_classes={name: 1})


@pytest.mark.parametrize("name", ["a", "0", "a.b-c.d", "a" * 253])
def test_names_that_the_api_accepts(name: str) -> None:
    assert wanted(priority_classes={name: 1}).classes[0].name == name


@pytest.mark.parametrize("value", [-(2**31), -1, 0, 1_000_000_000])
def test_values_that_the_api_accepts(value: int) -> None:
    assert wanted(priority_classes={"a": value}).classes[0].value == value


def test_the_reserved_prefix() -> None:
    assert "names that begin with 'system-' are reserved for Kubernetes" in refused(priority_classes={"system-mine": 1})
    assert wanted(priority_classes={"systemic": 1}).classes[0].name == "systemic"


def test_two_defaults_and_a_class_twice() -> None:
    text = refused(priority_classes=[{"name": name, "value": 1, "globalDefault": True} for name in ("a", "b", "a")])
    assert "a is given 2 times" in text and "a and b and a both have globalDefault" in text


def test_several_problems_are_reported_at_once() -> None:
    text = refused(priority_classes={"a": {"vaule": 1, "value": "x"}, "system-b": 1}, rollout_timeout=0)
    assert all(words in text for words in ("unknown field 'vaule'", "must be a whole number", "system-b", "rollout_timeout"))


@pytest.mark.parametrize("text", ["a", "=1", "a=x", "a=1.5", "a="])
def test_invalid_text(text: str) -> None:
    assert text.split("=", maxsplit=1)[0] in refused(priority_classes=text)


def test_all_ways_to_write_workloads() -> None:
    ways: list[Any] = [
        {"shop/deployment/web": "high", "shop/StatefulSet/db": "low", "kube-system/ds/agent": "system-node-critical"},
        "shop/deploy/web=high,shop/sts/db=low,kube-system/daemonset/agent=system-node-critical",
        [
            {"namespace": "shop", "kind": "Deployment", "name": "web", "priority_class": "high"},
            {"namespace": "shop", "kind": "sts", "name": "db", "priorityClassName": "low"},
            {"namespace": "kube-system", "kind": "ds", "name": "agent", "priority_class": "system-node-critical"},
        ],
    ]
    found = [wanted(workloads=way).workloads for way in ways]
    assert [item.key for item in found[0]] == ["shop/deployment/web", "shop/statefulset/db", "kube-system/daemonset/agent"]
    assert all(other == found[0] for other in found)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("web", "is not NAMESPACE/KIND/NAME"),
        ("a/b/c/d", "is not NAMESPACE/KIND/NAME"),
        ("default/pod/web", "'pod' is not one of Deployment, StatefulSet, DaemonSet"),
        ("default/deploymnt/web", "did you mean 'deployment'?"),
        ("De/deployment/web", "'De' is not a valid namespace"),
        ("default/deployment/We_b", "is not a valid object name"),
    ],
)
def test_each_rule_of_a_workload_has_its_message(key: str, words: str) -> None:
    assert words in refused(workloads={key: "high"})


def test_a_workload_twice_by_two_names_of_its_kind() -> None:
    assert "default/deployment/web is given 2 times" in refused(workloads="default/deploy/web=a,default/deployment/web=b")


def test_hosts_have_the_same_values_or_none() -> None:
    some: dict[str, Any] = {"priority_classes": {"a": 1}}
    none: dict[str, Any] = {}
    other: dict[str, Any] = {"priority_classes": {"a": 2}}
    assert read_classes([("w1", none.get), ("cp1", some.get), ("cp2", some.get)]) == wanted(priority_classes={"a": 1})
    assert read_classes([("w1", none.get), ("cp1", {"prune": True}.get)]) is None
    with pytest.raises(Refusal, match=r"priority_classes differs between cp1 and w2; it belongs to the cluster: .*group_data/all.py"):
        read_classes([("cp1", some.get), ("w2", other.get)])


def test_dropped_is_only_what_the_data_could_have_had() -> None:
    assert wanted(priority_classes={}).drops("a") and wanted(priority_classes={"b": 1}).drops("a")
    assert not wanted(priority_classes={"a": 1}).drops("a")
    assert not wanted(workloads="a/deploy/b=c").drops("a"), "the data has no classes at all"


def test_only_narrows_classes_workloads_and_what_is_dropped() -> None:
    found = wanted(priority_classes={"a": 1, "b": 2}, workloads="x/deploy/web=a,x/deploy/api=b", only_objects="b,x/deploy/web")
    assert [item.name for item in found.classes] == ["b"]
    assert [item.key for item in found.chosen_workloads] == ["x/deployment/web"]
    assert not found.drops("old") and wanted(priority_classes={}, only_objects=["old"]).drops("old")


def test_defaults() -> None:
    found = wanted(priority_classes={"a": 1})
    assert (found.replace, found.prune, found.force, found.rollout_timeout) == (False, False, False, 300)
    assert set(DesiredClasses.model_fields) >= {"replace", "prune", "force", "only_objects", "rollout_timeout"}
