"""All data keys that deploys read, collected from the models that read them.

A package declares its keys in its own model, each with a description and examples, and lists its models as DATA_KEYS in its face
(`roles/<name>/__init__.py`). They are found there when they are needed: this package is above all others, and a deploy does not import the
packages of other deploys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from roles.engine.bounds import read_json
from roles.engine.inputs.values import Frozen, Names
from roles.engine.transaction import ObjectsRecord, Writable, not_writable

EVERY_DEPLOY = "every deploy"
#: Where the schema of a key has the deploys that read it.
READERS = "x-read-by"
#: In the schema of a key: an empty value is one that an operator may mean, and no variable of a shell that is not set.
MAY_BE_EMPTY = "x-may-be-empty"
ROLES = Path(__file__).resolve().parents[2]
# The file with reference.schema_text; a test checks that it is up to date.
SCHEMA = ROLES.parent / "docs/reference/data.schema.json"


class Changes(IntEnum):
    """What a deploy changes. The higher, the more keys of a roll-out it reads (roles/engine/runs/options.py, READ_FROM)."""

    NOTHING = 0
    DAYTWO = 1  # daytwo's own files on the nodes
    OBJECTS = 2  # of the API
    BOOTS = 3  # what runs on nodes, by a boot
    NODES = 4  # files and processes of nodes


@dataclass(frozen=True)
class Undo:
    """How runs of a deploy are undone, and what their undo may write. `plan` creates the run that undoes one, from the fleet, the options,
    the record (roles/engine/transaction/object_record.py) and the consents (roles/engine/object_runs/run.py). `writes`: the objects and
    fields; `keys`: the model of the data keys that a record repeats, and so their bounds.
    """

    plan: Callable[..., Any]
    writes: tuple[Writable, ...]
    keys: type[BaseModel] | None = None

    def refusals(self, record: ObjectsRecord) -> list[str]:
        """What a record has that no run of this deploy writes. Pure."""
        found = [f"{key}={value!r}" for key, value in record.about.items() if value is not None and not self._has(key, value)]
        return [*found, *(why for one in record.objects if (why := not_writable(one, self.writes)))]

    def _has(self, key: str, value: Any) -> bool:
        if self.keys is None or (own := self.keys.model_fields.get(key)) is None:
            return True
        try:
            TypeAdapter(cast(Any, Annotated[own.annotation, *own.metadata])).validate_python(value)
        except ValidationError:
            return False
        return True


@dataclass(frozen=True)
class Declared:
    """A pydantic model whose fields are data keys, and the deploys that read them.

    `changes`: what the deploys change. `undo` undoes runs of the first deploy, if these are runs on API objects. `also`: keys of models of
    other deploys that these deploys read too. `names`: the fields that these deploys read; None: all.
    """

    fields: type[BaseModel]
    deploys: tuple[str, ...]
    changes: Changes = Changes.NOTHING
    undo: Undo | None = None
    also: tuple[str, ...] = ()
    names: tuple[str, ...] | None = None


class NoKeys(Frozen):
    """Of a deploy that reads only what all like it read."""


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
    """How much a run prints (roles/engine/folding.py)."""

    verbose: Annotated[
        bool,
        Field(
            description="show proofs in full, and each host in its own lines; otherwise a long proof is cut, and of more than 8 hosts, like"
            " ones share a line",
            examples=[True],
        ),
    ] = False


def packages() -> list[str]:
    """The names of the packages of roles/ whose faces have lists for the engine, sorted."""
    return sorted(path.parent.name for path in ROLES.glob("*/__init__.py") if path.parent.name != "engine")


@cache
def every_model() -> tuple[Declared, ...]:
    """Every model: those of each package of roles/, those of all deploys that change something, and those of every deploy."""
    listed = [one for name in packages() for one in getattr(import_module(f"roles.{name}"), "DATA_KEYS", ())]
    found = sorted(listed, key=lambda one: one.deploys)
    options = import_module("roles.engine.runs.options")
    by_level: dict[Changes, list[str]] = {}
    for name in options.Options.model_fields:
        by_level.setdefault(options.READ_FROM[name], []).append(name)
    common = [Declared(options.Options, _changing(found, level), names=tuple(by_level[level])) for level in sorted(by_level, reverse=True)]
    return (*found, *common, Declared(Own, (EVERY_DEPLOY,)), Declared(Detail, (EVERY_DEPLOY,)))


def _changing(found: Iterable[Declared], level: Changes) -> tuple[str, ...]:
    if level == Changes.NOTHING:
        return (EVERY_DEPLOY,)
    return tuple(name for one in found if one.changes >= level for name in one.deploys)


def undo_of(capability: str) -> Undo | None:
    """How a run on API objects is undone, by the name of the run's deploy; None if there is no way."""
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
        if declared.names is not None and name not in declared.names:
            continue
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
def readers() -> Mapping[str, frozenset[str]]:
    """Each key, and the deploys that read it: their names, or EVERY_DEPLOY."""
    found: dict[str, set[str]] = {}
    for declared in every_model():
        for name in (*(key.name for key in of(declared)), *declared.also):
            found.setdefault(name, set()).update(declared.deploys)
    return {name: frozenset(deploys) for name, deploys in found.items()}


