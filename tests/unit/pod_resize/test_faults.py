"""The engine and faults that no real cluster shows on demand: lost answers, webhooks, wrong statuses, restarts."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, cast

import pytest

from roles.engine import timeouts
from roles.engine.api import Api, Conflict, Forbidden, NotFound
from roles.engine.api.errors import Invalid, Timeout, Unusable
from roles.engine.bridge import Remote
from roles.engine.objects import ChangedByOthers, Gone, RevertFailed, Session, Undone, WriteRefused
from roles.engine.remote import Answer, RemoteError
from roles.pod_resize import PodStep, engine, pod_resources
from roles.pod_resize.engine import Engine, Watcher
from roles.pod_resize.plan import ResourceChange
from tests.unit.clock import Clock
from tests.unit.pod_resize.world import ID, MI, SMALL, ability, container, pod, state
from tests.unit.priority_classes.apiserver import lost_answers

LARGE = {"requests": {"cpu": "300m", "memory": "600Mi"}, "limits": {"memory": "600Mi"}}
STEP = PodStep("shop", "web-1", "u-web-1", "w1", {"app": ResourceChange(SMALL, LARGE)})


class World:
    """A cluster of one pod, whose kubelet does the next of `acts` at each read; and its node."""

    def __init__(self, *acts: Callable[[World], None]) -> None:
        self.pod: dict[str, Any] = pod()
        self.kernel: Any = SMALL
        self.acts = list(acts)
        self.lose: list[Exception] = []
        self.refuse: Exception | None = None
        self.meddle: Callable[[World], None] = lambda world: None
        self.mutate: Callable[[dict[str, Any]], None] = lambda item: None
        self.patches: list[dict[str, Any]] = []
        self.shown: list[str] = []

    # ---- the API

    def patch(self, path: str, changes: dict[str, Any], timeout: float = 0, *, dry_run: bool = False, wait: float = 0) -> dict[str, Any]:
        assert path.endswith("/resize")
        self.meddle(self)
        if not self.pod:
            raise NotFound("cp1", path, "404", "-")
        if self.refuse and self.patches:
            raise self.refuse
        if changes["metadata"].get("resourceVersion") not in (None, self.pod["metadata"].get("resourceVersion")):
            raise Conflict("cp1", path, "409", "run it again")
        self.patches.append(changes)
        spec = self.pod["spec"]["containers"][0]
        spec["resources"] = pod_resources.merged(spec["resources"], changes["spec"]["containers"][0]["resources"])
        self.mutate(spec)
        if self.lose:
            raise self.lose.pop(0)
        return copy.deepcopy(self.pod)

    def get_json(self, path: str, timeout: float = 0, *, wait: float = 0) -> dict[str, Any]:
        if "/pods?" not in path:
            raise NotFound("cp1", path, "404", "-")
        if self.acts:
            self.acts.pop(0)(self)
        return {"items": [copy.deepcopy(self.pod)] if self.pod else []}

    # ---- the node

    name = "w1"

    def run(self, script: str, timeout: float = 0) -> Answer:
        if "is-active" in script:
            return Answer(0, ["active"], [])
        shares = int(pod_resources.quantity(self.kernel["requests"]["cpu"]) * 1024)
        limit = int(pod_resources.quantity(self.kernel["limits"]["memory"]))
        files = f"cpu.shares={shares} cpu.cfs_quota_us=-1 cpu.cfs_period_us=100000 memory.limit_in_bytes={limit}"
        return Answer(0, [f"container {ID} 7 99 v1 {files}", "end"], [])

    # ---- its kubelet

    def actuate(self) -> None:
        """Apply everything correctly."""
        self.kernel = self.pod["spec"]["containers"][0]["resources"]
        self.report(self.kernel)

    def report(self, resources: Any) -> None:
        self.pod["status"]["containerStatuses"] = [state("app", resources)]
        self.pod["status"]["conditions"] = []

    def say(self, kind: str, reason: str) -> None:
        self.pod["status"]["conditions"] = [{"type": kind, "status": "True", "reason": reason, "message": "in its words"}]

    def engine(self, timeout: float = 0.5) -> Engine:
        line = Session(cast("Callable[[], Api]", lambda: self), 0.2)
        nodes = {"w1": cast(Remote, self)}
        return Engine(line, Watcher(line, "shop", ""), ability(), nodes, {}, timeout, self.shown.append)


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeouts, "time", Clock())
    monkeypatch.setattr(engine, "LOOK_AGAIN", 0.01)
    monkeypatch.setattr(engine, "FILES_SECONDS", 0.1)
    monkeypatch.setattr(engine, "STAYS_SECONDS", 0.1)
    monkeypatch.setattr(engine, "BACK_SECONDS", 0.5)


def idle(world: World) -> None:
    pass


def asked(world: World) -> Any:
    return world.pod["spec"]["containers"][0]["resources"]


def test_done() -> None:
    world = World(idle, World.actuate)
    proven = world.engine().resize(STEP)
    assert f"cpu.shares 307, cpu.cfs_quota_us -1, memory.limit_in_bytes {600 * MI}" in str(proven) and ": the same" in str(proven)
    assert len(world.patches) == 1 and world.patches[0]["metadata"] == {"uid": "u-web-1"}


def test_an_accepted_request_proves_nothing() -> None:
    world = World()
    with pytest.raises(Undone, match=r"the API accepted the request, but it was not applied within 0\.5 s") as caught:
        world.engine().resize(STEP)
    assert "reverted: app: cpu.shares 102" in str(caught.value) and asked(world) == SMALL


def test_a_status_alone_proves_nothing() -> None:
    """The status says that it is done, but the kernel enforces the old limits."""
    world = World(lambda one: one.report(LARGE), idle, lambda one: one.report(SMALL))
    with pytest.raises((Undone, RevertFailed), match="its status says that it is done, but its cgroup on w1 differs") as caught:
        world.engine().resize(STEP)
    assert "cpu.shares is 102, wanted 307" in str(caught.value) and asked(world) == SMALL


def test_a_cgroup_alone_proves_nothing() -> None:
    def half(world: World) -> None:
        world.kernel = LARGE

    world = World(half)
    with pytest.raises(RevertFailed, match="not applied within"):
        world.engine().resize(STEP)


def test_infeasible_is_reverted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kubelet reports which spec it has read."""
    monkeypatch.setattr(engine, "STAYS_SECONDS", 60)

    def infeasible(world: World) -> None:
        world.say("PodResizePending", "Infeasible")
        world.pod["status"]["observedGeneration"] = world.pod["metadata"]["generation"]

    world = World(infeasible, World.actuate)
    with pytest.raises(Undone, match="Infeasible: in its words; reverted"):
        world.engine(60).resize(STEP)
    assert asked(world) == SMALL and "shop/web-1: Infeasible: in its words" in world.shown


