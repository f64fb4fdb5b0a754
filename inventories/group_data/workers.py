"""Values for the hosts of the group `workers`. A value here takes the place of the whole value in all.py."""

# Gates of these nodes alone; control_plane.py has those of the control plane.
# feature_gates = {"HPAScaleToZero": False, "NodeSwap": "absent"}

# Eviction thresholds (docs/eviction.md). A signal that is not named keeps what it has; "absent" gives the kubelet's own back.
# eviction_hard = {"memory.available": "500Mi", "nodefs.available": "10%", "imagefs.available": "15%", "pid.available": "5%"}

# Soft thresholds: reached before the hard ones, each with its grace period; pods then have this many seconds to end.
# eviction_soft = {"memory.available": "1Gi"}
# eviction_soft_grace_period = {"memory.available": "1m30s"}
# eviction_max_pod_grace_period = 60

# More than the threshold is to be free before eviction ends, and how long the node's condition stays after it.
# eviction_minimum_reclaim = {"memory.available": "200Mi", "nodefs.available": "1Gi"}
# eviction_pressure_transition_period = "5m"

# Fields of the kubelet's configuration (docs/kubelet-config.md): nested as in its file, or by dotted names. A map that is named as
# a whole is set as a whole; one key of it by its dotted name.
# kubelet_config = {
#     "maxPods": 200,
#     "kubeReserved": {"cpu": "200m", "memory": "1Gi"},
#     "systemReserved.cpu": "200m",
#     "shutdownGracePeriod": "60s",
#     "shutdownGracePeriodCriticalPods": "20s",
#     "containerLogMaxSize": "absent",
# }
