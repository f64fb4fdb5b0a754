"""The observation of a node: one read-only script over SSH, and its typed result, from which every role plans."""

from roles.engine.node.look import FilesWanted, look
from roles.engine.node.model import File, Observation, OtherProcess, Process, Unit, minor_of
from roles.engine.node.parse import ObservationError, parse

__all__ = ["File", "FilesWanted", "Observation", "ObservationError", "OtherProcess", "Process", "Unit", "look", "minor_of", "parse"]
