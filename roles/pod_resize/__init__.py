"""In-place resize of pods: the check of the cluster, the resize of a workload, and the pods that differ from their template."""

from roles.engine.inputs import Declared
from roles.pod_resize.check_deploy import pod_resize_check
from roles.pod_resize.compliance import Drift
from roles.pod_resize.drift_deploy import read_drift, resize_drift
from roles.pod_resize.model import DesiredResources, DriftOptions, ProbeOptions
from roles.pod_resize.pod_resources import resources_text
from roles.pod_resize.resize_deploy import resize, undo

DATA_KEYS = (
    Declared(DesiredResources, ("resize",), changes=True, undo=undo),
    Declared(DriftOptions, ("resize_drift",)),
    Declared(ProbeOptions, ("pod_resize_check",), changes=True),
)

__all__ = ["DATA_KEYS", "Drift", "pod_resize_check", "read_drift", "resize", "resize_drift", "resources_text", "undo"]
