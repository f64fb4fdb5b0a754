"""The rules about budgets, and about pods in a drain: docs/disruption.md has this table. Pure."""

from __future__ import annotations

from roles.engine.findings import Rule, Severity

DEPLOY = "deploys/disruption_budgets.py"
_C, _W, _N = Severity


# fmt: off
class DisruptionRule(Rule):
    """Critical: a deadlock that cannot resolve by itself."""

    ALLOWS_NONE = ("allows-none", _C, "`maxUnavailable` 0 or 0%, `minAvailable` 100%, or neither of both",
        "set max_unavailable to 1, so that one pod at a time may be away, or remove the budget, so that nothing limits how many are "
        f"({DEPLOY})")
    NEEDS_ALL = ("needs-all", _C, "`minAvailable` is as many as the pods that there can be; a percentage that rounds up to all",
        "more replicas, or `max_unavailable` 1: one pod fewer is protected. Without a scale: a lower `min_available`")
    AUTOSCALER_MINIMUM = ("needs-autoscaler-minimum", _W, "as above, once an autoscaler is at its `minReplicas`",
        "a higher `minReplicas`, or `max_unavailable` 1: one pod fewer is protected")
    TWO_BUDGETS = ("two-budgets", _C, "pods with more than one budget", "keep one")
    SELECTS_NOTHING = ("selects-nothing", _W, "the selector matches no pod",
        f"correct the selector, or name the workload ({DEPLOY}); remove the budget if its workload is gone")
    SELECTS_EVERYTHING = ("selects-everything", _W, "the selector is `{}`, which is the whole namespace",
        f"one budget for each workload ({DEPLOY})")
    FOREIGN_PODS = ("foreign-pods", _W,
        "a budget of a workload also selects pods that this workload does not control, such as those of a Job",
        "give these pods other labels, or the budget a narrower selector")
    NO_SCALE = ("no-scale", _W, "pods of a Job, a DaemonSet, or without a controller, where the budget counts by scales",
        "a narrower selector, or `min_available` as a number")
    NOT_COMPUTED = ("not-computed", _W,
        "a status that is older than the spec, or has not matched the pods for more than a minute. Condition SyncFailed, or evictions "
        "stuck in `disruptedPods`",
        "check kube-controller-manager: its log, and whether its leader runs")
    NONE_LEFT = ("none-left", _W, "it allows no eviction now: which pods are not Ready, missing or ending",
        "wait for these pods or fix them; a drain waits too")
    UNHEALTHY_DEADLOCK = ("unhealthy-deadlock", _C, "failing pods keep the budget from being met, and may not be evicted",
        f"set unhealthy_pod_eviction_policy to AlwaysAllow ({DEPLOY}), and fix the pods")
    WAVES = ("waves", _N,
        "a node has more of its pods than it lets go at a time: a drain takes longer; with `they fit on the other nodes` if they do",
        "spread the pods over more nodes (topologySpreadConstraints), or raise max_unavailable: more of them are away at once then")
    NO_NODE_LEFT = ("no-node-left", _W, "one pod per node (required anti-affinity), and as many replicas as nodes",
        "make the anti-affinity preferred, add a node, or run fewer replicas; drain only one of these nodes at a time")
    NO_PLACE = ("no-place", _W,
        "with one node cordoned, its pods of the budget fit on no other node: which one, and why. A note if daytwo is not sure",
        "make room on the other nodes, or add one; deploys/drain.py --dry shows each pod")
    TIED_TO_NODE = ("tied-to-node", _W,
        "[volumes](#volumes): node-local ones (the replacement stays Pending), hostPath, volumes for one node; pods that share one of "
        "these, critical if their budget never lets all of them go",
        "a short drain, or move the data; one pod for each volume")
    UNPROTECTED = ("unprotected", _N, "more than one replica and no budget, all replicas on one node, or only one replica",
        "add a budget, spread the replicas, or run 2")
    SLOW_TO_END = ("slow-to-end", _W, "a grace period longer than a drain waits; a pod that should be gone, with its finalizers",
        "a longer `drain_timeout`; see the finalizer's controller")
    WEBHOOK_BACKEND = ("webhook-backend", _W, "a webhook that must answer (`failurePolicy: Fail`), with all its pods on one node",
        "run 2 replicas on different nodes, with a budget; or set failurePolicy to Ignore")
    COMES_BACK = ("comes-back", _W, "a pod that tolerates the taint of a cordon",
        "tolerate single taints by name, not all taints (operator Exists without a key)")
# fmt: on
