"""Order, pace and halt: one coordinator for all hosts of a pyinfra run."""

from roles.engine.runs import options
from roles.engine.runs.deploying import Ended, Turns, deploying, end_unproven, no_data, no_such_host, one, same, unreachable, with_options
from roles.engine.runs.lock import seen_holder
from roles.engine.runs.locked_run import CONFIRM_SECONDS, RECONNECT_SECONDS, LockedRun
from roles.engine.runs.options import Options
from roles.engine.runs.pace import Pace, stages, stages_of_workers
from roles.engine.runs.reports import ChangeReport, Document, document, show_report, write_report

__all__ = [
    "CONFIRM_SECONDS",
    "RECONNECT_SECONDS",
    "ChangeReport",
    "Document",
    "Ended",
    "LockedRun",
    "Options",
    "Pace",
    "Turns",
    "deploying",
    "document",
    "end_unproven",
    "no_data",
    "no_such_host",
    "one",
    "options",
    "same",
    "seen_holder",
    "show_report",
    "stages",
    "stages_of_workers",
    "unreachable",
    "with_options",
    "write_report",
]
