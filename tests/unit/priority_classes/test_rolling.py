"""How a run waits for the end of a roll-out, with an API whose cluster changes between two reads."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import pytest

from roles.engine.api import Api, Forbidden, NotFound
from roles.engine.context import ClusterStep, Say, Stage, StepContext
from roles.engine.objects import NotDone, RollOuts, Session, rolling
from tests.unit.hosts import object_run
from tests.unit.priority_classes.world import ending, hashed, pod, revision, workload

APPS = "/apis/apps/v1/namespaces/default"
PODS = "/api/v1/namespaces/default/pods"


class World:
    """A namespace with one workload. Before each read of its pods the next of `acts` happens, before each read of itself one of `begins`."""

    def __init__(self, kind: str, *acts: Callable[[World], None]) -> None:
        self.kind = kind
        self.item = workload(kind, "web", selector={"matchLabels": {"app": "web"}})
        made = "ReplicaSet" if kind == "Deployment" else "ControllerRevision"
        self.old, self.new = revision(made, "one", 1, self.item), revision(made, "two", 2, self.item)
        self.revisions = [self.old, self.new]
        if kind == "StatefulSet":
            self.item["status"] |= {"updateRevision": "two", "currentRevision": "two"}
        self.pods: list[dict[str, Any]] = [self.made("web-2", self.new)]
        self.nodes: dict[str, str] = {"w1": "True", "w2": "Unknown"}
        self.acts = list(acts)
        self.begins: list[Callable[[World], None]] = []
        self.looks = 0
        self.asked: list[str] = []
        self.forbidden = ""

    def made(self, name: str, by: dict[str, Any], node: str = "w1") -> dict[str, Any]:
        found = pod(name, "", by) if self.kind == "Deployment" else hashed(pod(name, "", self.item), by["metadata"]["name"])
        found["spec"]["nodeName"] = node
        return found

    @property
    def path(self) -> str:
        return f"{APPS}/{self.kind.lower()}s/web"

    def get_json(self, whole: str, timeout: float = 0, *, wait: float = 0) -> dict[str, Any]:
        path = urlsplit(whole).path
        self.asked.append(whole)
        if self.forbidden and path.endswith(self.forbidden):
            raise Forbidden("cp1", whole, "RBAC", "grant it")
        if path == self.path:
            if self.begins:
                self.begins.pop(0)(self)
            return copy.deepcopy(self.item)
        if path in (f"{APPS}/replicasets", f"{APPS}/controllerrevisions"):
            return {"items": copy.deepcopy(self.revisions)}
        if path == PODS:
            self.looks += 1
            if self.acts:
                self.acts.pop(0)(self)
            assert parse_qs(urlsplit(whole).query).get("labelSelector") in (None, ["app=web"])
            return {"items": copy.deepcopy(self.pods)}
        if path == "/api/v1/namespaces/default/events":
            return {"items": []}
        if path.startswith("/api/v1/nodes/") and (name := path.rpartition("/")[2]) in self.nodes:
            return {"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": self.nodes[name]}]}}
        raise NotFound("cp1", whole, "404", "-")


def old_one(item: dict[str, Any], grace: int = 30) -> Callable[[World], None]:
    """The old pod `item` is ending."""
    return lambda world: world.pods.append(ending(item, grace))


def goes(name: str) -> Callable[[World], None]:
    def act(world: World) -> None:
        world.pods = [one for one in world.pods if one["metadata"]["name"] != name]

    return act


def stays(world: World) -> None:
    """Do nothing."""


@pytest.fixture(autouse=True)
def operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rolling, "LOOK_AGAIN", 0.0)


def roll(
    world: World, timeout: float = 300, changed: Callable[[Any], str] = lambda found: "", say: Say = lambda text: None
) -> tuple[RollOuts, str]:
    made = RollOuts(Session(lambda: cast("Api", world)), say)
    return made, made.wait(world.kind, "web", world.path, world.item["metadata"]["uid"], timeout, changed, lambda one: True)


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
def test_it_is_not_over_while_an_old_pod_is_ending(kind: str) -> None:
    world, shown = World(kind), list[str]()
    world.acts = [old_one(world.made("web-1", world.old)), stays, stays, goes("web-1")]
    run, left = roll(world, say=shown.append)
    assert (world.looks, left, run.warnings) == (4, "", [])
    assert sum("1 old one is still there: web-1 on w1, ending since" in line for line in shown) == 1, "shown once, not at each read"


def test_an_old_replicaset_may_be_deleted_before_its_pods() -> None:
    """If revisionHistoryLimit is 0, no object is left that shows the owner of the pods."""
    world = World("Deployment")
    world.pods.append(ending(world.made("web-1", world.old)))

    def written(there: World) -> None:
        there.item["status"]["observedGeneration"] = 2

    def cleaned(there: World) -> None:
        there.item["status"]["observedGeneration"] = 3
        there.revisions = [there.new]

    world.begins, world.acts = [written, cleaned], [stays, stays, goes("web-1")]
    roll(world)
    assert world.looks == 3


@pytest.mark.parametrize("kind", ["Deployment", "DaemonSet"])
def test_the_newest_template_may_become_known_late(kind: str) -> None:
    """Right after the write, the controller has not acted on it yet."""
    world = World(kind)

    def written(there: World) -> None:
        there.item["status"]["observedGeneration"] = 2
        there.revisions = [there.old]

    def made(there: World) -> None:
        there.item["status"]["observedGeneration"] = 3
        there.revisions = [there.old, there.new]

    world.begins = [written, made]
    roll(world, timeout=1)
    assert world.looks == 1


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
def test_foreign_pods_with_its_labels_do_not_block(kind: str) -> None:
    world = World(kind)
    world.pods.append(hashed(ending(pod("orphan", "")), "one"))
    roll(world)
    assert world.looks == 1


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
def test_a_pod_that_does_not_end_is_a_warning_with_node_time_and_way_out(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rolling, "END_MARGIN", 0.0)
    world = World(kind)
    world.pods.append(ending(world.made("web-1", world.old, "w2"), 0))
    run, left = roll(world)
    assert left == "1 old pod STILL THERE, see the warning"
    ((name, warning),) = run.warnings
    assert name == "web"
    for words in (
        "web: all its new pods serve",
        "web-1 on w2, ending since 2026-01-31T10:00:00Z",
        "w2 is not ready",
        "kubectl delete node w2",
    ):
        assert words in warning


def test_a_warning_is_in_the_record(alone: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A change with a warning counts as done."""
    monkeypatch.setattr(rolling, "END_MARGIN", 0.0)
    world = World("Deployment")
    world.pods.append(ending(world.made("web-1", world.old, "w2"), 0))
    rolls = RollOuts(Session(lambda: cast("Api", world)), lambda text: None)

    def write(context: StepContext) -> str:
        context.begin([])
        return rolls.wait(world.kind, "web", world.path, world.item["metadata"]["uid"], 300, lambda found: "", lambda one: True)

    step = ClusterStep("Deployment default/web", "", "", write, "", about={"path": world.path})
    run = object_run(Stage((step,)), warnings=rolls.warnings)
    assert not run.halted and step.outcome == "done", step.why
    ((_, warning),) = run.warnings
    events = [json.loads(line) for line in next(tmp_path.rglob("r1.jsonl")).read_text().splitlines()]
    assert {"event": "warning", "object": "web", "text": warning} in events


