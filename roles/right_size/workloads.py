"""Pods as the API has them: the workload of each, what its containers request, and which of them ended for lack of memory. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from roles.engine.harmless import one_line
from roles.engine.kube import Object, namespace_and_name, owner_ref
from roles.engine.kube.amounts import listed, units
from roles.engine.kube.fields import created_of, name_of, spec_of, status_of
from roles.engine.kube.pods import container_states, is_alive, is_critical, is_static, kubelet_uid, lasting_containers, node_of
from roles.engine.kube.times import time_of
from roles.engine.kube.workloads import GROUPS, ObservedObjects, is_known
from roles.right_size.samples import Kill

_ID = re.compile(r"[0-9a-f]{64}\Z")
#: Collections that are needed to find the workload of a pod: what is between them, or what creates it.
BETWEEN = ("ReplicaSet", "Job", "StatefulSet", "DaemonSet")
# A pod that names one of these as its own controller, and is not one of the objects that exist, must not count as one of its replicas;
# Deployment and CronJob create pods through others only.
_CREATORS = ("Deployment", "CronJob", "StatefulSet", "DaemonSet")
#: `kind` of a pod without a controller, and of a static pod.
POD, STATIC = "Pod", "static pod"
_OOM = "OOMKilled"
RESOURCES = ("cpu", "memory")
# The names of pods: a ReplicaSet is NAME-HASH of its Deployment (pkg/apis/apps), a pod has five random characters of the same alphabet
# (k8s.io/apiserver/pkg/storage/names/generate.go), or NAME-ORDINAL (pkg/controller/statefulset); a Job is NAME-MINUTES of its CronJob
# (pkg/controller/cronjob).
_ALPHABET = "[bcdfghjklmnpqrstvwxz2456789]"
_FORMS = (
    (re.compile(rf"(.+)-{_ALPHABET}{{6,10}}-{_ALPHABET}{{5}}"), ("Deployment",)),
    (re.compile(rf"(.+)-{_ALPHABET}{{5}}"), ("DaemonSet", "ReplicaSet", "ReplicationController")),
    (re.compile(r"(.+)-[0-9]{1,6}"), ("StatefulSet",)),
    (re.compile(rf"(.+)-[0-9]{{8,10}}-{_ALPHABET}{{5}}"), ("CronJob",)),
)


@dataclass(frozen=True)
class SizedWorkload:
    """What creates pods: a Deployment, or whatever the pods' controllers name, which may be any text; or a pod without a controller."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return one_line(f"{self.kind} {self.namespace}/{self.name}")


@dataclass(frozen=True)
class Amounts:
    """CPU in thousandths of a core, memory in bytes; None: not set."""

    cpu: int | None = None
    memory: int | None = None

    @classmethod
    def of(cls, found: Mapping[str, Fraction]) -> Amounts:
        return cls(*(units(name, found[name]) if name in found else None for name in RESOURCES))

    def of_resource(self, name: str) -> int | None:
        return self.cpu if name == "cpu" else self.memory


@dataclass(frozen=True)
class ContainerNow:
    """One container of one pod as it is now. `id` is that of the running container, "" if it does not run; `started` in seconds since the
    epoch. `kills`: the ends of its last lives that the pod's status has. `sidecar`: an init container that keeps running. `critical`: its
    pod is never evicted for lack of memory."""

    workload: SizedWorkload
    pod: str
    uid: str
    node: str
    name: str
    image: str
    requests: Amounts
    limits: Amounts
    id: str = ""
    started: float | None = None
    restarts: int = 0
    kills: tuple[Kill, ...] = ()
    sidecar: bool = False
    guaranteed: bool = False
    best_effort: bool = False
    critical: bool = False


def containers(pods: Iterable[Object], between: Mapping[str, Collection[Object]]) -> list[ContainerNow]:
    """The containers of all pods that run or may run, in the order of the pods; `between`: the ReplicaSets and Jobs (BETWEEN). Raises
    ValueError for an invalid quantity."""
    live = ObservedObjects(between)
    return [one for pod in pods if is_alive(pod) for one in _of_pod(pod, live)]


def failure(pod: Object) -> str:
    """Why a pod ended against its will, such as Evicted; "" if it did not."""
    status = status_of(pod)
    return str(status.get("reason") or "Failed") if status.get("phase") == "Failed" else ""


