"""Whole objects of each kind: unchanged since the plan, applied, removed and gone, reverted, whatever others do meanwhile."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from roles.autoscalers import KINDS, WORKLOADS
from roles.disruption_budgets import BUDGET
from roles.engine.api import Conflict
from roles.engine.api.errors import Owner
from roles.engine.objects import (
    ChangedByOthers,
    Gone,
    Kind,
    NotDone,
    ObjectChange,
    ObjectPath,
    ObjectWriter,
    RevertFailed,
    Session,
    Undone,
    at,
    undo_plan,
)
from roles.engine.transaction import ChangedField, ChangedObject, ObjectsRecord
from roles.priority_classes import CLASS
from tests.context import context

WHOLE = [BUDGET, *KINDS.values(), CLASS]
ALL = [*WHOLE, *WORKLOADS.values()]
whole = pytest.mark.parametrize("kind", WHOLE, ids=lambda kind: kind.name)
every = pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.name)


def where(kind: Kind) -> str:
    return "" if kind.of_cluster else "shop"


def field_of(path: ObjectPath) -> dict[str, Any]:
    """As managedFields has it."""
    return {f"f:{path[0]}": field_of(path[1:]) if path[1:] else {}}


def thing(kind: Kind, value: Any, uid: str = "u1", manager: str = "daytwo") -> dict[str, Any]:
    """An object whose last field has this value, applied by a manager."""
    made = kind.manifest(where(kind), "web", {**dict.fromkeys(kind.sets, "as ever"), kind.sets[-1]: value})
    fields: dict[str, Any] = {}
    for path in kind.sets:
        into = fields
        for part in path:
            into = into.setdefault(f"f:{part}", {})
    made["metadata"] |= {"uid": uid, "resourceVersion": "7"}
    made["metadata"]["managedFields"] = [{"manager": manager, "operation": "Apply", "fieldsV1": fields}]
    return made


class Store:
    """A session with one object. `keeps`: what the API server makes of each write; `conflicts`: how many writes meet a controller's own;
    `owners`: who else owns a field that an apply changes."""

    def __init__(self, kind: Kind, there: dict[str, Any] | None, keeps: Callable[[Any], Any] = lambda value: value) -> None:
        self.kind, self.there, self.keeps, self.conflicts = kind, there, keeps, 0
        self.owners: tuple[str, ...] = ()
        self.sent: list[tuple[str, dict[str, Any]]] = []

    def fetch(self, path: str) -> dict[str, Any] | None:
        assert path == self.kind.path_of(where(self.kind), "web")
        return copy.deepcopy(self.there)

    unconflicted = Session.unconflicted

    def written(self, path: str, send: Callable[[Any], Any], done: Callable[[Any], bool]) -> Any:
        return send(self)

    def apply(self, path: str, manifest: dict[str, Any], *, force: bool, dry_run: bool = False) -> dict[str, Any]:
        if self.owners and not force:
            error = Conflict("cp1", "/", "conflict", "force")
            error.owners = tuple(Owner(one, ".spec") for one in self.owners)
            raise error
        if dry_run:
            return manifest
        return self._sent("apply by force" if force else "apply", manifest)

    def patch(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._sent("patch", body)

    def _sent(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        self.sent.append((verb, body))
        if self.conflicts:
            self.conflicts -= 1
            raise Conflict("cp1", "/", "the object has been modified", "try again")
        uid = self.there["metadata"]["uid"] if self.there else "u1"
        self.there = thing(self.kind, self.keeps(at(body, self.kind.sets[-1])), uid)
        return self.there

    def deleted(self, path: str, item: dict[str, Any], of_version: str = "") -> None:
        assert self.there is not None and item["metadata"]["uid"] == self.there["metadata"]["uid"]
        self.there = None


class Writer(ObjectWriter):
    """Proves what it reads back, or nothing."""

    problem: Exception | None = None
    meanwhile: Callable[[], None] = staticmethod(lambda: None)

    def proven(self, change: ObjectChange, of: str) -> str:
        self.meanwhile()
        if self.problem:
            raise self.problem
        return self.read_back(change, of, self.session.fetch(change.path))


def writer(store: Store) -> Writer:
    return Writer(store, force=False)  # type: ignore[arg-type]


def change(kind: Kind, before: dict[str, Any] | None, value: Any = 5) -> ObjectChange:
    manifest = kind.manifest(where(kind), "web", {**dict.fromkeys(kind.sets, "as ever"), kind.sets[-1]: value})
    return ObjectChange(kind, "create" if before is None else "update", where(kind), "web", before, manifest, "")


def removal(kind: Kind, before: dict[str, Any]) -> ObjectChange:
    return ObjectChange(kind, "remove", where(kind), "web", before, None, "")


def carried_out(writing: Writer, one: ObjectChange) -> tuple[str, list[Any]]:
    fields: list[Any] = []
    return writing.carry_out(one, context(fields.extend)), fields


@every
@pytest.mark.parametrize(
    ("before", "now", "words"),
    [((1, "u1"), None, "deleted"), ((1, "u1"), (1, "u2"), "deleted"), ((1, "u1"), (2, "u1"), "changed"), (None, (1, "u1"), "created it")],
)
def test_another_object_than_the_plans_is_not_written(kind: Kind, before: Any, now: Any, words: str) -> None:
    old, found = (thing(kind, *one) if one else None for one in (before, now))
    for one in (change(kind, old), *([removal(kind, old)] if old else [])):
        store = Store(kind, found)
        with pytest.raises(NotDone, match=words):
            carried_out(writer(store), one)
        assert store.there == found and not store.sent


@whole
def test_the_plans_object_is_removed(kind: Kind) -> None:
    store = Store(kind, thing(kind, 1))
    proof, fields = carried_out(writer(store), removal(kind, thing(kind, 1)))
    assert proof.startswith("read back: it is gone") and store.there is None
    assert {tuple(one["path"]) for one in fields} == set(kind.sets) and {one["after"] for one in fields} == {None}


@every
def test_a_change_is_recorded_sent_and_read_back(kind: Kind) -> None:
    store = Store(kind, thing(kind, 1))
    proof, fields = carried_out(writer(store), change(kind, thing(kind, 1)))
    assert proof == "read back: field manager daytwo" and store.there == thing(kind, 5)
    assert fields == [{"path": list(kind.sets[-1]), "before": 1, "after": 5}]
    assert [verb for verb, _ in store.sent] == [kind.verb]
    with pytest.raises(Undone, match="not as written when read back"):
        carried_out(writer(Store(kind, thing(kind, 1), keeps=lambda value: 1)), change(kind, thing(kind, 1)))


def test_a_patch_is_of_the_version_that_was_read_and_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roles.engine.timeouts.time.sleep", lambda seconds: None)
    kind = WORKLOADS["Deployment"]
    store = Store(kind, thing(kind, 1))
    store.conflicts = 2
    assert carried_out(writer(store), change(kind, thing(kind, 1)))[0].startswith("read back")
    assert [body["metadata"]["resourceVersion"] for _, body in store.sent] == ["7"] * 3
    assert set(store.sent[0][1]) == {"metadata"} and set(store.sent[0][1]["metadata"]) == {"uid", "resourceVersion", "annotations"}


@whole
def test_what_daytwo_has_patched_itself_is_applied_by_force_in_the_version_that_was_read(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the API server, who applied and who patched are two managers, although both are daytwo."""
    monkeypatch.setattr("roles.engine.timeouts.time.sleep", lambda seconds: None)
    store, one = Store(kind, thing(kind, 1)), change(kind, thing(kind, 1))
    store.owners, store.conflicts = ("daytwo",), 1
    assert writer(store).result(one, store) is not None  # type: ignore[arg-type]
    assert carried_out(writer(store), one)[0].startswith("read back")
    assert [(verb, body["metadata"]["resourceVersion"]) for verb, body in store.sent] == [("apply by force", "7")] * 2
    store = Store(kind, thing(kind, 1))
    store.owners = ("daytwo", "helm")
    with pytest.raises(Conflict):
        writer(store).result(one, store)  # type: ignore[arg-type]
    with pytest.raises(Undone, match="conflict"):
        carried_out(writer(store), one)


