"""What a node is: one batched, read-only look over SSH, and the typed result that every role plans from."""

from roles.engine.node.look import Wanted, look
from roles.engine.node.model import File, Observation, Process, Stranger, Unit, minor_of
from roles.engine.node.parse import ObservationError, parse

__all__ = ["File", "Observation", "ObservationError", "Process", "Stranger", "Unit", "Wanted", "look", "minor_of", "parse"]
