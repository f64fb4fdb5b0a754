"""The desired PodDisruptionBudgets: typed; each error has a way out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from roles.engine.disruption import BUDGETS_PATH, PDB
from roles.engine.disruption.budgets import ALWAYS_ALLOW, IF_HEALTHY
from roles.engine.inputs import Boolean, Data, Frozen, Kubeconfig, Names, did_you_mean, read_common
from roles.engine.inputs.entries import of_entries, only_absent
from roles.engine.kube.names import KINDS, key_problem, kind_name, namespaced_name, object_name, value_problem, workload_name
from roles.engine.kube.selectors import label_selector
from roles.engine.objects import Kind

ABSENT = "absent"
EXAMPLE = "NAMESPACE/NAME, such as shop/web"
DATA_EXAMPLE = '{"shop/web": {"workload": "deployment/web", "max_unavailable": 1}}'
DEFAULT_PROOF_SECONDS = 60
#: The selector is one field: the API server replaces it as a whole (LabelSelector is atomic).
SELECTOR, MAX, MIN, POLICY = (
    ("spec", "selector"),
    ("spec", "maxUnavailable"),
    ("spec", "minAvailable"),
    ("spec", "unhealthyPodEvictionPolicy"),
)
BUDGET = Kind(
    name=PDB,
    version="policy/v1",
    collection=BUDGETS_PATH,
    sets=(SELECTOR, MAX, MIN, POLICY),
    # kube-controller-manager owns the status.
    mark=SELECTOR,
    recorded=("namespace", "name"),
    short="pdb",
    plural="budgets",
)
_INT32 = 2**31 - 1
_PERCENT = re.compile(r"[0-9]{1,9}%\Z")
_SPELLINGS = {
    "maxUnavailable": "max_unavailable",
    "minAvailable": "min_available",
    "unhealthyPodEvictionPolicy": "unhealthy_pod_eviction_policy",
}
_SELECTOR_FIELDS = ("matchLabels", "matchExpressions")


def _number(value: Any) -> int | str:
    """A number of pods, or a percentage (pkg/apis/apps/validation: ValidatePositiveIntOrPercent, IsNotMoreThan100Percent)."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,20}", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"{value!r} is neither a number of pods nor a percentage; write 1, or '25%'")
    if isinstance(value, str):
        if not _PERCENT.match(value):
            raise ValueError(f"{value!r} is neither a number of pods nor a percentage; write 1, or '25%'")
        if int(value[:-1]) > 100:
            raise ValueError(f"{value} is more than 100%")
    elif not 0 <= value <= _INT32:
        raise ValueError(f"{value} is not a number of pods: 0 or more")
    return value


def _selector(value: Any) -> Any:
    """A LabelSelector in Kubernetes' form. Raises ValueError for what the API server would refuse."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{value!r} is not a selector; write {{'matchLabels': {{'app': 'web'}}}}")
    if unknown := [str(key) for key in value if key not in _SELECTOR_FIELDS]:
        raise ValueError(
            f"unknown field {unknown[0]!r}{did_you_mean(unknown[0], _SELECTOR_FIELDS)}; labels go under matchLabels: "
            "{'matchLabels': {'app': 'web'}}"
        )
    labels, expressions = value.get("matchLabels") or {}, value.get("matchExpressions") or []
    if not isinstance(labels, Mapping) or not isinstance(expressions, list | tuple):
        raise ValueError("matchLabels is a mapping, and matchExpressions a list")
    if not labels and not expressions:
        raise ValueError("it is empty, and would select all pods of the namespace; name the workload, or its labels")
    if not all(isinstance(one, Mapping) and set(one) <= {"key", "operator", "values"} for one in expressions):
        raise ValueError("each of matchExpressions is a mapping with key, operator and values")
    found = label_selector(value)
    problems = [found.problem] if found.problem else []
    for one in found.requirements:
        problems += filter(None, (key_problem(one.key), *(value_problem(one.key, text) for text in one.values)))
    if problems:
        raise ValueError("; ".join(problems))
    plain: dict[str, Any] = {}
    if labels:
        plain["matchLabels"] = {str(key): str(text) for key, text in labels.items()}
    if expressions:
        plain["matchExpressions"] = [dict(one) for one in expressions]
    return plain


def _here(namespace: str, text: Any) -> Any:
    """A workload with its namespace as KIND/NAME, or as /NAME without a kind; any other value unchanged. Raises ValueError."""
    first = str(text).partition("/")[0]
    if not isinstance(text, str) or (text.count("/") == 1 and (first.lower() in KINDS or first != namespace)) or "/" not in text:
        return text
    of, *kind, name = workload_name(text).split("/")
    if of != namespace:
        raise ValueError(f"workload: {text!r} is in another namespace, and a budget protects pods of its own, {namespace}")
    return f"{''.join(kind)}/{name}"


def _workload(text: Any) -> Any:
    """KIND/NAME, the kind as an operator may write it."""
    kind, slash, name = str(text).partition("/")
    if isinstance(text, str) and not kind and name:
        return text  # of NAMESPACE/NAME
    if not isinstance(text, str) or not slash or not name:
        raise ValueError(f"{text!r} is not KIND/NAME, such as deployment/web")
    return f"{kind_name(kind)}/{object_name(name)}"


class Budget(BaseModel):
    """One desired PodDisruptionBudget (policy/v1). `workload`: KIND/NAME, whose selector the budget gets; or `selector`: a LabelSelector.
    `unhealthy_pod_eviction_policy` None: left to the API server, or to the manager that set it. `absent`: remove it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    namespace: str
    name: str
    workload: Annotated[str, BeforeValidator(_workload)] | None = None
    selector: Annotated[dict[str, Any], BeforeValidator(_selector)] | None = None
    max_unavailable: Annotated[int | str, BeforeValidator(_number)] | None = None
    min_available: Annotated[int | str, BeforeValidator(_number)] | None = None
    unhealthy_pod_eviction_policy: Literal["AlwaysAllow", "IfHealthyBudget"] | None = None
    absent: bool = False

    @model_validator(mode="after")
    def _whole(self) -> Budget:
        if self.absent:
            return self
        if (self.workload is None) == (self.selector is None):
            raise ValueError("give either workload (KIND/NAME) or selector: what the budget protects")
        if (self.max_unavailable is None) == (self.min_available is None):
            raise ValueError("give either max_unavailable or min_available; max_unavailable 1 fits most workloads")
        return self

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def kind_and_name(self) -> tuple[str, str]:
        """Of the workload; the kind is "" if the data has none."""
        kind, _, name = (self.workload or "").partition("/")
        return kind, name

    def manifest(self, selector: Mapping[str, Any]) -> dict[str, Any]:
        """The manifest to apply: only the fields in the data, with the selector that the workload has."""
        given = (dict(selector), self.max_unavailable, self.min_available, self.unhealthy_pod_eviction_policy)
        fields = {path: value for path, value in zip(BUDGET.sets, given, strict=True) if value is not None}
        return BUDGET.manifest(self.namespace, self.name, fields)


