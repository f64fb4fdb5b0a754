"""What a node is: one batched, read-only look over SSH, and the typed result that every role plans from."""

from roles.observe.look import Wanted, look
from roles.observe.model import File, Observation, Process, Stranger, Unit, minor_of
from roles.observe.parse import ObservationError, parse

__all__ = ["File", "Observation", "ObservationError", "Process", "Stranger", "Unit", "Wanted", "look", "minor_of", "parse"]
