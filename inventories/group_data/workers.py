"""Values for the hosts of the group `workers`. A value here replaces the whole value in all.py."""

# Gates of these nodes only; control_plane.py has those of the control plane.
# feature_gates = {"HPAScaleToZero": False, "NodeSwap": "absent"}

# Eviction thresholds (docs/eviction.md). A signal that is not named keeps its value; "absent" restores the kubelet's default.
# eviction_hard = {"memory.available": "500Mi", "nodefs.available": "10%", "imagefs.available": "15%", "pid.available": "5%"}

# Soft thresholds: met before the hard ones, each with its grace period; evicted pods then have this many seconds to end.
# eviction_soft = {"memory.available": "1Gi"}
# eviction_soft_grace_period = {"memory.available": "1m30s"}
# eviction_max_pod_grace_period = 60

# How much more than the threshold must be free before eviction ends, and how long the node's pressure condition stays after that.
# eviction_minimum_reclaim = {"memory.available": "200Mi", "nodefs.available": "1Gi"}
# eviction_pressure_transition_period = "5m"

# Fields of the kubelet's configuration (docs/kubelet-config.md): nested as in its file, or with dotted names. A map is set as a whole; a
# dotted name sets one key of it.
# kubelet_config = {
#     "maxPods": 200,
#     "kubeReserved": {"cpu": "200m", "memory": "1Gi"},
#     "systemReserved.cpu": "200m",
#     "shutdownGracePeriod": "60s",
#     "shutdownGracePeriodCriticalPods": "20s",
#     "containerLogMaxSize": "absent",
# }
