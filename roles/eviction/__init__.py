"""Node-pressure eviction: what the kubelet's thresholds are, what they should be, and what they do to a node."""
