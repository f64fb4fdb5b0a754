"""ResourceQuotas: which pods one counts, and what it counts of each. Pure.

Sources (Kubernetes 1.36): pkg/quota/v1/evaluator/core/pods.go (podMatchesScopeFunc, PodUsageFunc, podComputeUsageHelper),
k8s.io/apiserver/pkg/quota/v1/generic/evaluator.go (Matches), pkg/apis/core/v1/helper/qos/qos.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from roles.engine.kube import amounts, resources
from roles.engine.kube.fields import spec_of, status_of
from roles.engine.kube.objects import Object, full_name
from roles.engine.kube.pods import is_over
from roles.engine.kube.resources import View
from roles.engine.kube.selectors import OF_LABELS, of_expressions

#: What makes a pod more than BestEffort.
_OF_QUALITY = ("cpu", "memory")


def counts(quota: Object, pod: Object) -> bool:
    """Whether a quota counts a pod: only if all of its scopes match it."""
    if is_over(pod):
        return False
    spec = spec_of(quota)
    scopes = [{"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ()]
    scopes += (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    return all(_matches(scope, pod) for scope in scopes)


def usage(pod: Object) -> dict[str, Fraction]:
    """What a quota counts of a pod that is created as this one is written, by its names: pods, cpu, requests.cpu, limits.cpu. Raises
    ValueError."""
    found = {"pods": Fraction(1), "count/pods": Fraction(1)}
    for resource, amount in resources.requests(pod, View.SPEC).items():
        found[resource] = found[f"requests.{resource}"] = amount
    return found | {f"limits.{resource}": amount for resource, amount in resources.limits(pod).items()}


def without_room(quota: Object, pod: Object, count: int) -> Iterator[tuple[str, int]]:
    """Why a quota that counts this pod has no room for so many more of them, and how many fit. Raises ValueError."""
    each, status = usage(pod), status_of(quota)
    used = amounts.listed(status.get("used"))
    for resource, limit in amounts.listed(status.get("hard")).items():
        one, taken = each.get(resource), used.get(resource, Fraction(0))
        if one and limit < taken + one * count:
            said, there, takes = (amounts.quantity(resource, amount) for amount in (limit, taken, one))
            why = f"ResourceQuota {full_name(quota)} allows {said}, {there} are used, and each pod takes {takes}"
            yield why, max(0, int((limit - taken) / one))


def _matches(scope: Mapping[str, Any], pod: Object) -> bool:
    spec, name = pod.get("spec") or {}, scope.get("scopeName")
    if name in ("Terminating", "NotTerminating"):
        return (spec.get("activeDeadlineSeconds") is not None) is (name == "Terminating")
    if name in ("BestEffort", "NotBestEffort"):
        return _best_effort(pod) is (name == "BestEffort")
    if name == "PriorityClass":
        own = spec.get("priorityClassName")
        return of_expressions([{**scope, "key": name}], OF_LABELS).matches({name: own} if own else {})
    if name == "CrossNamespacePodAffinity":
        return any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in _affinity_terms(spec))
    return False  # of other objects than pods


def _best_effort(pod: Object) -> bool:
    if known := status_of(pod).get("qosClass"):
        return bool(known == "BestEffort")
    spec = pod["spec"]
    having = [spec] if spec.get("resources") else [one for key in ("containers", "initContainers") for one in spec.get(key) or ()]
    set_of = [amounts.listed((one.get("resources") or {}).get(kind)) for one in having for kind in ("requests", "limits")]
    return not any(found.get(resource, 0) > 0 for found in set_of for resource in _OF_QUALITY)


def _affinity_terms(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for kind in ("podAffinity", "podAntiAffinity"):
        found = (spec.get("affinity") or {}).get(kind) or {}
        yield from found.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        for one in found.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            yield one.get("podAffinityTerm") or {}