def _budgets(value: Any) -> Any:
    if isinstance(value, str):
        value = only_absent(value, "NAMESPACE/NAME", "budgets", f"disruption_budgets={DATA_EXAMPLE}")
    if not isinstance(value, Mapping):
        raise ValueError(f"{value!r} is not a mapping of {EXAMPLE}, to its fields")
    entries = []
    for key, fields in value.items():
        namespace, _, name = str(key).partition("/")
        whole = namespaced_name(namespace, name, EXAMPLE)
        place = {"namespace": whole.partition("/")[0], "name": whole.partition("/")[2]}
        if fields == ABSENT:
            entries.append({**place, "absent": True})
            continue
        if not isinstance(fields, Mapping):
            raise ValueError(
                f"{key}: {fields!r} is neither `absent` nor a mapping such as {{'workload': 'deployment/web', 'max_unavailable': 1}}"
            )
        twice = [one for one, other in _SPELLINGS.items() if one in fields and other in fields]
        if twice:
            raise ValueError(f"{key}: {twice[0]} and {_SPELLINGS[twice[0]]} are the same field; write one of them")
        try:
            fields = {**fields, **({"workload": _here(place["namespace"], fields["workload"])} if "workload" in fields else {})}
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from None
        if reserved := [one for one in ("namespace", "name", "absent") if one in fields]:
            raise ValueError(f"{key}: unknown field {reserved[0]!r}; to remove the budget, write `absent` instead of its fields")
        entries.append({**{_SPELLINGS.get(str(one), str(one)): given for one, given in fields.items()}, **place})
    return tuple(entries)


class DesiredBudgets(Frozen):
    """The data keys of deploys/disruption_budgets.py. `force`: take over fields of other managers, and remove budgets of others.
    `proof_timeout`: seconds for kube-controller-manager to compute each budget. `kubeconfig`: a file on the operator's machine."""

    disruption_budgets: Annotated[
        tuple[Budget, ...] | None,
        BeforeValidator(_budgets),
        WithJsonSchema({"type": ["object", "string"]}),
        Field(
            description="PodDisruptionBudgets: NAMESPACE/NAME to its fields, or to `absent`. Fields: `workload` (the KIND/NAME that it"
            " protects) or `selector`, `max_unavailable` or `min_available`, and `unhealthy_pod_eviction_policy`. The same for all hosts",
            examples=[
                {"shop/web": {"workload": "deployment/web", "max_unavailable": 1, "unhealthy_pod_eviction_policy": "AlwaysAllow"}},
                "shop/web=absent",
            ],
        ),
    ] = None
    allow_overlaps: Annotated[
        Boolean,
        Field(description="consent: two budgets for one pod; the API server then refuses to evict it (500)", examples=[True]),
    ] = False
    force: Annotated[
        Boolean, Field(description="consent: take over fields of other managers, remove budgets that others created", examples=[True])
    ] = False
    only_objects: Annotated[Names, Field(description="only these budgets of the data", examples=[["shop/web"], "shop/web,shop/db"])] = None
    proof_timeout: Annotated[
        int, Field(ge=1, le=3600, description="seconds for kube-controller-manager to compute each budget", examples=[120])
    ] = DEFAULT_PROOF_SECONDS
    kubeconfig: Kubeconfig = None

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """The budgets of this run."""
        return tuple(one for one in self.disruption_budgets or () if self.only_objects is None or one.key in self.only_objects)


def read_budgets(hosts: Iterable[tuple[str, Data]]) -> DesiredBudgets | None:
    """The desired state, from the inventory data of all hosts; None if no host has any. Raises Refusal with all problems."""
    known = [name for name in Budget.model_fields if name not in ("namespace", "name", "absent")]
    words = of_entries({"disruption_budgets": known}, (ALWAYS_ALLOW, IF_HEALTHY), list(_SPELLINGS))
    desired = read_common(hosts, DesiredBudgets, "it belongs to the cluster: set it in group_data/all.py", words)[1]
    return desired if desired.disruption_budgets is not None else None
