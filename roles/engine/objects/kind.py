"""A kind of object that daytwo writes, as data; and one change of such an object. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

from roles.engine import kube
from roles.engine.api import Api
from roles.engine.kube import Object, field_managers
from roles.engine.kube.field_managers import FIELD_MANAGER
from roles.engine.kube.fields import at, meta_of, with_meta
from roles.engine.kube.workloads import object_path
from roles.engine.objects.outcome import NotDone
from roles.engine.transaction import ChangedField, ChangedObject, Writable, object_record

ObjectPath = tuple[str, ...]
What = Literal["create", "update", "replace", "remove", "assign"]
#: Namespaces and names in a path; a record names them, and a node keeps the record.
_PART = r"([a-z0-9](?:[a-z0-9.:-]{0,251}[a-z0-9])?)"


@dataclass(frozen=True)
class Request:
    """One write of some fields: `apply` is server-side, `patch` a strategic merge patch; `body` has no preconditions. `paths` are the
    fields that it sets or removes."""

    verb: Literal["apply", "patch"]
    body: Mapping[str, Any]
    paths: Collection[ObjectPath]

    def send(self, api: Api, path: str, there: Object, *, force: bool, dry_run: bool = False) -> dict[str, Any]:
        """Send it to `path` for exactly the version `there`, so that it does not overwrite a later change unseen. Raises ApiError."""
        # A dry run accepts any version: controllers write some objects all the time.
        own = {"uid": kube.uid(there)} | ({} if dry_run else {"resourceVersion": kube.version(there)})
        body = with_meta(self.body, **own)
        if self.verb == "apply":
            return api.apply(path, body, force=force, dry_run=dry_run)
        return api.patch(path, body, dry_run=dry_run)


@dataclass(frozen=True)
class Kind:
    """`collection`: its path for the whole cluster; `sets`: the fields that daytwo sets, each as a whole; `owned`: the field by whose
    managers an object is daytwo's; `mark`: a field that each apply of daytwo's has; `recorded`: what a record says of an object besides its
    path and UID; `verb`: apply the whole object, or patch fields of an existing one in the version that was read; `maps`: those of its
    metadata that count too; `missing`: what a field is that is not set; `always`: fields that each manifest has; `versioned`: an apply
    needs the version that was read, and not only the UID; `of_cluster`: it is in no namespace; `yields`: an undo leaves what someone else
    has changed since; `subresource`: a patch goes to this one; `namespace`: the one that all its objects are in, which names leave out;
    `only_own`: why not even `force` removes one of somebody else's; `short`: as kubectl takes it; `plural`: in a
    message; `stays`: what its removal leaves as it is; `refuse`: as Writable has it."""

    name: str
    version: str
    collection: str
    sets: tuple[ObjectPath, ...]
    owned: ObjectPath = ("spec",)
    mark: ObjectPath = ("spec",)
    recorded: tuple[str, ...] = ("kind", "namespace", "name")
    verb: Literal["apply", "patch"] = "apply"
    maps: tuple[str, ...] = ("labels", "annotations")
    missing: Mapping[ObjectPath, Any] = field(default_factory=dict)
    always: tuple[ObjectPath, ...] = ()
    versioned: bool = False
    of_cluster: bool = False
    yields: bool = False
    subresource: str = ""
    namespace: str = ""
    only_own: str = ""
    short: str = ""
    plural: str = ""
    stays: str = ""
    refuse: Callable[[ChangedObject], str] = lambda one: ""

    # ---- names

    def path_of(self, namespace: str, name: str) -> str:
        return object_path(self.collection, namespace, name)

    def place_of(self, path: str) -> tuple[str, str] | None:
        """Namespace and name; None if it is no path of an object of this kind."""
        head, _, resource = self.collection.rpartition("/")
        place = "()" if self.of_cluster else f"namespaces/{_PART}/"
        found = re.fullmatch(f"{re.escape(head)}/{place}{resource}/{_PART}", path)
        return (found[1], found[2]) if found else None

    @property
    def writable(self) -> Writable:
        """What an undo may write."""
        path = self.path_of("" if self.of_cluster else "*", "*").replace("%2A", "*")
        return Writable(path, (*self.sets, *(("metadata", key, "*") for key in self.maps)), self.refuse)

    def target_of(self, path: str) -> str:
        """Where a patch of the object at `path` goes."""
        return f"{path}/{self.subresource}" if self.subresource else path

    # ---- fields

    def values(self, found: Object | None) -> dict[ObjectPath, Any]:
        """The fields by path, without unset ones; labels and annotations too, which a recreated object gets back. None: there is no such
        object."""
        if found is None:
            return {}
        fields: dict[ObjectPath, Any] = {path: value for path in self.sets if (value := self._value(found, path)) is not None}
        for key in self.maps:
            fields |= {("metadata", key, name): value for name, value in (meta_of(found).get(key) or {}).items()}
        return fields

    def _value(self, found: Object, path: ObjectPath) -> Any:
        value = at(found, path)
        return self.missing.get(path) if value is None or value is False or value == "" else value

    def manifest(self, namespace: str, name: str, fields: Mapping[ObjectPath, Any]) -> dict[str, Any]:
        """The manifest with these fields."""
        omitted = [path for path in self.missing if path not in self.always and fields.get(path) == self.missing[path]]
        fields = {path: value for path, value in fields.items() if path not in omitted}
        made = nested({("metadata", "name"): name, **fields})
        if namespace:
            made = with_meta(made, namespace=namespace)
        return {"apiVersion": self.version, "kind": self.name, **made}

    def after_apply(self, manifest: Mapping[str, Any], found: Object | None) -> dict[ObjectPath, Any]:
        """The fields after an apply of `manifest`: fields of others stay; fields that only daytwo had set, and that the manifest does not
        have, are removed."""
        now = self.values(found)
        stay = {path: value for path, value in now.items() if at(manifest, path) is None and not self._alone(found or {}, path)}
        return {**self.values(manifest), **stay}

    def held(self, found: Object, manifest: Mapping[str, Any]) -> tuple[ObjectPath, ...]:
        """The fields that an apply of `manifest` should remove, and leaves: daytwo has patched them too, and for the API server who applied
        and who patched are two managers."""
        gone = (path for path in self.values(found) if at(manifest, path) is None and self._alone(found, path))
        return tuple(path for path in gone if not field_managers.only_ours(found, *self.v1(path)))

    def _alone(self, found: Object, path: ObjectPath) -> bool:
        """daytwo is the only owner of a field."""
        return set(field_managers.writers(found, *self.v1(path))) == {FIELD_MANAGER}

    def restoring(self, found: Object, changed: Iterable[ChangedField]) -> tuple[dict[str, Any], tuple[ObjectPath, ...]]:
        """The manifest that restores the changed fields to their values before, and keeps all other fields that daytwo owns: an apply that
        omits one gives up its ownership; and the fields that it leaves, since they have another owner too."""
        back, wanted = list(changed), dict[ObjectPath, Any]()
        wanted |= {path: value for path, value in self.values(found).items() if FIELD_MANAGER in self.owners(found, path)}
        wanted |= {path: value for path, value in self.values(found).items() if path in self.always}
        wanted |= {one.path: one.before for one in back}
        made = self.manifest(*kube.namespace_and_name(found), {path: value for path, value in wanted.items() if value is not None})
        if not self.versioned:
            made = with_meta(made, uid=kube.uid(found))
        result = self.after_apply(made, found)
        return made, tuple(one.path for one in back if result.get(one.path) != one.before)

    def requests(self, found: Object, wanted: Mapping[ObjectPath, Any]) -> list[Request]:
        """The requests that set these fields of an object (None: remove); its other fields stay."""
        left = {path: wanted[path] for path in self.differ(found, wanted)}
        return [Request("patch", nested(left), tuple(left))] if left else []

    def has(self, found: Object, path: ObjectPath, value: Any) -> bool:
        """A field has this value, which a change or a record has of it."""
        return bool(self.values(found).get(path) == value)

    def unlike(self, found: Object, path: ObjectPath, value: Any) -> str:
        """How a field is, which is not as `value`, for a message."""
        return ".".join(path)

    def shown(self, one: ChangedField) -> str:
        """What a change does to a field, for a message."""
        return str(one)

    def said(self, found: Object, one: ChangedField) -> str:
        """How someone has changed a recorded field."""
        owned = f" (owned by {', '.join(owners)})" if (owners := self.others(found, one.path)) else ""
        now = object_record.as_said(self.values(found).get(one.path))
        return f"{'.'.join(one.path)} is {now}, and that run set it to {object_record.as_said(one.after)}{owned}"

    def differ(self, found: Object, wanted: Mapping[ObjectPath, Any]) -> list[ObjectPath]:
        return [path for path, value in wanted.items() if not self.has(found, path, value)]

    # ---- owners

    def v1(self, path: ObjectPath) -> tuple[str, ...]:
        """A field as managedFields has it."""
        return tuple(f"f:{part}" for part in path)

    def owners(self, found: Object, path: ObjectPath) -> list[str]:
        """The managers of a field or of a part of it, as `manager` or `manager (Update)`."""
        return field_managers.managers(found, *self.v1(path))

    def others(self, found: Object, path: ObjectPath) -> list[str]:
        """The managers of a field other than daytwo."""
        return field_managers.others(found, *self.v1(path))

    def is_ours(self, found: Object) -> bool:
        """daytwo created it: no other manager owns anything of `owned`."""
        return field_managers.is_own(found, *self.v1(self.owned))

    def creators(self, found: Object) -> str:
        """For a message."""
        return ", ".join(self.owners(found, self.owned)) or "an unknown manager"

    def marked(self, found: Object) -> bool:
        """An apply of daytwo's has reached it."""
        return FIELD_MANAGER in self.owners(found, self.mark)

    def as_wanted(self, found: Object) -> str:
        """Why a plan leaves it."""
        return "as wanted" if self.is_ours(found) else f"as wanted (created by {self.creators(found)})"

    # ---- plans

    def removal(self, place: tuple[str, str], found: Object | None, plan: ObjectPlan, *, force: bool) -> ObjectChange | None:
        """The removal of an object that the data want absent; None if there is none, or if it is refused. `place`: namespace and name."""
        change = ObjectChange(self, "remove", *place, found, None, "remove it: `absent` in the data", (self.stays,) if self.stays else ())
        if found is None:
            plan.unchanged.append((change.name, "absent, as wanted"))
        elif not self.is_ours(found) and not force:
            plan.refusals.append(
                f"{change.name}: {self.creators(found)} created it, or changed it since, and daytwo removes only {self.plural} that it"
                " owns; remove it there, or with --data force=true"
            )
        else:
            return change
        return None


