"""The rules about autoscalers, horizontal and vertical: docs/autoscaling.md has this table. Pure."""

from __future__ import annotations

from roles.engine.findings import Rule, Severity

_C, _W, _N = Severity


# fmt: off
class ScalingRule(Rule):
    """Critical: the autoscaler does nothing now. Warning: it works in part, or will stop. Note: it works otherwise than many expect."""

    NO_TARGET = ("no-target", _C, "the target, or its scale, is not there", "correct the target, or remove the autoscaler")
    NO_SELECTOR = ("no-selector", _C, "the target's scale has no selector, or one that cannot be read",
        "set status.selector of its scale (of a CRD: labelSelectorPath), or scale another workload")
    TWO_AUTOSCALERS = ("two-autoscalers", _C,
        "another autoscaler selects the same pods, or scales the same workload, which may have none now: the controller stops both",
        "keep one, with all metrics")
    FOREIGN_PODS = ("foreign-pods", _W,
        "the target's selector matches pods that it does not control, such as those of a Job: the controller counts them as its own",
        "[whose pods](#whose-pods-and-whose-autoscaler)")
    METRICS_API = ("metrics-api", _C, "the metrics API that a metric needs does not serve",
        "install metrics-server or an adapter; see its APIService")
    NO_METRIC = ("no-metric", _C, "the metrics API has no value of this metric", "check its name and selector, and the adapter")
    MISSING_REQUEST = ("missing-request", _C,
        "a container of a pod has no request, and the target is a percentage; one container is enough, sidecars too",
        "set the request, or measure one container, or use an amount")
    NO_CONTAINER = ("no-container", _C, "the container of a container metric is not in the pods", "name one that is")
    NO_SAMPLE = ("no-sample", _W, "pods without a sample; or no pod that counts: all are Pending, or not Ready since their start",
        "wait for two scrapes, see the kubelet, and see why pods are not Ready")
    NOT_HANDLED = ("not-handled", _C,
        "no controller has looked at it, or no controller looks at any now. Then nobody renews the lease of kube-controller-manager (by "
        "the API server's clock), or `--controllers` of its leader leaves this controller out, and the conditions are out of date. A note "
        "while it is new: the controller has two syncs to read it",
        "see kube-controller-manager; correct `--controllers`")
    NOT_JUDGED = ("not-judged", _W, "a value that daytwo cannot read, in the autoscaler or in what belongs to it; others are judged",
        "correct that value in the autoscaler, in its workload or in the status of its pods")
    DISABLED_AT_ZERO = ("disabled-at-zero", _W,
        "the workload has 0 replicas, which turns the autoscaler off; a note if somebody scales it to 0 on purpose",
        "scale it to 1, or see its owner")
    VERTICAL = ("vertical-autoscaler", _W, "a VerticalPodAutoscaler changes the request that the percentage is of",
        "mode `Off`, or other `controlledResources`")
    TWO_VERTICAL = ("two-vertical-autoscalers", _C, "two VerticalPodAutoscalers are for the same pods: only the oldest counts", "keep one")
    NO_RECOMMENDATION = ("no-recommendation", _C, "a VerticalPodAutoscaler has no recommendation: no recommender, no metrics, or no pods",
        "see the recommender's log, and `kubectl top pods`")
    UPDATER_WAITS = ("updater-waits", _W,
        "the updater would change a pod, and does not: too few pods, no admission controller, a resize that the kubelet has not finished",
        "lower `min_replicas`, or see the admission controller or the pod")
    NO_IN_PLACE = ("no-in-place", _C, "mode `InPlaceOrRecreate` on a cluster before 1.33; or a resize restarts a container (a note)",
        "another mode, or upgrade; `resizePolicy`")
    FIXED = ("fixed", _W, "`min` and `max` are equal", "raise maxReplicas, or remove it")
    REPLICAS_OWNER = ("replicas-owner", _W, "somebody's apply sets `replicas`, or would set it to 1",
        "[who sets replicas](#who-sets-replicas)")
    QUOTA = ("quota", _W,
        "a ResourceQuota ends before `max`, or wants a request that a container does not have. Pods count as they are created: with "
        "defaults of LimitRanges, and limits as requests",
        "raise the quota, or lower maxReplicas")
    LIMIT_RANGE = ("limit-range", _W, "a LimitRange refuses new pods, or those that the bounds of a vertical one lead to",
        "correct the template's resources, or the LimitRange")
    NO_ROOM = ("no-room", _W,
        "the nodes have no room for `max` pods, counting pods that already wait for a node (simulated, with up to 60 more pods and "
        "without volumes)",
        "lower maxReplicas, add nodes, or request less")
    NO_NODE = ("no-node", _W, "pods that the scheduler finds no node for, with what it says",
        "see the pod; more nodes, a lower `max`, smaller requests")
    MEMORY = ("memory", _N, "a memory target: most programs never give memory back, so the count goes up and stays up",
        "use it only for programs whose memory follows their load; watch that the average falls after a scale-up")
    AT_MAXIMUM = ("at-maximum", _N, "the metrics ask for more than `max`",
        "raise maxReplicas if nodes and quotas have room, or give each pod more")
    STARTS_SLOWLY = ("starts-slowly", _N, "pods that do not count yet, since they started",
        "they count as idle when scaling up; see the pod, or set `--horizontal-pod-autoscaler-cpu-initialization-period`")


#: Rules whose way out is an edit of the autoscaler.
IN_THE_AUTOSCALER = frozenset((
    ScalingRule.NO_TARGET, ScalingRule.TWO_AUTOSCALERS, ScalingRule.NO_METRIC, ScalingRule.NO_CONTAINER, ScalingRule.FIXED,
    ScalingRule.QUOTA, ScalingRule.NO_ROOM, ScalingRule.NO_NODE, ScalingRule.MEMORY, ScalingRule.AT_MAXIMUM,
))
# fmt: on
