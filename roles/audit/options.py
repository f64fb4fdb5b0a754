"""The options of the audit: format, output file and target version."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from roles.audit.versions import parse_target
from roles.engine.inputs import TEXT, Frozen, file_path
from roles.feature_gates import load

FORMATS = ("text", "json", "html")


def _format(value: Any) -> Any:
    if value not in FORMATS:
        raise ValueError(f"format is {value!r}; it must be one of {', '.join(FORMATS)}")
    return value


def _target(value: Any) -> int | None:
    return parse_target(value, load())


class AuditOptions(Frozen):
    """The data keys of deploys/audit.py. `target_version` is the minor: 37 for v1.37."""

    format: Annotated[
        Literal["text", "json", "html"],
        BeforeValidator(_format),
        Field(description="text for people, one JSON document, or one HTML page", examples=["json", "html"]),
    ] = "text"
    output: Annotated[
        Path | None,
        file_path("output", "audit.html"),
        TEXT,
        Field(
            description="a path on the operator's machine; without it, standard output has only the document",
            examples=["audit.html"],
        ),
    ] = None
    target_version: Annotated[
        int | None,
        BeforeValidator(_target),
        WithJsonSchema({"type": ["string", "number"]}),
        Field(description="also report what an upgrade to this minor removes or locks", examples=["v1.36"]),
    ] = None
