"""Values of the inventory's data, and of --data, as an operator may write them: checked alike in every role."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import BeforeValidator, ValidationError, WithJsonSchema

from roles.engine.editing import FormatError, flags


def names(value: Any) -> tuple[str, ...] | None:
    """A list, or names with commas between them; --data makes a number of `5`. Raises ValueError."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (str, int, list, tuple)):
        raise ValueError(f"{written(value)} is no list of names; write them with commas between: w1,w2")
    items = value if isinstance(value, (list, tuple)) else str(value).split(",")
    return tuple(str(item).strip() for item in items if str(item).strip())


def chosen(only: tuple[str, ...] | None, host: str) -> bool:
    """Whether the data key `only` leaves a host in."""
    return only is None or host in only


def boolean(value: Any) -> Any:
    """true and false, also as text; pydantic would take `yes` too, which no flag of Kubernetes does. Raises ValueError."""
    if isinstance(value, bool):
        return value
    try:
        return flags.parse_bool(str(value))
    except FormatError:
        raise ValueError(f"{written(value)} is not a boolean; write true or false") from None


# What an inventory may write for one of these, told to whoever reads the schema (docs/reference/data.schema.json).
LIST_OR_TEXT = WithJsonSchema({"type": ["array", "string"], "items": {"type": "string"}})
Names = Annotated[tuple[str, ...] | None, BeforeValidator(names), LIST_OR_TEXT]
Boolean = Annotated[bool, BeforeValidator(boolean), WithJsonSchema({"type": "boolean"})]
#: A map, or the text that --data takes for one: `a=1,b=2`.
MAP_OR_TEXT = WithJsonSchema({"type": ["object", "string"]})


def sentences(error: ValidationError, given: bool = False) -> list[str]:
    """Each complaint about a model's data as one sentence that names the key; `given`: and what was written there."""
    found = []
    for item in error.errors():
        message = str(item["msg"]).removeprefix("Value error, ")
        place = ".".join(str(part) for part in item["loc"])
        told = f"{place}: {message}" + (f", and {item['input']!r} was given" if given else "")
        found.append(message if message.startswith(place) else told)
    return found


def written(value: Any) -> str:
    """As an operator would write it."""
    return value if isinstance(value, str) and value else json.dumps(value, default=str)
