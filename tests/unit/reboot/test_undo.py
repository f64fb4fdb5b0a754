"""The undo of a run: what it left cordoned."""

from __future__ import annotations

from typing import Any

from roles.engine.bridge import Fleet
from roles.engine.outage import Mark
from roles.engine.outage.mark import OUTAGE
from roles.engine.runs import Options
from roles.engine.transaction import ChangedObject, ObjectsRecord
from roles.reboot.undo import left_cordoned, uncordoning
from tests.unit.hosts import RecordHost
from tests.unit.outage.surges import AS_BEFORE, check, cluster, state, surged

RUN, OTHER = "r20260101-000000-aaaa", "r20260102-000000-bbbb"


def node(name: str, mark: Mark | None) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"u-{name}", "annotations": {OUTAGE: mark.text()} if mark else {}}}


def test_only_nodes_that_still_have_the_mark_of_that_run() -> None:
    names = ("proven", "left", "taken-over", "recreated", "gone")
    objects = tuple(ChangedObject(name, "reboot", (), {"path": f"/{name}", "uid": f"u-{name}"}, "failed") for name in names)
    recreated = node("recreated", Mark(RUN, "reboot", "b"))
    recreated["metadata"]["uid"] = "another"
    nodes = {
        "/proven": node("proven", None),
        "/left": node("left", Mark(RUN, "reboot", "b", "r0")),
        "/taken-over": node("taken-over", Mark(OTHER, "reboot", "b")),
        "/recreated": recreated,
        "/gone": None,
    }
    (left,) = left_cordoned(ObjectsRecord(RUN, "c", "reboot", {}, objects), nodes)
    assert (left.name, left.path, left.mark) == ("left", "/left", Mark(RUN, "reboot", "b", "r0"))


def test_what_it_left_of_a_surge_is_ended_before_the_node_is_uncordoned(host: RecordHost) -> None:
    api = cluster(by=RUN)
    surged(api, RUN)
    api.one("Node", "w1")["metadata"]["annotations"][OUTAGE] = Mark(RUN, "reboot", "b").text()
    record = ObjectsRecord(RUN, "c", "reboot", {}, (ChangedObject("w1", "reboot", (), {"path": "/api/v1/nodes/w1", "uid": "uid-w1"}),))
    left = left_cordoned(record, {"/api/v1/nodes/w1": api.one("Node", "w1")})
    api.after = lambda write: check(api)
    remotes: list[Any] = [host]
    run = uncordoning(Fleet(remotes, [], [], remotes), Options(), api.session, record, left)
    assert run.result("cp1"), run.halted
    assert run.steps[0].how == "ended the surge of Deployment shop/web; uncordoned" and state(api) == AS_BEFORE
    assert not api.one("Node", "w1")["spec"].get("unschedulable") and OUTAGE not in api.one("Node", "w1")["metadata"]["annotations"]
