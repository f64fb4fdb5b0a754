"""The order of one workload's change, and that everything is put back if the watch finds it worse."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from roles.engine import timeouts
from roles.engine.context import StepContext
from roles.engine.objects import ChangedByOthers, Gone, RevertFailed, Session, Undone, WriteRefused
from roles.engine.remote import RemoteError
from roles.engine.transaction import ChangedField, ChangedObject
from roles.pod_resize import WorkloadResize
from roles.right_size import Store
from roles.right_size.apply import _keep
from roles.right_size.change import WorkloadChange, WorkloadUndo
from roles.right_size.samples import Kill
from roles.right_size.targets import TargetChange, recorded_targets, write_target
from roles.right_size.watching import SoakLook
from roles.right_size.workloads import Amounts
from tests.context import context
from tests.unit.clock import Clock
from tests.unit.right_size.world import ID, MI, START, container, reads


def utilization(percent: int, name: str = "cpu") -> list[Any]:
    target = {"type": "Utilization", "averageUtilization": percent}
    return [{"type": "Resource", "resource": {"name": name, "target": target}}]


OLD, NEW = utilization(60), utilization(120)
PATH = "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers/h"
TARGET = TargetChange("h", PATH, "u", OLD, NEW, "cpu 60 % -> 120 %")
FALLING = TargetChange("h", PATH, "u", NEW, OLD, "cpu 120 % -> 60 %")
# The CPU request is halved, and that of memory doubled.
TWO = TargetChange("h", PATH, "u", [*OLD, *utilization(80, "memory")], [*NEW, *utilization(40, "memory")], "both")
LOWER = [*OLD, *utilization(40, "memory")]
NOW = container("web", limits=Amounts(None, 128 * MI))
WELL = SoakLook({("web-1", "app"): NOW}, {})
KILLED = SoakLook({("web-1", "app"): replace(NOW, restarts=1, kills=(Kill("f" * 64, START, 64 * MI, 1.0),))}, {})


@dataclass
class Resize:
    """A WorkloadResize that notes what is done to it."""

    log: list[str] = field(default_factory=list)
    fails: Exception | None = None
    name: str = "Deployment shop/web"
    template: object | None = "new"
    steps: Sequence[object] = ("step",)
    restarts: bool = False
    done: list[str] = field(default_factory=list)
    refuses: Exception | None = None
    kept: list[SoakLook] = field(default_factory=list)

    def fields(self) -> list[dict[str, Any]]:
        return []

    def about(self) -> dict[str, Any]:
        return {}

    def resize(self, context: StepContext) -> str:
        if self.refuses:
            raise self.refuses
        self.log.append("resize")
        self.done.append("pod")
        return "proof"

    def put_back(self, why: str) -> Exception:
        self.log.append("put back")
        self.done.clear()
        return Undone(why)

    def update_template(self, reverting: Callable[[], object] = lambda: None) -> str:
        self.log.append("template")
        if self.fails:
            reverting()
            self.reverted()
            raise self.fails
        return "rolled out"

    def reverted(self) -> None:
        """The old template is written."""


class Cluster:
    """One autoscaler."""

    def __init__(self, metrics: Sequence[Any] = OLD) -> None:
        self.item: dict[str, Any] | None = {
            "metadata": {"namespace": "shop", "name": "h", "uid": "u", "resourceVersion": "1"},
            "spec": {"metrics": list(metrics)},
        }
        self.writes = self.applied = 0

    def fetch(self, path: str) -> dict[str, Any] | None:
        assert path == PATH
        return copy.deepcopy(self.item)

    unconflicted = Session.unconflicted

    def written(self, path: str, send: Callable[[Any], dict[str, Any]], done: Callable[[Any], bool]) -> dict[str, Any]:
        return send(self)

    def patch(self, path: str, changes: dict[str, Any], *, dry_run: bool) -> dict[str, Any]:
        assert self.item is not None
        self.writes += 1
        assert changes["metadata"] == {"uid": "u", "resourceVersion": "1"}
        self.item["spec"]["metrics"] = changes["spec"]["metrics"]
        return self.item

    def apply(self, path: str, manifest: dict[str, Any], *, force: bool) -> dict[str, Any]:
        assert not force and manifest["metadata"] == {"namespace": "shop", "name": "h", "uid": "u"}
        assert self.item is not None and manifest["spec"].keys() == {"metrics", "maxReplicas"}
        self.applied += 1
        self.item["spec"]["metrics"] = manifest["spec"]["metrics"]
        return self.item

    @property
    def metrics(self) -> Any:
        return self.item and self.item["spec"]["metrics"]

    @property
    def session(self) -> Session:
        return cast(Session, self)


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeouts, "time", Clock())


def change(
    cluster: Cluster, resize: Resize, *looks: SoakLook | Exception, soak: float = 20.0, target: TargetChange = TARGET
) -> WorkloadChange:
    left = list(looks)

    def look() -> SoakLook:
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, Exception):
            raise found
        return found

    return WorkloadChange(
        cast(WorkloadResize, resize), [target], cluster.session, soak, look, {}, lambda: cast(WorkloadResize, resize), resize.kept.append
    )


def test_pods_then_targets_then_the_watch_then_the_template() -> None:
    cluster, resize, noted = Cluster(), Resize(), []
    proof = change(cluster, resize, WELL).carry_out(context(noted.append))
    assert resize.log == ["resize", "template"] and cluster.metrics == NEW
    assert proof == "watched for 20 s; h: cpu 60 % -> 120 %; rolled out; proof"
    assert noted == [[TARGET.field]], "before the first write"


def test_a_container_that_is_killed_puts_everything_back() -> None:
    cluster, resize = Cluster(), Resize()
    with pytest.raises(Undone, match="the kernel killed it for its memory at a limit of 128Mi"):
        change(cluster, resize, WELL, WELL, KILLED).carry_out(context())
    assert resize.log == ["resize", "put back"] and cluster.metrics == OLD
    assert resize.kept == [KILLED], "with the limit of that moment"


def test_a_kill_before_the_first_look_counts_too() -> None:
    cluster, resize = Cluster(), Resize()
    with pytest.raises(Undone, match="killed it for its memory"):
        change(cluster, resize, WELL, KILLED).carry_out(context())
    restarting = Resize(restarts=True)
    change(Cluster(), restarting, KILLED).carry_out(context())
    assert restarting.log == ["resize", "template"], "the resize itself restarts it"


def test_what_cannot_be_watched_is_not_begun() -> None:
    cluster, resize = Cluster(), Resize()
    with pytest.raises(WriteRefused, match="so nothing was changed: w1: gone"):
        change(cluster, resize, RemoteError("w1: gone")).carry_out(context())
    assert not resize.log and cluster.metrics == OLD


def test_what_cannot_be_watched_is_put_back() -> None:
    cluster, resize = Cluster(), Resize()
    with pytest.raises(Undone, match="could not be watched: w1: gone"):
        change(cluster, resize, WELL, RemoteError("w1: gone"), soak=60).carry_out(context())
    assert resize.log == ["resize", "put back"] and cluster.metrics == OLD


def test_the_watch_ends_with_a_look_that_sees() -> None:
    cluster, resize = Cluster(), Resize()
    with pytest.raises(Undone, match="killed it for its memory"):
        change(cluster, resize, WELL, WELL, KILLED, soak=5).carry_out(context())
    with pytest.raises(Undone, match="could not be watched"):
        change(cluster, resize, WELL, WELL, RemoteError("w1: gone"), soak=5).carry_out(context())
    assert cluster.metrics == OLD


class Noting(Resize):
    """Notes the metrics of the autoscaler at each step."""

    def __init__(self, cluster: Cluster, **more: Any) -> None:
        super().__init__(**more)
        self.cluster = cluster
        self.seen: list[tuple[str, Any]] = []

    def resize(self, context: StepContext) -> str:
        self.seen.append(("resize", self.cluster.metrics))
        return super().resize(context)

    def put_back(self, why: str) -> Exception:
        self.seen.append(("put back", self.cluster.metrics))
        return super().put_back(why)

    def update_template(self, reverting: Callable[[], object] = lambda: None) -> str:
        self.seen.append(("template", self.cluster.metrics))
        return super().update_template(reverting)

    def reverted(self) -> None:
        self.seen.append(("reverted", self.cluster.metrics))


#: The metrics while pods are resized, there and back.
MEANWHILE = [(TARGET, OLD), (FALLING, OLD), (TWO, LOWER), (replace(TWO, before=TWO.after, after=TWO.before), LOWER)]


@pytest.mark.parametrize(("target", "meanwhile"), MEANWHILE)
def test_while_pods_are_resized_each_metric_has_its_lower_target(target: TargetChange, meanwhile: list[Any]) -> None:
    """An autoscaler that looks in the middle may add pods; it never removes some that are needed."""
    cluster = Cluster(target.before)
    resize = Noting(cluster)
    change(cluster, resize, WELL, target=target).carry_out(context())
    assert resize.seen == [("resize", meanwhile), ("template", list(target.after))] and cluster.metrics == list(target.after)

    cluster = Cluster(target.before)
    resize = Noting(cluster)
    with pytest.raises(Undone):
        change(cluster, resize, WELL, KILLED, target=target).carry_out(context())
    assert resize.seen == [("resize", meanwhile), ("put back", meanwhile)] and cluster.metrics == list(target.before)

    cluster = Cluster(target.before)
    resize = Noting(cluster, fails=Undone("its roll-out failed"))
    with pytest.raises(Undone):
        change(cluster, resize, WELL, target=target).carry_out(context())
    assert resize.seen[2:] == [("reverted", meanwhile), ("put back", meanwhile)] and cluster.metrics == list(target.before)

    cluster = Cluster(target.before)
    resize = Noting(cluster)
    WorkloadUndo(cast(WorkloadResize, resize), [target], cluster.session).carry_out(context())
    assert resize.seen == [("resize", meanwhile), ("template", meanwhile)] and cluster.metrics == list(target.after)


@pytest.mark.parametrize("at", [TWO.before, LOWER, TWO.after])
def test_the_way_back_of_a_run_that_was_killed_anywhere(at: list[Any]) -> None:
    cluster = Cluster(at)
    back = replace(TWO, before=TWO.after, after=TWO.before)
    assert back.wrote(at)
    WorkloadUndo(cast(WorkloadResize, Resize()), [back], cluster.session).carry_out(context())
    assert cluster.metrics == TWO.before
    assert not back.wrote(utilization(50)) and not back.wrote([])


def test_an_autoscaler_that_is_gone_does_not_keep_the_pods_from_their_way_back() -> None:
    cluster, resize = Cluster(), Resize()
    cluster.item = None
    with pytest.raises(Gone):
        WorkloadUndo(cast(WorkloadResize, resize), [FALLING], cluster.session).carry_out(context())
    assert resize.log == ["resize", "template"]


def test_metrics_that_are_not_the_recorded_ones_stay_until_the_end() -> None:
    """With `force`, the metrics of someone else are overwritten."""
    theirs = [*utilization(50), {"type": "External"}]
    cluster = Cluster(theirs)
    resize = Noting(cluster)
    WorkloadUndo(cast(WorkloadResize, resize), [replace(FALLING, before=theirs)], cluster.session).carry_out(context())
    assert resize.seen[0] == ("resize", theirs) and cluster.metrics == OLD


def test_pods_that_cannot_be_resized_leave_the_targets_as_they_were() -> None:
    cluster, resize = Cluster(NEW), Resize(refuses=WriteRefused("no room"))
    with pytest.raises(Undone, match="no room; its autoscalers have their old targets"):
        change(cluster, resize, WELL, target=FALLING).carry_out(context())
    assert not resize.log and cluster.metrics == NEW
    with pytest.raises(RevertFailed, match="stuck"):
        change(Cluster(), Resize(refuses=RevertFailed("stuck")), WELL).carry_out(context())


def test_a_plan_that_no_longer_holds_is_not_carried_out() -> None:
    cluster, resize, noted = Cluster(), Resize(), []

    def again() -> WorkloadResize:
        raise ChangedByOthers("its template got other resources")

    with pytest.raises(ChangedByOthers):
        replace(change(cluster, resize, WELL), again=again).carry_out(context(noted.append))
    assert not resize.log and not noted and cluster.metrics == OLD


def test_a_look_may_fail_once() -> None:
    cluster, resize = Cluster(), Resize()
    change(cluster, resize, WELL, RemoteError("w1: busy"), WELL).carry_out(context())
    assert resize.log == ["resize", "template"]


@pytest.mark.parametrize(("error", "ends"), [(Undone("its roll-out failed"), Undone), (RevertFailed("it is stuck"), RevertFailed)])
def test_a_template_that_fails_puts_everything_back(error: Exception, ends: type[Exception]) -> None:
    cluster, resize = Cluster(), Resize(fails=error)
    with pytest.raises(ends, match=str(error)):
        change(cluster, resize, WELL).carry_out(context())
    assert resize.log == ["resize", "template", "put back"] and cluster.metrics == OLD


def test_a_target_that_someone_else_changed_puts_the_pods_back() -> None:
    cluster, resize = Cluster(), Resize()
    assert cluster.item is not None
    cluster.item["spec"]["metrics"] = [{"theirs": 1}]
    with pytest.raises(Undone, match="someone else changed the metrics"):
        change(cluster, resize, WELL).carry_out(context())
    assert resize.log == ["resize", "put back"] and cluster.metrics == [{"theirs": 1}]


def test_a_target_that_cannot_be_put_back_is_loud() -> None:
    cluster, resize = Cluster(), Resize()
    worse = iter([WELL, KILLED])

    def look() -> SoakLook:
        found = next(worse)
        if found is KILLED and cluster.item is not None:
            cluster.item["spec"]["metrics"] = [{"theirs": 1}]
        return found

    whole = replace(change(cluster, resize, WELL), look=look)
    with pytest.raises(RevertFailed, match="HorizontalPodAutoscaler h: someone else changed"):
        whole.carry_out(context())


def test_what_is_as_wanted_is_not_written_and_what_is_gone_is_said() -> None:
    cluster = Cluster()
    write_target(cluster.session, TARGET, NEW, context())
    write_target(cluster.session, TARGET, NEW, context())
    assert (cluster.metrics, cluster.writes) == (NEW, 1)
    cluster.item = None
    with pytest.raises(Gone):
        write_target(cluster.session, TARGET, NEW, context())


@pytest.mark.parametrize(("manager", "applied"), [("daytwo", 1), ("helm", 0)])
def test_an_autoscaler_of_daytwos_is_applied_and_stays_its_own(manager: str, applied: int) -> None:
    """The API server knows a patch as of another manager, also if daytwo sends it: the next apply would conflict with it."""
    cluster = Cluster()
    assert cluster.item is not None
    own = {"f:spec": {"f:metrics": {}, "f:maxReplicas": {}}}
    cluster.item["metadata"]["managedFields"] = [{"manager": manager, "operation": "Apply", "fieldsV1": own}]
    cluster.item["spec"]["maxReplicas"] = 10
    write_target(cluster.session, TARGET, NEW, context())
    assert (cluster.metrics, cluster.applied) == (NEW, applied)


def test_the_way_back() -> None:
    changed = ChangedObject(
        "Deployment shop/web", "right size", (ChangedField(("autoscalers", "h", "metrics"), OLD, NEW),),
        {"namespace": "shop", "autoscalers": {"h": "u"}},
    )  # fmt: skip
    [back] = recorded_targets(changed)
    assert (back.before, back.after, back.path, back.uid) == (NEW, OLD, PATH, "u")
    with pytest.raises(ValueError, match="undo it by hand"):
        recorded_targets(replace(changed, about={"namespace": "shop"}))
    cluster = Cluster()
    write_target(cluster.session, TARGET, NEW, context())
    pods, template, both = Resize(template=None), Resize(steps=()), Resize()
    for resize, done in ((pods, ["resize"]), (template, ["template"]), (both, ["resize", "template"])):
        way = WorkloadUndo(cast(WorkloadResize, resize), [back], cluster.session)
        assert not way.empty
        way.carry_out(context())
        assert resize.log == done and cluster.metrics == OLD
    assert WorkloadUndo(cast(WorkloadResize, Resize(template=None, steps=())), [], cluster.session).empty
    with pytest.raises(ChangedByOthers):
        assert cluster.item is not None
        cluster.item["spec"]["metrics"] = [{"theirs": 1}]
        write_target(cluster.session, back, back.after, context())


def test_a_watch_keeps_the_kills_with_their_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a container that was restarted, and of one that the kernel has only counted yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    now, cluster = time.time(), "11111111-2222-3333-4444-555555555555"
    restarted = replace(NOW, kills=(Kill("f" * 64, now, 64 * MI, 1.0),))
    counted = replace(NOW, pod="web-2", id=ID)
    read = replace(reads(0, 5)[0], at=now, oom_kills=2, memory_limit=128 * MI)
    _keep(cluster, NOW.workload, SoakLook({("web-1", "app"): restarted, ("web-2", "app"): counted}, {("web-2", "app"): read}))
    kept = Store.of(cluster).read(NOW.workload)["app"]
    assert {(kill.id, kill.limit) for kill in kept.kills} == {("f" * 64, 64 * MI), (f"{ID}#2", 128 * MI)}
