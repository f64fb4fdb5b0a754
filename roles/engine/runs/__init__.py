"""Order, pace and halt: one coordinator for all hosts of a pyinfra run."""

from roles.engine.runs import options, table
from roles.engine.runs.deploying import Turns, deploying, no_data, no_such_host, one, same, unreachable, with_options
from roles.engine.runs.locked_run import CONFIRM_SECONDS, RECONNECT_SECONDS, ClusterStep, LockedRun, Outcome
from roles.engine.runs.options import Options
from roles.engine.runs.pace import Pace, Stage, stages, stages_of_workers
from roles.engine.runs.table import counted

__all__ = [
    "CONFIRM_SECONDS",
    "RECONNECT_SECONDS",
    "ClusterStep",
    "LockedRun",
    "Options",
    "Outcome",
    "Pace",
    "Stage",
    "Turns",
    "counted",
    "deploying",
    "no_data",
    "no_such_host",
    "one",
    "options",
    "same",
    "stages",
    "stages_of_workers",
    "table",
    "unreachable",
    "with_options",
]