@dataclass(frozen=True)
class ObjectChange:
    """One write. `notes`: its effects; `shown`: the diff from the API server's dry run; `before`: the object as it was read, None if it
    does not exist; `manifest`: what to apply, None: remove it; `drops`: fields that are removed before the apply, although others own them;
    `result`: the fields by the API server's dry run, if it counts; `trial`: the manifest of the dry run, if the API server accepts the real
    one only after an earlier change; `unproven`: why it cannot be proven, with the consent to write it all the same; `sets`: of a kind that
    is patched, the fields as they will be, None: removed."""

    kind: Kind
    what: What
    namespace: str
    own_name: str
    before: Object | None
    manifest: Mapping[str, Any] | None
    summary: str
    notes: tuple[str, ...] = ()
    shown: str = ""
    drops: tuple[ObjectPath, ...] = ()
    result: Mapping[ObjectPath, Any] | None = None
    trial: Mapping[str, Any] | None = None
    unproven: tuple[str, ...] = ()
    sets: Mapping[ObjectPath, Any] = field(default_factory=dict)

    @classmethod
    def of_fields(cls, kind: Kind, found: Object, wanted: Mapping[ObjectPath, Any], summary: str = "") -> Self:
        """The change of those fields of an existing object that are not as wanted, by patch."""
        sets = {path: wanted[path] for path in kind.differ(found, wanted)}
        made = cls(kind, "update", *kube.namespace_and_name(found), found, {}, summary, sets=sets)
        return made if summary else replace(made, summary=made.text)

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.own_name}" if self.namespace and not self.kind.namespace else self.own_name

    @property
    def name(self) -> str:
        return f"{self.kind.name} {self.key}"

    @property
    def title(self) -> str:
        """Of its diff."""
        return f"{self.kind.name}/{self.key}"

    @property
    def path(self) -> str:
        return self.kind.path_of(self.namespace, self.own_name)

    @property
    def look(self) -> str:
        """As kubectl takes it."""
        return f"{self.kind.short or self.kind.name} {f'-n {self.namespace} ' if self.namespace else ''}{self.own_name}"

    @property
    def had(self) -> Mapping[ObjectPath, Any]:
        """The fields before this change; none if there was no object."""
        return self.kind.values(self.before)

    @property
    def after(self) -> Mapping[ObjectPath, Any]:
        """The fields after this change; none if the object is removed. Of a patch only its own."""
        if self.kind.verb == "patch":
            return self.sets
        if self.manifest is None or self.result is not None:
            return self.result or {}
        if self.what == "replace":
            return self.kind.values(self.manifest)
        return {path: value for path, value in self.kind.after_apply(self.manifest, self.before).items() if path not in self.drops}

    @property
    def fields(self) -> list[ChangedField]:
        """Those that differ; all of an object that is recreated."""
        before, after = self.had, self.after
        if self.kind.verb == "patch":
            before = {path: before.get(path) for path in after}
        if self.what == "replace":
            return [ChangedField(path, before.get(path), after.get(path)) for path in {**before, **after}]
        return changed(before, after)

    @property
    def text(self) -> str:
        """What it changes, in one line."""
        return ", ".join(map(self.kind.shown, self.fields))

    def is_as_before(self, found: Object | None) -> bool:
        if found is None or self.kind.values(found) != self.kind.values(self.before):
            return False
        return all(self.kind.has(found, one.path, one.before) for one in self.fields)

    def differing(self, found: Object) -> list[str]:
        """How the fields are that the object does not have as they are written."""
        differ = (one for one in changed(self.kind.values(found), self.after) if one.path in self.kind.sets or one.after is not None)
        return [self.kind.unlike(found, one.path, one.after) for one in differ if not self.kind.has(found, one.path, one.after)]

    def is_written(self, found: Object) -> bool:
        """The object is as this change writes it."""
        return not self.differing(found) and self.kind.marked(found)

    def meddled(self, found: Object) -> str:
        """What others have changed since the write; "" for nothing."""
        return left_as_it_is(self.kind, found, foreign(self.kind, found, self.fields))

    def reverting(self, found: Object) -> dict[str, Any]:
        """The manifest that reverts it. Raises NotDone."""
        manifest, kept = self.kind.restoring(found, self.fields)
        if kept:
            raise NotDone(f"someone else owns {', '.join(path[-1] for path in kept)} too")
        return manifest

    @property
    def about(self) -> dict[str, str]:
        """For the record."""
        known = {"kind": self.kind.name, "namespace": self.namespace, "name": self.own_name}
        known |= {"object_name": self.own_name, "version": self.kind.version}
        uid = kube.uid(self.before) if self.before is not None else ""
        return {"path": self.path, "uid": uid, **{key: known[key] for key in self.kind.recorded}}


