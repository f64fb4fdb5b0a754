"""A workload's template is reverted if its roll-out fails, whatever answer was lost, but never if someone else has changed it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from roles.engine.api import Conflict, Forbidden, NotFound
from roles.engine.object_runs import ObjectRun
from roles.engine.objects import RollOuts, Session
from roles.pod_resize import pod_resources, resize_run
from roles.pod_resize.templates import Template
from roles.pod_resize.write import ResizeWriter
from tests.unit.hosts import object_run
from tests.unit.pod_resize.world import SMALL, container, workload
from tests.unit.priority_classes.apiserver import LOST
from tests.unit.rolling import PODS, SETS, Cluster

PATH = "/apis/apps/v1/namespaces/shop/deployments/web"
LARGE = {"requests": {"cpu": "300m", "memory": "600Mi"}, "limits": {"memory": "600Mi"}}
THEIRS = {"requests": {"cpu": "700m", "memory": "200Mi"}, "limits": {"memory": "200Mi"}}

pytestmark = pytest.mark.usefixtures("operator")


class World:
    """A Deployment without pods; its controller gives up at once if its template has what `fails`."""

    def __init__(self, fails: Mapping[str, Any] | None = None) -> None:
        self.item = workload("Deployment", "web", container("app"), metadata={"resourceVersion": "1"}, spec={"replicas": 0})
        self.item["status"] = {"observedGeneration": 1, "replicas": 0, "updatedReplicas": 0, "availableReplicas": 0}
        self.fails = fails
        self.patches: list[Mapping[str, Any]] = []
        self.before: Callable[[int], Exception | None] = lambda number: None
        self.after: Callable[[int], Exception | None] = lambda number: None
        self.away: Exception | None = None

    @property
    def has(self) -> Any:
        return self.item["spec"]["template"]["spec"]["containers"][0]["resources"]

    def set(self, resources: Mapping[str, Any]) -> None:
        self.item["spec"]["template"]["spec"]["containers"][0]["resources"] = copy.deepcopy(dict(resources))
        self.item["metadata"]["resourceVersion"] += "1"
        failed = self.fails is not None and pod_resources.alike(resources, self.fails)
        reason = "ProgressDeadlineExceeded" if failed else "NewReplicaSetAvailable"
        self.item["status"]["conditions"] = [
            {"type": "Progressing", "status": str(not failed), "reason": reason, "message": "in its words"}
        ]

    def patch(self, path: str, changes: Mapping[str, Any], timeout: float = 0, *, dry_run: bool = False, wait: float = 0) -> Any:
        assert path == PATH and changes["metadata"]["uid"] == "u-web"
        self.patches.append(changes)
        number = len(self.patches)
        if (error := self.away or self.before(number)) is not None:
            raise error
        if changes["metadata"].get("resourceVersion") not in (None, self.item["metadata"]["resourceVersion"]):
            raise Conflict("cp1", path, "409", "run it again")
        self.set(pod_resources.merged(self.has, changes["spec"]["template"]["spec"]["containers"][0]["resources"]))
        if (error := self.after(number)) is not None:
            raise error
        return copy.deepcopy(self.item)

    def get_json(self, path: str, timeout: float = 0, *, wait: float = 0) -> dict[str, Any]:
        if self.away is not None:
            raise self.away
        if path == PATH:
            return copy.deepcopy(self.item)
        if "?" in path:
            return {"items": []}
        raise NotFound("cp1", path, "404", "-")

    def run(self) -> ObjectRun:
        return run(self, Template("Deployment", copy.deepcopy(self.item), PATH, {"app": SMALL}, {"app": LARGE}, 30))


def run(world: Any, template: Template) -> ObjectRun:
    rolls = RollOuts(Session(lambda: cast("Any", world)), lambda text: None)
    stages = resize_run.stages(cast("ResizeWriter", None), [], 1, rolls, template)
    return object_run(*stages, capability="resize", about={"namespace": "shop", "labels": "app=web"})


def test_it_is_written_and_rolled_out() -> None:
    world = World()
    (step,) = world.run().steps
    assert step.outcome == "done" and pod_resources.alike(world.has, LARGE), step.why


def test_a_failed_roll_out_of_a_statefulset_is_reverted() -> None:
    """Its controller recreates no pod while a broken one of the failed template is left."""
    server = Cluster("web", fails="web", template={"spec": {"containers": [container("app")]}})
    item = copy.deepcopy(server.objects[f"{SETS}/web"])
    (step,) = run(server, Template("StatefulSet", item, f"{SETS}/web", {"app": SMALL}, {"app": LARGE}, 30)).steps
    assert step.outcome == "reverted" and ("DELETE", f"{PODS}/web-0") in server.log, step.why


def test_a_failed_roll_out_is_reverted() -> None:
    world = World(LARGE)
    (step,) = world.run().steps
    assert step.outcome == "reverted" and pod_resources.alike(world.has, SMALL) and "in its words; reverted" in step.why, step.why


@pytest.mark.parametrize("error", LOST)
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_lost_answer(error: Exception, number: int, when: str) -> None:
    """The answer to the write, or to its revert."""
    world = World(LARGE)
    setattr(world, when, lambda tried: error if tried == number else None)
    (step,) = world.run().steps
    assert step.outcome == "reverted" and pod_resources.alike(world.has, SMALL), step.why
    assert len(world.patches) == (2 if when == "after" else 3)


@pytest.mark.parametrize("error", LOST)
def test_an_api_that_stays_away_says_what_to_do(error: Exception) -> None:
    world = World()

    def away(number: int) -> Exception:
        world.away = error
        return error

    world.after = away
    (step,) = world.run().steps
    assert step.outcome == "revert-failed"
    for words in ("STATE UNKNOWN", "kubectl get -n shop deployment/web -o yaml", "kubectl rollout undo -n shop deployment/web"):
        assert words in step.why


def test_what_somebody_else_has_set_meanwhile_stays() -> None:
    world = World(LARGE)
    original = world.get_json

    def look(path: str, timeout: float = 0, *, wait: float = 0) -> dict[str, Any]:
        if path == PATH and pod_resources.alike(world.has, LARGE):
            world.set(THEIRS)
        return original(path)

    world.get_json = look  # type: ignore[method-assign]
    (step,) = world.run().steps
    assert step.outcome == "foreign" and pod_resources.alike(world.has, THEIRS) and len(world.patches) == 1, step.why
    assert "someone else changed its template meanwhile" in step.why and ": left as it is now" in step.why


def test_a_change_by_others_just_before_the_revert() -> None:
    world = World(LARGE)

    def meddle(number: int) -> None:
        if number == 2:
            world.set(THEIRS)

    world.before = meddle  # type: ignore[assignment]
    (step,) = world.run().steps
    assert step.outcome == "foreign" and pod_resources.alike(world.has, THEIRS), step.why


def test_a_refused_write_is_not_reverted() -> None:
    world = World()
    world.before = lambda number: Forbidden("cp1", PATH, "403", "-")
    (step,) = world.run().steps
    assert step.outcome == "failed" and len(world.patches) == 1
