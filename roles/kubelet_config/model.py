"""The desired fields of a kubelet's configuration. Their types are checked later, by the version of each kubelet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from roles.engine.inputs import MAP_OR_TEXT, Boolean, Data, OfNodes, read_host
from roles.engine.inputs.values import written

ABSENT = "absent"
_CLOSING = {"[": "]", "{": "}"}


def _fields(value: Any) -> dict[str, Any]:
    """{"maxPods": 200, "systemReserved": {...}, "a.b": 1}, or the text `maxPods=200,systemReserved.cpu=100m`. Raises ValueError."""
    if isinstance(value, str):
        found: dict[str, Any] = {}
        for item in _items(value):
            name, wanted = _pair(item)
            if name in found:
                raise ValueError(f"kubelet_config: {name} is set twice; keep one of them")
            found[name] = wanted
        value = found
    if not isinstance(value, Mapping):
        raise ValueError(f"kubelet_config: {written(value)} must be a mapping of fields; write FIELD=VALUE, such as maxPods=200")
    if not value:
        raise ValueError("kubelet_config is empty; name at least one field: maxPods=200")
    if nothing := [str(name) for name, wanted in value.items() if wanted is None]:
        raise ValueError(f"kubelet_config: {', '.join(nothing)} has no value; write it, or {ABSENT} to remove the field")
    return {str(name): wanted for name, wanted in value.items()}


def _items(text: str) -> list[str]:
    """The parts between commas; commas in brackets and in quotes do not count."""
    items, item, open_brackets, quote = [], "", list[str](), ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in _CLOSING:
            open_brackets.append(_CLOSING[character])
        elif open_brackets and character == open_brackets[-1]:
            open_brackets.pop()
        elif character == "," and not open_brackets:
            items.append(item)
            item = ""
            continue
        item += character
    return [item for item in (*items, item) if item.strip()]


def _pair(item: str) -> tuple[str, Any]:
    name, equals, text = item.partition("=")
    if not equals:
        raise ValueError(f"kubelet_config: {item.strip()} has no value; write {item.strip()}=VALUE, or {item.strip()}=absent")
    try:
        return name.strip(), YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ValueError(f"kubelet_config: the value of {name.strip()} is not YAML: {text} ({problem})") from None


class DesiredFields(OfNodes):
    """The data keys that deploys/kubelet_config.py reads for one host.

    `kubelet_config`: fields of a KubeletConfiguration (v1beta1), nested or with dots between their parts; `absent` removes one.
    A field that is a map is set as a whole; its dotted name sets one key of it. `move_flags`: move a flag that overrides the
    configuration file into that file. `allow_evictions`: continue if pods would be evicted.
    """

    kubelet_config: Annotated[
        dict[str, Any],
        BeforeValidator(_fields),
        MAP_OR_TEXT,
        Field(
            description="fields of KubeletConfiguration (kubelet.config.k8s.io/v1beta1, docs/reference/kubelet-fields.md), nested or with"
            " dots between their parts. `absent` removes a field; a field that is not named stays as it is",
            examples=[{"maxPods": 200, "systemReserved.cpu": "200m"}, "maxPods=200,systemReserved.cpu=200m"],
        ),
    ]
    move_flags: Annotated[
        Boolean, Field(description="consent: move a flag that overrides the configuration file into that file", examples=[True])
    ] = False
    allow_evictions: Annotated[
        Boolean,
        Field(description="consent: continue if pods would be evicted, or not admitted again by the restarted kubelet", examples=[True]),
    ] = False


def read_fields(host: str, data: Data) -> DesiredFields | None:
    """The desired fields of a host from its inventory data; None if it has none. Raises Refusal."""
    return read_host(host, data, DesiredFields, ("kubelet_config",))
