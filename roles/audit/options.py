"""The options of the audit: format, output file and target version."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from roles.audit.versions import parse_target
from roles.engine.inputs import Frozen
from roles.engine.inputs.values import Output, TextJsonOrHtml
from roles.feature_gates import load


def _target(value: Any) -> int | None:
    return parse_target(value, load())


class AuditOptions(Frozen):
    """The data keys of deploys/audit.py. `target_version` is the minor: 37 for v1.37."""

    format: TextJsonOrHtml = "text"
    output: Output = None
    target_version: Annotated[
        int | None,
        BeforeValidator(_target),
        WithJsonSchema({"type": ["string", "number"]}),
        Field(description="also report what an upgrade to this minor removes or locks", examples=["v1.36"]),
    ] = None
