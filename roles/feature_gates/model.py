"""The desired gates: which ones, on which components and nodes. Typed; rejects invalid data."""

from __future__ import annotations

import re
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field, WithJsonSchema

from roles.engine.bounds import Twice, once
from roles.engine.control_plane import COMPONENTS as CONTROL_PLANE
from roles.engine.editing import FormatError, flags
from roles.engine.inputs import LIST_OR_TEXT, Boolean, Data, OfNodes, did_you_mean, names, read_host

T = TypeVar("T")
ABSENT = "absent"
COMPONENTS = (*CONTROL_PLANE, "kubelet")
_ALIASES = {name.removeprefix("kube-"): name for name in CONTROL_PLANE}
# Go identifiers; the component's own binary judges the name.
_NAME = re.compile(r"(?:kube:)?[A-Za-z][A-Za-z0-9]*\Z")


def _gates(value: Any) -> dict[str, bool | None]:
    """{"A": True, "B": "absent"}, or the flag's own form `A=true,B=absent`. Raises ValueError."""
    if isinstance(value, str):
        value = _without_repeats([_pair(item) for item in value.split(",") if item.strip()])
    if not isinstance(value, dict) or not value:
        raise ValueError("feature_gates is empty; name at least one gate: NAME=true, NAME=false or NAME=absent")
    return _without_repeats([(_name(name), _wanted(str(name), wanted)) for name, wanted in value.items()])


def _without_repeats(pairs: list[tuple[str, T]]) -> dict[str, T]:
    try:
        once([(name.removeprefix(flags.KUBE), wanted) for name, wanted in pairs])
    except Twice as error:
        raise ValueError(f"feature_gates: {error}; keep one") from None
    return dict(pairs)


def _pair(item: str) -> tuple[str, str]:
    name, equals, wanted = item.partition("=")
    if not equals:
        raise ValueError(f"feature_gates: {item!r} has no value; write {item}=true, {item}=false or {item}=absent")
    return name.strip(), wanted.strip()


def _name(name: Any) -> str:
    if not isinstance(name, str) or not _NAME.match(name):
        raise ValueError(f"feature_gates: {name!r} is not the name of a gate")
    return name


def _wanted(name: str, value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    if value == ABSENT:
        return None
    try:
        return flags.parse_bool(str(value))
    except FormatError:
        raise ValueError(f"feature_gates: {name}={value} is not a boolean; write true, false or absent") from None


def _components(value: Any) -> tuple[str, ...]:
    chosen = [_ALIASES.get(name, name) for name in names(value) or COMPONENTS]
    for name in chosen:
        if name not in COMPONENTS:
            raise ValueError(f"components: {name!r} is not one of {', '.join(COMPONENTS)}{did_you_mean(name, COMPONENTS)}")
    return tuple(component for component in COMPONENTS if component in chosen)


class DesiredGates(OfNodes):
    """The data keys that deploys/feature_gates.py reads for one host.

    `all_components` sets a gate also on components that do not read it, as naming them in `components` does; `allow_hazards` names the
    gates whose hazard the operator accepts.
    """

    feature_gates: Annotated[
        dict[str, bool | None],
        BeforeValidator(_gates),
        WithJsonSchema(
            {"type": ["object", "string"], "minProperties": 1, "additionalProperties": {"enum": [True, False, ABSENT, "true", "false"]}}
        ),
        Field(
            description="the desired gates: true, false, or `absent` to remove one from the node's files; a gate that is not named stays"
            " as it is",
            examples=[{"NodeSwap": True, "HPAScaleToZero": "absent"}, "NodeSwap=true,HPAScaleToZero=absent"],
        ),
    ]
    components: Annotated[
        tuple[str, ...],
        BeforeValidator(_components),
        WithJsonSchema({"type": ["array", "string"], "items": {"enum": [*COMPONENTS, *_ALIASES]}}),
        Field(
            description=f"only these components: {', '.join(f'`{name}`' for name in COMPONENTS)}",
            examples=[["kubelet"], "kube-apiserver,kubelet"],
        ),
    ] = COMPONENTS
    all_components: Annotated[
        Boolean,
        Field(description="set a gate also on components that do not read it, as naming them in `components` does", examples=[True]),
    ] = False
    allow_unknown_gates: Annotated[
        Boolean,
        Field(description="consent: write a gate that the component's own binary does not know", examples=[True]),
    ] = False
    allow_hazards: Annotated[
        tuple[str, ...],
        BeforeValidator(names),
        LIST_OR_TEXT,
        Field(
            description="consent: set these gates despite the hazard that the plan names",
            examples=[["HPAConfigurableTolerance"], "HPAConfigurableTolerance"],
        ),
    ] = ()

    @property
    def data(self) -> dict[str, Any]:
        """As plain data, for the record of a run."""
        return self.model_dump()

    @property
    def gates(self) -> dict[str, bool | None]:
        """The gates by their bare names."""
        return {name.removeprefix(flags.KUBE): value for name, value in self.feature_gates.items()}

    @property
    def everywhere(self) -> bool:
        """Whether the operator chose the components, whether they read the gates or not."""
        return self.all_components or "components" in self.model_fields_set

    @property
    def turns_on(self) -> bool:
        """Whether the data turns a gate on: API servers then come first; to turn gates off, kubelets come first."""
        return any(self.feature_gates.values())


def read_gates(host: str, data: Data) -> DesiredGates | None:
    """The desired gates of a host from its inventory data; None if it has none. Raises Refusal."""
    return read_host(host, data, DesiredGates, ("feature_gates",))
