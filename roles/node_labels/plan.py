"""Desired labels and taints, and the plan: from the data and the observed nodes to the writes. Pure.


Labels are set by server-side apply. Taints cannot be: the list is atomic (k8s.io/api/core/v1/types.go: NodeSpec.Taints, listType=atomic,
no patch strategy), so a manager that applies it owns the taints of all others, and removes them when it no longer applies the list. daytwo
patches the taints as Kubernetes' own controllers do (k8s.io/cloud-provider, PatchNodeTaints): the whole list, including the taints of
others, under the resourceVersion that was read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from roles.engine.inputs import MAP_OR_TEXT, Boolean, Data, Kubeconfig, read_host
from roles.engine.inputs.values import written
from roles.engine.kube import Object, full_name, uid
from roles.engine.kube.field_managers import FIELD_MANAGER, only_ours
from roles.engine.kube.fields import labels_of, name_of, spec_of
from roles.engine.kube.matching import tolerates
from roles.engine.kube.names import key_problem, value_problem
from roles.engine.kube.pods import is_alive
from roles.engine.objects import Kind, ObjectChange, ObjectPath, ObjectPlan, Request
from roles.engine.transaction import ChangedObject, Refusal

LABELS, TAINTS = ("metadata", "labels"), ("spec", "taints")

ABSENT = "absent"
#: pkg/apis/core/types.go, TaintEffect
NO_EXECUTE = "NoExecute"
EFFECTS = ("NoSchedule", "PreferNoSchedule", NO_EXECUTE)

#: The kubelet sets these at each start (pkg/kubelet/kubelet_node_status.go, updateDefaultLabels). It sets zone, region and instance type
#: only with a cloud provider: there the owner of the field decides. An administrator may set all other prefixes of Kubernetes,
#: also node-role.kubernetes.io/ and node-restriction.kubernetes.io/: plugin/pkg/admission/noderestriction restricts kubelets only.
_SET_BY_KUBELET = {
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "node.kubernetes.io/windows-build",
}
#: Controllers set and remove these according to the state of the node: k8s.io/api/core/v1/well_known_taints.go,
#: k8s.io/cloud-provider/api, and the cluster autoscaler.
_SET_BY_CONTROLLERS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
_SET_BY_AUTOSCALER = {"ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler"}

#: Value by key; None: remove the label.
Labels = Mapping[str, str | None]
#: By key: value by effect; no effect: remove all taints of the key.
Taints = Mapping[str, Mapping[str, str]]


def _items(value: Any, example: str) -> list[tuple[str, Any]]:
    """The items of a mapping, or of text such as `a=1,b=2`."""
    if isinstance(value, Mapping):
        return [(str(key), wanted) for key, wanted in value.items()]
    if not isinstance(value, str):
        raise ValueError(f"{written(value)} must be a mapping, or text such as {example}")
    found = []
    for item in filter(None, (part.strip() for part in value.split(","))):
        key, equals, wanted = item.partition("=")
        if not equals:
            raise ValueError(f"{item!r} has no value; write {item}=VALUE, or {item}={ABSENT}")
        found.append((key.strip(), wanted.strip()))
    return found


def _labels(value: Any) -> dict[str, str | None]:
    problems: list[str] = []
    found: dict[str, str | None] = {}
    for key, wanted in _items(value, "rack=a1,old=absent"):
        if not isinstance(wanted, str):
            problems.append(f"{key}: {written(wanted)} is not text; write it in quotes")
            continue
        if key in found:
            problems.append(f"{key} is given twice; keep one")
        if key in _SET_BY_KUBELET:
            problems.append(f"{key} is managed by the kubelet, which sets it at each start; use a key of your own")
        problems += filter(None, (key_problem(key), value_problem(key, wanted)))
        found[key] = None if wanted == ABSENT else wanted
    if problems:
        raise ValueError("; ".join(problems))
    return found


def _taints(value: Any) -> dict[str, dict[str, str]]:
    problems: list[str] = []
    found: dict[str, dict[str, str]] = {}
    for key, wanted in _items(value, "dedicated=gpu:NoSchedule,old=absent"):
        if problem := key_problem(key):
            problems.append(problem)
        if key.startswith(_SET_BY_CONTROLLERS) or key in _SET_BY_AUTOSCALER:
            problems.append(f"{key} is managed by a controller, which sets and removes it by the node's state; use a key of your own")
        effects = found.setdefault(key, {})
        for one in wanted if isinstance(wanted, list | tuple) else [wanted]:
            if one == ABSENT:
                continue
            text, _, effect = str(one).rpartition(":")
            if effect not in EFFECTS:
                problems.append(f"{key}: {written(one)} is not VALUE:EFFECT (effects are {', '.join(EFFECTS)}), nor {ABSENT}")
            elif effect in effects:
                problems.append(f"{key}: the effect {effect} is given twice; a node has at most one taint for each key and effect")
            else:
                problems += filter(None, [value_problem(key, text)])
                effects[effect] = text
    if problems:
        raise ValueError("; ".join(problems))
    return found


class DesiredLabels(BaseModel):
    """The data keys of deploys/node_labels.py, for one host. Labels and taints that they do not name stay. `force`: take over fields of
    other managers; `allow_evictions`: allow taints that evict pods; `kubeconfig`: a file on the operator's machine, instead of the control
    plane's own."""

    model_config = ConfigDict(frozen=True)

    node_labels: Annotated[
        Labels,
        BeforeValidator(_labels),
        MAP_OR_TEXT,
        Field(
            description="labels of the node, by key. `absent` removes a label; other labels stay",
            examples=[{"rack": "a1", "old": "absent"}, "rack=a1,old=absent"],
        ),
    ] = {}
    node_taints: Annotated[
        Taints,
        BeforeValidator(_taints),
        MAP_OR_TEXT,
        Field(
            description="taints of the node: key to VALUE:EFFECT, or to a list of these. `absent` removes all taints of a key; other keys"
            " stay",
            examples=[{"dedicated": "gpu:NoSchedule", "old": "absent"}, "dedicated=gpu:NoSchedule,old=absent"],
        ),
    ] = {}
    force: Annotated[Boolean, Field(description="consent: take over fields of other managers", examples=[True])] = False
    allow_evictions: Annotated[Boolean, Field(description="consent: set taints with NoExecute that evict pods", examples=[True])] = False
    kubeconfig: Kubeconfig = None

    @property
    def of_run(self) -> tuple[bool, bool, str | None]:
        """The keys that must be the same on all hosts of a run."""
        return self.force, self.allow_evictions, self.kubeconfig


