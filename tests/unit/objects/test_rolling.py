"""A pod template is written and rolled out; if that fails, it is reverted, whatever answer was lost, unless someone else has changed it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from roles.engine.api import Forbidden, NoApi
from roles.engine.context import ClusterStep, Stage
from roles.engine.objects import ObjectChange, RollOuts, Session
from roles.pod_resize import resize_run
from roles.pod_resize.templates import Template
from roles.priority_classes import WORKLOADS, Writer
from roles.restart import KINDS, Restarter
from roles.restart.plan import RESTARTED_AT
from tests.unit.apiserver import LOST
from tests.unit.hosts import object_run
from tests.unit.pod_resize.world import SMALL, container
from tests.unit.rolling import PODS, Cluster, merged

LARGE = {"requests": {"cpu": "300m", "memory": "600Mi"}, "limits": {"memory": "600Mi"}}

pytestmark = pytest.mark.usefixtures("operator")


@dataclass(frozen=True)
class Form:
    """What changes a template. `kind`: of its workload; `first`, `gets` and `theirs`: what the template has of it at first, then, and from
    someone else; `steps`: those of a run on the workload as it was read."""

    kind: str
    first: Mapping[str, Any]
    gets: Mapping[str, Any]
    theirs: Mapping[str, Any]
    steps: Callable[[Cluster, Session, dict[str, Any]], tuple[ClusterStep, ...]]
    proof: str
    back: str
    meddled: str
    by_hand: str


def by_class(server: Cluster, session: Session, item: dict[str, Any]) -> tuple[ClusterStep, ...]:
    kind = WORKLOADS[server.kind]
    manifest = kind.manifest("shop", "web", {kind.sets[0]: "high"})
    change = ObjectChange(kind, "assign", "shop", "web", item, manifest, "")
    return Writer(session, force=True, rollout_timeout=30).steps([change])


def by_restart(server: Cluster, session: Session, item: dict[str, Any]) -> tuple[ClusterStep, ...]:
    change = ObjectChange.of_fields(KINDS[server.kind], item, {RESTARTED_AT: "now"})
    return Restarter(session, force=True, seconds=30, say=lambda text: None).steps([change])


def by_resources(server: Cluster, session: Session, item: dict[str, Any]) -> tuple[ClusterStep, ...]:
    template = Template(server.kind, item, f"{server.workloads}/web", {"app": SMALL}, {"app": LARGE}, 30)
    return tuple(resize_run.stages(cast("Any", None), [], 1, RollOuts(session, lambda text: None), template)[1].steps)


def resources(has: Mapping[str, Any]) -> dict[str, Any]:
    return {"spec": {"containers": [container("app", has)]}}


def annotated(**annotations: str) -> dict[str, Any]:
    return {"metadata": {"annotations": {RESTARTED_AT[-1]: "now", **annotations}}}


CLASS = Form(
    "Deployment",
    {"spec": {"priorityClassName": "low"}}, {"spec": {"priorityClassName": "high"}}, {"spec": {"priorityClassName": "theirs"}}, by_class,
    "rolled out; its 1 pod has high (2), read back",
    "reverted: rolled out; its 1 pod has low, read back; daytwo now owns that field instead of helm (Update)",
    "someone else gave it the class theirs meanwhile (owned by kubectl-edit (Update))", "back to low: kubectl edit -n shop deployment/web",
)  # fmt: skip
RESTART = Form(
    "StatefulSet",
    {}, annotated(), {"metadata": {"annotations": {RESTARTED_AT[-1]: "then"}}}, by_restart,
    "rolled out; its 1 pod has it, read back", "reverted: rolled out; its 1 pod has it, read back",
    "someone else gave it the restart time then meanwhile (owned by kubectl-edit (Update))",
    "back to nothing: kubectl edit -n shop statefulset/web",
)  # fmt: skip
RESIZE = Form(
    "StatefulSet",
    resources(SMALL), resources(LARGE), resources({**LARGE, "requests": {"cpu": "700m"}}), by_resources,
    "rolled out; its 1 pod has it, read back", "reverted and rolled out; pods that were resized in place keep their resources",
    "someone else changed its template meanwhile", "kubectl rollout undo -n shop statefulset/web",
)  # fmt: skip
forms = pytest.mark.parametrize(
    "form",
    [CLASS, replace(CLASS, kind="StatefulSet", by_hand="-n shop statefulset/web"), RESTART, RESIZE],
    ids=["class", "class of a StatefulSet", "restart", "resources"],
)


class World(Cluster):
    """One workload; its new pods never get Ready if it `fails`."""

    def __init__(self, form: Form, *, fails: bool = True) -> None:
        super().__init__("web", kind=form.kind, fails="web" if fails else "", template=form.first)
        self.form, self.path = form, f"{self.workloads}/web"

    def run(self) -> ClusterStep:
        steps = self.form.steps(self, Session(lambda: self.api), copy.deepcopy(self.objects[self.path]))
        (step,) = object_run(Stage(steps)).steps
        return step

    def has(self, template: Mapping[str, Any]) -> bool:
        return bool(self.objects[self.path]["spec"]["template"] == {"metadata": {}, "spec": {}, **template})

    def others(self) -> None:
        self.others_write("web", self.form.theirs)

    def at_write(self, number: int, when: str, act: Callable[[], Exception | None]) -> None:
        """Before or after the numbered write of the template, act, and lose its answer to the exception."""

        def lose(moment: str, verb: str, path: str) -> Exception | None:
            here = (moment, path) == (when, self.path) and verb in ("APPLY", "PATCH")
            return act() if here and len(self.writes) == number else None

        self.lose = lose


@forms
def test_it_is_rolled_out(form: Form) -> None:
    world = World(form, fails=False)
    step = world.run()
    assert step.outcome == "done" and world.has(form.gets) and len(world.writes) == 1, step.why
    assert step.how == form.proof


@forms
def test_new_pods_that_do_not_get_ready_are_reverted_and_no_others_are_deleted(form: Form) -> None:
    world = World(form)
    step = world.run()
    assert step.outcome == "reverted" and world.has(form.first) and len(world.writes) == 2, step.why
    assert "not rolled out within 30 s" in step.why and form.back in step.why
    # The controller of a StatefulSet recreates no pod while a broken one is left.
    assert [one for one in world.log if one[0] == "DELETE"] == [("DELETE", f"{PODS}/web-0")] * (form.kind == "StatefulSet")


@forms
@pytest.mark.parametrize("error", LOST)
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("when", ["before", "after"])
def test_the_answer_to_a_write_or_to_its_revert_is_lost(form: Form, error: Exception, number: int, when: str) -> None:
    world = World(form, fails=number == 2)
    world.at_write(number, when, lambda: error)
    step = world.run()
    assert step.outcome == ("done" if number == 1 else "reverted"), step.why
    assert world.has(form.gets if number == 1 else form.first)
    assert len(world.writes) == (number if when == "after" else number + 1)


@forms
def test_a_write_that_is_never_applied_needs_no_revert(form: Form) -> None:
    world = World(form)
    world.lose = lambda when, verb, path: NoApi("no answer") if (when, path) == ("before", world.path) and verb != "GET" else None
    step = world.run()
    assert step.outcome == "reverted" and world.has(form.first) and "no answer" in step.why and form.back in step.why, step.why


@forms
@pytest.mark.parametrize("error", LOST)
def test_an_api_that_stays_away_after_the_write_says_what_to_do(form: Form, error: Exception) -> None:
    world = World(form)

    def away() -> Exception:
        world.lose = lambda when, verb, path: error
        return error

    world.at_write(1, "after", away)
    step = world.run()
    assert step.outcome == "revert-failed"
    for words in ("STATE UNKNOWN", f"kubectl get -n shop {form.kind.lower()}/web -o yaml", form.by_hand):
        assert words in step.why


@forms
def test_a_refused_write_is_not_reverted(form: Form) -> None:
    world = World(form)
    world.refuse = lambda verb, path, body: Forbidden("cp1", path, "403", "-")
    step = world.run()
    assert step.outcome == "failed" and len(world.writes) == 1 and world.has(form.first)


def gone(world: World) -> None:
    del world.objects[world.path]


def recreated(world: World) -> None:
    world.objects[world.path]["metadata"]["uid"] = "another"


def meddled(form: Form, number: int, when: str, act: Callable[[World], None]) -> ClusterStep:
    """The end of a run after which the workload is as somebody's act at the numbered write left it, and which wrote it no more."""
    world, left = World(form), list[Any]()

    def now() -> Any:
        found = world.objects.get(world.path)
        return found and copy.deepcopy((found["metadata"]["uid"], found["spec"]))

    def meddle() -> None:
        act(world)
        left.append(now())

    world.at_write(number, when, meddle)
    step = world.run()
    assert now() == left[0] and len(world.writes) == number, step.why
    return step


