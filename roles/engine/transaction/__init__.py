"""The transaction every role ends in: stage, apply, prove, confirm or revert."""

from roles.engine.transaction import by_hand, change_script, model, object_record, record, report
from roles.engine.transaction.inflight import NOT_IN_FLIGHT, in_flight
from roles.engine.transaction.mask import mask_text
from roles.engine.transaction.mask_files import mask_manifest
from roles.engine.transaction.model import Change, FileEdit, RuntimeRestart, change_id
from roles.engine.transaction.object_record import ChangedField, ChangedObject, ObjectsRecord
from roles.engine.transaction.record import Effective, RunInfo, new_run_id, this_run
from roles.engine.transaction.refusal import Refusal
from roles.engine.transaction.report import Status
from roles.engine.transaction.writable import Writable, not_writable

__all__ = [
    "NOT_IN_FLIGHT",
    "Change",
    "ChangedField",
    "ChangedObject",
    "Effective",
    "FileEdit",
    "ObjectsRecord",
    "Refusal",
    "RunInfo",
    "RuntimeRestart",
    "Status",
    "Writable",
    "by_hand",
    "change_id",
    "change_script",
    "in_flight",
    "mask_manifest",
    "mask_text",
    "model",
    "new_run_id",
    "not_writable",
    "object_record",
    "record",
    "report",
    "this_run",
]
