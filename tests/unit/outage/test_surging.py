"""A surge, and what a killed run has left of one: whoever uncordons the node ends it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from types import SimpleNamespace
from typing import Any, cast

import pytest

from roles.engine.node_changes.outages import Leftover
from roles.engine.object_runs import KeptRecords
from roles.engine.objects import NotDone, Session
from roles.engine.outage import DrainConsents, PodFate
from roles.engine.outage.drainer import SURGE
from roles.engine.outage.evicting import Evictor
from roles.engine.outage.model import PodWorkload
from roles.engine.outage.reading import recorded_surges
from roles.engine.outage.surge import CHEAPEST, DELETION_COST, Surger, end_surges
from roles.engine.outage.surge_marks import SURGED_BY, doubt, surges_in
from tests.context import context
from tests.unit.disruption.world import deployment, pod
from tests.unit.outage.api import ClusterApi, Killed, Write
from tests.unit.outage.surges import AS_BEFORE, check, cluster, record, state, surged
from tests.unit.outage.world import of_change

pytestmark = pytest.mark.usefixtures("alone")

RUN = "r20260101-000000-aaaa"


# ---- what a killed run leaves


def surge(api: ClusterApi, wanted: int = 1) -> str:
    top, _, old = deployment(1, 1)
    workload = PodWorkload("Deployment", "shop", "web", top["metadata"]["uid"], wanted, api.one("Deployment", "web"), 1, True)
    consents = DrainConsents(surge=True).model_copy(update={"drain_timeout": 0})
    surger = Surger(Evictor(api.session, consents, ["w1"]), consents, RUN)
    return surger.replace(
        PodFate(deepcopy(api.one("Pod", old["metadata"]["name"])), "w1", "surged", "", workload=workload),
        context(lambda fields: record(RUN, "web", fields)),
    )


@pytest.mark.parametrize("writes", [1, 2, 3])
def test_killed_after_any_write_of_a_surge_it_is_found_and_ended(writes: int) -> None:
    """The cost of the pod never stands without the mark, by which it is found."""
    api = cluster()

    def after(write: Write) -> None:
        if api.one("Deployment", "web")["spec"]["replicas"] == 2:
            api.add(pod("second", deployment(1, 1)[1], node="w2"))
        if len(api.writes) == writes:
            raise Killed

    api.after = after
    with pytest.raises(Killed):
        surge(api)
    # After the third write the surge has ended, and its ReplicaSet removes the doomed pod.
    assert state(api) == {1: (2, RUN, ""), 2: (2, RUN, CHEAPEST), 3: (1, "", CHEAPEST)}[writes]
    api.after = lambda write: None
    end_surges(api.session, RUN, context())
    assert state(api) == ((1, "", CHEAPEST) if writes == 3 else AS_BEFORE)


def test_a_surge_that_fails_leaves_nothing_also_not_what_a_killed_run_had_left() -> None:
    api = cluster()
    surged(api, "r0")
    with pytest.raises(NotDone, match="its second pod is not Ready"):
        surge(api, wanted=2)
    assert state(api) == AS_BEFORE and api.one("Pod", "web-1-0")["metadata"]["annotations"] == {"own": "1"}


def test_the_doomed_pod_that_its_replica_set_does_not_remove_has_no_cost() -> None:
    api = cluster()
    api.add(pod("second", deployment(1, 1)[1], node="w2"))
    with pytest.raises(NotDone, match="its ReplicaSet removed another pod"):
        surge(api)
    assert state(api) == AS_BEFORE


# ---- whose claim it is


def test_a_mark_counts_as_far_as_a_record_of_its_run_goes() -> None:
    (one,) = surges_in(RUN, [plan_line(), {"event": "end", "object": "another", "outcome": "done"}])
    assert one == {"uid": "u", "mark": RUN, "node": "w1"}
    for events in (
        [], [plan_line(), {"event": "end", "object": "pod shop/web-1", "outcome": "done"}], [plan_line(after="another")],
        [plan_line(what="evict")], [{**plan_line(), "fields": None}], [{**plan_line(), "fields": ["x", {"path": 1}]}],
    ):  # fmt: skip
        assert not surges_in(RUN, events), events


def plan_line(what: str = SURGE, after: str = RUN) -> dict[str, Any]:
    fields = [{"path": ["spec", "replicas"], "before": 1, "after": 2}, {"path": ["metadata", "annotations", SURGED_BY], "after": after}]
    return {"event": "plan", "object": "pod shop/web-1", "what": what, "node": "w1", "uid": "u", "fields": fields}


@pytest.mark.parametrize(
    "claim", [RUN, "x", "../../../etc/passwd", "a/b", "\x1b[31m", "x" * 100000, "[" * 1000, "r1 (change)", " (change)"]
)
def test_a_mark_without_a_record_is_never_believed(claim: str) -> None:
    api = cluster()
    surged(api, "r0")
    record("r2", "api")
    api.one("Deployment", "web")["metadata"]["annotations"] = {SURGED_BY: claim}
    assert end_surges(api.session, claim, context()) == "" and not api.writes
    why = doubt(api.one("Deployment", "web"), recorded_surges(api.session, [api.one("Deployment", "web")]))
    assert why is not None and "does not count" in why and len(why) < 400 and why.isprintable()


def test_the_record_of_another_machine_is_on_the_host_of_the_lock() -> None:
    asked: list[str] = []

    class Keeper:
        def ensure_connected(self) -> None: ...

        def run(self, command: str, *, stdin: str, timeout: float) -> SimpleNamespace:
            asked.append(stdin)
            return SimpleNamespace(stdout=[json.dumps(plan_line()), "[" * 100000, '{"cut'])

    keeper: Any = Keeper()
    session = Session(lambda: cast(Any, None), recorded=KeptRecords(keeper))
    deployment = {"metadata": {"name": "web", "namespace": "shop", "uid": "u", "annotations": {SURGED_BY: RUN}}}
    for _ in range(2):
        assert doubt(deployment, recorded_surges(session, [deployment])) == ""
    assert len(asked) == 1 and f"/var/lib/daytwo/changes/{RUN}-cluster-objects/record.jsonl" in asked[0]
    many = [{"metadata": {"name": "web", "namespace": "shop", "uid": "u", "annotations": {SURGED_BY: f"r{n}"}}} for n in range(1000)]
    recorded_surges(session, many)
    assert len(asked) == 21


def test_replicas_and_costs_that_someone_has_set_are_theirs() -> None:
    """Also if they are the very values of a surge: GitOps or a tenant may have copied them."""
    api = cluster()
    surged(api, RUN)
    item = api.one("Deployment", "web")
    item["metadata"]["managedFields"] = [{"manager": "kubectl", "subresource": "scale", "fieldsV1": {"f:spec": {"f:replicas": {}}}}]
    assert "kubectl has set its replicas since" in str(doubt(item, recorded_surges(api.session, [item])))
    cost = {"f:metadata": {"f:annotations": {f"f:{DELETION_COST}": {}}}}
    api.one("Pod", "web-1-0")["metadata"]["managedFields"] = [{"manager": "kubectl-edit", "operation": "Update", "fieldsV1": cost}]
    end_surges(api.session, RUN, context())
    assert state(api) == (2, "", CHEAPEST)


def test_replicas_that_someone_sets_between_plan_and_surge_stay() -> None:
    api = cluster()
    api.one("Deployment", "web")["spec"]["replicas"] = 5
    with pytest.raises(NotDone, match="has 5 replicas by now"):
        surge(api)
    assert state(api) == (5, "", "") and not api.writes


# ---- who ends it


def test_the_surges_of_one_run_are_ended_and_no_others() -> None:
    api = cluster(also=("api", "db"))
    surged(api, RUN)
    surged(api, "r0", "api")
    noted: list[Mapping[str, Any]] = []
    assert end_surges(api.session, RUN, context(note=noted.append)) == "ended the surge of Deployment shop/web"
    assert state(api) == AS_BEFORE and state(api, "api") == (2, "r0", CHEAPEST) and state(api, "db") == AS_BEFORE
    assert api.one("Pod", "web-1-0")["metadata"]["annotations"] == {"own": "1"}
    assert [(one["event"], one["object"]) for one in noted] == [("end surge", "Deployment shop/web")]
    assert end_surges(api.session, RUN, context(note=noted.append)) == "" and len(noted) == 1


def test_replicas_that_someone_has_set_since_stay() -> None:
    api = cluster()
    surged(api, RUN)
    api.one("Deployment", "web")["spec"]["replicas"] = 5
    end_surges(api.session, RUN, context())
    assert state(api) == (5, "", "")


def test_what_a_killed_change_left_is_undone_with_its_cordon() -> None:
    api = cluster(by=of_change(RUN))
    surged(api, of_change(RUN))
    noted: list[Mapping[str, Any]] = []
    api.after = lambda write: check(api)
    said = Leftover(api.session, "w1", "w1", RUN).uncordon(context(note=noted.append))
    assert state(api) == AS_BEFORE and not api.one("Node", "w1")["spec"].get("unschedulable")
    assert "ended the surge of Deployment shop/web" in said and [one["event"] for one in noted] == ["end surge", "uncordon"]


def test_a_node_that_another_run_has_cordoned_since_is_left_as_it_is() -> None:
    api = cluster(by="r9")
    surged(api, of_change(RUN))
    assert "run r9 has taken its cordon over" in Leftover(api.session, "w1", "w1", RUN).uncordon(context())
    assert state(api) == AS_BEFORE, "its run is over all the same"
