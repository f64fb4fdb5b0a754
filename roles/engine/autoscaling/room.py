"""Whether maxReplicas can exist: quotas, limit ranges, and room on the nodes. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from roles.engine import kube
from roles.engine.autoscaling.created import CONTAINERS, as_created, refused
from roles.engine.autoscaling.decide import ScalingScene
from roles.engine.autoscaling.rules import ScalingRule
from roles.engine.findings import Finding
from roles.engine.kube import Object, namespace_and_name
from roles.engine.kube.fields import meta_of, name_of, spec_of, status_of, with_meta
from roles.engine.kube.pods import is_alive, node_of
from roles.engine.kube.quotas import counts, without_room
from roles.engine.placement import ClusterView, place_all

if TYPE_CHECKING:
    from roles.engine.autoscaling.read import ScalingWorld

#: More pods than these are not placed one by one: what has room for so many has room.
MOST_PLACED = 60
_FEW_REASONS = 3
# Of these, a quota wants a value of each container.
_OF_EACH = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")


def template_of(scene: ScalingScene, item: Object | None, world: ScalingWorld) -> dict[str, Any] | None:
    """A pod as it is created from the target's template; None if the target has no pod template."""
    template = spec_of(item or {}).get("template")
    if not isinstance(template, Mapping):
        return None
    metadata = meta_of(template)
    kept = {key: metadata[key] for key in ("labels", "annotations") if metadata.get(key)}
    namespace = scene.autoscaler.namespace
    ranges = [one for one in world.limit_ranges or () if namespace_and_name(one)[0] == namespace]
    return {"metadata": {"namespace": namespace, "name": "new", **kept}, "spec": as_created(spec_of(template), ranges)}


def more_pods(scene: ScalingScene) -> int:
    """How many pods maxReplicas is away from what exists."""
    return max(0, scene.autoscaler.maximum - len(alive(scene)))


def alive(scene: ScalingScene) -> list[Object]:
    """The pods that live, also those without a node."""
    return list(filter(is_alive, scene.pods))


# ---- quotas


def quota_problems(scene: ScalingScene, world: ScalingWorld) -> Iterator[Finding]:
    """Quotas that end before maxReplicas."""
    pod = _pod(scene, world)
    count = more_pods(scene)
    if pod is None or not count:
        return
    for quota in world.quotas or ():
        namespace, name = namespace_and_name(quota)
        if namespace != scene.autoscaler.namespace or not counts(quota, pod):
            continue
        try:
            lacks = list(without_room(quota, pod, count))
        except ValueError:
            continue
        for resource in status_of(quota).get("hard") or ():
            if without := _unnamed(pod, resource):
                yield ScalingRule.QUOTA.found(
                    (str(scene.autoscaler), f"ResourceQuota {namespace}/{name}"),
                    f"ResourceQuota {namespace}/{name} refuses new pods: it limits {resource}, and {' and '.join(without)} has none",
                    f"set it in the template of {scene.autoscaler.target.kind} {namespace}/{scene.autoscaler.target.name}, or give the "
                    "namespace a LimitRange with a default",
                )  # fmt: skip
        for why, fits in lacks:
            yield ScalingRule.QUOTA.found(
                (str(scene.autoscaler), f"ResourceQuota {namespace}/{name}"),
                f"{why}: {fits} more fit, and maxReplicas {scene.autoscaler.maximum} needs {count} more",
            )


def _unnamed(pod: Object, resource: str) -> list[str]:
    """The containers without a resource that a quota asks of each (pods.go, Constraints)."""
    if resource not in _OF_EACH or (spec_of(pod).get("resources") or {}):
        return []
    base, key = resource.rpartition(".")[2], "limits" if resource.startswith("limits.") else "requests"
    return [
        f"container {one.get('name')}"
        for kind in CONTAINERS
        for one in spec_of(pod).get(kind) or ()
        if base not in ((one.get("resources") or {}).get(key) or {})
    ]


def _pod(scene: ScalingScene, world: ScalingWorld) -> dict[str, Any] | None:
    target = world.targets.get(scene.autoscaler.key)
    return template_of(scene, target.item if target else None, world)


