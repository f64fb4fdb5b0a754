"""Reading the records of nodes, and planning to undo them."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from roles import history as history_role
from roles.engine.kubelet import find
from roles.engine.node import File, Observation
from roles.engine.node_changes import NodePlan
from roles.engine.node_changes.capability import by_warning
from roles.engine.transaction import Effective, Refusal, RunInfo
from roles.engine.transaction.model import ABSENT, cmdline_sha256
from roles.engine.transaction.record import plan_record
from roles.history import Recorded, Sequenced, Undo, Unordered, change_reports, changes_to_undo, newest, plan_undo, targets, unsure
from roles.history.facts import HistoryError, parse
from tests.unit.history.world import NEW, OLD, answer, change, numbered, recorded
from tests.unit.hosts import INFO
from tests.unit.kubelet_config.world import GIB, RUNNING, Now, state
from tests.unit.node import node
from tests.unit.node.node import parse as parse_look


def seen(**files: bytes | None) -> Observation:
    paths = {"/etc/a": NEW, "/etc/made": b"x", "/etc/gone": None} | {f"/etc/{name}": data for name, data in files.items()}
    made = {path: File(path, "none" if data is None else "file", mode=0o644, mountpoint="/", data=data) for path, data in paths.items()}
    return Observation(host="w1", uid=0, files=made)


def test_a_record_is_read_back() -> None:
    found = recorded(A={"before": False, "after": True})
    assert (found.run, found.order, found.component, found.state, found.reason) == (INFO.id, 1, "kubelet", "confirmed", "because")
    assert found.end is not None and found.end["proof"] == "proof"
    assert found.originals == {1: OLD, 3: b"y"} and not found.in_flight


def test_half_an_answer_is_an_error() -> None:
    with pytest.raises(HistoryError, match="w1"):
        parse("w1", answer()[:-1])


def test_a_record_that_a_full_disk_cut_short_does_not_hide_the_change() -> None:
    lines = answer(("r1-w1-kubelet", "state=applied\nrun=r1\nwho=ann@desk\n", "", []))
    (found,) = parse("w1", lines)
    assert (found.run, found.state, found.in_flight) == ("r1", "applied", True)


def test_undoing_swaps_before_and_after() -> None:
    undo = plan_undo("r2", recorded(A={"before": False, "after": True}, B={"before": None, "after": None}), seen(), force=False)
    assert undo.change is not None
    assert [(edit.path, edit.before, edit.after) for edit in undo.change.files] == [
        ("/etc/a", NEW, OLD),
        ("/etc/made", b"x", None),
        ("/etc/gone", None, b"y"),
    ]
    assert undo.change.files[2].mode == 0o600
    assert undo.gates == {"A": False}, "only what had a value can be held to it"
    assert undo.change.new_arguments == cmdline_sha256(("kubelet", "old"))


def test_what_is_already_as_before_is_not_changed() -> None:
    assert plan_undo("r2", recorded(), seen(a=OLD, made=None, gone=b"y"), force=False).change is None
    partly = plan_undo("r2", recorded(), seen(a=OLD), force=False).change
    assert partly is not None and [edit.path for edit in partly.files] == ["/etc/made", "/etc/gone"]


def test_a_file_that_was_changed_since_is_refused_with_its_diff() -> None:
    with pytest.raises(Refusal, match="changed since") as refused:
        plan_undo("r2", recorded(), seen(a=b"A=3\n"), force=False)
    assert "-A=" in str(refused.value) and "+A=" in str(refused.value) and "force=true" in str(refused.value)


def test_force_restores_it_anyway() -> None:
    undo = plan_undo("r2", recorded(), seen(a=b"A=3\n"), force=True)
    assert undo.change is not None and undo.change.files[0].before == b"A=3\n" and undo.change.files[0].after == OLD
    assert undo.change.new_arguments == "", "others' edits may be in the arguments"
    assert "force" in undo.warnings[0]


def test_an_original_that_was_altered_is_refused() -> None:
    found = recorded()
    found.originals[1] = b"tampered"
    with pytest.raises(Refusal, match="does not match its recorded checksum; restore the file by hand"):
        plan_undo("r2", found, seen(), force=True)


def test_a_record_has_no_content() -> None:
    text = json.dumps(recorded().plan)
    assert hashlib.sha256(OLD).hexdigest() in text and ABSENT in text and "A=1" not in text


def history(*changes: Recorded) -> dict[str, list[Recorded]]:
    return {"w1": list(changes)}


def test_the_newest_run_that_is_not_undone_is_undone() -> None:
    first, second = "r20260101-000000-aaaa", "r20260102-000000-bbbb"
    a, b = numbered(1, recorded(change(run=first))), numbered(2, recorded(change("kube-scheduler", run=second)))
    again = numbered(2, recorded(change(run=second)))
    assert newest(history(a, again)) == (second,), "the first was complete: the second is a run of its own"
    assert newest(history(a, b)) == (second, first), "the same was wanted: the first was halted, the second went on"
    other = replace(a, plan={**a.plan, "data": "of other data"})
    assert newest(history(other, b)) == (second,)
    undone = numbered(3, recorded(change("kube-scheduler", run="r20260103-000000-cccc"), undoes=b.id))
    assert newest(history(a, b, undone)) == (first,)
    failed = numbered(4, recorded(change(run="r20260104-000000-dddd"), state="reverted", undoes=a.id))
    assert newest(history(a, b, undone, failed)) == (first,)
    assert newest(history(recorded(state="reverted"))) == ()
    lasting = replace(b, plan={**b.plan, "about": {"cannot_undo": True}})
    assert newest(history(a, lasting)) == (first,), "a reboot: the run before it"


def test_a_roll_back_without_a_name_is_neither_a_second_one_nor_of_another_day() -> None:
    first, second, third = "r20260101-000000-aaaa", "r20260102-000000-bbbb", "r20260103-000000-cccc"
    a, b = numbered(1, recorded(change(run=first))), numbered(2, recorded(change("kubelet", run=second)))
    a, b = (replace(one, plan={**one.plan, "at": "2026-01-02T00:00:00Z", "data": one.run}) for one in (a, b))
    noon = datetime(2026, 1, 2, 12, tzinfo=UTC).timestamp()
    assert unsure(history(a, b), (second,), noon) == ""
    assert "is more than a day old; name the run" in unsure(history(a, b), (second,), noon + 86400)
    undone = numbered(3, recorded(change("kubelet", run=third), undoes=b.id))
    assert f"{third}, has undone another run already" in unsure(history(a, b, undone), (first,), noon)
    more = replace(b, id=f"{second}-w1-kube-scheduler")
    assert unsure(history(a, b, more, undone), (second,), noon) == "", "the undo halted: the same command continues it"
    later = numbered(4, recorded(change("kubelet", run="r20260104-000000-dddd")))
    later = replace(later, plan={**later.plan, "at": "2026-01-02T11:00:00Z"})
    assert unsure(history(a, b, undone, later), (later.run,), noon) == ""
    back = replace(later, plan={**later.plan, "kind": "objects", "component": "uncordon"})
    assert "undoing it would cordon them again" in unsure(history(a, b, undone, back), (later.run,), noon)


def test_a_change_that_is_undone_says_by_which_run() -> None:
    first = numbered(1, recorded(change(run="r20260101-000000-aaaa")))
    undoing = numbered(2, recorded(change(run="r20260102-000000-bbbb"), undoes=first.id))
    old, new = change_reports((first, undoing), (first, undoing))
    assert (old.outcome, old.undone_by, new.outcome, new.undone_by) == ("undone", undoing.run, "confirmed", None)
    halted = replace(undoing, state="reverted")
    assert [one.undone_by for one in change_reports((first,), (first, halted))] == [None]


def test_the_last_change_of_a_run_comes_first() -> None:
    made = [recorded(change(component), order=order) for order, component in ((1, "kube-apiserver"), (3, "kubelet"), (2, "kube-scheduler"))]
    made.append(recorded(change("other"), order=4, state="reverted"))
    assert [found.component for found in changes_to_undo(history(*made), [INFO.id])] == ["kubelet", "kube-scheduler", "kube-apiserver"]


def test_two_runs_that_are_undone_as_one_go_by_their_order_and_not_by_their_names() -> None:
    ahead, behind = "r20300101-000000-aaaa", "r20260101-000000-bbbb"
    a, b = numbered(1, recorded(change(run=ahead))), numbered(2, recorded(change("kube-scheduler", run=behind)))
    assert newest(history(a, b)) == (behind, ahead)
    assert [found.run for found in changes_to_undo(history(a, b), (behind, ahead))] == [behind, ahead]


def test_a_machine_whose_clock_is_ahead_does_not_win() -> None:
    ahead, behind = recorded(change(run="r20300101-000000-aaaa")), recorded(change(run="r20260101-000000-bbbb"))
    assert newest(history(numbered(1, ahead), numbered(2, behind))) == (behind.run,)
    assert newest(history(numbered(2, ahead), numbered(1, behind))) == (ahead.run,)


def test_runs_on_different_nodes_go_by_the_numbers_of_the_cluster() -> None:
    ahead = numbered(7, recorded(change(run="r20300101-000000-aaaa")), run=1)
    behind = replace(numbered(3, recorded(change(run="r20260101-000000-bbbb", host="w2")), run=2))
    assert newest({"w1": [ahead], "w2": [behind]}) == (behind.run, ahead.run)


def test_a_third_run_orders_two_that_no_node_saw_both() -> None:
    first, middle, last = "r20300101-000000-aaaa", "r20280101-000000-bbbb", "r20260101-000000-cccc"
    w1 = [numbered(1, recorded(change(run=first))), numbered(2, recorded(change("kube-scheduler", run=middle), state="reverted"))]
    w2 = [numbered(5, recorded(change(run=middle, host="w2"), state="reverted")), numbered(6, recorded(change(run=last, host="w2")))]
    assert newest({"w1": w1, "w2": w2}) == (last, first)


def test_an_order_that_no_count_has_is_not_guessed() -> None:
    """Runs from before the cluster counted them; or of two counts, since daytwo was removed from the lock's node in between."""
    w1, w2 = recorded(change(run="r20300101-000000-aaaa")), recorded(change(run="r20260101-000000-bbbb", host="w2"))
    for one, other in ((numbered(1, w1), numbered(2, w2)), (numbered(1, w1, run=5), numbered(2, w2, run=1, count="other"))):
        with pytest.raises(Unordered) as unknown:
            newest({"w1": [one], "w2": [other]})
        assert unknown.value.runs == [other.run, one.run]


