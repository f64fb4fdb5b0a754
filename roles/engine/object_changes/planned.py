"""What the plans of all changes of API objects have: the writes, what is left as it is, and what a record leaves to undo. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from roles.engine.object_changes.api_object import Object, uid
from roles.engine.transaction import ChangedField, ChangedObject, ObjectsRecord

ObjectPath = tuple[str, ...]

#: How an object ended in a run that then has nothing of that run, by its outcome.
_LEFT = {
    "reverted": "that run put it back itself",
    "foreign": "somebody else changed it in that run, and it was left as they had it",
    "gone": "it went away in that run",
}


class Write(Protocol):
    """One planned write, a frozen dataclass. `notes` say what will be felt; `shown` is the diff by the API server's dry run."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def name(self) -> str: ...
    @property
    def summary(self) -> str: ...
    @property
    def notes(self) -> tuple[str, ...]: ...
    @property
    def shown(self) -> str: ...


W = TypeVar("W", bound=Write)


@dataclass
class ObjectPlan(Generic[W]):
    """`actions` in their order; `unchanged` are (object, why), `kept` dropped objects that stay, `refusals` why not to go on."""

    actions: list[W] = field(default_factory=list)
    unchanged: list[tuple[str, str]] = field(default_factory=list)
    kept: list[tuple[str, str]] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

    @property
    def rest(self) -> list[list[str]]:
        """The rows of what a run has nothing to do with."""
        rows = [[name, "none", "no change", "-", why] for name, why in self.unchanged]
        return rows + [[name, "none", "kept", "-", "dropped from the data, as said above"] for name, _ in self.kept]


@dataclass(frozen=True)
class FieldChange:
    """Fields of one object that is there, as a Write; each with its value before and after, None: not set. `before` is the object as it
    was read."""

    name: str
    path: str
    before: Object
    fields: tuple[ChangedField, ...]
    summary: str
    notes: tuple[str, ...] = ()
    shown: str = ""

    @property
    def after(self) -> dict[ObjectPath, Any]:
        return {one.path: one.after for one in self.fields}


def field_changes(before: Mapping[ObjectPath, Any], wanted: Mapping[ObjectPath, Any]) -> tuple[ChangedField, ...]:
    """Those of the wanted fields that are not so yet."""
    return tuple(ChangedField(path, before.get(path), after) for path, after in wanted.items() if before.get(path) != after)


# ---- undoing


class NotUndone(Exception):
    """Why an object cannot be put back, with the way out."""


def judged(plan: ObjectPlan[Any], one: ChangedObject, judge: Callable[[ChangedObject], W | str]) -> W | None:
    """The write that puts one object of a record back; or why there is none, noted in the plan. `judge` gives the one or the other, and
    raises NotUndone or ValueError."""
    if one.outcome in _LEFT:
        plan.unchanged.append((one.name, _LEFT[one.outcome]))
        return None
    try:
        if one.masked:
            raise NotUndone(
                f"{', '.join(one.masked)} held what looks like a secret, and a record has no secrets: set it back by hand, "
                "then run this again"
            )
        found = judge(one)
    except (NotUndone, ValueError) as refused:
        # What was refused in that run was not written, as far as that shows.
        if one.outcome == "failed":
            plan.unchanged.append((one.name, "that run could not write it"))
        else:
            plan.refusals.append(f"{one.name}: {refused}")
        return None
    if isinstance(found, str):
        plan.unchanged.append((one.name, found))
        return None
    return found


def refuse_foreign(
    changed: Sequence[ChangedField], now: Mapping[ObjectPath, Any], owners: Callable[[ObjectPath], Sequence[str]], force: bool
) -> None:  # fmt: skip
    """Raises NotUndone where a field is neither what it was before the run nor what the run made of it. `owners` of a field: the others."""
    other = [
        f"{'.'.join(one.path)} is {as_said(now.get(one.path))}, and was made {as_said(one.after)}"
        + (f" (owned by {', '.join(found)})" if (found := owners(one.path)) else "")
        for one in changed
        if now.get(one.path) not in (one.before, one.after)
    ]
    if other and not force:
        raise NotUndone(
            f"foreign: it was changed since by somebody else: {'; '.join(other)}; undo that first, or go on all the same by "
            "--data force=true"
        )


def as_said(value: Any) -> str:
    return "not set" if value is None else repr(value)


def field_way_back(
    record: ObjectsRecord,
    objects: Mapping[str, Object],
    values: Callable[[Object], Mapping[ObjectPath, Any]],
    owners: Callable[[Object, ObjectPath], Sequence[str]],
    *,
    force: bool,
) -> ObjectPlan[FieldChange]:
    """What undoing a run on fields comes to. `objects` by path, as they are now; `values` are all fields that the capability knows of one,
    `owners` the managers of a field other than daytwo."""
    plan = ObjectPlan[FieldChange]()

    def judge(one: ChangedObject) -> FieldChange | str:
        found = objects.get(one.path)
        if found is None:
            return "is gone; there is nothing to put back"
        if uid(found) != one.uid:
            return "is another one by now, made since; it is left as it is"
        now = values(found)
        back = field_changes(now, {changed.path: changed.before for changed in one.fields})
        if not back:
            return "is as it was before already"
        refuse_foreign(one.fields, now, lambda path: owners(found, path), force)
        return FieldChange(one.name, one.path, found, back, f"set back {told(back)}")

    plan.actions = [change for one in record.objects if (change := judged(plan, one, judge)) is not None]
    return plan


def told(changed: Sequence[ChangedField]) -> str:
    """In one line."""
    return ", ".join(f"{'.'.join(one.path)}: {as_said(one.before)} -> {as_said(one.after)}" for one in changed)
