"""Which requests are made for an autoscaler, and what becomes of their answers and errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from roles.engine.api import ApiConnectionLost, ApiError, NotFound
from roles.engine.api.errors import Invalid, Unreachable
from roles.engine.autoscaling import ScalingController, ScalingWorld, judge, judge_vertical, read_autoscalers, read_verticals
from roles.engine.autoscaling.model import NoReading, PodSamples, Total
from tests.unit.autoscaling.world import EACH, IN_ALL, NOW, ago, external, hpa, object_metric, pod, pods_metric, text, utilization

HPAS = "/apis/autoscaling/v2/horizontalpodautoscalers"
WEB = "/apis/apps/v1/namespaces/shop/deployments/web"
AVAILABLE = {"status": {"conditions": [{"type": "Available", "status": "True"}]}}


class Answers:
    """An API with these answers, by path without the page's limit; an exception is raised, and what is not there is not found."""

    host = "cp1"

    def __init__(self, found: Mapping[str, Any]) -> None:
        self.found = dict(found)
        self.asked: list[str] = []

    def get_json(self, path: str, timeout: float = 0.0, *, wait: float = 0.0) -> dict[str, Any]:
        plain = path.replace("&limit=500", "").replace("?limit=500", "")
        self.asked.append(plain)
        answer = self.found.get(plain, NotFound(self.host, plain, "404 Not Found", "check the name"))
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)


def world(item: dict[str, Any], **more: Any) -> tuple[ScalingWorld, Answers]:
    pods_path = "/api/v1/namespaces/shop/pods?labelSelector=app%3Dweb"
    found: dict[str, Any] = {
        HPAS: {"items": [item]},
        "/apis/apps": {"preferredVersion": {"version": "v1"}, "versions": [{"version": "v1"}]},
        "/apis/apps/v1": {"resources": [{"name": "deployments/scale", "kind": "Scale"}, {"name": "deployments", "kind": "Deployment"}]},
        f"{WEB}/scale": {"metadata": {"uid": "u"}, "spec": {"replicas": 1}, "status": {"replicas": 1, "selector": "app=web"}},
        WEB: {"metadata": {"namespace": "shop", "name": "web"}, "spec": {"template": {"spec": pod("x")["spec"]}}},
        pods_path: {"items": [pod("web-0")]},
        "/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods?labelSelector=app%3Dweb": {
            "items": [
                {
                    "metadata": {"name": "web-0", "namespace": "shop"},
                    "timestamp": text(ago(5)),
                    "window": "15s",
                    "containers": [{"name": "app", "usage": {"cpu": "50m"}}],
                }
            ]
        },
        "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io": AVAILABLE,
        **more.pop("answers", {}),
    }
    api = Answers(found)
    return read_autoscalers(api, ScalingController(36, leads_since=ago(9000)), NOW, **more), api  # type: ignore[arg-type]


def test_all_that_the_controller_reads() -> None:
    found, _ = world(hpa())
    (scene,) = found.scenes
    assert scene.scale is not None and (scene.scale.spec, scene.scale.selector) == (1, "app=web")
    assert [one["metadata"]["name"] for one in scene.pods] == ["web-0"]
    (reading,) = scene.readings
    assert isinstance(reading, PodSamples) and reading.samples["web-0"].value == 50
    assert found.metrics_apis == {"metrics.k8s.io": ""} and found.vpas == [] and found.not_known == ()
    (judged,) = judge(found, ScalingController(36), NOW)
    # New to the controller: it has not set a condition.
    assert [one.rule for one in judged.problems] == ["not-handled"] and judged.decision.rows[0].utilization == 50


