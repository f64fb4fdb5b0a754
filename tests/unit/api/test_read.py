"""Metrics and small results, from texts as the components write them."""

from __future__ import annotations

import contextlib
import json
import time
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.engine.api import GateMetric
from roles.engine.api.errors import Unusable
from roles.engine.api.metrics import MetricsError, parse_feature_gates, parse_start_time, parse_version
from roles.engine.api.nodes import (
    ContainerStatus,
    NodeLease,
    NodeUsage,
    component_metrics,
    kubelet_config,
    kubelet_metrics,
    node_lease,
    node_pods,
    node_usage,
)

TEXT = b"""# HELP kubernetes_build_info [BETA] A metric with a constant '1' value
# TYPE kubernetes_build_info gauge
kubernetes_build_info{build_date="1970-01-01T00:00:00Z",git_version="v1.36.3",go_version="go1.26.8",minor="36"} 1
# TYPE kubernetes_feature_enabled gauge
kubernetes_feature_enabled{name="APIListChunking",stage=""} 1
kubernetes_feature_enabled{name="AllAlpha",stage="ALPHA"} 0
kubernetes_feature_enabled{name="Old",stage="DEPRECATED"} 0
process_start_time_seconds 1.76370883e+09
"""


def test_the_text() -> None:
    assert parse_feature_gates(TEXT) == {
        "APIListChunking": GateMetric("", True),
        "AllAlpha": GateMetric("ALPHA", False),
        "Old": GateMetric("DEPRECATED", False),
    }
    assert parse_start_time(TEXT) == 1763708830.0
    assert parse_version(TEXT) == "v1.36.3"
    assert (parse_feature_gates(b""), parse_start_time(b""), parse_version(b"")) == ({}, None, None)


@pytest.mark.parametrize(
    "text",
    [
        b'kubernetes_feature_enabled{name="A",stage=""} 2',
        b'kubernetes_feature_enabled{name="A",stage=""} x',
        b'kubernetes_feature_enabled{stage=""} 1',
        b'kubernetes_feature_enabled{name="A",stage=""} 1\nkubernetes_feature_enabled{name="A",stage="BETA"} 0',
    ],
)
def test_what_cannot_be_meant(text: bytes) -> None:
    with pytest.raises(MetricsError):
        parse_feature_gates(text)


@given(st.dictionaries(st.from_regex(r"[A-Z][A-Za-z0-9]{0,40}", fullmatch=True), st.booleans()))
def test_whatever_stands_is_found(gates: dict[str, bool]) -> None:
    text = "".join(f'kubernetes_feature_enabled{{name="{n}",stage="BETA"}} {int(v)}\n' for n, v in gates.items())
    assert parse_feature_gates(text.encode()) == {n: GateMetric("BETA", v) for n, v in gates.items()}


@given(st.binary())
def test_any_bytes_end_in_a_result_or_its_error(data: bytes) -> None:
    for parse in (parse_feature_gates, parse_start_time, parse_version):
        with contextlib.suppress(MetricsError):
            parse(data)


def test_megabytes_take_no_time() -> None:
    noise = b'apiserver_request_duration_seconds_bucket{verb="GET",resource="pods",le="0.005"} 12345\n' * 40_000
    begun = time.process_time()
    assert len(parse_feature_gates(noise + TEXT + noise)) == 3
    assert time.process_time() - begun < 1


class Told:
    """An Api that answers from a dictionary."""

    host = "cp1"

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers

    def get_raw(self, path: str, timeout: float = 0, *, wait: float = 0.0) -> bytes:
        found = self.answers[path]
        return found if isinstance(found, bytes) else json.dumps(found).encode()

    def get_json(self, path: str, timeout: float = 0, *, wait: float = 0.0) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.get_raw(path))
        return found


def test_results() -> None:
    pod = {
        "metadata": {"namespace": "a", "name": "p", "uid": "u", "annotations": {"kubernetes.io/config.hash": "h"}},
        "status": {
            "phase": "Running",
            "containerStatuses": [
                {"name": "c", "containerID": "x", "ready": True, "restartCount": 2,
                 "state": {"running": {"startedAt": "2026-11-21T07:06:42Z"}}},
            ],
        },
    }  # fmt: skip
    by_kubelet = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
    bare = {
        "metadata": {"namespace": "a", "name": "b", "uid": "v"},
        "status": {"phase": "Failed", "reason": "Evicted", "conditions": [{"type": "Ready", "status": "False"}, by_kubelet]},
    }
    api = Told(
        {
            "/metrics": TEXT,
            "/api/v1/nodes/w1/proxy/metrics": TEXT,
            "/api/v1/nodes/w1/proxy/configz": {"kubeletconfig": {"maxPods": 110}},
            "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/w1": {
                "spec": {"holderIdentity": "w1", "leaseDurationSeconds": 40, "renewTime": "2026-11-21T07:24:10.059772Z"}
            },
            "/api/v1/pods?fieldSelector=spec.nodeName%3Dw1": {"items": [pod, bare]},
        }
    )
    assert component_metrics(api).version == kubelet_metrics(api, "w1").version == "v1.36.3"
    assert kubelet_config(api, "w1") == {"maxPods": 110}
    lease = node_lease(api, "w1")
    assert lease == NodeLease("w1", datetime(2026, 11, 21, 7, 24, 10, 59772, UTC), 40)
    failed, running = node_pods(api, "w1")
    assert (failed.phase, failed.reason, failed.containers) == ("Failed", "Evicted", ())
    assert failed.was_evicted and not running.was_evicted
    assert running.config_hash == "h"
    assert running.containers == (ContainerStatus("c", "x", True, 2, datetime(2026, 11, 21, 7, 6, 42, tzinfo=UTC)),)