# ---- limit ranges


def limit_problems(scene: ScalingScene, world: ScalingWorld) -> Iterator[Finding]:
    """Limit ranges that refuse a new pod of the template (plugin/pkg/admission/limitranger)."""
    pod = _pod(scene, world)
    if pod is None:
        return
    for item in world.limit_ranges or ():
        namespace, name = namespace_and_name(item)
        if namespace != scene.autoscaler.namespace:
            continue
        for rule in spec_of(item).get("limits") or ():
            for why in refused(pod, rule):
                place = f"LimitRange {namespace}/{name}"
                yield ScalingRule.LIMIT_RANGE.found((str(scene.autoscaler), place), f"{place} refuses new pods: {why}")


# ---- nodes


def room_problem(scene: ScalingScene, world: ScalingWorld, view: ClusterView) -> Iterator[Finding]:
    """Pods up to maxReplicas that no node can take, also those that exist and wait for a node. Nothing too if daytwo cannot judge it;
    their volumes are not judged."""
    pod = _pod(scene, world)
    waiting = [one for one in alive(scene) if not node_of(one)]
    count = min(more_pods(scene) + len(waiting), MOST_PLACED)
    if pod is None or not count:
        return
    wanted = [with_meta(pod, name=f"{scene.autoscaler.target.name}-new-{number}") for number in range(count)]
    own = {kube.uid(one) for one in waiting}
    view = replace(view, pods=[one for one in view.pods if kube.uid(one) not in own])
    try:
        fits, why = _on_each_node(wanted, view)
        if fits >= count:
            fits, why = _together(wanted, view)
    except ValueError:
        return
    if fits < count:
        yield ScalingRule.NO_ROOM.found(
            (str(scene.autoscaler), f"{scene.autoscaler.target.kind} {scene.autoscaler.namespace}/{scene.autoscaler.target.name}"),
            f"maxReplicas {scene.autoscaler.maximum} needs {count} more pods"
            + (f" on nodes ({len(waiting)} of them exist, without one)" if waiting else "")
            + f", and the nodes have room for {fits}: {why}",
        )  # fmt: skip


def _on_each_node(wanted: Sequence[Object], view: ClusterView) -> tuple[int, str]:
    """How many of these like pods all nodes take at most, each node by itself; and why no more, most frequent reason first. What needs a
    look at several nodes is left out."""
    alone = [{**pod, "spec": _without_neighbours(spec_of(pod))} for pod in wanted]
    by_node: dict[str, list[Object]] = {}
    for pod in view.pods:
        by_node.setdefault(node_of(pod), []).append(pod)
    fits, reasons = 0, Counter[str]()
    for node in view.nodes:
        found = place_all(alone, replace(view, nodes=[node], pods=by_node.get(name_of(node), [])))
        fits += _placed(found)
        if fits >= len(wanted):
            return fits, ""
        full = next(one for one in found if one.outcome == "nowhere")
        reasons.update([*dict.fromkeys(why for verdict in full.nodes.values() for why in verdict.why)] or full.why)
    return fits, "; ".join(f"{count} x {why}" if count > 1 else why for why, count in reasons.most_common(_FEW_REASONS))


def _without_neighbours(spec: Mapping[str, Any]) -> dict[str, Any]:
    affinity = {key: value for key, value in (spec.get("affinity") or {}).items() if key != "podAffinity"}
    return {**{key: value for key, value in spec.items() if key not in ("affinity", "topologySpreadConstraints")}, "affinity": affinity}


def _together(wanted: Sequence[Object], view: ClusterView) -> tuple[int, str]:
    """The same on all nodes at once: here spread and affinity count. Where it depends on the order, a pod counts as placed."""
    found = place_all(wanted, view)
    nowhere = [one for one in found if one.outcome == "nowhere"]
    return _placed(found), str(nowhere[0]).partition(": ")[2] if nowhere else ""


def _placed(found: Sequence[Any]) -> int:
    return sum(one.outcome != "nowhere" for one in found)
