"""The desired PriorityClasses, and the workloads that use them. Typed; each error has a way out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema

from roles.engine.bounds import digits
from roles.engine.inputs import MAP_OR_TEXT, Boolean, Data, Frozen, Kubeconfig, Names, did_you_mean, read_common, registry
from roles.engine.kube.names import (
    RESOURCES_OF_KINDS,
    is_chosen,
    is_subdomain,
    key_problem,
    kind_name,
    namespace_name,
    not_a_subdomain,
    object_name,
    value_problem,
    whole_name,
    workload_name,
)
from roles.engine.kube.workloads import COLLECTIONS
from roles.engine.objects import Kind, ObjectPath

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
VALUE, POLICY, DESCRIPTION, DEFAULT = ("value",), ("preemptionPolicy",), ("description",), ("globalDefault",)
CLASS = Kind(
    "PriorityClass",
    "scheduling.k8s.io/v1",
    CLASSES_PATH,
    (VALUE, POLICY, DESCRIPTION, DEFAULT),
    # The creator of a class sets its `value`, which cannot change.
    owned=VALUE,
    mark=VALUE,
    recorded=(),
    # Old versions of the API omit a zero.
    missing={VALUE: 0, POLICY: PREEMPTS},
    always=(VALUE,),
    versioned=True,
    of_cluster=True,
    only_own="daytwo removes only classes that it created",
    short="priorityclass",
    stays="right before, nothing named it",
)
#: The field in which a workload names the class of its pods.
CLASS_OF_PODS: ObjectPath = ("spec", "template", "spec", "priorityClassName")
#: Server-side apply of this one field fits here, since others own the rest of the object: if another manager owns it, the API server
#: refuses and names it, and does the same for their next apply. A JSON patch would overwrite their value, and be overwritten, silently.
WORKLOADS = {
    kind: Kind(kind, "apps/v1", COLLECTIONS[kind], (CLASS_OF_PODS,), CLASS_OF_PODS, CLASS_OF_PODS, maps=()) for kind in RESOURCES_OF_KINDS
}


def _class_name(name: str) -> str:
    if name.startswith(SYSTEM_PREFIX):
        raise ValueError(f"names that begin with {SYSTEM_PREFIX!r} are reserved for Kubernetes; choose another name")
    if not is_subdomain(name):
        raise ValueError(not_a_subdomain(name))
    return name


def _value(value: int) -> int:
    low, high = INT32
    if not low <= value <= high:
        raise ValueError(f"value {value} is not a 32-bit number; allowed are {low} to {USER_MAXIMUM}")
    if value > USER_MAXIMUM:
        raise ValueError(f"value {value} is above {USER_MAXIMUM}; higher values are reserved for Kubernetes. Choose a lower value")
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
        problems.append(f"together they have {size} bytes, and at most {ANNOTATIONS_SIZE} are allowed; shorten them")
    if problems:
        raise ValueError("; ".join(f"annotations: {problem}" for problem in problems))
    return annotations


class PriorityClass(BaseModel):
    """One desired PriorityClass (scheduling.k8s.io/v1). None: left to the API server, or to the manager that set the field.

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

    def manifest(self) -> dict[str, Any]:
        """The manifest to apply: only the fields in the data."""
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
    """A Deployment, StatefulSet or DaemonSet and the class that its pods should have. Kubernetes' own classes are allowed."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    namespace: Annotated[str, AfterValidator(namespace_name)]
    kind: Annotated[str, AfterValidator(lambda kind: kind and kind_name(kind))]  # "" of NAMESPACE/NAME, until it is settled
    name: Annotated[str, AfterValidator(object_name)]
    priority_class: Annotated[str, AfterValidator(object_name)]

    @property
    def key(self) -> str:
        """The key in the data, with the normalised kind: `namespace/deployment/name`."""
        return "/".join(filter(None, (self.namespace, self.kind.lower(), self.name)))


def _named(value: Any, what: str) -> Any:
    """The entries of a list unchanged; those of a mapping, or of text such as `a=1,b=2`, as pairs."""
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
    raise ValueError(f"{value!r} is not a mapping, a list, or text such as NAME={what},NAME={what}")


def _respelled(entry: Mapping[Any, Any]) -> dict[str, Any]:
    """The entry with Python's field names; Kubernetes' spellings are accepted too."""
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
                if not re.fullmatch(r"[+-]?[0-9]{1,20}", fields):
                    raise ValueError(f"{name}={fields}: the value is not a whole number; write one, such as {name}=1000")
                fields = int(fields)
            if not isinstance(fields, Mapping):
                fields = {"value": fields}
            if "name" in fields and fields["name"] != name:
                raise ValueError(f"{name}: its field name is {fields['name']!r}; use one name")
            entries.append({**_respelled(fields), "name": name})
        elif isinstance(entry, Mapping):
            entries.append(_respelled(entry))
        else:
            raise ValueError(f"{entry!r} is not a mapping with a name and a value")
    return tuple(entries)


def _workloads(value: Any) -> Any:
    entries = []
    for entry in _named(value, "CLASS"):
        if isinstance(entry, tuple):
            key, wanted = entry
            namespace, *kind, name = workload_name(str(key)).split("/")
            entries.append({"namespace": namespace, "kind": "".join(kind), "name": name, "priority_class": wanted})
        elif isinstance(entry, Mapping):
            entries.append(_respelled(entry))
        else:
            raise ValueError(f"{entry!r} is not a mapping with namespace, kind, name and priority_class")
    return tuple(entries)


def _unique_classes(classes: tuple[PriorityClass, ...] | None) -> tuple[PriorityClass, ...] | None:
    problems = [f"{name} is given {count} times; keep one" for name, count in _repeated(item.name for item in classes or ())]
    defaults = [item.name for item in classes or () if item.global_default]
    if len(defaults) > 1:
        problems.append(f"{' and '.join(defaults)} both have globalDefault, but a cluster has only one; keep it on one of them")
    if problems:
        raise ValueError("; ".join(problems))
    return classes


def _unique_workloads(workloads: tuple[Workload, ...]) -> tuple[Workload, ...]:
    if problems := [f"{key} is given {count} times; keep one" for key, count in _repeated(item.key for item in workloads)]:
        raise ValueError("; ".join(problems))
    return workloads


def _repeated(names: Iterable[str]) -> list[tuple[str, int]]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return [(name, count) for name, count in counts.items() if count > 1]


class DesiredClasses(Frozen):
    """The data keys of deploys/priority_classes.py.

    `priority_classes`: None if the data has none (then no class counts as dropped); empty: all were dropped. `replace`: delete and
    recreate a class to change an immutable field. `prune`: remove dropped classes that daytwo created. `force`: take over fields of other
    managers. `only_objects`: names of classes and workloads of the data. `rollout_timeout` in seconds. `kubeconfig`: a file on the
    operator's machine, instead of the control plane's own.
    """

    priority_classes: Annotated[
        tuple[PriorityClass, ...] | None,
        BeforeValidator(_classes),
        AfterValidator(_unique_classes),
        WithJsonSchema({"type": ["object", "array", "string"]}),
        Field(
            description="the cluster's PriorityClasses: name to value, or to fields (`value`, `description`, `globalDefault`,"
            " `preemptionPolicy`, `labels`, `annotations`); the same for all hosts",
            examples=[{"web": 1000, "batch": {"value": -10, "preemptionPolicy": "Never"}}, "web=1000,batch=-10"],
            json_schema_extra={registry.MAY_BE_EMPTY: True},
        ),
    ] = None
    workloads: Annotated[
        tuple[Workload, ...],
        BeforeValidator(_workloads),
        AfterValidator(_unique_workloads),
        MAP_OR_TEXT,
        Field(
            description="workloads and the class that their pods should have: NAMESPACE/KIND/NAME or NAMESPACE/NAME, with kind"
            " `deployment`, `statefulset` or `daemonset`. The same for all hosts",
            examples=[{"shop/deployment/web": "web"}, "shop/deployment/web=web"],
        ),
    ] = ()
    replace: Annotated[
        Boolean,
        Field(description="consent: delete and recreate a class whose value or preemptionPolicy changes", examples=[True]),
    ] = False
    prune: Annotated[
        Boolean,
        Field(description="consent: remove classes that daytwo created and that are no longer in the data", examples=[True]),
    ] = False
    force: Annotated[Boolean, Field(description="consent: take over fields of other managers", examples=[True])] = False
    only_objects: Annotated[
        Names, Field(description="only these classes and workloads of the data", examples=[["web"], "web,shop/deployment/web"])
    ] = None
    rollout_timeout: Annotated[int, Field(ge=1, le=86400, description="seconds for each roll-out", examples=[600])] = (
        DEFAULT_ROLLOUT_SECONDS
    )
    kubeconfig: Kubeconfig = None

    @property
    def asks(self) -> bool:
        """The data have classes or workloads, also none of them."""
        return bool(self.model_fields_set & {"priority_classes", "workloads"})

    @property
    def classes(self) -> tuple[PriorityClass, ...]:
        """The classes that this run applies."""
        return tuple(item for item in self.priority_classes or () if self.only_objects is None or item.name in self.only_objects)

    @property
    def chosen_workloads(self) -> tuple[Workload, ...]:
        return tuple(item for item in self.workloads if is_chosen(item.key, self.only_objects))

    def settled(self, exists: Callable[[str, str, str], bool]) -> Self:
        """With the kinds of all workloads. Raises ValueError."""
        kinds = [item.kind or whole_name(item.key, exists).split("/")[1] for item in self.workloads]
        named = tuple(item.model_copy(update={"kind": kind}) for item, kind in zip(self.workloads, kinds, strict=True))
        return self.model_copy(update={"workloads": _unique_workloads(named)} if self.workloads else {})

    def drops(self, name: str) -> bool:
        """True if the class `name` was dropped from the data, and this run includes it."""
        if self.priority_classes is None or any(item.name == name for item in self.priority_classes):
            return False
        return self.only_objects is None or name in self.only_objects


def read_classes(hosts: Iterable[tuple[str, Data]]) -> DesiredClasses | None:
    """The desired state, from the inventory data of all hosts; None if no host has any. Raises Refusal with all problems."""
    way_out = "it belongs to the cluster: set it in group_data/all.py"
    desired = read_common(hosts, DesiredClasses, way_out, _sentences)[1]
    return desired if desired.asks else None


_FIELDS: dict[str, type[BaseModel]] = {"priority_classes": PriorityClass, "workloads": Workload}
_SHOWN = {value: key for key, value in _SPELLINGS.items()}


def _sentences(error: ValidationError, values: Mapping[str, Any]) -> list[str]:
    return [_sentence(item, values) for item in error.errors()]


def _sentence(item: Any, values: Mapping[str, Any]) -> str:
    """One problem, in terms of the data: entry, field, value, rule, way out."""
    key, *rest = [str(part) for part in item["loc"]]
    place = key
    if rest and (index := digits(rest[0])) is not None:
        place += f": {_entry_name(values[key], index)}"
    field = rest[1] if len(rest) > 1 else ""
    shown = _SHOWN.get(field, field)
    inside = f"{shown}.{'.'.join(rest[2:])}" if len(rest) > 2 else shown
    match item["type"]:
        case "value_error":
            return f"{place}: {str(item['msg']).removeprefix('Value error, ')}"
        case "extra_forbidden":
            known = [_SHOWN.get(name, name) for name in _FIELDS[key].model_fields]
            near = did_you_mean(field, [*known, *_FIELDS[key].model_fields])
            return f"{place}: unknown field {field!r}{near or ','} fields are {', '.join(known)}"
        case "missing":
            return f"{place}: {shown} is missing; set it"
        case "int_type":
            return f"{place}: {inside} is {item['input']!r}, but must be a whole number, without quotes"
        case "bool_type":
            return f"{place}: {inside} is {item['input']!r}, but must be true or false, without quotes"
        case "string_type":
            return f"{place}: {inside} is {item['input']!r}, but must be text; put it in quotes"
        case "literal_error":
            near = did_you_mean(str(item["input"]), (PREEMPTS, NEVER))
            return f"{place}: {inside} is {item['input']!r}, but must be {PREEMPTS} or {NEVER}{near}"
    return f"{': '.join(part for part in (place, inside) if part)}: {item['msg']}, but the value is {item['input']!r}"


def _entry_name(value: Any, number: int) -> str:
    entry = _named(value, "")[number]
    if isinstance(entry, tuple):
        return str(entry[0])
    return str(entry.get("name") or f"entry {number + 1}")
