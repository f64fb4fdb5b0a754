"""The observation of a node: one read-only script over SSH, and its typed result, from which every role plans."""

from roles.engine.node.logind import MOST_LOCKS, Delay, Inhibitor, Logind, parse_inhibitor
from roles.engine.node.look import FilesWanted, answered, look
from roles.engine.node.model import DELETED, File, Observation, Process, Replacement, is_younger, minor_of, start_time
from roles.engine.node.named_files import parse_authorities, parse_files, read_files, read_trust
from roles.engine.node.parse import ObservationError, parse, unreadable
from roles.engine.node.virtual import MARKS, Mark, version_mark, virtual_mark

__all__ = [
    "DELETED",
    "MARKS",
    "MOST_LOCKS",
    "Delay",
    "File",
    "FilesWanted",
    "Inhibitor",
    "Logind",
    "Mark",
    "Observation",
    "ObservationError",
    "Process",
    "Replacement",
    "answered",
    "is_younger",
    "look",
    "minor_of",
    "parse",
    "parse_authorities",
    "parse_files",
    "parse_inhibitor",
    "read_files",
    "read_trust",
    "start_time",
    "unreadable",
    "version_mark",
    "virtual_mark",
]