def read_labels(hosts: Iterable[tuple[str, Data]]) -> dict[str, DesiredLabels]:
    """The data by host, for hosts that have labels or taints in it. Raises Refusal."""
    read = {host: read_host(host, data, DesiredLabels, ("node_labels", "node_taints")) for host, data in hosts}
    found = {host: desired for host, desired in read.items() if desired and (desired.node_labels or desired.node_taints)}
    if len({desired.of_run for desired in found.values()}) > 1:
        names = ", ".join(found)
        raise Refusal(names, "force, allow_evictions or kubeconfig differs between these hosts", "set it for the run, with --data")
    return found


@dataclass(frozen=True)
class Evicted:
    """A pod that a taint evicts, as namespace/name; `after`: seconds until then."""

    name: str
    uid: str
    after: int = 0


@dataclass(frozen=True)
class NodeChange(ObjectChange):
    """A change with the pods that the node's new taints evict."""

    evicted: tuple[Evicted, ...] = ()


def taints(node: Object) -> list[Mapping[str, Any]]:
    return list(spec_of(node).get("taints") or ())


def _path_of(taint: Mapping[str, Any]) -> ObjectPath:
    return (*TAINTS, str(taint["key"]), str(taint["effect"]))


def labels_and_taints(node: Object) -> dict[ObjectPath, str]:
    """All labels and taints, by path: `metadata labels KEY`, `spec taints KEY EFFECT`."""
    labels = {(*LABELS, key): str(value) for key, value in labels_of(node).items()}
    return labels | {_path_of(taint): str(taint.get("value") or "") for taint in taints(node)}