def workload_of(pod: Object, live: ObservedObjects) -> SizedWorkload:
    """`live`: objects of the kinds BETWEEN. Whoever creates a pod writes its ownerReferences: those of Kubernetes' own kinds count if the
    object exists, others with their group in the name."""
    namespace, name = namespace_and_name(pod)
    ref = owner_ref(pod)
    item = live.meant(ref)
    if is_static(pod):
        return SizedWorkload(STATIC, namespace, name)
    if ref is None or (item is None and ref.kind in _CREATORS and is_known(ref)):
        return SizedWorkload(POD, namespace, name)
    found = (owner_ref(item) if item is not None else None) or ref
    kind = found.kind if is_known(found) or found.kind not in GROUPS else f"{found.kind} of {found.api_version}"
    return SizedWorkload(kind, namespace, found.name)


def _of_pod(pod: Object, live: ObservedObjects) -> Iterator[ContainerNow]:
    status = status_of(pod)
    workload = workload_of(pod, live)
    states = {str(one.get("name")): one for one in container_states(pod)}
    plain = spec_of(pod).get("containers") or ()
    for one in lasting_containers(pod):
        state = states.get(str(one.get("name")), {})
        running = (state.get("state") or {}).get("running") or {}
        identifier = str(state.get("containerID") or "").rpartition("/")[2]
        resources = one.get("resources") or {}
        limits = amounts(resources.get("limits"))
        yield ContainerNow(
            workload=workload,
            pod=name_of(pod),
            uid=kubelet_uid(pod),
            node=node_of(pod),
            name=str(one.get("name")),
            image=str(state.get("imageID") or one.get("image") or ""),
            requests=amounts(resources.get("requests")),
            limits=limits,
            id=identifier if running and _ID.match(identifier) else "",
            started=_started(pod, running),
            restarts=int(state.get("restartCount") or 0),
            kills=tuple(_kills(state, limits.memory)),
            sidecar=one not in plain,
            guaranteed=status.get("qosClass") == "Guaranteed",
            best_effort=status.get("qosClass") == "BestEffort",
            critical=is_critical(pod),
        )


def _started(pod: Object, running: Object) -> float | None:
    """When a container started. A node that got its time only after that says years ago; no container is older than its pod. (The mirror
    of a static pod is younger.)"""
    started, created = seconds(running.get("startedAt")), seconds(created_of(pod))
    return started if started is None or created is None or is_static(pod) else max(started, created)


def _kills(state: Object, limit: int | None) -> Iterator[Kill]:
    for one in (state.get("lastState"), state.get("state")):
        ended = (one or {}).get("terminated") or {}
        at, started = seconds(ended.get("finishedAt")), seconds(ended.get("startedAt"))
        identifier = str(ended.get("containerID") or "").rpartition("/")[2]
        if ended.get("reason") == _OOM and at is not None and _ID.match(identifier):
            yield Kill(identifier, at, limit, None if started is None else max(0.0, at - started))


def amounts(found: Mapping[str, object] | None) -> Amounts:
    """CPU and memory of `requests` or `limits`. Raises ValueError."""
    return Amounts.of(listed({name: found[name] for name in RESOURCES if found.get(name) is not None} if found else None))


def seconds(text: object) -> float | None:
    """Of a time as the API writes it; None without one. Raises ValueError."""
    found = time_of(text)
    return found.timestamp() if found else None


class PodOwners:
    """Whose pod one is or was: a source that knows only names has the past of a workload, too. `now`: the workloads of all pods that exist,
    by namespace and pod."""

    def __init__(self, now: Mapping[tuple[str, str], SizedWorkload]) -> None:
        self._now, self._workloads = now, frozenset(now.values())

    def exists(self, namespace: str, pod: str) -> bool:
        return (namespace, pod) in self._now

    def of(self, namespace: str, pod: str) -> SizedWorkload | None:
        """The workload that a pod is of, or was of, among those that have pods now. None if the name of none fits, or of more than one."""
        if (there := self._now.get((namespace, pod))) is not None:
            return there
        matches = ((form.fullmatch(pod), kinds) for form, kinds in _FORMS)
        named = {SizedWorkload(kind, namespace, match[1]) for match, kinds in matches if match for kind in kinds}
        return next(iter(named & self._workloads)) if len(named & self._workloads) == 1 else None