def old_infeasible(world: World) -> None:
    """As kubelets before 1.33 report it: without naming the spec."""
    world.pod["status"]["resize"] = "Infeasible"


def done(world: World) -> None:
    world.pod["status"].pop("resize", None)
    world.actuate()


def test_an_infeasible_without_a_spec_that_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "BACK_SECONDS", 60)
    world = World(old_infeasible, *[idle] * 40, done)
    with pytest.raises(Undone, match="Infeasible: node w1 can never have room for it; reverted"):
        world.engine(60).resize(STEP)
    assert asked(world) == SMALL


def test_an_infeasible_of_an_earlier_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server sets it to Proposed with each request, and a kubelet that has not seen the request yet writes it again."""
    monkeypatch.setattr(engine, "STAYS_SECONDS", 60)
    assert World(old_infeasible, idle, done).engine(60).resize(STEP)


def test_an_infeasible_of_an_older_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "STAYS_SECONDS", 0)

    def infeasible(world: World) -> None:
        world.pod["metadata"]["generation"] = 3
        world.say("PodResizePending", "Infeasible")
        world.pod["status"]["conditions"][0]["observedGeneration"] = 2
        world.pod["status"]["observedGeneration"] = 3

    assert World(infeasible, idle, idle, World.actuate).engine(60).resize(STEP)


def test_an_infeasible_that_outlives_the_revert_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is about the first request, and does not mean that the revert failed."""
    monkeypatch.setattr(engine, "BACK_SECONDS", 60)
    monkeypatch.setattr(engine, "STAYS_SECONDS", 0)
    world = World(old_infeasible, *[idle] * 20, done)
    with pytest.raises(Undone, match=r"Infeasible: node w1 can never have room for it; reverted: app: cpu\.shares 102"):
        world.engine(60).resize(STEP)
    assert asked(world) == SMALL


