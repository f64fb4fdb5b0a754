"""What an operator wants of the labels and taints of one node. Typed, each rule with its way out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema

from roles.engine.inputs import MAP_OR_TEXT, Boolean, written
from roles.engine.object_changes import key_problem, value_problem
from roles.engine.transaction import Refusal

ABSENT = "absent"
#: pkg/apis/core/types.go, TaintEffect
NO_EXECUTE = "NoExecute"
EFFECTS = ("NoSchedule", "PreferNoSchedule", NO_EXECUTE)

#: The kubelet sets these whenever it starts (pkg/kubelet/kubelet_node_status.go, updateDefaultLabels). Of zone, region and instance type
#: that holds only with a cloud provider: their owner tells (plan.py). All other prefixes of Kubernetes' own are an administrator's to
#: set, node-role.kubernetes.io/ and node-restriction.kubernetes.io/ too: plugin/pkg/admission/noderestriction binds kubelets only.
_KUBELETS = {
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "node.kubernetes.io/windows-build",
}
#: Controllers set and remove these by the state of the node: k8s.io/api/core/v1/well_known_taints.go, k8s.io/cloud-provider/api,
#: and the cluster autoscaler.
_CONTROLLERS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
_AUTOSCALERS = {"ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler"}

#: By key; None: it goes.
Labels = Mapping[str, str | None]
#: By key: value by effect; without any, the key goes.
Taints = Mapping[str, Mapping[str, str]]


def _items(value: Any, example: str) -> list[tuple[str, Any]]:
    """Of a mapping, or of text such as `a=1,b=2`."""
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
            problems.append(f"{key}: {written(wanted)} is no text; write it in quotes")
            continue
        if key in found:
            problems.append(f"{key} is there twice; keep one")
        if key in _KUBELETS:
            problems.append(f"{key} is managed by the kubelet, which sets it whenever it starts; use a key of your own")
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
        if key.startswith(_CONTROLLERS) or key in _AUTOSCALERS:
            problems.append(f"{key} is managed by a controller, which sets and removes it by the state of the node; use a key of your own")
        effects = found.setdefault(key, {})
        for one in wanted if isinstance(wanted, list | tuple) else [wanted]:
            if one == ABSENT:
                continue
            text, _, effect = str(one).rpartition(":")
            if effect not in EFFECTS:
                problems.append(f"{key}: {written(one)} is not VALUE:EFFECT; effects are {', '.join(EFFECTS)}; or write {ABSENT}")
            elif effect in effects:
                problems.append(f"{key}: the effect {effect} is there twice; a node has one taint of a key and an effect")
            else:
                problems += filter(None, [value_problem(key, text)])
                effects[effect] = text
    if problems:
        raise ValueError("; ".join(problems))
    return found


class DesiredLabels(BaseModel):
    """The data keys of deploys/node_labels.py, for one host. What they do not name is left alone. `force`: fields of other managers are
    taken over; `allow_evictions`: also where pods would have to go; `kubeconfig`: a file of the operator's, instead of the control
    plane's own."""

    model_config = ConfigDict(frozen=True)

    node_labels: Annotated[
        Labels,
        BeforeValidator(_labels),
        MAP_OR_TEXT,
        Field(
            description="labels of the node, by key; `absent` removes one; one that is not named is left alone",
            examples=[{"rack": "a1", "old": "absent"}, "rack=a1,old=absent"],
        ),
    ] = {}
    node_taints: Annotated[
        Taints,
        BeforeValidator(_taints),
        MAP_OR_TEXT,
        Field(
            description="taints of the node: key to VALUE:EFFECT, or to a list of these; `absent` removes all of a key; a key that is not"
            " named is left alone",
            examples=[{"dedicated": "gpu:NoSchedule", "old": "absent"}, "dedicated=gpu:NoSchedule,old=absent"],
        ),
    ] = {}
    force: Annotated[Boolean, Field(description="consent: fields of other managers are taken over", examples=[True])] = False
    allow_evictions: Annotated[
        Boolean, Field(description="consent: also where pods would have to go for a taint with NoExecute", examples=[True])
    ] = False
    kubeconfig: Annotated[
        str | None,
        WithJsonSchema({"type": "string"}),
        Field(
            description="a file on the operator's machine whose identity is used, instead of the control plane's own",
            examples=["~/.kube/config"],
        ),
    ] = None

    @property
    def of_run(self) -> tuple[bool, bool, str | None]:
        """What all hosts of a run share."""
        return self.force, self.allow_evictions, self.kubeconfig


def read_labels(hosts: Iterable[tuple[str, Callable[[str], Any]]]) -> dict[str, DesiredLabels]:
    """By host, of those that have labels or taints in their data. Raises Refusal."""
    found: dict[str, DesiredLabels] = {}
    for host, data in hosts:
        values = {key: data(key) for key in DesiredLabels.model_fields}
        try:
            desired = DesiredLabels(**{key: value for key, value in values.items() if value is not None})
        except ValidationError as error:
            raise Refusal(host, "; ".join(_sentence(item) for item in error.errors())) from None
        if desired.node_labels or desired.node_taints:
            found[host] = desired
    if len({desired.of_run for desired in found.values()}) > 1:
        names = ", ".join(found)
        raise Refusal(names, "force, allow_evictions or kubeconfig is not the same on all of them", "set it for the run, with --data")
    return found


def _sentence(item: Any) -> str:
    return f"{item['loc'][0]}: {str(item['msg']).removeprefix('Value error, ')}"
