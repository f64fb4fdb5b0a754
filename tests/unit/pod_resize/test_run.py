"""Records of runs, selectors, and the probe pod."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from roles.change.record import Events, parse_events
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


def text(events: list[dict[str, object]]) -> Events:
    return parse_events("".join(json.dumps(event) + "\n" for event in events).encode())


def test_a_record_is_read_again() -> None:
    found = runs.recorded("r1", text(EVENTS))
    assert found.steps == (Step("shop", "web-1", "u-1", "w1", {"app": Change(SMALL, LARGE)}),)
    assert found.about["labels"] == "app=web" and found.template and found.template["before"] == {"app": SMALL}
    assert runs.recorded("r1", text(EVENTS[:2])).steps == ()


def test_a_record_of_something_else() -> None:
    with pytest.raises(ValueError, match="run r1 resized nothing"):
        runs.recorded("r1", text([EVENTS[0], {"event": "plan", "object": "PriorityClass x"}]))


def test_a_record_whose_last_line_was_cut(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By a power cut in mid-write: what that line was about was not begun, and the others are undone."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = runs.record_path("r1")
    path.parent.mkdir(parents=True)
    lines = "".join(json.dumps(event) + "\n" for event in EVENTS[:4])
    path.write_text(lines + '{"event": "pl')
    found = runs.read_record("r1")
    assert found.cut and [step.name for step in found.steps] == ["web-1"] and found.outcomes == {}
    path.write_text(lines)
    assert not runs.read_record("r1").cut


def test_how_its_pods_ended() -> None:
    ended = {"event": "end", "object": "pod shop/web-1", "uid": "u-1", "outcome": "foreign"}
    assert runs.recorded("r1", text([*EVENTS, ended])).outcomes == {"u-1": "foreign"}


@pytest.mark.parametrize("lost", ["uid", "changes", "node"])
def test_a_record_that_lacks_something_is_an_error_in_words(lost: str) -> None:
    event = {key: value for key, value in EVENTS[2].items() if key != lost}
    if lost == "changes":
        event["changes"] = {"app": {"after": LARGE}}
    with pytest.raises(ValueError, match=r"the record of run r1 lacks something .* undo it by hand"):
        runs.recorded("r1", text([*EVENTS[:2], event]))


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
