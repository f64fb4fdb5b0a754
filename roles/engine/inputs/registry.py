"""All data keys that deploys read, gathered from the models that read them. Pure.

A role declares its keys in its own model, where each has a description and examples; here it has one line. The models are named by
text and imported when they are asked for: this package is above all others. Only what undoes runs, of whatever capability, imports it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from roles.engine.inputs.values import Names

EVERY_DEPLOY = "every deploy"
# Where reference.schema_text is kept; a test holds it in step with the models.
SCHEMA = Path(__file__).resolve().parents[3] / "docs/reference/data.schema.json"


@dataclass(frozen=True)
class Declared:
    """A pydantic model whose fields are data keys (`package.module:Class`), and the deploys that read them.

    `undo` undoes the runs of the first of these, where they are runs on API objects (`package:function`): from the fleet, the options, the
    record (roles/engine/transaction/object_record.py) and the consents (roles/engine/object_changes/run.py) to the run that undoes it.
    """

    model: str
    deploys: tuple[str, ...]
    undo: str = ""

    @property
    def fields(self) -> type[BaseModel]:
        found: type[BaseModel] = _named(self.model)
        return found


def _named(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


class Own(BaseModel):
    """What says which keys are not daytwo's affair."""

    model_config = ConfigDict(frozen=True)

    own_keys: Annotated[
        Names,
        Field(
            description="keys of your own deploys that stand in the same data, which daytwo then passes over; `*` stands for any text",
            examples=[["rack", "dns_*"], "rack,dns_*"],
        ),
    ] = None


# One line for each model.
DECLARED = (
    Declared("roles.feature_gates.model:DesiredGates", ("feature_gates",)),
    Declared("roles.eviction.model:DesiredThresholds", ("eviction",)),
    Declared("roles.eviction.order_deploy:OrderOptions", ("eviction_order",)),
    Declared("roles.kubelet_config.model:DesiredFields", ("kubelet_config",)),
    Declared("roles.priority_classes.model:DesiredClasses", ("priority_classes",), undo="roles.priority_classes:undo"),
    Declared("roles.pod_resize.model:DesiredResources", ("resize",), undo="roles.pod_resize:undo"),
    Declared("roles.pod_resize.model:DriftOptions", ("resize_drift",)),
    Declared("roles.pod_resize.model:ProbeOptions", ("pod_resize_check",)),
    Declared("roles.node_labels.model:DesiredLabels", ("node_labels",), undo="roles.node_labels:undo"),
    Declared("roles.history.model:RollbackOptions", ("rollback",)),
    Declared(
        "roles.engine.rollout.options:Options",
        ("feature_gates", "eviction", "kubelet_config", "priority_classes", "resize", "pod_resize_check", "node_labels", "rollback"),
    ),
    Declared("roles.audit.options:AuditOptions", ("audit",)),
    Declared("roles.checks.model:CheckOptions", ("checks",)),
    Declared("roles.engine.inputs.registry:Own", (EVERY_DEPLOY,)),
)


def way_back(capability: str) -> Any:
    """What undoes a run on API objects, by the name of the deploy that made it; None where nothing does."""
    return next((_named(declared.undo) for declared in DECLARED if declared.undo and declared.deploys[0] == capability), None)


@dataclass(frozen=True)
class Key:
    """One data key as one model has it. `schema`: what an inventory may write for it, as JSON schema. `default` is None where there is
    none that is constant."""

    name: str
    description: str
    examples: tuple[Any, ...]
    schema: Mapping[str, Any]
    default: Any
    declared: Declared


@cache
def every() -> tuple[Key, ...]:
    """Every key of every model, in their order; a name that several models read is there several times."""
    return tuple(key for declared in DECLARED for key in of(declared))


def of(declared: Declared) -> list[Key]:
    """The keys of one model."""
    model = declared.fields
    whole = model.model_json_schema()
    found = []
    for name, field in model.model_fields.items():
        told = whole["properties"][name]
        schema = {key: value for key, value in told.items() if key not in ("title", "description", "examples", "default")}
        default = None if field.is_required() else field.get_default(call_default_factory=False)
        found.append(Key(name, field.description or "", tuple(field.examples or ()), schema, default, declared))
    return found


@cache
def names() -> frozenset[str]:
    """The names of all keys."""
    return frozenset(key.name for key in every())


@cache
def written_names() -> frozenset[str]:
    """The names of all keys as the page SCHEMA has them, which takes no import of any model: all roles together take longer to
    import than all else that a deploy does before its first look. Where there is no such page, the models are asked."""
    try:
        return frozenset(json.loads(SCHEMA.read_text(encoding="utf-8"))["properties"])
    except (OSError, ValueError, LookupError, TypeError):
        return names()
