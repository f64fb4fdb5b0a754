"""What a node is: one batched, read-only look over SSH, and the typed result that every role plans from."""

from roles.engine.node.look import FilesWanted, look
from roles.engine.node.model import File, Observation, OtherProcess, Process, Unit, minor_of
from roles.engine.node.parse import ObservationError, parse

__all__ = ["File", "FilesWanted", "Observation", "ObservationError", "OtherProcess", "Process", "Unit", "look", "minor_of", "parse"]
