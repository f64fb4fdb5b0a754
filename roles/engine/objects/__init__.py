"""The engine for changes of API objects: dry run, write under a precondition, proof, undo by name."""

from roles.engine.objects import object_report, workload_rollout
from roles.engine.objects.begin import (
    TimeLimit,
    check_namespaces,
    cluster_session,
    desired_of_cluster,
    dry_run,
    planned_run,
    read_objects,
    show_plan,
)
from roles.engine.objects.diffs import object_diff
from roles.engine.objects.field_write import FieldWriter, Request
from roles.engine.objects.kind import Kind, ObjectChange, What, at, changed
from roles.engine.objects.outcome import ChangedByOthers, Gone, NotDone, RevertFailed, Undone, Unknown, WriteRefused
from roles.engine.objects.planned import (
    FieldChange,
    NotUndone,
    ObjectPath,
    ObjectPlan,
    changes_text,
    field_changes,
    field_way_back,
    judged,
)
from roles.engine.objects.rolling import LOOK_AGAIN, Reverting, RollOuts
from roles.engine.objects.run import Consents, ObjectRun
from roles.engine.objects.session import API_WAIT, REFUSED, ConnectedCluster, Session, connect_cluster, open_session
from roles.engine.objects.undo import recorded_paths, undo_plan
from roles.engine.objects.write import ObjectWriter, wait_gone, written_so

__all__ = [
    "API_WAIT",
    "LOOK_AGAIN",
    "REFUSED",
    "ChangedByOthers",
    "ConnectedCluster",
    "Consents",
    "FieldChange",
    "FieldWriter",
    "Gone",
    "Kind",
    "NotDone",
    "NotUndone",
    "ObjectChange",
    "ObjectPath",
    "ObjectPlan",
    "ObjectRun",
    "ObjectWriter",
    "Request",
    "RevertFailed",
    "Reverting",
    "RollOuts",
    "Session",
    "TimeLimit",
    "Undone",
    "Unknown",
    "What",
    "WriteRefused",
    "at",
    "changed",
    "changes_text",
    "check_namespaces",
    "cluster_session",
    "connect_cluster",
    "desired_of_cluster",
    "dry_run",
    "field_changes",
    "field_way_back",
    "judged",
    "object_diff",
    "object_report",
    "open_session",
    "planned_run",
    "read_objects",
    "recorded_paths",
    "show_plan",
    "undo_plan",
    "wait_gone",
    "workload_rollout",
    "written_so",
]
