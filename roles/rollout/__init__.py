"""Order, pace and halt: one coordinator drives the hosts of a pyinfra run."""

from roles.rollout import node_report, object_report, remote, table
from roles.rollout.deploying import Turns, deploying, no_data, one, same, unreachable
from roles.rollout.lock import ClusterLock, Locked
from roles.rollout.locked_run import ClusterStep, Fields, LockedRun, Outcome
from roles.rollout.number import run_number
from roles.rollout.object_run import Consents, ObjectRun
from roles.rollout.pace import Stage
from roles.rollout.remote import Answer, Fleet, Remote, RemoteError, on_interrupt, refusals, show, show_lines, stop
from roles.rollout.run import Run, Step, arrange

__all__ = [
    "Answer",
    "ClusterLock",
    "ClusterStep",
    "Consents",
    "Fields",
    "Fleet",
    "Locked",
    "LockedRun",
    "ObjectRun",
    "Outcome",
    "Remote",
    "RemoteError",
    "Run",
    "Stage",
    "Step",
    "Turns",
    "arrange",
    "deploying",
    "no_data",
    "node_report",
    "object_report",
    "on_interrupt",
    "one",
    "refusals",
    "remote",
    "run_number",
    "same",
    "show",
    "show_lines",
    "stop",
    "table",
    "unreachable",
]
