"""Whether maxReplicas can exist: quotas, limit ranges, and room on the nodes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from roles.engine.autoscaling.decide import Scene
from roles.engine.kubelet import amounts
from roles.engine.object_changes import Object, is_ending, is_over, namespace_and_name
from roles.engine.placement import ClusterView, place_all
from roles.engine.placement import requests as pod_requests

if TYPE_CHECKING:
    from roles.engine.autoscaling.read import World

#: The fields of a problem: rule, severity, why, way out, further objects.
Found = tuple[str, Literal["critical", "warning", "note"], str, str, str]
#: More pods than these are not placed one by one: what has room for so many has room.
MOST_PLACED = 60


def template_of(scene: Scene, item: Object | None) -> dict[str, Any] | None:
    """A pod as the target's template creates it; None if the target has no pod template."""
    template = ((item or {}).get("spec") or {}).get("template")
    if not isinstance(template, Mapping):
        return None
    metadata = template.get("metadata") or {}
    kept = {key: metadata[key] for key in ("labels", "annotations") if metadata.get(key)}
    return {"metadata": {"namespace": scene.autoscaler.namespace, "name": "new", **kept}, "spec": template.get("spec") or {}}


def more_pods(scene: Scene) -> int:
    """How many pods maxReplicas is away from what exists."""
    alive = sum(not is_over(pod) and not is_ending(pod) for pod in scene.pods)
    return max(0, scene.autoscaler.maximum - alive)


# ---- quotas


def quota_problems(scene: Scene, world: World) -> Iterator[Found]:
    """Quotas that end before maxReplicas."""
    pod = _pod(scene, world)
    count = more_pods(scene)
    if pod is None or not count:
        return
    try:
        each = _counted(pod)
    except ValueError:
        return
    for quota in world.quotas or ():
        namespace, name = namespace_and_name(quota)
        # A scope counts only some pods, and which ones is not decided here.
        if (
            namespace != scene.autoscaler.namespace
            or (quota.get("spec") or {}).get("scopes")
            or (quota.get("spec") or {}).get("scopeSelector")
        ):
            continue
        status = quota.get("status") or {}
        try:
            hard, used = amounts.listed(status.get("hard")), amounts.listed(status.get("used"))
        except ValueError:
            continue
        for resource, limit in hard.items():
            one = each.get(resource)
            if not one or limit >= used.get(resource, Fraction(0)) + one * count:
                continue
            fits = max(0, int((limit - used.get(resource, Fraction(0))) / one))
            yield (
                "quota", "warning",
                f"ResourceQuota {namespace}/{name} allows {float(limit):g} {resource}, {float(used.get(resource, 0)):g} are used, "
                f"and each pod "
                f"takes {float(one):g}: {fits} more fit, and maxReplicas {scene.autoscaler.maximum} needs {count} more",
                "raise the quota, or lower maxReplicas", f"ResourceQuota {namespace}/{name}",
            )  # fmt: skip


def _pod(scene: Scene, world: World) -> dict[str, Any] | None:
    target = world.targets.get(scene.autoscaler.key)
    return template_of(scene, target.item if target else None)


def _counted(pod: Object) -> dict[str, Fraction]:
    """What one pod counts in a quota (pkg/quota/v1/evaluator/core/pods.go). Raises ValueError."""
    found: dict[str, Fraction] = {"pods": Fraction(1), "count/pods": Fraction(1)}
    for resource, amount in pod_requests({"spec": pod["spec"]}).items():
        found[resource] = found[f"requests.{resource}"] = amount
    for one in pod["spec"].get("containers") or ():
        for resource, amount in amounts.listed((one.get("resources") or {}).get("limits")).items():
            found[f"limits.{resource}"] = found.get(f"limits.{resource}", Fraction(0)) + amount
    return found


# ---- limit ranges


def limit_problems(scene: Scene, world: World) -> Iterator[Found]:
    """Limit ranges that refuse a new pod of the template (plugin/pkg/admission/limitranger)."""
    pod = _pod(scene, world)
    if pod is None:
        return
    for item in world.limit_ranges or ():
        namespace, name = namespace_and_name(item)
        if namespace != scene.autoscaler.namespace:
            continue
        for rule in (item.get("spec") or {}).get("limits") or ():
            for why in _refused(pod, rule):
                yield (
                    "limit-range", "warning", f"LimitRange {namespace}/{name} refuses new pods: {why}",
                    "correct the template's resources, or the LimitRange", f"LimitRange {namespace}/{name}",
                )  # fmt: skip


def _refused(pod: Object, rule: Mapping[str, Any]) -> Iterator[str]:
    if rule.get("type") != "Container":
        return
    try:
        most, least = amounts.listed(rule.get("max")), amounts.listed(rule.get("min"))
        for one in pod["spec"].get("containers") or ():
            resources = one.get("resources") or {}
            requests, limits = amounts.listed(resources.get("requests")), amounts.listed(resources.get("limits"))
            for resource, limit in most.items():
                has = limits.get(resource, requests.get(resource))
                if has is not None and has > limit:
                    yield f"container {one.get('name')} has {float(has):g} {resource}, and at most {float(limit):g} are allowed"
            for resource, limit in least.items():
                has = requests.get(resource)
                if has is not None and has < limit:
                    yield f"container {one.get('name')} requests {float(has):g} {resource}, and at least {float(limit):g} are needed"
    except ValueError:
        return


# ---- nodes


def room_problem(scene: Scene, item: Object | None, view: ClusterView) -> Found | None:
    """Pods up to maxReplicas that no node can take. None too if daytwo cannot judge it."""
    pod = template_of(scene, item)
    count = min(more_pods(scene), MOST_PLACED)
    if pod is None or not count:
        return None
    wanted = [{**pod, "metadata": {**pod["metadata"], "name": f"{scene.autoscaler.target.name}-new-{number}"}} for number in range(count)]
    try:
        found = place_all(wanted, view)
    except ValueError:
        return None
    nowhere = [one for one in found if one.outcome == "nowhere"]
    if not nowhere:
        return None
    fits = _placed(found)
    why = str(nowhere[0]).partition(": ")[2]
    return (
        "no-room", "warning",
        f"maxReplicas {scene.autoscaler.maximum} needs {count} more pods, and the nodes have room for {fits}: {why}",
        "lower maxReplicas, add nodes, or request less", f"{scene.autoscaler.target.kind} "
        f"{scene.autoscaler.namespace}/{scene.autoscaler.target.name}",
    )  # fmt: skip


def _placed(found: Sequence[Any]) -> int:
    return sum(one.outcome != "nowhere" for one in found)