def test_other_metrics_are_asked_as_the_controller_asks() -> None:
    custom = {"items": [{"describedObject": {"name": "web-0"}, "value": "7", "timestamp": text(ago(5))}]}
    answers = {
        "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/%2A/hits?labelSelector=app%3Dweb": custom,
        "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/ingresses.networking.k8s.io/main/hits": custom,
        "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/queue?labelSelector=q%3Da": {
            "items": [{"value": "9", "timestamp": text(ago(5))}]
        },
        "/apis/networking.k8s.io": {"preferredVersion": {"version": "v1"}, "versions": [{"version": "v1"}]},
        "/apis/networking.k8s.io/v1": {"resources": [{"name": "ingresses", "kind": "Ingress"}]},
    }
    queue = external(EACH)
    queue["external"]["metric"]["selector"] = {"matchLabels": {"q": "a"}}
    found, _ = world(hpa(pods_metric(), object_metric(IN_ALL), queue), answers=answers)
    values = [
        one.samples["web-0"].value if isinstance(one, PodSamples) else one.values
        for one in found.scenes[0].readings
        if not isinstance(one, NoReading)
    ]
    assert values == [7000, (7000,), (9000,)]
    assert "it is not registered" in found.metrics_apis["custom.metrics.k8s.io"]


def test_an_older_custom_metrics_api_is_asked_too() -> None:
    old = {
        "/apis/custom.metrics.k8s.io/v1beta1/namespaces/shop/pods/%2A/hits?labelSelector=app%3Dweb": {
            "items": [{"describedObject": {"name": "web-0"}, "value": "7"}]
        }
    }
    found, _ = world(hpa(pods_metric()), answers=old)
    assert isinstance(found.scenes[0].readings[0], PodSamples)


def one_answer(cpu: str = "50m", timestamp: str = text(ago(5)), window: str = "15s", name: str = "web-0") -> dict[str, Any]:
    containers = [{"name": "app", "usage": {"cpu": cpu}}]
    item = {"metadata": {"name": name}, "timestamp": timestamp, "window": window, "containers": containers}
    return {"items": [item]}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Unreachable("cp1", "/", "HTTP 503: not ready", "try again"), "unable to fetch metrics from resource metrics API: HTTP 503"),
        ({"items": []}, "no metrics returned from resource metrics API"),
        ({"items": "x"}, "its answer has another shape"),
        (one_answer(cpu="9" * 400), "out of the range"),
        (one_answer(cpu="9" * 30), "more than a number of 64 bits"),
        (one_answer(cpu="1e100"), "more than a number of 64 bits"),
        (one_answer(cpu="1e999999999"), "out of the range"),
        (one_answer(cpu="NaN"), "is not a quantity"),
        (one_answer(timestamp="2026-03-01T11:59:50"), "no time with a zone"),
        (one_answer(timestamp="tomorrow"), "its answer has another shape"),
        (one_answer(window="9999999h"), "longer than a duration can be"),
    ],
)
def test_a_metrics_api_may_answer_anything(answer: Any, words: str) -> None:
    found, _ = world(hpa(), answers={"/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods?labelSelector=app%3Dweb": answer})
    (reading,) = found.scenes[0].readings
    assert isinstance(reading, NoReading) and words in reading.why


def test_why_a_metrics_api_is_not_available() -> None:
    broken = {
        "spec": {"service": {"namespace": "kube-system", "name": "metrics-server"}},
        "status": {"conditions": [{"type": "Available", "status": "False", "reason": "MissingEndpoints", "message": "no endpoints"}]},
    }
    found, _ = world(hpa(), answers={"/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io": broken})
    assert found.metrics_apis["metrics.k8s.io"] == (
        "APIService v1beta1.metrics.k8s.io is not available (Service kube-system/metrics-server): MissingEndpoints: no endpoints"
    )


def test_a_target_that_cannot_be_read() -> None:
    gone, _ = world(hpa(), answers={f"{WEB}/scale": NotFound("cp1", "/", '404: deployments.apps "web" not found', "check")})
    assert "not found" in gone.scenes[0].scale_problem
    item = hpa()
    item["spec"]["scaleTargetRef"] = {"apiVersion": "apps/v1", "kind": "Rock", "name": "web"}
    strange, _ = world(item)
    assert strange.scenes[0].scale_problem == 'no matches for kind "Rock" in group "apps"'


