"""Whether what a plan changes would start: before its change, after it, and on the way back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from ruamel.yaml import YAML

from roles.engine import starting
from roles.engine.bridge import Remote
from roles.engine.control_plane import ControlPlane
from roles.engine.node_changes import NodePlan
from roles.engine.node_changes.starts import Starts, StartWatch, present_refusals, starts_of
from roles.engine.proof import Proof, SurveyedNode
from roles.engine.remote import Answer, ConnectionLost
from roles.engine.starting import PathFact, StartFacts
from tests.unit.control_plane_flags.world import plan as plan_flags
from tests.unit.kubelet_config.world import SERVED, node_plan, plan_fields, state
from tests.unit.kubelet_config.world import drained as only_drained
from tests.unit.starting.samples import RUNTIME, well

GONE = PathFact("none", makeable=True)
RESOLVER = "/run/systemd/resolve/resolv.conf"
PROTECTS = "protectKernelDefaults: true\n"
SOCKET = "containerRuntimeEndpoint: unix:///run/containerd/containerd.sock\n"


def made(fields: dict[str, Any], config: str = "") -> NodePlan[Any]:
    return node_plan(state(SOCKET + config, **YAML(typ="safe").load(SOCKET + config)), fields)


def starts(plan: NodePlan[Any]) -> Starts:
    found = starts_of(plan)
    assert found is not None
    return found


def judged(monkeypatch: pytest.MonkeyPatch, plan: NodePlan[Any], **facts: Any) -> tuple[list[str], list[str]]:
    """The refusals and warnings of a plan on a healthy node, but for these facts."""
    asked = starts(plan)
    healthy = well(starting.together(asked.before, asked.after))
    laid = {name: {**getattr(healthy, name), **value} if isinstance(value, dict) else value for name, value in facts.items()}
    monkeypatch.setattr(starting, "answer", lambda needs, lines: replace(healthy, **laid))
    found = asked.judged([])
    return [str(one) for one in found.refusals], found.warnings


def test_a_healthy_node(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged(monkeypatch, made({"containerLogMaxSize": "20Mi"}, PROTECTS)) == ([], [])
    assert judged(monkeypatch, made({"resolvConf": RESOLVER})) == ([], [])
    assert judged(monkeypatch, plan_flags({"control_plane_flags": {"kube-apiserver": {"v": 3}}})) == ([], [])
    # Without an answer nothing is refused.
    assert starts(made({"maxPods": 50}, PROTECTS)).judged([]).refusals == []
    assert starts_of(made({}, PROTECTS)) is None


def test_a_checkpoint_that_the_change_removes_is_in_nobodys_way(monkeypatch: pytest.MonkeyPatch) -> None:
    path = "/var/lib/kubelet/cpu_manager_state"
    (refused,), _ = judged(monkeypatch, made({"maxPods": 50}), checkpoints={path: ""})
    assert f"{path}, where it keeps what its pods have, is empty" in refused
    drained = plan_fields(
        only_drained(state(SOCKET, **YAML(typ="safe").load(SOCKET))), {"cpuManagerPolicy": "static", "systemReserved": {"cpu": "500m"}}
    )
    stored = '{"policyName":"none","defaultCpuSet":""}'
    assert judged(monkeypatch, drained, checkpoints={path: stored})[0] == []
    assert judged(monkeypatch, drained, checkpoints={path: ""})[0] == []
    # The plan of an undo is judged before it is known what it removes.
    (one,) = drained.planned
    assert one.change is not None and path in one.change.checkpoints
    undo = replace(drained, planned=(replace(one, change=replace(one.change, checkpoints=())),))
    assert judged(monkeypatch, undo, checkpoints={path: stored})[0] == []


def test_a_change_that_has_nothing_to_do_with_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    change = made({"containerLogMaxSize": "20Mi"}, PROTECTS)
    (refused,), _ = judged(monkeypatch, change, tunables={"vm.overcommit_memory": (0, True)})
    assert refused == (
        "n1: its kubelet would not start again: protectKernelDefaults, and vm.overcommit_memory is 0 (needs 1); "
        "`sysctl -w vm.overcommit_memory=1`, and in /etc/sysctl.d, so that it stays"
    )
    change = made({"containerLogMaxSize": "20Mi"}, "authentication: {x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}}\n")
    (refused,), _ = judged(monkeypatch, change, paths={"/etc/kubernetes/pki/ca.crt": GONE})
    assert "its kubelet would not start again: authentication.x509.clientCAFile names /etc/kubernetes/pki/ca.crt" in refused


def test_what_the_change_brings_is_named_with_its_field(monkeypatch: pytest.MonkeyPatch) -> None:
    (refused,), _ = judged(monkeypatch, made({"resolvConf": RESOLVER}), paths={RESOLVER: GONE, "/etc/resolv.conf": PathFact("file", True)})
    assert refused == (
        f"n1: after this change no new pod would start on the node: resolvConf names {RESOLVER}, which does not exist; "
        "restore it, or set resolvConf to a file that exists (/etc/resolv.conf)"
    )
    (refused,), _ = judged(monkeypatch, made({"protectKernelDefaults": True}), tunables={"kernel.panic": (0, True)})
    assert "after this change its kubelet would not start again: protectKernelDefaults, and kernel.panic is 0" in refused
    refused_none, warnings = judged(monkeypatch, made({"resolvConf": RESOLVER}), nameservers={RESOLVER: ("127.0.0.53",)})
    assert refused_none == [] and "systemd-resolved's stub" in warnings[0]


def test_a_change_may_repair_what_stands_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    drift = {"tunables": {"vm.overcommit_memory": (0, True)}}
    refusals, (warning,) = judged(monkeypatch, made({"protectKernelDefaults": False}, PROTECTS), **drift)
    assert refusals == [] and "this change repairs that, but if it is reverted, the node is as it is now" in warning
    gone = {"paths": {RESOLVER: GONE, "/etc/resolv.conf": PathFact("file", True)}}
    refusals, warnings = judged(monkeypatch, made({"resolvConf": "/etc/resolv.conf"}, f"resolvConf: {RESOLVER}\n"), **gone)
    assert refusals == [] and len(warnings) == 1
    # Another field: the running kubelet may still use another file, so that new pods start until its restart.
    (refused,), warnings = judged(monkeypatch, made({"maxPods": 50}, f"resolvConf: {RESOLVER}\n"), **gone)
    assert refused.startswith("n1: no new pod would start on the node: resolvConf names") and warnings == []
    # A runtime that is not ready is so with any files.
    down = replace(RUNTIME, conditions={"RuntimeReady": (False, "no")})
    refusals, (warning,) = judged(monkeypatch, made({"maxPods": 50}), runtime=down)
    assert refusals == [] and "says RuntimeReady=false" in warning


def test_a_runtime_that_changes_its_driver_too_is_not_compared_as_it_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    config = SOCKET + "cgroupDriver: systemd\n"
    there = replace(only_drained(state(config, **YAML(typ="safe").load(config))), runtime=SERVED)
    change = plan_fields(there, {"cgroupDriver": "cgroupfs"})
    with_systemd = replace(RUNTIME, config="12", drivers=frozenset({"systemd"}))
    assert judged(monkeypatch, change, runtime=with_systemd)[0] == []
    (one,) = change.planned
    assert one.change is not None
    alone = replace(one, change=replace(one.change, runtime=None))
    # An undo is judged before its runtime is asked.
    assert judged(monkeypatch, replace(change, planned=(replace(alone, undoes="r1-n1-kubelet"),)), runtime=with_systemd)[0] == []
    (refused,), _ = judged(monkeypatch, replace(change, planned=(alone,)), runtime=with_systemd)
    assert "cgroupDriver is cgroupfs, and containerd" in refused
    # Somebody has changed the runtime already: the kubelet follows it.
    refusals, (warning,) = judged(monkeypatch, change, runtime=replace(with_systemd, drivers=frozenset({"cgroupfs"})))
    assert refusals == [] and "cgroupDriver is systemd, and containerd 2.1 has cgroupfs; this change repairs that" in warning


def test_after_its_change_the_runtime_must_have_the_driver_of_the_kubelet(monkeypatch: pytest.MonkeyPatch) -> None:
    config = SOCKET + "cgroupDriver: systemd\n"
    there = replace(only_drained(state(config, **YAML(typ="safe").load(config))), runtime=SERVED)
    change = plan_fields(there, {"cgroupDriver": "cgroupfs"})
    asked = starts(change)
    healthy = well(starting.together(asked.before, asked.after))
    before, after = (replace(healthy, runtime=replace(RUNTIME, config="12", drivers=frozenset({one}))) for one in ("systemd", "cgroupfs"))
    both = watch(monkeypatch, change, before, after)
    assert both.recheck() is None and both.proof() == Proof("would start again")
    alone = watch(monkeypatch, change, before, before)
    assert alone.recheck() is None
    assert "cgroupDriver is cgroupfs, and containerd 2.1 has systemd" in alone.proof().problems[0]


def test_no_manifest_changes_while_no_pod_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    change = plan_flags({"control_plane_flags": {"kube-apiserver": {"v": 3}}})
    (refused,), _ = judged(monkeypatch, change, paths={"/etc/resolv.conf": GONE})
    assert "no new pod would start on the node: resolvConf names /etc/resolv.conf, which does not exist" in refused
    # The control plane is in the node's own network.
    down = replace(RUNTIME, conditions={"NetworkReady": (False, "cni plugin not initialized")})
    refusals, (warning,) = judged(monkeypatch, change, runtime=down)
    assert refusals == [] and "no new pod with a network of its own would start" in warning


def test_a_kubelet_reaches_its_api_server_where_it_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    away = (7, "https://10.0.0.9:6443")
    (refused,), _ = judged(monkeypatch, made({"maxPods": 50}), api=away)
    assert "(--kubeconfig) names https://10.0.0.9:6443: nothing accepts connections there" in refused
    # One that runs on has reached it; the change, or its way back, may be what it waits for.
    assert judged(monkeypatch, plan_flags({"control_plane_flags": {"kube-apiserver": {"v": 3}}}), api=away) == ([], [])


class Node:
    """A node that answers in their order; the last one again and again."""

    name = "n1"

    def __init__(self, *answers: StartFacts | Exception) -> None:
        self._answers = list(answers)

    def run(self, *_: Any, **__: Any) -> Answer:
        found = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(found, Exception):
            raise found
        return Answer(0, [found], [])  # type: ignore[list-item]  # `answer` below gives it back


def watch(monkeypatch: pytest.MonkeyPatch, plan: NodePlan[Any], *answers: StartFacts | Exception, unproven: bool = False) -> StartWatch:
    monkeypatch.setattr(starting, "answer", lambda needs, lines: next(iter(lines)))
    return StartWatch(cast(Remote, Node(*answers)), plan, plan.changing[0], allow_unproven=unproven)


def test_right_before_and_after_the_change(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = made({"containerLogMaxSize": "20Mi"}, PROTECTS)
    asked = starts(plan)
    fine = well(starting.together(asked.before, asked.after))
    drifted = replace(fine, tunables={**fine.tunables, "vm.overcommit_memory": (0, True)})
    good = watch(monkeypatch, plan, fine)
    assert good.recheck() is None and good.proof() == Proof("would start again")
    assert "vm.overcommit_memory is 0" in str(watch(monkeypatch, plan, drifted).recheck())
    # It comes with the change: the change is reverted.
    late = watch(monkeypatch, plan, fine, drifted)
    assert late.recheck() is None and "vm.overcommit_memory is 0" in late.proof().problems[0]
    # The disk of the record fills up: the change has what it needs, and keeps it.
    full = replace(fine, space={**fine.space, "/var/lib/daytwo": (0, 100000)})
    assert "could not be recorded" in str(watch(monkeypatch, plan, full).recheck())
    filled = watch(monkeypatch, plan, fine, full)
    assert filled.recheck() is None and filled.proof() == Proof("would start again")
    lost = watch(monkeypatch, plan, fine, ConnectionLost("n1: lost"))
    assert lost.recheck() is None and lost.proof().problems == ("whether it would start again: n1: lost",)
    cut = watch(monkeypatch, plan, fine, StartFacts(), unproven=True)
    assert cut.recheck() is None and cut.proof() == Proof("NOT PROVEN: whether it would start again: the node gave no whole answer")


def test_what_blocks_a_revert_that_failed_is_asked_of_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the files that are back, with commands; for a manifest also what keeps pods from their start."""
    plan = made({"containerLogMaxSize": "20Mi"}, PROTECTS)
    asked = starts(plan)
    fine = well(starting.together(asked.before, asked.after))
    ill = replace(
        fine,
        tunables={**fine.tunables, "kernel.panic": (0, True)},
        paths={**fine.paths, "/etc/resolv.conf": GONE},
        space={**fine.space, "/var/lib/daytwo": (0, 100000)},
    )
    (found,) = watch(monkeypatch, plan, ill).blocking()
    assert "kernel.panic is 0 (needs 10)" in found.why and found.commands == ("sysctl -w kernel.panic=10",)
    assert watch(monkeypatch, plan, ConnectionLost("n1: lost")).blocking() == []
    flags = plan_flags({"control_plane_flags": {"kube-apiserver": {"v": 3}}})
    asked = starts(flags)
    fine = well(starting.together(asked.before, asked.after))
    ill = replace(fine, paths={**fine.paths, "/etc/resolv.conf": GONE})
    (found,) = watch(monkeypatch, flags, ill).blocking()
    assert "resolvConf names /etc/resolv.conf, which does not exist" in found.why
    assert "cat /run/systemd/resolve/resolv.conf;" in found.commands[1] and ">/etc/resolv.conf)" in found.commands[1]


def test_a_node_without_a_plan_says_what_keeps_it_from_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = made({"containerLogMaxSize": "20Mi"}, PROTECTS)
    fine = well(starts(plan).before)
    away = replace(fine, runtime=replace(RUNTIME, version="-"), paths={**fine.paths, "/etc/resolv.conf": GONE})
    monkeypatch.setattr(starting, "answer", lambda needs, lines: next(iter(lines)))
    for facts, expected in ((fine, 0), (away, 1)):
        found = present_refusals(SurveyedNode(cast(Remote, Node(facts)), plan.kubelet, ControlPlane({}, {}, ())))
        assert len(found) == expected and all("would not start again: the container runtime" in str(one) for one in found)