def test_counts_that_contradict_each_other_have_no_order() -> None:
    a, b = "r20260101-000000-aaaa", "r20260102-000000-bbbb"
    w1 = [numbered(1, recorded(change(run=a))), numbered(2, recorded(change("kube-scheduler", run=b)))]
    w2 = [numbered(2, recorded(change(run=a, host="w2"))), numbered(1, recorded(change("kube-scheduler", run=b, host="w2")))]
    with pytest.raises(Unordered):
        newest({"w1": w1, "w2": w2})
    assert Sequenced({"w1": w1, "w2": w2}).sort({a, b}) == [a, b], "a list is shown anyway"


def test_the_number_of_a_node_is_read() -> None:
    lines = answer(("r1-w1-kubelet", "state=confirmed\n", "", []), number="12")
    assert parse("w1", lines)[0].number == 12 and parse("w1", answer(("r1-w1-kubelet", "", "", [])))[0].number is None


@pytest.mark.parametrize("version", [2, 99])
def test_a_record_of_a_newer_daytwo_is_not_undone(version: int) -> None:
    found = recorded()
    found = replace(found, plan={**found.plan, "format": version})
    with pytest.raises(Refusal, match=rf"w1: the record of .*a newer daytwo wrote it \(format {version}; .*Use that daytwo or a later one"):
        plan_undo("r2", found, seen(), force=True)


