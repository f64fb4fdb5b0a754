"""Values for every host of every inventory in this folder (the lab takes what it needs from --data)."""

# How to log in and become root. With a password for sudo: run pyinfra with --use-sudo-password.
# ssh_user = "ops"
# _sudo = True

# Feature gates as they should be: True, False, or "absent" to take a gate out of the node's files again.
# A gate that is not named here is left alone.
# feature_gates = {"InPlacePodVerticalScaling": True}

# Only some components of each node: kubelet, kube-apiserver, kube-controller-manager, kube-scheduler.
# components = ["kubelet"]
