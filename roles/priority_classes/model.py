"""What an operator wants of the cluster's objects: PriorityClasses, and workloads that have one. Typed, each rule with its way out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema

from roles.engine.inputs import MAP_OR_TEXT, Boolean, Names
from roles.engine.object_changes import (
    KINDS,
    RESOURCES_OF_KINDS,
    is_subdomain,
    key_problem,
    kind_name,
    meant,
    namespace_name,
    not_a_subdomain,
    object_name,
    value_problem,
)
from roles.engine.timeouts import unless_set
from roles.engine.transaction import Refusal

#: pkg/apis/scheduling/types.go: HighestUserDefinablePriority, SystemPriorityClassPrefix
USER_MAXIMUM = 1_000_000_000
SYSTEM_PREFIX = "system-"
INT32 = (-(2**31), 2**31 - 1)
PREEMPTS, NEVER = "PreemptLowerPriority", "Never"
DEFAULT_ROLLOUT_SECONDS = 300
#: pkg/apis/core/validation (TotalAnnotationSizeLimitB)
ANNOTATIONS_SIZE = 256 * 1024

_SPELLINGS = {"globalDefault": "global_default", "preemptionPolicy": "preemption_policy", "priorityClassName": "priority_class"}
CLASSES_PATH = "/apis/scheduling.k8s.io/v1/priorityclasses"


def _class_name(name: str) -> str:
    if name.startswith(SYSTEM_PREFIX):
        raise ValueError(f"names that begin with {SYSTEM_PREFIX!r} are Kubernetes' own; choose another name")
    if not is_subdomain(name):
        raise ValueError(not_a_subdomain(name))
    return name


def _value(value: int) -> int:
    low, high = INT32
    if not low <= value <= high:
        raise ValueError(f"value {value} is no 32-bit number; it goes from {low} to {USER_MAXIMUM}")
    if value > USER_MAXIMUM:
        raise ValueError(f"value {value} is above {USER_MAXIMUM}, and what is above is for Kubernetes' own classes; choose a lower one")
    return value


def _labels(labels: dict[str, str]) -> dict[str, str]:
    problems = [problem for key in labels if (problem := key_problem(key))]
    problems += [problem for key, value in labels.items() if (problem := value_problem(key, value))]
    if problems:
        raise ValueError("; ".join(f"labels: {problem}" for problem in problems))
    return labels


def _annotations(annotations: dict[str, str]) -> dict[str, str]:
    problems = [problem for key in annotations if (problem := key_problem(key.lower()))]
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > ANNOTATIONS_SIZE:
        problems.append(f"they are {size} bytes together, and {ANNOTATIONS_SIZE} is the most")
    if problems:
        raise ValueError("; ".join(f"annotations: {problem}" for problem in problems))
    return annotations


class PriorityClass(BaseModel):
    """One PriorityClass as it should be (scheduling.k8s.io/v1). What is None is left to the API server, or to whoever set it.

    The rules: pkg/apis/scheduling/validation/validation.go.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: Annotated[str, AfterValidator(_class_name)]
    value: Annotated[int, AfterValidator(_value)]
    description: str | None = None
    global_default: bool | None = None
    preemption_policy: Literal["PreemptLowerPriority", "Never"] | None = None
    labels: Annotated[dict[str, str], AfterValidator(_labels)] = Field(default_factory=dict)
    annotations: Annotated[dict[str, str], AfterValidator(_annotations)] = Field(default_factory=dict)

    @property
    def path(self) -> str:
        return f"{CLASSES_PATH}/{self.name}"

    def manifest(self) -> dict[str, Any]:
        """What is applied: the fields of the data, and no other."""
        metadata: dict[str, Any] = {"name": self.name}
        if self.labels:
            metadata["labels"] = dict(self.labels)
        if self.annotations:
            metadata["annotations"] = dict(self.annotations)
        found = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata, "value": self.value}
        for key, value in (
            ("description", self.description),
            ("globalDefault", self.global_default),
            ("preemptionPolicy", self.preemption_policy),
        ):
            if value is not None:
                found[key] = value
        return found


