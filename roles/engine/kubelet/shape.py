"""The shape of a KubeletConfiguration (k8s.io/kubelet/config/v1beta1/types.go), as far as daytwo reads it: in files, and at /configz.

A kubelet does not start with a value of another type. Whoever is root on a node may write one all the same, and make a kubelet say it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from roles.engine.kube.amounts import parse_quantity
from roles.engine.kube.times import parse_duration
from roles.engine.kubelet.thresholds import parse_reclaim, parse_threshold

#: For roles.engine.bounds.misshaped.
SHAPE: Mapping[str, Any] = {
    "featureGates": {"*": bool},
    **{key: {"*": partial(parse_threshold, "the threshold")} for key in ("evictionHard", "evictionSoft")},
    "evictionMinimumReclaim": {"*": partial(parse_reclaim, "the reclaim")},
    "evictionSoftGracePeriod": {"*": parse_duration},
    **{key: {"*": parse_quantity} for key in ("systemReserved", "kubeReserved")},
    **{key: {"*": str} for key in ("qosReserved", "cpuManagerPolicyOptions")},
    **dict.fromkeys(("maxPods", "podsPerCore", "port", "healthzPort"), int),
    **{key: [str] for key in ("enforceNodeAllocatable", "allowedUnsafeSysctls", "clusterDNS", "tlsCipherSuites")},
    **{key: {} for key in ("memorySwap", "logging", "crashLoopBackOff", "tracing")},
    "authentication": {"anonymous": {"enabled": bool}, "webhook": {"enabled": bool}, "x509": {}},
    "authorization": {"mode": str, "webhook": {}},
    **dict.fromkeys(("staticPodPath", "healthzBindAddress", "address", "resolvConf", "reservedSystemCPUs"), str),
    **dict.fromkeys(("containerRuntimeEndpoint", "tlsCertFile", "tlsPrivateKeyFile", "cpuManagerPolicy", "memoryManagerPolicy"), str),
    "registerWithTaints": [{}],
    "reservedMemory": [{"limits": {}}],
    "shutdownGracePeriodByPodPriority": [{"shutdownGracePeriodSeconds": int}],
}