@dataclass
class ObjectPlan:
    """`actions` in order; `unchanged` are (object, why), `kept` (dropped object that stays, why), `refusals` reasons to stop."""

    actions: list[ObjectChange] = field(default_factory=list)
    unchanged: list[tuple[str, str]] = field(default_factory=list)
    kept: list[tuple[str, str]] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

    @property
    def rest(self) -> list[list[str]]:
        """The table rows of objects that the run does not change."""
        rows = [[name, "none", "no change", "-", why] for name, why in self.unchanged]
        return rows + [[name, "none", "kept", "-", "dropped from the data, see above"] for name, _ in self.kept]


def changed(before: Mapping[ObjectPath, Any], after: Mapping[ObjectPath, Any]) -> list[ChangedField]:
    """The fields that differ; all of them for a created or removed object."""
    return [ChangedField(path, before.get(path), after.get(path)) for path in {**before, **after} if before.get(path) != after.get(path)]


def foreign(kind: Kind, found: Object, fields: Iterable[ChangedField]) -> list[ChangedField]:
    """The fields of a change, or of a record, that have neither their old nor their new value."""
    return [one for one in fields if not kind.has(found, one.path, one.before) and not kind.has(found, one.path, one.after)]


def left_as_it_is(kind: Kind, found: Object, fields: Iterable[ChangedField]) -> str:
    """What to say of fields that someone else has changed; "" for none."""
    now = kind.values(found)
    seen = ", ".join(kind.shown(replace(one, after=now.get(one.path))) for one in fields)
    return f"changed by someone else meanwhile ({seen}): left as it is now" if seen else ""


def nested(fields: Mapping[ObjectPath, Any]) -> dict[str, Any]:
    """The object with these fields."""
    made: dict[str, Any] = {}
    for path, value in fields.items():
        into = made
        for part in path[:-1]:
            into = into.setdefault(part, {})
        into[path[-1]] = value
    return made
