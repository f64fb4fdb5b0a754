"""The rules about pods and workloads: what would not come back after an eviction, comes back to the same node, or has no budget. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from roles.engine.bounds import moment, span
from roles.engine.disruption.budgets import BudgetState, budgets_of
from roles.engine.disruption.lint_budgets import alive, name_of
from roles.engine.disruption.owners import Controller, Unscaled
from roles.engine.disruption.problem import Scene, few
from roles.engine.disruption.rules import DisruptionRule
from roles.engine.disruption.webhooks import Webhook, webhooks
from roles.engine.findings import Finding, Severity
from roles.engine.folding import counted
from roles.engine.kube import Object, full_name, is_ending, is_ready, namespace_and_name, owner_refs
from roles.engine.kube.fields import ends_at, finalizers_of, labels_of, spec_of, volumes_of
from roles.engine.kube.matching import CORDON, UNSCHEDULABLE, untolerated
from roles.engine.kube.pods import is_alive, is_over, node_of, stays_in_a_drain
from roles.engine.kube.selectors import label_selector
from roles.engine.placement import Move, PodVolume, Storage

HOSTNAME = "kubernetes.io/hostname"
#: How long after its grace period a pod that is ending counts as stuck.
_STUCK_ENDING = span(60)


def workload_problems(scene: Scene) -> Iterator[Finding]:
    """All problems that are not of one budget."""
    pods = [pod for pod in scene.live.of("Pod") if not stays_in_a_drain(pod)]
    yield from _unprotected(pods, scene)
    for state in scene.states:
        yield from _no_node_left(state, scene)
    yield from _tied(pods, scene)
    yield from _slow(pods, scene)
    yield from _webhooks(scene)
    yield from _comes_back(pods)


# ---- workloads without a budget, or on one node


def _unprotected(pods: Sequence[Object], scene: Scene) -> Iterator[Finding]:
    workloads: dict[str, tuple[Controller, list[Object]]] = {}
    for pod in pods:
        if is_alive(pod) and (one := _controller(pod, scene)) is not None:
            workloads.setdefault(one.uid, (one, []))[1].append(pod)
    alone: dict[str, list[str]] = {}
    bare: dict[str, list[str]] = {}
    for one, own in workloads.values():
        if one.replicas == 1:
            alone.setdefault(one.namespace, []).append(str(one))
        elif one.replicas > 1 and not any(budgets_of(pod, scene.states) for pod in own[:1]):
            bare.setdefault(one.namespace, []).append(str(one))
        nodes = {node_of(pod) for pod in own}
        if one.replicas > 1 and len(own) > 1 and len(nodes) == 1 and nodes != {""} and _workers(scene) > 1:
            (node,) = nodes
            yield DisruptionRule.UNPROTECTED.found(
                (str(one),), f"all its {len(own)} pods are on node {node}: a drain, or a failure, takes all of them",
                "spread them: topologySpreadConstraints or anti-affinity by kubernetes.io/hostname, then restart its roll-out",
                Severity.warning,
            )  # fmt: skip
    for namespace, names in bare.items():
        yield DisruptionRule.UNPROTECTED.found(
            tuple(sorted(names)),
            f"namespace {namespace}: {counted(len(names), 'workload')} with more than one replica and no budget ({few(names)}): "
            "a drain may take all replicas at once", "give each a budget: deploys/disruption_budgets.py",
        )  # fmt: skip
    for namespace, names in alone.items():
        yield DisruptionRule.UNPROTECTED.found(
            tuple(sorted(names)),
            f"namespace {namespace}: {counted(len(names), 'workload')} with one replica ({few(names)}): away while the pod moves",
            "run 2 replicas if that matters",
        )  # fmt: skip


def _controller(pod: Object, scene: Scene) -> Controller | None:
    try:
        return scene.live.controller_of(pod)
    except Unscaled:
        return None


def _workers(scene: Scene) -> int:
    """Nodes that take pods; 2 if they are not known."""
    return sum(not _unschedulable(node) for node in scene.live.of("Node")) if scene.has("Node") else 2


def _unschedulable(node: Object) -> bool:
    return bool(spec_of(node).get("unschedulable"))


def _no_node_left(state: BudgetState, scene: Scene) -> Iterator[Finding]:
    """One pod per node, and as many pods as nodes: with one node cordoned, a replacement has no place."""
    if not scene.has("Node"):
        return
    for one in state.controllers:
        pod = next((pod for pod in alive(state) if _controller(pod, scene) == one and _own_per_node(pod)), None)
        if pod is None:
            continue
        nodes = [namespace_and_name(node)[1] for node in scene.live.of("Node") if _takes(node, pod)]
        if one.replicas >= len(nodes):
            yield DisruptionRule.NO_NODE_LEFT.found(
                (name_of(state), str(one)),
                f"{one} runs one pod per node (required anti-affinity by {HOSTNAME}), {counted(one.replicas, 'replica')} on "
                f"{counted(len(nodes), 'node')} that may take them. With one of these cordoned, a replacement stays Pending, and the "
                "budget is not met again before the uncordon. Resources and other affinities are not judged here",
            )  # fmt: skip


def _own_per_node(pod: Object) -> bool:
    """The pod refuses nodes that have a pod with its own labels."""
    affinity = (spec_of(pod).get("affinity") or {}).get("podAntiAffinity") or {}
    for term in affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ():
        if term.get("topologyKey") == HOSTNAME and label_selector(term.get("labelSelector")).matches(labels_of(pod)):
            return True
    return False


def _takes(node: Object, pod: Object) -> bool:
    """The node is Ready and takes the pod, as far as cordon, taints and nodeSelector say."""
    spec, labels = spec_of(node), labels_of(node)
    if spec.get("unschedulable") or not is_ready(node):
        return False
    wanted = spec_of(pod).get("nodeSelector") or {}
    return untolerated(pod, spec.get("taints") or ()) is None and all(labels.get(key) == value for key, value in wanted.items())


# ---- pods that cannot move


def _tied(pods: Sequence[Object], scene: Scene) -> Iterator[Finding]:
    storage = Storage(scene.live.of)
    local: dict[str, list[str]] = {}
    once: dict[str, list[str]] = {}
    paths: dict[str, list[str]] = {}
    users: dict[tuple[str, str], tuple[PodVolume, list[Object]]] = {}
    for pod in filter(is_alive, pods):
        namespace, name = namespace_and_name(pod)
        for path in (one["hostPath"].get("path") for one in volumes_of(pod) if one.get("hostPath")):
            paths.setdefault(namespace, []).append(f"{name} ({path})")
        for volume in storage.volumes(pod):
            if volume.move is Move.NODE_LOCAL:
                local.setdefault(full_name(pod), []).append(volume.name)
            elif volume.move is Move.LEFT_BEHIND:
                paths.setdefault(namespace, []).append(f"{name} ({volume})")
            elif volume.move in (Move.ONE_NODE, Move.ONE_POD):
                once.setdefault(namespace, []).append(name)
            if volume.waits:
                users.setdefault((node_of(pod), volume.key), (volume, []))[1].append(pod)
    for pod_name, names in local.items():
        yield DisruptionRule.TIED_TO_NODE.found(
            (f"Pod {pod_name}",),
            f"its data is on its node (local volume {few(names)}): its replacement stays Pending until that node is uncordoned",
            "drain its node only for a short time, or move the data first",
        )  # fmt: skip
    yield from _per_namespace(
        paths, "use hostPath: a replacement finds another directory on its new node", "check that they keep no data there"
    )
    yield from _per_namespace(
        once, "use a volume that only one node can attach: a replacement waits until the old node has detached it",
        "drain them last, and wait for each",
    )  # fmt: skip
    for (node, _), (volume, together) in users.items():
        if node and len(together) > 1:
            yield _sharing(node, volume, together, scene)


def _sharing(node: str, volume: PodVolume, pods: Sequence[Object], scene: Scene) -> Finding:
    """Pods of one node with a volume that only one node can have."""
    names = few([full_name(pod) for pod in pods])
    asking = [(state, sum(state.covers(pod) and state.is_healthy(pod) for pod in pods)) for state in scene.states]
    kept = [state for state, number in asking if not state.lets_go(number) and not state.kept]
    deadlock = f"; {few([name_of(state) for state in kept])} never lets all of them go, so no drain of it can end" if kept else ""
    return DisruptionRule.TIED_TO_NODE.found(
        tuple(f"Pod {full_name(pod)}" for pod in pods),
        f"{names} share {volume} on node {node}, and another node gets it when all of them have left: a drain evicts all at once{deadlock}",
        f"run one pod with this volume, or let the budget allow {len(pods)} at a time (all of them are away then)",
        Severity.critical if kept else None,
    )  # fmt: skip


def _per_namespace(found: Mapping[str, Sequence[str]], why: str, way_out: str) -> Iterator[Finding]:
    for namespace, names in found.items():
        own = sorted(set(names))
        objects = tuple(dict.fromkeys(f"Pod {namespace}/{name.partition(' ')[0]}" for name in own))
        yield DisruptionRule.TIED_TO_NODE.found(objects, f"namespace {namespace}: pods {few(own)} {why}", way_out, Severity.note)


# ---- ending


def _slow(pods: Sequence[Object], scene: Scene) -> Iterator[Finding]:
    slow: dict[tuple[str, int], list[str]] = {}
    for pod in pods:
        namespace, name = namespace_and_name(pod)
        grace = int(spec_of(pod).get("terminationGracePeriodSeconds") or 0)
        if is_alive(pod) and grace > scene.drain_timeout:
            slow.setdefault((namespace, grace), []).append(name)
        over = scene.now - (moment(ends_at(pod)) or scene.now)
        if is_ending(pod) and over > _STUCK_ENDING:
            finalizers = few(finalizers_of(pod))
            why = f"the kubelet of node {node_of(pod)} has not ended it"
            yield DisruptionRule.SLOW_TO_END.found(
                (f"Pod {full_name(pod)}",),
                f"it should be gone for {int(over.total_seconds())} s, and is not: "
                + (f"its finalizers wait for their controllers ({finalizers})" if finalizers else why),
                "let the controller of the finalizer finish" if finalizers else "check that kubelet and its container runtime",
            )  # fmt: skip
    for (namespace, grace), names in slow.items():
        yield DisruptionRule.SLOW_TO_END.found(
            tuple(f"Pod {namespace}/{name}" for name in sorted(names)),
            f"namespace {namespace}: {few(names)} may take {grace} s to end (terminationGracePeriodSeconds), and a drain waits "
            f"{scene.drain_timeout} s by default",
            f"drain with a longer drain_timeout (above {grace}), or give them less time with max_grace",
            Severity.note,
        )  # fmt: skip


# ---- webhooks


def _webhooks(scene: Scene) -> Iterator[Finding]:
    """Webhooks that must answer, and whose only pods are on one node."""
    for one in webhooks(scene.live):
        nodes = {node_of(pod) for pod in one.backends}
        if len(nodes) == 1:
            yield _webhook(one, nodes.pop())


def _webhook(one: Webhook, node: str) -> Finding:
    effect = "the API server refuses each request that it should see"
    if one.asks_about_pods:
        effect += ", also the creation of pods: its own replacement too, unless its namespaceSelector leaves its namespace out"
    pods = len(one.backends)
    return DisruptionRule.WEBHOOK_BACKEND.found(
        (one.where, f"Service {one.service}"),
        f"webhook {one.hook.get('name')} must answer (failurePolicy Fail), and "
        f"{'its one pod is' if pods == 1 else f'all its {pods} pods are'} on node {node}: while that node is drained, {effect}",
    )  # fmt: skip


# ---- pods that come back


def _comes_back(pods: Sequence[Object]) -> Iterator[Finding]:
    """The replacement of such a pod may be placed on the cordoned node again."""
    found: dict[str, list[str]] = {}
    for pod in pods:
        if not is_over(pod) and owner_refs(pod) and untolerated(pod, [CORDON]) is None:
            namespace, name = namespace_and_name(pod)
            found.setdefault(namespace, []).append(name)
    for namespace, names in found.items():
        yield DisruptionRule.COMES_BACK.found(
            tuple(f"Pod {namespace}/{name}" for name in sorted(names)),
            f"namespace {namespace}: {few(names)} {'tolerates' if len(names) == 1 else 'tolerate'} the taint of a cordon "
            f"({UNSCHEDULABLE}): an evicted pod may come straight back to the node",
        )  # fmt: skip
