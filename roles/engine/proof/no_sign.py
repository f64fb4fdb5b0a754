"""Settings whose effect has no sign that the proof of a change could look at: plan and row of the change say so. Their values are proven
from the process, as all others. signs.py has the signs that a proof reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from roles.engine.named_paths import API_SERVER, KUBELET, MANAGER, SCHEDULER
from roles.engine.proof.signs import OfSetting, signs_of
from roles.engine.table import NO_SIGN

_ALL: Final = (API_SERVER, MANAGER, SCHEDULER)
_KUBELET: Final = (KUBELET,)
_API: Final = (API_SERVER,)


@dataclass(frozen=True)
class NoSign(OfSetting):
    """A setting whose effect shows later, or elsewhere, or takes a write: nothing shows `what`."""

    what: str


_LATER = "that a new container gets it; those that run keep the old value"
NO_SIGNS: Final = (
    NoSign(_KUBELET, "podPidsLimit|seccompDefault|cpuCFSQuota|cpuCFSQuotaPeriod|singleProcessOOMKill", _LATER),
    NoSign(_KUBELET, "clusterDNS|clusterDomain|resolvConf", "that a new pod gets it in its /etc/resolv.conf"),
    NoSign(_KUBELET, r"memorySwap\.swapBehavior|memoryThrottlingFactor|memoryReservationPolicy|defaultPodSysctls", _LATER),
    NoSign(_KUBELET, "containerLogMaxSize|containerLogMaxFiles|containerLogMaxWorkers", "that logs are rotated so: none is looked at"),
    NoSign(
        _KUBELET, "imageGCHighThresholdPercent|imageGCLowThresholdPercent|imageMinimumGCAge|imageMaximumGCAge",
        "that images are removed so: the kubelet looks every 5 minutes",
    ),
    NoSign(
        _KUBELET, "evictionSoft|evictionSoftGracePeriod|evictionMinimumReclaim|evictionMaxPodGracePeriod|evictionPressureTransitionPeriod",
        "that pods are evicted so: the node is not under pressure",
    ),
    NoSign(_KUBELET, "registerNode|registerWithTaints|providerID", "any effect: this node is registered already"),
    NoSign(
        _KUBELET, "topologyManagerPolicy|topologyManagerScope|topologyManagerPolicyOptions|reservedMemory|cpuManagerPolicyOptions",
        "which CPUs and memory a new pod gets",
    ),
    NoSign(
        _KUBELET, "makeIPTablesUtilChains|iptablesMasqueradeBit|iptablesDropBit|hairpinMode", "the rules of the node's packet filter"
    ),
    NoSign(_KUBELET, "allowedUnsafeSysctls", "that a pod with such a sysctl is admitted"),
    NoSign(
        _KUBELET, "imagePullCredentialsVerificationPolicy|preloadedImagesVerificationAllowlist|registryPullQPS|registryBurst",
        "how an image is pulled: none is pulled",
    ),
    NoSign(_KUBELET, "serializeImagePulls|maxParallelImagePulls", "how many images are pulled at a time: none is pulled"),
    NoSign(_KUBELET, r"crashLoopBackOff\.maxContainerRestartPeriod", "the pause before a failing container starts again"),
    NoSign(_KUBELET, r"tracing\.(?:endpoint|samplingRatePerMillion)", "that the collector gets spans"),
    NoSign(
        _KUBELET, "enableSystemLogQuery|enableDebugFlagsHandler|enableContentionProfiling", "that the kubelet answers such a request"
    ),
    NoSign(_KUBELET, "tlsCipherSuites|tlsCurvePreferences", "which ciphers and curves a handshake gets"),
    NoSign(_API, "encryption-provider-config.*", "that Secrets are encrypted in etcd: that would take a write"),
    NoSign(_API, "event-ttl", "when events are deleted"),
    NoSign(_API, "authorization-.*|authentication-.*|oidc-.*|token-auth-file|client-ca-file", "who is let in now, and who may do what"),
    NoSign(_API, "kubelet-.*|egress-selector-config-file", "that it reaches the kubelets of other nodes"),
    NoSign(
        _API, "service-account-(?:key-file|signing-key-file|signing-endpoint|max-token-expiration)|api-audiences",
        "that a token is accepted",
    ),
    NoSign(_API, "max-.*requests-inflight|enable-priority-and-fairness|request-timeout|min-request-timeout", "how it acts under load"),
    NoSign(
        _API, "admission-control-config-file|tracing-config-file|audit-policy-file|audit-(?:log|webhook)-.+", "what its content does"
    ),
    NoSign(_API, "etcd-.*|storage-.*|watch-cache.*|default-watch-cache-size", "how it uses etcd, except that it is ready (/readyz)"),
    NoSign(
        _API, "advertise-address|external-hostname|service-node-port-range|service-cluster-ip-range", "what clients and Services get"
    ),
    NoSign((MANAGER,), "cluster-signing-.*|root-ca-file|service-account-private-key-file", "what it signs and tells pods"),
    NoSign((MANAGER,), "controllers|node-.*|terminated-pod-gc-threshold|horizontal-pod-.*|pv.*", "what its controllers do with it"),
    NoSign((SCHEDULER,), "config|leader-elect.*|profiling", "how it places pods, and that it can lead"),
    NoSign(_ALL, "tls-cipher-suites|tls-curve-preferences|tls-sni-cert-key", "what a handshake gets"),
)  # fmt: skip


def no_sign(what: str) -> str:
    """`what`: `that ...`, or what it would be a sign of."""
    return NO_SIGN + (what if what.startswith("that ") else f"of {what}")


def no_signs(program: str, names: Sequence[str] | Mapping[str, Any]) -> list[str]:
    """What nothing shows of some settings, each as `what (NAMES)`."""
    found: dict[str, list[str]] = {}
    for name in names:
        if not signs_of(program, [name]) and (row := next((one for one in NO_SIGNS if one.concerns(program, name)), None)):
            found.setdefault(row.what, []).append(name)
    return [f"{what} ({', '.join(those)})" for what, those in found.items()]
