"""The order of one workload's change, and that everything is put back if the watch finds it worse."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from roles.engine import timeouts
from roles.engine.api import Conflict
from roles.engine.bridge import RemoteError
from roles.engine.object_changes import ChangedByOthers, Gone, RevertFailed, Session, Undone, WriteRefused
from roles.engine.transaction import ChangedObject
from roles.engine.transaction.object_record import ChangedField
from roles.pod_resize import WorkloadResize
from roles.right_size.apply_run import WayBack, WorkloadChange, recorded_targets, target_field, write_target
from roles.right_size.applying import TargetChange
from roles.right_size.samples import Kill
from roles.right_size.watching import Look
from roles.right_size.workloads import Amounts
from tests.unit.clock import Clock
from tests.unit.right_size.test_report import container
from tests.unit.right_size.world import MI, START

OLD, NEW = [{"type": "Resource", "n": 60}], [{"type": "Resource", "n": 30}]
PATH = "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers/h"
TARGET = TargetChange("h", PATH, "u", OLD, NEW, "cpu 60 % -> 30 %")
NOW = container("web", limits=Amounts(None, 128 * MI))
WELL = Look({("web-1", "app"): NOW}, {})
KILLED = Look({("web-1", "app"): replace(NOW, restarts=1, kills=(Kill("f" * 64, START, 64 * MI, 1.0),))}, {})


@dataclass
class Resize:
    """A WorkloadResize that notes what is done to it."""

    log: list[str] = field(default_factory=list)
    fails: Exception | None = None
    name: str = "Deployment shop/web"
    template: object | None = "new"
    steps: Sequence[object] = ("step",)
    restarts: bool = False

    def fields(self) -> list[dict[str, Any]]:
        return []

    def about(self) -> dict[str, Any]:
        return {}

    def resize(self) -> str:
        self.log.append("resize")
        return "proof"

    def put_back(self, why: str) -> Exception:
        self.log.append("put back")
        return Undone(why)

    def update_template(self) -> str:
        self.log.append("template")
        if self.fails:
            raise self.fails
        return "rolled out"


class Cluster:
    """One autoscaler."""

    def __init__(self) -> None:
        self.item: dict[str, Any] | None = {"metadata": {"uid": "u", "resourceVersion": "1"}, "spec": {"metrics": OLD}}
        self.conflicts = 0

    def fetch(self, path: str) -> dict[str, Any] | None:
        assert path == PATH
        return copy.deepcopy(self.item)

    def written(self, path: str, send: Callable[[Any], dict[str, Any]], done: Callable[[Any], bool]) -> dict[str, Any]:
        return send(self)

    def patch(self, path: str, changes: dict[str, Any]) -> dict[str, Any]:
        assert self.item is not None
        if self.conflicts:
            self.conflicts -= 1
            raise Conflict("cp1", path, "409", "again")
        assert changes["metadata"] == {"uid": "u", "resourceVersion": "1"}
        self.item["spec"]["metrics"] = changes["spec"]["metrics"]
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


def change(cluster: Cluster, resize: Resize, *looks: Look | Exception, soak: float = 20.0) -> WorkloadChange:
    left = list(looks)

    def look() -> Look:
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, Exception):
            raise found
        return found

    return WorkloadChange(cast(WorkloadResize, resize), [TARGET], cluster.session, soak, look, {})


def test_pods_then_targets_then_the_watch_then_the_template() -> None:
    cluster, resize, noted = Cluster(), Resize(), []
    proof = change(cluster, resize, WELL).carry_out(noted.append)
    assert resize.log == ["resize", "template"] and cluster.metrics == NEW
    assert proof == "proof; watched for 20 s; h: cpu 60 % -> 30 %; rolled out"
    assert noted == [[target_field(TARGET)]], "before the first write"


def test_a_container_that_is_killed_puts_everything_back() -> None:
    cluster, resize = Cluster(), Resize()
    with pytest.raises(Undone, match="the kernel killed it for its memory at a limit of 128Mi"):
        change(cluster, resize, WELL, WELL, KILLED).carry_out(lambda _: None)
    assert resize.log == ["resize", "put back"] and cluster.metrics == OLD


def test_a_kill_before_the_first_look_counts_too() -> None:
    cluster, resize = Cluster(), Resize()
    with pytest.raises(Undone, match="killed it for its memory"):
        change(cluster, resize, WELL, KILLED).carry_out(lambda _: None)
    restarting = Resize(restarts=True)
    change(Cluster(), restarting, KILLED).carry_out(lambda _: None)
    assert restarting.log == ["resize", "template"], "the resize itself restarts it"


def test_what_cannot_be_watched_is_not_begun() -> None:
    cluster, resize = Cluster(), Resize()
    with pytest.raises(WriteRefused, match="nothing was changed: w1: gone"):
        change(cluster, resize, RemoteError("w1: gone")).carry_out(lambda _: None)
    assert not resize.log and cluster.metrics == OLD


def test_what_cannot_be_watched_is_put_back() -> None:
    cluster, resize = Cluster(), Resize()
    with pytest.raises(Undone, match="could not be watched: w1: gone"):
        change(cluster, resize, WELL, RemoteError("w1: gone"), soak=60).carry_out(lambda _: None)
    assert resize.log == ["resize", "put back"] and cluster.metrics == OLD


def test_a_look_may_fail_once() -> None:
    cluster, resize = Cluster(), Resize()
    change(cluster, resize, WELL, RemoteError("w1: busy"), WELL).carry_out(lambda _: None)
    assert resize.log == ["resize", "template"]


@pytest.mark.parametrize(("error", "ends"), [(Undone("its roll-out failed"), Undone), (RevertFailed("it is stuck"), RevertFailed)])
def test_a_template_that_fails_puts_everything_back(error: Exception, ends: type[Exception]) -> None:
    cluster, resize = Cluster(), Resize(fails=error)
    with pytest.raises(ends, match=str(error)):
        change(cluster, resize, WELL).carry_out(lambda _: None)
    assert resize.log == ["resize", "template", "put back"] and cluster.metrics == OLD


def test_a_target_that_someone_else_changed_puts_the_pods_back() -> None:
    cluster, resize = Cluster(), Resize()
    assert cluster.item is not None
    cluster.item["spec"]["metrics"] = [{"theirs": 1}]
    with pytest.raises(Undone, match="someone else changed the metrics"):
        change(cluster, resize, WELL).carry_out(lambda _: None)
    assert resize.log == ["resize", "put back"] and cluster.metrics == [{"theirs": 1}]


def test_a_target_that_cannot_be_put_back_is_loud() -> None:
    cluster, resize = Cluster(), Resize()
    worse = iter([WELL, KILLED])

    def look() -> Look:
        found = next(worse)
        if found is KILLED and cluster.item is not None:
            cluster.item["spec"]["metrics"] = [{"theirs": 1}]
        return found

    whole = WorkloadChange(cast(WorkloadResize, resize), [TARGET], cluster.session, 20, look, {})
    with pytest.raises(RevertFailed, match="HorizontalPodAutoscaler h: someone else changed"):
        whole.carry_out(lambda _: None)


def test_a_conflict_is_tried_again() -> None:
    cluster = Cluster()
    cluster.conflicts = 2
    write_target(cluster.session, TARGET)
    assert cluster.metrics == NEW
    write_target(cluster.session, TARGET)
    cluster.item = None
    with pytest.raises(Gone):
        write_target(cluster.session, TARGET)


def test_the_way_back() -> None:
    changed = ChangedObject(
        "Deployment shop/web", "right size", (ChangedField(("autoscalers", "h", "metrics"), OLD, NEW),),
        {"path": "/p", "autoscalers": {"h": [PATH, "u"]}},
    )  # fmt: skip
    [back] = recorded_targets(changed)
    assert (back.before, back.after, back.path, back.uid) == (NEW, OLD, PATH, "u")
    with pytest.raises(ValueError, match="undo it by hand"):
        recorded_targets(replace(changed, about={"path": "/p"}))
    cluster = Cluster()
    write_target(cluster.session, TARGET)
    pods, template = Resize(template=None), Resize()
    for resize, done in ((pods, "resize"), (template, "template")):
        way = WayBack(cast(WorkloadResize, resize), [back], cluster.session)
        assert not way.empty
        way.carry_out(lambda _: None)
        assert resize.log == [done] and cluster.metrics == OLD
    assert WayBack(cast(WorkloadResize, Resize(template=None, steps=())), [], cluster.session).empty
    with pytest.raises(ChangedByOthers):
        assert cluster.item is not None
        cluster.item["spec"]["metrics"] = [{"theirs": 1}]
        write_target(cluster.session, back)
