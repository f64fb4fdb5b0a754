"""Whether ResourceQuotas have room for what a run adds: for pods that grow in place, and for the one extra pod of a roll-out. Pure.

Sources: pkg/quota/v1/evaluator/core/pods.go (podMatchesScopeFunc, podUsageHelper), pkg/controller/deployment/util (ResolveFenceposts).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from roles.engine.kube import Object, amounts, resources
from roles.engine.kube.amounts import parse_quantity, scaled
from roles.engine.kube.pods import is_over
from roles.engine.kube.workloads import replicas
from roles.pod_resize import PodStep
from roles.right_size.quantities import cpu_text, memory_text

#: How a refusal begins that is about the pod more.
STARTS_FIRST = "its roll-out starts a new pod before an old one ends (maxUnavailable 0)"
_RESOURCES = ("cpu", "memory")
#: What one pod counts of resources that are only a number.
_ONE_EACH = ("pods", "count/pods")


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
    if not starts_first(kind, item):
        return
    there, one = list(pods), _of_one(new)
    steps = [step for step in steps if step.namespace == new["metadata"].get("namespace")]
    for quota in quotas:
        if counts(quota, new):
            for why in _exceeded(quota, one, _growth(steps, quota, there)):
                yield f"{STARTS_FIRST}: {why}; raise the quota, or set template=keep"


def starts_first(kind: str, item: Object) -> bool:
    """Whether a roll-out ends no old pod before a new one is available, so that it needs room for one pod more."""
    spec = item.get("spec") or {}
    strategy = spec.get("strategy" if kind == "Deployment" else "updateStrategy") or {}
    rolling = strategy.get("rollingUpdate") or {}
    if kind == "DaemonSet":
        return rolling.get("maxUnavailable") in (0, "0%") and rolling.get("maxSurge") not in (None, 0, "0%")
    if kind != "Deployment" or strategy.get("type") == "Recreate":
        return False
    count = replicas(kind, item)
    surge = scaled(rolling.get("maxSurge", "25%"), count, up=True, otherwise=count)
    # With neither, one pod may be missing.
    return surge > 0 and scaled(rolling.get("maxUnavailable", "25%"), count, up=False, otherwise=count) == 0


# ---- what a pod counts


def counts(quota: Object, pod: Object) -> bool:
    """Whether a quota counts a pod: only if all of its scopes match it."""
    if is_over(pod):
        return False
    spec = quota.get("spec") or {}
    scopes = [{"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ()]
    scopes += (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    return all(_matches(scope, pod) for scope in scopes)


def _matches(scope: Mapping[str, Any], pod: Object) -> bool:
    spec, name = pod.get("spec") or {}, scope.get("scopeName")
    if name in ("Terminating", "NotTerminating"):
        return (spec.get("activeDeadlineSeconds") is not None) is (name == "Terminating")
    if name in ("BestEffort", "NotBestEffort"):
        return _best_effort(pod) is (name == "BestEffort")
    if name == "PriorityClass":
        own, values = str(spec.get("priorityClassName") or ""), scope.get("values") or ()
        return {
            "Exists": bool(own),
            "DoesNotExist": not own,
            "In": bool(own) and own in values,
            "NotIn": not own or own not in values,
        }.get(str(scope.get("operator")), False)
    if name == "CrossNamespacePodAffinity":
        return any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in _affinity_terms(spec))
    return False  # of other objects than pods


def _best_effort(pod: Object) -> bool:
    if known := (pod.get("status") or {}).get("qosClass"):
        return bool(known == "BestEffort")
    spec = pod["spec"]
    having = [spec, *(one for key in ("containers", "initContainers") for one in spec.get(key) or ())]
    set_of = [(one.get("resources") or {}).get(kind) or {} for one in having for kind in ("requests", "limits")]
    return not any(resource in found for found in set_of for resource in _RESOURCES)


def _affinity_terms(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for kind in ("podAffinity", "podAntiAffinity"):
        found = (spec.get("affinity") or {}).get(kind) or {}
        yield from found.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        for one in found.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            yield one.get("podAffinityTerm") or {}


def _of_one(pod: Object) -> dict[str, int]:
    """What a pod counts, of the resources that this module knows: CPU in thousandths, memory in bytes, of limits as `limits.cpu`. Raises
    ValueError."""
    found = dict.fromkeys(_ONE_EACH, 1)
    for resource, amount in resources.requests({"spec": pod["spec"]}).items():
        if resource in _RESOURCES:
            found[resource] = amounts.units(resource, amount)
    for one in pod["spec"].get("containers") or ():
        for resource, amount in amounts.listed((one.get("resources") or {}).get("limits")).items():
            if resource in _RESOURCES:
                found[f"limits.{resource}"] = found.get(f"limits.{resource}", 0) + amounts.units(resource, amount)
    return found


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
    others = {str(pod["metadata"].get("uid")) for pod in pods if not counts(quota, pod)}
    more: dict[str, int] = {}
    for step in steps:
        if step.uid not in others:
            for resource, amount in grown(step).items():
                more[resource] = more.get(resource, 0) + amount
    return more


def _exceeded(quota: Object, more: Mapping[str, int], before: Mapping[str, int]) -> Iterator[str]:
    """`before`: what is added before `more`."""
    status = quota.get("status") or {}
    for name, hard in (status.get("hard") or {}).items():
        resource = name.removeprefix("requests.")
        if resource not in more:
            continue
        plain = resource.removeprefix("limits.")
        total, used = units(plain, hard), units(plain, (status.get("used") or {}).get(name, "0")) + before.get(resource, 0)
        if used + more[resource] > total:
            yield (
                f"the ResourceQuota {quota['metadata']['name']} allows {text_of(plain, total)} of {name}, {text_of(plain, used)} are used, "
                f"and this would add {text_of(plain, more[resource])}"
            )


def units(resource: str, text: object) -> int:
    """CPU in thousandths, all others in whole units, rounded up. Raises ValueError."""
    amount = parse_quantity(str(text)) * (1000 if resource == "cpu" else 1)
    return -(-amount.numerator // amount.denominator)


def text_of(resource: str, amount: int) -> str:
    return {"cpu": cpu_text, "memory": memory_text}.get(resource, str)(amount)
