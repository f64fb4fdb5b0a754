"""The desired autoscalers: typed; each error has a way out."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from roles.autoscalers.metrics import METRIC_FIELDS, behavior_of, metrics_of
from roles.engine.autoscaling import HPA, HPAS_PATH, VPAS_PATH
from roles.engine.autoscaling.owners import LAST_APPLIED
from roles.engine.autoscaling.vertical import VPA
from roles.engine.bounds import read_json
from roles.engine.inputs import Boolean, Data, Frozen, Kubeconfig, Names, read_common
from roles.engine.inputs.entries import of_entries, only_absent
from roles.engine.kube.amounts import parse_quantity
from roles.engine.kube.fields import spec_of
from roles.engine.kube.names import RESOURCES_OF_KINDS, is_chosen, object_name, whole_name, workload_name
from roles.engine.kube.workloads import COLLECTIONS
from roles.engine.objects import Kind
from roles.engine.transaction import ChangedObject

KINDS = {
    HPA: Kind(
        name=HPA,
        version="autoscaling/v2",
        collection=HPAS_PATH,
        sets=tuple(("spec", one) for one in ("scaleTargetRef", "minReplicas", "maxReplicas", "metrics", "behavior")),
        plural="autoscalers",
        stays="the count of its workload stays as it is",
    ),
    VPA: Kind(
        name=VPA,
        version="autoscaling.k8s.io/v1",
        collection=VPAS_PATH,
        sets=tuple(("spec", one) for one in ("targetRef", "updatePolicy", "resourcePolicy")),
        plural="autoscalers",
        stays="pods keep the requests that they have; those that are created from now on get the template's",
    ),
}


def _only_replicas(one: ChangedObject) -> str:
    """The annotation of `kubectl apply` may differ by the replicas that daytwo takes out of it, and by nothing else."""
    try:
        before, after = (_without_replicas(side) for field in one.fields for side in (field.before, field.after))
    except (TypeError, ValueError, AttributeError, LookupError):
        return f"{LAST_APPLIED} with what is no manifest"
    return "" if before == after else f"{LAST_APPLIED} with other changes than of its replicas"


def _without_replicas(text: Any) -> dict[str, Any]:
    found = read_json(text)
    return {**found, "spec": {key: value for key, value in spec_of(found).items() if key != "replicas"}}


#: Where `kubectl apply` keeps what it has applied: `replicas` are taken out of it.
SETTLED = ("metadata", "annotations", LAST_APPLIED)
#: What has a scale. (A DaemonSet has none.)
WORKLOADS = {
    one: Kind(
        one, "apps/v1", COLLECTIONS[one], (SETTLED,), SETTLED, SETTLED, verb="patch", maps=(), yields=True, refuse=_only_replicas
    )
    for one in ("Deployment", "StatefulSet")
}  # fmt: skip

#: Whether there is a workload, by kind, namespace and name.
Exists = Callable[[str, str, str], bool]
ABSENT = "absent"
EXAMPLE = "NAMESPACE/KIND/NAME, such as shop/deployment/web"
DATA_EXAMPLE = '{"shop/deployment/web": {"min": 2, "max": 10, "cpu": "60%"}}'
DEFAULT_PROOF_SECONDS = 120
_MOST_REPLICAS = 2**31 - 1
_MODES = ("Off", "Initial", "Recreate", "InPlaceOrRecreate", "Auto")
_RESOURCES = ("cpu", "memory")


def target_of(key: str, kinds: Iterable[str]) -> dict[str, str]:
    """Namespace, kind ("" if the key is NAMESPACE/NAME) and name. Raises ValueError."""
    namespace, *kind, name = workload_name(key).split("/")
    if kind and kind[0] not in kinds:
        raise ValueError(f"{key}: a {kind[0]} has no scale; only {' and '.join(kinds)} can be scaled")
    return {"namespace": namespace, "kind": "".join(kind), "target": name}


def _replicas(value: Any) -> int:
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,20}", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST_REPLICAS:
        raise ValueError(f"{value!r} is not a number of pods")
    return value


class _Entry(BaseModel):
    """`name`: the target's, if it is not set. `absent`: remove it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    namespace: str
    kind: str
    target: str
    name: str = ""
    absent: bool = False

    @property
    def own_name(self) -> str:
        return self.name or self.target

    @property
    def data_key(self) -> str:
        """As in the data: shop/deployment/web."""
        return "/".join(filter(None, (self.namespace, self.kind.lower(), self.target)))

    def settled(self, exists: Exists, kinds: Collection[str]) -> Self:
        """With the kind of its target. What is removed needs none: its target may be gone. Raises ValueError."""
        if self.kind or self.absent:
            return self
        kind = whole_name(self.data_key, exists, kinds).split("/")[1]
        return self.model_copy(update={"kind": kind})

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.own_name}"


