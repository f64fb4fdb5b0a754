"""The pods of a node before and after a change: none may have been hurt unannounced. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from roles.api import Pod


def hurt(before: Iterable[Pod], after: Iterable[Pod], announced: Collection[str]) -> list[str]:
    """What happened to pods that the plan had not announced (`announced` are pod names)."""
    known = {pod.uid: pod for pod in before}
    problems = []
    for pod in after:
        old = known.get(pod.uid)
        if pod.name in announced:
            continue
        where = f"{pod.namespace}/{pod.name}"
        if pod.phase == "Failed" and (old is None or old.phase != "Failed"):
            problems.append(f"pod {where} failed ({pod.reason or 'no reason given'})")
        for container in pod.containers:
            was = next((c for c in old.containers if c.name == container.name), None) if old else None
            if was and (container.restarts > was.restarts or (was.id and container.id and was.id != container.id)):
                problems.append(f"pod {where}: container {container.name} was restarted")
    return problems
