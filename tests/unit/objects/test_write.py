"""Objects of each kind: unchanged since the plan, applied, patched, removed and gone, reverted, undone, whatever others do meanwhile."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from roles.autoscalers import KINDS, WORKLOADS
from roles.disruption_budgets import BUDGET
from roles.engine.api import Conflict, Forbidden, NoApi, NotFound
from roles.engine.api.errors import Owner, Unusable
from roles.engine.kube.fields import at
from roles.engine.objects import (
    ChangedByOthers,
    Gone,
    Kind,
    NotDone,
    ObjectChange,
    ObjectPath,
    ObjectPlan,
    ObjectWriter,
    RevertFailed,
    Session,
    Undone,
    Unknown,
    changed,
    undo_plan,
)
from roles.engine.outage import cordon, surge_marks
from roles.engine.transaction import ChangedField, ChangedObject, ObjectsRecord
from roles.metrics_server import KINDS as SERVER_KINDS
from roles.metrics_server.manifests import identified
from roles.metrics_server.plan import ServerChange
from roles.node_labels import NODE
from roles.node_labels.plan import LABELS
from roles.pod_resize.kinds import PATCHED as IN_SPEC
from roles.pod_resize.kinds import RESIZED
from roles.pod_resize.kinds import field_of as field_of_container
from roles.priority_classes import CLASS
from roles.reboot.plan import NOTED
from roles.right_size.targets import METRICS_OF_OTHERS
from tests.context import context
from tests.unit.apiserver import lost_answers
from tests.unit.clock import Clock

WHOLE = [BUDGET, *KINDS.values(), CLASS]
#: Recorded as one field; roles/metrics_server has its plan and its undo.
SERVER = SERVER_KINDS["Service"]
PODS = [RESIZED, IN_SPEC]
PATCHED = [*WORKLOADS.values(), NODE, cordon.CORDONED, surge_marks.SURGED, NOTED, *PODS, METRICS_OF_OTHERS]
LOST = [*lost_answers(), Unusable("cp1", "/", "the answer is no JSON", "-")]
lost = pytest.mark.parametrize("error", LOST, ids=lambda error: type(error).__module__ + "." + type(error).__name__)
when = pytest.mark.parametrize("when", ["before", "after"])
whole = pytest.mark.parametrize("kind", WHOLE, ids=lambda kind: kind.name)
patched = pytest.mark.parametrize("kind", PATCHED, ids=lambda kind: kind.name)
every = pytest.mark.parametrize("kind", [*WHOLE, *PATCHED], ids=lambda kind: kind.name)
written_whole = pytest.mark.parametrize("kind", [*WHOLE, SERVER], ids=lambda kind: kind.name)
every_written = pytest.mark.parametrize("kind", [*WHOLE, SERVER, *PATCHED], ids=lambda kind: kind.name)


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roles.engine.timeouts.time", Clock())


def where(kind: Kind) -> str:
    return "" if kind.of_cluster else kind.namespace or "shop"


def fields_of(kind: Kind) -> tuple[ObjectPath, ...]:
    if kind in PODS:
        return (field_of_container("app"),)
    return ((*LABELS, "rack"),) if kind is NODE else kind.sets


def as_value(kind: Kind, value: Any) -> Any:
    """The value of the last field of a kind; each number is another one."""
    if kind in WORKLOADS.values():
        return json.dumps({"spec": {"replicas": value}})
    if kind in PODS:
        return {"requests": {"cpu": f"{value}m"}, "limits": {"cpu": f"{value}m"}}
    if kind is SERVER:
        return {"metadata": {}, "spec": {"x": value}}
    return str(value) if kind in PATCHED else value


def shown(kind: Kind, value: Any) -> str:
    """As a proof has it."""
    return f"cpu {value}m/{value}m" if kind in PODS else repr(as_value(kind, value))


def written(kind: Kind, body: dict[str, Any]) -> Any:
    """The value of the last field in a request."""
    if kind in PODS:
        return body["spec"]["containers"][0]["resources"]
    if kind is SERVER:
        return identified(body)
    return at(body, fields_of(kind)[-1])


def field_of(path: ObjectPath) -> dict[str, Any]:
    """As managedFields has it."""
    return {f"f:{path[0]}": field_of(path[1:]) if path[1:] else {}}


def thing(kind: Kind, value: Any, uid: str = "u1", manager: str = "daytwo") -> dict[str, Any]:
    """An object whose last field has this value, applied by a manager."""
    sets = fields_of(kind)
    made = kind.manifest(where(kind), "web", {**dict.fromkeys(sets, "as ever"), sets[-1]: as_value(kind, value)})
    if kind in PODS:
        made["spec"] = {"containers": [{"name": "app", "resources": as_value(kind, value)}]}
    fields: dict[str, Any] = {}
    for path in sets:
        into = fields
        for part in kind.v1(path if kind is not SERVER else ("spec", "x")):
            into = into.setdefault(part, {})
    made["metadata"] |= {"uid": uid, "resourceVersion": "7"}
    made["metadata"]["managedFields"] = [{"manager": manager, "operation": "Apply", "fieldsV1": fields}]
    return made


class Store:
    """A session with one object. `keeps`: what the API server makes of each write; `conflicts`: how many writes meet a controller's own;
    `owners`: who else owns a field that an apply changes; `race`: what somebody does right before the numbered write."""

    def __init__(self, kind: Kind, there: dict[str, Any] | None, keeps: Callable[[Any], Any] = lambda value: value) -> None:
        self.kind, self.there, self.keeps, self.conflicts = kind, there, keeps, 0
        self.path = kind.path_of(where(kind), "web")
        self.owners: tuple[str, ...] = ()
        self.refuses = False
        self.meddle: Callable[[], None] = lambda: None
        self.meanwhile: Callable[[], None] | None = None
        self.race: tuple[int, Callable[[], None]] | None = None
        self.writes = 0
        self.sent: list[tuple[str, dict[str, Any]]] = []

    def fetch(self, path: str) -> dict[str, Any] | None:
        assert path == self.path
        return copy.deepcopy(self.there)

    unconflicted = Session.unconflicted

    def is_gone(self, path: str, of: str) -> bool:
        return (found := self.fetch(path)) is None or found["metadata"]["uid"] != of

    def written(self, path: str, send: Callable[[Any], Any], done: Callable[[Any], bool]) -> Any:
        made = send(self)
        if self.meanwhile is not None:
            self.meanwhile, meanwhile = None, self.meanwhile
            meanwhile()
        return made

    def apply(self, path: str, manifest: dict[str, Any], *, force: bool, dry_run: bool = False) -> dict[str, Any]:
        if self.owners and not force:
            error = Conflict("cp1", "/", "conflict", "force")
            error.owners = tuple(Owner(one, ".spec") for one in self.owners)
            raise error
        if dry_run:
            return manifest
        return self._sent("apply by force" if force else "apply", manifest)

    def patch(self, path: str, body: dict[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
        assert path == (f"{self.path}/resize" if self.kind is RESIZED else self.path)
        return self._sent("patch", body)

    def _turn(self, verb: str, uid: str) -> None:
        """Somebody's race; and what the API server says of a write for another object than is there."""
        self.writes += 1
        if self.race and self.race[0] == self.writes:
            self.race[1]()
        if self.there is None and verb != "apply":
            raise NotFound("cp1", self.path, "404", "-")
        if uid and (self.there is None or self.there["metadata"]["uid"] != uid):
            raise Conflict("cp1", self.path, "409: uid", "-")

    def _sent(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        self._turn(verb.split(" ", maxsplit=1)[0], body["metadata"].get("uid", ""))
        self.sent.append((verb, body))
        if self.conflicts:
            self.conflicts -= 1
            self.meddle()
            raise Conflict("cp1", "/", "the object has been modified", "try again")
        if self.refuses:
            raise Forbidden("cp1", "/", "403", "-")
        uid = self.there["metadata"]["uid"] if self.there else "u1"
        value = next((one for one in range(10) if as_value(self.kind, one) == written(self.kind, body)), None)
        self.there = thing(self.kind, self.keeps(value), uid)
        return self.there

    def deleted(self, path: str, item: dict[str, Any], of_version: str = "") -> None:
        self._turn("delete", item["metadata"]["uid"])
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

    def in_effect(self, change: ObjectChange, fields: Any, found: Any, proof: str, *, back: bool) -> str:
        if self.problem and not back:
            self.meanwhile()
            raise self.problem
        return proof


def writer(store: Store) -> Writer:
    return Writer(store, force=False)  # type: ignore[arg-type]


def change(kind: Kind, before: dict[str, Any] | None, value: Any = 5) -> ObjectChange:
    if kind in PATCHED and before is not None:
        return ObjectChange.of_fields(kind, before, {fields_of(kind)[-1]: as_value(kind, value)})
    manifest = kind.manifest(where(kind), "web", {**dict.fromkeys(kind.sets, "as ever"), kind.sets[-1]: as_value(kind, value)})
    return (ServerChange if kind is SERVER else ObjectChange)(
        kind, "create" if before is None else "update", where(kind), "web", before, manifest, ""
    )


def removal(kind: Kind, before: dict[str, Any]) -> ObjectChange:
    return (ServerChange if kind is SERVER else ObjectChange)(kind, "remove", where(kind), "web", before, None, "")


def carried_out(writing: Writer, one: ObjectChange) -> tuple[str, list[Any]]:
    fields: list[Any] = []
    return writing.carry_out(one, context(fields.extend)), fields


@written_whole
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


@written_whole
def test_the_plans_object_is_removed(kind: Kind) -> None:
    store = Store(kind, thing(kind, 1))
    proof, fields = carried_out(writer(store), removal(kind, thing(kind, 1)))
    assert proof.startswith("read back: it is gone") and store.there is None
    assert {tuple(one["path"]) for one in fields} == set(kind.sets) and {one["after"] for one in fields} == {None}


@written_whole
def test_a_change_is_recorded_sent_and_read_back(kind: Kind) -> None:
    store = Store(kind, thing(kind, 1))
    proof, fields = carried_out(writer(store), change(kind, thing(kind, 1)))
    assert proof == "read back: field manager daytwo" and store.there == thing(kind, 5)
    assert fields == [{"path": list(kind.sets[-1]), "before": as_value(kind, 1), "after": as_value(kind, 5)}]
    assert [verb for verb, _ in store.sent] == [kind.verb]
    with pytest.raises(Undone, match="not as written when read back"):
        carried_out(writer(Store(kind, thing(kind, 1), keeps=lambda value: 1)), change(kind, thing(kind, 1)))


@patched
def test_a_patch_is_of_the_version_that_was_read_and_is_tried_again(kind: Kind) -> None:
    store = Store(kind, thing(kind, 1))
    store.conflicts = 2
    proof, fields = carried_out(writer(store), change(kind, thing(kind, 1)))
    field = fields_of(kind)[-1]
    old, new = (as_value(kind, value) for value in (1, 5))
    name = "app" if kind in PODS else ".".join(field)
    assert proof == f"read back: {name}: {shown(kind, 1)} -> {shown(kind, 5)}; field manager daytwo" and store.there == thing(kind, 5)
    assert fields == [{"path": list(field), "before": old, "after": new}]
    assert [body["metadata"]["resourceVersion"] for _, body in store.sent] == ["7"] * 3
    assert all(written(kind, body) == new for _, body in store.sent)
    carried_out(writer(store), change(kind, thing(kind, 1)))
    assert len(store.sent) == 3, "what it has already is not written"


@patched
@pytest.mark.parametrize(("now", "ended"), [(None, Gone), ((1, "u2"), Gone), ((2, "u1"), ChangedByOthers)])
def test_another_object_than_the_plans_is_not_patched(kind: Kind, now: Any, ended: type[NotDone]) -> None:
    found = thing(kind, *now) if now else None
    store = Store(kind, found)
    with pytest.raises(ended):
        carried_out(writer(store), change(kind, thing(kind, 1)))
    assert store.there == found and not store.sent


@patched
@pytest.mark.parametrize(
    ("now", "ended", "words", "after"),
    [
        ((5, "u1"), Undone, "; reverted: read back: ", (1, "u1")),
        ((1, "u1"), Undone, "it has nothing that this run wrote", (1, "u1")),
        (None, Gone, "it was deleted", None),
        ((5, "u2"), Gone, "it was deleted", (5, "u2")),
        ((7, "u1"), ChangedByOthers, "left as it is now", (7, "u1")),
    ],
)
def test_what_was_patched_is_reverted_and_nothing_of_others(kind: Kind, now: Any, ended: type, words: str, after: Any) -> None:
    store = Store(kind, thing(kind, 1))

    def meanwhile() -> None:
        store.there = thing(kind, *now) if now else None
        raise NotDone("not proven")

    store.meanwhile = meanwhile
    with pytest.raises(ended) as raised:
        carried_out(writer(store), change(kind, thing(kind, 1)))
    assert str(raised.value).startswith("not proven; ") and words in str(raised.value)
    assert store.there == (thing(kind, *after) if after else None)


@patched
@pytest.mark.parametrize(
    ("makes", "ended", "words", "after"),
    [
        (lambda value: 1, Undone, "it has nothing that this run wrote", 1),
        (lambda value: 7 if value == 5 else value, Undone, "a webhook or another manager changes it; reverted: read back: ", 1),
        (lambda value: 7, RevertFailed, "the revert is not proven", 7),
    ],
)
def test_what_a_webhook_makes_of_a_patch_is_reverted(kind: Kind, makes: Any, ended: type, words: str, after: int) -> None:
    store = Store(kind, thing(kind, 1), keeps=makes)
    with pytest.raises(ended, match=words):
        carried_out(writer(store), change(kind, thing(kind, 1)))
    assert store.there == thing(kind, after)


@patched
def test_a_patch_that_is_refused_wrote_nothing(kind: Kind) -> None:
    store = Store(kind, thing(kind, 1))
    store.refuses = True
    with pytest.raises(Undone, match=r"403.*; it has nothing that this run wrote, read back"):
        carried_out(writer(store), change(kind, thing(kind, 1)))
    assert store.there == thing(kind, 1) and len(store.sent) == 1


@patched
def test_what_others_have_set_to_the_same_value_is_theirs(kind: Kind) -> None:
    """Nothing is sent; if it cannot be proven, it stays."""
    store = Store(kind, thing(kind, 5, manager="helm"))
    writing = writer(store)
    writing.problem = NotDone("not proven")
    with pytest.raises(Undone, match="it has nothing that this run wrote"):
        carried_out(writing, change(kind, thing(kind, 1)))
    assert store.there == thing(kind, 5, manager="helm") and not store.sent


@patched
def test_what_others_have_set_to_the_same_value_in_between_is_theirs_too(kind: Kind) -> None:
    store = Store(kind, thing(kind, 1))
    store.conflicts, store.meddle = 1, lambda: setattr(store, "there", thing(kind, 5, manager="helm"))
    writing = writer(store)
    writing.problem = NotDone("not proven")
    with pytest.raises(Undone, match="it has nothing that this run wrote"):
        carried_out(writing, change(kind, thing(kind, 1)))
    assert store.there == thing(kind, 5, manager="helm") and len(store.sent) == 1


@patched
def test_a_patch_that_is_not_in_effect_is_reverted_and_one_that_is_done_is_put_back(kind: Kind) -> None:
    store, one = Store(kind, thing(kind, 1)), change(kind, thing(kind, 1))
    writing = writer(store)
    writing.problem = NotDone("not proven")
    with pytest.raises(Undone, match=r"^not proven; reverted: read back: "):
        carried_out(writing, one)
    assert store.there == thing(kind, 1)
    carried_out(writer(store), one)
    ended = writer(store).put_back(one, "it was killed", lambda text: None)
    assert isinstance(ended, Undone) and str(ended).startswith("it was killed; reverted: ") and store.there == thing(kind, 1)
    carried_out(writer(store), one)
    store.there = thing(kind, 7)
    ended = writer(store).put_back(one, "it was killed", lambda text: None)
    assert isinstance(ended, ChangedByOthers) and store.there == thing(kind, 7)


@written_whole
def test_what_daytwo_has_patched_itself_is_applied_by_force_in_the_version_that_was_read(kind: Kind) -> None:
    """For the API server, who applied and who patched are two managers, although both are daytwo."""
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


@whole
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


@written_whole
def test_what_was_created_is_removed(kind: Kind) -> None:
    said, store = unproven(kind, None, thing(kind, 5))
    assert said.startswith("Undone: not proven; what this run created is removed") and store.there is None


@written_whole
def test_a_revert_that_does_not_hold_says_what_to_do_by_hand(kind: Kind) -> None:
    said, _ = unproven(kind, thing(kind, 1), thing(kind, 5), keeps=lambda _: 5)
    assert said.startswith("RevertFailed: not proven; and the revert is not proven: it differs")
    assert (
        f"kubectl get {kind.short or kind.name} {f'-n {where(kind)} ' if where(kind) else ''}web -o yaml" in said
        and "REPAIR BY HAND" in said
    )


def raced(kind: Kind, before: dict[str, Any] | None, one: ObjectChange, write: int, now: str, *, proven: bool) -> tuple[str, Store]:
    """How a change ends whose object somebody deletes (`now` is ""), or recreates with this UID, right before this write of the run's."""
    store = Store(kind, before)
    store.race = (write, lambda: setattr(store, "there", thing(kind, 3, now, "helm") if now else None))
    api: Any = Lossy(store, NoApi(""), "before", others=99)
    writing = Writer(Session(lambda: api), force=False)
    writing.problem = None if proven else NotDone("not proven")
    try:
        ended = f"done: {carried_out(writing, one)[0]}"
    except (NotDone, RevertFailed) as error:
        ended = f"{error.outcome}: {error}"
    assert store.there == (thing(kind, 3, now, "helm") if now else None), "it is not this run's to bring back"
    return ended, store


@every_written
@pytest.mark.parametrize("now", ["", "u2"], ids=["deleted", "recreated"])
@pytest.mark.parametrize("write", [1, 2], ids=["write", "revert"])
def test_an_object_that_somebody_deletes_between_read_and_write_is_gone(kind: Kind, write: int, now: str) -> None:
    before = thing(kind, 1)
    ended, _ = raced(kind, before, change(kind, before), write, now, proven=write == 1)
    assert ended.startswith("gone: ") and "it was deleted " in ended and (write == 1 or "nothing to revert" in ended), ended


@written_whole
@pytest.mark.parametrize("now", ["", "u2"], ids=["deleted", "recreated"])
def test_what_somebody_deletes_right_before_daytwo_does_is_removed(kind: Kind, now: str) -> None:
    """The other object of its name stays. The same with what this run created, and removes since it cannot be proven."""
    before = thing(kind, 1)
    ended, _ = raced(kind, before, removal(kind, before), 1, now, proven=True)
    assert ended.startswith("done: read back: it is gone"), ended
    ended, _ = raced(kind, None, change(kind, None), 2, now, proven=False)
    assert ended.startswith("reverted: not proven; what this run created is removed"), ended


class Lossy:
    """The API of a store, which loses the first answer to a write after `others`, before it is applied or after. `away`: from then on it
    answers nothing."""

    def __init__(self, store: Store, error: Exception, when: str, others: int = 0, *, away: bool = False) -> None:
        self._store, self._left, self._when, self._others, self._away = store, [error], when, others, away

    def get_json(self, path: str, timeout: float = 0, **more: Any) -> dict[str, Any]:
        if self._away and not self._left:
            raise NoApi("no answer")
        if (found := self._store.fetch(path)) is None:
            raise NotFound("cp1", path, "404", "-")
        return found

    def _lost(self, write: Callable[[], Any]) -> Any:
        if self._others:
            self._others -= 1
            return write()
        if self._when == "before" and self._left:
            raise self._left.pop()
        made = write()
        if self._left:
            raise self._left.pop()
        return made

    def apply(self, path: str, manifest: dict[str, Any], **more: Any) -> Any:
        return self._lost(lambda: self._store.apply(path, manifest, **more))

    def patch(self, path: str, body: dict[str, Any], **more: Any) -> Any:
        return self._lost(lambda: self._store.patch(path, body, **more))

    def delete(self, path: str, uid: str, **more: Any) -> Any:
        return self._lost(lambda: self._store.deleted(path, {"metadata": {"uid": uid}}))


@every_written
@when
@lost
def test_after_a_lost_answer_the_object_shows_whether_it_was_written(kind: Kind, when: str, error: Exception) -> None:
    made = [change(kind, thing(kind, 1)), *([] if kind in PATCHED else [removal(kind, thing(kind, 1)), change(kind, None)])]
    for one in made:
        store = Store(kind, one.before)
        api: Any = Lossy(store, error, when)
        assert carried_out(Writer(Session(lambda: api), force=False), one)[0].startswith("read back")  # noqa: B023  # called at once
        assert store.there == (None if one.what == "remove" else thing(kind, 5)) and len(store.sent) <= 1


@every_written
def test_a_write_that_is_neither_answered_nor_read_back_is_unknown(kind: Kind) -> None:
    store = Store(kind, thing(kind, 1))
    api: Any = Lossy(store, NoApi("no answer"), "after", away=True)
    with pytest.raises(Unknown, match=rf"STATE UNKNOWN: .*Check it: kubectl get {kind.short or kind.name} .*web -o yaml"):
        carried_out(Writer(Session(lambda: api), force=False), change(kind, thing(kind, 1)))
    assert len(store.sent) == 1


@patched
@when
@lost
def test_the_answer_to_a_revert_may_be_lost_too(kind: Kind, when: str, error: Exception) -> None:
    store = Store(kind, thing(kind, 1))
    api: Any = Lossy(store, error, when, others=1)
    writing = Writer(Session(lambda: api), force=False)
    writing.problem = NotDone("not proven")
    with pytest.raises(Undone, match="not proven; reverted: read back"):
        carried_out(writing, change(kind, thing(kind, 1)))
    assert store.there == thing(kind, 1) and len(store.sent) == 2


@patched
def test_a_refusal_after_a_lost_answer_wrote_nothing(kind: Kind) -> None:
    store = Store(kind, thing(kind, 1))
    store.refuses = True
    api: Any = Lossy(store, NoApi("no answer"), "before")
    with pytest.raises(Undone, match=r"403.*; it has nothing that this run wrote, read back"):
        carried_out(Writer(Session(lambda: api), force=False), change(kind, thing(kind, 1)))
    assert store.there == thing(kind, 1)


@patched
@pytest.mark.parametrize(("meddled", "ended", "after"), [(None, Undone, 1), (7, ChangedByOthers, 7)])
def test_a_revert_is_of_the_version_that_was_read(kind: Kind, meddled: int | None, ended: type, after: int) -> None:
    """A controller writes its status at the same moment; or someone else the same field."""
    store = Store(kind, thing(kind, 1))
    writing = writer(store)
    writing.problem, writing.meanwhile = NotDone("not proven"), lambda: setattr(store, "conflicts", 1)
    store.meddle = lambda: setattr(store, "there", thing(kind, meddled)) if meddled else None
    with pytest.raises(ended):
        carried_out(writing, change(kind, thing(kind, 1)))
    assert store.there == thing(kind, after) and [body["metadata"]["resourceVersion"] for _, body in store.sent][:2] == ["7", "7"]


# ---- the undo


def recorded(
    kind: Kind, action: str, before: Any, after: Any, outcome: str = "done", about: Mapping[str, str] | None = None
) -> ObjectsRecord:
    old, new = (kind.values(one) for one in (before, after))
    said = {
        "path": kind.path_of(where(kind), "web"),
        "uid": "u1",
        "kind": kind.name,
        "namespace": where(kind),
        "name": "web",
        **(about or {}),
    }
    one = ChangedObject(f"{kind.name} web", action, tuple(changed(old, new)), said, outcome)
    return ObjectsRecord("r1", "", "x", {}, (one,))


def back(kind: Kind, record: ObjectsRecord, found: Any, *, force: bool = False) -> ObjectPlan:
    return undo_plan(record, [kind], {kind.path_of(where(kind), "web"): found} if found else {}, force=force)


def says(plan: ObjectPlan) -> str:
    """Why nothing is undone."""
    ((said,),) = [[*plan.refusals, *(why for _, why in plan.unchanged)]]
    assert not plan.actions
    return said


@every
def test_a_record_names_an_object_of_its_kind_and_fields_of_it(kind: Kind) -> None:
    path, one = kind.path_of(where(kind), "web"), recorded(kind, "update", thing(kind, 1), thing(kind, 5))
    assert kind.place_of(path) == (where(kind), "web") and kind.writable.has(path) and not kind.writable.has(f"{path}/status")
    assert kind.place_of(path.replace("web", "..")) is None
    assert all(kind.writable.has_field(path) for path in fields_of(kind)) and not kind.writable.has_field(("spec", "template"))
    for about in ({"path": "/api/v1/namespaces/shop/secrets/web"}, {"kind": "Secret"}):
        assert "another path" in says(back(kind, recorded(kind, "update", thing(kind, 1), thing(kind, 5), about=about), None, force=True))
    for fields, words in (((), "by hand"), ((ChangedField(("spec", "template"), 1, 5),), "does not set there")):
        other = replace(one, objects=(replace(one.objects[0], fields=fields),))
        assert words in says(back(kind, other, thing(kind, 5), force=True))


@every
def test_a_change_is_undone(kind: Kind) -> None:
    record = recorded(kind, "update", thing(kind, 1), thing(kind, 5))
    (one,) = back(kind, record, thing(kind, 5)).actions
    old = {path: kind.values(thing(kind, 1))[path] for path in (fields_of(kind)[-1:] if kind in PATCHED else kind.sets)}
    assert one.what == "update" and {path: one.after[path] for path in old} == old
    assert says(back(kind, record, None)) == "is gone; there is nothing to restore"
    assert says(back(kind, record, thing(kind, 5, uid="u2"))) == "was recreated since; it stays as it is"
    assert says(back(kind, record, thing(kind, 1))) == "already has the values from before that run"
    since = says(back(kind, record, thing(kind, 7, manager="helm")))
    assert "changed by someone else since" in since
    assert kind.yields or ("(owned by helm)" in since and back(kind, record, thing(kind, 7), force=True).actions)


@whole
def test_a_field_that_others_own_too_stays_unless_it_is_forced(kind: Kind) -> None:
    field = kind.sets[-1]
    record, found = recorded(kind, "update", thing(kind, None), thing(kind, 5)), thing(kind, 5)
    found["metadata"]["managedFields"].append({"manager": "helm", "operation": "Apply", "fieldsV1": field_of(field)})
    assert f"{'.'.join(field)} is also owned by helm, so it stays" in says(back(kind, record, found))
    assert back(kind, record, found, force=True).actions[0].drops == (field,)


@whole
def test_a_creation_is_undone(kind: Kind) -> None:
    record = recorded(kind, "create", None, thing(kind, 5))
    (one,) = back(kind, record, thing(kind, 5)).actions
    assert (one.what, one.manifest) == ("remove", None)
    assert says(back(kind, record, None)) == "is gone already"
    theirs = back(kind, record, thing(kind, 5, manager="helm"), force=bool(kind.only_own))
    assert "foreign: " in says(theirs) and "helm" in says(theirs)
    assert "changed by someone else since" in says(back(kind, record, thing(kind, 7)))
    assert back(kind, record, thing(kind, 7), force=True).actions


@whole
def test_a_removal_is_undone(kind: Kind) -> None:
    record = recorded(kind, "remove", thing(kind, 1), None)
    (one,) = back(kind, record, None).actions
    assert one.what == "create" and one.manifest is not None and kind.values(one.manifest) == kind.values(thing(kind, 1))
    assert says(back(kind, record, thing(kind, 1, manager="helm"))) == "exists again, as before that run"
    assert "someone else has created another one since" in says(back(kind, record, thing(kind, 7), force=True))


@every
def test_how_the_recorded_change_ended_counts(kind: Kind) -> None:
    def ended(outcome: str, found: Any = None) -> ObjectPlan:
        return back(kind, recorded(kind, "update", thing(kind, 1), thing(kind, 5), outcome), found or thing(kind, 5))

    for outcome, words in (
        ("reverted", "that run reverted it"),
        ("foreign", "that run left it"),
        ("gone", "it was deleted during that run"),
    ):
        assert words in says(ended(outcome))
    assert len(ended("").actions) == 1
    assert len(ended("failed").actions) == 1, "it was written, but a later step failed"
    if not kind.yields:
        assert "foreign" in says(ended("", thing(kind, 7, manager="helm")))
        assert says(ended("failed", thing(kind, 7))) == "that run could not write it"


@every
def test_a_secret_is_not_in_a_record_and_so_not_restored(kind: Kind) -> None:
    record = recorded(kind, "update", thing(kind, 1), thing(kind, 5))
    masked = tuple(replace(one, masked=True) for one in record.objects[0].fields)
    found = says(back(kind, replace(record, objects=(replace(record.objects[0], fields=masked),)), thing(kind, 5)))
    assert "had a value that looks like a secret" in found and "restore it by hand" in found


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
