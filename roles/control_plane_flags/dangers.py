"""Flags whose change can break a cluster or open it, each with what it can do; and flags that all API servers must share. Pure.

Such a change needs consent by the flag's name. Sources: the --help of each component; kubernetes.io/docs/reference/access-authn-authz.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from roles.engine.control_plane import COMPONENTS
from roles.engine.editing import FlagValues
from roles.engine.kube.times import parse_duration

API_SERVER, CONTROLLER_MANAGER, SCHEDULER = COMPONENTS


@dataclass(frozen=True)
class Danger:
    """`flag`: a pattern for the whole name; `why`: what a change of it can do."""

    flag: str
    why: str
    components: tuple[str, ...] = COMPONENTS

    def concerns(self, component: str, name: str) -> bool:
        return component in self.components and re.fullmatch(self.flag, name) is not None


_API = (API_SERVER,)
DANGERS = (
    Danger(
        "anonymous-auth", "requests without credentials are then answered or refused: also those of health probes and of joining nodes",
        _API,
    ),
    Danger(
        "authorization-mode|authorization-config|authorization-webhook-.*",
        "it decides who may do what: with a wrong value everybody may do everything, or nobody anything", _API,
    ),
    Danger(
        "etcd-.*|storage-.*", "the API server then reads another store, another part of it or another form: the cluster's objects are gone",
        _API,
    ),
    Danger(
        "service-cluster-ip-range|service-node-port-range",
        "Services keep their old addresses and ports, which are then outside of the range, and DNS may lose its address",
    ),
    Danger(
        "cluster-cidr|node-cidr-mask-size.*|allocate-node-cidrs",
        "nodes keep their old ranges of pods, and new ones may get overlapping ranges",
    ),
    Danger("secure-port|bind-address", "everything that has its address loses it: kubelets, probes, kubeconfigs, daytwo's own proof"),
    Danger(
        "advertise-address|external-hostname|apiserver-count|endpoint-reconciler-type",
        "pods then reach the API at another address, or not at all", _API,
    ),
    Danger(
        "service-account-.*|api-audiences|service-account-private-key-file",
        "the tokens of all pods are signed and accepted by these: a wrong value makes every pod unable to use the API",
    ),
    Danger(
        "client-ca-file", "it decides whose client certificates count: a wrong one locks out kubelets and administrators, or lets others in"
    ),
    Danger("tls-.*|cert-dir", "clients that cannot use the new certificate, version or cipher lose the connection"),
    Danger(
        "encryption-provider-config.*",
        "Secrets in etcd are read and written with these keys: without the right ones they can no longer be read", _API,
    ),
    Danger(
        "authentication-.*|oidc-.*|token-auth-file|requestheader-.*|enable-bootstrap-token-auth|proxy-client-.*|authorization-always-allow-paths",
        "it decides who is who: others may get in, or everybody may be locked out",
    ),
    Danger("leader-elect.*|coordinated-leadership-.*", "without one leader two of them work at the same time, on the same objects"),
    Danger("kubeconfig|authentication-kubeconfig|authorization-kubeconfig|master", "it works with another identity, or on another cluster"),
    Danger("cluster-signing-.*|root-ca-file", "it signs the certificates of nodes, or tells pods whom to trust", (CONTROLLER_MANAGER,)),
    Danger(
        "controllers", "a controller that is off leaves its objects alone: nodes, garbage or endpoints are no longer looked after",
        (CONTROLLER_MANAGER,),
    ),
    Danger(
        "use-service-account-credentials",
        "with it each controller has its own rights; without it only those of kube-controller-manager itself: nearly all stop",
        (CONTROLLER_MANAGER,),
    ),
    Danger(
        "kubelet-client-.*|kubelet-certificate-authority|kubelet-https|kubelet-preferred-address-types|egress-selector-config-file",
        "logs, exec and metrics of all nodes go this way, and with an egress selector webhooks too", _API,
    ),
    Danger("audit-(log|webhook)-mode", "with blocking-strict the API refuses each request whose audit event cannot be written", _API),
    Danger("admission-control.*", "it changes what the API accepts, for everybody", _API),
    Danger("allow-privileged", "without it the API refuses privileged pods, such as those of the network", _API),
    Danger("runtime-config", "an API that is off is gone for everybody who uses it", _API),
    Danger("profiling-path|debug-socket-path|contention-profiling", "it shows internals of the process to whoever may ask"),
)  # fmt: skip


@dataclass(frozen=True)
class Limit:
    """A flag with a number that is dangerous in one direction: `above` its value now, or below it. `default`: that of Kubernetes, for a
    flag that is not set. `fine`: a value up to which none is dangerous; "": there is none."""

    flag: str
    default: str
    why: str
    component: str
    above: bool = False
    fine: str = ""

    def passed(self, before: FlagValues, after: FlagValues) -> bool:
        """True also for a value that daytwo cannot read."""
        old, new = (_number(values[-1] if values else self.default) for values in (before, after))
        return new is None or (old is not None and self._worse(new, old) and self._worse(new, _number(self.fine)))

    def _worse(self, one: float, other: float | None) -> bool:
        return other is None or (one > other if self.above else one < other)


LIMITS = (
    Limit(
        "node-monitor-grace-period",
        "50s",
        "nodes whose kubelets have not reported for so long get NoExecute taints, and lose their pods 5 minutes later: with less than some "
        "renewals of their leases, all nodes do",
        CONTROLLER_MANAGER,
    ),
    Limit(
        "node-eviction-rate", "0.1", "so many nodes a second, which do not report, may lose all their pods", CONTROLLER_MANAGER, above=True
    ),
    Limit(
        "secondary-node-eviction-rate", "0.01",
        "so many nodes a second may lose all their pods while most of a zone does not report: then the network is the cause, not the nodes",
        CONTROLLER_MANAGER, above=True,
    ),
    Limit(
        "unhealthy-zone-threshold", "0.55", "evictions are slowed down, or stop, only once so large a share of a zone does not report",
        CONTROLLER_MANAGER, above=True,
    ),
    Limit(
        "large-cluster-size-threshold", "50",
        "while most of a zone does not report, evictions stop only in clusters of at most so many nodes", CONTROLLER_MANAGER,
    ),
    Limit(
        "max-requests-inflight", "400",
        "the API answers fewer requests at a time: if these are too few, kubelets do not report in time, and their pods are evicted",
        API_SERVER,
    ),
    Limit(
        "max-mutating-requests-inflight", "200",
        "the API answers fewer requests at a time: if these are too few, kubelets do not report in time, and their pods are evicted",
        API_SERVER,
    ),
    Limit(
        "default-not-ready-toleration-seconds", "300",
        "each pod that is created from now on is evicted so soon after its node is not Ready: a restart may then move all pods", API_SERVER,
    ),
    Limit(
        "default-unreachable-toleration-seconds",
        "300",
        "each pod that is created from now on is evicted so soon after its node does not report: a short fault of the network may move all "
        "pods",
        API_SERVER,
    ),
    *(
        Limit(flag, default, "it then asks the API so rarely that its work takes hours, or never ends", component, fine=fine)
        for component, flag, default, fine in (
            (CONTROLLER_MANAGER, "kube-api-qps", "20", "10"),
            (CONTROLLER_MANAGER, "kube-api-burst", "30", "15"),
            (SCHEDULER, "kube-api-qps", "50", "25"),
            (SCHEDULER, "kube-api-burst", "100", "50"),
        )
    ),
    Limit(
        "node-monitor-period", "5s", "it then checks so rarely which nodes are lost that nothing replaces their pods", CONTROLLER_MANAGER,
        True, "30s",
    ),
    *(
        Limit(f"horizontal-pod-autoscaler-{flag}", default, "autoscalers may then never scale", CONTROLLER_MANAGER, True, fine)
        for flag, default, fine in (
            ("sync-period", "15s", "2m"),
            ("tolerance", "0.1", "0.5"),
            ("downscale-stabilization", "5m", "1h"),
            ("cpu-initialization-period", "5m", "1h"),
            ("initial-readiness-delay", "30s", "10m"),
        )
    ),
    Limit("event-ttl", "1h", "events fill etcd, whose database has a limit: when it is full, nobody can write", API_SERVER, True, "24h"),
    # client-go, transport/round_trippers.go: from 8 on it logs the bodies of requests and answers.
    *(
        Limit("v", "0", "it then logs the bodies of requests and answers, Secrets too, for whoever can read its log", component, True, "7")
        for component in (API_SERVER, CONTROLLER_MANAGER, SCHEDULER)
    ),
)  # fmt: skip
_PLUGINS = ("enable-admission-plugins", "disable-admission-plugins")
#: Plugins that refuse nothing which a usual cluster accepts: those that are on by default (pkg/kubeapiserver/options/plugins.go,
#: DefaultOffAdmissionPlugins), kubeadm's own, and one that only pulls images again. Any other one needs consent: AlwaysDeny, for example.
USUAL_PLUGINS = frozenset(
    [
        "CertificateApproval", "CertificateSigning", "CertificateSubjectRestriction", "ClusterTrustBundleAttest", "DefaultIngressClass",
        "DefaultStorageClass", "DefaultTolerationSeconds", "LimitRanger", "MutatingAdmissionPolicy", "MutatingAdmissionWebhook",
        "NamespaceLifecycle", "PersistentVolumeClaimResize", "PodSecurity", "PodTopologyLabels", "Priority", "ResourceQuota",
        "RuntimeClass", "ServiceAccount", "StorageObjectInUseProtection", "TaintNodesByCondition", "ValidatingAdmissionPolicy",
        "ValidatingAdmissionWebhook", "NodeRestriction",
    ]
)  # fmt: skip
_PULLS = "AlwaysPullImages"
#: Flags whose change harms nobody who uses the cluster, as long as the component is well, which each change proves. Any flag that is in no
#: table needs consent: also one of a later version.
HARMLESS = re.compile(
    r"v|logging-format|log-.*|text-.*|json-.*|profiling|tracing-config-file|event-ttl|enable-aggregator-routing|config"
    r"|audit-policy-file|audit-log-(?!mode).*|audit-webhook-(?!mode).*|horizontal-pod-autoscaler-.*|kube-api-(?:qps|burst)"
    r"|show-hidden-metrics-for-version|disabled-metrics|allow-metric-labels.*|node-monitor-period"
)
_NOT_KNOWN = (
    "daytwo knows no rule that says that this is harmless: a wrong value can stop what everybody needs, while the component is well"
)
#: API servers answer in turn: with different values of these, a cluster gives two answers.
MUST_BE_EQUAL = re.compile(
    r"(?:enable|disable)-admission-plugins|admission-control-config-file|authorization-.*|authentication-.*|anonymous-auth|oidc-.*"
    r"|client-ca-file|requestheader-.*|service-account-.*|api-audiences|service-cluster-ip-range|service-node-port-range|runtime-config"
    r"|storage-.*|etcd-prefix|etcd-servers-overrides|encryption-provider-config|token-auth-file|allow-privileged|event-ttl"
    r"|default-(?:not-ready|unreachable)-toleration-seconds|enable-bootstrap-token-auth|enable-aggregator-routing|max-.*requests-inflight"
)
#: Flags that name a file without secrets: policies, settings, certificates. The content of any other file is secret: keys, tokens,
#: kubeconfigs, and what a flag of a later version names.
NAMES_PUBLIC = re.compile(
    r"audit-policy-file|admission-control-config-file|authentication-config|authorization-config|authorization-policy-file|config"
    r"|tracing-config-file|(?:.*-)?ca-file|etcd-cafile|root-ca-file|kubelet-certificate-authority|(?:.*-)?cert-?file"
    r"|kubelet-client-certificate"
)


def danger(component: str, name: str, before: FlagValues, after: FlagValues) -> str | None:
    """What the change of a flag can do; None if it needs no consent."""
    if name in _PLUGINS:
        return _plugins_off(name, before, after)
    limit = next((one for one in LIMITS if (one.component, one.flag) == (component, name)), None)
    if limit is not None:
        return limit.why if limit.passed(before, after) else None
    why = next((one.why for one in DANGERS if one.concerns(component, name)), None)
    return why if why is not None or HARMLESS.fullmatch(name) else _NOT_KNOWN


def _number(text: str) -> float | None:
    """A number, or a duration in seconds; None for neither."""
    with contextlib.suppress(ValueError):
        return None if math.isnan(found := float(text)) else found
    with contextlib.suppress(ValueError, OverflowError):
        return float(parse_duration(text))
    return None


def _plugins_off(name: str, before: FlagValues, after: FlagValues) -> str | None:
    old, new = _items(before), _items(after)
    off = sorted(new - old) if name.startswith("disable") else sorted(old - new)
    if off:
        return f"it turns off {', '.join(off)}: what these refuse or set is then accepted as it is, from everybody"
    on = sorted((old - new if name.startswith("disable") else new - old) - USUAL_PLUGINS)
    if on == [_PULLS]:
        return f"with {_PULLS} every pod from now on pulls its images: none starts whose registry does not answer, or has no such image"
    return f"it turns on {', '.join(on)}: the API may then refuse, or change, what it accepted before, from everybody" if on else None


def _items(values: Sequence[str] | None) -> set[str]:
    return {item.strip() for value in values or () for item in value.split(",") if item.strip()}
