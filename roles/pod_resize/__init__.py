"""In-place resize of pods: the check of the cluster, the resize of a workload, also as a part of another run, and the pods that differ from
their template."""

from roles.engine.inputs import Changes, Declared, Undo
from roles.pod_resize.check_deploy import pod_resize_check
from roles.pod_resize.compliance import NEEDED, Drift, DriftsReport, find
from roles.pod_resize.drift_deploy import resize_drift
from roles.pod_resize.kinds import only_resources
from roles.pod_resize.model import DesiredResources, DriftOptions, ProbeOptions
from roles.pod_resize.plan import PodStep
from roles.pod_resize.pod_resources import Resources, resources_text
from roles.pod_resize.resize_deploy import resize, undo
from roles.pod_resize.resize_run import RESOURCES_OF_TEMPLATE, WRITES
from roles.pod_resize.workload import POD, Resizer, WorkloadResize

DOCUMENTS = {"resize_drift": DriftsReport}
DATA_KEYS = (
    Declared(DesiredResources, ("resize",), changes=Changes.OBJECTS, undo=Undo(undo, WRITES)),
    Declared(DriftOptions, ("resize_drift",)),
    Declared(ProbeOptions, ("pod_resize_check",), changes=Changes.OBJECTS),
)

__all__ = [
    "DATA_KEYS",
    "DOCUMENTS",
    "NEEDED",
    "POD",
    "RESOURCES_OF_TEMPLATE",
    "Drift",
    "PodStep",
    "Resizer",
    "Resources",
    "WorkloadResize",
    "find",
    "only_resources",
    "pod_resize_check",
    "resize",
    "resize_drift",
    "resources_text",
]