@whole
def test_a_field_that_daytwo_has_patched_too_is_removed_with_the_data(kind: Kind) -> None:
    gone = kind.sets[-1]
    there = thing(kind, 1)
    patched = field_of(gone)
    there["metadata"]["managedFields"].append({"manager": "daytwo", "operation": "Update", "fieldsV1": patched})
    manifest = kind.manifest(where(kind), "web", dict.fromkeys(kind.sets[:-1], "as ever"))
    assert kind.held(there, manifest) == (gone,) and gone not in kind.after_apply(manifest, there)
    assert kind.restoring(there, [ChangedField(gone, None, 1)])[1] == ()
    store = Store(kind, there)
    carried_out(writer(store), ObjectChange(kind, "update", where(kind), "web", there, manifest, ""))
    assert store.sent[0][0] == "patch" and at(store.sent[0][1], gone[:-1])[gone[-1]] is None
    there["metadata"]["managedFields"].append({"manager": "helm", "operation": "Update", "fieldsV1": patched})
    assert not kind.held(there, manifest) and kind.restoring(there, [ChangedField(gone, None, 1)])[1] == (gone,)


def unproven(kind: Kind, before: dict[str, Any] | None, now: dict[str, Any] | None, keeps: Any = lambda value: value) -> tuple[str, Store]:
    """How a change ends that is not proven, after which others have left `now`."""
    store = Store(kind, before, keeps)
    writing = writer(store)
    writing.problem = NotDone("not proven")
    writing.meanwhile = lambda: setattr(store, "there", now)
    with pytest.raises((NotDone, RevertFailed)) as raised:
        carried_out(writing, change(kind, before))
    return f"{type(raised.value).__name__}: {raised.value}", store


