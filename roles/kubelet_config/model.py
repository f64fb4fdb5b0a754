"""What an operator wants of a kubelet's configuration: any field of it. Typed by that kubelet's own version, once that is known."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from roles.change.refusal import Refusal

ABSENT = "absent"
_OUTSIDE_BRACKETS = re.compile(r",(?![^\[{]*[\]}])")


def names(value: Any) -> tuple[str, ...] | None:
    """A list, or names with commas between them."""
    if value is None:
        return None
    items = value.split(",") if isinstance(value, str) else value
    return tuple(str(item).strip() for item in items)


def _fields(value: Any) -> dict[str, Any]:
    """{"maxPods": 200, "systemReserved": {...}, "a.b": 1}, or the text `maxPods=200,systemReserved.cpu=100m`. Raises ValueError."""
    if isinstance(value, str):
        value = dict(_pair(item) for item in _OUTSIDE_BRACKETS.split(value) if item.strip())
    if not isinstance(value, Mapping) or not value:
        raise ValueError("kubelet_config is empty; name at least one field: maxPods=200")
    return {str(name): wanted for name, wanted in value.items()}


def _pair(item: str) -> tuple[str, Any]:
    name, equals, text = item.partition("=")
    if not equals:
        raise ValueError(f"kubelet_config: {item.strip()!r} has no value; write {item.strip()}=VALUE, or {item.strip()}=absent")
    try:
        return name.strip(), YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        raise ValueError(f"kubelet_config: the value of {name.strip()} is not YAML: {text!r} ({error})") from None


class Desired(BaseModel):
    """The data keys that deploys/kubelet_config.py reads for one host.

    `kubelet_config`: fields of a KubeletConfiguration (v1beta1), nested or with dots between their parts; `absent` takes one out.
    A field that is a map is set whole; one key of it by its dotted name. `move_flags`: a flag that beats the configuration file is
    moved there. `allow_evictions`: go on where pods would have to go.
    """

    model_config = ConfigDict(frozen=True)

    kubelet_config: Annotated[dict[str, Any], BeforeValidator(_fields)]
    only: Annotated[tuple[str, ...] | None, BeforeValidator(names)] = None
    move_flags: bool = False
    allow_evictions: bool = False


def read(host: str, data: Callable[[str], Any]) -> Desired | None:
    """The desired fields of a host from its inventory data; None where it has none. Raises Refusal."""
    values = {key: data(key) for key in Desired.model_fields}
    values = {key: value for key, value in values.items() if value is not None}
    if "kubelet_config" not in values:
        return None
    try:
        return Desired(**values)
    except ValidationError as error:
        raise Refusal(host, "; ".join(sentences(error))) from None


def sentences(error: ValidationError) -> Iterator[str]:
    """Each complaint as one sentence that names the key and the value."""
    for item in error.errors():
        message = str(item["msg"]).removeprefix("Value error, ")
        place = ".".join(str(part) for part in item["loc"])
        yield message if message.startswith(place) else f"{place}: {message}, and {item['input']!r} was given"
