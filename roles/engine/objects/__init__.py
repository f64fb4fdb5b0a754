"""The engine for changes of API objects: dry run, write under a precondition, proof, undo by name."""

from roles.engine.objects import workload_rollout
from roles.engine.objects.diffs import object_diff
from roles.engine.objects.kind import Kind, ObjectChange, ObjectPath, ObjectPlan, Request, changed
from roles.engine.objects.outcome import ChangedByOthers, Gone, NotDone, RevertFailed, Undone, Unknown, WriteRefused
from roles.engine.objects.rolling import FieldOfTemplate, RollOuts, TemplateChange, TemplateWriter, pods_have
from roles.engine.objects.session import REFUSED, Session
from roles.engine.objects.undo import NotUndone, undo_plan
from roles.engine.objects.write import ObjectWriter

__all__ = [
    "REFUSED",
    "ChangedByOthers",
    "FieldOfTemplate",
    "Gone",
    "Kind",
    "NotDone",
    "NotUndone",
    "ObjectChange",
    "ObjectPath",
    "ObjectPlan",
    "ObjectWriter",
    "Request",
    "RevertFailed",
    "RollOuts",
    "Session",
    "TemplateChange",
    "TemplateWriter",
    "Undone",
    "Unknown",
    "WriteRefused",
    "changed",
    "object_diff",
    "pods_have",
    "undo_plan",
    "workload_rollout",
]