def test_a_selector_that_the_api_server_refuses() -> None:
    answers = {
        f"{WEB}/scale": {"metadata": {}, "spec": {"replicas": 1}, "status": {"replicas": 1, "selector": "a=b=c"}},
        "/api/v1/namespaces/shop/pods?labelSelector=a%3Db%3Dc": Invalid("cp1", "/", "HTTP 400: unable to parse requirement", "correct it"),
    }
    found, _ = world(hpa(), answers=answers)
    assert "unable to parse" in found.scenes[0].selector_problem


def test_what_decides_besides_is_optional() -> None:
    forbidden = ApiError("cp1", "/", "403 Forbidden", "grant it")
    found, _ = world(hpa(), answers={"/api/v1/namespaces/shop/resourcequotas": forbidden})
    assert found.quotas is None and "resourcequotas" in found.not_known[0]


def test_a_lost_connection_is_no_answer() -> None:
    for path in (f"{WEB}/scale", "/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods?labelSelector=app%3Dweb"):
        with pytest.raises(ApiConnectionLost):
            world(hpa(), answers={path: ApiConnectionLost("cp1", "/", "lost", "connect")})


def test_an_autoscaler_that_cannot_be_read_hides_no_other() -> None:
    odd = hpa(utilization())
    odd["metadata"] = {**odd["metadata"], "name": "odd"}
    odd["spec"] = {**odd["spec"], "metrics": [pods_metric("much")]}
    found, _ = world(hpa(), answers={HPAS: {"items": [odd, hpa()]}})
    assert [one.autoscaler.name for one in found.scenes] == ["web"] and "shop/odd" in found.not_known[0]