@forms
@pytest.mark.parametrize(("number", "when", "words"), [(1, "after", ": left as it is now"), (2, "before", "")])
def test_what_somebody_else_has_set_meanwhile_stays(form: Form, number: int, when: str, words: str) -> None:
    step = meddled(form, number, when, World.others)
    assert step.outcome == "foreign" and words in step.why and form.meddled in step.why, step.why


@forms
@pytest.mark.parametrize("act", [gone, recreated])
@pytest.mark.parametrize(
    ("number", "when", "words"),
    [(1, "before", "after daytwo read it"), (1, "after", "meanwhile, so there is nothing to revert"),
     (2, "before", "meanwhile, so there is nothing to revert"), (2, "after", "during its roll-out")],
)  # fmt: skip
def test_a_workload_that_somebody_deletes_is_gone(form: Form, number: int, when: str, words: str, act: Callable[[World], None]) -> None:
    step = meddled(form, number, when, act)
    assert step.outcome == "gone" and f"it was deleted {words}" in step.why, step.why


@forms
def test_a_status_write_right_before_the_revert_does_not_matter(form: Form) -> None:
    world = World(form)
    world.at_write(2, "before", lambda: world.put(world.path, world.objects[world.path]) and None)
    step = world.run()
    assert step.outcome == "reverted" and world.has(form.first) and len(world.writes) == 3, step.why


@forms
def test_pods_that_a_webhook_makes_otherwise_are_reverted(form: Form) -> None:
    world, path = World(form, fails=False), f"{PODS}/web-0"
    world.at_write(1, "after", lambda: world.objects.update({path: merged(world.objects[path], form.theirs)}))
    step = world.run()
    assert step.outcome == "reverted" and world.has(form.first) and form.back in step.why, step.why
