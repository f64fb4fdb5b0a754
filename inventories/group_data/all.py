"""Values for every host of every inventory in this folder (the lab takes what it needs from --data)."""

# How to log in and become root. With a password for sudo: run pyinfra with --use-sudo-password.
# ssh_user = "ops"
# _sudo = True

# Feature gates as they should be: True, False, or "absent" to take a gate out of the node's files again.
# A gate that is not named here is left alone.
# feature_gates = {"HPAScaleToZero": True}

# Only some components of each node, and not those that read the gate: kubelet, kube-apiserver, kube-controller-manager, kube-scheduler.
# components = ["kubelet"]

# Fields of every kubelet's configuration (docs/kubelet-config.md); "absent" takes one out of the node's files again.
# kubelet_config = {"containerLogMaxSize": "50Mi", "containerLogMaxFiles": 3}

# The cluster's PriorityClasses (docs/priority-classes.md): here and nowhere else, since they are the same for all hosts. One that
# daytwo made and that is taken out here is listed, and removed only with --data prune=true.
# priority_classes = {
#     "batch": {"value": -10, "preemptionPolicy": "Never", "description": "what can wait"},
#     "web": {"value": 1000, "description": "what customers see", "labels": {"team": "shop"}},
#     "standard": {"value": 100, "globalDefault": True},
# }
# Workloads and the class that their pods should have: NAMESPACE/KIND/NAME, kinds deployment, statefulset and daemonset.
# workloads = {"shop/deployment/web": "web", "shop/statefulset/db": "web", "logs/daemonset/collector": "batch"}

# kubeadm's ConfigMaps are left alone (docs/lasting.md): the next `kubeadm upgrade` then takes out again what daytwo sets.
# persist = False

# Consents are for one run, by --data, and not for this file: allow_evictions, move_flags, replace, prune, force.
