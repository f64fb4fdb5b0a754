"""What nodes have recorded, read back; and what undoing it comes to."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
from pyinfra.api.exceptions import DeployError

from roles import history as history_role
from roles.api import NodeUsage
from roles.change import Change, FileEdit
from roles.change.model import ABSENT, cmdline_sha256
from roles.change.record import Effective, RunInfo, end_record, plan_record
from roles.change.refusal import Refusal
from roles.history import plan as planning
from roles.history.facts import HistoryError, Recorded, parse
from roles.kubelet import find
from roles.observe import File, Observation
from roles.proof import Cluster, NoApi, Node, Survey
from tests.unit.observe import node
from tests.unit.observe.node import parse as parse_look

INFO = RunInfo("r20260101-000000-aaaa", "ann@desk", "", "pyinfra inv deploy", "d" * 64, "2026-01-01T00:00:00Z")
OLD, NEW = b"A=1\n", b"A=2\n"


def change(component: str = "kubelet", host: str = "w1", run: str = INFO.id, **other: Any) -> Change:
    values: dict[str, Any] = {
        "id": f"{run}-{host}-{component}",
        "node": host,
        "component": component,
        "kind": "kubelet",
        "unit": "kubelet.service",
        "summary": "A=true",
        "files": (FileEdit("/etc/a", OLD, NEW), FileEdit("/etc/made", None, b"x"), FileEdit("/etc/gone", b"y", None, mode=0o600)),
        "health_url": "http://127.0.0.1/",
        "old_argv": ("kubelet", "old"),
        "new_argv": ("kubelet", "new"),
        **other,
    }
    return Change(**values)


def answer(*lines: tuple[str, str, str, list[dict[str, Any]]], originals: str = "") -> list[str]:
    def b64(text: str) -> str:
        return base64.b64encode(text.encode()).decode() + "="

    told = ["daytwo 1", "clock 5 b"]
    for name, state, reason, events in lines:
        told.append(f"change {name} {b64(state)} {b64(reason)} {b64(''.join(json.dumps(event) + chr(10) for event in events))}")
    return [*told, *originals.splitlines(), "end"]


def recorded(made: Change | None = None, state: str = "confirmed", order: int = 1, undoes: str = "", **gates: Any) -> Recorded:
    made = made or change()
    info = RunInfo(made.id[: len(INFO.id)], INFO.who, "", INFO.command, INFO.data, INFO.at)
    events = [plan_record(info, order, made, Effective(gates), undoes), end_record(made.id, state, "", "proof", 5.0)]
    originals = [
        f"original {made.id} {number} {base64.b64encode(edit.before).decode()}="
        for number, edit in enumerate(made.files, 1)
        if edit.before is not None
    ]
    lines = answer((made.id, f"state={state}\nboot=b\n", "because  \n", events), originals="\n".join(originals))
    (found,) = parse(made.node, lines)
    return found


def seen(**files: bytes | None) -> Observation:
    paths = {"/etc/a": NEW, "/etc/made": b"x", "/etc/gone": None} | {f"/etc/{name}": data for name, data in files.items()}
    made = {path: File(path, "none" if data is None else "file", mode=0o644, mountpoint="/", data=data) for path, data in paths.items()}
    return Observation(host="w1", uid=0, files=made)


def test_a_record_is_read_back() -> None:
    found = recorded(A={"before": False, "after": True})
    assert (found.run, found.order, found.component, found.state, found.reason) == (INFO.id, 1, "kubelet", "confirmed", "because")
    assert found.end is not None and found.end["proof"] == "proof"
    assert found.originals == {1: OLD, 3: b"y"} and not found.in_flight


def test_half_an_answer_is_none() -> None:
    with pytest.raises(HistoryError, match="w1"):
        parse("w1", answer()[:-1])


def test_a_record_that_a_full_disk_cut_short_does_not_hide_the_change() -> None:
    lines = answer(("r1-w1-kubelet", "state=applied\nrun=r1\nwho=ann@desk\n", "", []))
    (found,) = parse("w1", lines)
    assert (found.run, found.state, found.in_flight) == ("r1", "applied", True)


def test_undoing_swaps_before_and_after() -> None:
    undo = planning.undo("r2", recorded(A={"before": False, "after": True}, B={"before": None, "after": None}), seen(), force=False)
    assert undo.change is not None
    assert [(edit.path, edit.before, edit.after) for edit in undo.change.files] == [
        ("/etc/a", NEW, OLD),
        ("/etc/made", b"x", None),
        ("/etc/gone", None, b"y"),
    ]
    assert undo.change.files[2].mode == 0o600
    assert undo.gates == {"A": False}, "only what had a value can be held to it"
    assert undo.change.new_arguments == cmdline_sha256(("kubelet", "old"))


def test_what_is_as_before_already_is_left_alone() -> None:
    assert planning.undo("r2", recorded(), seen(a=OLD, made=None, gone=b"y"), force=False).change is None
    partly = planning.undo("r2", recorded(), seen(a=OLD), force=False).change
    assert partly is not None and [edit.path for edit in partly.files] == ["/etc/made", "/etc/gone"]


def test_a_file_that_was_changed_since_is_refused_with_its_diff() -> None:
    with pytest.raises(Refusal, match="changed since") as refused:
        planning.undo("r2", recorded(), seen(a=b"A=3\n"), force=False)
    assert "-A=" in str(refused.value) and "+A=" in str(refused.value) and "force=true" in str(refused.value)


def test_force_puts_it_back_all_the_same() -> None:
    undo = planning.undo("r2", recorded(), seen(a=b"A=3\n"), force=True)
    assert undo.change is not None and undo.change.files[0].before == b"A=3\n" and undo.change.files[0].after == OLD
    assert undo.change.new_arguments == "", "others' edits may be in the arguments"
    assert "force" in undo.warnings[0]


def test_an_original_that_is_not_what_it_was_is_refused() -> None:
    found = recorded()
    found.originals[1] = b"tampered"
    with pytest.raises(Refusal, match="not what it was"):
        planning.undo("r2", found, seen(), force=True)


def test_a_record_tells_no_content() -> None:
    text = json.dumps(recorded().plan)
    assert hashlib.sha256(OLD).hexdigest() in text and ABSENT in text and "A=1" not in text


def history(*changes: Recorded) -> dict[str, list[Recorded]]:
    return {"w1": list(changes)}


def test_the_newest_run_that_stands_is_undone() -> None:
    first, second = "r20260101-000000-aaaa", "r20260102-000000-bbbb"
    a, b = recorded(change(run=first)), recorded(change("kube-scheduler", run=second))
    again = recorded(change(run=second))
    assert planning.newest(history(a, again)) == (second,), "the first was complete: the second is another matter"
    assert planning.newest(history(a, b)) == (second, first), "the same was wanted: the first was halted, the second went on"
    other = replace(a, plan={**a.plan, "data": "of another wish"})
    assert planning.newest(history(other, b)) == (second,)
    undone = recorded(change("kube-scheduler", run="r20260103-000000-cccc"), undoes=b.id)
    assert planning.newest(history(a, b, undone)) == (first,)
    failed = recorded(change(run="r20260104-000000-dddd"), state="reverted", undoes=a.id)
    assert planning.newest(history(a, b, undone, failed)) == (first,)
    assert planning.newest(history(recorded(state="reverted"))) == ()


def test_the_last_change_of_a_run_comes_first() -> None:
    made = [recorded(change(component), order=order) for order, component in ((1, "kube-apiserver"), (3, "kubelet"), (2, "kube-scheduler"))]
    made.append(recorded(change("other"), order=4, state="reverted"))
    assert [found.component for found in planning.to_undo(history(*made), [INFO.id])] == ["kubelet", "kube-scheduler", "kube-apiserver"]


def test_a_setting_that_holds_a_secret_is_not_in_the_record() -> None:
    values = {"before": None, "after": {"X-Site": ["abc123"]}}
    made = Effective(settings={"staticPodURLHeader": values, "maxPods": {"before": 110, "after": 5}})
    assert made.recorded()["settings"] == {"maxPods": {"before": 110, "after": 5}}


class Asked(Cluster):
    """One node as its API would show it now; or why it does not."""

    def __init__(self, running: dict[str, Any], error: Exception | None = None) -> None:
        super().__init__()
        self.running, self.error = running, error

    def configuration(self, node_name: str) -> dict[str, Any]:
        if self.error:
            raise self.error
        return self.running

    def usage(self, node_name: str) -> NodeUsage:
        amounts = {"cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "100Gi"}
        status = {"capacity": amounts, "allocatable": amounts, "nodeInfo": {"kubeletVersion": "v1.36.3"}}
        memory = {"availableBytes": 2**30, "workingSetBytes": 7 * 2**30}
        pod = {
            "metadata": {"namespace": "default", "name": "app", "uid": "u1", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"containers": [{"name": "c"}]},
            "status": {"phase": "Running", "qosClass": "BestEffort"},
        }
        return NodeUsage({"node": {"memory": memory}, "pods": []}, [pod], {"metadata": {"name": "w1"}, "status": status})


def look_ahead(
    before: dict[str, str], *, allow_evictions: bool = False, allow_unproven: bool = False, error: Exception | None = None
) -> Any:
    running = {"evictionHard": {"memory.available": "100Mi"}, "maxPods": 110}
    made = change()
    info = RunInfo(made.id[: len(INFO.id)], INFO.who, "", INFO.command, INFO.data, INFO.at)
    effective = Effective(settings={"evictionHard": {"before": before, "after": running["evictionHard"]}})
    plan = plan_record(info, 1, made, effective)
    undo = planning.undo("r2", replace(recorded(made), plan=plan), seen(), force=False)
    its_kubelet = find(parse_look("w1", node.answer()))
    found = Survey(cluster=Asked(running, error))
    found.nodes["w1"] = Node(None, its_kubelet.seen, its_kubelet, {})  # type: ignore[arg-type]  # nothing is run there
    return history_role._look_ahead([undo], found, allow_evictions, allow_unproven)


def test_undoing_that_would_evict_needs_consent() -> None:
    harmless = look_ahead({"memory.available": "50Mi"})["w1"]
    assert harmless.evicts == () and harmless.may_go == frozenset()
    with pytest.raises(DeployError) as refused:
        look_ahead({"memory.available": "2Gi"})
    told = str(refused.value)
    assert "w1: undoing r20260101-000000-aaaa-w1-kubelet would evict: memory.available" in told and "allow_evictions=true" in told
    assert look_ahead({"memory.available": "2Gi"}, allow_evictions=True)["w1"].may_go == {"default/app"}


def test_undoing_blindly_needs_consent_too() -> None:
    with pytest.raises(DeployError, match=r"cannot be read: no API.*allow_unproven=true"):
        look_ahead({"memory.available": "50Mi"}, error=NoApi("no API"))
    assert look_ahead({"memory.available": "50Mi"}, error=NoApi("no API"), allow_unproven=True) == {}