class HorizontalAutoscaler(_Entry):
    """One desired HorizontalPodAutoscaler (autoscaling/v2). `metrics`: as Kubernetes has them; `behavior` likewise, None: left to the
    API server, or to the manager that set it."""

    min: Annotated[int, BeforeValidator(_replicas)] | None = None
    max: Annotated[int, BeforeValidator(_replicas)] = 0
    metrics: tuple[dict[str, Any], ...] = ()
    behavior: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _whole(self) -> HorizontalAutoscaler:
        if self.absent:
            return self
        if not self.max:
            raise ValueError("give max: the highest number of pods")
        if (self.min if self.min is not None else 1) > self.max:
            raise ValueError(f"min {self.min} is more than max {self.max}")
        if not self.metrics:
            raise ValueError(f"give a metric: one of {', '.join(METRIC_FIELDS)}, such as 'cpu': '60%'")
        if self.min == 0 and not any(one["type"] in ("Object", "External") for one in self.metrics):
            raise ValueError("min 0 needs a metric that exists without pods: object or external")
        return self

    def manifest(self) -> dict[str, Any]:
        """The manifest to apply: only the fields in the data."""
        spec: dict[str, Any] = {
            "scaleTargetRef": {"apiVersion": WORKLOADS[self.kind].version, "kind": self.kind, "name": self.target},
            "maxReplicas": self.max,
            "metrics": list(self.metrics),
        }
        if self.min is not None:
            spec["minReplicas"] = self.min
        if self.behavior is not None:
            spec["behavior"] = self.behavior
        return spec


class VerticalAutoscaler(_Entry):
    """One desired VerticalPodAutoscaler (autoscaling.k8s.io/v1). `least`, `most`: bounds by resource, for all containers; `resources`:
    which ones it changes; `least_pods`: its updater changes none while fewer live."""

    mode: Literal["Off", "Initial", "Recreate", "InPlaceOrRecreate", "Auto"] = "Off"
    least: dict[str, str] | None = Field(default=None, alias="min")
    most: dict[str, str] | None = Field(default=None, alias="max")
    resources: tuple[str, ...] | None = None
    least_pods: Annotated[int, BeforeValidator(_replicas), Field(ge=1)] | None = Field(default=None, alias="min_replicas")

    @model_validator(mode="after")
    def _whole(self) -> VerticalAutoscaler:
        for field, found in (("min", self.least), ("max", self.most)):
            for resource, amount in (found or {}).items():
                if resource not in _RESOURCES:
                    raise ValueError(f"{field}: {resource!r} is neither cpu nor memory")
                if parse_quantity(amount) <= 0:
                    raise ValueError(f"{field}: {resource} {amount} is not more than 0")
        for resource in set(self.least or {}) & set(self.most or {}):
            if parse_quantity((self.least or {})[resource]) > parse_quantity((self.most or {})[resource]):
                raise ValueError(f"min {resource} is more than max {resource}")
        for resource in self.resources or ():
            if resource not in _RESOURCES:
                raise ValueError(f"resources: {resource!r} is neither cpu nor memory")
        return self

    def manifest(self) -> dict[str, Any]:
        """The manifest to apply: only the fields in the data."""
        spec: dict[str, Any] = {
            "targetRef": {"apiVersion": "apps/v1", "kind": self.kind, "name": self.target},
            "updatePolicy": {"updateMode": self.mode, **({} if self.least_pods is None else {"minReplicas": self.least_pods})},
        }
        policy: dict[str, Any] = {"containerName": "*"}
        for field, found in (("minAllowed", self.least), ("maxAllowed", self.most), ("controlledResources", self.resources)):
            if found:
                policy[field] = list(found) if isinstance(found, tuple) else dict(found)
        if len(policy) > 1:
            spec["resourcePolicy"] = {"containerPolicies": [policy]}
        return spec


# ---- the data


def _entries(value: Any, kinds: Iterable[str], fields: Any) -> Any:
    if isinstance(value, str):
        value = only_absent(value, "NAMESPACE/KIND/NAME", "autoscalers", f"autoscalers={DATA_EXAMPLE}")
    if not isinstance(value, Mapping):
        raise ValueError(f"{value!r} is not a mapping of {EXAMPLE}, to its fields")
    entries = []
    for key, given in value.items():
        place: dict[str, Any] = target_of(str(key), kinds)
        if given == ABSENT:
            entries.append({**place, "absent": True})
            continue
        if not isinstance(given, Mapping):
            raise ValueError(f"{key}: {given!r} is neither `absent` nor a mapping such as {{'min': 2, 'max': 10, 'cpu': '60%'}}")
        if reserved := [one for one in ("namespace", "kind", "target") if one in given]:
            raise ValueError(f"{key}: unknown field {reserved[0]!r}: the entry's own name says it")
        try:
            more = {str(one): found for one, found in fields(given).items()}
            if "name" in more:
                more["name"] = object_name(str(more["name"]))
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from None
        if given.get("absent") not in (None, True):
            raise ValueError(f"{key}: absent is true, or left out")
        entries.append({**more, **place})
    return tuple(entries)


