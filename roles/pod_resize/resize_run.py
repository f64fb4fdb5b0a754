"""The steps of a resize run: each pod, then the template, if it changes too; and reading a recorded run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from roles.engine.context import ClusterStep, Stage, StepContext
from roles.engine.objects import RollOuts
from roles.engine.transaction import ChangedObject, ObjectsRecord, Writable
from roles.pod_resize.kinds import RESIZED, only_resources
from roles.pod_resize.plan import PodStep, ResourceChange
from roles.pod_resize.templates import Template
from roles.pod_resize.write import ResizeWriter

RESIZE, UPDATE = "resize", "update template"


RESOURCES_OF_TEMPLATE = ("spec", "template", "spec", "containers", "*", "resources")
#: What an undo may write.
WRITES = (
    RESIZED.writable,
    Writable("/apis/apps/v1/namespaces/*/*/*", (RESOURCES_OF_TEMPLATE,), only_resources),
)


def stages(
    writer: ResizeWriter, steps: Sequence[PodStep], at_once: int, rolling: RollOuts, template: Template | None
) -> list[Stage[ClusterStep]]:
    """At most `at_once` pods at a time, then the template."""
    changes = [(step, writer.change(step)) for step in steps]
    pods = [
        ClusterStep(
            f"pod {step.where}", f"on {step.node}: {step.summary}", "", partial(writer.carry_out, change), "", action=RESIZE,
            about={"path": change.path, "uid": step.uid, "node": step.node, "namespace": step.namespace, "pod": step.name},
        )
        for step, change in changes
    ]  # fmt: skip
    last = []
    if template is not None:
        about = {"path": template.path, "uid": template.uid, "kind": template.kind}
        write = partial(_updated, rolling, template)
        last.append(ClusterStep(template.name, "its template gets the pods' resources", "", write, "", action=UPDATE, about=about))
    return [Stage(tuple(pods), at_once), Stage(tuple(last))]


def _updated(rolling: RollOuts, template: Template, context: StepContext) -> str:
    context.begin(template.fields)
    return rolling.carry_out(template)


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
