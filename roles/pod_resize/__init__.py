"""Pods resized in place: whether the cluster can, the pods of a workload, and who differs from his template since."""

from roles.pod_resize.check_deploy import pod_resize_check
from roles.pod_resize.compliance import NEEDED, Drift, find
from roles.pod_resize.drift_deploy import read_drift, resize_drift
from roles.pod_resize.pod_resources import told
from roles.pod_resize.resize_deploy import CAPABILITY, resize, undo

__all__ = ["CAPABILITY", "NEEDED", "Drift", "find", "pod_resize_check", "read_drift", "resize", "resize_drift", "told", "undo"]
