"""Flags of the autoscalers' controller, set by the deploy of control-plane flags: what they do to an autoscaler, and what a restart of the
controller takes away."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.integration import operator
from tests.integration.metrics_api import RESOURCE, MetricsApi, register, served_in
from tests.integration.operator import data, pyinfra, wait_for
from tests.integration.scaling import apply, autoscalers, container, document, hpa, problems, status, workload
from tests.lab import Lab

pytestmark = [pytest.mark.lab, pytest.mark.slow]

SPACE, MANAGER = "t-flags", "kube-controller-manager"
WINDOW = 20


@pytest.fixture(scope="module")
def metrics(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MetricsApi]:
    files = operator.files(lab, "cp1")
    lab.kubectl("create", "namespace", SPACE)
    wait_for(lambda: lab.kubectl("get", "serviceaccount", "default", "-n", SPACE, check=False), "the namespace's service account")
    apply(lab, workload(SPACE, "web", container("app", "100m")))
    with served_in(lab, tmp_path_factory.mktemp("metrics")) as api:
        api.cpu["web"] = "30m"
        register(api, lab, RESOURCE)
        apply(lab, hpa(SPACE, "web", "web", maxReplicas=3))
        yield api
    lab.kubectl("delete", "namespace", SPACE, "--wait=false")
    operator.forget(lab)
    assert operator.files(lab, "cp1") == files


def set_flag(value: object, **more: str) -> None:
    text = value if isinstance(value, str) else json.dumps(value)
    done = pyinfra("control_plane_flags", *data(control_plane_flags=text, **more), "-y")
    assert done.code == 0 and "confirmed" in done.out, done.all


def seen(lab: Lab) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lab.kubectl("get", "hpa", "-n", SPACE, "web", "-o", "json"))
    return found


def reasons(lab: Lab) -> set[str]:
    return {one["reason"] for one in (seen(lab).get("status") or {}).get("conditions") or ()}


def test_a_window_is_set_and_begins_again_with_the_controller(lab: Lab, metrics: MetricsApi) -> None:
    wait_for(lambda: "ValidMetricFound" in reasons(lab), "the controller", every=2)
    metrics.cpu["web"] = "200m"
    wait_for(lambda: seen(lab)["status"].get("currentReplicas") == 3, "3 pods", every=2)
    metrics.cpu["web"] = "5m"
    wait_for(lambda: "ScaleDownStabilized" in reasons(lab), "a count that its memory holds up", every=2)
    before = document(SPACE)[1]["controller"]
    assert before["downscale_stabilization_seconds"] == 300
    set_flag(f"{MANAGER}:horizontal-pod-autoscaler-downscale-stabilization={WINDOW}s")
    # The new process leads when the lease of the old one has ended.
    wait_for(lambda: document(SPACE)[1]["controller"]["leads_since"] > before["leads_since"], "the new process as the leader", every=2)
    after = document(SPACE)[1]["controller"]
    assert after["downscale_stabilization_seconds"] == WINDOW
    # The new process knows only the count that it found, which holds for one whole window.
    wait_for(lambda: seen(lab)["status"]["desiredReplicas"] == 1, "1 pod", every=2)
    scaled = datetime.fromisoformat(seen(lab)["status"]["lastScaleTime"])
    assert scaled >= datetime.fromisoformat(after["leads_since"]) + timedelta(seconds=WINDOW - 1)
    pyinfra("rollback", "-y").ended(0)
    assert document(SPACE)[1]["controller"]["downscale_stabilization_seconds"] == 300


def test_a_controller_that_is_left_out_is_named(lab: Lab, metrics: MetricsApi) -> None:
    """Autoscalers that nobody looks at: one that has the conditions of the time before, and one that is new."""
    wait_for(lambda: "ValidMetricFound" in reasons(lab), "the controller", every=2)
    set_flag({MANAGER: {"controllers": "*,bootstrapsigner,tokencleaner,-horizontal-pod-autoscaler-controller"}}, allow_flags="controllers")
    apply(lab, workload(SPACE, "other", container("app", "100m")), hpa(SPACE, "other", "other"))
    metrics.cpu["other"] = "30m"
    lab.kubectl("rollout", "status", "-n", SPACE, "deployment/other", "--timeout=280s")
    words = "kube-controller-manager does not handle autoscalers: --controllers="
    named(lab, words, "other", "web")
    listed = pyinfra("autoscalers", "-y")
    assert listed.code == 0 and "not work: " in listed.out and "To set one: pyinfra " in listed.out, "a listing is no judgement"
    plan = autoscalers({f"{SPACE}/deployment/web": {"max": 5, "cpu": "60%"}}, *data(force="true"), "--dry")
    assert plan.code == 1 and "not-handled" in plan.all and words in " ".join(plan.all.split()), plan.all
    assert pyinfra("rollback", "-y").code == 0
    handled("other", "web")


def test_a_controller_that_does_not_run_is_named(lab: Lab, metrics: MetricsApi) -> None:
    """Its process stands still, so nobody renews the lease, and all conditions stay. (Its kubelet ends it after two minutes.)"""
    wait_for(lambda: "ValidMetricFound" in reasons(lab), "the controller", every=2)
    lab.run("cp1", "pkill -STOP -x kube-controller")
    try:
        wait_for(lambda: status(SPACE)[0] == 2, "autoscalers that nobody handles", every=1)
        named(lab, "no kube-controller-manager leads: its lease", "web")
        # No plan: its kubelet may have started another process meanwhile.
    finally:
        lab.run("cp1", "pkill -CONT -x kube-controller", check=False)
    handled("web")


def named(lab: Lab, words: str, *names: str) -> None:
    """The status and the audit say that no autoscaler is handled, whatever their conditions say."""
    assert "ValidMetricFound" in reasons(lab)
    code, found = status(SPACE)
    assert code == 2 and {name for name, one in found.items() if not one["works"]} >= set(names), found
    for name in names:
        one = problems(found[name])["not-handled"]
        assert one["severity"] == "critical" and words in one["why"], one
    audit = pyinfra("audit", *data(format="json"), "-y")
    assert all(f"not-handled: HorizontalPodAutoscaler {SPACE}/{name}" in audit.out for name in names), audit.all


def handled(*names: str) -> None:
    wait_for(
        lambda: all("not-handled" not in problems(status(SPACE)[1][name]) for name in names), "autoscalers that are handled", every=2
    )  # fmt: skip
