"""Values for the hosts of the group `control_plane`. A value here takes the place of the whole value in all.py."""

# Gates of the control plane's components, and of these nodes' own kubelets. The rules of order are daytwo's: on from the API servers
# down to the kubelets, off the other way round.
# feature_gates = {"HPAScaleToZero": True, "NodeSwap": "absent"}

# Leave these nodes' own kubelets alone.
# components = ["kube-apiserver", "kube-controller-manager", "kube-scheduler"]
