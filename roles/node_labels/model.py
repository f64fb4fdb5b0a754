"""The desired labels and taints of one node. Typed; each error has a way out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from roles.engine.inputs import MAP_OR_TEXT, Boolean, Data, Kubeconfig, read_host, written
from roles.engine.object_changes import key_problem, value_problem
from roles.engine.transaction import Refusal

ABSENT = "absent"
#: pkg/apis/core/types.go, TaintEffect
NO_EXECUTE = "NoExecute"
EFFECTS = ("NoSchedule", "PreferNoSchedule", NO_EXECUTE)

#: The kubelet sets these at each start (pkg/kubelet/kubelet_node_status.go, updateDefaultLabels). It sets zone, region and instance type
#: only with a cloud provider: there the owner of the field decides (plan.py). An administrator may set all other prefixes of Kubernetes,
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
                problems.append(f"{key}: {written(one)} is not VALUE:EFFECT; effects are {', '.join(EFFECTS)}; or write {ABSENT}")
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
            description="labels of the node, by key; `absent` removes one; other labels stay",
            examples=[{"rack": "a1", "old": "absent"}, "rack=a1,old=absent"],
        ),
    ] = {}
    node_taints: Annotated[
        Taints,
        BeforeValidator(_taints),
        MAP_OR_TEXT,
        Field(
            description="taints of the node: key to VALUE:EFFECT, or to a list of these; `absent` removes all taints of a key; other keys"
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
