"""All data keys that deploys read, collected from the models that read them. Pure.

A role declares its keys in its own model, each with a description and examples; here each model has one line. The models are given as
text and imported when they are needed: this package is above all others. Only the code that undoes runs of any capability imports it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field

from roles.engine.inputs.values import Frozen, Names

EVERY_DEPLOY = "every deploy"
# The file with reference.schema_text; a test checks that it is up to date.
SCHEMA = Path(__file__).resolve().parents[3] / "docs/reference/data.schema.json"


@dataclass(frozen=True)
class Declared:
    """A pydantic model whose fields are data keys (`package.module:Class`), and the deploys that read them.

    `undo` (`package:function`) undoes runs of the first deploy, if these are runs on API objects: from the fleet, the options, the record
    (roles/engine/transaction/object_record.py) and the consents (roles/engine/object_changes/run.py), it creates the run that undoes it.
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


class Own(Frozen):
    """The keys that daytwo ignores."""

    own_keys: Annotated[
        Names,
        Field(
            description="keys of your own deploys in the same data, which daytwo then ignores; `*` matches any text",
            examples=[["rack", "dns_*"], "rack,dns_*"],
        ),
    ] = None


class Detail(Frozen):
    """How much a run prints (roles/engine/detail.py)."""

    verbose: Annotated[
        bool, Field(description="show each host in its own lines; otherwise, of more than 8 hosts, like ones share a line", examples=[True])
    ] = False


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
    Declared("roles.engine.inputs.registry:Detail", (EVERY_DEPLOY,)),
)


def way_back(capability: str) -> Any:
    """The function that undoes a run on API objects, by the name of the run's deploy; None if there is none."""
    return next((_named(declared.undo) for declared in DECLARED if declared.undo and declared.deploys[0] == capability), None)


@dataclass(frozen=True)
class Key:
    """One data key of one model. `schema`: the values that an inventory may have, as JSON schema. `default` is None if there is no constant
    default."""

    name: str
    description: str
    examples: tuple[Any, ...]
    schema: Mapping[str, Any]
    default: Any
    declared: Declared


@cache
def every() -> tuple[Key, ...]:
    """Every key of every model, in their order; a name that several models read occurs several times."""
    return tuple(key for declared in DECLARED for key in of(declared))


def of(declared: Declared) -> list[Key]:
    """The keys of one model."""
    model = declared.fields
    whole = model.model_json_schema()
    found = []
    for name, field in model.model_fields.items():
        found_schema = whole["properties"][name]
        schema = {key: value for key, value in found_schema.items() if key not in ("title", "description", "examples", "default")}
        default = None if field.is_required() else field.get_default(call_default_factory=False)
        found.append(Key(name, field.description or "", tuple(field.examples or ()), schema, default, declared))
    return found


@cache
def names() -> frozenset[str]:
    """The names of all keys."""
    return frozenset(key.name for key in every())


@cache
def written_names() -> frozenset[str]:
    """The names of all keys from the file SCHEMA, without an import of the models: importing all roles takes longer than everything else
    that a deploy does before its first observation. If the file cannot be read, the names come from the models."""
    try:
        return frozenset(json.loads(SCHEMA.read_text(encoding="utf-8"))["properties"])
    except (OSError, ValueError, LookupError, TypeError):
        return names()
