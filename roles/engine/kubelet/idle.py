"""Fields that a kubelet accepts, shows in /configz, and does not use: another field, a gate or the node is in the way. Pure.

Those that its validation refuses are not here. Graceful shutdown without a lock of logind is in roles/kubelet_config/shutdown.py, and
LimitedSwap without swap in swap.py: they need more than the configuration.

Sources (Kubernetes 1.32 to 1.36): pkg/kubelet/server/server.go (NewServer, InstallProfilingHandler), cmd/kubelet/app/server.go
(InitializeTLS), cmd/kubelet/app/auth.go (BuildAuthn, BuildAuthz), pkg/kubelet/config (NewSourceURL, NewSourceFile),
pkg/kubelet/cm/{cpumanager,memorymanager,topologymanager}, pkg/kubelet/kuberuntime (kuberuntime_container_linux.go, MemoryQoS),
pkg/kubelet/images/puller.go, k8s.io/component-base/logs/api/v1/types.go, k8s.io/component-base/tracing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from roles.engine.kubelet.values import in_effect, lookup

Configuration = Mapping[str, Any]


@dataclass(frozen=True)
class Idle:
    """`fields`: a pattern for their whole names; `when`: whether they have no effect with this configuration, and on a node with cgroup v2
    or not (None: not known); `why`: why not, for people."""

    fields: str
    when: Callable[[Configuration, bool | None], bool]
    why: str


def _is(name: str, *values: Any) -> Callable[[Configuration, bool | None], bool]:
    """One of these values, which /configz may leave out if it is empty."""
    return lambda after, _: any(in_effect(value, lookup(after, name)) for value in values)


def _off(gate: str) -> Callable[[Configuration, bool | None], bool]:
    """A gate that is off by default in all minors."""
    return lambda after, _: (after.get("featureGates") or {}).get(gate) is not True


_NO_POLICY = "without a policy of the topology manager it means nothing"
IDLE: Final = (
    Idle(
        "enableSystemLogHandler|enableSystemLogQuery|enableProfilingHandler|enableDebugFlagsHandler|enableContentionProfiling",
        lambda after, _: after.get("enableDebuggingHandlers") is False,
        "enableDebuggingHandlers is false, and turns off all of them",
    ),
    Idle("enableContentionProfiling", lambda after, _: after.get("enableProfilingHandler") is False, "enableProfilingHandler is false"),
    Idle("tlsCipherSuites", _is("tlsMinVersion", "VersionTLS13"), "the ciphers of TLS 1.3 cannot be chosen (tlsMinVersion)"),
    Idle("topologyManagerScope|topologyManagerPolicyOptions", _is("topologyManagerPolicy", None, "none"), _NO_POLICY),
    Idle("reservedMemory", _is("memoryManagerPolicy", None, "None"), "memoryManagerPolicy None does not use it"),
    Idle("cpuManagerReconcilePeriod", _is("cpuManagerPolicy", None, "none"), "cpuManagerPolicy none has nothing to reconcile"),
    Idle("cpuCFSQuotaPeriod", lambda after, _: after.get("cpuCFSQuota") is False, "cpuCFSQuota is false"),
    Idle("memoryThrottlingFactor|memoryReservationPolicy", _off("MemoryQoS"), "the gate MemoryQoS is off"),
    Idle("memoryThrottlingFactor|memoryReservationPolicy", lambda _, cgroup2: cgroup2 is False, "the node has cgroup v1"),
    Idle("staticPodURLHeader|httpCheckFrequency", _is("staticPodURL", None, ""), "no staticPodURL is set"),
    Idle("fileCheckFrequency", _is("staticPodPath", None, ""), "no staticPodPath is set"),
    Idle(
        r"authentication\.webhook\.cacheTTL",
        lambda after, _: lookup(after, "authentication.webhook.enabled") is False,
        "authentication.webhook.enabled is false",
    ),
    Idle(r"authorization\.webhook\..*", _is("authorization.mode", "AlwaysAllow"), "authorization.mode is AlwaysAllow"),
    Idle("registryBurst", lambda after, _: after.get("registryPullQPS") == 0, "registryPullQPS is 0: pulls are not limited"),
    Idle("eventBurst", lambda after, _: after.get("eventRecordQPS") == 0, "eventRecordQPS is 0: events are not limited"),
    Idle(r"logging\.options\.json\..*", lambda after, _: lookup(after, "logging.format") != "json", "logging.format is not json"),
    Idle(r"logging\.options\.text\..*", _is("logging.format", "json"), "logging.format is json"),
    Idle(r"tracing\.endpoint", _is("tracing.samplingRatePerMillion", None, 0), "tracing.samplingRatePerMillion is 0: no span is sent"),
    Idle(
        "systemReservedCgroup",
        lambda after, _: not _enforced(after, "system-reserved"),
        "enforceNodeAllocatable does not have system-reserved",
    ),
    Idle(
        "kubeReservedCgroup", lambda after, _: not _enforced(after, "kube-reserved"), "enforceNodeAllocatable does not have kube-reserved"
    ),
    Idle("evictionMaxPodGracePeriod|evictionSoftGracePeriod", _is("evictionSoft", None), "no soft threshold is set"),
)


def _enforced(after: Configuration, what: str) -> bool:
    return any(str(one).startswith(what) for one in after.get("enforceNodeAllocatable") or ())


def idle(after: Configuration, names: Iterable[str], cgroup2: bool | None = None) -> dict[str, str]:
    """Of some fields of a configuration (as /configz shows it): those without any effect, and why. `cgroup2`: the node has cgroup v2. A
    field that is not set has no effect to miss."""
    found: dict[str, str] = {}
    for name in names:
        if in_effect(None, lookup(after, name)):
            continue
        for row in IDLE:
            if re.fullmatch(row.fields, name) and row.when(after, cgroup2):
                found.setdefault(name, row.why)
    return found
