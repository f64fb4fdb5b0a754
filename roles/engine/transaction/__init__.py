"""The transaction every role ends in: stage, apply, prove, confirm or revert."""

from roles.engine.transaction import object_record, report
from roles.engine.transaction.by_hand import RESOLVERS, Repair, bring_resolver, repair, restart_runtime
from roles.engine.transaction.change_script import (
    HOME,
    Holder,
    directory,
    keep_script,
    resume_script,
    script,
    stage_script,
    uninstall_script,
)
from roles.engine.transaction.inflight import NOT_IN_FLIGHT, in_flight
from roles.engine.transaction.mask import mask_text
from roles.engine.transaction.mask_files import mask_manifest
from roles.engine.transaction.model import (
    ABSENT,
    IO_SECONDS,
    LEAST_CONFIRM_SECONDS,
    STABLE_SECONDS,
    Change,
    FileEdit,
    RuntimeRestart,
    change_id,
    cmdline_sha256,
)
from roles.engine.transaction.object_record import CANNOT_UNDO, ChangedField, ChangedObject, ObjectsRecord
from roles.engine.transaction.record import (
    CLUSTER_KIND,
    FORMAT,
    OBJECTS_KIND,
    Effective,
    RunInfo,
    RunRecord,
    Unrecorded,
    cluster_record,
    end_record,
    new_run_id,
    parse_events,
    plan_record,
    read_events,
    this_run,
)
from roles.engine.transaction.refusal import Refusal
from roles.engine.transaction.report import Status
from roles.engine.transaction.writable import Writable, not_writable

__all__ = [
    "ABSENT",
    "CANNOT_UNDO",
    "CLUSTER_KIND",
    "FORMAT",
    "HOME",
    "IO_SECONDS",
    "LEAST_CONFIRM_SECONDS",
    "NOT_IN_FLIGHT",
    "OBJECTS_KIND",
    "RESOLVERS",
    "STABLE_SECONDS",
    "Change",
    "ChangedField",
    "ChangedObject",
    "Effective",
    "FileEdit",
    "Holder",
    "ObjectsRecord",
    "Refusal",
    "Repair",
    "RunInfo",
    "RunRecord",
    "RuntimeRestart",
    "Status",
    "Unrecorded",
    "Writable",
    "bring_resolver",
    "change_id",
    "cluster_record",
    "cmdline_sha256",
    "directory",
    "end_record",
    "in_flight",
    "keep_script",
    "mask_manifest",
    "mask_text",
    "new_run_id",
    "not_writable",
    "object_record",
    "parse_events",
    "plan_record",
    "read_events",
    "repair",
    "report",
    "restart_runtime",
    "resume_script",
    "script",
    "stage_script",
    "this_run",
    "uninstall_script",
]