def desired_state(*models: type[BaseModel]) -> tuple[str, ...]:
    """The keys of models that say what is wanted: without consents, and without those that choose a part, wait, or connect for a run."""
    of_a_run = ("nodes", "only", "only_objects", "proof_timeout", "rollout_timeout", "kubeconfig")
    return tuple(
        name
        for model in models
        for name, field in model.model_fields.items()
        if name not in of_a_run and not (field.description or "").startswith("consent")
    )


@cache
def _written() -> Mapping[str, Any]:
    properties: Mapping[str, Any] = read_json(SCHEMA.read_text(encoding="utf-8"))["properties"]
    return properties


@cache
def written_readers() -> Mapping[str, frozenset[str]]:
    """As `readers`, from the file SCHEMA, without an import of the models: importing all roles takes longer than everything else that a
    deploy does before its first observation. If the file cannot be read, they come from the models."""
    try:
        return {name: frozenset(found[READERS]) for name, found in _written().items()}
    except (OSError, ValueError, LookupError, TypeError):
        return readers()


def may_be_empty(name: str) -> bool:
    """An empty list or map says something as the value of this key: that none is wanted. By the file SCHEMA."""
    try:
        return bool(_written()[name][MAY_BE_EMPTY])
    except (OSError, ValueError, LookupError, TypeError):
        return False


def may_be_json(name: str) -> bool:
    """A list or a map can be the value of this key. By the file SCHEMA."""
    try:
        return bool({"object", "array"} & {*_written()[name]["type"]})
    except (OSError, ValueError, LookupError, TypeError):
        return False


def examples(name: str) -> tuple[Any, ...]:
    """The examples of a key, by the file SCHEMA; () if it cannot be read."""
    try:
        return tuple(_written()[name]["examples"])
    except (OSError, ValueError, LookupError, TypeError):
        return ()


def main_key(deploy: str) -> str:
    """The key that a deploy is about: the one with its name, or else the only one that takes a map or NAME=VALUE pairs; "" if there is
    none. It has an example as --data has it."""
    keys = [
        name for name, deploys in written_readers().items() if deploy in deploys and any(isinstance(one, str) for one in examples(name))
    ]
    maps = [name for name in keys if takes_pairs(name)]
    return deploy if deploy in keys else maps[0] if len(maps) == 1 else ""


def takes_pairs(name: str) -> bool:
    """--data takes NAME=VALUE pairs as the value of this key. By the file SCHEMA."""
    return may_be_json(name) and "object" in _written()[name]["type"] and any(isinstance(one, str) and "=" in one for one in examples(name))


def allows(name: str, value: object) -> bool:
    """A pair of this key may have this value, as far as SCHEMA lists the values."""
    more = _written()[name].get("additionalProperties")
    return not isinstance(more, Mapping) or "enum" not in more or value in more["enum"]


def written_names() -> frozenset[str]:
    """The names of all keys, as `written_readers` has them."""
    return frozenset(written_readers())