def test_an_infeasible_that_stays_during_the_revert() -> None:
    world = World(old_infeasible)
    with pytest.raises(RevertFailed, match=r"that is not proven on w1: .* not applied within 0\.5 s \(Infeasible; "):
        world.engine(60).resize(STEP)
    assert asked(world) == SMALL


def test_a_kubelet_that_never_acts_and_an_api_that_says_proposed() -> None:
    """During the revert the pod has the resources, as its cgroup shows; during the resize, Proposed proves nothing."""
    world = World(lambda one: one.pod["status"].update(resize="Proposed"))
    with pytest.raises(Undone, match=r"not applied within 0\.5 s \(Proposed; .*; reverted: app: cpu\.shares 102"):
        world.engine().resize(STEP)
    assert asked(world) == SMALL


def test_proposed_without_the_old_resources() -> None:
    def half(world: World) -> None:
        world.pod["status"]["resize"] = "Proposed"
        world.kernel = LARGE

    with pytest.raises(RevertFailed, match="its status says that it is done, but its cgroup on w1 differs"):
        World(half).engine().resize(STEP)


def test_deferred_is_shown_waited_for_and_done() -> None:
    world = World(lambda one: one.say("PodResizePending", "Deferred"), idle, idle, World.actuate)
    assert world.engine(60).resize(STEP)
    assert world.shown == ["shop/web-1: Deferred: in its words", "shop/web-1: continues"]


def test_deferred_for_too_long() -> None:
    world = World(lambda one: one.say("PodResizePending", "Deferred"), *[idle] * 2)
    with pytest.raises((Undone, RevertFailed), match=r"still Deferred after 0\.5 s: in its words"):
        world.engine().resize(STEP)
    assert asked(world) == SMALL


def test_an_error_that_stays() -> None:
    world = World(lambda one: one.say("PodResizeInProgress", "Error"))
    with pytest.raises(RevertFailed, match=r"the kubelet fails to apply it: in its words; .* \(Error: in its words; ") as caught:
        world.engine(60).resize(STEP)
    assert "that is not proven on w1: the API accepted the request" in str(caught.value)


def test_an_error_that_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "STAYS_SECONDS", 60)
    world = World(lambda one: one.say("PodResizeInProgress", "Error"), idle, World.actuate)
    assert world.engine(60).resize(STEP)


def test_an_unexpected_restart() -> None:
    def restarted(world: World) -> None:
        world.actuate()
        world.pod["status"]["containerStatuses"][0]["restartCount"] = 1

    with pytest.raises(
        (Undone, RevertFailed), match="its container app was restarted, which must not happen: it was aaaaaaaaaaaa, 0 restarts"
    ):
        World(restarted, World.actuate).engine().resize(STEP)


def test_a_missing_restart() -> None:
    step = PodStep("shop", "web-1", "u-web-1", "w1", {"app": ResourceChange(SMALL, LARGE, restarts=True)})
    with pytest.raises((Undone, RevertFailed), match="not applied within"):
        World(World.actuate).engine().resize(step)


def test_another_container_was_restarted() -> None:
    def hurt(world: World) -> None:
        world.pod["status"]["containerStatuses"][1]["containerID"] = "containerd://" + "c" * 64

    world = World(hurt)
    world.pod = pod("web-1", container("app"), container("sidecar"))
    with pytest.raises((Undone, RevertFailed), match="its container sidecar was restarted"):
        world.engine().resize(STEP)


