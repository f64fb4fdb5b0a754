"""What a surge leaves on a Deployment: its mark, with a replica more; and what that is worth. Pure.

Whoever may write a Deployment may write the mark of a surge, too, and copies of objects have it (a backup, GitOps). So it is a claim: it
counts only if the record of that run has begun this surge and not ended it, and if nobody but daytwo has set the replicas since.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from roles.engine.harmless import one_line
from roles.engine.kube import Object, namespace_and_name, uid
from roles.engine.kube.field_managers import FIELD_MANAGER, writers
from roles.engine.kube.fields import annotations_of
from roles.engine.kube.workloads import COLLECTIONS
from roles.engine.objects import Kind, ObjectChange, ObjectPath

#: Annotation of a Deployment that has a replica more for a moment: the run that did it.
SURGED_BY = "daytwo.dev/surged-by"
#: Not a kind of the API: the surges that records of runs have begun and not ended, as `surges_in` returns them.
SURGES = "RecordedSurge"
# The step of a record (drainer.SURGE).
_STEP = "surge"


def mark_of(deployment: Object) -> str:
    """The mark of a surge, as the object claims it; "" without one."""
    return str(annotations_of(deployment).get(SURGED_BY) or "")


def recorded(deployment: Object, surges: Iterable[Object]) -> Object | None:
    """The recorded surge that has set this mark on this object."""
    own = uid(deployment), mark_of(deployment)
    return next((one for one in surges if (one["uid"], one["mark"]) == own), None)


def doubt(deployment: Object, surges: Iterable[Object]) -> str | None:
    """Why the mark of a surge on a Deployment does not count, "" if it does; None without a mark."""
    if not (claim := mark_of(deployment)):
        return None
    remove = f"kubectl annotate deployment -n {namespace_and_name(deployment)[0]} {namespace_and_name(deployment)[1]} {SURGED_BY}-"
    if recorded(deployment, surges) is None:
        what = one_line(f"its annotation {SURGED_BY}={claim[:60]}")
        return f"{what} is in no record of that run, on this machine or on the host of the lock, and does not count; remove it: {remove}"
    if others := other_writers(deployment, "f:spec", "f:replicas"):
        return one_line(f"{', '.join(others)} has set its replicas since run {claim} surged it: they stay; remove its mark: {remove}")
    return ""


def other_writers(item: Object, *fields: str) -> list[str]:
    """Who has set a field, beside daytwo; `fields` is its path in FieldsV1."""
    return [name for name in writers(item, *fields) if name != FIELD_MANAGER]


def surges_in(mark: str, events: Iterable[Mapping[str, Any]]) -> list[Object]:
    """The surges with this mark that the record of its run has begun and not ended: {"uid" of the Deployment, "mark", "node" of the pod}.
    `events` are those of deploys/drain.py (`plan`, `end`) or of a drain inside another run (`drain`)."""
    found: dict[str, Object] = {}
    for event in events:
        name = str(event.get("object"))
        if event.get("event") == "end" and event.get("outcome") == "done":
            found.pop(name, None)
        elif event.get("event") in ("plan", "drain") and event.get("what") == _STEP and _sets(event, mark):
            found[name] = {"uid": str(event.get("uid")), "mark": mark, "node": str(event.get("node"))}
    return list(found.values())


def _sets(event: Mapping[str, Any], mark: str) -> bool:
    fields = event.get("fields")
    return isinstance(fields, list) and any(
        isinstance(field, Mapping) and field.get("path") == ["metadata", "annotations", SURGED_BY] and field.get("after") == mark
        for field in fields
    )


REPLICAS: ObjectPath = ("spec", "replicas")
MARK: ObjectPath = ("metadata", "annotations", SURGED_BY)


#: The replicas of a Deployment, and the run that set them for a moment, in one request.
SURGED = Kind(
    "Deployment", "apps/v1", COLLECTIONS["Deployment"], (REPLICAS, MARK), verb="patch", recorded=(), maps=(), missing={REPLICAS: 0},
    short="deployment",
)  # fmt: skip


def unsurge_change(item: Object) -> ObjectChange | None:
    """The write that gives a Deployment its one replica back, unless someone has set its replicas since; None if it has no mark."""
    now = SURGED.values(item)
    if MARK not in now:
        return None
    ours = now[REPLICAS] == 2 and not other_writers(item, "f:spec", "f:replicas")
    change = ObjectChange.of_fields(SURGED, item, {REPLICAS: 1 if ours else now[REPLICAS], MARK: None})
    return replace(change, summary=f"end its surge: {change.summary}")


def left_surges(deployments: Collection[Object], surges: Collection[Object]) -> list[ObjectChange]:
    """The writes that end what runs, which are over, have left of these recorded surges. Pure."""
    left = [one for one in deployments if recorded(one, surges) is not None]
    return [change for one in left if (change := unsurge_change(one)) is not None]
