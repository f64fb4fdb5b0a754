"""Graceful shutdown that a node's logind does not allow is refused, with the file that wins; fields without effect are named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from roles.engine.kubelet import KubeletState, idle
from roles.engine.kubelet.idle import IDLE
from roles.engine.node.logind import Logind
from roles.engine.transaction import Refusal
from roles.kubelet_config.shutdown import OVERRIDE
from tests.unit.kubelet_config.world import plan_fields, state

WANTED = {"shutdownGracePeriod": "120s", "shutdownGracePeriodCriticalPods": "20s"}
VENDOR = "/usr/lib/systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf"


def given(*files: tuple[str, int], bus: bool = True, unit: str = "yes", **running: Any) -> KubeletState:
    made = state(**running)
    logind = Logind(bus, unit, {path: ("[Login]", f"InhibitDelayMaxSec={seconds}") for path, seconds in files})
    return replace(made, kubelet=replace(made.kubelet, seen=replace(made.kubelet.seen, logind=logind)))


def test_a_drop_in_that_wins_over_the_kubelet_s_own() -> None:
    with pytest.raises(Refusal) as refused:
        plan_fields(given((VENDOR, 30)), WANTED)
    said = str(refused.value)
    assert f"{VENDOR}: InhibitDelayMaxSec=30 wins over the kubelet's own {OVERRIDE}" in said
    assert "write /etc/systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf with [Login] and InhibitDelayMaxSec=120" in said
    own = "/etc/systemd/logind.conf.d/zz.conf"
    with pytest.raises(Refusal, match=r"on the node write /etc/systemd/logind\.conf\.d/zz-zz\.conf"):
        plan_fields(given((own, 30)), WANTED)
    by_priority = {"shutdownGracePeriodByPodPriority": [{"priority": 0, "shutdownGracePeriodSeconds": 60}]}
    with pytest.raises(Refusal, match="shutdownGracePeriod 60 s"):
        plan_fields(given((VENDOR, 30)), by_priority)


@pytest.mark.parametrize(
    "files",
    [(), ((VENDOR, 120),), (("/usr/lib/systemd/logind.conf.d/10-x.conf", 30),), (("/etc/systemd/logind.conf", 3),), ((OVERRIDE, 30),)],
)
def test_what_the_kubelet_can_override_itself(files: tuple[tuple[str, int], ...]) -> None:
    made = plan_fields(given(*files), WANTED)
    assert made.planned[0].change is not None
    # The kubelet's own drop-in is not part of the change.
    assert any(f"itself writes {OVERRIDE} (InhibitDelayMaxSec=120)" in one for one in made.warnings) == (files != ((VENDOR, 120),))


def test_a_node_without_logind() -> None:
    with pytest.raises(Refusal, match="there is no D-Bus"):
        plan_fields(given(bus=False), WANTED)
    with pytest.raises(Refusal, match="is masked"):
        plan_fields(given(unit="masked"), WANTED)


def test_a_change_of_other_fields_and_turning_it_off() -> None:
    assert plan_fields(given((VENDOR, 30), **WANTED), {"containerLogMaxSize": "11Mi"}).planned[0].change is not None
    assert plan_fields(given((VENDOR, 30), **WANTED), {"shutdownGracePeriod": "0s", "shutdownGracePeriodCriticalPods": "0s"}).planned


# ---- fields without effect


@pytest.mark.parametrize(
    ("configuration", "name", "cgroup2", "idle_now"),
    [
        ({"tlsCipherSuites": ["x"], "tlsMinVersion": "VersionTLS13"}, "tlsCipherSuites", True, True),
        ({"tlsCipherSuites": ["x"]}, "tlsCipherSuites", True, False),
        ({"memoryThrottlingFactor": 0.8}, "memoryThrottlingFactor", True, True),
        ({"memoryThrottlingFactor": 0.8, "featureGates": {"MemoryQoS": True}}, "memoryThrottlingFactor", True, False),
        ({"memoryThrottlingFactor": 0.8, "featureGates": {"MemoryQoS": True}}, "memoryThrottlingFactor", False, True),
        ({"topologyManagerScope": "pod"}, "topologyManagerScope", None, True),
        ({"topologyManagerScope": "pod", "topologyManagerPolicy": "restricted"}, "topologyManagerScope", None, False),
        ({"enableProfilingHandler": True, "enableDebuggingHandlers": False}, "enableProfilingHandler", None, True),
        ({"logging": {"format": "text", "options": {"json": {"splitStream": True}}}}, "logging.options.json.splitStream", None, True),
        ({"registryBurst": 5, "registryPullQPS": 0}, "registryBurst", None, True),
        ({"registryPullQPS": 0}, "registryBurst", None, False),
    ],
)
def test_fields_without_effect(configuration: dict[str, Any], name: str, cgroup2: bool | None, idle_now: bool) -> None:
    assert bool(idle(configuration, [name], cgroup2)) == idle_now


def test_the_plan_says_that_a_field_will_have_no_effect() -> None:
    (warning,) = plan_fields(given(), {"memoryThrottlingFactor": 0.8}).warnings
    assert warning == "memoryThrottlingFactor: the kubelet will accept it, and it has no effect: the gate MemoryQoS is off"
    assert all(row.why for row in IDLE)