def test_unknown_facts_about_a_node_are_no_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rolling, "END_MARGIN", 0.0)
    world = World("Deployment")
    world.pods.append(ending(world.made("web-1", world.old, "w2"), 0))
    world.forbidden = "/nodes/w2"
    run, _ = roll(world)
    assert "not ready" not in run.warnings[0][1] and "kubectl describe pod -n default web-1" in run.warnings[0][1]


def test_an_identity_that_may_not_read_revisions() -> None:
    world = World("DaemonSet")
    world.forbidden = "controllerrevisions"
    world.acts = [old_one(world.made("web-1", world.old)), goes("web-1")]
    roll(world)
    assert world.looks == 2, "a pod that is ending counts too"
    world = World("Deployment")
    world.forbidden = "replicasets"
    with pytest.raises(Forbidden):
        roll(world)


def test_the_new_pods_are_waited_for_first() -> None:
    world = World("Deployment")
    world.item["status"]["availableReplicas"] = 1
    with pytest.raises(NotDone, match=r"not rolled out within 0\.05 s \(2 of 2 pods are new, 1 available\)"):
        roll(world, timeout=0.05)
    assert world.looks == 1, "only the read for the reasons of the new pods"


def test_a_change_while_old_pods_end_is_noticed() -> None:
    world = World("Deployment")
    world.pods.append(ending(world.made("web-1", world.old)))
    answers = ["", "", "somebody else changed it"]
    with pytest.raises(NotDone, match="somebody else changed it"):
        roll(world, changed=lambda found: answers.pop(0))
