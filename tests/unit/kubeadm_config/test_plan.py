"""Which settings all nodes share, what the ConfigMaps must have, and the notes on what does not survive an upgrade."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from roles.engine.editing import cluster_configuration, kubelet_config
from roles.engine.kubeadm_config import CLUSTER, GATES, KUBELET, ComponentDesired, StoredSettings, as_given, plan
from roles.engine.kubelet.thresholds import DEFAULT_HARD
from roles.engine.transaction import Refusal
from roles.eviction import DesiredThresholds, wanted
from tests.unit.kubeadm_config.world import CLUSTER_TEXT, KUBELET_TEXT, lasting

NODES = {"cp1": True, "w1": False, "w2": False}
Settings = Mapping[tuple[str, ...], Any]


def gate(**values: bool | None) -> Settings:
    return {(GATES, name): value for name, value in values.items()}


def member(host: str, settings: Settings, component: str = "kubelet", by_kubeadm: bool = True, write: Any = as_given) -> ComponentDesired:
    return ComponentDesired(host, host, component, by_kubeadm, settings, write)


def kubelets(settings: Settings, **others: Settings) -> list[ComponentDesired]:
    return [member(host, others.get(host, settings)) for host in NODES]


def test_what_all_nodes_share_is_written() -> None:
    members = [*kubelets(gate(N=True)), member("cp1", gate(N=True), "kube-scheduler")]
    shared = plan.share(members, NODES, lasting())
    assert shared.wanted == {"kubelet": gate(N=True), "kube-scheduler": gate(N=True)} and shared.notes == ()


def test_a_node_by_hand_must_be_in_the_run_but_its_values_do_not_count() -> None:
    members = [member("cp1", gate(N=True)), member("w1", gate(N=True)), member("w2", {}, by_kubeadm=False)]
    assert plan.share(members, NODES, lasting()).wanted == {"kubelet": gate(N=True)}
    by_hand = [member(host, gate(N=True), by_kubeadm=False) for host in NODES]
    assert plan.share(by_hand, NODES, lasting()) == plan.Shared({}, ())


@pytest.mark.parametrize("left_out", ["w2", "cp1"])
def test_a_run_on_some_of_the_nodes_writes_nothing_and_says_so(left_out: str) -> None:
    members = [found for found in kubelets(gate(N=True)) if found.host != left_out]
    shared = plan.share(members, NODES, lasting())
    assert not shared.wanted
    (text,) = shared.notes
    assert (
        KUBELET in text and left_out in text and "N=true does not survive the next `kubeadm upgrade`" in text and "without nodes=" in text
    )


def test_a_control_plane_component_needs_the_control_plane_alone() -> None:
    assert plan.share([member("cp1", gate(N=True), "kube-apiserver")], NODES, lasting()).wanted == {"kube-apiserver": gate(N=True)}
    shared = plan.share([member("cp1", gate(N=True), "kube-apiserver")], {**NODES, "cp2": True}, lasting())
    assert not shared.wanted and "cp2 is not in this run (kube-apiserver)" in shared.notes[0]


def test_a_value_in_the_configmap_already_needs_no_note() -> None:
    assert plan.share([member("w1", gate(A=True))], NODES, lasting()) == plan.Shared({}, ())
    assert "A=absent does not survive" in plan.share([member("w1", gate(A=None))], NODES, lasting()).notes[0]


def test_per_node_values_come_with_a_patch_for_kubeadm() -> None:
    shared = plan.share(kubelets({("maxPods",): 110}, w1={("maxPods",): 77}), NODES, lasting())
    assert not shared.wanted and len(shared.notes) == 2
    text = next(text for text in shared.notes if text.startswith("w1 "))
    assert "maxPods=77 does not survive" in text and "per node" in text and "DIR/kubeletconfiguration+merge.yaml" in text
    patch = "\n".join(line[4:] for line in text.splitlines()[1:])
    assert kubelet_config.read(patch.encode()) == {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "maxPods": 77,
    }


def test_one_gate_is_shared_and_another_is_not() -> None:
    shared = plan.share(kubelets(gate(N=True), w1=gate(N=True, M=False)), NODES, lasting())
    assert shared.wanted == {"kubelet": gate(N=True)}
    (text,) = shared.notes
    assert text.startswith("w1 kubelet: M=false does not survive") and "featureGates:\n      M: false" in text
    nodes = {"cp1": True, "cp2": True}
    members = [member("cp1", gate(N=True), "kube-scheduler"), member("cp2", gate(N=False), "kube-scheduler")]
    text = "\n".join(plan.share(members, nodes, lasting()).notes)
    assert "DIR/kube-scheduler+json.yaml" in text and "value: --feature-gates=N=false" in text


def test_a_patch_for_thresholds_has_those_that_it_would_drop() -> None:
    own = {("evictionHard", "memory.available"): "200Mi"}
    members = [member("cp1", {}), member("w1", own, write=wanted.lasting), member("w2", {})]
    (text,) = plan.share(members, NODES, StoredSettings()).notes
    assert "memory.available: 200Mi" in text and 'nodefs.available: "10%"' in text


# ---- edits


def edits(name: str, text: str, change: Settings) -> tuple[str, list[str]]:
    edited = plan.edit(name, text.encode(), change)
    return edited.after.decode(), [str(field) for field in edited.fields]


def test_only_what_differs_is_written() -> None:
    after, fields = edits(
        CLUSTER, CLUSTER_TEXT, {("kube-apiserver", "A"): True, ("kube-apiserver", "B"): True, ("kube-scheduler", "C"): None}
    )
    assert after == CLUSTER_TEXT.replace("B=false", "B=true") and fields == ["kube-apiserver.B=true"]
    after, fields = edits(KUBELET, KUBELET_TEXT, {("evictionHard", "memory.available"): "51200Ki", (GATES, "A"): True})
    assert (after, fields) == (KUBELET_TEXT, [])


def test_thresholds_are_written_for_what_the_configmap_has() -> None:
    desired = DesiredThresholds(eviction_hard={"nodefs.available": "5%"})
    named = wanted.named(desired)
    assert wanted.lasting({}, named) == {("evictionHard",): {**DEFAULT_HARD, "nodefs.available": "5%"}}
    configuration = {"evictionHard": {"memory.available": "50Mi"}}
    assert wanted.lasting(configuration, named)[("evictionHard",)] == {
        **dict.fromkeys(DEFAULT_HARD, "0%"),
        "memory.available": "50Mi",
        "nodefs.available": "5%",
    }
    assert wanted.lasting({}, {("evictionHard", "nodefs.available"): "10%"}) == {}, "that is the default"
    merging = {"evictionHard": {"memory.available": "50Mi"}, "mergeDefaultEvictionSettings": True}
    assert wanted.lasting(merging, {("evictionHard", "nodefs.available"): "10%"}) == {}


def test_a_shared_threshold_keeps_every_other_byte() -> None:
    members = [member(host, {("evictionHard", "memory.available"): "60Mi"}, write=wanted.lasting) for host in NODES]
    shared = plan.share(members, NODES, lasting())
    edited = plan.editor(KUBELET, shared.wanted, members)(KUBELET_TEXT.encode())
    text = edited.after.decode()
    assert "memory.available: 60Mi" in text
    assert [line for line in KUBELET_TEXT.splitlines() if line not in text.splitlines()] == ["  memory.available: 50Mi"]
    assert plan.editor(KUBELET, shared.wanted, members)(edited.after).fields == ()
    # A signal that someone else sets stays, also in the undo.
    theirs = edited.after.replace(b"memory.available: 60Mi", b"memory.available: 60Mi\n  pid.available: 5%")
    back = plan.undo(KUBELET, plan.undoing([[field.recorded for field in edited.fields]]), False)(theirs).after
    assert kubelet_config.read(back)["evictionHard"] == {"memory.available": "50Mi", "pid.available": "5%"}


def test_secrets_are_masked_and_gates_are_not() -> None:
    old = CLUSTER_TEXT.replace("  - name: feature", "  - name: oidc-client-secret\n    value: hunter2\n  - name: feature")
    new = plan.edit(CLUSTER, old.encode(), {("kube-apiserver", "A"): False}).after
    text = plan.diff(CLUSTER, old.encode(), new)
    assert "hunter2" not in text and "-    value: A=true,B=false" in text and "+    value: A=false,B=false" in text
    header = KUBELET_TEXT + "staticPodURLHeader:\n  Authorization: [hunter2]\n"
    assert "hunter2" not in plan.diff(KUBELET, header.encode(), plan.edit(KUBELET, header.encode(), {(GATES, "A"): False}).after)


# ---- undoing


NAMES = [("kube-apiserver", "A"), ("kube-apiserver", "N"), ("kube-scheduler", "C")]
FIELDS = [(GATES, "A"), (GATES, "N"), ("maxPods",), ("evictionHard", "memory.available"), ("evictionHard", "nodefs.available")]
VALUES: dict[str, st.SearchStrategy[Any]] = {
    GATES: st.booleans(),
    "maxPods": st.integers(1, 500),
    "evictionHard": st.sampled_from(["5%", "1Gi"]),
}


@settings(max_examples=50)
@given(st.dictionaries(st.sampled_from(NAMES), st.sampled_from([True, False, None]), min_size=1))
def test_an_undo_restores_the_values(change: Settings) -> None:
    _undo_laws(CLUSTER, CLUSTER_TEXT, change, lambda data: {name: one.gates for name, one in cluster_configuration.read(data).items()})


@settings(max_examples=50)
@given(
    st.sets(st.sampled_from(FIELDS), min_size=1).flatmap(
        lambda paths: st.fixed_dictionaries({path: st.none() | VALUES[path[0]] for path in paths})
    )
)
def test_an_undo_restores_the_fields(change: Settings) -> None:
    _undo_laws(KUBELET, KUBELET_TEXT, change, kubelet_config.read)


def _undo_laws(name: str, text: str, change: Settings, read: Any) -> None:
    edited = plan.edit(name, text.encode(), change)
    assert plan.edit(name, edited.after, change).fields == (), "a second edit changes nothing"
    back = plan.undo(name, plan.undoing([[field.recorded for field in edited.fields]]), False)
    undone = back(edited.after)
    assert read(undone.after) == read(text.encode())
    if all(field.before is None for field in edited.fields):
        assert undone.after == text.encode(), "an addition is removed byte for byte"
    assert back(undone.after).fields == (), "a second edit changes nothing"


def test_a_change_of_others_is_not_undone_without_force() -> None:
    edited = plan.edit(KUBELET, KUBELET_TEXT.encode(), {("maxPods",): 77, (GATES, "N"): True})
    fields = plan.undoing([[field.recorded for field in edited.fields]])
    other = edited.after.replace(b"maxPods: 77", b"maxPods: 80")
    with pytest.raises(Refusal) as refusal:
        plan.undo(KUBELET, fields, False)(other)
    assert "maxPods is 80, and daytwo set it to 77" in str(refusal.value) and "force=true" in str(refusal.value)
    assert plan.undo(KUBELET, fields, True)(other).after == KUBELET_TEXT.encode()


def test_several_runs_are_undone_as_one() -> None:
    one = plan.edit(KUBELET, KUBELET_TEXT.encode(), {("maxPods",): 77})
    two = plan.edit(KUBELET, one.after, {("maxPods",): 80, (GATES, "N"): True})
    records = [[field.recorded for field in edited.fields] for edited in (two, one)]
    for now in (two.after, one.after, KUBELET_TEXT.encode()):
        assert plan.undo(KUBELET, plan.undoing(records), False)(now).after == KUBELET_TEXT.encode()


@pytest.mark.parametrize(
    ("flag", "value", "hidden"), [("v", "4", False), ("audit-log-maxage", "30", False), ("oidc-client-secret", "hunter2", True)]
)
def test_the_diff_of_the_configmap_hides_only_secrets(flag: str, value: str, hidden: bool) -> None:
    before = b"apiServer:\n  extraArgs: []\n"
    after = f'apiServer:\n  extraArgs:\n  - name: {flag}\n    value: "{value}"\n'.encode()
    shown = plan.diff("kubeadm-config", before, after)
    assert (f'+    value: "{value}"' not in shown) is hidden, shown
