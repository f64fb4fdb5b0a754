"""Whose cordon it is, at every end of a run: what was there before it is there after it."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from roles.engine.objects import ChangedByOthers
from roles.engine.outage import DrainConsents, Drainer, Mark, node_fate, plan_drain, reading
from roles.engine.outage.cordon import CordonWriter, cordon_back, uncordon_change
from roles.engine.outage.drainer import CORDON
from roles.engine.outage.mark import CORDONED_BY, OUTAGE, parse_mark
from roles.engine.outage.undo import EndWriter, plan_cordon_again, plan_uncordon, plan_undo
from roles.engine.transaction import ChangedField, ChangedObject, ObjectsRecord
from tests.context import context
from tests.unit.disruption.world import NOW
from tests.unit.hosts import RecordHost
from tests.unit.outage.api import ClusterApi
from tests.unit.outage.driven import RUN, cluster, drive, refuse_second
from tests.unit.outage.world import cordon, node, of_change

OLD, LATER = "r20251224-080000-01d0", "r20260202-000000-cccc"
W1 = "/api/v1/nodes/w1"


def there(who: str, run: str = RUN, *, old: bool = False) -> dict[str, Any]:
    """The node as it is when a run ends its hold of it. `old`: with marks as versions of daytwo before wrote them."""
    return {
        "nobody": node("w1"),
        "nobody, with our mark": node("w1", mark=run, old=old),
        "this run": node("w1", manager="daytwo", mark=run, old=old),
        "an earlier run": node("w1", manager="daytwo", mark=OLD, old=old),
        "a later run": node("w1", manager="daytwo", mark=LATER, old=old),
        "an administrator": node("w1", manager="kubectl-cordon"),
        "an administrator, with our mark": node("w1", manager="kubectl-cordon", mark=run, old=old),
        "an administrator beside us": beside(node("w1", manager="daytwo", mark=run, old=old)),
        "someone who has removed our mark": node("w1", manager="daytwo"),
        "someone with a mark of any text": node("w1", manager="daytwo", mark="x" * 200_000, old=old),
    }[who]


def beside(item: dict[str, Any]) -> dict[str, Any]:
    applied = {"manager": "argocd-controller", "operation": "Apply", "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}
    item["metadata"]["managedFields"].append(applied)
    return item


state = cordon


FREE, THEIRS = (False, ""), (True, "")
#: Who has cordoned the node when the run ends; what was there before the run; what is there after its end.
ENDS = [
    ("someone with a mark of any text", "", (True, "")),
    ("this run", "", FREE),
    ("this run", OLD, (True, OLD)),
    ("this run", of_change(OLD), (True, of_change(OLD))),
    ("nobody", "", FREE),
    ("nobody", OLD, FREE),
    ("nobody, with our mark", "", FREE),
    ("nobody, with our mark", OLD, FREE),
    ("an earlier run", OLD, (True, OLD)),
    ("a later run", "", (True, LATER)),
    ("a later run", OLD, (True, LATER)),
    ("an administrator", "", THEIRS),
    ("an administrator", OLD, THEIRS),
    ("an administrator, with our mark", "", THEIRS),
    ("an administrator, with our mark", OLD, THEIRS),
    ("an administrator beside us", "", THEIRS),
    ("someone who has removed our mark", "", THEIRS),
]


def written(item: dict[str, Any], fields: Any) -> tuple[bool, str]:
    item, after = deepcopy(item), {one.path[-1]: one.after for one in fields}
    item["spec"]["unschedulable"] = after.pop("unschedulable", item["spec"].get("unschedulable"))
    notes = {**item["metadata"].get("annotations", {}), **after}
    return state(
        {**item, "metadata": {**item["metadata"], "annotations": {name: text for name, text in notes.items() if text is not None}}}
    )


@pytest.mark.parametrize(("who", "before", "after"), ENDS)
@pytest.mark.parametrize("end", ["halt", "roll-back", "reboot", "change"])
@pytest.mark.parametrize("old", [False, True])
def test_what_was_there_before_a_run_is_there_after_it(who: str, before: str, after: tuple[bool, str], end: str, old: bool) -> None:
    """One table for all ends: a run that halts and a roll-back give back what was there; a reboot, a change, and what a killed change has
    left have taken over no cordon but one that they end, so they never give back one of another run."""
    item = there(who, of_change(RUN) if end == "change" else RUN, old=old)
    if end == "roll-back":
        had = parse_mark(before)
        changed = (OUTAGE, had.text() if had else None, Mark(RUN).text()) if not old else (CORDONED_BY, before or None, RUN)
        fields = (ChangedField(("metadata", "annotations", changed[0]), *changed[1:]),)
        done = ChangedObject("Node w1", CORDON, fields, {"path": W1, "uid": "uid-w1"}, "")
        plan = plan_undo(ObjectsRecord(RUN, "c", "drain", {}, (done,)), {W1: item})
        change = plan.actions[0] if plan.actions else None
    else:
        change = cordon_back(item, {RUN}, before).change
    assert written(item, change.fields if change else ()) == after


def test_a_record_does_not_choose_the_mark_that_comes_back() -> None:
    for wrong in ("x" * 300, "a b", "\x1b[31m", "../x", " (change)"):
        back = cordon_back(there("this run"), {RUN}, wrong)
        assert back.change is None and "none of daytwo's" in back.why and "\x1b" not in back.why


# ---- the run of a drain, from its begin to its end


def at_work(api: ClusterApi, manager: str | None) -> None:
    """Someone uncordons the node, and (with a manager) cordons it again: the mark of the run stays, and says nothing any more."""
    item = api.one("Node", "w1")
    item["metadata"]["managedFields"] = []
    item["spec"].pop("unschedulable", None)
    if manager:
        item["spec"]["unschedulable"] = True
        item["metadata"]["managedFields"] = [{"manager": manager, "operation": "Update", "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}]


def halting() -> ClusterApi:
    api = cluster()
    refuse_second(api)
    return api


def with_mark(api: ClusterApi, text: str) -> ClusterApi:
    api.there[W1] = node("w1", manager="daytwo", mark=text)
    return api


def test_a_run_that_halts_gives_the_cordon_of_an_earlier_run_back(host: RecordHost, told: list[str]) -> None:
    for halt in (refuse_second, lambda api: None):
        api = with_mark(cluster(), OLD)
        halt(api)
        run = drive(host, api, lambda run, write: run.interrupt() if write[0] == "patch" and not run.interrupted else None)
        assert run.halted and state(api.one("Node", "w1")) == (True, OLD)
    assert f"Node w1: given back to run {OLD}, since the run halted: read back" in "\n".join(told)


@pytest.mark.parametrize("moment", ["patch", "create"])
@pytest.mark.parametrize("manager", ["kubectl-cordon", "node-problem-remedy"])
def test_a_cordon_that_someone_sets_during_a_drain_stays_when_it_halts(
    host: RecordHost, told: list[str], manager: str, moment: str
) -> None:
    api = halting()
    run = drive(host, api, lambda run, write: at_work(api, manager) if write[0] == moment and len(api.evicted()) < 2 else None)
    assert run.halted and state(api.one("Node", "w1"))[0], "it takes pods again"


def test_a_cordon_between_plan_and_run_is_kept_and_gets_no_mark() -> None:
    api, begun = cluster(), list[Any]()
    consents = DrainConsents(drain_timeout=60, allow_unmanaged=True)
    drainer = Drainer(api.session, plan_drain(reading.read_drain(api.session), ["w1"], consents, NOW), consents, Mark(RUN))
    at_work(api, "kubectl-cordon")
    (step,) = drainer.stages()[0].steps
    assert "kubectl-cordon (Update) has cordoned it since the plan" in step.write(context(begun.append))
    assert begun == [[]] and not api.writes and state(api.one("Node", "w1")) == THEIRS
    assert "that cordon stays" in drainer.uncordon("w1", context()).why and not api.writes


def test_a_cordon_in_the_moment_of_the_uncordon_stays() -> None:
    """Between the look and the write: the API server refuses the old version, and the new one has another owner."""
    api = ClusterApi(node("w1", manager="daytwo", mark=RUN))
    change = uncordon_change(api.one("Node", "w1"))
    assert change is not None
    change = replace(change, before=deepcopy(change.before))
    at_work(api, "kubectl-cordon")
    with pytest.raises(ChangedByOthers, match="kubectl-cordon"):
        CordonWriter(api.session, force=False).steps([change])[0].write(context())
    assert not api.writes and state(api.one("Node", "w1"))[0]


def test_a_node_that_someone_has_uncordoned_is_not_drained(host: RecordHost, told: list[str]) -> None:
    api = cluster()
    run = drive(host, api, lambda run, write: at_work(api, None) if write[0] == "create" else None)
    assert "someone has uncordoned w1 meanwhile" in run.halted and state(api.one("Node", "w1")) == FREE


# ---- uncordon


def test_uncordon_and_its_undo_leave_what_others_have_set() -> None:
    assert node_fate(there("an administrator beside us")).by == "argocd-controller"
    for who in ("an administrator", "an administrator, with our mark", "an administrator beside us", "someone who has removed our mark"):
        assert plan_uncordon({"w1": there(who)}, [], force=False).refusals, who
    paths = (("spec", "unschedulable"), True), (("metadata", "annotations", CORDONED_BY), OLD)
    fields = tuple(ChangedField(path, value, None) for path, value in paths)
    done = ObjectsRecord(RUN, "c", "uncordon", {}, (ChangedObject("Node w1", "uncordon", fields, {"path": W1, "uid": "uid-w1"}, "done"),))
    again = plan_cordon_again(done, {W1: node("w1")}, force=False)
    assert {one.path[-1]: one.after for one in again.actions[0].fields} == {"unschedulable": True, CORDONED_BY: OLD}
    assert [step.action for step in EndWriter(ClusterApi().session).steps(again.actions)] == ["cordon"]
    since = plan_cordon_again(done, {W1: there("an administrator")}, force=True)
    assert not since.actions and "that cordon stays" in since.unchanged[0][1]


def test_the_names_of_those_who_cordoned_a_node_are_few() -> None:
    item = node("w1", manager="kubectl-cordon")
    item["metadata"]["managedFields"] += [
        {"manager": f"m{number}" * 30, "operation": "Apply", "fieldsV1": {"f:spec": {"f:unschedulable": {}}}} for number in range(9000)
    ]
    assert node_fate(item).cordon == "theirs" and len(node_fate(item).by) < 1000
