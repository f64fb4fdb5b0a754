"""The pods of a node before and after a change: none may have been hurt unannounced. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from roles.api import Container, Pod

# Why a kubelet fails pods that it puts out, or does not take back when it starts (pkg/kubelet/eviction: Reason;
# pkg/kubelet/preemption; pkg/kubelet/lifecycle/predicate.go).
EVICTED = "Evicted"
_PUT_OUT = frozenset({EVICTED, "Preempting"})
_NO_ROOM = "OutOf"


def hurt(before: Iterable[Pod], after: Iterable[Pod], announced: Collection[str], may_go: Collection[str] = ()) -> list[str]:
    """What happened to pods that the plan had not announced.

    `announced` are the names of pods that may be restarted; `may_go` those (as NAMESPACE/NAME) of which the plan told, with consent,
    that they may have to go. Where some may, a pod that was not there before and finds no room is no harm done: it is made anew for
    one that went.
    """
    known = {pod.uid: pod for pod in before}
    problems = []
    for pod in after:
        old = known.get(pod.uid)
        where = _where(pod)
        if pod.name in announced or where in may_go or (may_go and old is None and _found_no_room(pod)):
            continue
        if _ended(pod) and (old is None or not _ended(old)):
            problems.append(f"pod {where} {_how(pod)}")
        for container in pod.containers:
            was = next((c for c in old.containers if c.name == container.name), None) if old else None
            if was and _ran(was) and (container.restarts > was.restarts or (was.id and container.id and was.id != container.id)):
                problems.append(f"pod {where}: container {container.name} was restarted")
    return problems


def gone(before: Iterable[Pod], after: Iterable[Pod], may_go: Collection[str] = ()) -> list[str]:
    """Pods that failed between the two or that their kubelet put out, as NAMESPACE/NAME (REASON).

    One of `may_go` that ended with 0 is among them, though a job's pod may have done so by itself.
    """
    lived = {pod.uid: not _ended(pod) and pod.phase != "Succeeded" for pod in before}
    return [
        f"{_where(pod)} ({_reason(pod)})"
        for pod in after
        if lived.get(pod.uid, True) and (_ended(pod) or (pod.phase == "Succeeded" and _where(pod) in may_go))
    ]


def vanished(before: Iterable[Pod], after: Iterable[Pod], announced: Collection[str], may_go: Collection[str] = ()) -> list[str]:
    """Pods that lived and are not there any more, as NAMESPACE/NAME: deleted by somebody, which is no harm for sure, and not proven to be
    none: what a kubelet fails, its controller may delete at once."""
    there = {pod.uid for pod in after}
    lived = (pod for pod in before if not _ended(pod) and pod.phase != "Succeeded" and not pod.deleted)
    return [_where(pod) for pod in lived if pod.uid not in there and pod.name not in announced and _where(pod) not in may_go]


def _ended(pod: Pod) -> bool:
    """Not by itself, and not by somebody who deleted it: what ends of an old roll-out, or is scaled down, tells its last phase before it
    is gone. A kubelet that fails a pod gives its reason (pkg/kubelet: rejectPod, eviction), and one that is over is deleted at once."""
    return pod.put_out or (pod.phase == "Failed" and not (pod.deleted and not pod.reason))


def _how(pod: Pod) -> str:
    return f"failed ({_reason(pod)})" if pod.phase == "Failed" else f"was {_reason(pod)}"


def _reason(pod: Pod) -> str:
    return pod.reason or ("put out by its kubelet" if pod.put_out else "ended" if pod.phase == "Succeeded" else "no reason given")


def _where(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.name}"


def _found_no_room(pod: Pod) -> bool:
    return pod.put_out or (pod.phase == "Failed" and (pod.reason in _PUT_OUT or pod.reason.startswith(_NO_ROOM)))


def _ran(container: Container) -> bool:
    """One that waits to be started again (CrashLoopBackOff) is not hurt by being started."""
    return container.ready or container.running_since is not None
