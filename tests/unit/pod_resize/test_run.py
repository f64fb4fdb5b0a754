"""Records of runs, selectors, and the probe pod."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from roles.engine.api import Conflict
from roles.engine.context import ClusterStep, Fields
from roles.engine.objects import RollOuts, Session
from roles.engine.transaction.object_record import kind_of_run, parse, planned
from roles.engine.transaction.record import parse_events
from roles.pod_resize import PodStep, pod_resources, probe, resize_run, templates
from roles.pod_resize import workload as workloads
from roles.pod_resize.plan import ResourceChange
from roles.pod_resize.templates import Template
from roles.pod_resize.write import ResizeWriter, Watcher
from tests.context import context
from tests.unit.pod_resize.world import SMALL, ability, workload

LARGE = {"requests": {"cpu": "300m", "memory": "600Mi"}, "limits": {"memory": "600Mi"}}
POD = {
    "event": "plan", "object": "pod shop/web-1", "what": "resize", "path": "/api/v1/namespaces/shop/pods/web-1", "namespace": "shop",
    "pod": "web-1", "uid": "u-1", "node": "w1",
    "fields": [{"path": ["spec", "containers", "app", "resources"], "before": SMALL, "after": LARGE}],
}  # fmt: skip
EVENTS = [
    {"event": "run", "id": "r1"},
    {"event": "begin", **kind_of_run("resize", {"namespace": "shop", "labels": "app=web", "workload": ["Deployment", "/path"]})},
    POD,
    {"event": "end", "object": "pod shop/web-1", "outcome": "done"},
    {
        "event": "plan", "object": "Deployment shop/web", "what": "update template", "path": "/path", "uid": "u-web",
        "fields": [{"path": ["spec", "template", "spec", "containers", "app", "resources"], "before": SMALL, "after": LARGE}],
    },
]  # fmt: skip


def read(events: Sequence[Mapping[str, object]]) -> resize_run.ResizeRecord:
    """As read from a file."""
    found = parse("r1", parse_events("".join(json.dumps(event) + "\n" for event in events).encode()).events)
    assert found is not None
    return resize_run.recorded(found)


def test_a_record_is_read_again() -> None:
    found = read(EVENTS)
    assert found.steps == (PodStep("shop", "web-1", "u-1", "w1", {"app": ResourceChange(SMALL, LARGE)}),)
    assert found.about["labels"] == "app=web" and found.template and templates.of_template(found.template, "before") == {"app": SMALL}
    assert found.template.uid == "u-web" and read(EVENTS[:2]).steps == ()


def test_the_undo_reads_what_a_run_records() -> None:
    """Each step starts, but is not applied."""
    steps = [
        PodStep("shop", name, f"u-{name}", "w1", {"app": ResourceChange(SMALL, LARGE), "side": ResourceChange(LARGE, SMALL)})
        for name in ("a", "b")
    ]
    template = Template("Deployment", workload(), "/path", {"app": SMALL}, {"app": LARGE}, 30)
    session = Session(lambda: cast("Any", None))
    writer = ResizeWriter(session, Watcher(session, "shop", ""), ability(), {}, {}, 30, print)
    pods, last = resize_run.stages(writer, steps, 2, RollOuts(Session(lambda: cast("Any", None)), print), template)
    assert pods.at_once == 2
    events: list[Mapping[str, object]] = [{"event": "begin", **kind_of_run("resize", {"namespace": "shop", "labels": "app=web"})}]
    for order, step in enumerate([*pods.steps, *last.steps], 1):

        def begin(fields: Fields, step: ClusterStep = step, order: int = order) -> None:
            events.append(planned("r1", order, step.name, step.action, step.summary, fields, step.about))
            raise Conflict("cp1", "/", "it stops here", "-")

        with pytest.raises(Conflict):
            step.write(context(begin))
    found = read(events)
    assert found.steps == tuple(steps) and found.template is not None
    assert (found.template.uid, templates.of_template(found.template, "after")) == ("u-web", {"app": LARGE})


def test_the_record_of_a_workload_in_another_run_is_read_again() -> None:
    """As deploys/right_size.py writes it: pods by their UID, then the template, then what is not of a resize."""
    fields = [
        {"path": ["pods", "u-1", "app", "resources"], "before": SMALL, "after": LARGE},
        {"path": ["pods", "u-2", "app", "resources"], "before": LARGE, "after": SMALL},
        {"path": ["spec", "template", "spec", "containers", "app", "resources"], "before": SMALL, "after": LARGE},
        {"path": ["autoscalers", "h", "metrics"], "before": [], "after": []},
    ]
    line = {
        "event": "plan", "object": "Deployment shop/web", "what": "right size", "path": "/apis/apps/v1/namespaces/shop/deployments/web",
        "uid": "u-web", "kind": "Deployment", "namespace": "shop", "name": "web", "pods": {"u-1": ["web-1", "w1"], "u-2": ["web-2", "w2"]},
        "autoscalers": {"h": "u-h"}, "fields": fields,
    }  # fmt: skip
    found = parse("r1", [{"event": "begin", **kind_of_run("right_size", {})}, line])
    assert found is not None
    (one,) = found.objects
    assert workloads.recorded_steps(one) == [
        PodStep("shop", "web-1", "u-1", "w1", {"app": ResourceChange(SMALL, LARGE)}),
        PodStep("shop", "web-2", "u-2", "w2", {"app": ResourceChange(LARGE, SMALL)}),
    ]
    assert templates.of_template(one, "before") == {"app": SMALL}
    with pytest.raises(ValueError, match=r"lacks something .* undo it by hand"):
        workloads.recorded_steps(replace(one, about={**one.about, "pods": {}}))


def test_a_record_of_something_else() -> None:
    assert parse("r1", [EVENTS[0], {"event": "plan", "object": "PriorityClass x"}]) is None


def test_how_its_pods_ended() -> None:
    assert read([*EVENTS, {"event": "end", "object": "pod shop/web-1", "outcome": "foreign"}]).outcomes == {"u-1": "foreign"}
    assert read(EVENTS[:3]).outcomes == {}, "its end was not recorded"


@pytest.mark.parametrize("lost", ["uid", "fields", "node", "path", "what"])
def test_an_incomplete_record_is_an_error_with_a_message(lost: str) -> None:
    event = {key: value for key, value in POD.items() if key != lost}
    with pytest.raises(ValueError, match=r"the record of run r1 lacks something .* undo it by hand"):
        read([*EVENTS[:2], event])


def test_the_probe_pod() -> None:
    made = probe.pod("r20260131-235900-1a2b", "w1", "registry.k8s.io/pause:3.10")
    assert made["metadata"]["namespace"] == probe.namespace("r20260131-235900-1a2b")["metadata"]["name"]
    assert made["spec"]["nodeName"] == "w1" and [one["name"] for one in made["spec"]["containers"]] == ["keep", "restart"]
    for container, policy in zip(made["spec"]["containers"], ("NotRequired", "RestartContainer"), strict=True):
        assert pod_resources.of(container) == probe.SMALL and {
            pod_resources.policy(container, name) for name in pod_resources.RESOURCES
        } == {policy}
    assert pod_resources.qos_of(made) == "Burstable" == pod_resources.qos_of(made, {"keep": probe.LARGE, "restart": probe.LARGE})
    odd = probe.pod("r1", "w1", 'a"b: {x}\n')
    assert odd["spec"]["containers"][0]["image"] == 'a"b: {x}\n'


def test_the_stages_of_a_probe() -> None:
    made = probe.pod("r1", "w1", "pause")
    made["metadata"]["uid"] = "u-1"
    stages = probe.stages(made, 36)
    assert [name for name, _ in stages] == ["keep, up", "keep, down", "restart, up", "restart, down"]
    assert [step.changes[name.split(",")[0]].restarts for name, step in stages] == [False, False, True, True]
    down = dict(probe.stages(made, 33))["keep, down"].after["keep"]
    assert down["limits"]["memory"] == probe.LARGE["limits"]["memory"] and down["requests"] == probe.SMALL["requests"]