def wanted(desired: DesiredLabels, node: Object) -> dict[ObjectPath, str | None]:
    """The desired value of each named label and taint; None: remove it."""
    found: dict[ObjectPath, str | None] = {(*LABELS, key): value for key, value in desired.node_labels.items()}
    for key, effects in desired.node_taints.items():
        found |= {_path_of(taint): None for taint in taints(node) if taint["key"] == key}
        found |= {(*TAINTS, key, effect): value for effect, value in effects.items()}
    return found


def label_requests(node: Object, wanted: Mapping[ObjectPath, str | None]) -> list[Request]:
    """The requests that give the node the wanted labels and taints."""
    now = labels_and_taints(node)
    wanted = {path: value for path, value in wanted.items() if now.get(path) != value}
    labels = {path: value for path, value in wanted.items() if path[:2] == LABELS}
    # An apply removes labels that it omits, if only daytwo owns them; labels with other owners need a patch.
    patched = {path: None for path, value in labels.items() if value is None and not only_ours(node, *NODE.v1(path))}
    applied = {path: value for path, value in labels.items() if path not in patched}
    found = []
    if applied:
        own = {path: value for path, value in now.items() if path[:2] == LABELS and FIELD_MANAGER in NODE.owners(node, path)} | applied
        metadata = {"name": name_of(node), "labels": {path[2]: value for path, value in own.items() if value is not None}}
        found.append(Request("apply", {"apiVersion": "v1", "kind": "Node", "metadata": metadata}, tuple(applied)))
    tainted = {path: value for path, value in wanted.items() if path[:2] == TAINTS}
    if patched or tainted:
        body: dict[str, Any] = {"metadata": {"labels": {path[2]: None for path in patched}}} if patched else {}
        if tainted:
            body["spec"] = {"taints": _all_taints(node, tainted)}
        found.append(Request("patch", body, (*patched, *tainted)))
    return found


def _all_taints(node: Object, tainted: Mapping[ObjectPath, str | None]) -> list[dict[str, Any]]:
    """The whole list of taints, with the taints of others unchanged."""
    kept = [dict(taint) for taint in taints(node) if _path_of(taint) not in tainted]
    new = [
        {"key": key, **({"value": value} if value else {}), "effect": effect}
        for (*_, key, effect), value in tainted.items()
        if value is not None
    ]
    return kept + new


def evicted_pods(pods: Sequence[Object], after: Mapping[ObjectPath, str | None]) -> tuple[Evicted, ...]:
    """The pods of a node that these taints evict (pkg/controller/tainteviction/taint_eviction.go, processPodOnNode).

    A static pod tolerates all taints (pkg/kubelet/config/common.go). The operators Lt and Gt (KEP-5471) count as not tolerating, so the
    list may have a pod too many.
    """
    new = [(path[2], value) for path, value in after.items() if path[:2] == TAINTS and path[3] == NO_EXECUTE and value is not None]
    found = []
    for pod in pods:
        if not new or not is_alive(pod):
            continue
        seconds = _tolerated_for(spec_of(pod).get("tolerations") or (), new)
        if seconds is not None:
            found.append(Evicted(full_name(pod), uid(pod), seconds))
    return tuple(found)


def _tolerated_for(tolerations: Sequence[Mapping[str, Any]], new: Sequence[tuple[str, str]]) -> int | None:
    """Seconds until a pod is evicted; None: never."""
    used = []
    for key, value in new:
        match = next((one for one in tolerations if tolerates(one, {"key": key, "value": value, "effect": NO_EXECUTE})), None)
        if match is None:
            return 0
        used.append(match.get("tolerationSeconds"))
    limits = [max(0, int(one)) for one in used if one is not None]
    return min(limits, default=None)


def plan_labels(
    desired: Mapping[str, DesiredLabels], names: Mapping[str, str], nodes: Mapping[str, Object], pods: Mapping[str, Sequence[Object]]
) -> ObjectPlan:
    """The plan: `names` of the nodes by host, `nodes` and their `pods` by the path of the node. The API server's dry run later adds what
    only it knows (conflicts of labels, admission)."""
    plan = ObjectPlan()
    for host, one in desired.items():
        node = nodes.get(NODE.path_of("", names[host]))
        if node is None:
            plan.refusals.append(f"{host}: the cluster has no Node {names[host]}")
            continue
        change = ObjectChange.of_fields(NODE, node, wanted(one, node))
        if not change.sets:
            plan.unchanged.append((change.name, "has these labels and taints already"))
            continue
        plan.refusals += [] if one.force else _owned(change)
        plan.actions.append(with_evictions(change, pods.get(change.path, ()), one.allow_evictions, plan.refusals))
    return plan


