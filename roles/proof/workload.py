"""The pods of a node before and after a change: none may have been hurt unannounced. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from roles.api import Pod

# The reason that the kubelet gives a pod which it evicts (pkg/kubelet/eviction: Reason).
EVICTED = "Evicted"


def hurt(before: Iterable[Pod], after: Iterable[Pod], announced: Collection[str], *, evictions_allowed: bool = False) -> list[str]:
    """What happened to pods that the plan had not announced (`announced` are pod names)."""
    known = {pod.uid: pod for pod in before}
    problems = []
    for pod in after:
        old = known.get(pod.uid)
        if pod.name in announced:
            continue
        where = f"{pod.namespace}/{pod.name}"
        if pod.phase == "Failed" and evictions_allowed and pod.reason == EVICTED:
            continue
        if pod.phase == "Failed" and (old is None or old.phase != "Failed"):
            problems.append(f"pod {where} failed ({pod.reason or 'no reason given'})")
        for container in pod.containers:
            was = next((c for c in old.containers if c.name == container.name), None) if old else None
            if was and (container.restarts > was.restarts or (was.id and container.id and was.id != container.id)):
                problems.append(f"pod {where}: container {container.name} was restarted")
    return problems


def evicted(before: Iterable[Pod], after: Iterable[Pod]) -> list[str]:
    """Pods that were evicted between the two, as NAMESPACE/NAME."""
    already = {pod.uid for pod in before if pod.reason == EVICTED}
    return [f"{pod.namespace}/{pod.name}" for pod in after if pod.reason == EVICTED and pod.uid not in already]
