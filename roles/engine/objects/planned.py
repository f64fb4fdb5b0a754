"""Common to all plans for API objects: the writes, the unchanged objects, and the undo of a recorded run. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from roles.engine.kube import Object, uid
from roles.engine.transaction import ChangedField, ChangedObject, ObjectsRecord

ObjectPath = tuple[str, ...]

#: Why there is nothing to undo, by the object's outcome in the recorded run.
_NOTHING_TO_UNDO = {
    "reverted": "that run reverted it",
    "foreign": "someone else changed it during that run, and that run left it",
    "gone": "it was deleted during that run",
}


class Write(Protocol):
    """One planned write, a frozen dataclass. `notes` are its effects; `shown` is the diff from the API server's dry run."""

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
    """`actions` in order; `unchanged` are (object, why), `kept` (dropped object that stays, why), `refusals` reasons to stop."""

    actions: list[W] = field(default_factory=list)
    unchanged: list[tuple[str, str]] = field(default_factory=list)
    kept: list[tuple[str, str]] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

    @property
    def rest(self) -> list[list[str]]:
        """The table rows of objects that the run does not change."""
        rows = [[name, "none", "no change", "-", why] for name, why in self.unchanged]
        return rows + [[name, "none", "kept", "-", "dropped from the data, see above"] for name, _ in self.kept]


@dataclass(frozen=True)
class FieldChange:
    """Changed fields of an existing object, as a Write; each with its value before and after, None: not set. `before` is the object as it
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
    """The wanted fields that differ from the observed ones."""
    return tuple(ChangedField(path, before.get(path), after) for path, after in wanted.items() if before.get(path) != after)


# ---- undoing


class NotUndone(Exception):
    """Why an object cannot be restored, with the way out."""


def judged(plan: ObjectPlan[Any], one: ChangedObject, judge: Callable[[ChangedObject], W | str]) -> W | None:
    """The write that restores one object of a record. If there is none, the plan gets the reason. `judge` returns the write or the reason;
    it raises NotUndone or ValueError."""
    if one.outcome in _NOTHING_TO_UNDO:
        plan.unchanged.append((one.name, _NOTHING_TO_UNDO[one.outcome]))
        return None
    try:
        if one.masked:
            raise NotUndone(
                f"{', '.join(one.masked)} had a value that looks like a secret, and a record has no secrets: restore it by hand, "
                "then run this again"
            )
        found = judge(one)
    except (NotUndone, ValueError) as refused:
        # That run failed before it wrote the object, as far as its record shows.
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
    one: ChangedObject, now: Mapping[ObjectPath, Any], owners: Callable[[ObjectPath], Sequence[str]], force: bool
) -> None:  # fmt: skip
    """Raises NotUndone if a field has neither its value from before the run nor the run's. `owners`: the field's managers but daytwo."""
    other = [field for field in one.fields if now.get(field.path) not in (field.before, field.after)]
    if not other or force:
        return
    runs = list(dict.fromkeys("" if owners(field.path) else one.run_that_set(field.path, now.get(field.path)) for field in other))
    said = "; ".join(
        f"{'.'.join(field.path)} is {as_said(now.get(field.path))}, and that run set it to {as_said(field.after)}"
        + (f" (owned by {', '.join(found)})" if (found := owners(field.path)) else "")
        for field in other
    )
    if all(runs):
        raise NotUndone(
            f"changed since by {' and '.join(f'run {run}' for run in runs)}: {said}; undo that first: deploys/rollback.py --data"
            f" run={runs[-1]}, or overwrite it with --data force=true"
        )
    raise NotUndone(f"foreign: changed by someone else since: {said}; undo that first, or overwrite it with --data force=true")


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
    """The plan that undoes a run on fields. `objects` by path, as they are now; `values` returns all fields that the capability knows of an
    object, `owners` the managers of a field other than daytwo."""
    plan = ObjectPlan[FieldChange]()

    def judge(one: ChangedObject) -> FieldChange | str:
        found = objects.get(one.path)
        if found is None:
            return "is gone; there is nothing to restore"
        if uid(found) != one.uid:
            return "was recreated since; it stays as it is"
        now = values(found)
        back = field_changes(now, {changed.path: changed.before for changed in one.fields})
        if not back:
            return "already has the values from before that run"
        refuse_foreign(one, now, lambda path: owners(found, path), force)
        return FieldChange(one.name, one.path, found, back, f"restore {changes_text(back)}")

    plan.actions = [change for one in record.objects if (change := judged(plan, one, judge)) is not None]
    return plan


def changes_text(changed: Sequence[ChangedField]) -> str:
    """The changes in one line."""
    return ", ".join(f"{'.'.join(one.path)}: {as_said(one.before)} -> {as_said(one.after)}" for one in changed)
