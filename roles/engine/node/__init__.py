"""The observation of a node: one read-only script over SSH, and its typed result, from which every role plans."""

from roles.engine.node import logind, named_files, virtual
from roles.engine.node.kernels import judge_kernels
from roles.engine.node.look import FilesWanted, answered, look
from roles.engine.node.model import DELETED, File, Observation, Process, Replacement, in_pod, is_younger, minor_of, start_time
from roles.engine.node.parse import ObservationError, unreadable
from roles.engine.node.reboot_signs import judge_signs

__all__ = [
    "DELETED",
    "File",
    "FilesWanted",
    "Observation",
    "ObservationError",
    "Process",
    "Replacement",
    "answered",
    "in_pod",
    "is_younger",
    "judge_kernels",
    "judge_signs",
    "logind",
    "look",
    "minor_of",
    "named_files",
    "start_time",
    "unreadable",
    "virtual",
]