@pytest.mark.parametrize("at", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59"])
def test_times_at_the_ends_of_the_calendar_stop_nothing(at: str) -> None:
    """A node sets them in the status of its pods."""
    path = "/api/v1/namespaces/shop/pods?labelSelector=app%3Dweb"
    young = {"phase": "Running", "startTime": at, "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at}]}
    found, _ = world(hpa(status={"lastScaleTime": at}), answers={path: {"items": [{**pod("web-0"), "status": young}]}})
    (judged,) = judge(found, ScalingController(36), NOW)
    assert judged.decision.current == 1 and "not-judged" not in [one.rule for one in judged.problems]


def test_an_autoscaler_that_cannot_be_judged_hides_no_other() -> None:
    odd, path = hpa(), "/api/v1/namespaces/shop/pods?labelSelector=app%3Dodd"
    odd["metadata"] = {**odd["metadata"], "name": "odd"}
    odd["spec"] = {**odd["spec"], "scaleTargetRef": {**odd["spec"]["scaleTargetRef"], "name": "odd"}}
    target = WEB.replace("web", "odd")
    answers = {
        HPAS: {"items": [odd, hpa()]},
        f"{target}/scale": {"metadata": {"uid": "v"}, "spec": {"replicas": 1}, "status": {"replicas": 1, "selector": "app=odd"}},
        target: {"metadata": {"namespace": "shop", "name": "odd"}, "spec": {}},
        path: {"items": [{**pod("odd-0"), "status": {"phase": "Running", "startTime": "soon", "conditions": [{"type": "Ready"}]}}]},
        "/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods?labelSelector=app%3Dodd": one_answer(name="odd-0"),
    }
    found, _ = world(hpa(), answers=answers)
    strange, web = judge(found, ScalingController(36), NOW)
    assert web.autoscaler.name == "web" and [one.rule for one in web.problems] == ["not-handled"]
    (one,) = strange.problems
    assert (one.rule, one.severity, one.objects) == ("not-judged", "warning", ("HorizontalPodAutoscaler shop/odd",))
    assert "soon" in one.why and strange.decision.desired is None and not strange.decision.failed


def test_a_vertical_one_that_cannot_be_judged_hides_no_other() -> None:
    bad = {**vertical("bad"), "status": {"conditions": [{"type": "RecommendationProvided", "status": "True"}]}}
    bad["spec"] = {**bad["spec"], "resourcePolicy": {"containerPolicies": ["all"]}}
    api = Answers({VPAS: {"items": [bad, vertical("lost", "gone")]}})
    found = [judge_vertical(scene, NOW) for scene in read_verticals(api, 36).scenes]  # type: ignore[arg-type]
    assert [one.vertical.name for one in found] == ["bad", "lost"]
    assert [one.rule for one in found[0].problems] == ["not-judged"] and [one.rule for one in found[1].problems] == ["no-target"]


def test_totals_are_typed() -> None:
    assert Total((1,)).oldest is None


# ---- vertical ones

VPAS = "/apis/autoscaling.k8s.io/v1/verticalpodautoscalers"
ADMISSION = "/apis/coordination.k8s.io/v1/leases?fieldSelector=metadata.name%3Dvpa-admission-controller"


def vertical(name: str, target: str = "web", kind: str = "Deployment") -> dict[str, Any]:
    return {"metadata": {"namespace": "shop", "name": name}, "spec": {"targetRef": {"kind": kind, "name": target}}}


def test_all_that_decides_about_vertical_ones() -> None:
    workload = {"metadata": {"namespace": "shop", "name": "web"}, "spec": {"selector": {"matchLabels": {"app": "web"}}}}
    leases = [{"metadata": {}, "spec": {"renewTime": text(ago(one))}} for one in (90, 5)]
    api = Answers(
        {
            VPAS: {"items": [vertical("two"), vertical("one"), vertical("lost", "gone"), vertical("cron", "x", "CronJob")]},
            HPAS: {"items": [hpa()]},
            "/api/v1/limitranges": Unreachable("cp1", "x", "timed out", "check it"),
            ADMISSION: {"items": leases},
            WEB: workload,
            "/api/v1/namespaces/shop/pods?labelSelector=app%3Dweb": {
                "items": [pod("web-0"), {**pod("web-1"), "status": {"phase": "Failed"}}]
            },
        }
    )
    found = read_verticals(api, 36)  # type: ignore[arg-type]
    assert found.installed and [one.vertical.name for one in found.scenes] == ["cron", "lost", "one", "two"]
    cron, lost, one, two = found.scenes
    assert [other.name for other in one.others] == ["two"] and [other.name for other in two.others] == ["one"]
    assert [item["metadata"]["name"] for item in one.pods] == ["web-0"] and one.lease == ago(5)
    assert [auto.key for auto in one.autoscalers] == ["shop/web"] and not lost.autoscalers
    assert lost.problem == "it does not exist" and not cron.problem
    assert any("the pods of a CronJob are not looked at" in text for text in found.not_known)
    assert any(text.startswith("limitranges: ") for text in found.not_known)


def test_a_cluster_without_vertical_ones() -> None:
    assert not read_verticals(Answers({}), 36).installed  # type: ignore[arg-type]
    denied = read_verticals(Answers({VPAS: Unreachable("cp1", "x", "timed out", "check it")}), 36)  # type: ignore[arg-type]
    assert denied.installed and not denied.scenes and "verticalpodautoscalers" in denied.not_known[0]
    with pytest.raises(ApiConnectionLost):
        read_verticals(Answers({VPAS: ApiConnectionLost("cp1", "x", "gone", "again")}), 36)  # type: ignore[arg-type]


def test_planned_ones_stand_for_those_of_the_cluster() -> None:
    api = Answers({WEB: {"metadata": {"name": "web"}, "spec": {}}})
    found = read_verticals(api, 36, {"shop"}, [vertical("new")], [])  # type: ignore[arg-type]
    assert [one.vertical.name for one in found.scenes] == ["new"] and not any("verticalpod" in path for path in api.asked)