def _owned(change: ObjectChange) -> list[str]:
    """Why fields of other managers are not removed, and taints not changed. The dry run reports conflicts of changed labels."""
    problems = []
    node = change.before or {}
    for one in change.fields:
        # A controller that adds its taint becomes owner of the list; only a manager that applies the list would undo an addition.
        found = [name for name in NODE.others(node, one.path) if one.before is not None or not name.endswith(")")]
        if found and (one.after is None or one.path[:2] == TAINTS):
            what = "the list of taints" if one.path[:2] == TAINTS else one.path[2]
            problems.append(
                f"{change.name}: {one}: {what} is owned by {', '.join(found)}; change it there, or take it over with "
                "--data force=true (that manager may reset it)"
            )
    return problems


def with_evictions(change: ObjectChange, pods: Sequence[Object], consent: bool, refusals: list[str]) -> NodeChange:
    """The change with the pods that it evicts; adds a refusal if it evicts pods without consent."""
    evicted = evicted_pods(pods, change.after)
    names = "; ".join(f"{one.name} {f'after {one.after} s' if one.after else 'at once'}" for one in evicted)
    if evicted and not consent:
        refusals.append(
            f"{change.name}: NoExecute would evict {names}; allow it with --data allow_evictions=true, or add tolerations to these pods"
        )
    note = (f"evicts {names}; PodDisruptionBudgets do not apply, and removing the taint does not bring the pods back",) if evicted else ()
    return NodeChange(**{**vars(change), "notes": (*change.notes, *note)}, evicted=evicted)


def _not_settable(one: ChangedObject) -> str:
    """Why the old values are none that the data could set."""
    labels = {field.path[2]: ABSENT if field.before is None else field.before for field in one.fields if field.path[:2] == LABELS}
    tainted = [field for field in one.fields if field.path[:2] == TAINTS]
    taints: dict[str, list[str]] = {field.path[2]: [] for field in tainted}
    for field in tainted:
        taints[field.path[2]] += [] if field.before is None else [f"{field.before}:{field.path[3]}"]
    try:
        DesiredLabels(node_labels=labels, node_taints=taints)
    except ValidationError as error:
        return "; ".join(str(one["msg"]) for one in error.errors())
    return ""


def plan_undo(plan: ObjectPlan, pods: Mapping[str, Sequence[Object]], *, force: bool, allow_evictions: bool) -> ObjectPlan:
    """The undo of a run: a label that someone else owns now stays, and pods are evicted only with consent. `pods` by the path of their
    node. A taint that still has that run's value is restored, even if someone else has written the list since."""
    found = ObjectPlan(unchanged=plan.unchanged, refusals=plan.refusals)
    for change in plan.actions:
        labels = replace(change, sets={path: value for path, value in change.sets.items() if path[:2] == LABELS})
        found.refusals += [] if force else _owned(labels)
        found.actions.append(with_evictions(change, pods.get(change.path, ()), allow_evictions, found.refusals))
    return found


class _NodeKind(Kind):
    """Labels by apply, taints by patch: the list has one owner."""

    def values(self, found: Object | None) -> dict[ObjectPath, Any]:
        return labels_and_taints(found) if found is not None else {}

    def requests(self, found: Object, wanted: Mapping[ObjectPath, Any]) -> list[Request]:
        return label_requests(found, wanted)

    def v1(self, path: ObjectPath) -> tuple[str, ...]:
        return super().v1(path if path[:2] == LABELS else TAINTS)


NODE = _NodeKind(
    "Node", "v1", "/api/v1/nodes", ((*LABELS, "*"), (*TAINTS, "*", "*")), verb="patch", recorded=(), maps=(), of_cluster=True,
    short="node", refuse=_not_settable,
)  # fmt: skip
