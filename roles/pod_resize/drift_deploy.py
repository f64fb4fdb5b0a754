"""Lists workloads whose pods differ from their template in CPU or memory, as text or JSON. Changes nothing."""

from __future__ import annotations

from roles.engine import bridge
from roles.engine.api import Api, ApiFailure, list_objects
from roles.engine.bridge import Fleet
from roles.engine.findings.render import section
from roles.engine.folding import counted
from roles.engine.object_runs import cluster_session
from roles.engine.runs import Ended, deploying, document, show_report
from roles.engine.transaction import Refusal
from roles.pod_resize import model
from roles.pod_resize.compliance import NEEDED, Drift, DriftsReport, find

#: Exit status if there is drift; 0 if there is none, 1 if the cluster cannot be read.
DRIFT = 2


def _read(fleet: Fleet) -> model.DriftOptions:
    try:
        return model.read_cluster([(remote.name, remote.data) for remote in fleet.targets], model.DriftOptions)[1]
    except Refusal as refusal:
        raise bridge.refuse(str(refusal)) from None


@deploying("Drift of resized pods", _read)
def resize_drift(fleet: Fleet, options: model.DriftOptions) -> Ended:
    """List the workloads whose pods differ from their template.

    Data keys: `format` (table, or json: one document on standard output), `kubeconfig`. Returns 2 if there are some; raises DeployError
    if the cluster cannot be read.
    """
    session = cluster_session(fleet, options.kubeconfig)
    try:
        drifts = session.asked(read_drift)
    except (ApiFailure, ValueError) as error:
        raise bridge.refuse(f"the cluster's pods cannot be read: {error}") from None
    title = "Pods that differ from their template (request/limit); recreated pods get the template's resources"
    headers, rows = ["workload", "container", "template", "pods have", "pods"], [row for one in drifts for row in one.lines()]
    forms = {
        "table": lambda: section(title, headers, rows),
        "json": lambda: document(DriftsReport(drift=tuple(one.report() for one in drifts))),
    }
    if drifts or options.format == "json":
        show_report(forms, options.format)
    found = f"{counted(len(drifts), 'workload')} with pods that differ" if drifts else "no workload has pods that differ"
    line = "" if options.format == "json" else f"{found} from the template in CPU or memory"
    return Ended(line, DRIFT if drifts else 0)


def read_drift(api: Api) -> list[Drift]:
    """The drift of the whole cluster: one LIST of each kind. Raises ApiError, ValueError."""
    return find({kind: list_objects(api, path) for kind, path in NEEDED.items()})