class Workload(BaseModel):
    """A Deployment, StatefulSet or DaemonSet and the class that its pods should have. A class of Kubernetes' own is allowed."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    namespace: Annotated[str, AfterValidator(namespace_name)]
    kind: Annotated[str, AfterValidator(kind_name)]
    name: Annotated[str, AfterValidator(object_name)]
    priority_class: Annotated[str, AfterValidator(object_name)]

    @property
    def key(self) -> str:
        """As in the data, with the kind in its plain form: `namespace/deployment/name`."""
        return f"{self.namespace}/{self.kind.lower()}/{self.name}"

    @property
    def path(self) -> str:
        return f"/apis/apps/v1/namespaces/{self.namespace}/{RESOURCES_OF_KINDS[self.kind]}/{self.name}"


def _named(value: Any, what: str) -> Any:
    """The entries of a list as they are; of a mapping, and of text such as `a=1,b=2`, as pairs."""
    if isinstance(value, str):
        pairs = []
        for item in (item.strip() for item in value.split(",")):
            name, equals, wanted = item.partition("=")
            if item and (not equals or not name.strip()):
                raise ValueError(f"{item!r} is not NAME={what}")
            if item:
                pairs.append((name.strip(), wanted.strip()))
        return pairs
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, list | tuple):
        return list(value)
    raise ValueError(f"{value!r} is neither a mapping nor a list, nor text such as NAME={what},NAME={what}")


def _respelled(entry: Mapping[Any, Any]) -> dict[str, Any]:
    """Kubernetes' spellings and Python's are both taken."""
    twice = [key for key, other in _SPELLINGS.items() if key in entry and other in entry]
    if twice:
        raise ValueError(f"{twice[0]} and {_SPELLINGS[twice[0]]} are the same field; write one of them")
    return {_SPELLINGS.get(str(key), str(key)): value for key, value in entry.items()}


def _classes(value: Any) -> Any:
    entries = []
    for entry in _named(value, "VALUE"):
        if isinstance(entry, tuple):
            name, fields = entry
            if isinstance(value, str):
                if not re.fullmatch(r"[+-]?\d+", fields):
                    raise ValueError(f"{name}={fields}: the value is no whole number")
                fields = int(fields)
            if not isinstance(fields, Mapping):
                fields = {"value": fields}
            if "name" in fields and fields["name"] != name:
                raise ValueError(f"{name}: its name is {fields['name']!r} inside; write one of them")
            entries.append({**_respelled(fields), "name": name})
        elif isinstance(entry, Mapping):
            entries.append(_respelled(entry))
        else:
            raise ValueError(f"{entry!r} is no mapping with a name and a value")
    return tuple(entries)


def _workloads(value: Any) -> Any:
    entries = []
    for entry in _named(value, "CLASS"):
        if isinstance(entry, tuple):
            key, wanted = entry
            parts = str(key).split("/")
            if len(parts) != 3:
                raise ValueError(f"{key!r} is not NAMESPACE/KIND/NAME, such as default/deployment/web")
            entries.append({"namespace": parts[0], "kind": parts[1], "name": parts[2], "priority_class": wanted})
        elif isinstance(entry, Mapping):
            entries.append(_respelled(entry))
        else:
            raise ValueError(f"{entry!r} is no mapping with namespace, kind, name and priority_class")
    return tuple(entries)


def _unique_classes(classes: tuple[PriorityClass, ...] | None) -> tuple[PriorityClass, ...] | None:
    problems = [f"{name} is there {count} times; keep one" for name, count in _twice(item.name for item in classes or ())]
    defaults = [item.name for item in classes or () if item.global_default]
    if len(defaults) > 1:
        problems.append(f"{' and '.join(defaults)} both have globalDefault, and a cluster has one; keep it on one of them")
    if problems:
        raise ValueError("; ".join(problems))
    return classes


def _unique_workloads(workloads: tuple[Workload, ...]) -> tuple[Workload, ...]:
    if problems := [f"{key} is there {count} times; keep one" for key, count in _twice(item.key for item in workloads)]:
        raise ValueError("; ".join(problems))
    return workloads


def _twice(names: Iterable[str]) -> list[tuple[str, int]]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return [(name, count) for name, count in counts.items() if count > 1]


class DesiredClasses(BaseModel):
    """The data keys of deploys/priority_classes.py.

    `priority_classes`: None where the data has none (nothing counts as dropped then); empty: all were dropped. `replace`: an
    immutable field is changed by delete and create. `prune`: classes that daytwo made and that were dropped are removed. `force`:
    fields of other managers are taken over. `only`: names of classes and workloads of the data. `rollout_timeout` in seconds.
    `kubeconfig`: a file of the operator's, instead of the control plane's own.
    """

    model_config = ConfigDict(frozen=True)

    priority_classes: Annotated[
        tuple[PriorityClass, ...] | None,
        BeforeValidator(_classes),
        AfterValidator(_unique_classes),
        WithJsonSchema({"type": ["object", "array", "string"]}),
        Field(
            description="the cluster's PriorityClasses: name to value, or to fields (`value`, `description`, `globalDefault`,"
            " `preemptionPolicy`, `labels`, `annotations`); the same for all hosts",
            examples=[{"web": 1000, "batch": {"value": -10, "preemptionPolicy": "Never"}}, "web=1000,batch=-10"],
        ),
    ] = None
    workloads: Annotated[
        tuple[Workload, ...],
        BeforeValidator(_workloads),
        AfterValidator(_unique_workloads),
        MAP_OR_TEXT,
        Field(
            description="workloads and the class that their pods should have: NAMESPACE/KIND/NAME; kinds `deployment`, `statefulset`,"
            " `daemonset`; the same for all hosts",
            examples=[{"shop/deployment/web": "web"}, "shop/deployment/web=web"],
        ),
    ] = ()
    replace: Annotated[
        Boolean,
        Field(description="consent: a class whose value or preemptionPolicy changes is deleted and made anew", examples=[True]),
    ] = False
    prune: Annotated[
        Boolean,
        Field(description="consent: classes that daytwo made and that were dropped from the data are removed", examples=[True]),
    ] = False
    force: Annotated[Boolean, Field(description="consent: fields of other managers are taken over", examples=[True])] = False
    only: Annotated[
        Names, Field(description="only these classes and workloads of the data", examples=[["web"], "web,shop/deployment/web"])
    ] = None
    rollout_timeout: Annotated[int, Field(ge=1, le=86400, description="seconds for each roll-out", examples=[600])] = (
        DEFAULT_ROLLOUT_SECONDS
    )
    kubeconfig: Annotated[
        str | None,
        WithJsonSchema({"type": "string"}),
        Field(
            description="a file on the operator's machine whose identity is used, instead of the control plane's own",
            examples=["~/.kube/config"],
        ),
    ] = None

    @property
    def rollout_seconds(self) -> float:
        """How long each roll-out is waited for."""
        return unless_set(self.rollout_timeout, "rollout_timeout" in self.model_fields_set)

    @property
    def classes(self) -> tuple[PriorityClass, ...]:
        """Those that this run is about."""
        return tuple(item for item in self.priority_classes or () if self.only is None or item.name in self.only)

    @property
    def chosen_workloads(self) -> tuple[Workload, ...]:
        return tuple(item for item in self.workloads if self._chosen(item.key))

    def _chosen(self, key: str) -> bool:
        return self.only is None or key in map(workload_key, self.only)

    def drops(self, name: str) -> bool:
        """The class `name` was dropped from the data, and this run is about it."""
        if self.priority_classes is None or any(item.name == name for item in self.priority_classes):
            return False
        return self.only is None or name in self.only


def workload_key(text: str) -> str:
    """`ns/deploy/name` as Workload.key has it; any other text as it is."""
    parts = text.split("/")
    return f"{parts[0]}/{KINDS.get(parts[1].lower(), parts[1]).lower()}/{parts[2]}" if len(parts) == 3 else text


def read_classes(hosts: Iterable[tuple[str, Callable[[str], Any]]]) -> DesiredClasses | None:
    """What is wanted, from the inventory data of all hosts: (name, data by key). None where no host has any of it.

    Raises Refusal with every problem: the objects are the cluster's, so hosts that say something must say the same.
    """
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}
    problems: list[str] = []
    for host, data in hosts:
        for key in DesiredClasses.model_fields:
            value = data(key)
            if value is None:
                continue
            if key not in values:
                values[key], origin[key] = value, host
            elif values[key] != value and not any(problem.startswith(f"{key} ") for problem in problems):
                problems.append(f"{key} is not the same on {host} and on {origin[key]}; it is the cluster's: set it in group_data/all.py")
    if not {"priority_classes", "workloads"} & set(values):
        return None
    where = next(iter(origin.values()))
    if problems:
        raise Refusal(where, "; ".join(problems))
    try:
        return DesiredClasses(**values)
    except ValidationError as error:
        raise Refusal(where, "; ".join(_sentence(item, values) for item in error.errors())) from None


_FIELDS: dict[str, type[BaseModel]] = {"priority_classes": PriorityClass, "workloads": Workload}
_SHOWN = {value: key for key, value in _SPELLINGS.items()}


def _sentence(item: Any, values: Mapping[str, Any]) -> str:
    """One problem in the words of the data: which entry, which field, the rule, what to write."""
    key, *rest = [str(part) for part in item["loc"]]
    place = key
    if rest and rest[0].isdigit():
        place += f": {_entry_name(key, values[key], int(rest[0]))}"
    field = rest[1] if len(rest) > 1 else ""
    shown = _SHOWN.get(field, field)
    inside = f"{shown}.{'.'.join(rest[2:])}" if len(rest) > 2 else shown
    match item["type"]:
        case "value_error":
            return f"{place}: {str(item['msg']).removeprefix('Value error, ')}"
        case "extra_forbidden":
            known = [_SHOWN.get(name, name) for name in _FIELDS[key].model_fields]
            return (
                f"{place}: unknown field {field!r}{meant(field, [*known, *_FIELDS[key].model_fields]) or ','} fields are {', '.join(known)}"
            )
        case "missing":
            return f"{place}: {shown} is missing; give one"
        case "int_type":
            return f"{place}: {inside} is {item['input']!r}, and it must be a whole number, without quotes"
        case "bool_type":
            return f"{place}: {inside} is {item['input']!r}, and it must be true or false, without quotes"
        case "string_type":
            return f"{place}: {inside} is {item['input']!r}, and it must be text: put it in quotes"
        case "literal_error":
            near = meant(str(item["input"]), (PREEMPTS, NEVER))
            return f"{place}: {inside} is {item['input']!r}{near or ','} it is {PREEMPTS} or {NEVER}"
    return f"{': '.join(part for part in (place, inside) if part)}: {item['msg']}, and {item['input']!r} was given"


def _entry_name(key: str, value: Any, number: int) -> str:
    entry = _named(value, "")[number]
    if isinstance(entry, tuple):
        return str(entry[0])
    return str(entry.get("name") or f"entry {number + 1}")
