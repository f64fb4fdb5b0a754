"""The proof that a node can start a new pod: one is started there, and removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import quote

from roles.engine.api import Api, ApiError, ApiFailure, list_objects
from roles.engine.bounds import EARLIEST, moment
from roles.engine.bridge.tasks import sleep
from roles.engine.kube import uid
from roles.engine.kube.fields import labels_of, name_of
from roles.engine.proof import Cluster, Proof
from roles.engine.starting import probe
from roles.engine.timeouts import Deadline, patient

#: Seconds for a new pod to start; a kubelet tries a sandbox again and again meanwhile.
START_SECONDS: Final = 60
#: An event of this age is of now: a kubelet tries a sandbox again at least every few minutes.
RECENT_SECONDS: Final = 180
_SANDBOX = "FailedCreatePodSandBox"
_LOOK_SECONDS = 0.5
# So long a first try may fail, before what the kubelet says of it counts.
_TRIES_SECONDS = 20
_UNPROVEN = "that a new pod starts"


class NotAdmitted(Exception):
    """The kubelet did not take the pod: the node may be full."""


def starts_a_pod(
    cluster: Cluster, run: str, node_name: str, images: Sequence[str], *, allow_unproven: bool, host_network: bool = False
) -> Proof:
    """Start a pod on a node, wait until it runs, and remove it, also if an answer was lost. If the API or the kubelet does not take the
    pod, nothing is proven."""
    made: dict[str, Any] | None = None
    path = ""
    try:
        node = cluster.node(node_name)
        image = next(iter(images), "") or probe.image_of(node)
        wanted = probe.probe_pod(run, node_name, image, round(patient(START_SECONDS * 2)), host_network=host_network)
        path = f"{probe.PODS}/{quote(name_of(wanted), safe='')}"
        _remove(cluster, path, node_name)
        made = _created(cluster, path, wanted)
        return _watched(cluster, path, made, bool(image), node_name)
    except (ApiFailure, NotAdmitted) as error:
        unproven = f"{_UNPROVEN} on {node_name}: {error}"
        return Proof(f"NOT PROVEN: {unproven}", () if allow_unproven else (unproven,))
    finally:
        if path:
            _tidy(cluster, path, node_name)


def _created(cluster: Cluster, path: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Raises ApiFailure. If the answer is lost, the pod may be there all the same."""
    try:
        return cluster.query(lambda api: api.create(probe.PODS, wanted))
    except ApiError:
        found = cluster.object(path)
        if found is None:
            raise
        return found


def _watched(cluster: Cluster, path: str, made: Mapping[str, Any], has_image: bool, node_name: str) -> Proof:
    limit, tries = Deadline(START_SECONDS), Deadline(_TRIES_SECONDS)
    while True:
        pod = cluster.object(path) or {}
        state = probe.state_of(pod)
        if state == "runs" or (state == "sandbox" and not has_image):
            return Proof("a new pod starts")
        if state == "failed":
            raise NotAdmitted(f"its kubelet did not take the pod: {probe.why_not(pod, [])}")
        events = cluster.query(partial(_events, uid=uid(made))) if tries.over or limit.over else []
        if limit.over or any(one.get("reason") == _SANDBOX for one in events):
            return Proof("", (f"no new pod starts on {node_name}: {probe.why_not(pod, events)}",))
        sleep(_LOOK_SECONDS)


def _events(api: Api, uid: str) -> list[dict[str, Any]]:
    return list_objects(api, f"/api/v1/namespaces/{probe.NAMESPACE}/events", fields=f"involvedObject.uid={uid}")


def sandboxes_fail(cluster: Cluster, node_name: str, epoch: int) -> bool:
    """Whether the kubelet of a node has failed to create a sandbox a moment before `epoch`, by its own clock. Then a new pod may not start;
    or that pod has a fault of its own. Without an answer of the API it is not known, and others decide."""
    try:
        events = cluster.query(lambda api: list_objects(api, "/api/v1/events", fields=f"reason={_SANDBOX}"))
    except ApiFailure:
        return False
    return any((one.get("source") or {}).get("host") == node_name and _seconds(one) > epoch - RECENT_SECONDS for one in events)


def _seconds(event: Mapping[str, Any]) -> float:
    return (moment(event.get("lastTimestamp")) or EARLIEST).timestamp()


def _remove(cluster: Cluster, path: str, node_name: str) -> None:
    """Remove a probe pod of this node, from now or from a run that was killed. Raises ApiFailure."""
    found = cluster.object(path)
    if found is not None and labels_of(found).get(probe.LABEL) == node_name[:63]:
        of = uid(found)
        cluster.query(lambda api: api.delete(path, of))


def _tidy(cluster: Cluster, path: str, node_name: str) -> None:
    """It ends by itself if this fails, too (activeDeadlineSeconds)."""
    for _ in range(3):
        try:
            return _remove(cluster, path, node_name)
        except ApiFailure:
            sleep(1.0)
