"""The engine for changes of API objects: dry run, write under a precondition, proof, undo by name."""

from roles.engine.objects import workload_rollout
from roles.engine.objects.diffs import object_diff
from roles.engine.objects.kind import Kind, ObjectChange, ObjectPath, ObjectPlan, Request, changed, changes_text
from roles.engine.objects.outcome import ChangedByOthers, Gone, NotDone, RevertFailed, Undone, Unknown, WriteRefused
from roles.engine.objects.rolling import LOOK_AGAIN, Reverting, RollOuts
from roles.engine.objects.session import REFUSED, Session
from roles.engine.objects.undo import NotUndone, recorded_paths, undo_plan
from roles.engine.objects.write import ObjectWriter

__all__ = [
    "LOOK_AGAIN",
    "REFUSED",
    "ChangedByOthers",
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
    "Reverting",
    "RollOuts",
    "Session",
    "Undone",
    "Unknown",
    "WriteRefused",
    "changed",
    "changes_text",
    "object_diff",
    "recorded_paths",
    "undo_plan",
    "workload_rollout",
]
