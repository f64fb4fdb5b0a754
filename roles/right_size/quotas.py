"""Whether ResourceQuotas have room for what a run adds: for pods that grow in place, and for the one extra pod of a roll-out. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from roles.engine.kube import Object, amounts, uid
from roles.engine.kube.amounts import parse_quantity
from roles.engine.kube.fields import name_of, namespace_of, status_of
from roles.engine.kube.quotas import counts, usage
from roles.engine.objects import workload_rollout
from roles.pod_resize import PodStep
from roles.right_size.quantities import cpu_text, memory_text

#: How a refusal begins that is about the pod more.
STARTS_FIRST = "its roll-out starts a new pod before an old one ends (maxUnavailable 0)"
_RESOURCES = ("cpu", "memory")


def quota_problems(steps: Iterable[PodStep], namespace: str, quotas: Iterable[Object], pods: Iterable[Object]) -> Iterator[str]:
    """ResourceQuotas of the namespace that all of these steps together exceed. The API server itself checks each pod alone. `pods`: those
    of the steps, and perhaps others. Raises ValueError."""
    there, steps = list(pods), [step for step in steps if step.namespace == namespace]
    for item in quotas:
        more = _growth(steps, item, there)
        yield from _exceeded(item, {name: amount for name, amount in more.items() if amount > 0}, {})


def surge_problems(
    kind: str, item: Object, new: Object, steps: Sequence[PodStep], quotas: Iterable[Object], pods: Iterable[Object]
) -> Iterator[str]:
    """ResourceQuotas at which the roll-out of a workload stops: it starts a pod before it ends one. `new`: a pod of the workload with the
    new resources; `steps`: all that is carried out before. Raises ValueError."""
    if workload_rollout.unavailable(kind, item):
        return
    there, one = list(pods), _of_one(new)
    steps = [step for step in steps if step.namespace == namespace_of(new)]
    for quota in quotas:
        if counts(quota, new):
            for why in _exceeded(quota, one, _growth(steps, quota, there)):
                yield f"{STARTS_FIRST}: {why}; raise the quota, or set template=keep"


def _of_one(pod: Object) -> dict[str, int]:
    """What a new pod counts, as `grown` has it."""
    found = {name.removeprefix("requests."): amount for name, amount in usage(pod).items()}
    return {name: amounts.units(name.removeprefix("limits."), amount) for name, amount in found.items()}


# ---- what steps add


def grown(step: PodStep) -> dict[str, int]:
    """What one pod requests more than before: `cpu` in thousandths, `memory` in bytes, and the same of limits as `limits.cpu`."""
    total: dict[str, int] = {}
    for change in step.changes.values():
        for kind, prefix in (("requests", ""), ("limits", "limits.")):
            for resource in _RESOURCES:
                old, new = ((side.get(kind) or {}).get(resource) for side in (change.before, change.after))
                if new is not None:
                    total[prefix + resource] = total.get(prefix + resource, 0) + units(resource, new) - units(resource, old or "0")
    return total


def _growth(steps: Iterable[PodStep], quota: Object, pods: Iterable[Object]) -> dict[str, int]:
    others = {uid(pod) for pod in pods if not counts(quota, pod)}
    more: dict[str, int] = {}
    for step in steps:
        if step.uid not in others:
            for resource, amount in grown(step).items():
                more[resource] = more.get(resource, 0) + amount
    return more


def _exceeded(quota: Object, more: Mapping[str, int], before: Mapping[str, int]) -> Iterator[str]:
    """`before`: what is added before `more`."""
    status = status_of(quota)
    for name, hard in (status.get("hard") or {}).items():
        resource = name.removeprefix("requests.")
        if resource not in more:
            continue
        plain = resource.removeprefix("limits.")
        total, used = units(plain, hard), units(plain, (status.get("used") or {}).get(name, "0")) + before.get(resource, 0)
        if used + more[resource] > total:
            yield (
                f"the ResourceQuota {name_of(quota)} allows {text_of(plain, total)} of {name}, {text_of(plain, used)} are used, "
                f"and this would add {text_of(plain, more[resource])}"
            )


def units(resource: str, text: object) -> int:
    """CPU in thousandths, all others in whole units, rounded up. Raises ValueError."""
    return amounts.units(resource, parse_quantity(str(text)))


def text_of(resource: str, amount: int) -> str:
    return {"cpu": cpu_text, "memory": memory_text}.get(resource, str)(amount)
