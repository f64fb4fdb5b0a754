"""A write whose answer is lost is resolved by reading; a class that was deleted is never left so without a word."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from roles.api import Api, Conflict, ConnectionLost, NotFound, Timeout
from roles.change.record import RunInfo
from roles.objects import errand
from roles.objects import plan as planning
from roles.objects import run as running
from roles.objects.live import Live
from roles.objects.plan import Action, Plan
from roles.objects.run import ObjectRun
from roles.rollout.remote import RemoteError
from tests.unit.objects.world import entry, priority_class, wanted
from tests.unit.rollout.test_cluster_steps import fleet

INFO = RunInfo("r20260101-000000-aaaa", "ann@desk", "", "pyinfra inv deploy", "d" * 64, "2026-01-01T00:00:00Z")
PATH = "/apis/scheduling.k8s.io/v1/priorityclasses/high"
LOST = [Timeout("cp1", PATH, "out of time", "-"), ConnectionLost("cp1", PATH, "gone", "-"), RemoteError("cp1: no answer within 60 s")]


class Cluster:
    """An API server of PriorityClasses. `faults`: by verb what goes wrong, in turn: ("after" or "before" it is done, the error)."""

    host = "cp1"

    def __init__(self, *classes: dict[str, Any]) -> None:
        self.classes = {f"/apis/scheduling.k8s.io/v1/priorityclasses/{one['metadata']['name']}": one for one in classes}
        self.faults: dict[str, list[tuple[str, Exception]]] = {"apply": [], "delete": [], "get": []}
        self.calls: list[str] = []
        self.numbers = itertools.count(100)

    def _do(self, verb: str, act: Callable[[], Any]) -> Any:
        self.calls.append(verb)
        when, error = self.faults[verb].pop(0) if self.faults[verb] else ("", None)
        if error is not None and when == "before":
            raise error
        done = act()
        if error is not None:
            raise error
        return done

    def get_json(self, path: str, timeout: float = 0, *, wait: float = 0) -> dict[str, Any]:
        def get() -> dict[str, Any]:
            if path.partition("?")[0].endswith("/priorityclasses"):
                return {"items": [copy.deepcopy(one) for one in self.classes.values()]}
            if path not in self.classes:
                raise NotFound("cp1", path, "404", "-")
            return copy.deepcopy(self.classes[path])

        return cast("dict[str, Any]", self._do("get", get))

    def apply(self, path: str, manifest: Mapping[str, Any], timeout: float = 0, *, force: bool = False, wait: float = 0) -> dict[str, Any]:
        def apply() -> dict[str, Any]:
            number = next(self.numbers)
            found = copy.deepcopy(dict(manifest))
            found["metadata"] |= {
                "uid": self.classes.get(path, {}).get("metadata", {}).get("uid", f"uid-{number}"), "resourceVersion": str(number),
                "managedFields": [entry("daytwo", {"f:value": {}})],
            }  # fmt: skip
            self.classes[path] = found
            return copy.deepcopy(found)

        when = self.faults["apply"][0][0] if self.faults["apply"] else ""
        try:
            return cast("dict[str, Any]", self._do("apply", apply))
        except Timeout:
            if when == "after" or self.faults["apply"]:
                raise
            # As the real one does it within `wait`.
            return cast("dict[str, Any]", self._do("apply", apply))

    def delete(self, path: str, uid: str, timeout: float = 0, *, version: str = "", dry_run: bool = False) -> None:
        def delete() -> None:
            if path not in self.classes:
                raise NotFound("cp1", path, "404", "-")
            there = self.classes[path]["metadata"]
            if there["uid"] != uid or (version and there["resourceVersion"] != version):
                raise Conflict("cp1", path, "409", "-")
            del self.classes[path]

        self._do("delete", delete)

    def value(self) -> int | None:
        found = self.classes.get(PATH)
        return int(found["value"]) if found else None


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for module in (errand, running):
        monkeypatch.setattr(module, "LOOK_AGAIN", 0.01)
    monkeypatch.setattr(errand, "API_WAIT", 0.05)
    monkeypatch.setattr(running, "BACK_SECONDS", 0.5)
    monkeypatch.setattr(errand, "on_interrupt", lambda handle: None)


def replacing(cluster: Cluster, what: str = "replace") -> ObjectRun:
    plan = planning.make(wanted(priority_classes={"high": 2000}, replace=True), Live(dict(_by_name(cluster)), {}))
    assert [action.what for action in plan.actions] == [what], plan.refusals
    return carried_out(cluster, plan.actions)


def _by_name(cluster: Cluster) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: copy.deepcopy(one) for one in cluster.classes.values()}


def carried_out(cluster: Cluster, actions: list[Action]) -> ObjectRun:
    run = ObjectRun(
        INFO, Plan(actions), lambda: cast(Api, cluster), fleet("cp1"), "", force=False, rollout_timeout=1, finish=lambda run: None
    )  # fmt: skip
    run.result("cp1")
    return run


def kept(run: ObjectRun) -> list[Path]:
    return sorted(run.record.path.parent.glob("*.json"))


@pytest.mark.parametrize("lost", LOST, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("verb", ["delete", "apply"])
def test_a_replacement_whose_answer_is_lost_once_is_done(verb: str, when: str, lost: Exception) -> None:
    cluster = Cluster(priority_class("high", 1000))
    cluster.faults[verb] = [(when, lost)]
    run = replacing(cluster)
    assert (run.turns[0].outcome, cluster.value()) == ("done", 2000), run.turns[0].why
    assert kept(run) == [], "the way back is over"


@pytest.mark.parametrize("lost", LOST, ids=lambda error: type(error).__name__)
def test_a_class_whose_successor_cannot_be_written_is_recreated(lost: Exception) -> None:
    cluster = Cluster(priority_class("high", 1000, description="old"))
    # Longer than is waited for; then the API is back.
    write = cluster.apply

    def apply(path: str, manifest: Mapping[str, Any], *more: Any, **options: Any) -> dict[str, Any]:
        cluster.faults["apply"] = [] if manifest["value"] == 1000 else [("before", lost)] * 2
        return write(path, manifest, *more, **options)

    cluster.apply = apply  # type: ignore[method-assign]
    run = replacing(cluster)
    assert (run.turns[0].outcome, cluster.value()) == ("reverted", 1000), run.turns[0].why
    assert "the old one was recreated and read back: value 1000" in run.turns[0].why and cluster.classes[PATH]["description"] == "old"
    assert kept(run) == []


def test_a_class_that_cannot_be_recreated_is_on_the_disk_and_said_to_be() -> None:
    cluster = Cluster(priority_class("high", 1000))
    cluster.faults["apply"] = [("before", LOST[0])] * 10**5
    run = replacing(cluster)
    (path,) = kept(run)
    assert run.turns[0].outcome == "revert-failed" and cluster.value() is None
    assert f"FIX BY HAND, pods that name it cannot be created meanwhile: kubectl create -f {path}" in run.turns[0].why
    assert json.loads(path.read_text())["value"] == 1000 and path.stat().st_mode & 0o777 == 0o600


def test_where_it_cannot_be_kept_for_the_way_back_it_is_not_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    def keep(*_: Any) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(errand.RunRecord, "keep", keep)
    cluster = Cluster(priority_class("high", 1000))
    run = replacing(cluster)
    assert (run.turns[0].outcome, cluster.value()) == ("failed", 1000) and "delete" not in cluster.calls
    assert "so it was not deleted" in run.turns[0].why


def test_a_class_that_was_not_deleted_after_all_is_said_to_be_as_it_was() -> None:
    cluster = Cluster(priority_class("high", 1000))
    cluster.faults["delete"] = [("before", LOST[0])] * 10**5
    run = replacing(cluster)
    assert (run.turns[0].outcome, cluster.value()) == ("failed", 1000)
    assert "read back: it was not deleted, and is as it was" in run.turns[0].why


@pytest.mark.parametrize("lost", LOST, ids=lambda error: type(error).__name__)
def test_a_class_that_is_created_or_removed_meanwhile_is_read_back(lost: Exception) -> None:
    cluster = Cluster()
    cluster.faults["apply"] = [("after", lost)]
    run = replacing(cluster, "create")
    assert (run.turns[0].outcome, cluster.value()) == ("done", 2000)
    cluster.faults["delete"] = [("after", lost)]
    found = cluster.classes[PATH]
    collections = cluster.get_json
    cluster.get_json = lambda path, *more, **options: (
        {"items": []} if "priorityclasses" not in path else collections(path, *more, **options)
    )  # type: ignore[method-assign]
    gone = carried_out(cluster, [Action("remove", "PriorityClass high", PATH, found, None, "remove it")])
    assert (gone.turns[0].outcome, cluster.value()) == ("done", None), gone.turns[0].why


def test_what_was_never_written_is_not_said_to_be() -> None:
    cluster = Cluster()
    cluster.faults["apply"] = [("before", LOST[0])] * 10**5
    run = replacing(cluster, "create")
    assert run.turns[0].outcome == "failed" and "read back: it was not written" in run.turns[0].why


def test_where_it_cannot_be_read_that_is_said() -> None:
    cluster = Cluster()
    cluster.faults["apply"] = [("after", LOST[0])]
    cluster.faults["get"] = [("before", LOST[0])] * 10**5
    run = replacing(cluster, "create")
    assert run.turns[0].outcome == "failed" and "whether it was written is not known" in run.turns[0].why
