"""Values for the hosts of the group `control_plane`. A value here replaces the whole value in all.py."""

# Gates of the control plane's components, and of these nodes' own kubelets. daytwo keeps the order: on from the API servers to the
# kubelets, off in reverse.
# feature_gates = {"HPAScaleToZero": True, "NodeSwap": "absent"}

# Leave these nodes' own kubelets alone.
# components = ["kube-apiserver", "kube-controller-manager", "kube-scheduler"]