def test_a_pod_that_ends() -> None:
    def gone(world: World) -> None:
        world.pod = {}

    def going(world: World) -> None:
        world.pod["metadata"]["deletionTimestamp"] = "now"

    def over(world: World) -> None:
        world.pod["status"] |= {"phase": "Failed", "reason": "Evicted"}

    for act, words in (
        (gone, "deleted during its resize; its replacement has the template's resources"),
        (going, "is being deleted during its resize"),
        (over, "ended during its resize .*Evicted"),
    ):
        world = World(act)
        with pytest.raises(Gone, match=words):
            world.engine().resize(STEP)
        assert len(world.patches) == 1, "there is nothing to revert"
    world = World()
    world.pod = {}
    with pytest.raises(Gone, match="deleted after daytwo read it"):
        world.engine().resize(STEP)


def test_a_refused_request_changed_nothing() -> None:
    world = World()
    world.lose = [Invalid("cp1", "/", "422", "fix it")]
    with pytest.raises(WriteRefused, match="422"):
        world.engine().resize(STEP)
    assert len(world.patches) == 1


def test_a_request_with_a_lost_answer_is_repeated() -> None:
    world = World(World.actuate)
    world.lose = [Timeout("cp1", "/", "no answer", "-")]
    assert world.engine().resize(STEP)
    assert len(world.patches) == 2


def test_an_api_that_stays_away_after_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.lose = [Timeout("cp1", "/", "no answer", "-")] * 10000
    with pytest.raises(
        RevertFailed,
        match=r"the old resources could not be requested.* REPAIR BY HAND: kubectl patch pod -n shop web-1 --subresource resize",
    ) as caught:
        world.engine().resize(STEP)
    assert '"requests":{"cpu":"100m","memory":"200Mi"}' in str(caught.value)


def test_a_webhook_that_changes_it() -> None:
    def less(spec: dict[str, Any]) -> None:
        if spec["resources"]["requests"]["cpu"] == "300m":
            spec["resources"]["requests"]["cpu"] = "150m"

    world = World()
    world.mutate = less
    with pytest.raises(Undone, match=r"its spec has requests.cpu 150m, not 300m: an admission webhook changes it"):
        world.engine().resize(STEP)
    assert asked(world) == SMALL


def test_a_node_that_cannot_be_read() -> None:
    world = World(World.actuate, World.actuate)
    made = world.engine()
    made.nodes = {}
    with pytest.raises(RevertFailed, match="no host of the inventory is node w1"):
        made.resize(STEP)


LOST = [pytest.param(error, id=type(error).__module__ + "." + type(error).__name__) for error in lost_answers()]


@pytest.mark.parametrize("error", LOST)
def test_a_request_whose_answer_is_lost_in_any_way_is_repeated(error: Exception) -> None:
    world = World(World.actuate)
    world.lose = [error]
    assert world.engine().resize(STEP) and len(world.patches) == 2


@pytest.mark.parametrize("error", LOST)
def test_a_lost_answer_during_the_revert(error: Exception) -> None:
    """Also if kubectl on the node sends the request: no SSH error ends the revert."""
    world = World()
    waits: list[int] = []

    def meddle(world: World) -> None:
        waits.append(1)
        world.lose = [error] if len(waits) == 2 else []

    world.meddle = meddle
    with pytest.raises(Undone, match=r"reverted: app: cpu.shares 102"):
        world.engine().resize(STEP)
    assert asked(world) == SMALL


@pytest.mark.parametrize("error", LOST)
def test_an_api_that_stays_away_says_what_to_do(error: Exception) -> None:
    world = World()
    world.lose = [error] * 10000
    with pytest.raises(RevertFailed, match=r"STATE UNKNOWN, check: kubectl get pod -n shop web-1 .*REPAIR BY HAND: kubectl patch pod"):
        world.engine().resize(STEP)


def test_a_refusal_after_a_lost_answer_says_nothing_about_the_first_request() -> None:
    """The first request was applied, its answer was lost, and a quota that it filled refuses the second one."""
    world = World(World.actuate)
    world.lose, world.refuse = [Timeout("cp1", "/", "no answer", "-")], Forbidden("cp1", "/", "exceeded quota", "-")
    assert world.engine().resize(STEP)
    assert asked(world) == LARGE


