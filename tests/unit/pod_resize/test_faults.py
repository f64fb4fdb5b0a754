"""The proof of a resize, and faults that no real cluster shows on demand: webhooks, wrong statuses, restarts. (How it is written: tests/unit/objects.)"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from roles.engine import timeouts
from roles.engine.api import Api, Conflict, NoApi, NotFound
from roles.engine.bridge import Remote
from roles.engine.objects import ChangedByOthers, Gone, RevertFailed, Session, Undone
from roles.engine.remote import Answer, RemoteError
from roles.pod_resize import PodStep, pod_resources, write
from roles.pod_resize.plan import ResourceChange
from roles.pod_resize.write import ResizeWriter, Watcher
from tests.context import context
from tests.unit.clock import Clock
from tests.unit.pod_resize.world import ID, MI, SMALL, ability, container, pod, state

LARGE = {"requests": {"cpu": "300m", "memory": "600Mi"}, "limits": {"memory": "600Mi"}}
STEP = PodStep("shop", "web-1", "u-web-1", "w1", {"app": ResourceChange(SMALL, LARGE)})


class World:
    """A cluster of one pod, whose kubelet does the next of `acts` at each read; and its node."""

    def __init__(self, *acts: Callable[[World], None]) -> None:
        self.pod: dict[str, Any] = pod(metadata={"resourceVersion": "1"})
        self.kernel: Any = SMALL
        self.acts = list(acts)
        self.away = False
        self.mutate: Callable[[dict[str, Any]], None] = lambda item: None
        self.patches: list[dict[str, Any]] = []
        self.shown: list[str] = []

    # ---- the API

    def patch(self, path: str, changes: dict[str, Any], timeout: float = 0, *, dry_run: bool = False, wait: float = 0) -> dict[str, Any]:
        assert path.endswith("/resize")
        if changes["metadata"] != {"uid": "u-web-1", "resourceVersion": self.pod["metadata"]["resourceVersion"]}:
            raise Conflict("cp1", path, "409", "run it again")
        self.patches.append(changes)
        for one in changes["spec"]["containers"]:
            spec = next(spec for spec in self.pod["spec"]["containers"] if spec["name"] == one["name"])
            spec["resources"] = pod_resources.merged(spec["resources"], one["resources"])
            self.mutate(spec)
        return copy.deepcopy(self.pod)

    def get_json(self, path: str, timeout: float = 0, *, wait: float = 0) -> dict[str, Any]:
        if self.away:
            raise NoApi("no answer")
        if path.endswith("/pods/web-1") and self.pod:
            return copy.deepcopy(self.pod)
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
        more = [state(one["name"], one["resources"]) for one in self.pod["spec"]["containers"][1:]]
        self.pod["status"]["containerStatuses"] = [state("app", resources), *more]
        self.pod["status"]["conditions"] = []

    def say(self, kind: str, reason: str) -> None:
        self.pod["status"]["conditions"] = [{"type": kind, "status": "True", "reason": reason, "message": "in its words"}]

    def writer(self, timeout: float = 0.5, nodes: Mapping[str, Any] | None = None) -> ResizeWriter:
        line = Session(cast("Callable[[], Api]", lambda: self), 0.2)
        there = {"w1": cast(Remote, self)} if nodes is None else nodes
        return ResizeWriter(line, Watcher(line, "shop", ""), ability(), there, {}, timeout, self.shown.append)

    def resize(self, timeout: float = 0.5, step: PodStep = STEP, writer: ResizeWriter | None = None) -> str:
        writing = writer or self.writer(timeout)
        return writing.carry_out(writing.change(step), context(say=self.shown.append))

    def put_back(self) -> Exception:
        writing = self.writer()
        return writing.put_back(writing.change(STEP), "it was killed", self.shown.append)


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeouts, "time", Clock())
    monkeypatch.setattr(write, "LOOK_AGAIN", 0.01)
    monkeypatch.setattr(write, "FILES_SECONDS", 0.1)
    monkeypatch.setattr(write, "STAYS_SECONDS", 0.1)
    monkeypatch.setattr(write, "BACK_SECONDS", 0.5)


def idle(world: World) -> None:
    pass


def asked(world: World) -> Any:
    return world.pod["spec"]["containers"][0]["resources"]


def test_done() -> None:
    world = World(idle, World.actuate)
    proven = world.resize()
    assert f"cpu.shares 307, cpu.cfs_quota_us -1, memory.limit_in_bytes {600 * MI}" in str(proven) and ": the same" in str(proven)
    assert len(world.patches) == 1


def kernel_alone(world: World) -> None:
    world.kernel = LARGE


def proposed(world: World) -> None:
    world.pod["status"]["resize"] = "Proposed"


def infeasible(world: World) -> None:
    """The kubelet reports which spec it has read."""
    world.say("PodResizePending", "Infeasible")
    world.pod["status"]["observedGeneration"] = world.pod["metadata"]["generation"]


def old_infeasible(world: World) -> None:
    """As kubelets before 1.33 report it: without naming the spec."""
    world.pod["status"]["resize"] = "Infeasible"


def infeasible_of_an_older_generation(world: World) -> None:
    world.pod["metadata"]["generation"] = 3
    world.say("PodResizePending", "Infeasible")
    world.pod["status"]["conditions"][0]["observedGeneration"] = 2
    world.pod["status"]["observedGeneration"] = 3


def deferred(world: World) -> None:
    world.say("PodResizePending", "Deferred")


def in_error(world: World) -> None:
    world.say("PodResizeInProgress", "Error")


def done(world: World) -> None:
    world.pod["status"].pop("resize", None)
    world.actuate()


def restarted(world: World) -> None:
    world.actuate()
    world.pod["status"]["containerStatuses"][0]["restartCount"] = 1


def restarted_in_the_revert(world: World) -> None:
    if len(world.patches) == 2:
        restarted(world)


EITHER = (Undone, RevertFailed)
STAYED = "Infeasible: node w1 can never have room for it; reverted: app: cpu.shares 102"


@pytest.mark.parametrize(
    ("acts", "more", "ended", "words"),
    [
        ([], {}, Undone, "the API accepted the request, but it was not applied within 0.5 s|reverted: app: cpu.shares 102"),
        ([lambda world: world.report(LARGE), idle, lambda world: world.report(SMALL)], {}, EITHER,
         "its status says that it is done, but its cgroup on w1 differs|cpu.shares is 102, wanted 307"),
        ([kernel_alone], {}, RevertFailed, "not applied within"),
        ([infeasible, World.actuate], {"seconds": 60, "STAYS_SECONDS": 60}, Undone, "Infeasible: in its words; reverted"),
        ([old_infeasible, *[idle] * 40, done], {"seconds": 60, "BACK_SECONDS": 60}, Undone, STAYED),
        # It is about the first request, and does not mean that the revert failed.
        ([old_infeasible, *[idle] * 20, done], {"seconds": 60, "BACK_SECONDS": 60, "STAYS_SECONDS": 0}, Undone, STAYED),
        ([old_infeasible], {"seconds": 60}, RevertFailed, "that is not proven on w1: |not applied within 0.5 s (Infeasible; "),
        # During the revert the pod has the resources, as its cgroup shows; during the resize, Proposed proves nothing.
        ([proposed], {}, Undone, "not applied within 0.5 s (Proposed; |; reverted: app: cpu.shares 102"),
        ([lambda world: (proposed(world), kernel_alone(world))], {}, RevertFailed,
         "its status says that it is done, but its cgroup on w1 differs"),
        ([deferred, idle, idle], {}, EITHER, "still Deferred after 0.5 s: in its words"),
        ([in_error], {"seconds": 60}, RevertFailed,
         "the kubelet fails to apply it: in its words; |that is not proven on w1: the API accepted the request|(Error: in its words; "),
        ([restarted, World.actuate], {}, EITHER,
         "its container app was restarted, which must not happen: it was aaaaaaaaaaaa, 0 restarts"),
        ([restarted_in_the_revert] * 500, {}, RevertFailed,
         "that is not proven on w1: its container app was restarted, which must not happen"),
    ],
    ids=["accepted", "status alone", "cgroup alone", "infeasible at once", "infeasible stays", "infeasible outlives", "infeasible in the revert",
         "proposed", "proposed and not reverted", "deferred", "error", "restarted", "restarted in the revert"],
)  # fmt: skip
def test_what_is_not_proven_is_reverted(
    acts: list[Callable[[World], None]], more: dict[str, float], ended: type[Exception], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in more.items():
        monkeypatch.setattr(write, name, seconds) if name.isupper() else None
    world = World(*acts)
    with pytest.raises(ended) as caught:
        world.resize(more.get("seconds", 0.5))
    assert all(part in str(caught.value) for part in words.split("|")), caught.value
    assert asked(world) == SMALL and ("shop/web-1: Infeasible: in its words" in world.shown) == (acts[:1] == [infeasible])


@pytest.mark.parametrize(
    ("acts", "stays", "shown"),
    [
        # The API server sets it to Proposed with each request, and a kubelet that has not seen the request yet writes it again.
        ([old_infeasible, idle, done], 60, "Infeasible"),
        ([infeasible_of_an_older_generation, idle, idle, World.actuate], 0, "Infeasible: in its words"),
        ([deferred, idle, idle, World.actuate], 0.1, "Deferred: in its words"),
        ([in_error, idle, World.actuate], 60, "Error: in its words"),
    ],
    ids=["infeasible of an earlier request", "infeasible of an older generation", "deferred", "error"],
)
def test_what_passes_is_waited_for(acts: list[Callable[[World], None]], stays: float, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "STAYS_SECONDS", stays)
    world = World(*acts)
    assert world.resize(60) and world.shown == [f"shop/web-1: {shown}", "shop/web-1: continues"]


def test_a_missing_restart() -> None:
    step = PodStep("shop", "web-1", "u-web-1", "w1", {"app": ResourceChange(SMALL, LARGE, restarts=True)})
    with pytest.raises((Undone, RevertFailed), match="not applied within"):
        World(World.actuate).resize(step=step)


def test_another_container_was_restarted() -> None:
    def hurt(world: World) -> None:
        world.pod["status"]["containerStatuses"][1]["containerID"] = "containerd://" + "c" * 64

    world = World(hurt)
    world.pod = pod("web-1", container("app"), container("sidecar"), metadata={"resourceVersion": "1"})
    with pytest.raises((Undone, RevertFailed), match="its container sidecar was restarted"):
        world.resize()


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
            world.resize()
        assert len(world.patches) == 1, "there is nothing to revert"
    world = World()
    world.pod = {}
    with pytest.raises(Gone, match="deleted after daytwo read it"):
        world.resize()


def test_an_api_that_stays_away_says_how_to_revert_by_hand() -> None:
    def away(world: World) -> None:
        world.away = True

    with pytest.raises(
        RevertFailed,
        match=r"STATE UNKNOWN, check: kubectl get pod -n shop web-1 .*REPAIR BY HAND: kubectl patch pod -n shop web-1 --subresource resize",
    ) as caught:
        World(away).resize()
    assert '{"name":"app","resources":{"requests":{"cpu":"100m","memory":"200Mi"},"limits":{"memory":"200Mi"}}}' in str(caught.value)


def test_what_a_webhook_makes_of_it_is_reverted() -> None:
    def less(spec: dict[str, Any]) -> None:
        if spec["resources"]["requests"]["cpu"] == "300m":
            spec["resources"]["requests"]["cpu"] = "150m"

    world = World()
    world.mutate = less
    with pytest.raises(Undone, match=r"app has requests.cpu 150m, not 300m; a webhook or another manager changes it; reverted: app: cpu"):
        world.resize()
    assert asked(world) == SMALL


def test_containers_that_others_have_resized_meanwhile_stay_and_the_rest_is_reverted() -> None:
    theirs = {"requests": {"cpu": "700m", "memory": "200Mi"}, "limits": {"memory": "200Mi"}}

    def act(world: World) -> None:
        world.pod["spec"]["containers"][1]["resources"] = theirs
        world.acts = [World.actuate] * 500

    both = {name: ResourceChange(SMALL, LARGE) for name in ("app", "side")}
    world = World(act)
    world.pod = pod("web-1", container("app"), container("side"), metadata={"resourceVersion": "1"})
    with pytest.raises(ChangedByOthers, match=r"changed by someone else meanwhile \(side: .* -> cpu 700m/-.*left as it is now"):
        world.resize(step=PodStep("shop", "web-1", "u-web-1", "w1", both))
    assert [one["resources"] for one in world.pod["spec"]["containers"]] == [SMALL, theirs]


def test_a_node_that_cannot_be_read() -> None:
    world = World(World.actuate, World.actuate)
    with pytest.raises(RevertFailed, match="no host of the inventory is node w1"):
        world.resize(writer=world.writer(nodes={}))


def test_a_node_whose_connection_is_lost_in_the_middle() -> None:
    world = World(World.actuate, World.actuate)

    def gone(script: str, timeout: float = 0) -> Answer:
        raise RemoteError("w1: the SSH connection was lost")

    world.run = gone  # type: ignore[method-assign]
    with pytest.raises(RevertFailed, match="that is not proven on w1: w1: the SSH connection was lost"):
        world.resize()
    assert asked(world) == SMALL


# ---- a resize that was done, put back later


def test_a_resize_that_was_done_is_put_back() -> None:
    world = World(idle, World.actuate, idle, World.actuate)
    world.resize()
    ended = world.put_back()
    assert isinstance(ended, Undone) and "it was killed; reverted: app: cpu.shares 102" in str(ended) and asked(world) == SMALL


def test_containers_may_have_been_restarted_since() -> None:
    """Killed for their memory, say: that is why the resize is put back."""

    def restarted(world: World) -> None:
        world.actuate()
        world.pod["status"]["containerStatuses"][0]["restartCount"] = 3

    world = World(idle, World.actuate, idle, restarted)
    world.resize()
    assert isinstance(world.put_back(), Undone) and asked(world) == SMALL


def test_a_resize_that_cannot_be_put_back_is_said() -> None:
    world = World(idle, World.actuate)
    world.resize()
    ended = world.put_back()
    assert isinstance(ended, RevertFailed) and "not proven on w1" in str(ended)
