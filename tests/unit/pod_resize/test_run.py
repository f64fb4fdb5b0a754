"""Records of runs, selectors, and the probe pod."""

from __future__ import annotations

import json

import pytest

from roles.pod_resize import facts, probe
from roles.pod_resize import resources as res
from roles.pod_resize import run as runs
from roles.pod_resize.plan import Change, Step
from tests.unit.pod_resize.world import SMALL

LARGE = {"requests": {"cpu": "300m", "memory": "600Mi"}, "limits": {"memory": "600Mi"}}
EVENTS = [
    {"event": "run", "id": "r1"},
    {"event": "about", "namespace": "shop", "labels": "app=web", "workload": ["Deployment", "/path"]},
    {
        "event": "plan", "namespace": "shop", "pod": "web-1", "uid": "u-1", "node": "w1",
        "changes": {"app": {"before": SMALL, "after": LARGE, "restarts": False}},
    },
    {"event": "end", "object": "pod shop/web-1", "outcome": "done"},
    {"event": "template", "uid": "u-web", "before": {"app": SMALL}, "after": {"app": LARGE}},
]  # fmt: skip


def text(events: list[dict[str, object]]) -> str:
    return "".join(json.dumps(event) + "\n" for event in events)


def test_a_record_is_read_again() -> None:
    found = runs.recorded("r1", text(EVENTS))
    assert found.steps == (Step("shop", "web-1", "u-1", "w1", {"app": Change(SMALL, LARGE)}),)
    assert found.about["labels"] == "app=web" and found.template and found.template["before"] == {"app": SMALL}
    assert runs.recorded("r1", text(EVENTS[:2])).steps == ()


def test_a_record_whose_last_line_was_cut_short_can_be_undone() -> None:
    """60 events were written, and the disk was full in the middle of the next one."""
    assert runs.recorded("r1", text(EVENTS[:4]) + '{"event": "plan", "changes": {"ap').steps == runs.recorded("r1", text(EVENTS[:4])).steps


def test_a_record_of_a_later_daytwo_is_refused() -> None:
    with pytest.raises(ValueError, match="format 2, and this daytwo knows 1"):
        runs.recorded("r1", text([{"event": "run", "format": 2}, *EVENTS[1:]]))


def test_a_record_of_something_else() -> None:
    with pytest.raises(ValueError, match="run r1 resized nothing"):
        runs.recorded("r1", text([EVENTS[0], {"event": "plan", "object": "PriorityClass x"}]))


@pytest.mark.parametrize("run", ["", "../r1", ".", "a/b"])
def test_what_is_no_run(run: str) -> None:
    with pytest.raises(ValueError, match="is no run"):
        runs.read_record(run)


def test_selectors_as_a_list_takes_them() -> None:
    expressions = [
        {"key": "tier", "operator": "In", "values": ["a", "b"]},
        {"key": "old", "operator": "NotIn", "values": ["yes"]},
        {"key": "here", "operator": "Exists"},
        {"key": "there", "operator": "DoesNotExist"},
    ]
    found = facts.label_selector({"matchLabels": {"app": "web"}, "matchExpressions": expressions})
    assert found == "app=web,tier in (a,b),old notin (yes),here,!there" and facts.label_selector({}) == ""


def test_the_probe_pod() -> None:
    made = probe.pod("r20260131-235900-1a2b", "w1", "registry.k8s.io/pause:3.10")
    assert made["metadata"]["namespace"] == probe.namespace("r20260131-235900-1a2b")["metadata"]["name"]
    assert made["spec"]["nodeName"] == "w1" and [one["name"] for one in made["spec"]["containers"]] == ["keep", "restart"]
    for container, policy in zip(made["spec"]["containers"], ("NotRequired", "RestartContainer"), strict=True):
        assert res.of(container) == probe.SMALL and {res.policy(container, name) for name in res.RESOURCES} == {policy}
    assert res.qos_of(made) == "Burstable" == res.qos_of(made, {"keep": probe.LARGE, "restart": probe.LARGE})
    odd = probe.pod("r1", "w1", 'a"b: {x}\n')
    assert odd["spec"]["containers"][0]["image"] == 'a"b: {x}\n'


def test_what_a_probe_goes_through() -> None:
    made = probe.pod("r1", "w1", "pause")
    made["metadata"]["uid"] = "u-1"
    stages = probe.stages(made, 36)
    assert [name for name, _ in stages] == ["keep, up", "keep, down", "restart, up", "restart, down"]
    assert [step.changes[name.split(",")[0]].restarts for name, step in stages] == [False, False, True, True]
    down = dict(probe.stages(made, 33))["keep, down"].after["keep"]
    assert down["limits"]["memory"] == probe.LARGE["limits"]["memory"] and down["requests"] == probe.SMALL["requests"]


def test_the_image_of_a_probe() -> None:
    names = [["registry.local/app:1"], ["registry.k8s.io/pause@sha256:ab", "registry.k8s.io/pause:3.10"]]
    item = {"metadata": {"name": "w1"}, "status": {"images": [{"names": one} for one in names]}}
    assert probe.image_of(item) == "registry.k8s.io/pause:3.10"
    assert probe.image_of({"metadata": {"name": "w1"}, "status": {"images": [{"names": ["registry.local/unpaused:1"]}]}}) == ""