def test_an_unreadable_answer_is_a_lost_one() -> None:
    world = World()
    world.lose = [Unusable("cp1", "/", "the answer is no JSON", "-")]
    with pytest.raises(Undone, match="no JSON"):
        world.engine().resize(STEP)
    assert asked(world) == SMALL


def test_what_somebody_else_has_set_meanwhile_stays() -> None:
    theirs = {"requests": {"cpu": "700m", "memory": "200Mi"}, "limits": {"memory": "200Mi"}}

    def act(world: World) -> None:
        world.pod["spec"]["containers"][0]["resources"] = theirs

    world = World(act)
    with pytest.raises(ChangedByOthers, match=r"someone else changed its resources meanwhile \(app: .*700m.*left as they are now"):
        world.engine().resize(STEP)
    assert asked(world) == theirs and len(world.patches) == 1


def test_a_change_by_others_just_before_the_revert() -> None:
    """A change between the read and the write: the write requires the version that was read."""
    theirs = {"requests": {"cpu": "700m", "memory": "200Mi"}, "limits": {"memory": "200Mi"}}
    world = World()
    world.pod["metadata"]["resourceVersion"] = "1"
    asks: list[int] = []

    def meddle(world: World) -> None:
        asks.append(1)
        if len(asks) == 2:
            world.pod["spec"]["containers"][0]["resources"] = theirs
            world.pod["metadata"]["resourceVersion"] = "2"

    world.meddle = meddle
    with pytest.raises(ChangedByOthers):
        world.engine().resize(STEP)
    assert asked(world) == theirs


def test_a_status_write_meanwhile_does_not_stop_the_revert() -> None:
    world = World()
    world.pod["metadata"]["resourceVersion"] = "1"
    asks: list[int] = []

    def meddle(world: World) -> None:
        asks.append(1)
        if len(asks) == 2:
            world.pod["metadata"]["resourceVersion"] = "2"

    world.meddle = meddle
    with pytest.raises(Undone):
        world.engine().resize(STEP)
    assert asked(world) == SMALL and len(asks) == 3


def test_a_node_whose_connection_is_lost_in_the_middle() -> None:
    world = World(World.actuate, World.actuate)
    made = world.engine()

    def gone(script: str, timeout: float = 0) -> Answer:
        raise RemoteError("w1: the SSH connection was lost")

    world.run = gone  # type: ignore[method-assign]
    with pytest.raises(RevertFailed, match="that is not proven on w1: w1: the SSH connection was lost"):
        made.resize(STEP)
    assert asked(world) == SMALL


# ---- a resize that was done, put back later


def test_a_resize_that_was_done_is_put_back() -> None:
    world = World(idle, World.actuate, idle, World.actuate)
    line = world.engine()
    line.resize(STEP)
    ended = line.put_back(STEP, "it was killed")
    assert isinstance(ended, Undone) and "it was killed; reverted: app: cpu.shares 102" in str(ended) and asked(world) == SMALL


def test_containers_may_have_been_restarted_since() -> None:
    """Killed for their memory, say: that is why the resize is put back."""

    def restarted(world: World) -> None:
        world.actuate()
        world.pod["status"]["containerStatuses"][0]["restartCount"] = 3

    world = World(idle, World.actuate, idle, restarted)
    line = world.engine()
    line.resize(STEP)
    assert isinstance(line.put_back(STEP, "it was killed"), Undone) and asked(world) == SMALL


def test_a_resize_that_cannot_be_put_back_is_said() -> None:
    world = World(idle, World.actuate)
    line = world.engine()
    line.resize(STEP)
    ended = line.put_back(STEP, "it was killed")
    assert isinstance(ended, RevertFailed) and "not proven on w1" in str(ended)


def test_somebody_elses_resources_are_not_put_back() -> None:
    world = World(idle, World.actuate)
    world.engine().resize(STEP)
    world.pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "777m"}}
    assert isinstance(world.engine().put_back(STEP, "it was killed"), ChangedByOthers)
