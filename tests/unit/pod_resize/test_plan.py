"""From pods and desired resources to steps and refusals."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.pod_resize import PodStep, pod_resources
from roles.pod_resize import plan as planning
from roles.pod_resize.plan import ResizePlan, ResourceChange
from tests.unit.pod_resize.world import MI, SMALL, ability, container, desired, held, node, pod, state

LARGE = {"requests": {"cpu": "300m", "memory": "600Mi"}, "limits": {"memory": "600Mi"}}
BOTH = {"requests": {"cpu": "100m", "memory": "200Mi"}, "limits": {"cpu": "200m", "memory": "300Mi"}}


def make(*pods: dict[str, Any], version: str = "v1.36.3", usage: int = 10 * MI, **values: Any) -> ResizePlan:
    return planning.plan_resize(desired(**values), pods, ability(version), held(usage), ["w1"])


def refusal(plan: ResizePlan) -> str:
    assert len(plan.refusals) == 1 and plan.steps == [], plan
    return plan.refusals[0]


def test_the_amounts_are_request_and_limit_if_there_is_one() -> None:
    (step,) = make(pod(), cpu="300m", memory="600Mi").steps
    assert step == PodStep("shop", "web-1", "u-web-1", "w1", {"app": ResourceChange(SMALL, LARGE)})
    assert step.summary == "app: cpu 100m/-, memory 200Mi/200Mi -> cpu 300m/-, memory 600Mi/600Mi"


def test_only_changes_are_requested_and_only_of_the_same_pod() -> None:
    (step,) = make(pod(), cpu="300m").steps
    change = step.change(36)
    (request,) = change.kind.requests(change.before or {}, change.sets)
    assert request.body == {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "300m"}}}]}}
    assert change.before and change.before["metadata"]["uid"] == "u-web-1"


def test_the_form_of_the_api() -> None:
    (step,) = make(pod(), cpu="300m").steps
    old, new = step.change(31), step.change(32)
    assert old.path == new.path == old.kind.target_of(old.path) == "/api/v1/namespaces/shop/pods/web-1"
    assert new.kind.target_of(new.path) == f"{new.path}/resize"


def test_requests_and_limits_separately() -> None:
    (step,) = make(pod("web-1", container("app", BOTH)), cpu_request="150m", memory_limit="400Mi").steps
    assert step.after["app"] == {"requests": {"cpu": "150m", "memory": "200Mi"}, "limits": {"cpu": "200m", "memory": "400Mi"}}


def test_a_new_limit_is_also_the_request() -> None:
    (step,) = make(pod("web-1", container("app", {"requests": {"memory": "1Mi"}})), cpu_limit="1").steps
    assert step.after["app"] == {"requests": {"memory": "1Mi", "cpu": "1"}, "limits": {"cpu": "1"}}


def test_a_pod_that_has_it_already_stays() -> None:
    plan = make(pod(), cpu="0.1", memory="209715200")
    assert plan.steps == [] == plan.refusals and plan.unchanged == [("shop/web-1", "has it already: app: cpu 100m/-, memory 200Mi/200Mi")]


@given(st.sampled_from(("100m", "300m", "1")), st.sampled_from(("200Mi", "600Mi", "1Gi")))
def test_the_plan_after_a_run_is_empty_and_the_undo_restores(cpu: str, memory: str) -> None:
    plan = make(pod(), cpu=cpu, memory=memory)
    for step in plan.steps:
        done = pod("web-1", container("app", step.after["app"]), status={"containerStatuses": [state("app", step.after["app"])]})
        assert make(done, cpu=cpu, memory=memory).steps == []
        back = planning.plan_undo([step], [done], ability(), held(), ["w1"], desired())
        assert [one.after for one in back.steps] == [{"app": SMALL}]
        assert step.back().back() == step


def test_pods_in_order_without_finished_ones() -> None:
    going = pod("web-3", metadata={"deletionTimestamp": "now"})
    plan = make(pod("web-2"), pod("web-1"), going, pod("web-4", phase="Succeeded"), pod("web-5", phase="Failed"), cpu="1")
    assert [step.name for step in plan.steps] == ["web-1", "web-2"] and plan.notes == ["shop/web-3 is being deleted, and is skipped"]


def test_no_pods() -> None:
    assert refusal(make(cpu="1")) == "Deployment shop/web: it has no pods now, so there is nothing to resize"


def test_pods_with_the_same_problem_are_reported_once() -> None:
    plan = make(*(pod(f"web-{number}", phase="Pending") for number in range(9)), cpu="1")
    assert refusal(plan).startswith(
        "shop/web-0, shop/web-1, shop/web-2, shop/web-3, shop/web-4 and 4 more: it does not run (phase Pending)"
    )


@pytest.mark.parametrize(
    ("item", "values", "words"),
    [
        (pod(metadata={"annotations": {"kubernetes.io/config.mirror": "x"}}), {"cpu": "1"}, "it is a static pod"),
        (pod(spec={"os": {"name": "windows"}}), {"cpu": "1"}, "it is a Windows pod"),
        (pod(spec={"resources": {"limits": {"cpu": "1"}}}), {"cpu": "1"}, "it has pod-level resources"),
        (pod("p", container("a"), container("b")), {"cpu": "1"}, "it has several containers (a, b); name some, or all: --data container=a, or --data container=all"),
        (pod(), {"cpu": "1", "container": "sidecar"}, "it has no container sidecar; it has app"),
        (pod(spec={"initContainers": [container("init")]}), {"cpu": "1", "container": "init"}, "init is an init container"),
        (pod("p", container("app", BOTH)), {"cpu": "300m", "memory": "600Mi"}, "would change from Burstable to Guaranteed"),
        (pod("p", container("app", {})), {"cpu": "1"}, "would change from BestEffort to Burstable"),
        (pod("p", container("app", BOTH)), {"cpu_request": "300m"}, "its cpu request would be 300m, above its limit 200m"),
        (pod(status={"resize": "Deferred"}), {"cpu": "1"}, "a resize of it is already in progress (Deferred)"),
        (pod(node="w9"), {"cpu": "1"}, "it runs on w9, which is not a reachable host of the inventory"),
        (pod(status={"containerStatuses": [{"name": "app", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}), {"cpu": "1"},
         "its container app does not run (CrashLoopBackOff)"),
        (pod("p", container("app", policy="RestartContainer")), {"cpu": "1"}, "app would be restarted, as its resizePolicy says"),
    ],
)  # fmt: skip
def test_pods_that_cannot_be_resized(item: dict[str, Any], values: dict[str, Any], words: str) -> None:
    assert words in refusal(make(item, **values))


def test_all_containers() -> None:
    (step,) = make(pod("p", container("a"), container("b")), cpu="1", container="all").steps
    assert set(step.changes) == {"a", "b"}
    (step,) = make(pod("p", container("a"), container("b")), cpu="1", container="b").steps
    assert set(step.changes) == {"b"}


def test_a_restart_with_consent() -> None:
    (step,) = make(pod("p", container("app", policy="RestartContainer")), cpu="1", allow_restarts=True).steps
    assert step.changes["app"].restarts and "restarts it, as its resizePolicy says" in step.summary


def test_a_limit_below_what_is_used() -> None:
    assert make(pod(), memory="100Mi", usage=100 * MI).refusals == []
    assert "the memory limit 100Mi is below its current usage, 101Mi" in refusal(make(pod(), memory="100Mi", usage=100 * MI + 1))
    assert make(pod("p", container("app", policy="RestartContainer")), memory="1Mi", usage=MI * 9, allow_restarts=True).refusals == []


def test_a_lower_limit_with_unknown_usage() -> None:
    plan = planning.plan_resize(desired(memory="100Mi"), [pod()], ability(), {}, ["w1"])
    assert "its current usage could not be read on w1; run this again, or do not lower the limit" in refusal(plan)
    assert planning.plan_resize(desired(memory="900Mi"), [pod()], ability(), {}, ["w1"]).refusals == []


def test_1_33_lowers_no_memory_without_a_restart() -> None:
    assert "1.33 cannot lower a memory limit without a restart" in refusal(make(pod(), memory="100Mi", version="v1.33.4"))
    assert make(pod(), memory="100Mi", version="v1.34.0").refusals == []


def test_a_node_that_cannot() -> None:
    whole = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
    seen = ability("v1.36.3", {}, node(configuration={"cpuManagerPolicy": "static"}))
    plan = planning.plan_resize(desired(cpu="2"), [pod("p", container("app", whole))], seen, held(), ["w1"])
    assert "static CPU manager" in refusal(plan)


def test_undo() -> None:
    step = PodStep("shop", "web-1", "u-web-1", "w1", {"app": ResourceChange(SMALL, LARGE)})
    gone = PodStep("shop", "web-9", "u-web-9", "w1", {"app": ResourceChange(SMALL, LARGE)})
    other = PodStep("shop", "web-2", "u-web-2", "w1", {"app": ResourceChange(SMALL, LARGE)})
    now = [pod(f"web-{number}", container("app", LARGE), status={"containerStatuses": [state("app", LARGE)]}) for number in (1, 2)]
    plan = planning.plan_undo([step, gone, other], now, ability(), held(), ["w1"], desired())
    assert [one.name for one in plan.steps] == ["web-2", "web-1"], "the last one first"
    assert plan.unchanged == [("shop/web-9", "is gone; its replacement has the template's resources")] and plan.refusals == []
    untouched = planning.plan_undo([step], [pod()], ability(), held(), ["w1"], desired())
    assert untouched.steps == [] and untouched.unchanged[0][0] == "shop/web-1"


def test_undo_does_not_overwrite_later_changes_of_others() -> None:
    step = PodStep("shop", "web-1", "u-web-1", "w1", {"app": ResourceChange(SMALL, LARGE)})
    theirs = {"requests": {"cpu": "700m", "memory": "200Mi"}, "limits": {"memory": "200Mi"}}
    now = pod("web-1", container("app", theirs), status={"containerStatuses": [state("app", theirs)]})

    def undo(outcome: str) -> planning.ResizePlan:
        return planning.plan_undo([step], [now], ability(), held(), ["w1"], desired(), {"u-web-1": outcome})

    assert "shop/web-1: its resources were changed since that run (app: " in undo("done").refusals[0] and undo("done").steps == []
    forced = planning.plan_undo([step], [now], ability(), held(), ["w1"], desired(), {"u-web-1": "done"}, force=True)
    assert [one.after for one in forced.steps] == [{name: change.before for name, change in step.changes.items()}]
    assert undo("foreign").unchanged[0][0] == "shop/web-1" and undo("foreign").steps == [] == undo("foreign").refusals
    assert undo("revert-failed").steps, "an unfinished resize is reverted, whatever the pod has"


def test_undo_of_an_added_limit_says_why_not() -> None:
    before = {"requests": {"cpu": "100m"}}
    after = {"requests": {"cpu": "100m"}, "limits": {"cpu": "200m"}}
    step = PodStep("shop", "web-1", "u-web-1", "w1", {"app": ResourceChange(before, after)})
    plan = planning.plan_undo([step], [pod("web-1", container("app", after))], ability(), held(), ["w1"], desired())
    assert "app had no limits.cpu before, and a running pod cannot lose it" in plan.refusals[0]


def test_texts() -> None:
    assert pod_resources.resources_text({}) == "nothing" and planning.mebibytes(1) == "1Mi" and planning.mebibytes(MI) == "1Mi"
