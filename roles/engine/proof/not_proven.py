"""Settings whose effect has a sign that the proof does not read: the row of a change says that it is NOT PROVEN. signs.py has the signs
that it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from roles.engine.named_paths import API_SERVER, KUBELET, MANAGER, SCHEDULER
from roles.engine.proof.signs import OfSetting, signs_of

_ALL: Final = (API_SERVER, MANAGER, SCHEDULER)
_KUBELET: Final = (KUBELET,)
_API: Final = (API_SERVER,)


@dataclass(frozen=True)
class NotProven(OfSetting):
    """A setting whose effect has a sign that the proof does not read: `what` is not proven."""

    what: str


_LATER = "that a new container gets it; those that run keep the old value"
NOT_PROVEN: Final = (
    NotProven(_KUBELET, "podPidsLimit|seccompDefault|cpuCFSQuota|cpuCFSQuotaPeriod|singleProcessOOMKill", _LATER),
    NotProven(_KUBELET, "clusterDNS|clusterDomain|resolvConf", "that a new pod gets it in its /etc/resolv.conf"),
    NotProven(_KUBELET, r"memorySwap\.swapBehavior|memoryThrottlingFactor|memoryReservationPolicy|defaultPodSysctls", _LATER),
    NotProven(_KUBELET, "containerLogMaxSize|containerLogMaxFiles|containerLogMaxWorkers", "that logs are rotated so: none is looked at"),
    NotProven(
        _KUBELET, "imageGCHighThresholdPercent|imageGCLowThresholdPercent|imageMinimumGCAge|imageMaximumGCAge",
        "that images are removed so: the kubelet looks every 5 minutes",
    ),
    NotProven(
        _KUBELET, "evictionSoft|evictionSoftGracePeriod|evictionMinimumReclaim|evictionMaxPodGracePeriod|evictionPressureTransitionPeriod",
        "that pods are evicted so: the node is not under pressure",
    ),
    NotProven(_KUBELET, "registerNode|registerWithTaints|providerID", "any effect: this node is registered already"),
    NotProven(
        _KUBELET, "topologyManagerPolicy|topologyManagerScope|topologyManagerPolicyOptions|reservedMemory|cpuManagerPolicyOptions",
        "which CPUs and memory a new pod gets",
    ),
    NotProven(
        _KUBELET, "makeIPTablesUtilChains|iptablesMasqueradeBit|iptablesDropBit|hairpinMode", "the rules of the node's packet filter"
    ),
    NotProven(_KUBELET, "allowedUnsafeSysctls", "that a pod with such a sysctl is admitted"),
    NotProven(
        _KUBELET, "imagePullCredentialsVerificationPolicy|preloadedImagesVerificationAllowlist|registryPullQPS|registryBurst",
        "how an image is pulled: none is pulled",
    ),
    NotProven(_KUBELET, "serializeImagePulls|maxParallelImagePulls", "how many images are pulled at a time: none is pulled"),
    NotProven(_KUBELET, r"crashLoopBackOff\.maxContainerRestartPeriod", "the pause before a failing container starts again"),
    NotProven(_KUBELET, r"tracing\.(?:endpoint|samplingRatePerMillion)", "that the collector gets spans"),
    NotProven(
        _KUBELET, "enableSystemLogQuery|enableDebugFlagsHandler|enableContentionProfiling", "that the kubelet answers such a request"
    ),
    NotProven(_KUBELET, "tlsCipherSuites|tlsCurvePreferences", "which ciphers and curves a handshake gets"),
    NotProven(_API, "encryption-provider-config.*", "that Secrets are encrypted in etcd: that would take a write"),
    NotProven(_API, "event-ttl", "when events are deleted"),
    NotProven(_API, "authorization-.*|authentication-.*|oidc-.*|token-auth-file|client-ca-file", "who is let in now, and who may do what"),
    NotProven(_API, "requestheader-.*|proxy-client-.*|enable-aggregator-routing", "that aggregated APIs are reached"),
    NotProven(_API, "kubelet-.*|egress-selector-config-file", "that it reaches the kubelets of other nodes"),
    NotProven(
        _API, "service-account-(?:key-file|signing-key-file|signing-endpoint|max-token-expiration)|api-audiences",
        "that a token is accepted",
    ),
    NotProven(_API, "max-.*requests-inflight|enable-priority-and-fairness|request-timeout|min-request-timeout", "how it acts under load"),
    NotProven(
        _API, "admission-control-config-file|tracing-config-file|audit-policy-file|audit-(?:log|webhook)-.+", "what its content does"
    ),
    NotProven(_API, "etcd-.*|storage-.*|watch-cache.*|default-watch-cache-size", "how it uses etcd, except that it is ready (/readyz)"),
    NotProven(
        _API, "advertise-address|external-hostname|service-node-port-range|service-cluster-ip-range", "what clients and Services get"
    ),
    NotProven((MANAGER,), "cluster-signing-.*|root-ca-file|service-account-private-key-file", "what it signs and tells pods"),
    NotProven((MANAGER,), "controllers|node-.*|terminated-pod-gc-threshold|horizontal-pod-.*|pv.*", "what its controllers do with it"),
    NotProven((SCHEDULER,), "config|leader-elect.*|profiling", "how it places pods, and that it can lead"),
    NotProven(_ALL, "tls-cipher-suites|tls-curve-preferences|tls-sni-cert-key", "what a handshake gets"),
)  # fmt: skip


def not_proven(program: str, names: Sequence[str] | Mapping[str, Any]) -> list[str]:
    """What is not proven of some settings, each as `NAMES: what`."""
    found: dict[str, list[str]] = {}
    for name in names:
        if not signs_of(program, [name]) and (row := next((one for one in NOT_PROVEN if one.concerns(program, name)), None)):
            found.setdefault(row.what, []).append(name)
    return [f"{', '.join(those)}: {what}" for what, those in found.items()]
