"""The undo of a run: what it left cordoned."""

from __future__ import annotations

from typing import Any

from roles.engine.transaction import ChangedObject, ObjectsRecord
from roles.reboot.plan import MARK, Mark
from roles.reboot.way_back import left_cordoned

RUN, OTHER = "r20260101-000000-aaaa", "r20260102-000000-bbbb"


def node(name: str, mark: Mark | None) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"u-{name}", "annotations": {MARK: mark.text()} if mark else {}}}


def test_only_nodes_that_still_have_the_mark_of_that_run() -> None:
    names = ("proven", "left", "taken-over", "recreated", "gone")
    objects = tuple(ChangedObject(name, "reboot", (), {"path": f"/{name}", "uid": f"u-{name}"}, "failed") for name in names)
    recreated = node("recreated", Mark(RUN, "b"))
    recreated["metadata"]["uid"] = "another"
    nodes = {
        "/proven": node("proven", None),
        "/left": node("left", Mark(RUN, "b", keep=True)),
        "/taken-over": node("taken-over", Mark(OTHER, "b")),
        "/recreated": recreated,
        "/gone": None,
    }
    (left,) = left_cordoned(ObjectsRecord(RUN, "c", "reboot", {}, objects), nodes)
    assert (left.name, left.path, left.mark) == ("left", "/left", Mark(RUN, "b", keep=True))