def _horizontal_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """Raises ValueError."""
    kept = {str(one): found for one, found in given.items() if one not in METRIC_FIELDS and one != "behavior"}
    if not given.get("absent"):
        kept["metrics"] = metrics_of(given)
    if given.get("behavior") is not None:
        kept["behavior"] = behavior_of(given["behavior"])
    return kept


def _vertical_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    kept = dict(given)
    if isinstance(kept.get("resources"), str):
        kept["resources"] = tuple(one.strip() for one in kept["resources"].split(",") if one.strip())
    for field in ("min", "max"):
        if isinstance(kept.get(field), Mapping):
            kept[field] = {str(key): str(value) for key, value in kept[field].items()}
    return kept


class DesiredAutoscalers(Frozen):
    """The data keys of deploys/autoscalers.py."""

    autoscalers: Annotated[
        tuple[HorizontalAutoscaler, ...] | None,
        BeforeValidator(lambda value: _entries(value, WORKLOADS, _horizontal_fields)),
        WithJsonSchema({"type": ["object", "string"]}),
        Field(
            description="HorizontalPodAutoscalers: NAMESPACE/KIND/NAME (or NAMESPACE/NAME) of what they scale, to `min`, `max`, metrics"
            " (`cpu`, `memory`, `containers`, `pods`, `object`, `external`, or `metrics` as Kubernetes has them), `behavior` and `name`; or"
            " to `absent`. The same for all hosts",
            examples=[{"shop/deployment/web": {"min": 2, "max": 10, "cpu": "60%"}}, "shop/deployment/web=absent"],
        ),
    ] = None
    vertical_autoscalers: Annotated[
        tuple[VerticalAutoscaler, ...] | None,
        BeforeValidator(lambda value: _entries(value, RESOURCES_OF_KINDS, _vertical_fields)),
        WithJsonSchema({"type": ["object", "string"]}),
        Field(
            description="VerticalPodAutoscalers, where their CRDs are installed: NAMESPACE/KIND/NAME (or NAMESPACE/NAME), to `mode`, the"
            " bounds `min` and `max` by resource, `resources`, `min_replicas` and `name`; or to `absent`. The same for all hosts",
            examples=[{"shop/deployment/db": {"mode": "Initial", "min": {"memory": "256Mi"}, "max": {"memory": "2Gi"}}}],
        ),
    ] = None
    settle_replicas: Annotated[
        Boolean,
        Field(
            description="consent: take `replicas` out of the annotation of `kubectl apply` on the scaled workloads; an apply without"
            " it then does not set the count to 1",
            examples=[True],
        ),
    ] = False
    allow_problems: Annotated[
        Boolean,
        Field(description="consent: apply autoscalers that cannot work now; they are then not proven", examples=[True]),
    ] = False
    force: Annotated[
        Boolean, Field(description="consent: take over fields of other managers, remove autoscalers that others created", examples=[True])
    ] = False
    only_objects: Annotated[Names, Field(description="only these entries of the data", examples=[["shop/deployment/web"]])] = None
    proof_timeout: Annotated[
        int, Field(ge=1, le=3600, description="seconds for kube-controller-manager to handle each autoscaler", examples=[300])
    ] = DEFAULT_PROOF_SECONDS
    kubeconfig: Kubeconfig = None

    @property
    def asks(self) -> bool:
        """The data have autoscalers, also none of them."""
        return self.autoscalers is not None or self.vertical_autoscalers is not None

    @property
    def entries(self) -> tuple[HorizontalAutoscaler | VerticalAutoscaler, ...]:
        """The autoscalers of this run."""
        return tuple(one for one in self.every if is_chosen(one.data_key, self.only_objects))

    def settled(self, exists: Exists) -> Self:
        """With the kinds of all targets. Raises ValueError."""
        found = {
            "autoscalers": tuple(one.settled(exists, WORKLOADS) for one in self.autoscalers or ()),
            "vertical_autoscalers": tuple(one.settled(exists, tuple(RESOURCES_OF_KINDS)) for one in self.vertical_autoscalers or ()),
        }
        return self.model_copy(update={key: value for key, value in found.items() if value})

    @property
    def known(self) -> list[str]:
        """All entries of the data, by their key there."""
        return [one.data_key for one in self.every]

    @property
    def every(self) -> list[HorizontalAutoscaler | VerticalAutoscaler]:
        """All entries of the data, whatever `only` says."""
        return [*(self.autoscalers or ()), *(self.vertical_autoscalers or ())]


def read_desired(hosts: Iterable[tuple[str, Data]]) -> DesiredAutoscalers | None:
    """The desired state, from the inventory data of all hosts; None if no host has any. Raises Refusal with all problems."""
    fields = [one for one in HorizontalAutoscaler.model_fields if one not in ("namespace", "kind", "target", "absent")]
    vertical = ["mode", "min", "max", "resources", "min_replicas", "name"]
    words = of_entries({"autoscalers": [*METRIC_FIELDS, *fields], "vertical_autoscalers": vertical}, _MODES)
    desired = read_common(hosts, DesiredAutoscalers, "it belongs to the cluster: set it in group_data/all.py", words)[1]
    return desired if desired.asks else None
