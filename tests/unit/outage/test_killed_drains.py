"""The operator's machine dies after any write of a drain: whoever comes next finds it all, by each undo."""

from __future__ import annotations

import pytest

from roles.engine.context import Fields
from roles.engine.objects import ObjectPlan
from roles.engine.outage import DrainConsents, Drainer, Mark, plan_drain, reading
from roles.engine.outage.cordon import CordonWriter
from roles.engine.outage.mark import OUTAGE
from roles.engine.outage.reading import recorded_surges
from roles.engine.outage.surge import CHEAPEST, DELETION_COST, EndingWriter
from roles.engine.outage.surge_marks import SURGED_BY
from roles.engine.outage.undo import plan_uncordon, plan_undo
from roles.engine.transaction import RunInfo, object_record
from roles.engine.transaction.record import RunRecord, end_record, read_events
from tests.context import context
from tests.unit.disruption.world import NOW, deployment, pod
from tests.unit.outage.api import ClusterApi, Killed, Write
from tests.unit.outage.driven import RUN
from tests.unit.outage.world import node

pytestmark = pytest.mark.usefixtures("alone")

LATER = "r20260202-000000-cccc"
CONSENTS = DrainConsents(drain_timeout=60, surge=True)
# Cordon; grow, cost, shrink; two evictions.
WRITES = 6


def cluster() -> ClusterApi:
    """A single pod that is surged, and two of another Deployment, all on w1; what their controllers do comes at once."""
    api = ClusterApi(node("w1"), node("w2"), *deployment(1, 1), *deployment(2, 2, "db"))
    for name, number in (("web", 1), ("db", 2)):
        counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), number)
        api.one("Deployment", name)["status"] = {"observedGeneration": 1, **counts}
    inner = {name: deployment(1, 1, name)[1] for name in ("web", "db")}

    def controllers(write: Write) -> None:
        doomed = "/api/v1/namespaces/shop/pods/web-1-0"
        if api.one("Deployment", "web")["spec"]["replicas"] == 2:
            api.add(pod("web-new", inner["web"], node="w2"))
        elif doomed in api.there and "/api/v1/namespaces/shop/pods/web-new" in api.there:
            cost = (api.there[doomed]["metadata"].get("annotations") or {}).get(DELETION_COST)
            del api.there[doomed if cost == CHEAPEST else "/api/v1/namespaces/shop/pods/web-new"]
        if write[0] == "create":
            api.add(pod(f"db-new-{len(api.evicted())}", inner["db"], app="db", node="w2"))

    api.after = controllers
    return api


def drain(api: ClusterApi, run: str, dies_after: int | None = None) -> None:
    """As deploys/drain.py does it: each step recorded before it begins, and when it has ended."""
    record = RunRecord(RunInfo(run, "", "", "", "", ""))
    record.write(object_record.first_line(RunInfo(run, "", "", "", "", ""), "c", "cp1", "drain", {}, "", ""))
    plan = plan_drain(reading.read_drain(api.session), ["w1"], CONSENTS, NOW)
    assert not plan.refusals, plan.refusals
    drainer, controllers, before = Drainer(api.session, plan, CONSENTS, Mark(run)), api.after, len(api.writes)

    def after(write: Write) -> None:
        controllers(write)
        if len(api.writes) - before == dies_after:
            raise Killed

    api.after = after
    try:
        for number, step in enumerate((step for stage in drainer.stages() for step in stage.steps), 1):

            def begin(fields: Fields, number: int = number, step: object = step) -> None:
                record.write(object_record.planned(run, number, step.name, step.action, step.summary, fields, step.about))  # type: ignore[attr-defined]

            step.write(context(begin))
            record.write(end_record(step.name, "done", "", "", 0, "object"))
    finally:
        api.after = controllers


def carry_out(api: ClusterApi, plan: ObjectPlan) -> None:
    assert not plan.refusals
    for change in plan.actions:
        if change.name.startswith("Node "):
            CordonWriter(api.session, force=True).steps([change])[0].write(context())
        else:
            EndingWriter(api.session, force=True).write(change, context())


def uncordon(api: ClusterApi) -> None:
    deployments, nodes = api.session.fetch_all("/apis/apps/v1/deployments"), {"w1": api.one("Node", "w1")}
    surges = recorded_surges(api.session, deployments)
    carry_out(api, plan_uncordon(nodes, deployments, [api.one("Node", "w2")], surges, force=False))


def roll_back(api: ClusterApi) -> None:
    events = read_events(RunRecord(RunInfo(RUN, "", "", "", "", "")).path).events
    record = object_record.parse(RUN, events)
    assert record is not None
    carry_out(api, plan_undo(record, {one.path: api.there[one.path] for one in record.objects if one.path in api.there}))


def again(api: ClusterApi) -> None:
    drain(api, LATER)
    assert not [name for name in api.there if "/pods/" in name and api.there[name]["spec"].get("nodeName") == "w1"]
    uncordon(api)


def left(api: ClusterApi) -> list[str]:
    """What a drain leaves behind that nobody wants."""
    found = []
    for path, item in api.there.items():
        marks = item["metadata"].get("annotations") or {}
        found += [f"{path}: {name}" for name in (OUTAGE, SURGED_BY, DELETION_COST) if name in marks]
        found += [f"{path}: cordoned"] if item["spec"].get("unschedulable") else []
    web = api.one("Deployment", "web")["spec"]["replicas"]
    return found + ([f"web has {web} replicas"] if web != 1 else [])


def test_the_drain_has_as_many_writes_as_are_struck() -> None:
    api = cluster()
    drain(api, RUN)
    assert len(api.writes) == WRITES and [one for one in left(api) if "w1" not in one] == []


@pytest.mark.parametrize("way", [uncordon, roll_back, again], ids=lambda way: way.__name__)
@pytest.mark.parametrize("dies_after", range(1, WRITES + 1))
def test_each_undo_finds_all(dies_after: int, way: object) -> None:
    api = cluster()
    with pytest.raises(Killed):
        drain(api, RUN, dies_after)
    way(api)  # type: ignore[operator]
    assert left(api) == []
