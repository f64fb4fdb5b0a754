"""Reads what a drain must know, and looks again while it runs."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime

from roles.engine import disruption
from roles.engine.context import Schedulers
from roles.engine.disruption import KINDS_OF_DISRUPTION, DisruptionObjects, read_disruption
from roles.engine.kube import Object, controller, uid
from roles.engine.kube.fields import spec_of
from roles.engine.kube.workloads import COLLECTIONS, namespaced, node_path
from roles.engine.objects import Session
from roles.engine.outage.mark import run_of
from roles.engine.outage.model import PodWorkload
from roles.engine.outage.surge_marks import SURGES, mark_of, surges_in
from roles.engine.placement.storage import Attachment, attachments, in_node_status
from roles.engine.timeouts import LOOK_AGAIN

#: The kinds that decide about a drain, in addition to those that decide about evictions.
MORE_KINDS = {
    "Node": "/api/v1/nodes",
    "DaemonSet": COLLECTIONS["DaemonSet"],
    "Job": COLLECTIONS["Job"],
    "Service": "/api/v1/services",
    "PersistentVolumeClaim": "/api/v1/persistentvolumeclaims",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "CSIDriver": "/apis/storage.k8s.io/v1/csidrivers",
    "CSINode": "/apis/storage.k8s.io/v1/csinodes",
    "VolumeAttachment": "/apis/storage.k8s.io/v1/volumeattachments",
    "Namespace": "/api/v1/namespaces",
    "HorizontalPodAutoscaler": "/apis/autoscaling/v2/horizontalpodautoscalers",
    "ValidatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
    "MutatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
}
#: Not a kind of the API: the configurations of schedulers that run with --config, each with its host; None if it could not be read.
SCHEDULERS = "KubeSchedulerConfiguration"
KINDS_OF_DRAIN = {**KINDS_OF_DISRUPTION, **MORE_KINDS}
# The newest marks of surges whose records are looked up: a tenant may write any number.
_MOST_MARKS = 20


def read_drain(session: Session, more: Mapping[str, str] | None = None) -> DisruptionObjects:
    """All objects that decide about a drain. `more`: further collections by kind. Raises ApiFailure."""
    live = session.asked(lambda api: read_disruption(api, more={**MORE_KINDS, **(more or {})}))
    live = replace(live, objects={**live.objects, SURGES: recorded_surges(session, live.of("Deployment"))})
    return with_schedulers(live, session.schedulers)


def recorded_surges(session: Session, deployments: Collection[Object]) -> list[Object]:
    """The surges in the records of the runs that these Deployments name."""
    marks = sorted({mark_of(one) for one in deployments} - {""}, reverse=True)[:_MOST_MARKS]
    return [surge for mark in marks for surge in surges_in(mark, session.recorded(run_of(mark)))]


def with_schedulers(live: DisruptionObjects, schedulers: Schedulers) -> DisruptionObjects:
    """`live` with the own configurations of schedulers (SCHEDULERS)."""
    found = [{"host": host, "configuration": one} for host, one in schedulers().items()]
    return replace(live, objects={**live.objects, SCHEDULERS: found})


def cluster_time(session: Session) -> datetime:
    """The API server's time. Raises ApiFailure."""
    return session.asked(disruption.cluster_time)


def pods_on(session: Session, node: str) -> list[Object]:
    """All pods of a node now. Raises ApiFailure."""
    return list(session.fetch_all("/api/v1/pods", fields=f"spec.nodeName={node}"))


class Look:
    """Pods of namespaces and objects of workloads, read at most once a second for all tasks that ask.

    An answer counts only if its reading began after `since` (time.monotonic): an older one may show pods that have left since.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self._lists: dict[str, tuple[float, list[Object]]] = {}

    def pods(self, namespace: str, since: float) -> list[Object]:
        return self._list(namespaced(COLLECTIONS["Pod"], namespace), since)

    def attached(self, since: float) -> list[Attachment]:
        """The VolumeAttachments of the cluster."""
        return attachments(self._list(MORE_KINDS["VolumeAttachment"], since))

    def attached_to(self, node: str, since: float) -> list[Attachment]:
        """All that is attached to a node, also without a VolumeAttachment."""
        found = self.session.fetch(node_path(node))
        return [one for one in self.attached(since) if one.node == node] + (in_node_status(found) if found else [])

    def wanted(self, workload: PodWorkload, since: float) -> int | None:
        """The number of pods that it should have now; None if it is gone."""
        items = self._list(namespaced(COLLECTIONS[workload.kind], workload.namespace), since)
        item = next((one for one in items if uid(one) == workload.uid), None)
        if item is None:
            return None
        found = spec_of(item).get("replicas")
        return 1 if found is None else int(found)

    def controllers(self, workload: PodWorkload, since: float) -> set[str]:
        """The UIDs that its pods name as their controller."""
        if workload.kind != "Deployment":
            return {workload.uid}
        sets = self._list(namespaced(COLLECTIONS["ReplicaSet"], workload.namespace), since)
        return {uid(one) for one in sets if controller(one) == workload.uid}

    def _list(self, path: str, since: float) -> list[Object]:
        with self.session.alone(path):
            begun, found = self._lists.get(path, (0.0, []))
            now = time.monotonic()
            if begun <= since or now - begun >= LOOK_AGAIN:
                begun, found = now, list(self.session.fetch_all(path))
                self._lists[path] = begun, found
            return found
