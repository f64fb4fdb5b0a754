"""VerticalPodAutoscalers: what the updater does next, and what keeps them from working."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from roles.autoscalers.agreement import updated, vertical_agreement
from roles.engine.autoscaling import Autoscaler, JudgedVertical, judge_vertical
from roles.engine.autoscaling.vertical import Vertical, VerticalScene, outlook
from tests.unit.autoscaling.world import NOW, ago, average, hpa, text, utilization

PROVIDED = [{"type": "RecommendationProvided", "status": "True"}]


def vpa(mode: str | None = "InPlaceOrRecreate", name: str = "web", at: float = 3600, **more: Any) -> Vertical:
    """Recommends cpu 150m, 100m to 400m."""
    advice = {"containerName": "app", "target": {"cpu": "150m"}, "lowerBound": {"cpu": "100m"}, "upperBound": {"cpu": "400m"}}
    spec: dict[str, Any] = {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "updatePolicy": {}}
    if mode is not None:
        spec["updatePolicy"]["updateMode"] = mode
    if "least" in more:
        spec["updatePolicy"]["minReplicas"] = more["least"]
    if "bounds" in more:
        spec["resourcePolicy"] = {"containerPolicies": [{"containerName": "*", **more["bounds"]}]}
    status = more.get("status", {"recommendation": {"containerRecommendations": [advice]}, "conditions": PROVIDED})
    metadata = {"namespace": "shop", "name": name, "creationTimestamp": text(ago(at)), "uid": name}
    return Vertical.of({"metadata": metadata, "spec": spec, "status": status})


def pod(name: str = "web-1", cpu: str = "50m", running: float = 60, container: str = "c1", **more: Any) -> dict[str, Any]:
    resources = {"requests": {"cpu": cpu}} if cpu else {}
    return {
        "metadata": {"namespace": "shop", "name": name, "uid": name, "ownerReferences": [{"controller": True, "uid": "rs"}]},
        "spec": {"nodeName": more.pop("node", "w1"), "containers": [{"name": "app", "resources": resources}]},
        "status": {
            "phase": "Running",
            "startTime": text(ago(running)),
            "containerStatuses": [{"name": "app", "containerID": container, "restartCount": 0}],
            **more,
        },
    }


def scene(item: Vertical | None = None, *pods: dict[str, Any], **more: Any) -> VerticalScene:
    found = list(pods) if pods else [pod(), pod("web-2")]
    return VerticalScene(item or vpa(), {"metadata": {"name": "web"}}, "", found, minor=36, lease=ago(10), **more)


def rules(one: VerticalScene) -> dict[str, str]:
    return {found.rule: found.severity for found in judge_vertical(one, NOW).problems}


WAITING = [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]
RESIZING = [{"type": "PodResizeInProgress", "status": "True"}]


@pytest.mark.parametrize(
    ("one", "state", "words"),
    [
        (scene(), "acts", "resizes pod web-1 in place, within its next minutes: app cpu 50m is below 100m; 150m is recommended"),
        (scene(vpa("Recreate")), "acts", "evicts pod web-1"),
        (scene(vpa(None)), "acts", "evicts pod web-1"),
        (scene(vpa("Off")), "off", "changes no pod"),
        (scene(vpa("Initial")), "off", "2 of 2 pods have requests outside"),
        (scene(vpa(), pod(cpu="500m"), pod("web-2")), "acts", "is above 400m"),
        (scene(vpa(), pod(cpu=""), pod("web-2")), "acts", "app has no cpu request"),
        (scene(vpa(), pod(cpu="120m"), pod("web-2", "120m")), "done", "2 pods are within"),
        # In bounds, but old and far away.
        (scene(vpa(), pod(cpu="120m", running=13 * 3600), pod("web-2", "150m")), "acts", "25% away"),
        (scene(vpa(), pod(cpu="145m", running=13 * 3600), pod("web-2", "150m")), "done", ""),
        (scene(vpa(), pod()), "waits", "1 pod live, and it changes none below 2 (min_replicas)"),
        (scene(vpa(least=1), pod()), "acts", "resizes pod web-1"),
        (scene(vpa(), pod(), pod("web-2", node="")), "waits", "1 pod live"),
        (replace(scene(), lease=None), "waits", "has not renewed its lease"),
        (replace(scene(), lease=ago(90)), "waits", "lease for 90 s"),
        (scene(vpa(), pod(conditions=WAITING), pod("web-2", "150m")), "waits", "PodResizePending Deferred"),
        (scene(vpa(), pod(conditions=RESIZING), pod("web-2", "150m")), "acts", "has not finished the resize of pod web-1"),
        (scene(vpa(), pod(phase="Pending"), pod("web-2", "150m")), "waits", "is Pending"),
        (scene(vpa(status={})), "waits", "no recommendation yet"),
        (scene(None, others=(vpa(name="older", at=7200),)), "off", "shop/older controls"),
        (scene(None, others=(vpa(name="younger", at=60),)), "acts", "resizes"),
    ],
)
def test_what_the_updater_does_next(one: VerticalScene, state: str, words: str) -> None:
    found = outlook(one, NOW)
    assert found.state == state and words in found.text


def test_the_running_request_counts_not_that_of_the_spec() -> None:
    resized = pod(containerStatuses=[{"name": "app", "resources": {"requests": {"cpu": "150m"}}}])
    assert outlook(scene(vpa(), resized, pod("web-2", "150m")), NOW).state == "done"


def test_an_autoscaler_that_is_well_has_no_problem() -> None:
    assert not rules(scene()) and judge_vertical(scene(), NOW).works


@pytest.mark.parametrize(
    ("one", "rule", "severity"),
    [
        (VerticalScene(vpa(), None, "it does not exist", minor=36), "no-target", "critical"),
        (scene(None, others=(vpa(name="older", at=7200),)), "two-vertical-autoscalers", "critical"),
        (scene(None, others=(vpa(name="younger", at=60),)), "two-vertical-autoscalers", "warning"),
        (scene(None, autoscalers=(Autoscaler.of(hpa(utilization())),)), "vertical-autoscaler", "warning"),
        (replace(scene(), minor=32), "no-in-place", "critical"),
        (scene(vpa(status={})), "no-recommendation", "critical"),
        (scene(vpa(status={}, at=60)), "no-recommendation", "note"),
        (replace(scene(vpa(status={})), pods=()), "no-recommendation", "warning"),
        (scene(vpa(), pod()), "updater-waits", "warning"),
    ],
)
def test_each_problem(one: VerticalScene, rule: str, severity: str) -> None:
    assert rules(one)[rule] == severity


def test_no_conflict_by_amounts_or_other_resources_or_when_off() -> None:
    by_amount, memory = Autoscaler.of(hpa(average())), Autoscaler.of(hpa(utilization("memory")))
    assert "vertical-autoscaler" not in rules(scene(None, autoscalers=(by_amount,)))
    assert "vertical-autoscaler" not in rules(scene(vpa(bounds={"controlledResources": ["cpu"]}), autoscalers=(memory,)))
    assert "vertical-autoscaler" not in rules(scene(vpa("Off"), autoscalers=(Autoscaler.of(hpa(utilization())),)))


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ({"minAllowed": {"cpu": "2"}}, "the bound min is cpu 2000m for each container, and LimitRange shop/l allows at most 1000m"),
        (
            {"maxAllowed": {"memory": "32Mi"}},
            "the bound max is memory 32.0Mi for each container, and LimitRange shop/l needs at least 64.0Mi",
        ),
        ({"minAllowed": {"cpu": "1"}, "maxAllowed": {"memory": "64Mi"}}, ""),
        # The recommender lowers what is above by itself.
        ({"maxAllowed": {"cpu": "2"}}, ""),
    ],
)
def test_bounds_and_the_limit_range(bounds: dict[str, Any], words: str) -> None:
    limits = [{"type": "Container", "max": {"cpu": "1"}, "min": {"memory": "64Mi"}}, {"type": "Pod", "max": {"cpu": "100m"}}]
    ranges = [{"metadata": {"namespace": "shop", "name": "l"}, "spec": {"limits": limits}}]
    found = [one for one in judge_vertical(scene(vpa(bounds=bounds), limit_ranges=ranges), NOW).problems if one.rule == "limit-range"]
    assert [one.why.partition(":")[0] for one in found] == ([words] if words else [])
    assert all(one.severity == "critical" for one in found)
    elsewhere = [{**ranges[0], "metadata": {"namespace": "other", "name": "l"}}]
    assert "limit-range" not in rules(scene(vpa(bounds=bounds), limit_ranges=elsewhere))


def test_a_container_that_a_resize_restarts_is_named() -> None:
    container = {"name": "app", "resizePolicy": [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]}
    one = replace(scene(), item={"spec": {"template": {"spec": {"containers": [container]}}}})
    (found,) = judge_vertical(one, NOW).problems
    assert (found.rule, found.severity) == ("no-in-place", "note") and "a resize restarts app" in found.why


# ---- the proof


def judged(one: VerticalScene) -> JudgedVertical:
    return judge_vertical(one, NOW)


def test_the_proof_is_a_recommendation_and_what_the_updater_did() -> None:
    before, after = [pod(), pod("web-2", "150m")], [pod(cpu="150m"), pod("web-2", "150m")]
    waits = vertical_agreement(judged(scene(vpa(), *before)), late=False, first=before)
    assert not waits.proof and "the updater resizes pod web-1 in place" in waits.missing
    late = vertical_agreement(judged(scene(vpa(), *before)), late=True, first=before)
    assert "NOT PROVEN that the updater runs" in late.proof
    done = vertical_agreement(judged(scene(vpa(), *after)), late=False, first=before).proof
    assert "RecommendationProvided=True" in done and "recommended: app cpu 150m (100m to 400m)" in done
    assert "pod web-1 was resized in place, without a restart: app cpu 50m to 150m" in done and "NOT PROVEN" not in done


def test_no_recommendation_or_one_outside_of_the_bounds_is_no_proof() -> None:
    assert "no recommender has looked at it" in vertical_agreement(judged(scene(vpa(status={}))), late=True).missing
    unable = {"conditions": [{"type": "RecommendationProvided", "status": "False"}]}
    assert "has no recommendation" in vertical_agreement(judged(scene(vpa(status=unable))), late=True).missing
    old = vertical_agreement(judged(scene(vpa(bounds={"minAllowed": {"cpu": "200m"}}))), late=False)
    assert "not within the bounds yet" in old.missing
    nobody = vertical_agreement(judged(replace(scene(vpa(status={})), pods=())), late=False).proof
    assert "no sign that a recommender sees it" in nobody


def test_a_restart_and_a_new_pod_are_said() -> None:
    (found,) = updated([pod()], [pod(cpu="150m", container="c2")])
    assert "with a restart" in found
    assert updated([pod()], [pod("web-9")]) == ["pod web-9 is new"] and not updated([], [pod()])
    assert not updated([pod()], [pod()])


def test_a_lease_of_a_clock_that_is_ahead_is_young() -> None:
    assert outlook(replace(scene(), lease=NOW + timedelta(seconds=5)), NOW).state == "acts"
