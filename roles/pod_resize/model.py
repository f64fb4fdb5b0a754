"""The desired resize of running pods: which pods, how much, how fast, and whether their template changes. Typed; each error has a way
out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, WithJsonSchema

from roles.engine.bounds import digits
from roles.engine.inputs import Boolean, Data, Frozen, Kubeconfig, Names, read_common
from roles.engine.inputs.values import TableOrJson
from roles.engine.kube.amounts import parse_quantity
from roles.engine.kube.names import RESOURCES_OF_KINDS, namespaced_selector, whole_name, workload_name
from roles.engine.kubelet.thresholds import without_unit
from roles.engine.transaction import Refusal

DEFAULT_RESIZE_SECONDS = 120
DEFAULT_ROLLOUT_SECONDS = 300
#: Data keys that select pods by their workload, and the kind of each.
KINDS = {"deployment": "Deployment", "statefulset": "StatefulSet", "daemonset": "DaemonSet"}
_CHOOSING = ("workload", *KINDS, "selector")
AMOUNTS = ("cpu", "memory", "cpu_request", "cpu_limit", "memory_request", "memory_limit")
ALL = "all"
#: Data keys that an undo uses from the undone run.
PACE = ("max_in_flight", "resize_timeout", "rollout_timeout")


def _amount(value: Any) -> str | None:
    """A quantity above 0, as text."""
    if value is None:
        return None
    if isinstance(value, bool):
        raise ValueError(f"{str(value).lower()} is not a quantity; write 300m or 600Mi")
    text = str(value).strip()
    if text.lower() in ("absent", "none", "null", ""):
        raise ValueError("a request or limit cannot be removed from a running pod, only changed; remove it from the template instead")
    if parse_quantity(text) <= 0:
        raise ValueError(
            f"{text} is not above 0, and a request or limit cannot be removed from a running pod; give an amount, or change the template"
        )
    return text


def _of_kind(kind: str) -> BeforeValidator:
    """Reads NAMESPACE/NAME of a kind, which may stand between them."""

    def read(value: Any) -> str | None:
        if value is None:
            return None
        namespace, *_, name = workload_name(str(value), (kind,)).split("/")
        return f"{namespace}/{name}"

    return BeforeValidator(read)


def _of_selector(value: Any) -> str | None:
    return None if value is None else namespaced_selector(str(value))


def _at_once(value: Any) -> int:
    if isinstance(value, bool) or (number := digits(str(value))) is None or number < 1:
        raise ValueError(f"{value!r} is not a number of pods (1, 2, ...)")
    return number


_OF_WORKLOAD = WithJsonSchema({"type": "string", "pattern": "^[^/]+(/[^/]+){1,2}$"})


def _memory(value: Any) -> str | None:
    text = _amount(value)
    if text is not None and (why := without_unit(text)):
        raise ValueError(why)
    return text


_Memory = Annotated[str | None, BeforeValidator(_memory), WithJsonSchema({"type": ["string", "number"]})]
_Amount = Annotated[str | None, BeforeValidator(_amount), WithJsonSchema({"type": ["string", "number"]})]
_ResizeTimeout = Annotated[
    int, Field(ge=5, le=86400, description="seconds for each pod until its cgroups have the new amounts", examples=[300])
]


class DesiredResources(Frozen):
    """The data keys of deploys/resize.py.

    One of `workload` (NAMESPACE/KIND/NAME), `deployment`, `statefulset`, `daemonset` (NAMESPACE/NAME) or `selector` (NAMESPACE/LABELS).
    `cpu` and `memory` are the request, and the limit if the container has one. `container`: names, or all; optional if there is only one.
    `max_in_flight`: pods at a time. `template`: whether the workload's template changes too. Times in seconds.
    """

    workload: Annotated[
        str | None,
        BeforeValidator(lambda value: None if value is None else workload_name(str(value))),
        _OF_WORKLOAD,
        Field(
            description="the workload whose pods are resized: NAMESPACE/KIND/NAME, or NAMESPACE/NAME if one workload has that name; kinds"
            " `deployment`, `statefulset`, `daemonset`, or `deploy`, `sts`, `ds`",
            examples=["shop/deployment/web"],
        ),
    ] = None
    deployment: Annotated[
        str | None,
        _of_kind("Deployment"),
        _OF_WORKLOAD,
        Field(description="`workload` of a Deployment: NAMESPACE/NAME", examples=["shop/web"]),
    ] = None
    statefulset: Annotated[
        str | None,
        _of_kind("StatefulSet"),
        _OF_WORKLOAD,
        Field(description="`workload` of a StatefulSet: NAMESPACE/NAME", examples=["shop/db"]),
    ] = None
    daemonset: Annotated[
        str | None,
        _of_kind("DaemonSet"),
        _OF_WORKLOAD,
        Field(description="`workload` of a DaemonSet: NAMESPACE/NAME", examples=["logs/collector"]),
    ] = None
    selector: Annotated[
        str | None,
        BeforeValidator(_of_selector),
        WithJsonSchema({"type": "string", "pattern": "^[^/]+/."}),
        Field(description="the pods that are resized, by their labels: NAMESPACE/SELECTOR", examples=["shop/app=web"]),
    ] = None
    cpu: Annotated[_Amount, Field(description="the CPU request, and the limit if the container has one", examples=["300m", 2])] = None
    memory: Annotated[_Memory, Field(description="the memory request, and the limit if the container has one", examples=["600Mi"])] = None
    cpu_request: Annotated[_Amount, Field(description="only the CPU request", examples=["300m"])] = None
    cpu_limit: Annotated[_Amount, Field(description="only the CPU limit", examples=["500m"])] = None
    memory_request: Annotated[_Memory, Field(description="only the memory request", examples=["400Mi"])] = None
    memory_limit: Annotated[_Memory, Field(description="only the memory limit", examples=["600Mi"])] = None
    container: Annotated[
        Names,
        Field(
            description="the containers that are resized, or `all`; optional if a pod has only one",
            examples=[["app"], "app,proxy", "all"],
        ),
    ] = None
    max_in_flight: Annotated[
        int,
        BeforeValidator(_at_once),
        WithJsonSchema({"type": ["integer", "string"], "minimum": 1, "pattern": "^0*[1-9][0-9]*$"}),
        Field(description="the maximum number of pods that are resized at a time", examples=[2]),
    ] = 1
    template: Annotated[
        Literal["keep", "update"],
        Field(description="whether the workload's template also gets the amounts, which recreates its pods", examples=["update"]),
    ] = "keep"
    allow_restarts: Annotated[
        Boolean, Field(description="consent: restart containers whose resizePolicy requires it for this resize", examples=[True])
    ] = False
    resize_timeout: _ResizeTimeout = DEFAULT_RESIZE_SECONDS
    rollout_timeout: Annotated[int, Field(ge=1, le=86400, description="seconds for the template's roll-out", examples=[600])] = (
        DEFAULT_ROLLOUT_SECONDS
    )
    kubeconfig: Kubeconfig = None

    @property
    def chosen(self) -> list[str]:
        """The given data keys that select pods."""
        return [key for key in _CHOOSING if getattr(self, key) is not None]

    @property
    def kind(self) -> str | None:
        """The kind of the workload, "" of one that is not settled; None for a selector."""
        if self.workload is not None:
            return "".join(self.workload.split("/")[1:-1])
        return next((kind for key, kind in KINDS.items() if getattr(self, key) is not None), None)

    @property
    def place(self) -> tuple[str, str]:
        """Namespace, and name or selector."""
        value = next((getattr(self, key) for key in _CHOOSING if getattr(self, key) is not None), "/")
        namespace, _, name = str(value).partition("/")
        return namespace, name.rpartition("/")[2] if self.workload is not None else name

    def settled(self, exists: Callable[[str, str, str], bool]) -> Self:
        """With the kind of the workload. Raises ValueError."""
        return self if self.workload is None else self.model_copy(update={"workload": whole_name(self.workload, exists)})

    @property
    def path(self) -> str:
        """The API path of the workload."""
        namespace, name = self.place
        return f"/apis/apps/v1/namespaces/{namespace}/{RESOURCES_OF_KINDS[self.kind or '']}/{name}"

    def wanted(self, resource: str, kind: Literal["request", "limit"]) -> str | None:
        found: str | None = getattr(self, f"{resource}_{kind}")
        return found

    def both(self, resource: str) -> str | None:
        found: str | None = getattr(self, resource)
        return found


class ProbeOptions(Frozen):
    """The data keys of deploys/pod_resize_check.py. `image`: that of the probe pods; by default a pause image that the node has."""

    image: Annotated[
        str | None,
        WithJsonSchema({"type": "string"}),
        Field(
            description="the image of the probe pods; by default a pause image that the node has", examples=["registry.k8s.io/pause:3.10"]
        ),
    ] = None
    resize_timeout: _ResizeTimeout = DEFAULT_RESIZE_SECONDS
    kubeconfig: Kubeconfig = None


class DriftOptions(Frozen):
    """The data keys of deploys/resize_drift.py."""

    format: TableOrJson = "table"
    kubeconfig: Kubeconfig = None


M = TypeVar("M", bound=BaseModel)


def _consistent(desired: DesiredResources) -> list[str]:
    problems = []
    if len(desired.chosen) != 1:
        given = f"{' and '.join(desired.chosen)} are given" if desired.chosen else "none is given"
        problems.append(f"choose pods by one of workload (NAMESPACE/KIND/NAME) or selector (NAMESPACE/LABELS); {given}")
    amounts = [key for key in AMOUNTS if getattr(desired, key) is not None]
    if not amounts:
        problems.append(f"no amount is given; give one of {', '.join(AMOUNTS)}: --data cpu=300m --data memory=600Mi")
    for resource in ("cpu", "memory"):
        apart = [f"{resource}_{kind}" for kind in ("request", "limit") if getattr(desired, f"{resource}_{kind}") is not None]
        if desired.both(resource) is not None and apart:
            problems.append(f"{resource} is the request and the limit; give it, or {' and '.join(apart)}, not both")
        request, limit = (getattr(desired, f"{resource}_{kind}") for kind in ("request", "limit"))
        if request is not None and limit is not None and parse_quantity(request) > parse_quantity(limit):
            problems.append(f"{resource}_request {request} is above {resource}_limit {limit}")
    if desired.template == "update" and desired.selector is not None:
        problems.append("template=update is for a workload; a selector has no template: name the workload")
    return problems


def read_resize(hosts: Iterable[tuple[str, Data]]) -> DesiredResources:
    """The desired resize, from the inventory data of all hosts. Raises Refusal with all problems."""
    host, desired = read_cluster(hosts, DesiredResources)
    if problems := _consistent(desired):
        raise Refusal(host, "; ".join(problems))
    return desired


def read_cluster(hosts: Iterable[tuple[str, Data]], model: type[M]) -> tuple[str, M]:
    """The options, and the host that has the first of them. Raises Refusal."""
    return read_common(hosts, model, "pods belong to the cluster: set it with --data")
