"""Values of the inventory's data, and of --data, as an operator may write them: every role checks them in the same way."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema, model_validator

from roles.engine.editing import FormatError, flags
from roles.engine.inputs.nearest import choice
from roles.engine.timeouts import unless_set


def names(value: Any) -> tuple[str, ...] | None:
    """A list, or names separated by commas; --data turns `5` into a number. Raises ValueError."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (str, int, list, tuple)):
        raise ValueError(f"{written(value)} is not a list of names; separate them with commas: w1,w2")
    items = value if isinstance(value, (list, tuple)) else str(value).split(",")
    found = tuple(str(item).strip() for item in items if str(item).strip())
    if not found and value not in ([], ()):
        raise ValueError(f"{value!r} names nothing")
    return found


def boolean(value: Any) -> Any:
    """true and false, also as text; pydantic would also accept `yes`, which no flag of Kubernetes does. Raises ValueError."""
    if isinstance(value, bool):
        return value
    try:
        return flags.parse_bool(str(value))
    except FormatError:
        raise ValueError(f"{written(value)} is not a boolean; write true or false") from None


# The values that an inventory may have for these types, for the schema (docs/reference/data.schema.json).
LIST_OR_TEXT = WithJsonSchema({"type": ["array", "string"], "items": {"type": "string"}})
Names = Annotated[tuple[str, ...] | None, BeforeValidator(names), LIST_OR_TEXT]
Boolean = Annotated[bool, BeforeValidator(boolean), WithJsonSchema({"type": "boolean"})]
#: A map, or the text that --data accepts for one: `a=1,b=2`.
MAP_OR_TEXT = WithJsonSchema({"type": ["object", "string"]})
TEXT = WithJsonSchema({"type": "string"})
#: `format` of a deploy that shows one table.
TableOrJson = Annotated[
    Literal["table", "json"],
    choice("format", "table", "json"),
    Field(description="a table, or one JSON document on standard output", examples=["json"]),
]
#: `format` of a deploy that makes a page too.
TextJsonOrHtml = Annotated[
    Literal["text", "json", "html"],
    choice("format", "text", "json", "html"),
    Field(description="text for people, one JSON document, or one HTML page", examples=["json", "html"]),
]
Kubeconfig = Annotated[
    str | None,
    TEXT,
    Field(
        description="a file on the operator's machine whose identity is used, instead of the control plane's own",
        examples=["~/.kube/config"],
    ),
]


class Frozen(BaseModel):
    """The base of all models of data keys."""

    model_config = ConfigDict(frozen=True)

    def limit(self, key: str) -> float:
        """A time limit in seconds: one that the operator set counts as it is, a default is stretched."""
        return unless_set(getattr(self, key), key in self.model_fields_set)


class OfNodes(Frozen):
    """Keys of a deploy that works on some nodes of its run."""

    nodes: Annotated[Names, Field(description="only these nodes, by their names in the inventory", examples=[["w1", "w2"], "w1,w2"])] = None
    only: Annotated[Names, Field(description="the same as `nodes`, by its name before", examples=["w1,w2"])] = None

    @model_validator(mode="after")
    def _once(self) -> Self:
        if self.nodes is not None and self.only is not None:
            raise ValueError("nodes and only are the same key by two names, and both are given; keep nodes")
        return self

    @property
    def chosen_nodes(self) -> tuple[str, ...] | None:
        """None: all."""
        return self.only if self.nodes is None else self.nodes

    def includes(self, host: str) -> bool:
        return self.chosen_nodes is None or host in self.chosen_nodes


def file_path(key: str, example: str) -> BeforeValidator:
    """Reads the path of a file on the operator's machine."""

    def read(value: Any) -> Path:
        if not isinstance(value, str) or not value:
            raise ValueError(f"{key} is {value!r}; give a path: --data {key}={example}")
        return Path(value).expanduser()

    return BeforeValidator(read)


#: `output` of a deploy that writes a report.
Output = Annotated[
    Path | None,
    file_path("output", "report.html"),
    TEXT,
    Field(description="a path on the operator's machine; without it, standard output has only the document", examples=["report.html"]),
]
#: The one way in which a number is written, by its type.
_PLAIN: Final[Mapping[type, str]] = {int: r"-?[0-9]+", float: r"-?[0-9]+(\.[0-9]+)?"}


def unclear_numbers(model: type[BaseModel], values: Mapping[str, Any]) -> list[str]:
    """The keys of a model that are numbers and have what pydantic would convert to one, in sentences: true, 5.0 for a whole number, ` 5`,
    1_000, 1e3, digits of other scripts. What it does not convert, it refuses itself."""
    return [
        f"{key}: {written(value)} is not plainly a number; write it in the digits 0 to 9"
        for key, value in values.items()
        for kind in number_kinds(model, key)
        if _unclear(value, kind)
    ]


def number_kinds(model: type[BaseModel], key: str) -> set[type]:
    """{int} or {float} for a key that is a number; else empty, also where the key's own function reads it first: v1.37, for example."""
    field = model.model_fields[key]
    if any(isinstance(one, BeforeValidator) for one in field.metadata):
        return set()
    annotation = field.annotation
    parts = {get_args(one)[0] if hasattr(one, "__metadata__") else one for one in get_args(annotation) or (annotation,)} - {type(None)}
    return parts if len(parts) == 1 and parts <= set(_PLAIN) else set()


def _unclear(value: Any, kind: type) -> bool:
    if not isinstance(value, str):
        return isinstance(value, bool) or (isinstance(value, float) and kind is int)
    return not re.fullmatch(_PLAIN[kind], value) and converted(value, float)


def converted(text: str, kind: type[int] | type[float]) -> bool:
    """Whether Python takes a text for a number; it also takes blanks, underscores and the digits of every script."""
    try:
        kind(text)
    except ValueError:
        return False
    return True


# What pydantic asks for, by the type of its error (pydantic_core.core_schema.ErrorType).
_RULES: Final[Mapping[str, str]] = {
    "greater_than_equal": "{ge} or more",
    "less_than_equal": "{le} or less",
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_parsing", "float_type"), "a number"),
    **dict.fromkeys(("bool_parsing", "bool_type"), "true or false"),
    "string_type": "a text",
    "literal_error": "{expected}",
}


def sentences(error: ValidationError) -> list[str]:
    """Each error in a model's data as one sentence that names the key and its value (the errors of this project name it themselves)."""
    found = []
    for item in error.errors():
        message = str(item["msg"]).removeprefix("Value error, ")
        place = ".".join(str(part) for part in item["loc"])
        if (rule := _RULES.get(item["type"])) is not None:
            message = f"{written(item['input'])}, but it must be {rule.format(**item.get('ctx', {}))}"
            sentence = f"{place}: {message}"
        else:
            sentence = f"{place}: {message}" + ("" if item["type"] == "value_error" else f" (given: {item['input']!r})")
        found.append(message if message.startswith(place) else sentence)
    return found


def written(value: Any) -> str:
    """As an operator would write it."""
    return value if isinstance(value, str) and value else json.dumps(value, default=str)
