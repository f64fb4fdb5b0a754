"""The observation of a node: one read-only script over SSH, and its typed result, from which every role plans."""

from roles.engine.node.look import FilesWanted, look
from roles.engine.node.model import File, Observation, Process, minor_of
from roles.engine.node.parse import ObservationError, parse

__all__ = ["File", "FilesWanted", "Observation", "ObservationError", "Process", "look", "minor_of", "parse"]
