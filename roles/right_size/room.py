"""Whether nodes and ResourceQuotas have room for what a run adds: for pods that grow in place, for pods that are recreated with the new
resources, and for the one extra pod of a roll-out. Pure."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from roles.engine import placement
from roles.engine.kube import Object, resources, uid
from roles.engine.kube.amounts import parse_quantity, units
from roles.engine.kube.fields import containers_of, meta_of, name_of, namespace_of, status_of
from roles.engine.kube.pods import is_over, node_of
from roles.engine.kube.quotas import counts, usage
from roles.engine.kube.resources import View
from roles.engine.objects import workload_rollout
from roles.engine.placement import ClusterView
from roles.pod_resize import PodStep, Resources
from roles.right_size.quantities import text_of

# How a refusal begins that is about the pod more.
_STARTS_FIRST = "its roll-out starts a new pod before an old one ends (maxUnavailable 0)"
_RESOURCES = ("cpu", "memory")


# ---- nodes


def node_problems(steps: Iterable[PodStep], nodes: Iterable[Object], pods: Iterable[Object]) -> Iterator[str]:
    """Nodes that have no room for all of these steps together. `pods`: all of the cluster."""
    more: dict[str, Counter[str]] = {}
    for step in steps:
        more.setdefault(step.node, Counter()).update(grown(step))
    held: dict[str, Counter[str]] = {node: Counter() for node in more}
    for pod in pods:
        if (node := node_of(pod)) in more and not is_over(pod):
            held[node].update(resources.in_units(pod, View.RUNNING))
    for item in nodes:
        name, room = name_of(item), status_of(item).get("allocatable") or {}
        for resource in _RESOURCES if name in more else ():
            total, has, amount = _units(resource, room.get(resource, "0")), held[name][resource], more[name][resource]
            if amount > 0 and has + amount > total:
                total_text, has_text, text = (text_of(resource, one) for one in (total, has, amount))
                yield f"{name} has {total_text} of {resource} for pods, they request {has_text}, and this would add {text}"


def rollout_problems(
    kind: str, item: Object, pods: Sequence[Object], resources: Mapping[str, Resources], view: ClusterView
) -> Iterator[str]:
    """Pods of a workload that could run nowhere if they are recreated with the new resources; and if its roll-out starts a pod before it
    ends one, that one. `view` has its pods as they are before."""
    new = [with_resources(pod, resources) for pod in pods]
    for found in placement.place_all(new, view):
        if found.outcome == "nowhere":
            yield f"recreated with the new resources, {found}"
    if not new or workload_rollout.unavailable(kind, item):
        return
    own = {uid(pod) for pod in new}
    resized = [*new, *(pod for pod in view.pods if uid(pod) not in own)]
    more = [_one_more(pod) for pod in (new if kind == "DaemonSet" else new[:1])]
    for found in placement.place_all(more, replace(view, pods=resized)):
        if found.outcome == "nowhere":
            yield f"{_STARTS_FIRST}: {found}; make room on a node, or set template=keep"


def _one_more(pod: Object) -> Object:
    meta = {key: value for key, value in meta_of(pod).items() if key != "uid"}
    return {**pod, "metadata": {**meta, "name": f"{name_of(pod)}-new"}}


def with_resources(pod: Object, resources: Mapping[str, Resources]) -> Object:
    """The pod as it is created again with the new resources of its containers."""
    changed: Any = copy.deepcopy({key: value for key, value in pod.items() if key != "status"})
    containers: Any = containers_of(changed)
    for one in containers:
        new = resources.get(str(one.get("name"))) or {}
        old = one.get("resources") or {}
        one["resources"] = {**old, **{kind: {**(old.get(kind) or {}), **values} for kind, values in new.items()}}
    return changed  # type: ignore[no-any-return]


# ---- quotas


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
    there, one = list(pods), {_plain(name): units(_base(name), amount) for name, amount in usage(new).items()}
    steps = [step for step in steps if step.namespace == namespace_of(new)]
    for quota in quotas:
        if counts(quota, new):
            for why in _exceeded(quota, one, _growth(steps, quota, there)):
                yield f"{_STARTS_FIRST}: {why}; raise the quota, or set template=keep"


def grown(step: PodStep) -> dict[str, int]:
    """What one pod requests more than before: `cpu` in thousandths, `memory` in bytes, and the same of limits as `limits.cpu`."""
    total = Counter[str]()
    for change in step.changes.values():
        for kind, prefix in (("requests", ""), ("limits", "limits.")):
            for resource in _RESOURCES:
                old, new = ((side.get(kind) or {}).get(resource) for side in (change.before, change.after))
                if new is not None:
                    total[prefix + resource] += _units(resource, new) - _units(resource, old or "0")
    return dict(total)


def _growth(steps: Iterable[PodStep], quota: Object, pods: Iterable[Object]) -> Mapping[str, int]:
    others = {uid(pod) for pod in pods if not counts(quota, pod)}
    more = Counter[str]()
    for step in steps:
        if step.uid not in others:
            more.update(grown(step))
    return more


def _exceeded(quota: Object, more: Mapping[str, int], before: Mapping[str, int]) -> Iterator[str]:
    """`before`: what is added before `more`."""
    status = status_of(quota)
    for name, hard in (status.get("hard") or {}).items():
        if (resource := _plain(name)) not in more:
            continue
        base = _base(resource)
        total, used = _units(base, hard), _units(base, (status.get("used") or {}).get(name, "0")) + before.get(resource, 0)
        if used + more[resource] > total:
            yield (
                f"the ResourceQuota {name_of(quota)} allows {text_of(base, total)} of {name}, {text_of(base, used)} are used, "
                f"and this would add {text_of(base, more[resource])}"
            )


def _plain(name: str) -> str:
    """The name of a quota's resource as `grown` has it."""
    return name.removeprefix("requests.")


def _base(name: str) -> str:
    return _plain(name).removeprefix("limits.")


def _units(resource: str, text: object) -> int:
    """CPU in thousandths, all others in whole units, rounded up. Raises ValueError."""
    return units(resource, parse_quantity(str(text)))
