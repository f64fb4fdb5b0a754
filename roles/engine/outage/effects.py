"""What a drain means beyond each pod: single replicas, webhooks without a backend, nodes that are left. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from roles.engine.detail import counted
from roles.engine.disruption import DisruptionObjects, webhooks
from roles.engine.kube import Object, full_name, is_ready, uid
from roles.engine.kube.fields import name_of, spec_of
from roles.engine.outage.model import PodFate

#: Keys that limit what a webhook is asked about; daytwo does not evaluate them.
_LIMITS = ("namespaceSelector", "objectSelector", "matchConditions")


def single_replicas(pods: Sequence[PodFate]) -> list[str]:
    """Workloads that would be without a pod for some time."""
    found = [
        f"{one.workload} has one replica: it is away from the end of {one.name} until its new pod is Ready"
        + ("" if one.workload.kind != "Deployment" else " (--data surge=true: a second pod first)")
        for one in pods
        if one.fate in ("evicted", "deleted") and one.workload is not None and one.workload.counted and one.workload.replicas == 1
    ]
    by_workload: dict[str, list[PodFate]] = {}
    for one in pods:
        if one.leaves and one.workload is not None and one.workload.counted and one.workload.replicas > 1:
            by_workload.setdefault(one.workload.uid, []).append(one)
    for group in by_workload.values():
        workload = group[0].workload
        if workload is not None and len(group) >= workload.replicas and not any(one.budgets for one in group):
            found.append(f"all {len(group)} pods of {workload} are on these nodes, and no budget limits their eviction")
    return list(dict.fromkeys(found))


def webhook_problems(pods: Sequence[PodFate], live: DisruptionObjects) -> tuple[list[str], list[str]]:
    """Refusals and warnings about webhooks whose only backends leave. With failurePolicy Fail the API server refuses what such a webhook
    is asked about, until a backend serves again."""
    leaving = {one.uid: one for one in pods if one.leaves}
    refusals, warnings = [], []
    for one in webhooks(live):
        if not one.backends or not all(uid(pod) in leaving for pod in one.backends):
            continue
        names = ", ".join(sorted(full_name(pod) for pod in one.backends))
        what = f"webhook {one.hook.get('name')} of {one.where} (failurePolicy Fail): its only backends leave ({names})"
        gap = any(pod.fate != "surged" and _alone(pod) for pod in (leaving[uid(pod)] for pod in one.backends))
        if not gap:
            warnings.append(f"{what}, one after the other: a new one must be Ready before the last one goes")
        elif one.asks_about_pods and not any(one.hook.get(key) for key in _LIMITS):
            refusals.append(
                f"{what}; until a new one is Ready the API server creates no pods, so the new one can never come: "
                "scale it to 2 replicas, or use --data surge=true"
            )
        else:
            warnings.append(f"{what}; until a new one is Ready, the API server refuses requests that this webhook is asked about")
    return refusals, warnings


def _alone(one: PodFate) -> bool:
    return one.workload is None or one.workload.replicas <= 1


def nodes_problem(nodes: Collection[Object], names: Collection[str], homeless: Sequence[PodFate] = ()) -> list[str]:
    """Refusals about the nodes themselves. `homeless`: the pods that leave, and whose replacements must not stay Pending."""
    found = [
        f"{name_of(item)} is not Ready: its kubelet may not run, and then its pods never end; repair it first, "
        "or, if the machine is off for good: kubectl delete node"
        for item in nodes
        if name_of(item) in names and not is_ready(item)
    ]
    left = [item for item in nodes if name_of(item) not in names and is_ready(item) and not spec_of(item).get("unschedulable")]
    if homeless and not left:
        found.append(
            f"no other node is Ready and takes pods: the replacements of {counted(len(homeless), 'pod')} that leave ({homeless[0].name}"
            f"{', ...' if len(homeless) > 1 else ''}) would stay Pending; drain fewer nodes, or allow it with --data allow_pending=true"
        )
    return found
