"""The record of a run on API objects: each object's changed fields before and after, and how it ended. Pure.

The node that holds the cluster's lock keeps it as one change; the operator's own record has the same lines. The first line names the
capability that undoes the run (`component`), and what the undo must know (`about`). Then each object has a line before it is written, and
one when it is over. No object is kept whole. A field with a secret is masked, so it cannot be restored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from roles.engine.transaction.mask import mask, mask_text
from roles.engine.transaction.record import OBJECTS_KIND, RunInfo, first_fields, is_secret

#: In `about` of a run that cannot be undone: a roll-back without a name goes on to the run before it.
CANNOT_UNDO = "cannot_undo"


def kind_of_run(capability: str, about: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that only the first line has."""
    return {"kind": OBJECTS_KIND, "component": capability, "about": dict(about)}


def first_line(
    info: RunInfo, change: str, node: str, capability: str, about: Mapping[str, Any], summary: str, undoes: str
) -> dict[str, Any]:
    """`node` is the node that keeps the record; `undoes` is the record that this run undoes, or ""."""
    return {**first_fields(info, 1, change, undoes), **kind_of_run(capability, about), "node": node, "summary": mask_text(summary)}


def planned(
    run: str, order: int, name: str, action: str, summary: str, fields: Iterable[Mapping[str, Any]], about: Mapping[str, Any]
) -> dict[str, Any]:
    """One object, before it is written. `about` has what else its undo needs: path, UID."""
    return {
        **about,
        "event": "plan",
        "run": run,
        "order": order,
        "object": name,
        "what": action,
        "summary": mask_text(summary),
        "fields": [_masked(field) for field in fields],
    }


def _masked(field: Mapping[str, Any]) -> dict[str, Any]:
    values = {key: field[key] for key in ("before", "after")}
    if not is_secret(".".join(map(str, field["path"])), values):
        return dict(field)
    return {**field, **{key: value if value is None else mask(str(value)) for key, value in values.items()}, "masked": True}


@dataclass(frozen=True)
class ChangedField:
    """`before` and `after` are None if the object had no such field; `masked`: they are not the real values."""

    path: tuple[str, ...]
    before: Any
    after: Any
    masked: bool = False

    def __str__(self) -> str:
        return f"{'.'.join(self.path)}: {as_said(self.before)} -> {as_said(self.after)}"


def as_said(value: Any) -> str:
    return "not set" if value is None else repr(value)


@dataclass(frozen=True)
class ChangedObject:
    """One object of a run: `name` as in the run's table, `action` what was done to it. `outcome` is "" if its end was not recorded: it may
    have been written. `about` is its whole line; `by_others`: what other runs did to it, the oldest first."""

    name: str
    action: str
    fields: tuple[ChangedField, ...]
    about: Mapping[str, Any]
    outcome: str = ""
    by_others: tuple[tuple[str, ChangedField], ...] = ()

    def run_that_set(self, path: tuple[str, ...], value: Any) -> str:
        """The newest other run that gave a field this value; "" for none."""
        found = (run for run, field in reversed(self.by_others) if (field.path, field.after) == (path, value) and not field.masked)
        return next(found, "")

    @property
    def path(self) -> str:
        return str(self.about["path"])

    @property
    def uid(self) -> str:
        return str(self.about.get("uid") or "")

    @property
    def masked(self) -> list[str]:
        """The fields whose values are not in the record."""
        return [".".join(field.path) for field in self.fields if field.masked]


@dataclass(frozen=True)
class ObjectsRecord:
    """A run on API objects, from its record. `change` is the name of the record on its node, "" if only the operator's own record has the
    run; `capability` undoes it."""

    run: str
    change: str
    capability: str
    about: Mapping[str, Any]
    objects: tuple[ChangedObject, ...]


def among(record: ObjectsRecord, others: Sequence[ObjectsRecord]) -> ObjectsRecord:
    """The record of a run with what other runs, the oldest first, did to the same objects."""
    objects = []
    for one in record.objects:
        found = [(other.run, field) for other in others for item in other.objects if item.path == one.path for field in item.fields]
        objects.append(replace(one, by_others=tuple(found)))
    return replace(record, objects=tuple(objects))


def parse(run: str, events: Sequence[Mapping[str, Any]]) -> ObjectsRecord | None:
    """None if these are not events of a run on API objects. Raises ValueError if a line is incomplete."""
    first = next((event for event in events if event.get("kind") == OBJECTS_KIND), None)
    if first is None:
        return None
    try:
        outcomes = {str(event["object"]): str(event["outcome"]) for event in events if event.get("event") == "end"}
        objects = [_object(event, outcomes) for event in events if event.get("event") == "plan" and "object" in event]
        return ObjectsRecord(run, str(first.get("change") or ""), str(first["component"]), dict(first["about"]), tuple(objects))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"the record of run {run} lacks something ({type(error).__name__}: {error}); undo it by hand") from error


def _object(event: Mapping[str, Any], outcomes: Mapping[str, str]) -> ChangedObject:
    name = str(event["object"])
    fields = tuple(
        ChangedField(tuple(map(str, field["path"])), field["before"], field["after"], bool(field.get("masked")))
        for field in event["fields"]
    )
    return ChangedObject(name, str(event["what"]), fields, {**event, "path": str(event["path"])}, outcomes.get(name, ""))
