"""What stands for a read by kubectl asks the API for the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.lab import reading


@pytest.mark.parametrize(
    ("words", "path"),
    [
        ("get --raw /readyz", "/readyz"),
        ("get nodes -o json", "/api/v1/nodes"),
        ("get node w1 -o json", "/api/v1/nodes/w1"),
        ("get pod web -o json --show-managed-fields", "/api/v1/namespaces/default/pods/web"),
        ("get hpa -A -o json", "/apis/autoscaling/v2/horizontalpodautoscalers"),
        ("get -n shop pdb web -o json", "/apis/policy/v1/namespaces/shop/poddisruptionbudgets/web"),
        ("get pods --all-namespaces --field-selector=spec.nodeName=cp1 -o json", "/api/v1/pods?fieldSelector=spec.nodeName%3Dcp1"),
        ("get pods -n shop -l app=web -o json", "/api/v1/namespaces/shop/pods?labelSelector=app%3Dweb"),
    ],
)
def test_a_plain_read_has_its_path(words: str, path: str) -> None:
    assert (reading._raw(words.split()) or reading._listed(words.split())) == path


@pytest.mark.parametrize(
    "words",
    [
        "get pods",
        "get pods -o name",
        "get pods -o jsonpath={.items}",
        "get pods,nodes -o json",
        "get pod/web -o json",
        "get pods a b -o json",
        "get widgets -o json",
        "get pods -o json --watch",
        "get pods -n",
        "delete pods -o json",
        "describe node w1",
        "version",
    ],
)
def test_everything_else_is_kubectls(words: str) -> None:
    assert reading.get(Path("/nonexistent"), words.split()) is None


def test_no_answer_is_kubectls_too() -> None:
    assert reading.get(Path("/nonexistent"), ["get", "--raw", "/readyz"]) is None


def test_it_is_printed_as_kubectl_prints_it() -> None:
    found = {"apiVersion": "apps/v1", "kind": "DeploymentList", "metadata": {"resourceVersion": "7"}}
    items = [{"metadata": {"name": "web", "managedFields": [{}]}}]
    printed = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}}
    listed = {"apiVersion": "v1", "items": [printed], "kind": "List", "metadata": {"resourceVersion": ""}}
    assert json.loads(reading._printed({**found, "items": items}, managed=False)) == listed
