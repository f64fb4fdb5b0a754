"""What comes from the API and from others: pods, the kubelet's metrics, autoscalers, a Prometheus. All of it may be odd."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from fractions import Fraction
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from roles.engine.kube.amounts import parse_quantity
from roles.engine.timeouts import Deadline
from roles.right_size import PrometheusError, RightSizeOptions, SampleHistory, SizedWorkload, prometheus, resource_metrics, targets
from roles.right_size.evidence import evidence
from roles.right_size.quantities import cpu_text, memory_text, rate_text, round_cpu, round_memory, span_text
from roles.right_size.resource_metrics import KubeletUse
from roles.right_size.samples import Kill
from roles.right_size.targets import UtilizationTarget, corrected
from roles.right_size.workloads import Amounts, containers
from tests.unit.right_size.world import ID, MI, OTHER, REPLICA_SET, START, pod

WEB = SizedWorkload("Deployment", "shop", "web")
BETWEEN: dict[str, list[Any]] = {"ReplicaSet": [REPLICA_SET], "Job": []}


# ---- pods


def test_a_container_of_a_deployment() -> None:
    resources = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "0.5Gi"}}
    [found] = containers([pod("web-1-x", resources=resources)], BETWEEN)
    assert (found.workload, found.pod, found.uid, found.node, found.id) == (WEB, "web-1-x", "uid-web-1-x", "w1", ID)
    assert (found.requests, found.limits) == (Amounts(100, 64 * MI), Amounts(None, 512 * MI))
    assert found.started == START and not found.guaranteed and not found.sidecar


def test_one_that_was_killed_and_waits() -> None:
    ended = {
        "reason": "OOMKilled",
        "containerID": f"containerd://{OTHER}",
        "startedAt": "2023-11-14T22:13:20Z",
        "finishedAt": "2023-11-14T22:13:29Z",
    }
    state = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": ended}, "restartCount": 3}
    [found] = containers([pod("web-1-x", resources={"limits": {"memory": "64Mi"}}, state=state)], BETWEEN)
    assert found.id == "" and found.restarts == 3
    assert found.kills == (Kill(OTHER, START + 9, 64 * MI, 9.0),)
    state["lastState"] = {"terminated": {**ended, "reason": "Error"}}
    assert containers([pod("web-1-x", state=state)], BETWEEN)[0].kills == ()


def of(api: str, kind: str, name: str, uid: str) -> dict[str, Any]:
    return {"ownerReferences": [{"apiVersion": api, "kind": kind, "name": name, "uid": uid, "controller": True}]}


ALONE = SizedWorkload("Pod", "shop", "p")


@pytest.mark.parametrize(
    ("meta", "workload"),
    [
        ({"ownerReferences": []}, ALONE),
        (of("argoproj.io/v1alpha1", "Rollout", "r", "u"), SizedWorkload("Rollout", "shop", "r")),
        (of("apps/v1", "ReplicaSet", "gone", "u"), SizedWorkload("ReplicaSet", "shop", "gone")),
        # A Deployment has its pods through ReplicaSets: who may create pods cannot make one count as a replica.
        (of("apps/v1", "Deployment", "web", "d"), ALONE),
        (of("batch/v1", "CronJob", "b", "c"), ALONE),
        (of("batch/v1", "Job", "b-1", "j"), SizedWorkload("CronJob", "shop", "b")),
        # Owners that do not exist, or are something else: by group, UID, name.
        (of("no-such.example/v1", "StatefulSet", "db", "u"), SizedWorkload("StatefulSet of no-such.example/v1", "shop", "db")),
        (of("apps/v1", "StatefulSet", "db", "u"), ALONE),
        (of("apps/v1", "StatefulSet", "other", "s"), ALONE),
        (of("apps/v1", "StatefulSet", "db", "s"), SizedWorkload("StatefulSet", "shop", "db")),
        (
            {"annotations": {"kubernetes.io/config.mirror": "x", "kubernetes.io/config.hash": "8a" * 16}},
            SizedWorkload("static pod", "shop", "p"),
        ),
    ],
)
def test_the_workload_of_a_pod(meta: dict[str, Any], workload: SizedWorkload) -> None:
    job = {"metadata": {"name": "b-1", "namespace": "shop", "uid": "j", **of("batch/v1", "CronJob", "b", "c")}}
    database = {"metadata": {"name": "db", "namespace": "shop", "uid": "s"}}
    [found] = containers([pod("p", meta=meta)], {**BETWEEN, "Job": [job], "StatefulSet": [database]})
    assert found.workload == workload
    if workload.kind == "static pod":
        assert found.uid == "8a" * 16, "its cgroup has the UID of the manifest, not of the mirror"


def test_pods_that_are_over_do_not_count_and_sidecars_do() -> None:
    sidecar = {"name": "proxy", "restartPolicy": "Always"}
    listed = [
        pod("a", phase="Succeeded"),
        pod("b", meta={"deletionTimestamp": "x"}),
        pod("c", spec={"initContainers": [{"name": "init"}, sidecar]}),
    ]
    assert [(one.pod, one.name, one.sidecar) for one in containers(listed, BETWEEN)] == [("c", "app", False), ("c", "proxy", True)]


# ---- the kubelet's metrics

METRICS = """# HELP container_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the container in core-seconds
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="app",namespace="shop",pod="web-1"} 12.5 1700000000500
container_memory_working_set_bytes{container="app",namespace="shop",pod="web-1"} 5.24288e+06 1700000000500
container_memory_working_set_bytes{container="db",namespace="shop",pod="db-0"} 7 1700000000500
container_start_time_seconds{container="app",namespace="shop",pod="web-1"} 1.7e+09
node_cpu_usage_seconds_total 99 1700000000500
container_cpu_usage_seconds_total{container="bad",namespace="shop",pod="web-1"} NaN 1
container_cpu_usage_seconds_total{container="bad",namespace="shop",pod="web-1"} -1 1
"""


def test_the_kubelets_metrics() -> None:
    found = resource_metrics.parse(METRICS)
    assert found == {("shop", "web-1", "app"): KubeletUse(START + 0.5, 12.5, 5 * MI), ("shop", "db-0", "db"): KubeletUse(memory=7)}


def test_no_container_is_older_than_its_pod() -> None:
    """A node that got its time only after the start says years ago: that would be years of evidence."""
    state = {"state": {"running": {"startedAt": "1970-01-01T00:00:09Z"}}}
    created = {"creationTimestamp": "2023-11-14T22:13:20Z"}
    [found] = containers([pod("web-1-x", state=state, meta=created)], BETWEEN)
    assert found.started == START


def test_names_of_owners_are_any_text() -> None:
    owner = {"kind": "Set\nIn danger", "name": "x\x1b[2J", "uid": "u", "controller": True}
    [found] = containers([pod("p", meta={"ownerReferences": [owner]})], BETWEEN)
    assert str(found.workload) == "Set\\nIn danger shop/x\\x1b[2J"


@pytest.mark.parametrize("number", ["1e300", "+Inf", "NaN", "9" * 400, "-0.5"])
def test_numbers_that_no_container_has(number: str) -> None:
    text = f'container_memory_working_set_bytes{{container="a",namespace="n",pod="p"}} {number} 1700000000500\n'
    assert not resource_metrics.parse(text)
    text = f'container_cpu_usage_seconds_total{{container="a",namespace="n",pod="p"}} 1 {"9" * 400}\n'
    assert not resource_metrics.parse(text)


@given(st.text())
def test_any_text_gives_numbers_or_nothing(text: str) -> None:
    assert all(one.cpu is None or one.cpu >= 0 for one in resource_metrics.parse(METRICS + text).values())


# ---- autoscalers


def test_what_vertical_pod_autoscalers_recommend() -> None:
    item: dict[str, Any] = {
        "metadata": {"name": "v", "namespace": "shop"},
        "spec": {"targetRef": {"kind": "Deployment", "name": "web"}, "updatePolicy": {"updateMode": "Off"}},
        "status": {"recommendation": {"containerRecommendations": [
            {"containerName": "app", "target": {"cpu": "25m", "memory": "262144k"}, "lowerBound": {"cpu": "10m"}, "upperBound": {"cpu": "1"}}]}},
    }  # fmt: skip
    found = targets.recommendations(
        [item, {"metadata": {"name": "odd"}}, {**item, "status": {"recommendation": {"containerRecommendations": [{}]}}}]
    )
    [(place, one)] = found.items()
    assert place == (WEB, "app") and (one.mode, one.target, one.high) == ("Off", Amounts(25, 262_144_000), Amounts(1000))


def test_utilization_targets_and_their_correction() -> None:
    metrics = [
        {"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 60}}},
        {"type": "ContainerResource", "containerResource": {"name": "memory", "container": "app", "target": {"averageUtilization": 70}}},
        {"type": "Resource", "resource": {"name": "cpu", "target": {"averageValue": "1"}}},
    ]
    item = {
        "metadata": {"name": "h", "namespace": "shop"},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "metrics": metrics},
    }
    found = targets.utilization_targets([item, {"metadata": {}, "spec": {}}])
    assert found == {WEB: [UtilizationTarget("h", "cpu", 60), UtilizationTarget("h", "memory", 70, "app")]}
    assert corrected(found[WEB][0], 1000, 250) == 240 and corrected(found[WEB][0], 250, 1000) == 15


# ---- a Prometheus


class Server(BaseHTTPRequestHandler):
    asked: ClassVar[list[str]] = []
    body, status = b"", 200

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if not self.status:
            self.wfile.write(b"SSH-2.0\r\n\r\n")
            return
        self.send_response(self.status)
        if self.status == 302:
            self.send_header("Location", "/elsewhere")
        self.end_headers()
        memory = b"max_over_time" in self.path.encode()
        value = f"{100 * MI}" if memory else "0.25"
        self.wfile.write(self.body or json.dumps({"status": "success", "data": {"resultType": "matrix", "result": [
            {"metric": {"pod": "web-1", "container": "app"}, "values": [[START + 300 * n, value] for n in range(50)] + [[START, "NaN"]]}]}}).encode())  # fmt: skip

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    Server.asked, Server.body, Server.status = [], b"", 200
    with HTTPServer(("127.0.0.1", 0), Server) as found:
        thread = threading.Thread(target=found.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{found.server_port}"
        found.shutdown()


def test_a_prometheus_is_one_more_source(server: str) -> None:
    found = prometheus.spans(server, ["shop"], START + 300 * 50)
    span = found["shop", "web-1", "app"]
    assert len(Server.asked) == 2 and "namespace%3D%22shop%22" in Server.asked[0]
    seen = evidence(SampleHistory((span,)))
    assert seen.cpu_p95 == pytest.approx(250, rel=0.02) and seen.memory_highest == 100 * MI and seen.cpu_seconds == 300 * 49
    assert seen.fine == 0, "means over five minutes show no peak"


@pytest.mark.parametrize(
    "body", [b"<html>", b"[]", b'{"status":"error","error":"too many samples"}', b'{"status":"success","data":{"result":[{}]}}']
)
def test_an_odd_answer_is_an_error_with_a_way_out(server: str, body: bytes) -> None:
    Server.body = body
    with pytest.raises(PrometheusError, match="is it a Prometheus"):
        prometheus.spans(server, ["shop"], START)


@pytest.mark.parametrize("value", ["1e300", "1e999", "NaN", "-1"])
@pytest.mark.parametrize("at", [START, 1e300, -1, START + 400 * 86400])
def test_numbers_and_times_that_cannot_be_are_left_out(server: str, value: str, at: float) -> None:
    values = [[START, "1"], [at, value], [START + 400 * 86400, "1"], [-5, "1"]]
    Server.body = json.dumps(
        {"status": "success", "data": {"result": [{"metric": {"pod": "web-1", "container": "app"}, "values": values}]}}
    ).encode()
    [span] = prometheus.spans(server, ["shop"], START).values()
    assert (span.first, span.last.at, span.last.memory) == (START, START, 1)


def test_time_without_points_was_not_seen(server: str) -> None:
    values = [[START + 300 * n, "0.1"] for n in (0, 1, 2, 2000, 2001)]
    Server.body = json.dumps(
        {"status": "success", "data": {"result": [{"metric": {"pod": "p", "container": "app"}, "values": values}]}}
    ).encode()
    found = evidence(SampleHistory(tuple(prometheus.spans(server, ["shop"], START + 300 * 2002).values())))
    assert found.cpu_seconds == found.memory_seconds == 3 * 300 + 900


def test_a_redirect_is_not_followed(server: str) -> None:
    Server.status = 302
    with pytest.raises(PrometheusError, match="302"):
        prometheus.spans(server, ["shop"], START)
    assert len(Server.asked) == 1


def test_an_answer_that_is_no_http(server: str) -> None:
    Server.status = 0
    with pytest.raises(PrometheusError, match="check the address"):
        prometheus.spans(server, ["shop"], START)


def test_an_answer_that_never_ends(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "Deadline", lambda seconds: Deadline(0, as_given=True))
    with pytest.raises(PrometheusError, match="no whole answer within 0 s"):
        prometheus.get(f"{server}/api/v1/query_range")


def test_a_prometheus_that_is_not_there() -> None:
    with pytest.raises(PrometheusError, match="check the address"):
        prometheus.spans("http://127.0.0.1:1", ["shop"], START)


# ---- data keys


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"namespaces": "shop,../x"}, "not a valid namespace"),
        ({"min_span": "7"}, "not a duration"),
        ({"min_span": "-1h"}, "below 0"),
        ({"min_span": True}, "write a duration"),
        ({"prometheus": "file:///etc/passwd"}, "write http://HOST:9090"),
        ({"prometheus": "http://u:p@host"}, "a URL with a password"),
        ({"prometheus": "http://h:x"}, "write http://HOST:9090"),
        ({"prometheus": "http://h/\nx"}, "write http://HOST:9090"),
        ({"format": "jsn"}, "did you mean 'json'"),
        ({"only_objects": "web"}, "not NAMESPACE/KIND/NAME"),
        ({"only_objects": "shop/job/web"}, "is not one of Deployment"),
        ({"apply": True, "format": "json"}, "give the json document a file"),
        ({"watch": 4000}, "less than or equal to 3600"),
    ],
)
def test_bad_data(data: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        RightSizeOptions(**data)


@pytest.mark.parametrize("url", ["http://u:hunter2@host:99999", "http://u:hunter2@[host", "http://host/?token=hunter2", "http://h#hunter2"])
def test_a_secret_in_an_address_is_not_shown(url: str) -> None:
    with pytest.raises(ValidationError) as error:
        RightSizeOptions(prometheus=url)
    assert all("hunter2" not in item["msg"] for item in error.value.errors())


def test_the_workloads_of_a_run() -> None:
    found = RightSizeOptions.model_validate({"only_objects": "shop/deploy/web,blog/sts/db"})
    assert found.only_objects == ("shop/Deployment/web", "blog/StatefulSet/db") and found.read_namespaces == ("shop", "blog")
    assert found.chosen(WEB) and not found.chosen(SizedWorkload("DaemonSet", "shop", "web"))
    assert not RightSizeOptions.model_validate({"namespaces": "blog"}).chosen(WEB) and RightSizeOptions().chosen(WEB)


def test_good_data() -> None:
    found = RightSizeOptions.model_validate({"namespaces": "shop, blog", "min_span": 0, "prometheus": "https://p:9090/"})
    assert (found.namespaces, found.min_span_seconds, found.prometheus) == (("shop", "blog"), 0, "https://p:9090")
    assert RightSizeOptions().min_span_seconds == 7 * 86400 and RightSizeOptions(min_span="36h").min_span_seconds == 36 * 3600


# ---- amounts


@given(st.floats(0.5, 1e5))
def test_rounding_goes_up_and_not_far(amount: float) -> None:
    assert amount <= round_cpu(amount) + 1e-6 and round_cpu(amount) <= max(amount * 1.05 + 1e-6, amount + 1)
    size = amount * MI
    assert size <= round_memory(size) + 1 and round_memory(size) <= max(size * 1.07, size + MI)
    assert round_memory(size) % MI == 0


@given(st.floats(0.01, 1e6), st.floats(1, 1e14))
def test_what_is_rounded_is_written_as_the_quantity_that_it_is(millis: float, size: float) -> None:
    """An advice is shown, and applied, as text."""
    assert parse_quantity(cpu_text(round_cpu(millis))) * 1000 == round_cpu(millis)
    assert parse_quantity(memory_text(round_memory(size))) == round_memory(size)
    assert round_cpu(round_cpu(millis)) == round_cpu(millis) and round_memory(round_memory(size)) == round_memory(size)


@given(st.integers(1, 1000), st.integers(5, 10**6), st.integers(5, 10**6), st.integers(1, 10**7))
def test_a_corrected_target_keeps_the_count(percent: int, before: int, after: int, used: int) -> None:
    """Use over request by target is the ratio by which an autoscaler scales: with both changed it is the same, but for rounding."""
    new = corrected(UtilizationTarget("h", "cpu", percent), before, after)
    assert new >= 1
    exact = Fraction(percent * before, after)
    assert abs(new - exact) <= Fraction(1, 2) or (new == 1 and exact < 1)
    if exact >= 20:
        assert float(Fraction(used, after * new) / Fraction(used, before * percent)) == pytest.approx(1, rel=0.03)


def test_amounts_as_text() -> None:
    assert [cpu_text(one) for one in (0, 5, 250, 1000, 1500)] == ["0m", "5m", "250m", "1", "1500m"]
    assert [memory_text(one) for one in (0, 1000, 96 * MI, 2048 * MI, 1536 * MI, 96 * MI - 1)] == [
        "0Mi", "1Ki", "96Mi", "2Gi", "1536Mi", "96Mi",
    ]  # fmt: skip
    assert [span_text(one) for one in (0, 60, 119, 120, 7200, 3 * 86400)] == ["0 s", "60 s", "119 s", "2 min", "2 h", "3 d"]
    assert [rate_text(one * MI) for one in (2, 0.1, 0.001, 0.00001)] == ["2.0Mi a second", "6.0Mi a minute", "3.6Mi a hour", "0.9Mi a day"]
