"""All data keys that deploys read, collected from the models that read them.

A package declares its keys in its own model, each with a description and examples, and lists its models as DATA_KEYS in its face
(`roles/<name>/__init__.py`). They are found there when they are needed: this package is above all others, and a deploy does not import the
packages of other deploys.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field

from roles.engine.inputs.values import Frozen, Names

EVERY_DEPLOY = "every deploy"
ROLES = Path(__file__).resolve().parents[2]
# The file with reference.schema_text; a test checks that it is up to date.
SCHEMA = ROLES.parent / "docs/reference/data.schema.json"


@dataclass(frozen=True)
class Declared:
    """A pydantic model whose fields are data keys, and the deploys that read them.

    `changes`: the deploys change nodes or API objects, so they also read the keys of a roll-out (roles/engine/rollout/options.py). `undo`
    undoes runs of the first deploy, if these are runs on API objects: from the fleet, the options, the record
    (roles/engine/transaction/object_record.py) and the consents (roles/engine/object_changes/run.py), it creates the run that undoes it.
    """

    fields: type[BaseModel]
    deploys: tuple[str, ...]
    changes: bool = False
    undo: Callable[..., Any] | None = None


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


@cache
def every_model() -> tuple[Declared, ...]:
    """Every model: those of each package of roles/, those of all deploys that change something, and those of every deploy."""
    packages = sorted(path.parent.name for path in ROLES.glob("*/__init__.py") if path.parent.name != "engine")
    listed = [one for name in packages for one in getattr(import_module(f"roles.{name}"), "DATA_KEYS", ())]
    found = sorted(listed, key=lambda one: one.deploys)
    changing = tuple(name for one in found if one.changes for name in one.deploys)
    options = import_module("roles.engine.rollout.options").Options
    return (*found, Declared(options, changing), Declared(Own, (EVERY_DEPLOY,)), Declared(Detail, (EVERY_DEPLOY,)))


def way_back(capability: str) -> Callable[..., Any] | None:
    """The function that undoes a run on API objects, by the name of the run's deploy; None if there is none."""
    return next((declared.undo for declared in every_model() if declared.undo and declared.deploys[0] == capability), None)


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
    return tuple(key for declared in every_model() for key in of(declared))


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
