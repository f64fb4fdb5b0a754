"""The transaction every role ends in: stage, apply, prove, confirm or revert."""

from roles.change import object_record, report
from roles.change.bundle import HOME, Holder, directory, keep_script, render, script, stage_script, uninstall_script
from roles.change.inflight import NOT_IN_FLIGHT, in_flight
from roles.change.mask import mask_text
from roles.change.mask_files import mask_manifest
from roles.change.model import IO_SECONDS, LEAST_CONFIRM_SECONDS, STABLE_SECONDS, Change, FileEdit, change_id, cmdline_sha256
from roles.change.object_record import ChangedField, ChangedObject, ObjectsRecord
from roles.change.record import (
    CLUSTER_KIND,
    FORMAT,
    OBJECTS_KIND,
    Effective,
    Events,
    RunInfo,
    RunRecord,
    Unrecorded,
    cluster_record,
    end_record,
    new_run_id,
    now,
    parse_events,
    plan_record,
    read_events,
    this_run,
)
from roles.change.refusal import Refusal
from roles.change.report import Status

__all__ = [
    "CLUSTER_KIND",
    "FORMAT",
    "HOME",
    "IO_SECONDS",
    "LEAST_CONFIRM_SECONDS",
    "NOT_IN_FLIGHT",
    "OBJECTS_KIND",
    "STABLE_SECONDS",
    "Change",
    "ChangedField",
    "ChangedObject",
    "Effective",
    "Events",
    "FileEdit",
    "Holder",
    "ObjectsRecord",
    "Refusal",
    "RunInfo",
    "RunRecord",
    "Status",
    "Unrecorded",
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
    "now",
    "object_record",
    "parse_events",
    "plan_record",
    "read_events",
    "render",
    "report",
    "script",
    "stage_script",
    "this_run",
    "uninstall_script",
]
