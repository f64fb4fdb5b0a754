"""What stands for kubectl asks the API for the same, and leaves all else to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.lab import kubectl

NOWHERE = Path("/nonexistent")
GROUP = {
    "metadata": {"name": "apps"},
    "versions": [
        {
            "version": "v1",
            "resources": [
                {
                    "resource": "deployments",
                    "singularResource": "deployment",
                    "responseKind": {"kind": "Deployment"},
                    "scope": "Namespaced",
                    "shortNames": ["deploy"],
                }
            ],
        }
    ],
}


@pytest.mark.parametrize(
    ("words", "given", "names"),
    [
        ("get --raw /readyz", {"raw": "/readyz"}, []),
        ("get -n shop pdb web -o json", {"namespace": "shop", "output": "json"}, ["pdb", "web"]),
        ("get pods -A --field-selector=spec.nodeName=cp1", {"everywhere": "", "fieldSelector": "spec.nodeName=cp1"}, ["pods"]),
        ("delete pod a b --now --wait", {"now": "", "wait": "true"}, ["pod", "a", "b"]),
        ("delete ns shop --wait=false", {"wait": "false"}, ["ns", "shop"]),
        ("rollout status deployment/web --timeout=9s", {"timeout": "9s"}, ["deployment/web"]),
        ("patch pod web --type=merge -p {}", {"type": "merge", "patch": "{}"}, ["pod", "web"]),
    ],
)
def test_a_command_that_is_known_here(words: str, given: dict[str, str], names: list[str]) -> None:
    found = kubectl.parse(words.split())
    assert (found.given, found.names) == (given, names)


@pytest.mark.parametrize(
    "words",
    [
        "get pods -o json --watch", "get pods -n", "delete pod a --force --grace-period=0", "delete pod a --cascade=orphan",
        "create deployment web --image=app", "apply --server-side -f -", "rollout pause deployment/web", "label node w1 a=b",
        "describe node w1", "version",
    ],
)  # fmt: skip
def test_everything_else_is_kubectls(words: str) -> None:
    with pytest.raises(kubectl.OtherwiseError):
        kubectl.parse(words.split())
    assert kubectl.answer(NOWHERE, words.split()) is None


@pytest.mark.parametrize("words", ["get --raw /readyz", "delete pod web", "apply -f -", "rollout status deployment/web", "cordon w1"])
def test_where_no_api_answers_it_is_kubectls_too(words: str) -> None:
    assert kubectl.answer(NOWHERE, words.split(), input='{"kind": "Pod", "apiVersion": "v1", "metadata": {}}') is None


def test_what_the_api_has_is_named_in_all_its_ways() -> None:
    (kind,) = kubectl._discovered({"items": [GROUP]}, "apis")
    assert kind.names == {"deployment", "deployments", "deploy", "deployments.apps"}
    assert kind.path("shop", "web", "scale") == "/apis/apps/v1/namespaces/shop/deployments/web/scale"
    assert kind.path("") == "/apis/apps/v1/deployments"


def test_it_is_printed_as_kubectl_prints_it() -> None:
    found = {"apiVersion": "apps/v1", "kind": "DeploymentList", "metadata": {"resourceVersion": "7"}}
    items = [{"metadata": {"name": "web", "managedFields": [{}]}}]
    printed = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}}
    listed = {"apiVersion": "v1", "items": [printed], "kind": "List", "metadata": {"resourceVersion": ""}}
    assert json.loads(kubectl._printed({**found, "items": items}, managed=False)) == listed
    assert kubectl._by_path({"a": {"b": 7}}, "jsonpath={.a.b}") == "7"
    assert kubectl._by_path({"a": {"b": {"c": "d"}}}, "jsonpath={.a.b}") == '{"c":"d"}'
    assert kubectl._by_path({}, "jsonpath={.a.b}") == ""
    for other in ("jsonpath={.a[0]}", "yaml", "jsonpath={.a}{.b}"):
        with pytest.raises(kubectl.OtherwiseError):
            kubectl._by_path({}, other)


@pytest.mark.parametrize(
    ("kind", "spec", "status", "is_done"),
    [
        ("Deployment", {"replicas": 2}, {"updatedReplicas": 2, "replicas": 2, "availableReplicas": 2}, True),
        ("Deployment", {"replicas": 2}, {"updatedReplicas": 2, "replicas": 3, "availableReplicas": 2}, False),
        ("Deployment", {"replicas": 2}, {"updatedReplicas": 2, "replicas": 2, "availableReplicas": 1}, False),
        ("Deployment", {"replicas": 2}, {"updatedReplicas": 1, "replicas": 1, "availableReplicas": 1}, False),
        ("Deployment", {"replicas": 0}, {}, True),
        ("DaemonSet", {}, {"desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 2}, True),
        ("DaemonSet", {}, {"desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 1}, False),
        ("StatefulSet", {"replicas": 1}, {"readyReplicas": 1, "updateRevision": "a", "currentRevision": "a"}, True),
        ("StatefulSet", {"replicas": 1}, {"readyReplicas": 1, "updateRevision": "b", "currentRevision": "a"}, False),
    ],
)
def test_a_roll_out_is_done_by_kubectls_rules(kind: str, spec: dict[str, Any], status: dict[str, Any], is_done: bool) -> None:
    item = {"kind": kind, "metadata": {"generation": 2}, "spec": spec, "status": {"observedGeneration": 2, **status}}
    assert kubectl._is_rolled_out(item) is is_done
    assert not kubectl._is_rolled_out({**item, "metadata": {"generation": 3}})
