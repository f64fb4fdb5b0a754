"""The steps of a resize run: each pod, then the template, if it changes too; and reading a recorded run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from roles.engine.bridge import show
from roles.engine.context import StepContext
from roles.engine.detail import counted
from roles.engine.kube import Object, full_name, version
from roles.engine.kube.pods import is_alive
from roles.engine.objects import ChangedByOthers, NotDone, Reverting, RollOuts, Session
from roles.engine.rollout import ClusterStep, Stage
from roles.engine.transaction import ChangedObject, ObjectsRecord, Writable
from roles.pod_resize import pod_resources
from roles.pod_resize.engine import Engine
from roles.pod_resize.plan import PodStep, ResourceChange
from roles.pod_resize.templates import Template

RESIZE, UPDATE = "resize", "update template"


def only_resources(one: ChangedObject) -> str:
    """Why the old values are no CPU and memory of containers; "" if they are."""
    for found in (changed.before for changed in one.fields if changed.path[-1] == "resources"):
        kinds = found.items() if isinstance(found, Mapping) else [("", None)]
        for kind, amounts in kinds:
            if kind not in pod_resources.KINDS or not isinstance(amounts, Mapping) or not set(amounts) <= set(pod_resources.RESOURCES):
                return f"{found!r} as resources"
    return ""


RESOURCES_OF_TEMPLATE = ("spec", "template", "spec", "containers", "*", "resources")
#: What an undo may write.
WRITES = (
    Writable("/api/v1/namespaces/*/pods/*", (("spec", "containers", "*", "resources"),), only_resources),
    Writable("/apis/apps/v1/namespaces/*/*/*", (RESOURCES_OF_TEMPLATE,), only_resources),
)


def stages(
    engine: Engine, steps: Sequence[PodStep], at_once: int, rolling: RollOuts, template: Template | None
) -> list[Stage[ClusterStep]]:
    """At most `at_once` pods at a time, then the template."""
    pods = [
        ClusterStep(
            f"pod {step.where}", f"on {step.node}: {step.summary}", "", partial(_resized, engine, step), "", action=RESIZE,
            about={"path": f"/api/v1/namespaces/{step.namespace}/pods/{step.name}", "uid": step.uid, "node": step.node,
                   "namespace": step.namespace, "pod": step.name},
        )
        for step in steps
    ]  # fmt: skip
    last = []
    if template is not None:
        about = {"path": template.path, "uid": template.uid, "kind": template.kind}
        write = TemplateUpdate(rolling, template).carry_out
        last.append(ClusterStep(template.name, "its template gets the pods' resources", "", write, "", action=UPDATE, about=about))
    return [Stage(tuple(pods), at_once), Stage(tuple(last))]


def _resized(engine: Engine, step: PodStep, context: StepContext) -> str:
    context.begin([_field(("spec", "containers", name, "resources"), one.before, one.after) for name, one in step.changes.items()])
    return str(engine.resize(step))


def _field(path: tuple[str, ...], before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    return {"path": list(path), "before": before, "after": after}


@dataclass
class TemplateUpdate:
    """Writes a template and waits for the end of its roll-out, or reverts it. `reverting` is called right before, and raises nothing."""

    rolling: RollOuts
    template: Template
    reverting: Callable[[], object] = lambda: None

    @property
    def session(self) -> Session:
        return self.rolling.session

    def carry_out(self, context: StepContext) -> str:
        template = self.template
        path = ("spec", "template", "spec", "containers")
        fields = [_field((*path, name, "resources"), template.before.get(name) or {}, after) for name, after in template.after.items()]
        context.begin(fields)
        return self.update()

    def update(self) -> str:
        """As `carry_out`, for a step that has recorded it already."""
        template = self.template
        where = f"-n {template.namespace} {template.kind.lower()}/{template.name.rpartition('/')[2]}"
        by_hand = f"if it has what this run set: kubectl rollout undo {where}"
        reverting = Reverting(lambda: self._revert(template), "the template", where, by_hand)
        return reverting.unless(lambda: self._write(template), lambda _: self._has(template, self._rolled(template)), show)

    def _write(self, template: Template, version: str = "") -> None:
        """Raises the same as Session.written, and NotDone."""

        def done(found: Object) -> bool:
            return template.is_of(found) and not template.changed(found)

        found = self.session.written(template.path, lambda api: api.patch(template.path, template.patch(version)), done)
        if why := template.changed(found):
            raise NotDone(why)

    def _revert(self, template: Template) -> str:
        """Set the old template and roll it out; returns the proof. This overwrites only what this run wrote, and only in the version that
        was read. Raises Foreign, NotDone, ApiFailure."""
        self.reverting()
        back = template.back()

        def write() -> None:
            there = self.session.fetch(template.path)
            if there is None or not template.is_of(there):
                raise ChangedByOthers("it was deleted meanwhile, so there is nothing to revert")
            if not back.changed(there):
                return
            if why := template.changed(there):
                raise ChangedByOthers(f"{why}: left as it is now")
            self._write(back, version(there))

        self.session.unconflicted(write)
        left = self._rolled(back)
        return f"reverted and rolled out{'; ' + left if left else ''}; pods that were resized in place keep their resources"

    def _rolled(self, template: Template) -> str:
        return self.rolling.wait(
            template.kind, template.name, template.path, template.uid, template.timeout, template.changed, template.is_new
        )  # fmt: skip

    def _has(self, template: Template, left: str) -> str:
        pods = [pod for pod in self.rolling.pods_of(template.kind, template.namespace, template.uid) if is_alive(pod)]
        wrong = [full_name(pod) for pod in pods if not template.is_new(pod)]
        if wrong:
            raise NotDone(f"it is rolled out, but the resources of {', '.join(wrong)} differ from it: an admission webhook changes them")
        return (
            f"rolled out; its {counted(len(pods), 'pod')} {'has' if len(pods) == 1 else 'have'} it, read back{'; ' if left else ''}{left}"
        )


# ---- records of earlier runs


@dataclass(frozen=True)
class ResizeRecord:
    """A recorded run. `about`: namespace, labels, workload and pace; `template`: its change, or None; `outcomes`: how its pods ended, by
    UID, as far as recorded."""

    steps: tuple[PodStep, ...]
    about: Mapping[str, Any]
    template: ChangedObject | None
    outcomes: Mapping[str, str] = field(default_factory=dict)


def recorded(record: ObjectsRecord) -> ResizeRecord:
    """The recorded run. Raises ValueError if a line of the record is incomplete."""
    try:
        pods = [one for one in record.objects if one.action == RESIZE]
        steps = tuple(_step(one) for one in pods)
        about = {**record.about, "namespace": str(record.about["namespace"]), "labels": str(record.about["labels"])}
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(
            f"the record of run {record.run} lacks something ({type(error).__name__}: {error}); undo it by hand"
        ) from error  # fmt: skip
    template = next((one for one in record.objects if one.action == UPDATE), None)
    return ResizeRecord(steps, about, template, {one.uid: one.outcome for one in pods if one.outcome})


def _step(one: ChangedObject) -> PodStep:
    changes = {field.path[2]: ResourceChange(dict(field.before), dict(field.after)) for field in one.fields}
    return PodStep(str(one.about["namespace"]), str(one.about["pod"]), str(one.about["uid"]), str(one.about["node"]), changes)


def of_template(changed: ChangedObject, side: str) -> dict[str, pod_resources.Resources]:
    """The resources in a recorded change of a template, by container: `side` is before or after."""
    return {field.path[4]: dict(getattr(field, side)) for field in changed.fields}