def test_a_record_from_before_formats_is_undone() -> None:
    found = recorded()
    old = {key: value for key, value in found.plan.items() if key not in ("format", "number")}
    assert plan_undo("r2", replace(found, plan=old), seen(), force=False).change is not None


def test_a_plan_that_a_power_cut_left_incomplete_is_refused() -> None:
    made = change()
    cut = base64.b64encode(b'{"event": "pl').decode()
    state = base64.b64encode(f"state=confirmed\nrun={INFO.id}\n".encode()).decode()
    (found,) = parse("w1", ["daytwo 1", f"change {made.id} {state}= = {cut}= 3", "end"])
    assert (found.run, found.damaged) == (INFO.id, (1,)) and changes_to_undo(history(found), (INFO.id,)) == [found]
    assert targets(found) == []
    with pytest.raises(
        Refusal, match=r"its plan cannot be read \(line 1 is incomplete\); the old files are on w1 in .*/before; restore them by hand"
    ):
        plan_undo("r2", found, seen(), force=True)


def test_an_end_that_a_power_cut_left_incomplete_is_reported_and_the_plan_counts() -> None:
    made = change()
    plan = json.dumps(plan_record(INFO, 1, made, Effective())).encode()
    record = base64.b64encode(plan + b'\n{"event": "end", "outc').decode()
    state = base64.b64encode(b"state=confirmed\n").decode()
    (found,) = parse("w1", ["daytwo 1", f"change {made.id} {state}= = {record}= 3", "end"])
    assert found.problem is None and found.end is None and found.plan["order"] == 1
    (warning,) = history_role._cut([found])
    assert warning == f"w1: the record of {made.id}: line 2 is incomplete; the others were read" and history_role._cut([recorded()]) == []


