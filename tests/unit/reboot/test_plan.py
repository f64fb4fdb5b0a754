"""Which nodes reboot, why, what is refused, and in which order."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from roles.engine.outage import Mark, read_mark
from roles.engine.outage.mark import CORDONED_BY, OUTAGE, REBOOT
from roles.engine.runs import Pace
from roles.reboot import RebootPlan, order, plan_node
from roles.reboot.facts import BootUnit
from roles.reboot.plan import WITHOUT_EFFECT, Expected, brought_back, clock_problem, expected_pods, turned_off, unready_pods
from tests.unit.disruption.world import pod as any_pod
from tests.unit.disruption.world import workload
from tests.unit.outage.world import node as cordoned
from tests.unit.reboot.world import ASKS, AT_BOOT, K18, K20, NEW, OLD, RUN, candidate, node_object, plan


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"signs": ASKS}, "it has /run/reboot-required"),
        ({"signs": ASKS, "packages": tuple("abcdefg")}, "it has /run/reboot-required (a, b, c, d, e and 2 more)"),
        ({"installed": {K18: True, K20: True}}, f"kernel {K20} is installed, {K18} runs"),
        ({"signs": ASKS, "installed": {K18: True, K20: True}}, f"it has /run/reboot-required; kernel {K20} is installed, {K18} runs"),
    ],
)
def test_nodes_that_need_it(changed: dict[str, Any], why: str) -> None:
    found = plan(candidate(**changed))
    assert (found.what, found.why, found.warnings, found.refusals) == ("reboot", why, (), ())


def test_a_node_that_does_not_need_it() -> None:
    found = plan(candidate(installed={K18: True, "6.1.0-20-rt-amd64": True}))
    assert found.what == "none" and "no installed kernel is newer" in found.why and "6.1.0-20-rt-amd64" in found.why
    assert plan(candidate(), unneeded=True).why == "allow_unneeded=true"
    assert plan(replace(candidate(signs=ASKS), chosen=False)).what == "none"


def test_what_an_earlier_run_left() -> None:
    mark = Mark(RUN, "reboot", OLD).text()
    assert read_mark(node_object("w1", mark)) == Mark(RUN, "reboot", OLD)
    # Its drain was cut short.
    assert plan(candidate(mark=mark, signs=ASKS)).what == "reboot"
    released = plan(candidate(mark=mark))
    assert released.what == "release" and RUN in released.why
    # It has rebooted since; that it needs one again is for the next run.
    finished = plan(candidate(mark=Mark(RUN, "reboot", NEW).text(), signs=ASKS))
    assert finished.what == "finish" and RUN in finished.why and not finished.refusals
    assert plan(replace(candidate(mark=Mark(RUN, "reboot", NEW).text()), chosen=False)).what == "none"


@pytest.mark.parametrize(("boot", "signs"), [(OLD, ASKS), (NEW, ASKS), (NEW, {})])
def test_a_node_that_was_turned_off_is_proven_by_its_power_on_first(boot: str, signs: dict[str, bool]) -> None:
    """The mark of a reboot would replace the one that leads to that proof."""
    found = turned_off(plan(candidate(mark=Mark(RUN, "power-off", boot).text(), signs=signs)))
    assert ("first pyinfra INVENTORY deploys/power.py --data power_on=w1" in found) == bool(signs)
    assert not turned_off(plan(candidate(mark=Mark(RUN, "reboot", OLD).text(), signs=ASKS)))
    assert not turned_off(plan(candidate(mark=Mark(RUN).text(), signs=ASKS)))


@pytest.mark.parametrize("text", ["", "x", "7", "[]", "{}", '{"run": "r"}', "null", '"x"'])
def test_a_mark_that_others_wrote_is_none(text: str) -> None:
    assert read_mark(node_object("w1", text)) is None and plan(candidate(mark=text)).what == "none"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"units": {**AT_BOOT, "kubelet.service": BootUnit("kubelet.service", "loaded", "disabled", "active")}},
            "would not start kubelet.service",
        ),
        ({"units": {k: v for k, v in AT_BOOT.items() if k != "kubelet.service"}}, "would not start kubelet.service: it does not exist"),
        (
            {"units": {**AT_BOOT, "containerd.service": BootUnit("containerd.service", "masked", "masked", "active")}},
            "containerd.service: it is masked",
        ),
        ({"units": {**AT_BOOT, "ssh.service": BootUnit("ssh.service", "loaded", "disabled", "active")}}, "would not start an SSH server"),
        (
            {"broken": (("ssh.service", "its program refuses its configuration: line 1:\x1b bad"),)},
            "start ssh.service: its program refuses its",
        ),
        ({"scheduled": "USEC=1\nMODE=reboot"}, "a shutdown is scheduled"),
        ({"state": "stopping"}, "a shutdown has begun"),
        ({"inhibitors": ("apt (PID 7): an upgrade",)}, "apt (PID 7): an upgrade: it inhibits a shutdown"),
        ({"fstab": ("/srv: no source",)}, "/etc/fstab: /srv: no source"),
        ({"installed": {K18: True, K20: False}}, f"kernel {K20} has no initrd"),
    ],
)
def test_what_would_keep_a_node_from_coming_back_is_refused(changed: dict[str, Any], words: str) -> None:
    (refusal,) = plan(candidate(signs=ASKS, **changed)).refusals
    assert refusal.startswith("w1: ") and words in refusal
    # A node that does not reboot is not refused.
    if "installed" not in changed:
        assert not plan(candidate(**changed)).refusals


def test_what_cannot_be_proven_needs_consent() -> None:
    doubtful = candidate(signs=ASKS, fstab=("/srv: no source",), installed={K18: True, K20: False})
    assert len(plan(doubtful).refusals) == 2 and all("allow_unproven=true" in one for one in plan(doubtful).refusals)
    assert not plan(doubtful, allow_unproven=True).refusals
    # Kernels without an initrd are fine where the running one has none.
    assert not plan(candidate(installed={K18: False, K20: False})).refusals


def test_a_runtime_that_does_not_run_need_not_start() -> None:
    units = {**AT_BOOT, "docker.service": BootUnit("docker.service", "loaded", "disabled", "inactive")}
    assert not plan(candidate(signs=ASKS, units=units)).refusals
    # What socket activation or another unit starts, starts.
    units["containerd.service"] = BootUnit("containerd.service", "loaded", "disabled", "active", ("kubelet.service",))
    assert not plan(candidate(signs=ASKS, units=units)).refusals


def test_warnings() -> None:
    one = candidate(signs=ASKS, fstab=None, units={k: v for k, v in AT_BOOT.items() if k != "ssh.service"})
    one = replace(one, restart=("a restart applies maxPods",), facts=replace(one.facts, boot=replace(one.facts.boot, offset=-61.2)))
    stopped = {
        name: BootUnit(name, "loaded", state, active)
        for name, state, active in (
            ("firewalld.service", "enabled", "inactive"), ("ufw.service", "enabled", "active"), ("nftables.service", "disabled", "inactive"),
        )
    }  # fmt: skip
    one = replace(one, facts=replace(one.facts, units={**(one.facts.units or {}), **stopped}))
    text = "\n".join(plan(one).warnings)
    assert "firewalld.service does not run, and the next boot starts it" in text and "ufw" not in text and "nftables" not in text
    assert "a restart applies maxPods" in text and "by -61 s" in text and "fstab is not checked" in text and "SSH" in text


@pytest.mark.parametrize(("claim", "refused"), [
    (f"{RUN} {OLD} {K20}", True), (f"{RUN} {NEW} {K20}", False), (f"{RUN} {OLD} 6.1.0-19-amd64", False), (f"{RUN} {OLD} -", False),
    ("", False), ("x" * 5000, False), ("[" * 200, False), (f"\x1b[31m {OLD} {K20}", True),
])  # fmt: skip
def test_a_node_that_a_reboot_has_brought_back_on_its_old_kernel_is_not_rebooted_again(claim: str, refused: bool) -> None:
    """Until it has rebooted, another kernel is installed, or somebody says allow_unneeded. What the annotation says is a claim of the node."""
    one = candidate("w1", installed={K18: True, K20: True})
    one = replace(one, node={"metadata": {**one.node["metadata"], "annotations": {WITHOUT_EFFECT: claim}}})
    found = plan(one).refusals
    assert [f"kernel {K20} is installed" in text and "allow_unneeded=true" in text and text.isprintable() for text in found] == [
        True
    ] * refused
    assert not plan_node(one, unneeded=True, allow_unproven=False).refusals


# ---- order


def orders(plans: list[RebootPlan], pace: str = "1") -> list[tuple[list[str], int, bool]]:
    return [([one.host for one in stage.steps], stage.at_once, stage.canary) for stage in order(plans, Pace(pace), "cp1")]


def test_what_was_left_then_a_canary_then_workers_then_control_plane_with_the_locks_host_last() -> None:
    plans = [plan(candidate(name, control_plane=True, signs=ASKS)) for name in ("cp1", "cp2", "cp3")]
    plans += [plan(candidate(name, signs=ASKS)) for name in ("w1", "w2", "w3", "w4")]
    plans += [
        plan(candidate("w5", mark=Mark(RUN, "reboot", NEW).text())),
        plan(candidate("w6")),
        plan(candidate("w7", mark=Mark(RUN, "reboot", OLD).text())),
    ]
    workers = [(["w5"], 1, False), (["w7"], 1, False), (["w1"], 1, True)]
    assert orders(plans, "50%") == [*workers, (["w2", "w3", "w4"], 2, False), (["cp2"], 1, False), (["cp3"], 1, False), (["cp1"], 1, False)]
    assert orders(plans[:1]) == [(["cp1"], 1, False)] and orders([plan(candidate("w6"))]) == []


@pytest.mark.parametrize("old", [False, True])
def test_nodes_that_earlier_runs_left_cordoned_are_back_when_others_are_drained(old: bool) -> None:
    """The mark decides whose the cordon is: a drain may have cordoned the node before. `old`: as versions of daytwo before marked it."""
    plans = []
    for name, (manager, keep) in {
        "left": ("daytwo", ""),
        "kept": ("daytwo", "r2"),
        "theirs": ("kubectl-cordon", ""),
        "free": ("", ""),
    }.items():
        item = cordoned(name, manager=manager)
        before = {REBOOT: json.dumps({"run": RUN, "boot": NEW, "keep": bool(keep)}), CORDONED_BY: keep or RUN}
        item["metadata"]["annotations"] = before if old else {OUTAGE: Mark(RUN, "reboot", NEW, keep).text()}
        plans.append(plan(replace(candidate(name), node=item)))
        assert read_mark(item) == Mark(RUN, "reboot", NEW, keep)
    assert brought_back([*plans, plan(candidate("other", signs=ASKS))]) == {"left"}
    assert [one.name for one in plans if one.cordon.cordon == "theirs"] == ["kept", "theirs"]


def test_a_reboot_that_another_one_took_over_without_its_cordon() -> None:
    """As versions of daytwo before marked it."""
    item = cordoned("w1", manager="daytwo")
    item["metadata"]["annotations"] = {REBOOT: json.dumps({"run": "r1", "boot": NEW, "of": RUN}), CORDONED_BY: RUN}
    assert read_mark(item) == Mark("r1", "reboot", NEW) and plan(replace(candidate("w1"), node=item)).cordon.cordon == "ours"


# ---- proof


def pod(
    name: str, *, ready: bool = True, daemon: str = "", static: bool = False, started: str = "1970-01-01T00:03:20Z", ending: bool = False
) -> dict[str, Any]:
    annotations = {"kubernetes.io/config.mirror": "x"} if static else {}
    status = {"containerStatuses": [{"state": {"running": {"startedAt": started}}}]}
    owner = workload("DaemonSet", daemon) if daemon else None
    return any_pod(name, owner, ready=ready, ending=ending, status=status, annotations=annotations)


def missing(expected: Expected, *pods: dict[str, Any]) -> list[str]:
    return unready_pods(expected, pods, 150.0)


def test_the_pods_that_must_be_back() -> None:
    expected = expected_pods([pod("api", static=True), pod("proxy-1", daemon="d1"), pod("bad", daemon="d2", ready=False), pod("app")])
    assert expected.static == {"shop/api"} and set(expected.daemons or ()) == {"uid-DaemonSet-d1"}
    assert missing(expected, pod("api", static=True), pod("proxy-2", daemon="d1")) == []
    # A status from before the boot, which the kubelet has not written again yet, proves nothing.
    assert missing(expected, pod("api", static=True, started="1970-01-01T00:01:40Z"), pod("proxy-1", daemon="d1")) == [
        "shop/api is not Ready"
    ]
    assert missing(expected, pod("api", static=True, ready=False)) == ["shop/api is not Ready", "shop/proxy-1 is not Ready"]
    assert missing(expected, pod("api", static=True), pod("proxy-1", daemon="d1", ending=True)) == ["shop/proxy-1 is not Ready"]


def test_without_a_look_before_all_that_is_there_must_be_ready() -> None:
    unknown = Expected(known=False)
    assert missing(unknown, pod("api", static=True), pod("p", daemon="d", ready=False), pod("app", ready=False)) == ["shop/p is not Ready"]
    assert missing(unknown, pod("api", static=True)) == []


@pytest.mark.parametrize(
    ("before", "now", "others", "bad"),
    [
        (0.0, 0.4, {}, False),
        (300.0, 301.0, {}, False),  # the operator's own clock is off
        (0.0, -3600.0, {}, True),
        (None, 3.0, {}, False),
        (None, 30.0, {}, True),
        (300.0, 301.0, {"cp2": 300.5}, False),
        (0.0, 0.0, {"cp2": 60.0}, True),
        (300.0, 0.0, {"cp2": 0.1}, False),  # it was wrong before, and is right now
    ],
)
def test_the_clock(before: float | None, now: float, others: dict[str, float], bad: bool) -> None:
    assert bool(clock_problem(before, now, others)) == bad
