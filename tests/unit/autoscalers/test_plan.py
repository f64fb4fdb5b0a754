"""Actions, refusals and notes; the agreement with the controller; the undo; the report."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from roles.autoscaler_status import report
from roles.autoscalers import (
    KINDS,
    AutoscalerWriter,
    DesiredAutoscalers,
    check_only,
    explain,
    explain_vertical,
    planned,
    read_desired,
    settling,
    with_result,
)
from roles.autoscalers.agreement import agreement, vertical_agreement
from roles.engine import disruption
from roles.engine.api import Api
from roles.engine.autoscaling import (
    HPA,
    Autoscaler,
    JudgedAutoscaler,
    JudgedVertical,
    ScalingController,
    ScalingRule,
    ScalingWorld,
    judge,
    judge_vertical,
)
from roles.engine.autoscaling.controller import Leadership
from roles.engine.autoscaling.decide import ScalingScene
from roles.engine.autoscaling.limits import ScalingHistory
from roles.engine.autoscaling.look import AutoscalerLook
from roles.engine.autoscaling.model import Idle, LiveScale, NoReading
from roles.engine.autoscaling.owners import LAST_APPLIED
from roles.engine.autoscaling.read import Target
from roles.engine.autoscaling.vertical import Vertical, VerticalScene
from roles.engine.kube import Object
from roles.engine.objects import NotDone, ObjectChange, ObjectPlan
from tests.unit.autoscaling.world import KCM, NOW, hpa, pods, samples
from tests.unit.clock import Clock

KIND = KINDS[HPA]
WEB = {"min": 1, "max": 10, "cpu": "50%"}
PATH = "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers/web"


def desired(entry: Any = WEB, **more: Any) -> DesiredAutoscalers:
    found = read_desired([("cp1", {"autoscalers": {"shop/deployment/web": entry}, **more}.get)])
    assert found is not None
    return found


def live(manager: str = "daytwo", operation: str = "Apply", **more: Any) -> dict[str, Any]:
    fields = {"f:spec": {"f:maxReplicas": {}, "f:minReplicas": {}, "f:metrics": {}, "f:scaleTargetRef": {}}}
    found = hpa(**more)
    found["metadata"] |= {"uid": "u1", "managedFields": [{"manager": manager, "operation": operation, "fieldsV1": fields}]}
    return found


def test_what_daytwo_has_patched_too_is_still_its_own() -> None:
    """right_size writes the target of an autoscaler that daytwo applied: the API server then has two managers of that name."""
    found = live()
    patched = {"manager": "daytwo", "operation": "Update", "fieldsV1": {"f:spec": {"f:metrics": {}}}}
    found["metadata"]["managedFields"].append(patched)
    assert KIND.is_ours(found) and not KIND.others(found, ("spec", "metrics"))
    found["metadata"]["managedFields"].append({**patched, "manager": "kubectl-edit"})
    assert not KIND.is_ours(found) and KIND.others(found, ("spec", "metrics")) == ["kubectl-edit (Update)"]
    assert not KIND.is_ours(live(operation="Update")), "a manager named daytwo that does not apply"


def action_of(data: DesiredAutoscalers, found: dict[str, Any] | None) -> tuple[ObjectChange | None, ObjectPlan]:
    plan = ObjectPlan()
    return planned(data.entries[0], found, data, plan), plan


def created(entry: Any = WEB) -> tuple[ObjectChange, ObjectPlan]:
    made, plan = action_of(desired(entry), None)
    assert made is not None
    return made, plan


def test_a_new_one_is_created_and_the_same_one_is_left() -> None:
    made, _ = action_of(desired(), None)
    assert made is not None and (made.what, made.path, made.name) == ("create", PATH, "HorizontalPodAutoscaler shop/web")
    update, plan = action_of(desired(), live())
    assert update is not None and update.manifest is not None and update.manifest["metadata"]["uid"] == "u1"
    assert with_result(update, live(), plan) is None
    assert plan.unchanged == [("HorizontalPodAutoscaler shop/web", "as wanted")]


def test_the_dry_run_says_what_changes() -> None:
    update, plan = action_of(desired({**WEB, "max": 20}), live())
    assert update is not None
    found = with_result(update, live(maximum=20), plan)
    assert found is not None and found.summary == "set maxReplicas"
    assert [(one.path, one.before, one.after) for one in found.fields] == [(("spec", "maxReplicas"), 10, 20)]
    assert "+  maxReplicas: 20" in found.shown


def test_a_tolerance_that_the_cluster_drops_is_refused() -> None:
    wanted = {**WEB, "behavior": {"scaleUp": {"tolerance": "0.05"}}}
    made, plan = action_of(desired(wanted), None)
    assert made is not None
    assert with_result(made, live(behavior={"scaleUp": {"selectPolicy": "Max"}}), plan) is None
    assert "this cluster drops it" in plan.refusals[0] and "deploys/feature_gates.py" in plan.refusals[0]
    assert with_result(made, live(behavior={"scaleUp": {"tolerance": "50m"}}), ObjectPlan()) is not None


def test_only_what_daytwo_owns_is_removed() -> None:
    removal, plan = action_of(desired("absent"), live())
    assert removal is not None and removal.manifest is None and not plan.refusals
    removal, plan = action_of(desired("absent"), live("helm", "Update"))
    assert removal is None and "helm (Update) created it" in plan.refusals[0]
    removal, plan = action_of(desired("absent", force=True), live("helm", "Update"))
    assert removal is not None
    removal, plan = action_of(desired("absent"), None)
    assert removal is None and plan.unchanged[0][1] == "absent, as wanted"


def test_two_entries_of_one_name_and_unknown_names() -> None:
    value = {"shop/deployment/web": WEB, "shop/statefulset/web": WEB}
    found = read_desired([("cp1", {"autoscalers": value}.get)])
    assert found is not None
    plan = ObjectPlan()
    check_only(found, plan)
    assert "two entries of the data have this name" in plan.refusals[0]
    plan = ObjectPlan()
    check_only(desired(only_objects="shop/deployment/wep"), plan)
    assert "did you mean 'shop/deployment/web'?" in plan.refusals[0]


# ---- what it means


def judged(
    item: dict[str, Any], reading: Any = None, current: int = 2, controller: ScalingController = KCM
) -> JudgedAutoscaler:  # fmt: skip
    autoscaler = Autoscaler.of(item)
    readings = [samples(*[50] * current) if reading is None else reading]
    # Nobody else changes the count.
    scene = ScalingScene(
        autoscaler, LiveScale(current, current, "app=web"), "", pods(current), readings, history=ScalingHistory(ceiling=current)
    )
    template = {"spec": {"template": {"spec": pods(1)[0]["spec"]}}, "metadata": {"namespace": "shop", "name": "web"}}
    (found,) = judge(ScalingWorld((scene,), {autoscaler.key: Target("/p", template)}), controller, NOW)
    return found


def test_a_plan_says_what_the_controller_would_do() -> None:
    made, plan = created()
    found = explain(made, judged(hpa()), KCM, plan, consent=False)
    assert not plan.refusals and not found.unproven
    assert found.notes[:2] == ("now: stays at 2", "cpu 50%/50%: asks for 2; up above 55%, down below 25%")


def test_a_plan_names_budgets_that_block_at_the_minimum() -> None:
    made, plan = created()
    one = disruption.DisruptionRule.AUTOSCALER_MINIMUM.found(
        ("PodDisruptionBudget shop/web", "Deployment shop/web"), "it needs 1", "raise min"
    )
    other = disruption.DisruptionRule.AUTOSCALER_MINIMUM.found(("PodDisruptionBudget shop/db", "Deployment shop/db"), "x", "y")
    found = explain(made, judged(hpa()), KCM, plan, [one, other], consent=False)
    assert [note for note in found.notes if "Budget" in note] == [
        "WARNING: PodDisruptionBudget shop/web: needs-autoscaler-minimum: it needs 1; raise min"
    ]


def test_a_plan_refuses_what_cannot_work_unless_there_is_consent() -> None:
    made, plan = created()
    broken = judged(hpa(), NoReading("no metrics returned from resource metrics API"))
    explain(made, broken, KCM, plan, consent=False)
    assert len(plan.refusals) == 1 and "no-metric" in plan.refusals[0] and "allow_problems=true" in plan.refusals[0]
    plan = ObjectPlan()
    found = explain(made, broken, KCM, plan, consent=True)
    assert not plan.refusals and found.unproven == ("no-metric",)


def seen(desired_replicas: int, *, conditions: dict[str, tuple[str, str]] | None = None, metrics: int = 1) -> dict[str, Any]:
    good = {
        "AbleToScale": ("True", "ReadyForNewScale"),
        "ScalingActive": ("True", "ValidMetricFound"),
        "ScalingLimited": ("False", "DesiredWithinRange"),
    }
    listed = [{"type": kind, "status": state, "reason": reason} for kind, (state, reason) in (conditions or good).items()]
    current = {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 50}}}
    return hpa(
        status={"desiredReplicas": desired_replicas, "currentReplicas": 2, "conditions": listed, "currentMetrics": [current] * metrics}
    )


def test_the_controller_agrees() -> None:
    found = agreement(judged(seen(2)), new_sync=True)
    assert (
        found.proof.endswith("desiredReplicas 2, and daytwo computes 2 (cpu 50%/50%)")
        and "ScalingActive=True ValidMetricFound" in found.proof
    )


@pytest.mark.parametrize(
    ("item", "new", "missing"),
    [
        (hpa(), True, "has not set any condition on it"),
        (seen(2), False, "may not have looked at it since the change"),
        (seen(5), True, "desiredReplicas is 5, and daytwo computes 2"),
        (seen(2, metrics=0), True, "currentMetrics has 0 of 1 metrics"),
        (seen(2, conditions={"AbleToScale": ("False", "FailedGetScale")}), True, "FailedGetScale"),
        (
            seen(2, conditions={"AbleToScale": ("True", "SucceededGetScale"), "ScalingActive": ("False", "FailedGetResourceMetric")}),
            True,
            "FailedGetResourceMetric",
        ),
        (seen(2, conditions={"AbleToScale": ("True", "SucceededRescale")}), True, "there is no condition ScalingActive"),
    ],
)
def test_the_controller_does_not_agree_yet(item: dict[str, Any], new: bool, missing: str) -> None:
    found = agreement(judged(item), new_sync=new)
    assert not found.proof and missing in found.missing


def test_what_cannot_be_judged_is_not_proven() -> None:
    odd = ScalingRule.NOT_JUDGED.found(("HorizontalPodAutoscaler shop/web",), "it cannot be judged: x")
    found = agreement(replace(judged(seen(2)), problems=(odd,)), new_sync=True)
    assert not found.proof and found.missing == "it cannot be judged: x"
    assert vertical_agreement(advised(), late=True).proof
    assert not vertical_agreement(replace(advised(), problems=(odd,)), late=True).proof


def test_old_conditions_prove_nothing_while_nobody_leads() -> None:
    idle = replace(KCM, stopped=Idle("nobody leads", "start it"))
    found = agreement(judged(seen(2), controller=idle), new_sync=True)
    assert not found.proof and found.missing == "nobody leads"
    # The plan says it before anything is written, also for one that is new.
    for item in (seen(2), hpa()):
        made, plan = created()
        explain(made, judged(item, controller=idle), idle, plan, consent=False)
        assert len(plan.refusals) == 1 and "not-handled: nobody leads; start it" in plan.refusals[0]
    made, plan = created()
    explain(made, judged(hpa()), KCM, plan, consent=False)
    assert not plan.refusals
    shown = report.as_document(AutoscalerLook(NOW, idle, ScalingWorld(), ())).model_dump(mode="json")["controller"]
    assert shown["idle"] == "nobody leads"


def test_an_update_is_not_proven_by_old_conditions_if_the_leader_is_not_known() -> None:
    found = agreement(judged(seen(2)), new_sync=True, unseen="the lease of kube-controller-manager cannot be read")
    assert "NOT PROVEN that the controller has looked at it since the change: the lease of" in found.proof


@pytest.mark.parametrize(("age", "proof"), [(None, "NOT PROVEN that the controller has looked"), (1, "daytwo computes 2"), ("all", "")])
def test_an_update_needs_a_leader_that_still_leads(monkeypatch: pytest.MonkeyPatch, age: Any, proof: str) -> None:
    """A leader that ended right after the write has looked at nothing: its lease is as old as the wait."""
    clock = Clock()
    monkeypatch.setattr("roles.engine.timeouts.time", clock)
    found = live(status=seen(2)["status"])

    class Writer(AutoscalerWriter):
        def _judged(self, api: Api, found: Object) -> tuple[Leadership, JudgedAutoscaler]:
            return Leadership(NOW, {}, clock.now - 1000 if age == "all" else age), judged(found)

    session = SimpleNamespace(fetch=lambda path: found, asked=lambda ask, what: ask(None))
    writer = Writer(session, KCM, force=False, proof_seconds=40)  # type: ignore[arg-type]
    action = ObjectChange(KIND, "update", "shop", "web", found, {}, "", result=KIND.values(found))
    if proof:
        assert proof in writer.proven(action, "u1")
        assert clock.now - 1000 > KCM.sync_period
    else:
        with pytest.raises(NotDone, match="may not have looked at it since the change"):
            writer.proven(action, "u1")


def test_zero_replicas_are_proven_as_disabled() -> None:
    conditions = {"AbleToScale": ("True", "SucceededGetScale"), "ScalingActive": ("False", "ScalingDisabled")}
    item = hpa(
        status={
            "desiredReplicas": 0,
            "conditions": [{"type": kind, "status": state, "reason": reason} for kind, (state, reason) in conditions.items()],
        }
    )
    assert "desiredReplicas 0" in agreement(judged(item, current=0), new_sync=True).proof


# ---- replicas in the annotation


def test_settling_takes_only_replicas_out() -> None:
    applied = {"spec": {"replicas": 3, "paused": False}}
    item = {"metadata": {"namespace": "shop", "name": "web", "uid": "u", "annotations": {LAST_APPLIED: json.dumps(applied)}}}
    (one,) = settling([("Deployment", item)])
    assert one.manifest is not None and one.about["uid"] == "u"
    assert json.loads(one.after["metadata", "annotations", LAST_APPLIED]) == {"spec": {"paused": False}}
    (field,) = one.fields
    assert json.loads(field.before) == applied
    assert settling([("Deployment", {"metadata": {"namespace": "shop", "name": "web", "uid": "u"}})]) == []


# ---- the report


def test_a_line_for_each_metric_and_its_json() -> None:
    good, bad = judged(seen(2)), judged(hpa(), NoReading("no metrics returned from resource metrics API"))
    lines = report.rows([good, bad], KCM)
    assert lines[0] == ["shop/web", "Deployment/web", "2", "1-10", "cpu", "50%/50%", "2", "stays at 2; up above 55%, down below 25%"]
    assert lines[1][5:7] == ["<unknown>/50%", "nothing"] and "FailedGetResourceMetric" in lines[1][7]
    found = report.as_document(AutoscalerLook(NOW, KCM, ScalingWorld(not_known=("x",)), (good, bad))).model_dump(mode="json")
    assert [one["works"] for one in found["autoscalers"]] == [True, False]
    assert found["autoscalers"][0]["metrics"][0]["up_above"] == "55%" and found["not_known"] == ["x"]
    json.dumps(found)


def test_why_says_what_limits() -> None:
    assert report.why(judged(seen(2), samples(400, 400))).endswith(
        "limited: the desired replica count is increasing faster than the maximum scale rate"
    )
    assert "scaling is disabled" in report.why(judged(hpa(), current=0))
    assert report.why(judged(seen(2))).startswith("stays at 2")


# ---- vertical ones


def test_a_vertical_one_that_cannot_work_is_refused_unless_consented() -> None:
    data = read_desired([("cp1", {"vertical_autoscalers": {"shop/deployment/web": {"mode": "InPlaceOrRecreate", "min_replicas": 1}}}.get)])
    assert data is not None
    made, plan = action_of(data, None)
    assert made is not None and made.manifest is not None
    assert made.manifest["spec"]["updatePolicy"] == {"updateMode": "InPlaceOrRecreate", "minReplicas": 1}
    item = Vertical.of({**made.manifest, "metadata": {"namespace": "shop", "name": "web", "creationTimestamp": "2026-03-01T11:59:59Z"}})
    good = VerticalScene(item, pods=pods(2), minor=36)
    found = explain_vertical(made, judge_vertical(good, NOW), plan, consent=False)
    # It is new: the proof asks for the recommendation.
    assert not plan.refusals and found.notes == ("now: there is no recommendation yet",)
    old = judge_vertical(VerticalScene(item, pods=pods(2), minor=32), NOW)
    explain_vertical(made, old, plan, consent=False)
    assert "no-in-place: mode InPlaceOrRecreate needs Kubernetes 1.33 or later, and this is 1.32" in plan.refusals[0]
    assert "--data allow_problems=true" in plan.refusals[0]
    plan.refusals.clear()
    assert explain_vertical(made, old, plan, consent=True).unproven == ("no-in-place",) and not plan.refusals


def advised() -> JudgedVertical:
    """One with a recommendation, in mode Off."""
    advice = {
        "containerName": "app",
        "target": {"cpu": "150m", "memory": "64Mi"},
        "lowerBound": {"cpu": "100m"},
        "upperBound": {"cpu": "1"},
    }
    raw = {
        "metadata": {"namespace": "shop", "name": "web", "creationTimestamp": "2026-03-01T11:00:00Z"},
        "spec": {"targetRef": {"kind": "Deployment", "name": "web"}, "updatePolicy": {"updateMode": "Off"}},
        "status": {
            "conditions": [{"type": "RecommendationProvided", "status": "True"}],
            "recommendation": {"containerRecommendations": [advice]},
        },
    }
    return judge_vertical(VerticalScene(Vertical.of(raw), pods=pods(1), minor=36), NOW)


def test_the_table_and_the_json_of_vertical_ones() -> None:
    one = advised()
    recommended = "app cpu 150m (100m to 1000m), memory 64.0Mi"
    assert report.vertical_rows([one]) == [
        ["shop/web", "Deployment/web", "Off", recommended, "mode Off: it recommends, and changes no pod"]
    ]  # fmt: skip
    found = report.as_document(AutoscalerLook(NOW, KCM, ScalingWorld(), (), (one,))).model_dump(mode="json")["vertical_autoscalers"]
    assert found[0]["works"] and found[0]["state"] == "off" and found[0]["recommended"][0]["target"] == {"cpu": 0.15, "memory": 2**26}
    json.dumps(found)