@pytest.mark.parametrize("files", [None, "x", [1], [{"path": "/etc/a"}]])
def test_an_incomplete_plan_is_refused(files: Any) -> None:
    found = recorded()
    with pytest.raises(Refusal, match=r"w1: the record of .*its plan is incomplete; .*restore them by hand"):
        plan_undo("r2", replace(found, plan={**found.plan, "files": files}), seen(), force=True)


@pytest.mark.parametrize("event", [{"event": "plan", "order": "x"}, {"event": "plan", "format": [1]}, {"event": "plan", "order": {}}])
def test_an_invalid_record_is_an_error_with_its_host(event: dict[str, Any]) -> None:
    with pytest.raises(HistoryError, match="w1: the record of its changes cannot be read"):
        parse("w1", answer(("r1-w1-kubelet", "", "", [event])))
    with pytest.raises(HistoryError, match="w1"):
        parse("w1", ["change x", "end"])


def test_a_setting_that_holds_a_secret_is_not_in_the_record() -> None:
    values = {"before": None, "after": {"X-Site": ["abc123"]}}
    made = Effective(settings={"staticPodURLHeader": values, "maxPods": {"before": 110, "after": 5}})
    assert made.recorded()["settings"] == {"maxPods": {"before": 110, "after": 5}}


def one_undo(before: dict[str, str], answers: bool = True, config: bytes = b"") -> tuple[Now, NodePlan[Undo]]:
    """The undoing of one change of thresholds on a node whose file has `config`, and whose pods use 7 of 8 GiB; an API that `answers`."""
    made = change()
    info = RunInfo(made.id[: len(INFO.id)], INFO.who, "", INFO.command, INFO.data, INFO.at)
    effective = Effective(settings={"evictionHard": {"before": before, "after": RUNNING["evictionHard"]}})
    plan = plan_record(info, 1, made, effective)
    undo = plan_undo("r2", replace(recorded(made), plan=plan), seen(), force=False)
    its_kubelet = find(parse_look("w1", node.answer(files={"/var/lib/kubelet/config.yaml": node.CONFIG + config})))
    return Now(state(pods_use=7 * GIB) if answers else None), NodePlan("w1", its_kubelet, {}, (undo,))


def predicted(
    before: dict[str, str], *, allow_evictions: bool = False, allow_unproven: bool = False, answers: bool = True
) -> NodePlan[Undo]:
    return history_role._restarted(*one_undo(before, answers), allow_evictions, allow_unproven)


def test_undoing_that_would_evict_needs_consent() -> None:
    harmless = predicted({"memory.available": "50Mi"})
    assert "EVICTS" not in harmless.outlook and harmless.planned[0].may_be_evicted == frozenset()
    with pytest.raises(Refusal) as refused:
        predicted({"memory.available": "2Gi"})
    text = str(refused.value)
    assert "w1: undoing r20260101-000000-aaaa-w1-kubelet would evict: memory.available" in text and "allow_evictions=true" in text
    consented = predicted({"memory.available": "2Gi"}, allow_evictions=True)
    assert consented.planned[0].may_be_evicted == {"default/a", "default/bb"} and "EVICTS" in consented.outlook


def test_undoing_reports_what_a_restart_applies_in_addition() -> None:
    cluster, made = one_undo({"memory.available": "50Mi"}, config=b"podsPerCore: 5\n")
    plan = history_role._restarted(cluster, made, allow_evictions=False, allow_unproven=False)
    assert [*by_warning([plan]).items()][-1] == (
        "a restart also applies: podsPerCore is 5 in its files, but the kubelet runs with (not set)",
        ["w1"],
    )
    assert cluster.reads == 1


def test_undoing_without_a_prediction_needs_consent_too() -> None:
    (why,) = predicted({"memory.available": "50Mi"}, answers=False).refusals
    assert re.search(r"cannot be read: no API.*allow_unproven=true", str(why))
    blind = predicted({"memory.available": "50Mi"}, answers=False, allow_unproven=True)
    assert (blind.refusals, blind.outlook) == ((), "")
