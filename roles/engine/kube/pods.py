"""What a pod is and says: its state, its node, its rank, its ports, and why it does not start. Pure.

Sources (Kubernetes 1.36): pkg/scheduler/util/utils.go (GetHostPorts), k8s.io/kube-scheduler/framework/types.go (HostPortInfo),
pkg/kubelet/types/pod_update.go (IsCriticalPod), kubectl/pkg/drain/filters.go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from roles.engine.kube.fields import annotations_of, spec_of, status_of
from roles.engine.kube.objects import Object, OwnerRef, full_name, is_ending, namespace_and_name, owner_ref, uid
from roles.engine.kube.workloads import COLLECTIONS, object_path

# A port of the host: address, protocol, number.
Port = tuple[str, str, int]

CRITICAL = 2_000_000_000
CONFIG_HASH = "kubernetes.io/config.hash"
MIRROR = "kubernetes.io/config.mirror"
ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - compared, never bound
OVER = ("Succeeded", "Failed")
#: Why a container waits that does not start before someone repairs it, by the file of Kubernetes 1.36 that has the reasons.
BROKEN = {
    "pkg/kubelet/images/types.go":
        ("ImagePullBackOff", "ImageInspectError", "ErrImagePull", "ErrImageNeverPull", "InvalidImageName"),
    # pkg/kubelet/images/image_manager.go takes these from the runtime's answer to a pull.
    "k8s.io/cri-api/pkg/errors/errors.go": ("RegistryUnavailable", "SignatureValidationFailed"),
    "pkg/kubelet/kuberuntime/kuberuntime_container.go":
        ("CreateContainerConfigError", "PreCreateHookError", "CreateContainerError", "PreStartHookError", "PostStartHookError"),
    "pkg/kubelet/container/sync_result.go": ("CrashLoopBackOff", "RunContainerError"),
}  # fmt: skip
_BROKEN = frozenset(reason for reasons in BROKEN.values() for reason in reasons)
#: So often a container has failed that does not become Ready by itself.
_STUCK_RESTARTS = 3


def namespace(pod: Object) -> str:
    return namespace_and_name(pod)[0] or "default"


def pod_path(pod: Object) -> str:
    """Where the API has it."""
    return object_path(COLLECTIONS["Pod"], *namespace_and_name(pod))


def node_of(pod: Object) -> str:
    """The name of its node; "" if it has none yet."""
    return str(spec_of(pod).get("nodeName") or "")


def phase(pod: Object) -> str:
    """ "" without one."""
    return str(status_of(pod).get("phase") or "")


def is_over(pod: Object) -> bool:
    """Its containers have ended, and none starts again."""
    return phase(pod) in OVER


def is_alive(pod: Object) -> bool:
    """A pod that a drain would have to evict, or that is to come: neither finished nor ending."""
    return not is_over(pod) and not is_ending(pod)


def has_ended(pod: Object) -> bool:
    """The pod is finished, and holds nothing of its node.

    One that is being deleted is finished before its node has released its volumes and cgroup: only then does its kubelet delete it without
    a grace period (pkg/kubelet/status/status_manager.go: canBeDeleted). What is there after that is an object that a finalizer keeps, with
    a period of 0 (apiserver, registry/generic/registry/store.go: markAsDeleting).
    """
    return is_over(pod) and not (is_ending(pod) and pod["metadata"].get("deletionGracePeriodSeconds"))


def is_static(pod: Object) -> bool:
    return MIRROR in annotations_of(pod)


def kubelet_uid(pod: Object) -> str:
    """The pod's UID in its kubelet and its cgroup: a static pod's own (a hash), not that of its mirror pod in the API."""
    return str(annotations_of(pod).get(CONFIG_HASH)) if is_static(pod) else uid(pod)


def daemon_set(pod: Object) -> OwnerRef | None:
    """Its DaemonSet, of Kubernetes' own kind, not of another API group."""
    ref = owner_ref(pod)
    return ref if ref is not None and (ref.kind, ref.group) == ("DaemonSet", "apps") else None


def stays_in_a_drain(pod: Object, daemon_sets: Collection[str] | None = None) -> bool:
    """A static pod, or a pod of a DaemonSet: a drain leaves it alone.

    `daemon_sets`: the UIDs of those that exist; None: not known, so the pod's own words count.
    """
    ref = daemon_set(pod)
    return is_static(pod) or (ref is not None and (daemon_sets is None or ref.uid in daemon_sets))


def left_by_drain(pod: Object, daemon_sets: Collection[str] | None = None) -> bool:
    """A drain leaves the pod on its node: it is finished, or stays in a drain. `daemon_sets` as there."""
    return has_ended(pod) or stays_in_a_drain(pod, daemon_sets)


def priority(pod: Object) -> int:
    """spec.priority, 0 if there is none (component-helpers: PodPriority)."""
    return int(pod["spec"].get("priority") or 0)


def is_critical(pod: Object) -> bool:
    return is_static(pod) or priority(pod) >= CRITICAL


def same(one: Object, other: Object) -> bool:
    """True for the same pod; by UID if both have one."""
    uids = uid(one), uid(other)
    return uids[0] == uids[1] if all(uids) else full_name(one) == full_name(other)


def is_sidecar(container: Object) -> bool:
    return container.get("restartPolicy") == "Always"


def lasting_containers(pod: Object) -> list[Object]:
    """All but init containers that end."""
    spec = spec_of(pod)
    return [*(spec.get("containers") or ()), *filter(is_sidecar, spec.get("initContainers") or ())]


# ---- what keeps it from starting


def container_states(pod: Object) -> Iterator[Object]:
    """The states of its containers, init containers first (status.containerStatuses)."""
    status = status_of(pod)
    for key in ("initContainerStatuses", "containerStatuses"):
        yield from status.get(key) or ()


def broken(pod: Object) -> str:
    """Why a container does not start before someone repairs it, in its kubelet's word (BROKEN); "" if it may start."""
    return next(filter(None, map(_waits, container_states(pod))), "")


def stuck(pod: Object) -> str:
    """Why a pod does not become Ready by itself: it is broken, or a container keeps failing; "" if it may."""
    return next(filter(None, (_waits(one) or _keeps_failing(one) for one in container_states(pod))), "")


def _waits(state: Object) -> str:
    reason = str(((state.get("state") or {}).get("waiting") or {}).get("reason") or "")
    return reason if reason in _BROKEN else ""


def _keeps_failing(state: Object) -> str:
    ended = (state.get("state") or {}).get("terminated") or (state.get("lastState") or {}).get("terminated")
    restarts = int(state.get("restartCount") or 0)
    return f"restarted {restarts} times" if not state.get("ready") and ended and restarts >= _STUCK_RESTARTS else ""


# ---- ports


def host_ports(pod: Object) -> frozenset[Port]:
    """The ports of the host that its containers and sidecars hold."""
    return frozenset(
        (str(port.get("hostIP") or ANY_ADDRESS), str(port.get("protocol") or "TCP"), int(port["hostPort"]))
        for one in lasting_containers(pod)
        for port in one.get("ports") or ()
        if int(port.get("hostPort") or 0) > 0
    )


def shared_port(some: frozenset[Port], others: frozenset[Port]) -> Port | None:
    """A port of `some` that cannot be held beside `others`; an address conflicts with itself and with all addresses."""
    for address, protocol, number in sorted(some):
        for other, other_protocol, other_number in others:
            if (protocol, number) == (other_protocol, other_number) and (address == other or ANY_ADDRESS in (address, other)):
                return address, protocol, number
    return None
