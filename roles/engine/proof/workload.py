"""Compares the pods of a node before and after a change: only announced pods may be harmed. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from roles.engine.api.nodes import ContainerStatus, PodStatus
from roles.engine.folding import counted
from roles.engine.kube.pods import OVER

# The reasons of a kubelet that fails pods by eviction, or does not admit them when it starts (pkg/kubelet/eviction: Reason;
# pkg/kubelet/preemption; pkg/kubelet/lifecycle/predicate.go).
EVICTED = "Evicted"
_EVICTION_REASONS = frozenset({EVICTED, "Preempting"})
_NO_ROOM = "OutOf"


def harmed_pods(
    before: Iterable[PodStatus], after: Iterable[PodStatus], announced: Collection[str], may_be_evicted: Collection[str] = ()
) -> list[str]:
    """The harm to pods that the plan did not announce.

    `announced` are the names of pods that may be restarted; `may_be_evicted` those (as NAMESPACE/NAME) that may be evicted, as
    announced in the plan and with consent. If there are any, a new pod that does not fit is not harm: it replaces an evicted one.
    """
    known = {_key(pod): pod for pod in before}
    problems = []
    for pod in after:
        old = known.get(_key(pod))
        where = _where(pod)
        if pod.name in announced or where in may_be_evicted or (may_be_evicted and old is None and _did_not_fit(pod)):
            continue
        if _ended(pod) and (old is None or not _ended(old)):
            problems.append(f"pod {where} {_how(pod)}")
        for container in pod.containers:
            was = next((c for c in old.containers if c.name == container.name), None) if old else None
            if was and _ran(was) and (container.restarts > was.restarts or (was.id and container.id and was.id != container.id)):
                problems.append(f"pod {where}: container {container.name} was restarted")
    return problems


def evicted_pods(before: Iterable[PodStatus], after: Iterable[PodStatus], may_be_evicted: Collection[str] = ()) -> list[str]:
    """Pods that failed in between, or that their kubelet evicted, as NAMESPACE/NAME (REASON).

    A pod of `may_be_evicted` that ended with 0 is included, although a job's pod may have completed by itself.
    """
    lived = {_key(pod): not _ended(pod) and pod.phase != "Succeeded" for pod in before}
    return [
        f"{_where(pod)} ({_reason(pod)})"
        for pod in after
        if lived.get(_key(pod), True) and (_ended(pod) or (pod.phase == "Succeeded" and _where(pod) in may_be_evicted))
    ]


def not_recreated(before: Iterable[PodStatus], after: Iterable[PodStatus]) -> list[str]:
    """The pods that ran before and do not run now in new containers, as NAMESPACE/NAME. One that is gone does not count."""
    now = {_key(pod): {container.name: container for container in pod.containers} for pod in after}
    found = []
    for pod in before:
        ran = {container.name: container.id for container in pod.containers if _ran(container)}
        then = now.get(_key(pod))
        if not ran or pod.phase in OVER or then is None:
            continue
        if any(name not in then or then[name].id == old or then[name].running_since is None for name, old in ran.items()):
            found.append(_where(pod))
    return found


def static_pods_away(before: Iterable[PodStatus], after: Collection[PodStatus]) -> list[str]:
    """The static pods that ran before and do not run now, in the same or in new containers, as NAMESPACE/NAME."""
    running = {_where(pod) for pod in after if pod.mirror and not pod.deleted and _runs(pod)}
    return [_where(pod) for pod in before if pod.mirror and _runs(pod) and _where(pod) not in running]


def _runs(pod: PodStatus) -> bool:
    return bool(pod.containers) and pod.phase not in OVER and all(container.running_since is not None for container in pod.containers)


@dataclass(frozen=True)
class Count:
    """The pods that ran before a change: how many of them are unchanged (`unharmed`), and the names of the others: `completed` by
    themselves, and `missing`: deleted, or no longer on the node, with what is known about that."""

    unharmed: int
    completed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [f"{counted(self.unharmed, 'pod')} unharmed"]
        if self.completed:
            parts.append(f"completed by themselves: {', '.join(self.completed)}")
        if self.missing:
            parts.append(f"GONE: {', '.join(self.missing)}")
        return "; ".join(parts)


def count(
    before: Iterable[PodStatus], after: Collection[PodStatus], announced: Collection[str], may_be_evicted: Collection[str] = ()
) -> Count:
    """Count the pods that ran before. A missing pod does not count as harmed, since anybody may delete a pod at any time; but it does not
    count as unharmed either. `announced` and `may_be_evicted` as for `hurt`; restarted and evicted pods are named elsewhere.
    """
    before = list(before)
    now, known = {_key(pod): pod for pod in after}, {_key(pod) for pod in before}
    new = [pod for pod in after if _key(pod) not in known]
    unharmed, completed, missing = 0, [], []
    for pod in before:
        found = now.get(_key(pod))
        if pod.phase in OVER or (pod.name in announced and any(_where(one) == _where(pod) for one in after)):
            continue
        if found is None:
            expected = pod.name in announced or _where(pod) in may_be_evicted
            missing.append(f"{_where(pod)} ({'as announced' if expected else _why_missing(pod, new)})")
        elif _where(pod) in may_be_evicted and (found.phase in OVER or found.was_evicted):
            continue
        elif found.deleted:
            missing.append(f"{_where(pod)} (being deleted, {_by_whom(pod, new)})")
        elif found.phase == "Succeeded":
            completed.append(_where(pod))
        elif found.phase != "Failed":
            unharmed += 1
    return Count(unharmed, tuple(completed), tuple(missing))


def _why_missing(pod: PodStatus, new: Collection[PodStatus]) -> str:
    if pod.mirror:
        changed = any(_where(other) == _where(pod) and other.mirror for other in new)
        return "a static pod, whose manifest was changed meanwhile" if changed else "a static pod, whose manifest is gone"
    if pod.deleted:
        return "its deletion had begun before"
    return _by_whom(pod, new)


def _by_whom(pod: PodStatus, new: Collection[PodStatus]) -> str:
    if not pod.controller:
        return "nothing replaces it"
    for other in new:
        if other.controller_uid == pod.controller_uid:
            return f"replaced by {pod.controller}: {_where(other)}"
    return f"of {pod.controller}, which has not replaced it on this node"


def _key(pod: PodStatus) -> tuple[str, str]:
    """The identity of a pod. A kubelet may recreate the mirror pod of a static pod, with a new UID; the config hash identifies the static
    pod (pkg/kubelet/types: ConfigHashAnnotationKey)."""
    return (_where(pod), pod.config_hash) if pod.mirror and pod.config_hash else ("", pod.uid)


def _ended(pod: PodStatus) -> bool:
    """True if the kubelet ended the pod; not if it ended by itself or was deleted: a pod of an old roll-out, or after a scale-down, reports
    its last phase before it is gone. A kubelet that fails a pod sets a reason (pkg/kubelet: rejectPod, eviction); a pod that is over is
    deleted at once."""
    return pod.was_evicted or (pod.phase == "Failed" and not (pod.deleted and not pod.reason))


def _how(pod: PodStatus) -> str:
    return f"failed ({_reason(pod)})" if pod.phase == "Failed" else f"was {_reason(pod)}"


def _reason(pod: PodStatus) -> str:
    return pod.reason or ("evicted by its kubelet" if pod.was_evicted else "ended" if pod.phase == "Succeeded" else "no reason given")


def _where(pod: PodStatus) -> str:
    return f"{pod.namespace}/{pod.name}"


def _did_not_fit(pod: PodStatus) -> bool:
    return pod.was_evicted or (pod.phase == "Failed" and (pod.reason in _EVICTION_REASONS or pod.reason.startswith(_NO_ROOM)))


def _ran(container: ContainerStatus) -> bool:
    """True if it ran. A container that waits for its next start (CrashLoopBackOff) is not harmed by a start."""
    return container.ready or container.running_since is not None