@every
@pytest.mark.parametrize(
    ("now", "ended", "words", "after"),
    [
        ((5, "u1"), Undone, "reverted: read back", (1, "u1")),
        (None, Gone, "deleted meanwhile", None),
        ((5, "u2"), Gone, "deleted meanwhile", (5, "u2")),
        ((7, "u1"), ChangedByOthers, "left as it is", (7, "u1")),
    ],
)
def test_what_was_written_is_reverted_and_nothing_of_others(kind: Kind, now: Any, ended: type, words: str, after: Any) -> None:
    said, store = unproven(kind, thing(kind, 1), thing(kind, *now) if now else None)
    assert said.startswith(f"{ended.__name__}: not proven; ") and words in said
    assert store.there == (thing(kind, *after) if after else None)


@whole
def test_what_was_created_is_removed(kind: Kind) -> None:
    said, store = unproven(kind, None, thing(kind, 5))
    assert said.startswith("Undone: not proven; what this run created is removed") and store.there is None


@every
def test_a_revert_that_does_not_hold_says_what_to_do_by_hand(kind: Kind) -> None:
    said, _ = unproven(kind, thing(kind, 1), thing(kind, 5), keeps=lambda _: 5)
    assert said.startswith("RevertFailed: not proven; and the revert is not proven: it differs")
    assert f"kubectl get {kind.short or kind.name} {'-n shop ' if where(kind) else ''}web -o yaml" in said and "REPAIR BY HAND" in said


@every
def test_only_the_fields_of_its_kind_can_be_undone(kind: Kind) -> None:
    path = kind.path_of(where(kind), "web")
    assert kind.place_of(path) == (where(kind), "web") and kind.writable.has(path)
    assert kind.place_of(path.replace("web", "..")) is None and kind.place_of("/api/v1/namespaces/shop/secrets/web") is None
    other: ObjectPath = ("spec", "template")
    assert all(kind.writable.has_field(one) for one in kind.sets) and not kind.writable.has_field(other)


@whole
def test_an_undo_names_the_run_of_daytwo_that_has_changed_it_since(kind: Kind) -> None:
    field = kind.sets[-1]
    about = {"path": kind.path_of(where(kind), "web"), "uid": "u1"}
    later = (("r2", ChangedField(field, 5, 7)), ("r3", ChangedField(field, 7, 9)))
    one = ChangedObject("web", "update", (ChangedField(field, 1, 5),), about, "done", later)

    def why(found: dict[str, Any]) -> str:
        return undo_plan(ObjectsRecord("r1", "", "x", {}, (one,)), [kind], {one.path: found}, force=False).refusals[0]

    assert f"changed since by run r2: {'.'.join(field)} is 7, and that run set it to 5; undo that first: " in why(thing(kind, 7))
    assert "deploys/rollback.py --data run=r2" in why(thing(kind, 7)) and "someone else" not in why(thing(kind, 7))
    for found in (thing(kind, 8), thing(kind, 9, manager="helm")):
        assert "changed by someone else since" in why(found)