@pytest.mark.parametrize(
    ("policy", "phase", "was_evicted"), [("Always", "Succeeded", True), ("Always", "Running", False), ("Never", "Succeeded", False)]
)
def test_a_pod_that_is_always_restarted_does_not_end_by_itself(policy: str, phase: str, was_evicted: bool) -> None:
    item = {"metadata": {"namespace": "a", "name": "b", "uid": "v"}, "spec": {"restartPolicy": policy}, "status": {"phase": phase}}
    [pod] = node_pods(Told({"/api/v1/pods?fieldSelector=spec.nodeName%3Dw1": {"items": [item]}}), "w1")
    assert pod.was_evicted is was_evicted


def test_a_pod_that_was_deleted_ends_by_that() -> None:
    deleted = {"namespace": "a", "name": "b", "uid": "v", "deletionTimestamp": "2026-11-21T07:24:10Z"}
    by_kubelet = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
    for conditions, was_evicted in (([], False), ([by_kubelet], True)):
        item = {"metadata": deleted, "spec": {"restartPolicy": "Always"}, "status": {"phase": "Succeeded", "conditions": conditions}}
        [pod] = node_pods(Told({"/api/v1/pods?fieldSelector=spec.nodeName%3Dw1": {"items": [item]}}), "w1")
        assert pod.deleted and pod.was_evicted is was_evicted


def test_an_odd_answer_is_an_api_error() -> None:
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/w1"
    for odd in ({}, {"spec": None}, {"spec": {"renewTime": "yesterday"}}):
        with pytest.raises(Unusable, match="cp1"):
            node_lease(Told({path: odd}), "w1")
    for odd in ({}, {"items": [{}]}, {"items": 3}):
        with pytest.raises(Unusable):
            node_pods(Told({"/api/v1/pods?fieldSelector=spec.nodeName%3Dw1": odd}), "w1")


# ---- a node's usage


class Canned:
    """An API with these answers."""

    host = "cp1"

    def __init__(self, **answers: dict[str, Any]) -> None:
        self.answers, self.asked = answers, list[str]()

    def get_json(self, path: str, timeout: float = 15, *, wait: float = 0.0) -> dict[str, Any]:
        self.asked.append(unquote(path))
        kind = "summary" if path.endswith("/stats/summary") else "pods" if path.startswith("/api/v1/pods") else "node"
        return self.answers[kind]

    def get_raw(self, path: str, timeout: float = 15, *, wait: float = 0.0) -> bytes:
        raise AssertionError(path)


def test_what_is_asked_of_the_api() -> None:
    api = Canned(summary={"node": {}, "pods": []}, pods={"items": [{"metadata": {}}]}, node={"kind": "Node"})
    assert node_usage(api, "a node") == NodeUsage({"node": {}, "pods": []}, [{"metadata": {}}], {"kind": "Node"})
    assert api.asked == [
        "/api/v1/nodes/a node/proxy/stats/summary",
        "/api/v1/pods?fieldSelector=spec.nodeName=a node",
        "/api/v1/nodes/a node",
    ]


def test_no_summary() -> None:
    with pytest.raises(Unusable, match="enableDebuggingHandlers"):
        node_usage(Canned(summary={}, pods={}, node={}), "n1")


@pytest.mark.parametrize(
    ("summary", "where"),
    [
        ({"node": {"memory": 7}}, "node.memory is no map"),
        ({"node": {"fs": {"availableBytes": "x"}}}, "node.fs.availableBytes is no number"),
        ({"node": {"fs": {"availableBytes": -1}}}, "node.fs.availableBytes is no number"),
        ({"node": {"rlimit": {"maxpid": 2**64}}}, "node.rlimit.maxpid is no number"),
        ({"node": {"systemContainers": [None]}}, "node.systemContainers is no list"),
        ({"node": {}, "pods": {"a": 1}}, "pods is no list"),
        ({"node": {}, "pods": [{"podRef": 7}]}, r"pods\[0\].podRef is no map"),
        ({"node": {}, "pods": [{"memory": {}}]}, "a pod without podRef"),
        ({"node": {}, "pods": [{"podRef": {}, "containers": [{"rootfs": []}]}]}, r"pods\[0\].containers\[0\].rootfs is no map"),
    ],
)
def test_a_kubelet_that_says_odd_things_is_not_readable_by_its_name(summary: dict[str, Any], where: str) -> None:
    with pytest.raises(Unusable, match=where) as error:
        node_usage(Canned(summary=summary, pods={"items": []}, node={}), "w1")
    assert "/api/v1/nodes/w1/proxy/stats/summary" in str(error.value)


@pytest.mark.parametrize(
    "found",
    [
        {"evictionHard": 7},
        {"evictionHard": {"memory.available": 100}},
        {"featureGates": {"A": "true"}},
        {"enforceNodeAllocatable": "pods"},
        {"reservedMemory": [7]},
        {"memorySwap": "x"},
    ],
)
def test_a_kubelets_configuration_has_the_types_of_one(found: dict[str, Any]) -> None:
    with pytest.raises(Unusable, match="the answer is not a kubelet's"):
        kubelet_config(Told({"/api/v1/nodes/w1/proxy/configz": {"kubeletconfig": found}}), "w1")
